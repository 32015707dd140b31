"""`ffrecord convert`: any format to a directory of shards of typed samples."""

import argparse
import tarfile
from contextlib import suppress
from itertools import groupby, islice

from ffrecord.cli.sources import add_source, refuse_inside
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_out, add_skipping, advising, conclude, options_of
from ffrecord.conversion import convert
from ffrecord.sources.opening import detect_first, first_of, local_paths
from ffrecord.sources.registry import SUFFIXES
from ffrecord.system.urls import is_remote

LOOKED_AT = 16  # members of a tar
GROUPS_LEAST = 2  # of members that are called alike


def meant(source: str) -> str:
    """What to say of a source whose format nobody has named; "" if nothing, or if it cannot be read."""
    if is_remote(source):
        return ""
    with suppress(Exception):  # whoever reads it says what is wrong with it
        paths = local_paths(source)
        format = detect_first(paths)
        if format == "zip" and first_of(paths).endswith(".npz"):
            return f"{source} is taken as a zip: `ffrecord write {source} OUT` makes samples of its arrays"
        if format == "tar" and _are_grouped(_names(first_of(paths, SUFFIXES["tar"]))):
            return f"{source} looks like a WebDataset: --format webdataset groups its files"
    return ""


def _names(path: str) -> list[str]:
    """Of the first members of a tar; of one that is packed, no more than these are unpacked."""
    with tarfile.open(path) as archive:
        return [member.name for member in islice(archive, LOOKED_AT) if member.isfile()]


def _are_grouped(names: list[str]) -> bool:
    """Whether neighbours differ in what follows the first dot only, by the same two ends or more in each group."""
    groups = [frozenset(end for _, end in group) for _, group in groupby(map(_cut, names), lambda pair: pair[0])]
    whole = groups[:-1] if len(groups) > GROUPS_LEAST else groups  # the last may go on
    return len(whole) >= GROUPS_LEAST and len(whole[0]) > 1 and len(set(whole)) == 1


def _cut(name: str) -> tuple[str, str]:
    """The key of a member as WebDataset has it, and the rest."""
    directory, slash, file = name.rpartition("/")
    stem, _, end = file.partition(".")
    return f"{directory}{slash}{stem}", end


EXAMPLES = """\
examples:
  ffrecord convert photos/ out/  # its class directories become labels
  ffrecord convert train.zip out/ --verify
  ffrecord convert --format webdataset 'train-*.tar' out/"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, OUT, and how."""
    parser.epilog = EXAMPLES
    add_source(parser, formats=("parquet",))
    add_out(parser)
    add_skipping(parser)
    parser.add_argument("--verify", action="store_true", help="read source and result again and compare every sample")
    parser.add_argument("--append", action="store_true", help="add shards to a dataset that is there")


def run(given: argparse.Namespace, out: Output) -> int:
    """Convert it."""
    refuse_inside([given.source], given.out)
    mode = {"mode": "append"} if given.append else {}
    options = options_of(given, out)
    remark = meant(given.source) if given.format is None else ""
    if remark:
        out.remark(f"ffrecord convert: {remark}")
    with advising(given):
        summary = convert(given.source, given.out, format=given.format, verify=given.verify, **mode, **options)  # type: ignore[arg-type]
    return conclude([summary], out, verified=given.verify)

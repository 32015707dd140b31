"""`ffrecord convert`: any format to a directory of shards of typed samples."""

import argparse
import tarfile
from contextlib import suppress
from itertools import groupby, islice

from ffrecord.cli.sources import add_source
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_out, add_skipping, conclude, hint_at_skipping, options_of
from ffrecord.conversion import convert
from ffrecord.sources.opening import detect_first, first_of, local_paths
from ffrecord.sources.registry import SUFFIXES
from ffrecord.system.urls import is_remote

LOOKED_AT = 16  # first members of a tar that tell whether it is a WebDataset
GROUPS_LEAST = 2  # groups of members with the same key, for a WebDataset


def format_hint(source: str) -> str:
    """Return a hint at a better format or command for a source; "" if there is none, or if it cannot be read."""
    if is_remote(source):
        return ""
    with suppress(Exception):  # the conversion itself reports what is wrong with the source
        paths = local_paths(source)
        format = detect_first(paths)
        if format == "tar" and _are_grouped(_read_names(first_of(paths, SUFFIXES["tar"]))):
            return f"{source} looks like a WebDataset: use --format webdataset to group its files"
    return ""


def _read_names(path: str) -> list[str]:
    """Return the names of the first members of a tar. A compressed one is decompressed only so far."""
    with tarfile.open(path) as archive:
        return [member.name for member in islice(archive, LOOKED_AT) if member.isfile()]


def _are_grouped(names: list[str]) -> bool:
    """Tell whether names come in groups that differ only after the first dot.

    Each group must have the same endings, at least two of them.
    """
    groups = [frozenset(end for _, end in group) for _, group in groupby(map(_split_key, names), lambda pair: pair[0])]
    whole = groups[:-1] if len(groups) > GROUPS_LEAST else groups  # the last group may be incomplete
    return len(whole) >= GROUPS_LEAST and len(whole[0]) > 1 and len(set(whole)) == 1


def _split_key(name: str) -> tuple[str, str]:
    """Split a member's name into the key of WebDataset and the ending."""
    directory, slash, file = name.rpartition("/")
    stem, _, end = file.partition(".")
    return f"{directory}{slash}{stem}", end


EXAMPLES = """\
examples:
  ffrecord convert photos/ out/  # its class directories become labels
  ffrecord convert train.zip out/ --verify
  ffrecord convert --format webdataset 'train-*.tar' out/"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH, OUT and the options of a conversion."""
    parser.epilog = EXAMPLES
    add_source(parser, formats=("parquet",))
    add_out(parser)
    add_skipping(parser)
    parser.add_argument("--verify", action="store_true", help="read source and result again, and compare every sample")
    parser.add_argument("--append", action="store_true", help="add shards to an existing dataset")


def run(given: argparse.Namespace, out: Output) -> int:
    """Convert the dataset."""
    mode = {"mode": "append"} if given.append else {}
    options = options_of(given, out)
    remark = format_hint(given.source) if given.format is None else ""
    if remark:
        out.remark(f"ffrecord convert: {remark}")
    with hint_at_skipping(given):
        summary = convert(given.source, given.out, format=given.format, verify=given.verify, **mode, **options)  # type: ignore[arg-type]
    return conclude([summary], out, verified=given.verify)

"""`ffrecord convert`: any format → a directory of shards of typed samples."""

import argparse

from ffrecord.cli.format_hint import meant
from ffrecord.cli.sources import add_source, refuse_inside
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_out, add_skipping, advising, conclude, options_of
from ffrecord.conversion import convert

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

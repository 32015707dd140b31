"""`ffrecord merge`: several datasets of the same columns → one."""

import argparse

from ffrecord.cli import exits
from ffrecord.cli.making import add_writing, conclude, options_of
from ffrecord.cli.output import Output
from ffrecord.cli.sources import add_source
from ffrecord.conversion import convert

EXAMPLES = """\
examples:
  ffrecord merge data/monday data/tuesday --out data/both"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Some PATHs, and OUT."""
    parser.epilog = EXAMPLES
    add_source(parser, several=True)
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="a new directory of shards")
    add_writing(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the samples of all, one dataset after the other: records of .ffr files stay the bytes that they are."""
    conclude([convert(given.source, given.out, format=given.format, **options_of(given, out))], out)
    return exits.DONE

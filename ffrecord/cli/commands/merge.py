"""`ffrecord merge`: several datasets of the same columns → one."""

import argparse

from ffrecord.cli.sources import add_source, path_of
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_skipping, add_writing, conclude, hint_at_skipping, options_of
from ffrecord.conversion import convert
from ffrecord.errors import ArgumentError
from ffrecord.sources.opening import detect_first

EXAMPLES = """\
examples:
  ffrecord merge data/monday data/tuesday --out data/both"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add several PATHs, and OUT."""
    parser.epilog = EXAMPLES
    add_source(parser, several=True)
    parser.add_argument("-o", "--out", required=True, type=path_of, metavar="OUT", help="new directory of shards")
    add_writing(parser)
    add_skipping(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the samples of all datasets, one after the other. Records of .ffr files are copied byte by byte."""
    _check(given.source if given.format is None else [])
    with hint_at_skipping(given):
        summary = convert(given.source, given.out, format=given.format, **options_of(given, out))
    return conclude([summary], out)


def _check(sources: list[str]) -> None:
    """Raise ArgumentError if the sources have more than one format."""
    found = {path: detect_first([path]) for path in sources}
    other = next((path for path, format in found.items() if format != found[sources[0]]), None)
    if other is not None:
        formats = f"{other} is {found[other]}, {sources[0]} is {found[sources[0]]}"
        raise ArgumentError(f"{formats}: run `ffrecord convert` on one of them first")

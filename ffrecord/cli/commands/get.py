"""`ffrecord get`: samples by index or name, decoded, or their raw bytes."""

import argparse
import re
from typing import Any

from ffrecord.cli.format_values import print_samples
from ffrecord.cli.partial import PartialDataset, open_partial
from ffrecord.cli.sample_index import indices_of
from ffrecord.cli.sources import add_source
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.errors import ArgumentError, FFRecordError

EXAMPLES = """\
examples:
  ffrecord get data/train 0 17 -1
  ffrecord get data/train 100:110 -3:
  ffrecord get photos.zip cats/1.jpg --raw > 1.jpg"""

FROM_THE_END = re.compile(r"-\d+(:-?\d*)*$")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the indices."""
    parser.epilog = EXAMPLES
    add_source(parser)
    # argparse would take "-3:-1" for an option otherwise.
    parser._negative_number_matcher = FROM_THE_END
    help = "0 is the first, -1 the last, 3:7 are four, -3: the last three; or a name, if the format has names"
    parser.add_argument("index", metavar="INDEX", nargs="+", help=help)
    parser.add_argument("--raw", action="store_true", help="write the bytes of the records to standard output")


def run(given: argparse.Namespace, out: Output) -> int:
    """Print samples, or write their bytes."""
    if given.raw and out.json:
        raise ArgumentError("--json cannot be used with --raw, which writes bytes")
    with open_partial(given) as partial:
        indices = [index for text in given.index for index in indices_of(partial.store, text, partial.n)]
        if not given.raw:
            return print_samples(partial, indices, out)
        for index in indices:
            out.raw(_read_record(partial, index))
    return exit_codes.DONE


def _read_record(partial: PartialDataset, index: int) -> Any:
    place = partial.place(index)
    try:
        return partial.store.read_one(place).data
    except (FFRecordError, OSError) as error:
        if place == index:
            raise
        raise FFRecordError(partial.describe_error(error, place)) from error

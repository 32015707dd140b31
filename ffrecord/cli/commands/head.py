"""`ffrecord head`: the first samples, decoded, in words."""

import argparse

from ffrecord.cli.format_values import print_samples
from ffrecord.cli.partial import open_partial
from ffrecord.cli.sources import add_source, whole_number
from ffrecord.cli.terminal.output import Output

EXAMPLES = """\
examples:
  ffrecord head data/train
  ffrecord head -n 3 archive.zip --json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the number of samples."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument(
        "-n", "--count", type=_count, default=10, metavar="N", help="number of samples (default: %(default)s)"
    )


def run(given: argparse.Namespace, out: Output) -> int:
    """Print the first samples."""
    with open_partial(given) as partial:
        return print_samples(partial, range(min(given.count, partial.n)), out)


def _count(text: str) -> int:
    return whole_number(text, 0)

"""`ffrecord shuffle`: the same samples in a random order, which a seed tells."""

import argparse
import secrets

import numpy as np

from ffrecord.cli.making import add_out, add_skipping, conclude, options_of, rewrite
from ffrecord.cli.output import Output
from ffrecord.cli.sources import add_source, refuse_inside, seed_of
from ffrecord.order import Random

EXAMPLES = """\
examples:
  ffrecord shuffle data/sorted data/shuffled --seed 7"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, OUT and a seed."""
    parser.epilog = EXAMPLES
    add_source(parser)
    add_out(parser)
    add_skipping(parser)
    parser.add_argument(
        "--seed",
        type=seed_of,
        metavar="N",
        help="of the order: the same seed gives the same files; drawn and told by default",
    )


def run(given: argparse.Namespace, out: Output) -> int:
    """Write them in the order that `ffrecord.order.Random` has in epoch 0."""
    refuse_inside([given.source], given.out)
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed

    def choose(n: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return Random().indices(np.arange(n), n, seed, 0)

    return conclude([rewrite(given.source, given.out, choose, given.format, options_of(given, out))], out, seed=seed)

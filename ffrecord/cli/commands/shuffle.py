"""`ffrecord shuffle`: the same samples in a random order that a seed determines."""

import argparse
import secrets

import numpy as np

from ffrecord.cli.sources import add_source, seed_of
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import (
    add_out,
    add_skipping,
    conclude,
    fingerprint_of,
    hint_at_skipping,
    make_writer,
    open_indexed,
    options_of,
)
from ffrecord.dataset_writer import DatasetWriter, resume
from ffrecord.order import Random
from ffrecord.reading.paths import check_outside

ORDER = "order"  # key of a write's request: the name of the order, and the seed

EXAMPLES = """\
examples:
  ffrecord shuffle data/sorted data/shuffled --seed 7"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH, OUT and a seed."""
    parser.epilog = EXAMPLES
    add_source(parser)
    add_out(parser)
    add_skipping(parser)
    parser.add_argument(
        "--seed",
        type=seed_of,
        metavar="N",
        help="seed of the order: the same seed gives the same files; by default drawn and printed",
    )


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the samples in the order of `ffrecord.order.Random` in epoch 0.

    The seed is noted with the finished shards of an interrupted call. The same call without --seed goes on with it.
    """
    check_outside([given.source], given.out)
    with hint_at_skipping(given), open_indexed(given.source, given.format) as found:
        writer = make_writer(found, given.out, options_of(given, out))
        seed = draw_seed(writer) if given.seed is None else given.seed
        n = len(found.dataset)
        indices = Random().indices(np.arange(n), n, seed, 0)
        asked = {ORDER: {"name": Random.name, "seed": seed}} | resume.request_of(indices, fingerprint_of(found))
        summary = writer._write_chosen(found.dataset, indices, asked)
    return conclude([summary], out, seed=seed)


def draw_seed(writer: DatasetWriter) -> int:
    """Return the seed of the interrupted call that this one continues, or draw a new one."""
    order = writer._earlier_request().get(ORDER)
    found = order.get("seed") if isinstance(order, dict) else None
    return found if isinstance(found, int) else secrets.randbelow(1 << 32)

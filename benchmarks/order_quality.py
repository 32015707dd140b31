"""Measurement of the mixing of an order: displacement, effective batch, neighbours together; as a table or JSON.

docs/ordering.md explains the numbers. All are means over some epochs, in batches of consecutive positions. For a true
shuffle of n samples they are 1, batch_size and (batch_size - 1) / (n - 1), up to chance.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.order import Block, Order, Placed, Random, Sequential
from ffrecord.order.keys import check_range

Indices = npt.NDArray[np.int64]
Source = Callable[[int, int, int], Indices]
LENGTH_MAX = 1 << 28  # samples; a longer epoch may not fit into memory


@dataclass(frozen=True)
class Quality:
    """The measured mixing of one order.

    Attributes:
        displacement: mean distance of samples from their stored place, in parts of n / 3, the distance of a true
            shuffle.
        effective_batch: number of independent samples that tell as much as a batch, about a value that changes slowly
            along the dataset. It is the variance of the samples' numbers, divided by the variance of their means over
            batches. With batches of b it is b for a true shuffle, and 1 in sequence. It is larger than b if batches
            are more alike than by chance.
        together: share of neighbours in the dataset that are in the same batch.
    """

    displacement: float
    effective_batch: float
    together: float


def measure(
    source: Source, n: int, batch_size: int = 256, epochs: int = 3, seed: int = 0, *, ranks: int = 1
) -> Quality:
    """Measure the quality of an order; takes memory and time for whole epochs.

    Args:
        source: (n, seed, epoch) → the samples of the epoch, int64 [n].
        n: samples, 2 * batch_size * ranks <= n <= 2**28.
        batch_size: samples of a batch, >= 2. Means are over full batches.
        epochs: number of epochs to take the mean over, >= 1.
        seed: seed of the epochs.
        ranks: number of ranks that share the epoch, >= 1; a batch belongs to one rank.

    Raises:
        ValueError: a number is out of range.
    """
    check_range("batch_size", batch_size, 2, LENGTH_MAX)
    check_range("ranks", ranks, 1, LENGTH_MAX)
    check_range("n", n, 2 * batch_size * ranks, LENGTH_MAX + 1)
    check_range("epochs", epochs, 1, LENGTH_MAX)
    found = [_measure_epoch(source(n, seed, epoch), batch_size, ranks) for epoch in range(epochs)]
    displacement, spread, together = (float(each) for each in np.mean(found, axis=0))
    return Quality(displacement, 1 / spread if spread else float("inf"), together)


def _measure_epoch(indices: Indices, batch_size: int, ranks: int) -> tuple[float, float, float]:
    """Return displacement, variance of batches' means in parts of the samples', and share of neighbours together."""
    n = len(indices)
    positions = np.arange(n)
    displacement = np.abs(indices - positions).mean() * 3 / n
    full = n // (batch_size * ranks) * batch_size
    means = indices[: full * ranks].reshape(-1, batch_size, ranks).mean(axis=1)
    # The last factor: no sample is in a batch twice, so the mean of a larger batch depends less on chance.
    spread = np.square(means - (n - 1) / 2).mean() * 12 / (n * n - 1) * (n - 1) / (n - batch_size)
    batch_of = np.empty(n, np.int64)
    batch_of[indices] = positions // ranks // batch_size * ranks + positions % ranks
    return float(displacement), float(spread), float((batch_of[1:] == batch_of[:-1]).mean())


def of_order(order: Order) -> Source:
    """Return the epochs of an order."""
    return lambda n, seed, epoch: order.indices(np.arange(n), n, seed, epoch)


def true_shuffle(n: int, seed: int, epoch: int) -> Indices:
    """Return an epoch shuffled by the algorithm of Fisher and Yates, as numpy implements it."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def shuffle_buffer(size: int) -> Source:
    """Return the epochs of a streaming loader, which gives random samples of a buffer of `size` and refills it."""

    def source(n: int, seed: int, epoch: int) -> Indices:
        draw = random.Random(seed << 64 | epoch).randrange
        kept = list(range(min(size, n)))
        given = []
        for sample in range(len(kept), n):
            slot = draw(size)
            given.append(kept[slot])
            kept[slot] = sample
        random.Random(seed << 64 | epoch | 1 << 128).shuffle(kept)
        return np.array(given + kept, np.int64)

    return source


def stored_shuffled(source: Source) -> Source:
    """Return the same epochs of a dataset that is stored in random order, with the numbers from before."""
    return lambda n, seed, epoch: np.random.default_rng([seed]).permutation(n)[source(n, seed, epoch)]


def contestants(orders: list[Order] | None = None) -> dict[str, Source]:
    """Return the sources to measure by name: the orders, or ours in several sizes, a true shuffle, a shuffle buffer."""
    ours = orders or [Random(), Block(16, 1024), Block(64, 256), Block(), Block(1024, 16), Sequential()]
    return {
        "a true shuffle": true_shuffle,
        **{_describe(order): of_order(order) for order in ours},
        "a shuffle buffer of 10,000": shuffle_buffer(10_000),
    }


def _describe(order: Order) -> str:
    described = order.to_builtins()
    if isinstance(order, Placed):
        described["within"] = _describe(order.within)
    values = [f"{key}={value}" for key, value in described.items() if key != "name"]
    return f"{order.name} ({', '.join(values)})" if values else order.name


# The program


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the qualities; the exit status is 2 for wrong arguments."""
    parser = argparse.ArgumentParser(description="How well each order mixes.")
    parser.add_argument("--n", type=int, default=1_000_000, help="samples in the dataset (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="samples in a batch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="to take the mean over (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", action="append", metavar="SIZE[,WINDOW[,LANES]]", help="instead of some usual sizes")
    parser.add_argument("--slices", type=int, help="beside the others, a random order within so many slices")
    parser.add_argument("--ranks", type=int, default=1, help="that share the epoch; batches are those of one")
    parser.add_argument("--shuffled", action="store_true", help="the dataset is stored in random order")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        blocks = [block_of(text) for text in given.block or []]
        placed = [] if given.slices is None else [Placed(given.slices)]
        orders: list[Order] = [Random(), *placed, *blocks, Sequential()]
        sources = contestants(orders if blocks or placed else None)
        if given.shuffled:
            sources = {name: stored_shuffled(source) for name, source in sources.items()}
        found = {
            name: measure(source, given.n, given.batch_size, given.epochs, given.seed, ranks=given.ranks)
            for name, source in sources.items()
        }
    except ValueError as error:
        parser.error(str(error))
    if given.json:
        facts = {"n": given.n, "batch_size": given.batch_size, "epochs": given.epochs, "seed": given.seed}
        facts |= {"ranks": given.ranks, "shuffled": given.shuffled}
        print(json.dumps({**facts, "orders": {name: asdict(each) for name, each in found.items()}}))
    else:
        print(table(found))
    return 0


def block_of(text: str) -> Block:
    """Return the order of "block_size,window" or "block_size,window,lanes".

    Raises:
        ValueError: the text names no such order.
    """
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        raise ArgumentError(f"block is {text!r}, expected block_size,window,lanes")
    return Block(*numbers)


def table(found: dict[str, Quality]) -> str:
    """Return a Markdown table."""
    rows = ["| order | displacement | effective batch | together |", "|---|---|---|---|"]
    for name, each in found.items():
        worth = three(each.effective_batch)
        rows.append(f"| {name} | {each.displacement:.3f} | {worth} | {100 * each.together:.3g} % |")
    return "\n".join(rows)


def three(number: float) -> str:
    """Write a number with three significant digits, not as a power of ten."""
    return f"{number:.3g}" if number < 999.5 else f"{float(f'{number:.3g}'):,.0f}"


if __name__ == "__main__":
    sys.exit(main())

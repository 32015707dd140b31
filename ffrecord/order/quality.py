"""How well an order mixes, in numbers that can be compared; what they mean is in docs/ordering.md.

All are means over some epochs, in batches of consecutive positions. But for chance they are 1, batch_size and
(batch_size - 1) / (n - 1) for a true shuffle of n samples.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ffrecord.order.block import Block
from ffrecord.order.keys import check_range
from ffrecord.order.orders import Order, Random, Sequential
from ffrecord.order.sliced import Placed

__all__ = [
    "Quality",
    "Source",
    "contestants",
    "measure",
    "of_order",
    "shuffle_buffer",
    "stored_shuffled",
    "true_shuffle",
]

Indices = npt.NDArray[np.int64]
Source = Callable[[int, int, int], Indices]
LENGTH_MAX = 1 << 28  # beyond it a whole epoch does not fit into memory that can be expected


@dataclass(frozen=True)
class Quality:
    """What was measured of one order.

    Attributes:
        displacement: mean distance of samples from where they are stored, in parts of n / 3, a true shuffle's.
        effective_batch: how many samples drawn independently would tell as much as a batch does, of what changes slowly
            along the dataset: the variance of the samples' numbers, divided by that of their means over batches. With
            batches of b it is b for a true shuffle, 1 in sequence; larger than b if batches are more alike than chance.
        together: the share of neighbours in the dataset that are in the same batch.
    """

    displacement: float
    effective_batch: float
    together: float


def measure(
    source: Source, n: int, batch_size: int = 256, epochs: int = 3, seed: int = 0, *, ranks: int = 1
) -> Quality:
    """The quality of an order; takes memory and time for whole epochs.

    Args:
        source: (n, seed, epoch) → the samples of the epoch, int64 [n].
        n: samples, 2 * batch_size * ranks <= n <= 2**28.
        batch_size: >= 2. Means are over full batches.
        epochs: over which to take the mean, >= 1.
        ranks: that share the epoch, >= 1; batches are those of one rank.

    Raises:
        ValueError: out of range.
    """
    check_range("batch_size", batch_size, 2, LENGTH_MAX)
    check_range("ranks", ranks, 1, LENGTH_MAX)
    check_range("n", n, 2 * batch_size * ranks, LENGTH_MAX + 1)
    check_range("epochs", epochs, 1, LENGTH_MAX)
    found = [_of_epoch(source(n, seed, epoch), batch_size, ranks) for epoch in range(epochs)]
    displacement, spread, together = (float(each) for each in np.mean(found, axis=0))
    return Quality(displacement, 1 / spread if spread else float("inf"), together)


def _of_epoch(indices: Indices, batch_size: int, ranks: int) -> tuple[float, float, float]:
    """Displacement; variance of the batches' means, in parts of the samples'; share of neighbours together."""
    n = len(indices)
    positions = np.arange(n)
    displacement = np.abs(indices - positions).mean() * 3 / n
    full = n // (batch_size * ranks) * batch_size
    means = indices[: full * ranks].reshape(-1, batch_size, ranks).mean(axis=1)
    # The last factor: no sample is in a batch twice, so the larger the batch, the less its mean is left to chance.
    spread = np.square(means - (n - 1) / 2).mean() * 12 / (n * n - 1) * (n - 1) / (n - batch_size)
    batch_of = np.empty(n, np.int64)
    batch_of[indices] = positions // ranks // batch_size * ranks + positions % ranks
    return float(displacement), float(spread), float((batch_of[1:] == batch_of[:-1]).mean())


def of_order(order: Order) -> Source:
    """The epochs of an order."""
    return lambda n, seed, epoch: order.indices(np.arange(n), n, seed, epoch)


def true_shuffle(n: int, seed: int, epoch: int) -> Indices:
    """Fisher and Yates's, as numpy has it."""
    return np.random.default_rng([seed, epoch]).permutation(n)


def shuffle_buffer(size: int) -> Source:
    """What streaming loaders do: keep `size` samples, give one of them at random, and put the next in its place."""

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
    """The same epochs of a dataset whose samples are stored in random order, numbered as they were before."""
    return lambda n, seed, epoch: np.random.default_rng([seed]).permutation(n)[source(n, seed, epoch)]


def contestants(orders: list[Order] | None = None) -> dict[str, Source]:
    """Name → what to measure: these orders, or ours in several sizes; beside a true shuffle and a shuffle buffer."""
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

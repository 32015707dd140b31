"""Division of draws among datasets: the number of draws of each in a cycle, and their places."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ffrecord.order.keys import sample_seeds

__all__ = ["Arrangement", "apportion", "arrangement_of"]

Integers = npt.NDArray[np.int64]


def apportion(weights: Sequence[float], period: int) -> list[int]:
    """Return whole numbers of slots in proportion to weights, `period` in all, at least one for each weight > 0.

    This is the method of the largest remainder (Hamilton's). Exact fractions give the same numbers on every machine.
    """
    exact = [Fraction(weight) for weight in weights]
    slots = [0] * len(exact)
    sharing = [i for i, weight in enumerate(exact) if weight]
    while True:
        total, left = sum(exact[i] for i in sharing), period - sum(slots)
        small = [i for i in sharing if exact[i] * left < total]
        if not small:
            break
        for i in small:
            slots[i] = 1
        sharing = [i for i in sharing if slots[i] == 0]
    quotas = {i: exact[i] * left / total for i in sharing}
    for i, quota in quotas.items():
        slots[i] = math.floor(quota)
    by_remainder = sorted(sharing, key=lambda i: (math.floor(quotas[i]) - quotas[i], i))
    for i in by_remainder[: period - sum(slots)]:
        slots[i] += 1
    return slots


class Arrangement:
    """The datasets of draws: a circle of slots. Each cycle of draws enters the circle at its own random place.

    A dataset of k slots has one in each k-th part of the circle, at a random place. So any stretch of draws comes close
    to its share, but there is no rhythm that a rank could fall into.

    Args:
        slots: [D], number of slots of each dataset.
        key: key of all random numbers.
    """

    def __init__(self, slots: Sequence[int], key: int) -> None:
        self._counts = np.array(slots, np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._period = int(self._counts.sum())
        self._key = key
        datasets = np.repeat(np.arange(len(slots)), self._counts)
        # For each slot, dataset by dataset: its number within the dataset, and then its random place in the circle.
        numbers = np.arange(self._period) - self._firsts[datasets]
        chance = (sample_seeds(key, 0, np.arange(self._period)) >> np.uint64(11)) * 2.0**-53
        circle = np.argsort((numbers + chance) / self._counts[datasets], kind="stable")
        self._datasets, self._before = datasets[circle], numbers[circle]
        self._sorted = np.sort(self._datasets * self._period + np.arange(self._period))

    def assign(self, draws: Integers) -> tuple[Integers, Integers]:
        """Return the datasets of draws, int64 [k], and the number of earlier draws from the same dataset for each."""
        cycles = draws // self._period
        entries = (sample_seeds(self._key, 1, cycles) % np.uint64(self._period)).astype(np.int64)
        slots = (draws + entries) % self._period
        datasets = self._datasets[slots]
        # The number of the dataset's slots that come before the entry.
        skipped = np.searchsorted(self._sorted, datasets * self._period + entries) - self._firsts[datasets]
        counts = self._counts[datasets]
        return datasets, cycles * counts + (self._before[slots] - skipped) % counts


@lru_cache(maxsize=4)
def arrangement_of(slots: tuple[int, ...], key: int) -> Arrangement:
    """Return an `Arrangement`, cached: it takes some MB and some ms to make, and a run always needs the same one."""
    return Arrangement(slots, key)

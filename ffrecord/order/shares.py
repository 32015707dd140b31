"""Shares of draws: how many of a cycle are each dataset's, and which."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ffrecord.order.keys import sample_seeds

__all__ = ["Arrangement", "apportioned", "arrangement_of"]

Integers = npt.NDArray[np.int64]


def apportioned(weights: Sequence[float], period: int) -> list[int]:
    """Whole slots in proportion to weights, `period` in all; at least one where there is weight.

    The method of the largest remainder (Hamilton's), in exact fractions, so that it is the same on every machine.
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
    """Which dataset each draw is from: a circle of slots, which every cycle of draws enters at a place of its own.

    A dataset of k slots has one in each k-th part of the circle, at random in it. So its share is met closely in any
    stretch of draws, but there is no rhythm that a rank could fall into.

    Args:
        slots: [D] of each dataset.
        key: that all chance follows from.
    """

    def __init__(self, slots: Sequence[int], key: int) -> None:
        self._counts = np.array(slots, np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._period = int(self._counts.sum())
        self._key = key
        datasets = np.repeat(np.arange(len(slots)), self._counts)
        # Of each slot, dataset by dataset: its number among its dataset's, and where in the circle it goes.
        numbers = np.arange(self._period) - self._firsts[datasets]
        chance = (sample_seeds(key, 0, np.arange(self._period)) >> np.uint64(11)) * 2.0**-53
        circle = np.argsort((numbers + chance) / self._counts[datasets], kind="stable")
        self._datasets, self._before = datasets[circle], numbers[circle]
        self._sorted = np.sort(self._datasets * self._period + np.arange(self._period))

    def drawn(self, draws: Integers) -> tuple[Integers, Integers]:
        """Of int64 [k] draws, the datasets, and how many draws from the same dataset came before each."""
        cycles = draws // self._period
        entries = (sample_seeds(self._key, 1, cycles) % np.uint64(self._period)).astype(np.int64)
        slots = (draws + entries) % self._period
        datasets = self._datasets[slots]
        # How many of the dataset's slots come before the entry.
        skipped = np.searchsorted(self._sorted, datasets * self._period + entries) - self._firsts[datasets]
        counts = self._counts[datasets]
        return datasets, cycles * counts + (self._before[slots] - skipped) % counts


@lru_cache(maxsize=4)
def arrangement_of(slots: tuple[int, ...], key: int) -> Arrangement:
    """An `Arrangement`, kept: it has some MB and takes some ms to make, and a run always asks for the same one."""
    return Arrangement(slots, key)

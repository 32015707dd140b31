"""Several datasets as one, each with its own weight: the draws of each in a cycle, and their places."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order.keys import LENGTH_MAX, check_range, key_of, sample_seeds
from ffrecord.order.orders import Order, from_builtins, parse, register
from ffrecord.order.weighted import Weighted
from ffrecord.system.values import describe_wrong

__all__ = ["Arrangement", "Mixture", "apportion", "arrangement_of"]

Integers = npt.NDArray[np.int64]


def apportion(weights: Sequence[float], period: int) -> list[int]:
    """Return whole numbers of slots in proportion to weights, `period` in all, at least one for each weight > 0.

    This is the method of the largest remainder (Hamilton's). Exact fractions give the same numbers on every machine.
    """
    # `Fraction` of a float is exact.
    exact = [Fraction(weight) for weight in weights]
    slots = [0] * len(exact)
    sharing = [i for i, weight in enumerate(exact) if weight]
    while True:
        total, left = sum(exact[i] for i in sharing), period - sum(slots)
        # Shares below one slot get one, and the others share the rest; that may bring another one below.
        small = [i for i in sharing if exact[i] * left < total]
        if not small:
            break
        for i in small:
            slots[i] = 1
        sharing = [i for i in sharing if slots[i] == 0]
    quotas = {i: exact[i] * left / total for i in sharing}
    for i, quota in quotas.items():
        slots[i] = math.floor(quota)
    # Equal remainders go by number, so that every machine decides alike.
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
        # Slots of dataset i are numbered from here on.
        self._firsts = np.cumsum(self._counts) - self._counts
        self._period = int(self._counts.sum())
        self._key = key
        datasets = np.repeat(np.arange(len(slots)), self._counts)
        # For each slot, dataset by dataset: its number within the dataset, and then its random place in the circle.
        numbers = np.arange(self._period) - self._firsts[datasets]
        # 53 bits, the precision of a double.
        chance = (sample_seeds(key, 0, np.arange(self._period)) >> np.uint64(11)) * 2.0**-53
        # The k-th part of the circle, plus a random place in it: spread evenly, but without a rhythm.
        circle = np.argsort((numbers + chance) / self._counts[datasets], kind="stable")
        self._datasets, self._before = datasets[circle], numbers[circle]
        # Sorted by dataset and slot, so that a binary search counts the slots before any place.
        self._sorted = np.sort(self._datasets * self._period + np.arange(self._period))

    def assign(self, draws: Integers) -> tuple[Integers, Integers]:
        """Return the datasets of draws, int64 [k], and the number of earlier draws from the same dataset for each."""
        cycles = draws // self._period
        # Each cycle enters elsewhere, so that no rank meets the same slots in every cycle.
        entries = (sample_seeds(self._key, 1, cycles) % np.uint64(self._period)).astype(np.int64)
        slots = (draws + entries) % self._period
        datasets = self._datasets[slots]
        # The number of the dataset's slots that come before the entry.
        skipped = np.searchsorted(self._sorted, datasets * self._period + entries) - self._firsts[datasets]
        counts = self._counts[datasets]
        # Slots before the entry come last in the cycle.
        return datasets, cycles * counts + (self._before[slots] - skipped) % counts


@lru_cache(maxsize=4)
def arrangement_of(slots: tuple[int, ...], key: int) -> Arrangement:
    """Return an `Arrangement`, cached: it takes some MB and some ms to make, and a run always needs the same one."""
    return Arrangement(slots, key)


PERIOD = 1 << 16  # draws after which every dataset has had exactly its share
SLOTS_LEAST = 16  # draws of a dataset in a period, on average; very many datasets get a longer period


@register
@dataclass(frozen=True)
class Mixture(Order):
    """An order over the concatenation of datasets: samples of an epoch are drawn from them by weight.

    All epochs together are one endless stream of draws. In each period of 65,536 draws (more for more than 4,096
    datasets), every dataset occurs exactly as often as its weight says. This number is rounded to whole draws, at least
    one, and its draws are spread evenly.

    The draws from a dataset go through it in its own order, and through its own epochs. Every sample comes once before
    any sample comes again, whatever the weights and the length of the mixture's epochs. The sample of a draw is a pure
    function, O(1), as in every order.

    Args:
        sizes: [D], number of samples of each dataset, >= 0, together 1 to 2**62.
        weights: [D], shares in any unit, finite and >= 0. At least one must be > 0, and only datasets with samples may
            be > 0. None gives each sample the same share, so an epoch is the concatenation in the order `within`.
        within: order of each dataset: "random", "sequential", "block" or an `Order` in which every sample comes once.
        epoch_length: draws in an epoch of the mixture, 1 to 2**62; None for sum(sizes).

    Raises:
        ValueError: a number is out of range, or there are not as many weights as sizes.
        TypeError: something is not a number.
    """

    sizes: Sequence[int]
    weights: Sequence[float] | None = None
    within: Any = "random"
    epoch_length: int | None = None

    name: ClassVar[str] = "mixture-1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", _check_sizes(self.sizes))
        if self.weights is not None:
            object.__setattr__(self, "weights", _check_weights(self.weights, self.sizes))
        object.__setattr__(self, "within", _check_within(self.within))
        if self.epoch_length is not None:
            length = check_range("epoch_length", self.epoch_length, 1, LENGTH_MAX + 1)
            object.__setattr__(self, "epoch_length", length)

    def length(self, n: int) -> int:
        """Return the number of draws in an epoch.

        Raises:
            ValueError: n is not sum(sizes).
        """
        if n != self._samples:
            raise ArgumentError(
                f"the mixture has {self._samples} samples in {len(self.sizes)} datasets, the data has {n}"
            )
        return self.epoch_length or self._samples

    @property
    def shares(self) -> list[float]:
        """The share of all draws of each dataset [D]: its weight, rounded to whole draws of 65,536.

        It differs by at most 1 / 65,536 from the weight's share of all weights. A dataset with a smaller share gets 1 /
        65,536, and the others get that much less.
        """
        if self.weights is None:
            return [size / self._samples for size in self.sizes]
        return [slots / self._period for slots in self._slots]

    def to_builtins(self) -> dict[str, Any]:
        """Return the order as a dict that JSON can hold."""
        return {**super().to_builtins(), "within": self.within.to_builtins()}

    def _place(self, array: Integers, n: int, seed: int, epoch: int) -> None:
        length = self.length(n)
        first = epoch * length
        # Without weights no draw is needed.
        if self.weights is None:
            # The concatenation is one dataset. Its epochs need not begin where epochs of the mixture begin.
            whole, begun = divmod(first, n)
            epochs, places = (array + begun) // n, (array + begun) % n
            # Positions of a rank ascend, so the stretches of equal epochs are long.
            for start, stop in _stretches(epochs):
                array[start:stop] = self.within.indices(places[start:stop], n, seed, whole + int(epochs[start]))
            return
        if first > LENGTH_MAX:  # draws are numbered with 64 bits
            raise ArgumentError(
                f"epoch {epoch} of {length} draws begins at draw {first}, expected at most {LENGTH_MAX}"
            )
        array += first
        self._draw(array, seed)

    def _draw(self, draws: Integers, seed: int) -> None:
        """Replace numbers of draws, counted since epoch 0, by samples."""
        datasets, own = arrangement_of(self._slots, key_of("mixture", seed, 0)).assign(draws)
        sizes = np.array(self.sizes)[datasets]
        epochs, positions = own // sizes, own % sizes
        # Sort draws by dataset and epoch, so that draws from the same epoch of a dataset are one call.
        # Sorting costs less than a call for each draw.
        together = np.lexsort((epochs, datasets))
        datasets, epochs, found = datasets[together], epochs[together], positions[together]
        for start, stop in _stretches(datasets, epochs):
            i = int(datasets[start])
            # Each dataset has its own key; 0 is the circle's.
            key = key_of("mixture", seed, i + 1)
            found[start:stop] = self.within.indices(found[start:stop], self.sizes[i], key, int(epochs[start]))
        draws[together] = found + self._offsets[datasets]

    @cached_property
    def _samples(self) -> int:
        return sum(self.sizes)

    @cached_property
    def _offsets(self) -> Integers:
        return np.cumsum([0, *self.sizes[:-1]], dtype=np.int64)

    @cached_property
    def _period(self) -> int:
        # With few slots for each dataset, rounding to whole slots would change the shares much.
        return PERIOD * max(1, -(-len(self.sizes) * SLOTS_LEAST // PERIOD))

    @cached_property
    def _slots(self) -> tuple[int, ...]:
        return tuple(apportion(self.weights or (), self._period))


def _stretches(*keys: Integers) -> Iterator[tuple[int, int]]:
    """Yield where stretches of equal keys begin and end; each key is int64 [k]."""
    changes = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])]
    return pairwise(bounds) if len(keys[0]) else iter(())


def _check_sizes(sizes: Any) -> tuple[int, ...]:
    checked = tuple(
        check_range(f"sizes[{i}]", size, 0, LENGTH_MAX + 1) for i, size in enumerate(_as_list("sizes", sizes))
    )
    check_range("sum(sizes)", sum(checked), 1, LENGTH_MAX + 1)
    return checked


def _check_weights(weights: Any, sizes: Sequence[int]) -> tuple[float, ...]:
    checked = tuple(_check_weight(i, weight) for i, weight in enumerate(_as_list("weights", weights)))
    if len(checked) != len(sizes):
        raise ArgumentError(f"weights has {len(checked)} numbers, expected {len(sizes)}, one for each dataset")
    if not any(checked):
        raise ArgumentError(f"all {len(checked)} weights are 0, expected at least one > 0")
    for i, (weight, size) in enumerate(zip(checked, sizes, strict=True)):
        if weight and not size:
            raise ArgumentError(f"weights[{i}] is {weight} for a dataset of 0 samples, expected 0")
    return checked


def _check_weight(i: int, weight: Any) -> float:
    try:
        if isinstance(weight, str | bytes):
            raise TypeError
        number = float(weight)
    except (TypeError, ValueError):
        raise ArgumentTypeError(describe_wrong(f"weights[{i}]", weight, "a number")) from None
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"weights[{i}] is {number}, expected finite and >= 0")
    return number + 0.0  # turns -0.0 into 0.0


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise ArgumentTypeError(describe_wrong(name, values, "a collection of numbers"))
    return list(values)


def _check_within(within: Any) -> Order:
    order = from_builtins(within) if isinstance(within, Mapping) else parse(within)
    if isinstance(order, Mixture):
        raise ArgumentError("within is a mixture; pass all datasets to one mixture, with the products of their weights")
    if isinstance(order, Weighted):
        raise ArgumentError("within is weighted, which has weights for one dataset: pass one for all of them together")
    return order

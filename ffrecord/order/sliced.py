"""An order in slices, in which the ranks of a node read the same part of the dataset in every epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import check_range, key_of
from ffrecord.order.mixture import Mixture
from ffrecord.order.orders import Order, from_builtins, parse, register
from ffrecord.order.weighted import Weighted

__all__ = ["Placed", "same_but_for_slices"]

SLICES = 1 << 31

Integers = npt.NDArray[np.int64]


@register
@dataclass(frozen=True)
class Placed(Order):
    """Slices of the dataset that are the same in every epoch. Each has its own order, and they take turns.

    The dataset is cut into `slices` slices, as equal as possible: the first n mod slices have one sample more. Position
    p belongs to slice p mod slices, and has number p // slices there. So every `slices` positions in a row have one
    sample of each slice. A rank that takes every slices-th position reads one slice, in every epoch. Slices are
    independent of shards: a slice may begin or end anywhere in a shard.

    Args:
        slices: number of slices, 1 <= slices < 2**31.
        within: order of each slice: "random", "sequential", "block", or an `Order` in which every sample comes once.

    Raises:
        ValueError: `slices` is out of range; or `within` is a mixture or weighted, or has slices itself.
        TypeError: `slices` is not an int, or `within` is not an order.
    """

    slices: int
    within: Any = "random"

    name: ClassVar[str] = "placed-1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "slices", check_range("slices", self.slices, 1, SLICES))
        object.__setattr__(self, "within", _check_within(self.within))

    @property
    def window_length(self) -> int:
        length: int = self.within.window_length
        return length * self.slices

    def bounds(self, n: int, number: int) -> tuple[int, int]:
        """Return where a slice of n samples begins and ends.

        Raises:
            ValueError: not 0 <= number < slices, or n is out of range.
        """
        length = self.length(n)
        check_range("number", number, 0, self.slices)
        each, longer = divmod(length, self.slices)
        # The first `longer` slices have one sample more.
        first = number * each + min(number, longer)
        return first, first + each + (number < longer)

    def to_builtins(self) -> dict[str, Any]:
        """Return the order as a dict that JSON can hold."""
        return {**super().to_builtins(), "within": self.within.to_builtins()}

    def _place(self, array: Integers, n: int, seed: int, epoch: int) -> None:
        if not len(array):  # the slice of the first position is asked for below
            return
        numbers = array // self.slices
        slices = array - numbers * self.slices
        if (slices == slices[0]).all():  # always so if each node has its slice
            array[:] = self._in_slice(int(slices[0]), numbers, n, seed, epoch)
            return
        # Sort positions by slice, so that the positions of a slice are one call.
        # Stable, so that positions of a slice stay in their order.
        together = np.argsort(slices, kind="stable")
        found = numbers[together]
        starts = np.flatnonzero(np.diff(slices[together], prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(found)], strict=True):
            found[start:stop] = self._in_slice(int(slices[together[start]]), found[start:stop], n, seed, epoch)
        array[together] = found

    def _in_slice(self, number: int, numbers: Integers, n: int, seed: int, epoch: int) -> Integers:
        first, stop = self.bounds(n, number)
        # Each slice has its own key, else all slices would be in the same order.
        found: Integers = self.within.indices(numbers, stop - first, key_of(self.name, seed, number), epoch)
        found += first
        return found


def same_but_for_slices(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two orders, as `to_builtins` describes them, differ at most in their slices."""
    return bool(_without_slices(one) == _without_slices(other))


def _without_slices(order: Mapping[str, Any]) -> Any:
    return order.get("within") if order.get("name") == Placed.name else order


def _check_within(within: Any) -> Order:
    order = from_builtins(within) if isinstance(within, Mapping) else parse(within)
    if isinstance(order, Mixture):
        raise ArgumentError("a mixture cannot be cut into slices: its datasets have their own sizes")
    if isinstance(order, Weighted):
        raise ArgumentError("a weighted order cannot be cut into slices: it draws from the whole dataset")
    if isinstance(order, Placed):
        raise ArgumentError("within is cut into slices already, expected an order without slices")
    return order

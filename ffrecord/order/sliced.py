"""An order in slices, so that the ranks of a node read the same part of the dataset in every epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import check_range, key_of
from ffrecord.order.mixture import Mixture
from ffrecord.order.orders import Order, from_builtins, parse, register

__all__ = ["Placed", "alike"]

SLICES = 1 << 31

Integers = npt.NDArray[np.int64]


@register
@dataclass(frozen=True)
class Placed(Order):
    """Slices of the dataset, the same in every epoch, each in an order of its own, in turn.

    The dataset is cut into `slices` slices, as equal as can be: the first n mod slices have one sample more. Position p
    is of slice p mod slices, number p // slices in it. So every `slices` positions in a row have a sample of each, and
    who takes every slices-th position reads one slice, in this epoch and in any other. Slices know nothing of shards:
    one may begin or end anywhere in a shard.

    Args:
        slices: 1 <= slices < 2**31.
        within: order of each slice: "random", "sequential", "block", or an `Order` in which every sample comes once.

    Raises:
        ValueError: out of range; or `within` is a mixture, or in slices itself.
        TypeError: no int, or no order.
    """

    slices: int
    within: Any = "random"

    name: ClassVar[str] = "placed-1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "slices", check_range("slices", self.slices, 1, SLICES))
        object.__setattr__(self, "within", _checked_within(self.within))

    def bounds(self, n: int, number: int) -> tuple[int, int]:
        """Where a slice of n samples begins and ends.

        Raises:
            ValueError: not 0 <= number < slices, or n out of range.
        """
        length = self.length(n)
        check_range("number", number, 0, self.slices)
        each, longer = divmod(length, self.slices)
        first = number * each + min(number, longer)
        return first, first + each + (number < longer)

    def to_builtins(self) -> dict[str, Any]:
        """The order as a dict that JSON can hold."""
        return {**super().to_builtins(), "within": self.within.to_builtins()}

    def _place(self, array: Integers, n: int, seed: int, epoch: int) -> None:
        if not len(array):
            return
        numbers = array // self.slices
        slices = array - numbers * self.slices
        if (slices == slices[0]).all():  # as where nodes are placed
            array[:] = self._in_slice(int(slices[0]), numbers, n, seed, epoch)
            return
        # Positions of the same slice side by side, so that they are one call.
        together = np.argsort(slices, kind="stable")
        found = numbers[together]
        starts = np.flatnonzero(np.diff(slices[together], prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(found)], strict=True):
            found[start:stop] = self._in_slice(int(slices[together[start]]), found[start:stop], n, seed, epoch)
        array[together] = found

    def _in_slice(self, number: int, numbers: Integers, n: int, seed: int, epoch: int) -> Integers:
        first, stop = self.bounds(n, number)
        found: Integers = self.within.indices(numbers, stop - first, key_of(self.name, seed, number), epoch)
        found += first
        return found


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two orders, as `to_builtins` describes them, differ at most in how they are cut into slices."""
    return bool(_uncut(one) == _uncut(other))


def _uncut(order: Mapping[str, Any]) -> Any:
    return order.get("within") if order.get("name") == Placed.name else order


def _checked_within(within: Any) -> Order:
    order = from_builtins(within) if isinstance(within, Mapping) else parse(within)
    if isinstance(order, Mixture):
        raise ArgumentError("a mixture cannot be cut into slices: its datasets have sizes of their own")
    if isinstance(order, Placed):
        raise ArgumentError("within is cut into slices already")
    return order

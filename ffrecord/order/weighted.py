"""An order that draws samples by weight, with replacement."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ArgumentError, ArgumentTypeError, plural
from ffrecord.kernels._permutation import draw
from ffrecord.order.keys import LENGTH_MAX, check_range, key_of
from ffrecord.order.orders import Order
from ffrecord.system.values import describe_wrong

__all__ = ["Weighted", "balance_classes"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(Order):
    """Samples drawn by weight, with replacement: each position has its own draw, which depends on nothing else.

    A draw takes the same time for any number of samples, by the alias method. The tables have 16 bytes for each sample.
    A state has the CRC-32 of the weights, so `from_builtins` does not know the order: give the weights again.

    Args:
        weights: float [n], the weight of each sample in any unit, finite and >= 0. At least one must be > 0.
        epoch_length: draws in an epoch, 1 to 2**62; None for n.

    Raises:
        ValueError: a number is out of range, or there are no weights.
        TypeError: `weights` are not numbers.

    >>> from ffrecord.order import Weighted
    >>> set(Weighted([0, 1, 3]).indices(range(3), 3, seed=0, epoch=0).tolist()) <= {1, 2}
    True
    """

    weights: Any
    epoch_length: int | None = None
    _crc: int = field(init=False)
    # [n, 2], see `draw`. Both numbers of a sample lie side by side, so that a draw waits for one piece of memory.
    _table: npt.NDArray[np.uint64] = field(init=False)

    name: ClassVar[str] = "weighted-1"

    def __post_init__(self) -> None:
        weights = _check_weights(self.weights)
        if self.epoch_length is not None:
            length = check_range("epoch_length", self.epoch_length, 1, LENGTH_MAX + 1)
            object.__setattr__(self, "epoch_length", length)
        kept, aliases = make_aliases(weights)
        # Below 1, so that the product stays below 2**64 and fits a uint64.
        units = np.minimum(kept, 1 - 2.0**-53) * 2.0**64  # of a sample that keeps all, the other one is itself
        table = np.stack([units.astype(np.uint64), aliases.astype(np.uint64)], axis=1)
        for name, value in (("weights", weights), ("_crc", crc32(weights.data)), ("_table", table)):
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        # By the CRC-32 of the weights, without a look at both arrays.
        return isinstance(other, Weighted) and self.to_builtins() == other.to_builtins()

    def __hash__(self) -> int:
        return hash((self._crc, self.epoch_length))

    def __repr__(self) -> str:
        return f"Weighted({plural(len(self.weights), 'weight')}, epoch_length={self.epoch_length})"

    def length(self, n: int) -> int:
        """Return the number of draws in an epoch.

        Raises:
            ValueError: n is not the number of weights.
        """
        if n != len(self.weights):
            raise ArgumentError(
                f"{plural(len(self.weights), 'weight')} for {plural(n, 'sample')}, expected one for each"
            )
        return self.epoch_length or n

    def to_builtins(self) -> dict[str, Any]:
        """Return the order as a dict that JSON can hold, with the CRC-32 of its weights."""
        return {"name": self.name, "weights": self._crc, "samples": len(self.weights), "draws": self.epoch_length}

    def _place(self, array: npt.NDArray[np.int64], n: int, seed: int, epoch: int) -> None:
        draw(array, self._table, key_of("weights", seed, epoch))


def make_aliases(weights: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the tables of the alias method: the share that each sample keeps, and the sample that gets the rest.

    Each of n places has the same share of draws. A light sample, with less than the mean weight, keeps its weight of
    its place, and heavy samples fill up the rest. A heavy one that has given so much that it is light itself is filled
    up by the next heavy one. Sums of what is missing and of what is left over show which fills which, so the whole is
    some operations on arrays.
    """
    n = len(weights)
    # `ldexp` scales by a power of two, which changes no ratio.
    weights = np.ldexp(weights, -int(np.frexp(weights.max())[1]))  # to 1 or less, so that no sum of them overflows
    shares = weights * (n / weights.sum())
    kept, aliases = np.ones(n), np.arange(n)
    light, heavy = np.flatnonzero(shares < 1), np.flatnonzero(shares >= 1)
    # All weights are equal: each place keeps everything.
    if not len(light) or not len(heavy):
        return kept, aliases
    missing, left_over = np.cumsum(1 - shares[light]), np.cumsum(shares[heavy] - 1)
    kept[light] = shares[light]
    fillers = np.searchsorted(left_over, np.concatenate([[0.0], missing[:-1]]), side="left")
    # Rounding may lead one behind the last heavy sample.
    aliases[light] = heavy[np.minimum(fillers, len(heavy) - 1)]
    # The light sample at which a heavy one has given more than it has left over.
    at = np.searchsorted(missing, left_over[:-1], side="right")
    given = at < len(missing)
    # Sums of many floats may miss their bounds by a little.
    kept[heavy[:-1][given]] = np.clip(1 + left_over[:-1][given] - missing[at[given]], 0, 1)
    aliases[heavy[:-1][given]] = heavy[1:][given]
    return kept, aliases


def balance_classes(labels: Any) -> Floats:
    """Return weights with which all classes are drawn equally often: 1 / size of its class for each sample.

    Args:
        labels: ints or bools [n], the class of each sample.

    Returns:
        float64 [n].

    Raises:
        TypeError: labels are not a flat array of ints.
        ValueError: there are none.
    """
    try:
        array = np.asarray(labels)
    except ValueError:
        raise ArgumentTypeError("labels has lists of different lengths, expected an int for each sample") from None
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise ArgumentTypeError(describe_wrong("labels", array, "an int for each sample"))
    if not len(array):
        raise ArgumentError("there are 0 labels, expected one for each sample")
    # Computed from counts, so classes without samples do not matter.
    _, classes, counts = np.unique(array, return_inverse=True, return_counts=True)
    found: Floats = 1 / counts[classes]
    return found


def _check_weights(weights: Any) -> Floats:
    """Return weights as float64 [n]."""
    # Text and mappings iterate as well, but over characters and keys.
    if isinstance(weights, str | bytes | Mapping) or not isinstance(weights, Iterable):
        raise ArgumentTypeError(describe_wrong("weights", weights, "a number for each sample"))
    try:
        given = weights if hasattr(weights, "__array__") else list(weights)
        found = np.asarray(given)
        if found.dtype.kind not in "biufO":  # astype would drop the imaginary part, and read numbers from text
            raise TypeError(f"an array of {found.dtype} would lose values as float")
        array = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ArgumentTypeError(describe_wrong("weights", weights, "numbers", str(error))) from None
    if array.ndim != 1:
        raise ArgumentTypeError(describe_wrong("weights", array, "a number for each sample"))
    if not len(array):
        raise ArgumentError("there are 0 weights, expected one for each sample")
    # `~(...)`, because NaN fails every comparison.
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise ArgumentError(f"weights[{wrong[0]}] is {array[wrong[0]]}, expected finite and >= 0")
    if not array.any():
        raise ArgumentError(f"all {len(array)} weights are 0, expected at least one > 0")
    return array + 0.0  # turns -0.0 into 0.0, which has other bytes and so another CRC-32

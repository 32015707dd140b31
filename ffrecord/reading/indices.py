"""Indices that users pass, as int64 numbers, and lazy slices of a reader."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentTypeError, SampleIndexError, describe_int
from ffrecord.system.values import describe, describe_wrong

INT64 = np.dtype(np.int64)
BOOLS_MOST = 8
NO_BOOL = "a bool is not an index; np.flatnonzero makes ints of a mask"
Indices = npt.NDArray[np.int64]


def as_int64(index: SupportsIndex) -> int:
    """Return an index as an int that fits into 64 bits.

    Raises:
        TypeError: it is no integer.
        IndexError: it is beyond 64 bits.
    """
    try:
        value = operator.index(index)
    except TypeError:
        raise TypeError(describe_wrong("index", index, "an int")) from None
    if not -(1 << 63) <= value < 1 << 63:
        shown = describe_int(value)
        raise SampleIndexError(
            f"index >= number of samples ({shown} >= 2**63)" if value > 0 else f"index is {shown}, expected >= -2**63"
        )
    return value


def as_place(index: SupportsIndex) -> int:
    """Return an index of a part of a dataset as an int that fits into 64 bits.

    Raises:
        TypeError: it is no integer, or a bool, which is part of a mask.
        IndexError: it is beyond 64 bits.
    """
    if type(index) is not int and np.asarray(index).dtype.kind == "b":
        raise TypeError(NO_BOOL)
    return as_int64(index)


def is_collection(indices: object) -> bool:
    """Tell whether something may hold indices: text and bytes do not."""
    return hasattr(indices, "__iter__") and not isinstance(indices, str | bytes | bytearray)


def spread_indices(n: int, count: int) -> list[int]:
    """Return up to `count` of n indices, evenly from the first to the last."""
    wanted = min(n, count)
    # `wanted - 1` steps, so that first and last are both there; a single one is the first.
    return [k * (n - 1) // max(wanted - 1, 1) for k in range(wanted)]


def as_indices(indices: Iterable[SupportsIndex], *, bools_most: int = BOOLS_MOST) -> Indices:
    """Return a collection of ints as int64 [k].

    Args:
        indices: the collection.
        bools_most: a longer list of bools only is a mask. As in ffrecord 1.x, bools in a batch are the indices 0 and 1,
            but nobody reads these two samples many times.

    Raises:
        TypeError: it is no collection, not of ints, or a mask.
        IndexError: a number is beyond 64 bits.
    """
    if type(indices) is np.ndarray and indices.dtype is INT64 and indices.ndim == 1 and indices.flags.c_contiguous:
        return indices  # already converted by a caller; fast, because reading one record takes only microseconds
    if isinstance(indices, slice) or not is_collection(indices):
        raise ArgumentTypeError(describe_wrong("indices", indices, "a collection of ints"))
    is_list = isinstance(indices, list | tuple | range)
    try:
        # Other iterables, generators for instance, must not become an array of one object.
        array = np.asarray(indices) if is_list or hasattr(indices, "__array__") else None
    except ValueError:
        raise ArgumentTypeError("indices is a nested collection, expected a flat one of ints") from None
    # Not uint64, whose numbers may be too large; these are taken one by one below.
    if array is not None and array.ndim == 1 and array.dtype.kind in "iu" and array.dtype != np.uint64:
        # Among ints NumPy takes a bool for 0 or 1.
        if not bools_most and isinstance(indices, list | tuple) and not {bool, np.bool_}.isdisjoint(map(type, indices)):
            raise ArgumentTypeError(describe_wrong("indices", indices, "a flat collection of ints", NO_BOOL))
        return np.ascontiguousarray(array, np.int64)
    if array is not None and array.dtype.kind == "b" and array.size > (bools_most if is_list else 0):
        given = "a list of bools" if is_list else describe(array)
        raise ArgumentTypeError(f"indices is {given}, expected ints; np.flatnonzero makes ints of a mask")
    # An array of floats is a mistake; a list may still hold objects with `__index__`.
    if array is not None and not is_list and array.dtype.kind not in "iu" and array.size:
        raise ArgumentTypeError(describe_wrong("indices", array, "ints"))
    try:
        # Only now, because it takes a Python call for each index.
        return np.fromiter(map(as_int64 if bools_most else as_place, indices), np.int64)
    except TypeError as error:
        raise ArgumentTypeError(describe_wrong("indices", indices, "a flat collection of ints", str(error))) from None


def as_subset(indices: Iterable[SupportsIndex]) -> Indices:
    """Return indices that choose a part of a dataset as int64 [k]. Each collection of bools is a mask.

    Raises:
        TypeError: it is no collection, not of ints, or a mask.
        IndexError: a number is beyond 64 bits.
    """
    return as_indices(indices, bools_most=0)


def count_from_start(indices: Indices, n: int, error: Callable[[int, int], Exception] | None = None) -> Indices:
    """Return indices in [-n, n), int64 [k], as numbers in [0, n); always a copy.

    Args:
        error: makes the exception to raise, from the place of the first index out of range, and that index. By default
            it is an IndexError of the argument `indices`.
    """
    bad = np.flatnonzero((indices < -n) | (indices >= n))
    if len(bad):
        place, index = int(bad[0]), int(indices[bad[0]])
        if error is None:
            raise SampleIndexError(f"indices[{place}] is {index}, expected {-n} <= index < {n}")
        raise error(place, index)
    return np.where(indices < 0, indices + n, indices)  # a copy, so that the caller's array does not change


Array = npt.NDArray[np.uint8]


class SlicedReader(Protocol):
    """Interface that a slice needs of its reader."""

    def read_one(self, index: SupportsIndex) -> Array: ...
    def _iterate(self, indices: range) -> Iterator[Array]: ...


class SampleSlice(Sequence[Array]):
    """Slice of a reader. It reads samples when you access them, and keeps none. A slice of it is a slice."""

    def __init__(self, reader: "SlicedReader", indices: range) -> None:
        self._reader, self._indices = reader, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSlice": ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return SampleSlice(self._reader, self._indices[index])
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(describe_wrong("index", index, "an int or a slice")) from None
        if not -len(self) <= i < len(self):
            raise SampleIndexError(
                f"index is {describe_int(i)}, expected {-len(self)} <= index < {len(self)}, the length of the slice"
            )
        return self._reader.read_one(self._indices[i])

    def __iter__(self) -> Iterator[Array]:
        return self._reader._iterate(self._indices)

    def __repr__(self) -> str:
        return f"<{self._indices} of {self._reader!r}>"

"""Conversion of the indices that users pass into int64 numbers."""

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.errors import SampleIndexError, describe_int

INT64 = np.dtype(np.int64)


def as_int64(index: SupportsIndex) -> int:
    """Return an index as an int that fits into 64 bits.

    Raises:
        TypeError: it is no integer.
        IndexError: it is beyond 64 bits.
    """
    value = operator.index(index)
    if not -(1 << 63) <= value < 1 << 63:
        shown = describe_int(value)
        raise SampleIndexError(
            f"index >= number of samples ({shown} >= 2**63)" if value > 0 else f"index {shown}, expected >= -2**63"
        )
    return value


def as_indices(indices: Iterable[SupportsIndex]) -> npt.NDArray[np.int64]:
    """Return a collection of ints as int64 [k].

    Raises:
        TypeError: it is no collection, or not of ints.
        IndexError: a number is beyond 64 bits.
    """
    if type(indices) is np.ndarray and indices.dtype is INT64 and indices.ndim == 1 and indices.flags.c_contiguous:
        return indices  # already converted by a caller; fast, because reading one record takes only microseconds
    if isinstance(indices, str | bytes | bytearray | slice) or not hasattr(indices, "__iter__"):
        raise TypeError(f"indices must be a collection of ints, not {type(indices).__name__}")
    try:
        array = (
            np.asarray(indices) if isinstance(indices, list | tuple | range) or hasattr(indices, "__array__") else None
        )
    except ValueError:
        raise TypeError("indices must be a flat collection of ints, not a nested one") from None
    if array is not None and array.ndim == 1 and array.dtype.kind in "iu" and array.dtype != np.uint64:
        return np.ascontiguousarray(array, np.int64)
    if (
        array is not None
        and not isinstance(indices, list | tuple | range)
        and array.dtype.kind not in "iu"
        and array.size
    ):
        raise TypeError(f"indices must be ints, not an array of {array.dtype}")
    try:
        return np.fromiter((as_int64(index) for index in indices), np.int64)
    except TypeError as error:
        raise TypeError(f"indices must be a flat collection of ints: {error}") from None

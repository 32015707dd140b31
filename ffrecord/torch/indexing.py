"""What may stand in `dataset[...]`, the same for every dataset of ours."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from ffrecord.errors import SampleIndexError

__all__ = ["Indices", "as_positions", "select"]

Integers: TypeAlias = "list[int] | list[SupportsIndex] | tuple[SupportsIndex, ...] | range"
Indices: TypeAlias = "Integers | slice | npt.NDArray[np.integer[Any]] | torch.Tensor"

T = TypeVar("T")

TYPE_MESSAGE = "indices must be a list of index"


def select(
    dataset: object,
    indices: Any,
    n: int,
    read: Callable[[list[int]], list[T]],
    *,
    below: type[IndexError] = SampleIndexError,
) -> list[T] | T:
    """What `dataset[indices]` is, for a dataset of n samples that `read` reads.

    Args:
        dataset, n, below: see `as_positions`.
        indices: what stands in the brackets.
        read: [k] ints in [0, n) → k samples.

    Returns:
        One sample for an int, numpy int, or integer array or tensor without dimensions; else a list of samples.

    Raises:
        TypeError, IndexError: see `as_positions`.
    """
    if _is_single(indices):
        return read(as_positions(dataset, [indices], n, below=below))[0]
    return read(as_positions(dataset, indices, n, below=below))


def as_positions(dataset: object, indices: Indices, n: int, *, below: type[IndexError] = SampleIndexError) -> list[int]:
    """`indices` into n samples as a list of ints in [0, n), order and repeats kept.

    Args:
        dataset: whose samples; for messages.
        indices: [k] ints in [-n, n) as a list, tuple, range, integer array or tensor; or a slice, cut to n as ever.
        n: number of samples.
        below: raised for an index below -n.

    Raises:
        TypeError: anything else, such as bool, str, a mask or floats.
        IndexError: out of range.
    """
    if isinstance(indices, slice):
        return list(range(n)[indices])
    integers = _integers(indices)
    for index in integers:
        if index >= n:
            raise SampleIndexError(f"index >= number of samples ({index} >= {n}): {dataset!r}")
        if index < -n:
            raise below(f"index {index}: absolute value of index should not exceed dataset length {n}: {dataset!r}")
    return [index if index >= 0 else index + n for index in integers]


def _is_single(index: object) -> bool:
    if isinstance(index, np.ndarray | torch.Tensor):
        return index.ndim == 0 and _is_integer(index)
    return isinstance(index, SupportsIndex) and not isinstance(index, bool | np.bool_)


def _integers(indices: object) -> Sequence[int]:
    if isinstance(indices, range):
        return indices
    if isinstance(indices, list | tuple):
        try:
            # numpy before 2.3 only warns of its bools.
            if any(isinstance(index, np.bool_) for index in indices):
                raise TypeError("numpy bools are no indices")
            return list(map(operator.index, indices))
        except TypeError as error:
            raise TypeError(f"{TYPE_MESSAGE}: {error}") from None
    if isinstance(indices, np.ndarray | torch.Tensor) and indices.ndim == 1 and _is_integer(indices):
        integers: list[int] = indices.tolist()
        return integers
    raise TypeError(f"{TYPE_MESSAGE}, not {_describe(indices)}")


def _is_integer(array: npt.NDArray[Any] | torch.Tensor) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype.kind in "iu"
    return not (array.is_floating_point() or array.is_complex() or array.dtype == torch.bool)


def _describe(indices: object) -> str:
    if isinstance(indices, np.ndarray | torch.Tensor):
        return f"{type(indices).__name__} of {indices.dtype}, shape {tuple(indices.shape)}"
    return type(indices).__name__

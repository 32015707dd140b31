"""Indices of `dataset[...]`, the same for every dataset of this package; and indices that a dataset keeps."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data as torch_data

from ffrecord.errors import SampleIndexError
from ffrecord.order import Run
from ffrecord.reading.indices import as_subset
from ffrecord.system.values import describe_wrong

__all__ = [
    "Indices",
    "KeptIndices",
    "MappedFile",
    "PlannedBatch",
    "SeededIndex",
    "SeededIndices",
    "as_positions",
    "hand_down_seeds",
    "is_single",
    "keep_indices",
    "seeds_of",
    "take_at",
    "take_range",
]

Integers: TypeAlias = "list[int] | tuple[int, ...] | range"
Indices: TypeAlias = "Integers | npt.NDArray[np.integer[Any]] | torch.Tensor"
KeptIndices: TypeAlias = "range | npt.NDArray[np.integer[Any]]"


class SeededIndex(int):
    """An index that a sampler has given a random seed, for datasets whose samples depend on seeds.

    Attributes:
        seed: in [0, 2**64).
    """

    seed: int

    def __new__(cls, index: int, seed: int) -> "SeededIndex":
        made = super().__new__(cls, index)
        made.seed = seed
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return SeededIndex, (int(self), self.seed)

    def __sub__(self, other: int) -> "SeededIndex":
        # torch's ConcatDataset counts from the first sample of a member.
        return SeededIndex(int(self) - other, self.seed)


class SeededIndices(list[int]):
    """The indices of torch's Subset. They hand the seed of an index down to the dataset below."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return SeededIndex(found, place.seed) if type(place) is SeededIndex else found


class PlannedBatch(list[int]):
    """The indices of a planned batch, which tell a dataset what comes next.

    Args:
        indices: the indices.
        run: the batches of the epoch.
        number: number of this one among them.

    Attributes:
        run, number: the arguments.
    """

    def __init__(self, indices: Sequence[int], run: Run, number: int) -> None:
        super().__init__(indices)
        self.run, self.number = run, number

    def __reduce__(self) -> tuple[Any, ...]:
        if self.run.epoch.filter is not None:  # too large to go with each batch
            return list, (list(self),)
        return PlannedBatch, (list(self), self.run, self.number)


def hand_down_seeds(dataset: object) -> bool:
    """Return whether samples of a `Dataset` depend on random seeds, also below torch's subsets, joins and stacks.

    Lists of indices of torch's subsets become `SeededIndices`. Call it before a loader starts its workers.
    """
    found = getattr(dataset, "_is_seeded", None)
    if callable(found):
        return bool(found())
    if type(dataset) is torch_data.ConcatDataset:
        return _hand_down_to_all(dataset.datasets)
    if type(dataset) is torch_data.StackDataset:
        members = dataset.datasets
        return _hand_down_to_all(members.values() if isinstance(members, dict) else members)
    if type(dataset) is not torch_data.Subset or not hand_down_seeds(dataset.dataset):
        return False
    if type(dataset.indices) is list:
        dataset.indices = SeededIndices(dataset.indices)
    return isinstance(dataset.indices, SeededIndices)


def _hand_down_to_all(members: Iterable[object]) -> bool:
    found = [hand_down_seeds(member) for member in members]  # each of them, not only until the first
    return any(found)


def seeds_of(indices: object) -> list[int] | None:
    """Return the seeds of a list of `SeededIndex`; None for other indices."""
    if not isinstance(indices, list) or not indices or any(type(index) is not SeededIndex for index in indices):
        return None
    return [index.seed for index in indices]


def as_positions(dataset: object, indices: Indices, n: int, *, below: type[IndexError] = SampleIndexError) -> list[int]:
    """Return `indices` into n samples as a list of ints in [0, n), with order and repeats kept.

    Args:
        dataset: the dataset, for messages.
        indices: [k] ints in [-n, n) as a list, tuple, range, integer array or tensor.
        n: number of samples.
        below: error for an index below -n.

    Raises:
        TypeError: `indices` are something else, such as bool, str, a mask or floats.
        IndexError: an index is out of range.
    """
    integers = _integers(indices)
    if integers and min(integers) >= 0 and max(integers) < n:
        return list(integers)
    for index in integers:
        if index >= n:
            raise SampleIndexError(f"index >= number of samples ({index} >= {n}): {dataset!r}")
        if index < -n:  # in the words of ffrecord 1.4.0 and torch
            raise below(f"index {index}: absolute value of index should not exceed dataset length {n}: {dataset!r}")
    return [index if index >= 0 else index + n for index in integers]


def is_single(index: object) -> bool:
    """Tell whether an index means one sample: an int, a numpy int, an integer array or tensor without dimensions."""
    if isinstance(index, np.ndarray | torch.Tensor):
        return index.ndim == 0 and _is_integer(index)
    return isinstance(index, SupportsIndex) and not isinstance(index, bool | np.bool_)


def _integers(indices: object) -> Sequence[int]:
    if isinstance(indices, range):
        return indices
    if isinstance(indices, np.ndarray | torch.Tensor) and indices.ndim == 1:
        indices = indices.tolist()  # of a tensor on a GPU too, or with a gradient
    elif not isinstance(indices, list | tuple):
        raise TypeError(describe_wrong("indices", indices, "a list of ints"))
    if set(map(type, indices)) == {int}:
        return indices
    integers: list[int] = as_subset(indices).tolist()
    return integers


def _is_integer(array: npt.NDArray[Any] | torch.Tensor) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype.kind in "iu"
    return not (array.is_floating_point() or array.is_complex() or array.dtype == torch.bool)


# Indices that a dataset keeps. They have no Python object for each index: counting references would make every forked
# worker copy the memory of these objects.


def keep_indices(indices: Any) -> KeptIndices:
    """Return `indices` as they are if they are a range or a 1-D integer array, else as an int64 array.

    Raises:
        TypeError: `indices` are not a sequence of ints.
        IndexError: a number does not fit into 64 bits.
    """
    if isinstance(indices, range) or (
        isinstance(indices, np.ndarray) and indices.ndim == 1 and indices.dtype.kind in "iu"
    ):
        return indices
    return as_subset(indices)


def take_at(indices: KeptIndices, positions: list[int]) -> list[int]:
    """Return the indices at `positions`, each in [0, len(indices))."""
    if isinstance(indices, range):
        return [indices[position] for position in positions]
    found: list[int] = indices[positions].tolist()
    return found


def take_range(indices: KeptIndices, places: range) -> KeptIndices:
    """Return the indices at `places`, a range in [0, len(indices)): a range, or a view of the array."""
    if not places:
        return indices[:0]
    stop = places.stop if places.stop >= 0 else None  # a descending range may end before the first place, at -1
    return indices[places.start : stop : places.step]


class MappedFile(NamedTuple):
    """The place of an array that is mapped from a file, to pickle instead of its contents."""

    filename: str
    dtype: np.dtype[Any]
    offset: int
    size: int

    @classmethod
    def of(cls, array: object) -> "MappedFile | None":
        """Return the place of a 1-D array; None if it is not simply a piece of a mapped file."""
        if not isinstance(array, np.memmap) or array.filename is None or not array.flags.c_contiguous:
            return None
        whole = array
        while isinstance(whole.base, np.memmap):
            whole = whole.base
        # `offset` of a view of a memmap is the offset of the whole, so compute the view's own from the addresses.
        offset = whole.offset + array.ctypes.data - whole.ctypes.data
        return cls(str(array.filename), array.dtype, offset, len(array))

    def open(self) -> npt.NDArray[np.integer[Any]]:
        """Map the array again, read-only."""
        return np.memmap(self.filename, self.dtype, "r", self.offset, (self.size,))

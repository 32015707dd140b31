"""Lazy slice of a reader."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from ffrecord.errors import SampleIndexError

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
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise SampleIndexError(f"index {i} of a slice of samples, expected {-len(self)} <= index < {len(self)}")
        return self._reader.read_one(self._indices[i])

    def __iter__(self) -> Iterator[Array]:
        return self._reader._iterate(self._indices)

    def __repr__(self) -> str:
        return f"<{self._indices} of {self._reader!r}>"

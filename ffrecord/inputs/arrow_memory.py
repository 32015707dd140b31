"""Columns of Arrow tables, read in the tables' own memory: a batch of them needs no call of Arrow.

Chunks of a column are parts; `take` finds the part of each row. Left to Arrow are columns with missing values, and
dictionaries, runs and extensions, which are around the values.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ffrecord.inputs import arrow_types as kinds
from ffrecord.inputs.arrow_types import types
from ffrecord.inputs.arrow_values import decode

Places: TypeAlias = npt.NDArray[np.int64]

PARTS_MOST = 100_000  # chunks of all columns together: each takes 10 to 20 microseconds at the start


class SharedColumn(ABC):
    """A column in the memory of its table.

    Args:
        parts: its chunks, none of them empty, as a subclass reads them.
        starts: int64, place in the column of the first value of each part.
    """

    def __init__(self, parts: list[Any], starts: Places) -> None:
        self._parts, self._starts = parts, starts

    def take(self, places: Places) -> Any:
        """Return the values at `places`, each in [0, n): a new array or list.

        Raises:
            UnicodeDecodeError: a text is not UTF-8.
        """
        if len(self._parts) == 1:
            return self._many(self._parts[0], places)
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        inside = places - self._starts[numbers]
        if len(places) and numbers.min() == numbers.max():
            return self._many(self._parts[numbers[0]], inside)
        parts, one = self._parts, self._one
        return self._join(
            [one(parts[number], place) for number, place in zip(numbers.tolist(), inside.tolist(), strict=True)]
        )

    @abstractmethod
    def _many(self, part: Any, places: Places) -> Any:
        """Return the values of a part at these places of it."""

    @abstractmethod
    def _one(self, part: Any, place: int) -> Any:
        """Return the value of a part at this place of it."""

    def _join(self, values: list[Any]) -> Any:
        """Return values of several parts in the form of `_many`."""
        return values


class SharedNumbers(SharedColumn):
    """Numbers or times. A part is an array of Arrow's dtype; taken values are an array."""

    def _many(self, part: Any, places: Places) -> Any:
        return part[places]

    def _one(self, part: Any, place: int) -> Any:
        return part[place]

    def _join(self, values: list[Any]) -> Any:
        return np.array(values, self._parts[0].dtype)


class SharedSpans(SharedColumn):
    """Values that lie one behind the other: texts, bytes, lists of numbers.

    A part is (offsets, data); value i is made from `data[offsets[i]:offsets[i + 1]]`.

    Args:
        make: function from this slice to the value.
        arguments: those of `SharedColumn`.
    """

    def __init__(self, make: Callable[[Any], Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._make = make

    def _many(self, part: Any, places: Places) -> list[Any]:
        offsets, data = part
        make, ends = self._make, offsets[places + 1].tolist()
        return [make(data[low:high]) for low, high in zip(offsets[places].tolist(), ends, strict=True)]

    def _one(self, part: Any, place: int) -> Any:
        offsets, data = part
        return self._make(data[offsets[place] : offsets[place + 1]])


def shared_columns(
    columns: Mapping[str, Any], share: Callable[[str, Any], SharedColumn | None]
) -> dict[str, SharedColumn]:
    """Return those columns of a table that can be read in its own memory; none if there are very many chunks.

    Args:
        columns: name → column.
        share: function from name and column to one of these, or None.
    """
    if sum(column.num_chunks for column in columns.values()) > PARTS_MOST:
        return {}
    found = {name: share(name, column) for name, column in columns.items()}
    return {name: column for name, column in found.items() if column is not None}


def shared_numbers(column: Any) -> SharedNumbers | None:
    """Return a table's column of numbers or times; None if there are missing values, or NumPy has other ones."""
    parts = _parts_of(column, lambda chunk: chunk.to_numpy(zero_copy_only=True))
    return None if parts is None else SharedNumbers(*parts)


def shared_texts(column: Any) -> SharedSpans | None:
    """Return a table's column of text or bytes; None if it is something else, or values are missing."""
    known, kind = types(), column.type
    is_text = known.is_string(kind) or known.is_large_string(kind)
    if not (is_text or known.is_binary(kind) or known.is_large_binary(kind)):
        return None

    wide = np.dtype(np.int64 if known.is_large_string(kind) or known.is_large_binary(kind) else np.int32)

    def part(chunk: Any) -> Any:
        _, offsets, data = chunk.buffers()
        return _offsets_of(chunk, offsets, wide), memoryview(b"" if data is None else data)

    parts = _parts_of(column, part)
    return None if parts is None else SharedSpans(_text if is_text else bytes, *parts)


def shared_lists(column: Any, make: Callable[[npt.NDArray[Any]], Any]) -> SharedSpans | None:
    """Return a table's column of lists of numbers; None if it is something else, or values or numbers are missing.

    Args:
        make: function from an array in the table's memory to the value.
    """
    known, kind = types(), column.type
    if not (known.is_list(kind) or known.is_large_list(kind)) or not known.is_primitive(kind.value_type):
        return None

    wide = np.dtype(np.int64 if known.is_large_list(kind) else np.int32)

    def part(chunk: Any) -> Any:
        values = chunk.values
        if values.null_count:
            raise kinds.pyarrow().ArrowInvalid("missing numbers")
        return _offsets_of(chunk, chunk.buffers()[1], wide), values.to_numpy(zero_copy_only=True)

    parts = _parts_of(column, part)
    return None if parts is None else SharedSpans(make, *parts)


def _text(data: memoryview) -> str:
    return str(data, "utf-8")


def _offsets_of(chunk: Any, buffer: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    # A slice keeps the offsets of the whole array.
    return np.frombuffer(buffer, dtype)[chunk.offset : chunk.offset + len(chunk) + 1]


def _parts_of(column: Any, part: Callable[[Any], Any]) -> tuple[list[Any], Places] | None:
    """Return the parts of a column and their starts; None if Arrow has to read it."""
    if column.null_count:
        return None
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    # Dictionaries, runs and extensions are around the values.
    if not chunks or decode(chunks[0]) is not chunks[0]:
        return None
    try:
        parts = [part(chunk) for chunk in chunks]
    except kinds.pyarrow().ArrowInvalid:  # bools are bits, which NumPy cannot read
        return None
    return parts, np.cumsum([0, *map(len, chunks[:-1])], dtype=np.int64)

"""The records of a batch, however they were read, and the columns in them."""

from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ffrecord.fields import Field, Slot
from ffrecord.fields.batch import Batch
from ffrecord.fields.layout import RecordLayout
from ffrecord.fields.shapes import CHECKED, check_items

__all__ = ["BatchRecords", "ColumnRecords", "PackedRecords", "PlainRecords"]

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


class BatchRecords(Protocol):
    """k records. Each method may raise FormatError if bytes are not a value of the field."""

    count: int

    def column(self, position: int) -> Any:
        """Return the column at `position` of the layout: an array [k, *shape], or the list of its values."""

    def values(self, position: int) -> list[Any]:  # pyright: ignore[reportReturnType]  # a protocol's
        """Return the k values of that column."""


class PackedRecords:
    """Records back to back.

    Args:
        layout: layout of all their columns.
        data, offsets: uint8 and int64 [k + 1]; record i is `data[offsets[i]:offsets[i + 1]]`.

    Raises:
        FormatError: the size of a record contradicts the layout.
    """

    def __init__(self, layout: RecordLayout, data: Bytes, offsets: Offsets) -> None:
        batch = Batch(layout, data, offsets)
        self.count = batch.size
        self.column, self.values, self.payloads = batch.column, batch.values, batch.payloads


class ColumnRecords:
    """Records that were read as columns.

    Args:
        columns: position in the layout → (field, slot in a record, uint8 [k, size] as read).
        count: k.
    """

    def __init__(self, columns: dict[int, tuple[Field, Slot, Bytes]], count: int) -> None:
        self._columns, self.count = columns, count

    def column(self, position: int) -> Any:
        field, slot, rows = self._columns[position]
        return field.column(_array(rows, slot))

    def values(self, position: int) -> list[Any]:
        field, slot, rows = self._columns[position]
        return field.unstack(_array(rows, slot))


def _array(rows: Bytes, slot: Slot) -> npt.NDArray[Any]:
    shape = (len(rows), *slot.shape)
    if not slot.size or not len(rows):
        return np.empty(shape, slot.dtype)
    array = rows.reshape(-1).view(slot.dtype).reshape(shape)
    if slot.dtype.kind in CHECKED:
        check_items(array)
    return array


class PlainRecords:
    """Records without a schema: one column, whose values are uint8 arrays, views of `data`."""

    def __init__(self, data: Bytes, offsets: Offsets) -> None:
        self._data, self._offsets = data, offsets
        self.count = len(offsets) - 1

    def column(self, position: int) -> list[Bytes]:
        return [self._data[low:high] for low, high in pairwise(self._offsets.tolist())]

    values = column

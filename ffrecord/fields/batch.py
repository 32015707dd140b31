"""Decoding of many records at once: no Python work per sample for columns of fixed size."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array, Field
from ffrecord.fields.layout import SIZE, RecordLayout, Slot, column_label
from ffrecord.fields.shapes import CHECKED, check_items
from ffrecord.system.values import check_offsets, describe_wrong

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# Bytes of the largest value that numpy gathers. Larger values are copied one by one, at no measurable cost.
GATHER_MAX = 1 << 16
# Bytes of memory that samples share. One kept sample keeps all of it alive; smaller pieces cause more page faults.
SHARED_MAX = 1 << 20


def check_records(data: Any, offsets: Any) -> tuple[Bytes, Offsets]:
    """Check that `data` and `offsets` describe k records, and return both as arrays.

    Raises:
        TypeError: `data` is not a flat contiguous uint8 array, or `offsets` are not integers.
        ValueError: the offsets descend, or leave `data`.
    """
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise TypeError(describe_wrong("data", data, "a contiguous uint8 array [bytes]"))
    found = check_offsets(offsets).astype(np.int64, copy=False)
    if not len(found):
        raise ValueError("offsets is empty, expected ints [k + 1]")
    # Checked once here: later steps copy by these numbers.
    if found[0] < 0 or found[-1] > len(data) or (found[1:] < found[:-1]).any():
        raise ValueError(
            f"offsets go from {found[0]} to {found[-1]}, expected them to ascend from 0 to at most {len(data)}"
        )
    return data, found


class Batch:
    """k records, whose sizes agree with `layout`.

    Attributes:
        data: uint8 [bytes], all records.
        offsets: int64 [k + 1]; record i is `data[offsets[i]:offsets[i + 1]]`.
        starts: [k], the first k offsets.
        size: k.
    """

    def __init__(self, layout: RecordLayout, data: Bytes, offsets: Offsets) -> None:
        """Check the sizes of all records.

        Raises:
            FormatError: a record does not match `layout`; the message names its place in the batch, and the column.
        """
        self.layout, self.data, self.offsets, self.starts = layout, data, offsets, offsets[:-1]
        self.size = len(self.starts)
        self._view = data.data
        # Bytes of each record behind its fixed part: none, or sizes and payloads.
        spare = np.diff(offsets) - layout.head_size
        self._refuse(spare < 0 if layout.variable else spare != 0)
        self._bounds = self._payload_bounds(spare) if layout.variable else np.empty((0, 0), np.int64)

    def _refuse(self, wrong: Array) -> None:
        if not wrong.any():  # the usual case costs one look
            return
        i = int(wrong.argmax())
        # Decoded once more by the code for one record, whose message names the column.
        try:
            self.layout.sizes(self._view[self.offsets[i] : self.offsets[i + 1]])
        except FormatError as error:
            raise FormatError(f"record {i} of the batch: {error}") from None

    def _payload_bounds(self, spare: Offsets) -> Offsets:
        """Return where the payloads of each record begin and end: [k, variable columns + 1]."""
        columns = len(self.layout.variable)
        # The sizes of all records are gathered as one more column.
        sizes = _gather(self.data, self.starts, Slot(self.layout.fixed_size, SIZE.itemsize * columns, SIZE, (columns,)))
        # Compare the sizes while they are unsigned. Sizes that pass cannot overflow the sum: there are at most 4096.
        self._refuse(np.any(sizes > spare.astype(SIZE)[:, None], axis=1))
        bounds = np.zeros((self.size, columns + 1), np.int64)
        np.cumsum(sizes.astype(np.int64), axis=1, out=bounds[:, 1:])
        # A record must be used up exactly.
        self._refuse(bounds[:, -1] != spare)
        bounds += (self.starts + self.layout.head_size)[:, None]
        return bounds

    def payloads(self, position: int) -> list[memoryview]:
        """Return the bytes of each value of the column at `position`, as views of `data`."""
        slot = self.layout.slots[position]
        if slot is None:
            order = self.layout.variable.index(position)
            starts, stops = self._bounds[:, order], self._bounds[:, order + 1]
        else:
            starts, stops = self.starts + slot.offset, self.starts + slot.offset + slot.size
        view = self._view
        return [view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    def values(self, position: int) -> list[Any]:
        """Return the k values of the column at `position`.

        Raises:
            FormatError: the field does not decode a value.
        """
        field, slot = self.layout.columns[position][1], self.layout.slots[position]
        if slot is None:
            return [field.decode(payload) for payload in self.payloads(position)]
        # Pieces, so that a kept sample holds at most so much memory.
        step = max(1, SHARED_MAX // max(1, slot.size))
        starts = [self.starts[i : i + step] for i in range(0, self.size, step)]
        parts = [field.unstack(fixed_column(self.data, part, slot)) for part in starts]
        # Usually one piece, which needs no copy of the list.
        return parts[0] if len(parts) == 1 else [value for part in parts for value in part]

    def column(self, position: int) -> Any:
        """Return the column at `position`: an array [k, *shape] if its size is fixed, else the result of
        `Field.collect`.

        Raises:
            FormatError: the field does not decode a value.
        """
        field, slot = self.layout.columns[position][1], self.layout.slots[position]
        if slot is None:
            return field.collect(self.payloads(position))
        return field.column(fixed_column(self.data, self.starts, slot))


def fixed_column(data: Bytes, starts: Offsets, slot: Slot) -> Array:
    """Copy the values at `slot` of the records that begin at `starts` into a new, aligned array [k, *shape].

    Raises:
        FormatError: the bytes are not items of the dtype.
    """
    column = _gather(data, starts, slot)
    if slot.dtype.kind in CHECKED:
        check_items(column)
    return column


def _gather(data: Bytes, starts: Offsets, slot: Slot) -> Array:
    if not slot.size or not len(starts):
        return np.empty((len(starts), *slot.shape), slot.dtype)
    if slot.size > GATHER_MAX:
        return _gather_large(data, starts, slot)
    # An overlapping array of every place where a value could begin. Indexing it copies the wanted values at once.
    # Bytes are copied, never read through the view, so overlap and alignment do not matter.
    places = np.ndarray((len(data) - slot.size + 1,), f"V{slot.size}", data, strides=(1,))
    return places[starts + slot.offset].view(slot.dtype).reshape(len(starts), *slot.shape)


def _gather_large(data: Bytes, starts: Offsets, slot: Slot) -> Array:
    rows = np.empty((len(starts), slot.size), np.uint8)
    for row, start in zip(rows, (starts + slot.offset).tolist(), strict=True):
        row[:] = data[start : start + slot.size]
    return rows.view(slot.dtype).reshape(len(starts), *slot.shape)


def decode_each(batch: Batch, get: Callable[[int], Any], names: Collection[str] | None = None) -> list[Any]:
    """Call `get(position)` for each column of `batch`; errors name the column and the record.

    Args:
        batch: the records.
        get: returns the values of the column at a position.
        names: names of the wanted columns; None for all.

    Raises:
        FormatError: a field does not decode a value.
    """
    found = []
    for position, (name, field) in enumerate(batch.layout.columns):
        if names is not None and name not in names:
            continue
        try:
            found.append(get(position))
        except FormatError:
            # Decoded again one by one, to find the record.
            _blame(name, field, batch.payloads(position))
            raise
    return found


def _blame(name: str, field: Field, payloads: Sequence[memoryview]) -> None:
    for i, payload in enumerate(payloads):
        try:
            field.decode(payload)
        except FormatError as error:
            raise FormatError(f"record {i} of the batch: {column_label(name, field)}: {error}") from error

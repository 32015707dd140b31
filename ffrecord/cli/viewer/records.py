"""Columns of samples, each decoded by itself: one damaged column or sample hides no other."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from ffrecord.cli.format_values import classes_of, schema_if_any, values_by_column
from ffrecord.errors import FFRecordError, MissingNamesError
from ffrecord.fields.batch import Batch
from ffrecord.fields.layout import RecordLayout
from ffrecord.reading.pictures import bytes_of, type_of
from ffrecord.reading.store import Store

KEPT_BYTES = 64 << 20  # about the bytes of recent samples that are kept: a page asks for a sample, then for its picture
CHECKED_BYTES = 64 << 20  # of samples that are checked for damage together
TOGETHER = 8  # samples read in one batch; few, as one sample may have a hundred megabytes
ENCODED = ("jpeg", "image", "image_file")  # kinds of fields whose bytes are files that browsers show

Columns = dict[str, Any]


class Unreadable(NamedTuple):
    """The stand-in for a value that could not be read.

    Attributes:
        why: reason.
    """

    why: str


class ViewedRecords:
    """The samples of a store as columns. Threads may share it.

    Args:
        store: an open store.

    Attributes:
        store: as given.
        layout: places of the columns in records; None without a schema.
        fields: column → field; empty without a schema.
        classes: column → names of the classes, by number.
        named: whether records have names.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        schema = schema_if_any(store)
        self.fields = {} if schema is None else dict(schema.fields)
        self.layout = None if schema is None else RecordLayout(list(self.fields.items()))
        self.classes = classes_of(store, schema)
        self.named = _has_names(store)
        self._kept: OrderedDict[int, tuple[Columns | Exception, int]] = OrderedDict()
        self._kept_bytes, self._lock = 0, Lock()

    def name(self, index: int) -> str | None:
        """Return the name of a record, or None."""
        return str(self.store.keys()[index]) if self.named else None

    def columns(self, indices: Sequence[int]) -> list[Columns | Exception]:
        """Return the columns of samples. A sample of which nothing can be read gives its error."""
        found: dict[int, Columns | Exception | None] = {index: self._recall(index) for index in indices}
        missing = [index for index, columns in found.items() if columns is None]
        for start in range(0, len(missing), TOGETHER):
            together = missing[start : start + TOGETHER]
            for index, read in zip(together, self._read(together), strict=True):
                found[index] = read
                self._remember(index, read)
        return [columns for index in indices if (columns := found[index]) is not None]

    def find_damaged(self, indices: range) -> list[int]:
        """Return the samples that cannot be shown completely. None of them is cached, as there may be very many."""
        if len(indices) <= TOGETHER:
            return [index for index, columns in zip(indices, self._read([*indices]), strict=True) if damage_of(columns)]
        if self.layout is not None and self._are_whole(self.layout, indices):
            return []
        middle = len(indices) // 2
        return self.find_damaged(indices[:middle]) + self.find_damaged(indices[middle:])

    def _are_whole(self, layout: RecordLayout, indices: range) -> bool:
        """Tell whether all samples of a range can be shown. Columns are decoded one at a time, which is fast.

        False if the samples are too large to be in memory together.
        """
        positions = np.arange(indices.start, indices.stop)
        try:
            if self.store.record_sizes(positions).sum() > CHECKED_BYTES:
                return False
            batch = Batch(layout, *self.store.read_packed(positions))
            return all(self._is_whole(batch, position) for position in range(len(layout.columns)))
        except Exception:  # one of them is damaged
            return False

    def _is_whole(self, batch: Batch, position: int) -> bool:
        name, _ = batch.layout.columns[position]
        if batch.layout.slots[position] is not None:
            batch.values(position)
            return True
        return not any(isinstance(self._value(name, payload), Unreadable) for payload in batch.payloads(position))

    def _read(self, indices: list[int]) -> Iterator[Columns | Exception]:
        try:
            yield from self._decode(indices)
        except Exception:  # one is damaged: read one by one to find it
            for index in indices:
                try:
                    yield from self._decode([index])
                except Exception as error:  # a field of the user's own may raise anything
                    yield error

    def _decode(self, indices: list[int]) -> list[Columns | Exception]:
        if self.layout is None:
            return [values_by_column(sample) for sample in self.store.samples(indices)]
        return [self._columns(self.layout, record.data) for record in self.store.read(indices)]

    def _columns(self, layout: RecordLayout, record: memoryview) -> Columns:
        return {name: self._value(name, payload) for name, payload in iter_payloads(layout, record)}

    def _value(self, name: str, payload: memoryview) -> Any:
        field = self.fields[name]
        if field.kind in ENCODED and type_of(payload[:16]) is not None:
            return bytes(payload)  # browsers decode these themselves
        try:
            return field.decode(payload)
        except Exception as error:  # a field of the user's own may raise anything
            return Unreadable(format_reason(error))

    def _recall(self, index: int) -> Columns | Exception | None:
        with self._lock:
            if index not in self._kept:
                return None
            self._kept.move_to_end(index)
            return self._kept[index][0]

    def _remember(self, index: int, columns: Columns | Exception) -> None:
        size = 1000 + (0 if isinstance(columns, Exception) else sum(map(_size_in_memory, columns.values())))
        with self._lock:
            self._kept_bytes += size - self._kept.pop(index, (None, 0))[1]
            self._kept[index] = columns, size
            while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popitem(last=False)[1][1]


def iter_payloads(layout: RecordLayout, record: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield the name and the bytes of each column of a record.

    Raises:
        FormatError: the record does not have this layout.
    """
    sizes, at = iter(layout.sizes(record)), layout.head_size
    for (name, _), slot in zip(layout.columns, layout.slots, strict=True):
        start = at if slot is None else slot.offset
        stop = start + (next(sizes) if slot is None else slot.size)
        at = stop if slot is None else at
        yield name, record[start:stop]


def damage_of(columns: Columns | Exception) -> str | None:
    """Return the reason why a sample cannot be shown completely; None if it can. Such a sample is called damaged."""
    if isinstance(columns, Exception):
        return format_reason(columns)
    return next((f"{name}: {value.why}" for name, value in columns.items() if isinstance(value, Unreadable)), None)


def format_reason(error: BaseException) -> str:
    """Format the reason of a failed read in one line."""
    text = " ".join(str(error).split())
    if text and isinstance(error, FFRecordError | OSError | ImportError | ValueError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _has_names(store: Store) -> bool:
    try:
        store.keys()
    except MissingNamesError:
        return False
    return True


def _size_in_memory(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    data = bytes_of(value)
    return 1000 if data is None else len(data)

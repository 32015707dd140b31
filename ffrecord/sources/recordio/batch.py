"""Batches of records from groups of chunks, in the order that was asked for."""

import numpy as np

from ffrecord.engine._engine import ARRAYS
from ffrecord.errors import ArgumentError, FFRecordError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out, Packed
from ffrecord.sources.recordio import _recordio
from ffrecord.sources.recordio.groups import Group
from ffrecord.sources.recordio.layout import Numbers

NOTHING = np.empty(0, np.uint8)


class GroupBatch:
    """A batch that is filled as its records arrive.

    Args:
        form: ARRAYS or PACKED.
        count: number of records.
        views: give ARRAYS as views of their groups, whose memory they keep alive; they may be read-only.

    Attributes:
        missing: bool [count], records that have neither arrived nor failed.
    """

    def __init__(self, form: Form, count: int, *, views: bool = False) -> None:
        self._form, self._pieces = form, views_of if views else _recordio.copies
        self._arrays: list[Array] = [NOTHING] * count
        self._sizes = np.zeros(count, np.int64)
        self._parts: list[tuple[Numbers, Packed]] = []
        self._failures: list[tuple[int, Exception]] = []
        self.missing = np.ones(count, bool)

    def add(self, group: Group, places: Numbers, rows: Numbers) -> None:
        """Add records of a group: its `rows` go to `places` of the batch."""
        self.missing[places] = False
        offsets, sizes = group.offsets[rows], group.sizes[rows]
        if self._form is ARRAYS:
            for place, array in zip(places.tolist(), self._pieces(group.data, offsets, sizes), strict=True):
                self._arrays[place] = array
        else:
            self._add_part(places, packed_of(group.data, offsets, sizes))

    def add_read(self, places: Numbers, outcome: BatchOutcome) -> None:
        """Add records that were read alone, in the form of the batch."""
        self.missing[places] = False
        self._failures += [(int(places[place]), error) for place, error in outcome.failures]
        if self._form is ARRAYS:
            for place, array in zip(places.tolist(), outcome.result, strict=True):
                self._arrays[place] = array
        else:
            self._add_part(places, outcome.result)

    def fail(self, place: int, error: Exception) -> None:
        """Note the error of a record that cannot be read."""
        self.missing[place] = False
        self._failures.append((place, error))

    def _add_part(self, places: Numbers, part: Packed) -> None:
        self._sizes[places] = np.diff(part[1])
        self._parts.append((places, part))

    def outcome(self, out: Out) -> BatchOutcome:
        """Return the complete batch.

        Raises:
            ValueError: `out` is too small.
            FFRecordError: some records neither arrived nor failed. They must not pass for empty ones.
        """
        if self.missing.any():
            raise FFRecordError(
                f"{self.missing.sum()} of {len(self.missing)} records were not read; please report this"
            )
        self._failures.sort(key=lambda failure: failure[0])
        if self._form is ARRAYS:
            return BatchOutcome(self._arrays, self._failures)
        return BatchOutcome(self._packed(out if isinstance(out, np.ndarray) else None), self._failures)

    def _packed(self, out: Array | None) -> Packed:
        if out is None and len(self._parts) == 1 and len(self._parts[0][0]) == len(self._sizes):
            return self._parts[0][1]
        offsets = np.zeros(len(self._sizes) + 1, np.int64)
        np.cumsum(self._sizes, out=offsets[1:])
        size = int(offsets[-1])
        if out is not None and size > len(out):
            raise ArgumentError(f"out has {len(out)} bytes, expected at least {size}")
        data = pooled(size) if out is None else out[:size]
        for places, (part, starts) in self._parts:
            _recordio.gather(part, starts[:-1], np.diff(starts), offsets[places], data)
        return data, offsets


def views_of(data: Array, offsets: Numbers, sizes: Numbers) -> list[Array]:
    """Return views of pieces of `data`."""
    return [data[start:end] for start, end in zip(offsets.tolist(), (offsets + sizes).tolist(), strict=True)]


def packed_of(data: Array, offsets: Numbers, sizes: Numbers) -> Packed:
    """Return pieces of `data` back to back."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    packed = pooled(int(ends[-1]))
    _recordio.gather(data, offsets, sizes, ends[:-1], packed)
    return packed, ends

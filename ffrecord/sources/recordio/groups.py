"""Groups of RecordIO chunks that were read together, and batches of their records; the last groups are kept."""

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ffrecord.engine._engine import ARRAYS
from ffrecord.errors import ArgumentError, FFRecordError, FormatError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out, Packed
from ffrecord.sources.recordio import _recordio, snappy
from ffrecord.sources.recordio.layout import GZIP, LENGTH, NONE, Numbers
from ffrecord.system.forks import renew_in_children

KEPT = 64 << 20  # bytes of expanded chunks that one reader keeps; the last group is kept whatever its size
OVERHEAD = 1 << 10  # bytes of a kept group beside its data and numbers
PASSING = 2  # most `passing` groups kept: enough for reading in sequence


class Group(NamedTuple):
    """Some chunks and all their records.

    Attributes:
        chunks: int64 [m], numbers of the chunks, ascending.
        first: int64 [m + 1], row of each chunk's first record.
        data: uint8, the expanded chunks.
        offsets, sizes: int64 [rows], offset of each record in `data`, and its bytes.
        failures: chunk → its error; these chunks are not among `chunks`.
        passing: whether few of its records will be needed again: they can be read alone now, or all are read once.
    """

    chunks: Numbers
    first: Numbers
    data: Array
    offsets: Numbers
    sizes: Numbers
    failures: dict[int, Exception]
    passing: bool = False

    def slots(self, chunks: Numbers) -> Numbers:
        """Return the place of each of `chunks` in this group; -1 if it is not here."""
        if not len(self.chunks):
            return np.full(len(chunks), -1)
        # A number behind the last one has no place.
        found = np.minimum(np.searchsorted(self.chunks, chunks), len(self.chunks) - 1)
        return np.where(self.chunks[found] == chunks, found, -1)


def decompress(payload: Array, compressor: str, kind: str, most: int, check: bool) -> Array:
    """Decompress a payload.

    Args:
        payload: uint8, as stored.
        compressor: one of `COMPRESSORS`.
        kind: wrapping of snappy.
        most: most bytes that it may expand to.
        check: compare the checksums inside it, if it has some.

    Raises:
        FormatError: it is invalid, or expands to more than `most`.
        ChecksumError: a checksum inside it does not match.
        ImportError: a library is missing.
    """
    if compressor == NONE:
        return payload
    return _gunzip(payload, most) if compressor == GZIP else snappy.expand(payload, kind, most, check)


def _gunzip(payload: Array, most: int) -> Array:
    # 16 more: with gzip's header and checksum, which zlib compares.
    machine = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        # One byte more, to notice data that are too long.
        data = machine.decompress(payload.data, most + 1)
    except zlib.error as error:
        raise FormatError(f"the gzip data, {len(payload)} bytes, are damaged: {error}") from None
    if len(data) > most:
        raise FormatError(f"the gzip data, {len(payload)} bytes, decompress to more than {most} bytes")
    if not machine.eof:
        raise FormatError(f"the gzip data, {len(payload)} bytes, end too early, after {len(data)} decompressed bytes")
    if machine.unused_data:
        raise FormatError(f"{len(machine.unused_data)} of {len(payload)} bytes follow the gzip data, expected none")
    return np.frombuffer(data, np.uint8)


def join(pieces: list[Array]) -> tuple[Array, Numbers, Numbers]:
    """Join expanded payloads in one array: (data, starts, ends)."""
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    ends = np.cumsum(sizes)
    data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, out=pooled(int(ends[-1])))
    return data, ends - sizes, ends


def locate(
    chunks: Numbers, records: Numbers, data: Array, starts: Numbers, ends: Numbers, failures: dict[int, Exception]
) -> Group:
    """Find the records of expanded chunks, and return them as a group.

    Args:
        chunks, records: int64 [m], numbers of the chunks, ascending, and the number of records in each according to its
            header.
        data, starts, ends: the payloads; int64 [m], start and end of each.
        failures: errors of chunks that are not in `data`; chunks with other numbers of records are added.
    """
    # Each record takes at least the bytes of its size.
    room = (ends - starts) // LENGTH.size
    missing = (
        np.array([chunk in failures for chunk in chunks.tolist()], bool) if failures else np.zeros(len(chunks), bool)
    )
    # No checksum covers the number in a header: the payload bounds the memory for it.
    counts = np.where(missing | (records > room), 0, records)
    offsets, sizes, wrong = _recordio.walk(data, starts, ends, counts)
    bad = np.flatnonzero(((wrong >= 0) | (counts != records)) & ~missing)
    for i in bad.tolist():
        size, at = int(ends[i] - starts[i]), int(wrong[i] - starts[i]) if counts[i] else 0
        failures[int(chunks[i])] = FormatError(
            f"its header says {records[i]} records, but its {size} decompressed bytes hold another number: the fault "
            f"is at byte {at}"
        )
    first = np.concatenate([[0], np.cumsum(counts)])
    if failures:
        keep = ~missing
        keep[bad] = False
        rows = np.repeat(keep, counts)
        chunks, offsets, sizes = chunks[keep], offsets[rows], sizes[rows]
        first = np.concatenate([[0], np.cumsum(counts[keep])])
    return Group(chunks, first, data, offsets, sizes, failures)


class Groups:
    """The last groups, for all threads of a process. One thread reads a chunk while others wait for it.

    Args:
        count: number of chunks.
        load: reads chunks, int64 [m] ascending, into a `Group`.
        cut: splits chunks into parts to read together.
    """

    def __init__(self, count: int, load: Callable[[Numbers], Group], cut: Callable[[Numbers], list[Numbers]]) -> None:
        self._count, self._load, self._cut = count, load, cut
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Drop everything: in a forked child, the threads that were reading do not exist."""
        self._changed = threading.Condition()
        self._groups: OrderedDict[int, Group] = OrderedDict()  # number of the group → the group, last used last
        self._owner = np.full(self._count, -1)  # number of the kept group of each chunk; -1 for none
        self._next = self._bytes = 0
        self._being_read: set[int] = set()

    def keeps(self, chunks: Numbers) -> bool:
        """Tell whether all of `chunks` seem to be in kept groups: a hint, since other threads change them."""
        return bool((self._owner[chunks] >= 0).all())

    def find_one(self, chunk: int) -> tuple[Group, int] | None:
        """Return (kept group with `chunk`, its place there), or None."""
        # Without the lock: the answer is compared below, and a missed group only costs another read.
        owner = int(self._owner[chunk])
        if owner < 0:
            return None
        with self._changed:
            group = self._groups.get(owner)
            if group is None:
                return None
            self._groups.move_to_end(owner)
        place = 0 if len(group.chunks) == 1 else int(np.searchsorted(group.chunks, chunk))
        return (group, place) if int(group.chunks[place]) == chunk else None

    def find(self, chunks: Numbers) -> tuple[list[Group], Numbers]:
        """Return kept groups with some of `chunks`, int64 [m] ascending, and the chunks that are in none of them."""
        with self._changed:
            return self._find(chunks)

    def take(self, chunks: Numbers) -> Iterator[Group]:
        """Yield groups that contain all of `chunks`, int64 [m] ascending, between them."""
        while len(chunks):
            have, chunks = self.find(chunks)
            left: set[int] = set()
            try:
                with self._changed:
                    waited = np.array([chunk in self._being_read for chunk in chunks.tolist()], bool)
                    mine, chunks = chunks[~waited], chunks[waited]
                    left.update(mine.tolist())
                    self._being_read.update(left)
                yield from self._read(mine, left)
            finally:  # also after an interrupt anywhere in between: others would wait for these chunks for ever
                if left:
                    self._finish_chunks(left)
            yield from have
            if len(chunks):
                others = chunks.tolist()
                with self._changed:
                    # Then they are looked up again: the other thread may have failed, or its group may be gone.
                    self._changed.wait_for(partial(self._being_read.isdisjoint, others))

    def _find(self, chunks: Numbers) -> tuple[list[Group], Numbers]:
        owners = self._owner[chunks]
        there = owners >= 0
        if not there.any():
            return [], chunks
        have = []
        for owner in np.unique(owners[there]).tolist():
            self._groups.move_to_end(owner)
            have.append(self._groups[owner])
        return have, chunks[~there]

    def _read(self, chunks: Numbers, left: set[int]) -> Iterator[Group]:
        for piece in self._cut(chunks) if len(chunks) else []:
            group = self._load(piece)
            self._finish_chunks(piece.tolist(), group)
            left.difference_update(piece.tolist())
            yield group

    def _finish_chunks(self, chunks: Iterable[int], group: Group | None = None) -> None:
        with self._changed:
            if group is not None:
                self._keep(group)
            self._being_read.difference_update(chunks)
            self._changed.notify_all()

    def _keep(self, group: Group) -> None:
        self._groups[self._next] = group
        self._owner[group.chunks] = self._next
        self._bytes += _bytes_of(group)
        self._next += 1
        if group.passing:
            for number in [number for number, each in self._groups.items() if each.passing][:-PASSING]:
                self._drop(number)
        while self._bytes > KEPT and len(self._groups) > 1:
            self._drop(next(iter(self._groups)))

    def _drop(self, number: int) -> None:
        group = self._groups.pop(number)
        self._bytes -= _bytes_of(group)
        # Another group may own some of its chunks by now.
        self._owner[group.chunks[self._owner[group.chunks] == number]] = -1

    def clear(self) -> None:
        """Drop all groups."""
        with self._changed:
            self._groups.clear()
            self._owner[:] = -1
            self._bytes = 0


def _bytes_of(group: Group) -> int:
    # 16 each: offset and size of a record, number and first row of a chunk.
    return OVERHEAD + len(group.data) + 16 * len(group.sizes) + 16 * len(group.chunks)


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
        # One array for all: records that fail keep it.
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
        # Records arrive group by group, not in the order of the batch.
        self._failures.sort(key=lambda failure: failure[0])
        if self._form is ARRAYS:
            return BatchOutcome(self._arrays, self._failures)
        return BatchOutcome(self._pack(out if isinstance(out, np.ndarray) else None), self._failures)

    def _pack(self, out: Array | None) -> Packed:
        # One part has the whole batch, in order.
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

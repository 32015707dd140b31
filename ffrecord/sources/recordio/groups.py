"""Chunks of RecordIO files that were read together: expanded, their records found; the last ones are kept."""

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array
from ffrecord.sources.recordio import _recordio, snappy
from ffrecord.sources.recordio.layout import GZIP, LENGTH, NONE, Numbers
from ffrecord.system.forks import renew_in_children

KEPT = 64 << 20  # bytes of expanded chunks of one reader; the group read last is kept whatever its size
GROUPS = 8  # kept at most: each is looked through for each batch
PASSING = 2  # groups kept at most of those of which little is asked again: for who reads in sequence


class Group(NamedTuple):
    """Some chunks and all their records.

    Attributes:
        chunks: int64 [m], numbers of the chunks, ascending.
        first: int64 [m + 1], the row of each chunk's first record.
        data: uint8, what the chunks expand to.
        offsets, sizes: int64 [rows], where each record is in `data`, and its bytes.
        failures: chunk → why it cannot be had; those are not among `chunks`.
        passing: whether little of it will be asked again: its records can be read alone now, or all are read once.
    """

    chunks: Numbers
    first: Numbers
    data: Array
    offsets: Numbers
    sizes: Numbers
    failures: dict[int, Exception]
    passing: bool = False

    def slots(self, chunks: Numbers) -> Numbers:
        """The place of each of `chunks` in this group; -1 where it is not in it."""
        if not len(self.chunks):
            return np.full(len(chunks), -1)
        found = np.minimum(np.searchsorted(self.chunks, chunks), len(self.chunks) - 1)
        return np.where(self.chunks[found] == chunks, found, -1)


def expand(payload: Array, compressor: str, kind: str, most: int, check: bool) -> Array:
    """A payload as its writer had it before compression.

    Args:
        payload: uint8, as stored.
        compressor: one of `COMPRESSORS`.
        kind: how snappy is wrapped.
        most: bytes it may expand to.
        check: compare the checksums inside it, where it has some.

    Raises:
        FormatError: it is not what it says, or expands to more than `most`.
        ChecksumError: a checksum inside it does not match.
        ImportError: a library is missing.
    """
    if compressor == NONE:
        return payload
    return _gunzip(payload, most) if compressor == GZIP else snappy.expand(payload, kind, most, check)


def _gunzip(payload: Array, most: int) -> Array:
    machine = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        data = machine.decompress(payload.data, most + 1)
    except zlib.error as error:
        raise FormatError(f"{len(payload)} bytes of gzip cannot be expanded: {error}") from None
    if len(data) > most:
        raise FormatError(f"{len(payload)} bytes of gzip expand to more than {most}")
    if not machine.eof:
        raise FormatError(f"{len(payload)} bytes of gzip end before their end: {len(data)} bytes came out of them")
    if machine.unused_data:
        raise FormatError(f"{len(machine.unused_data)} bytes follow what gzip made, of {len(payload)}")
    return np.frombuffer(data, np.uint8)


def join(pieces: list[Array]) -> tuple[Array, Numbers, Numbers]:
    """Expanded payloads in one array: (data, starts, ends)."""
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    ends = np.cumsum(sizes)
    data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, out=pooled(int(ends[-1])))
    return data, ends - sizes, ends


def locate(
    chunks: Numbers, records: Numbers, data: Array, starts: Numbers, ends: Numbers, failures: dict[int, Exception]
) -> Group:
    """The group of expanded chunks.

    Args:
        chunks, records: int64 [m], numbers of the chunks, ascending, and how many records each is to hold.
        data, starts, ends: where each payload is, int64 [m] each.
        failures: of those that are not in `data`; extended by those that do not hold what they are to.
    """
    room = (ends - starts) // LENGTH.size
    missing = (
        np.array([chunk in failures for chunk in chunks.tolist()], bool) if failures else np.zeros(len(chunks), bool)
    )
    counts = np.where(missing | (records > room), 0, records)
    offsets, sizes, wrong = _recordio.walk(data, starts, ends, counts)
    bad = np.flatnonzero(((wrong >= 0) | (counts != records)) & ~missing)
    for i in bad.tolist():
        size, at = int(ends[i] - starts[i]), int(wrong[i] - starts[i]) if counts[i] else 0
        failures[int(chunks[i])] = FormatError(
            f"its header says {records[i]} records; the {size} bytes that it expands to do not hold just so many, "
            f"as is seen at byte {at}"
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
    """The groups read last, for all threads of a process; each chunk is read by one of them while others wait for it.

    Args:
        count: number of chunks.
        load: reads chunks, int64 [m] ascending: what a `Group` of them is.
        cut: chunks → pieces to be read together.

    Attributes:
        kept: bool [count], whether a chunk is in a group that is kept; a hint, as other threads change it.
    """

    def __init__(self, count: int, load: Callable[[Numbers], Group], cut: Callable[[Numbers], list[Numbers]]) -> None:
        self._count, self._load, self._cut = count, load, cut
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Nothing kept, and nothing being read: nobody else would read what threads of the parent were to."""
        self._changed = threading.Condition()
        self._groups: list[Group] = []
        self._being_read: set[int] = set()
        self.kept = np.zeros(self._count, bool)

    def find(self, chunks: Numbers) -> tuple[list[Group], Numbers]:
        """Kept groups with some of `chunks`, int64 [m] ascending, and those that are in none of them."""
        with self._changed:
            return self._found(chunks)

    def take(self, chunks: Numbers) -> Iterator[Group]:
        """Groups that have all of `chunks`, int64 [m] ascending, between them, one after the other."""
        while len(chunks):
            have, chunks = self.find(chunks)
            with self._changed:
                waited = np.array([chunk in self._being_read for chunk in chunks.tolist()], bool)
                mine, chunks = chunks[~waited], chunks[waited]
                self._being_read.update(mine.tolist())
            yield from self._read(mine)
            yield from have
            if len(chunks):
                others = chunks.tolist()
                with self._changed:
                    self._changed.wait_for(partial(self._being_read.isdisjoint, others))

    def _found(self, chunks: Numbers) -> tuple[list[Group], Numbers]:
        have: list[Group] = []
        if self.kept[chunks].any():
            for group in self._groups:
                if not len(chunks):
                    break
                there = group.slots(chunks) >= 0
                if there.any():
                    have.append(group)
                    chunks = chunks[~there]
            self._groups = have + [group for group in self._groups if all(group is not each for each in have)]
        return have, chunks

    def _read(self, chunks: Numbers) -> Iterator[Group]:
        left = set(chunks.tolist())
        try:
            for piece in self._cut(chunks) if len(chunks) else []:
                group = self._load(piece)
                self._done(piece.tolist(), group)
                left.difference_update(piece.tolist())
                yield group
        finally:
            if left:
                self._done(left)

    def _done(self, chunks: Iterable[int], group: Group | None = None) -> None:
        with self._changed:
            if group is not None:
                self._keep(group)
            self._being_read.difference_update(chunks)
            self._changed.notify_all()

    def _keep(self, group: Group) -> None:
        kept: list[Group] = []
        size = passing = 0
        for each in (group, *self._groups):
            its = len(each.data) + 16 * len(each.sizes)
            fits = len(kept) < GROUPS and size + its <= KEPT and not (each.passing and passing == PASSING)
            if fits or not kept:
                kept.append(each)
                size, passing = size + its, passing + each.passing
            else:
                self.kept[each.chunks] = False
        self._groups = kept
        self.kept[group.chunks] = True

    def clear(self) -> None:
        """Keep nothing any more."""
        with self._changed:
            self._groups = []
            self.kept[:] = False

"""The cache as the engine of remote batches sees it: records and copies that are in it, and records to put there."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ffrecord._crc import crc32
from ffrecord.engine import _engine
from ffrecord.engine._engine import ARRAYS, Failure, PendingBatch
from ffrecord.errors import ClosedError, FFRecordError
from ffrecord.reading.batch_forms import Array, Form, Out
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.stats import Counters
from ffrecord.reading.store import Indices
from ffrecord.remote.cache.cache import Cache
from ffrecord.remote.ranges import parts
from ffrecord.remote.shard import RemoteShard
from ffrecord.system import resources

FILES_MOST = 16_384  # each file maps its tables, and a process may have 65,530 mappings
SHARE = 20  # at most 1/SHARE of the time goes into opening copies that have become complete
TIMES = ("io_ns", "crc_ns", "waits")  # counters with the same meaning for remote files; others count system calls
Read = tuple[Any, list[Failure]]


class CompleteCopies:
    """An engine over the complete copies of some shards.

    Args:
        opened: the open copies, by the number of their shard, ascending.
        begins, counts: int64 [shards], index of the first record of each shard, and its number of records.
        io: way to read them.

    Attributes:
        engine: the engine.
    """

    def __init__(self, opened: dict[int, OpenedFile], begins: Indices, counts: Indices, io: str) -> None:
        files: list[Any] = list(opened.values())
        self.engine = _engine.Files(files, io, resources.descriptors())
        numbers = np.array(list(opened), np.int64)
        self._begins, self._ends = begins, begins + counts
        # Shards without records are always there.
        self._there = counts == 0
        self._there[numbers] = True
        # Add this to an index among all records to get the index among the records of the copies.
        self._shift = np.zeros(len(begins), np.int64)
        self._shift[numbers] = np.cumsum(counts[numbers]) - counts[numbers] - begins[numbers]
        self._all = bool(self._there.all())

    def are_complete(self, files: Indices) -> Any:
        """Return which records are in complete copies, by the numbers of their shards: bool [k]."""
        return self._there[files]

    def forget(self, number: int) -> None:
        """Note that the copy of a shard is gone or damaged."""
        self._there[number], self._all = False, False

    def own_indices(self, indices: Indices) -> Indices | None:
        """Convert indices among all records to indices among those of the copies.

        Return None if a record is not in a copy, or out of range.
        """
        # The usual case after the first epoch: nothing to convert.
        if self._all:
            return indices
        files = self.files_of(indices)
        # Numbers out of range are left to the caller, whose error is the right one.
        inside = (files >= 0) & (files < len(self._there))
        if not inside.all() or not self._there[files].all():
            return None
        return np.where(indices < 0, indices + self._ends[-1], indices) + self._shift[files]

    def files_of(self, indices: Indices) -> Indices:
        """Return the numbers of the shards of records. Negative indices count from the end."""
        positions = np.where(indices < 0, indices + self._ends[-1], indices)
        # -1 marks numbers before the first record.
        return np.where(positions < 0, -1, np.searchsorted(self._ends, positions, "right"))

    def own_indices_of(self, files: Indices, locals: Indices) -> Indices:
        """Convert record numbers `locals` in the shards `files` to indices among the records of the copies."""
        return locals + self._begins[files] + self._shift[files]


class Local:
    """The complete copies that exist now.

    Args:
        cache: cache of the copies.
        files: the shards, each with its copy.
        io: way to read them.
    """

    def __init__(self, cache: Cache, files: Sequence[RemoteShard], io: str) -> None:
        self._cache, self._files, self._io = cache, files, io
        self._counts = np.array([file.n for file in files], np.int64)
        self._begins = np.cumsum(self._counts) - self._counts
        self._opened: dict[int, OpenedFile] = {}
        self._complete: CompleteCopies | None = None
        self._seen = -1
        self._again = 0.0
        # Counts of replaced engines, minus the reads for batches that are counted elsewhere.
        self._before = Counters()

    def close(self) -> None:
        """Close all files, and open none any more."""
        # No engine is made any more: the clock never gets there.
        self._again = np.inf
        complete, self._complete = self._complete, None
        if complete is not None:
            self._before.add(**_counters_of(complete))
            complete.engine.close()

    # Counts

    def sums(self) -> Counter[str]:
        """Return the batches, records and bytes of `read` and `begin`, and the times of all reads."""
        complete, total = self._complete, self._before.sums()
        if complete is not None:
            total.update(_counters_of(complete))
        return total

    def engines(self) -> list[tuple[str, int, str, dict[str, Any]]]:
        """Return the current ways of reading, in the form of `_engine.Files.counters`, without counters."""
        complete = self._complete
        rows = [] if complete is None else complete.engine.counters()
        return [(name, device, engine, {}) for name, device, engine, _ in rows]

    # Batches

    def read(self, indices: Indices, form: Form, out: Out) -> Read | None:
        """Read a batch if all of it is in complete, undamaged copies; else return None.

        Args:
            indices: indices among all records; negative ones count from the end.
        """
        complete = self._current()
        own = None if complete is None else complete.own_indices(indices)
        if complete is None or own is None:
            return None
        try:
            # `go_on` as well: failures become downloads, not errors.
            found: Read = complete.engine.read(own, True, True, form, out)
        # A new engine has replaced this one.
        except ClosedError:
            return None
        return None if self._drop(complete, indices, found[1]) else found

    def begin(
        self, indices: Indices, form: Form, out: Out, threads: int, sequential: bool
    ) -> Callable[[], Read | None] | None:
        """Begin to read a batch if all of it is in complete copies; else return None.

        Returns:
            A function that waits for the batch. It returns None if a copy is damaged. It raises ClosedError if the
            copies were closed, or the process forked.
        """
        complete = self._current()
        own = None if complete is None else complete.own_indices(indices)
        if complete is None or own is None:
            return None
        try:
            batch: PendingBatch[Any] = complete.engine.read_ahead(own, True, True, form, out, threads, sequential)
        except ClosedError:
            return None

        def wait() -> Read | None:
            found = batch.result()
            # The caller reads the batch by other means.
            if found is None:
                raise ClosedError("a thread of the parent process began this batch")
            return None if self._drop(complete, indices, found[1]) else found

        return wait

    def fill(self, files: Indices, locals: Indices, records: list[Any]) -> None:
        """Put the records that are in complete copies into `records`.

        Args:
            files, locals: number of the shard of each record, and its number there.
        """
        complete = self._current()
        if complete is None:
            return
        places = np.flatnonzero(complete.are_complete(files))
        if not len(places):
            return
        try:
            own = complete.own_indices_of(files[places], locals[places])
            arrays, failures = complete.engine.read(own, True, True, ARRAYS)
        except ClosedError:
            return
        for place, array in zip(places.tolist(), arrays, strict=True):
            records[place] = array
        for failure in failures:
            records[int(places[failure.order])] = None
        # Counted by the caller, who delivers the whole batch.
        good = [array for array in (records[place] for place in places.tolist()) if array is not None]
        self._before.add(batches=-1, records=-len(good), bytes=-sum(map(len, good)))
        self._drop(complete, locals[places] + self._begins[files[places]], failures)

    def _drop(self, complete: CompleteCopies, indices: Indices, failures: list[Failure]) -> bool:
        """Drop the copies whose reads failed. Return whether there were any."""
        if not failures:
            return False
        files: list[int] = complete.files_of(indices[[failure.order for failure in failures]]).tolist()
        # "size" is a question of the request, not of the bytes.
        bad = {number for number, failure in zip(files, failures, strict=True) if failure.status != "size"}
        # A record with another size than requested was written so, or the tables have been damaged: check them.
        bad |= {number for number in set(files) - bad if self._is_damaged(number)}
        for number in bad:
            complete.forget(number)
            self._opened.pop(number, None)
            self._files[number].copy.drop()
        return bool(bad)

    def _is_damaged(self, number: int) -> bool:
        opened = self._opened.get(number)
        try:
            if opened is not None:
                opened.check_header()
        except (FFRecordError, OSError):
            return True
        return opened is None  # another thread dropped it

    # What is complete

    def _current(self) -> CompleteCopies | None:
        """Return the engine over all complete copies. It is renewed when they change, but not too often."""
        seen = self._cache.changes
        if seen != self._seen and time.monotonic() >= self._again:
            began = time.monotonic()
            self._seen = seen
            # No lock: if two threads come at once, the engine of one of them is closed at the end of its batch.
            self._complete = self._make_engine(self._cache.complete()[:FILES_MOST])
            # If opening takes long, wait longer until the next time.
            self._again = began + SHARE * (time.monotonic() - began)
        return self._complete

    def _make_engine(self, numbers: list[int]) -> CompleteCopies | None:
        before = self._complete
        if before is not None:
            # The counts of the old engine go on.
            self._before.add(**_counters_of(before))
        # Open ones stay open; only new ones are opened.
        found = {number: self._opened.get(number) or self._open(number) for number in numbers}
        self._opened = {number: opened for number, opened in found.items() if opened is not None}
        return CompleteCopies(self._opened, self._begins, self._counts, self._io) if self._opened else None

    def _open(self, number: int) -> OpenedFile | None:
        shard = self._files[number]
        path = shard.copy.path()
        try:
            opened = None if path is None else OpenedFile(path, check=True)
        except FFRecordError:
            shard.copy.drop()
            return None
        except OSError:
            return None  # no descriptors left, or it is gone: records are read one by one, which shows the reason
        # Not complete any more: evicted, or replaced.
        if opened is None:
            return None
        opened.close()  # the engine opens it again when it reads it
        # A file of another shard at this name is damage, too.
        if (opened.n, opened.size, opened.crc) != shard.facts:
            shard.copy.drop()
            return None
        return opened


def _counters_of(complete: CompleteCopies) -> Counter[str]:
    total = Counter(batches=complete.engine.batches)
    for _, _, _, counters in complete.engine.counters():
        total.update({key: counters[key] for key in ("records", "bytes", *TIMES)})
    return total


class Cached:
    """The copies of the shards of one reader. Complete ones are read like local files.

    Args:
        cache: cache of the copies; closed with this object.
        files: the shards; each gets its copy.
        io: way to read complete copies.
    """

    def __init__(self, cache: Cache, files: Sequence[RemoteShard], io: str) -> None:
        self._cache, self._files = cache, files
        for file in files:
            # Each shard knows its copy, so that tables are kept and found there too.
            file.copy = cache.file(file.path, file.facts)
        self._local = Local(cache, files, io)
        self._counted = Counters()

    def close(self) -> None:
        """Close all files."""
        self._local.close()
        self._cache.close()

    @property
    def batches(self) -> int:
        """Number of batches that `read` and `begin` read."""
        return self._local.sums()["batches"]

    def counters(self) -> dict[str, int]:
        """Return the counters of `read` and `begin`, with "probed", "missed" and "cached_bytes".

        "probed" counts the records that were looked for, "missed" those that were not here, "cached_bytes" the bytes of
        the others.
        """
        direct = dict(self._local.sums())
        # They are counted by another name.
        direct.pop("batches", None)
        records, size = direct.get("records", 0), direct.get("bytes", 0)
        looked = {
            "probed": self._counted["probed"] + records,
            "missed": self._counted["missed"],
            "cached_bytes": self._counted["bytes"] + size,
        }
        return direct | looked

    def engines(self) -> list[tuple[str, int, str, dict[str, Any]]]:
        """Return the ways in which complete copies are read, in the form of `_engine.Files.counters`."""
        return self._local.engines()

    def read(self, indices: Indices, form: Form, out: Out) -> Read | None:
        """Read a batch if all of it is in complete copies; else return None.

        The result is that of `_engine.Files.read`.

        Raises:
            IndexError: see `_engine.Files.read`.
        """
        self._cache.tick()
        return self._local.read(indices, form, out)

    def begin(
        self, indices: Indices, form: Form, out: Out, threads: int, sequential: bool
    ) -> Callable[[], Read | None] | None:
        """Begin to read a batch if all of it is in complete copies; else return None.

        Returns:
            A function that waits for the batch. It returns None if copies were damaged.
        """
        self._cache.tick()
        return self._local.begin(indices, form, out, threads, sequential)

    def fill(self, files: Indices, locals: Indices, records: list[Array | None]) -> None:
        """Put the records that are in the cache into `records`.

        Args:
            files, locals: number of the shard of each record, and its number there; records of a shard stand together.
        """
        self._local.fill(files, locals, records)
        # Complete copies have been read; these are in copies that are being filled.
        left = np.flatnonzero([record is None for record in records])
        for number, part in parts(files[left]):
            places = left[part]
            found = self._files[number].copy.read(locals[places])
            for place, record in zip(places.tolist(), found, strict=True):
                records[place] = record
        here = [len(record) for record in records if record is not None]
        # Counted here, because `fill` serves batches that are counted by the caller.
        self._counted.add(probed=len(records), missed=len(records) - len(here), bytes=sum(here))

    def absent(self, file: int, locals: Indices) -> Indices:
        """Return those records of a shard that are not known to be here."""
        return self._files[file].copy.absent(locals)  # type: ignore[no-any-return]

    def store(self, file: int, locals: Indices, records: Sequence[Array]) -> None:
        """Keep records of a shard, which match their CRC-32."""
        shard = self._files[file]
        # A copy begins with its tables: without them no record has a place.
        if shard.copy.needs_tables:
            shard.keep_tables(shard.tables)
        shard.copy.store(locals, records)

    def store_span(self, file: int, start: int, data: Array) -> None:
        """Keep the records that are whole in the bytes from offset `start` of a shard, and match their CRC-32."""
        shard = self._files[file]
        if shard.copy.needs_tables:
            shard.keep_tables(shard.tables)
        self.store_others(file, np.empty(0, np.int64), start, data)

    def store_others(self, file: int, locals: Indices, start: int, data: Array) -> None:
        """Keep records that lie between the requested ones and came with them, though no batch needs them now.

        Args:
            file: number of their shard.
            locals: numbers of the requested records, ascending.
            start: offset of `data` in the shard, bytes.
        """
        shard = self._files[file]
        # The tables were refused, so there is no copy.
        if shard.copy.needs_tables:
            return
        bounds, checksums = shard.tables
        # Records that lie whole in the data: from the first that begins here to the last that ends here.
        low, high = np.searchsorted(bounds, start), np.searchsorted(bounds, start + len(data), "right") - 1
        # Nothing but what was asked for.
        if high - low <= len(locals):
            return
        # Only what is missing: comparing takes time.
        others = shard.copy.missing_of(np.setdiff1d(np.arange(low, high), locals, assume_unique=True))
        spans = zip(
            others.tolist(), (bounds[others] - start).tolist(), (bounds[others + 1] - start).tolist(), strict=True
        )
        records = {i: data[begin:end] for i, begin, end in spans}
        # They have not been checked for any batch.
        good = [i for i, record in records.items() if crc32(record.data) == checksums[i]]
        shard.copy.store(np.array(good, np.int64), [records[i] for i in good])

"""Copies of remote shards on a local disk, shared by all processes of the machine.

A copy is filled record by record, as records are read. Nothing in it is used unless it matches its CRC-32. So damage by
a killed process, a power cut or another program costs at most another download. When all records are there, they are
compared again, flushed to the disk, and the copy is renamed. From then on it is read like any local file.
"""

import contextlib
import errno
import itertools
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ffrecord.errors import ClosedError, FFRecordError
from ffrecord.reading.batch_forms import Array, BatchOutcome
from ffrecord.reading.python_engine import PythonEngine
from ffrecord.reading.stats import Counters
from ffrecord.reading.store import Indices
from ffrecord.remote.cache.copy import Copy, begin, check_tables, seal
from ffrecord.remote.cache.eviction import Room, remove
from ffrecord.remote.cache.files import regular_size
from ffrecord.remote.cache.names import HAVE, WHOLE, complete_names, directory_of, entry_path, usable_directory
from ffrecord.remote.tables import ShardFacts
from ffrecord.system import resources
from ffrecord.system.forks import call_in_children
from ffrecord.system.sizes import parse_limit
from ffrecord.system.values import as_bytes

STAMP_SECONDS = 60.0  # most seconds that the time of last use may be too old
LOOK_SECONDS = 1.0  # between two checks whether another process completed a copy
SEAL_AGAIN_SECONDS = 5.0  # before another try to complete a copy
NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # errors of the disk, not of one file

logger = logging.getLogger("ffrecord")


class Cache:
    """The copies that one reader uses.

    Args:
        directory: directory of the cache; made if missing. Several processes may use it at the same time.
        limit: bytes that all copies in it may take of the disk, as an int or as text such as "100GB"; None: no limit.

    Attributes:
        directory: directory of the copies.
        changes: a new number after each copy that became complete or is gone.
        counted: numbers of records that were "read" and "stored".

    Raises:
        TypeError, ValueError: `limit` is invalid.
        OSError (also a RuntimeError): the directory cannot be made or used.
    """

    def __init__(self, directory: str | os.PathLike[str], limit: int | str | None = None) -> None:
        size = parse_limit("cache_limit", limit)
        self._given = directory_of(directory)
        self.directory = usable_directory(self._given)
        self.changes = 0
        self._change = itertools.count(1)
        self.counted = Counters()
        self._files: list[CachedFile] = []
        self._complete: set[int] = set()
        self._looked = False  # whether complete copies from before were looked for
        self._open: OrderedDict[CachedFile, None] = OrderedDict()
        # Not fewer than 16, or a batch over several shards would open its copies again and again.
        self._open_most = max(16, resources.descriptors())
        self._room = Room(self.directory, size, self._own_stems)
        self._closed = self._stopped = self._said = False
        self._tick_at = time.monotonic() + STAMP_SECONDS
        self._python_engine = PythonEngine(self._release)

    def file(self, name: str, facts: ShardFacts) -> "CachedFile":
        """Return the copy of a shard, whether or not it exists on the disk.

        Args:
            name: the shard's URL, without secrets.
            facts: facts of the shard. A shard whose tables have no CRC-32 (0) is not cached: nothing could be checked.
        """
        file = CachedFile(self, len(self._files), name, facts)
        self._files.append(file)
        return file

    def tick(self) -> None:
        """Refresh the times of last use, so that other processes keep copies that are in use.

        Call it with each batch.
        """
        now = time.monotonic()
        # Rarely, as each stamp is a system call for each copy.
        if now >= self._tick_at:
            self._tick_at = now + STAMP_SECONDS
            for file in self._files:
                file.tick(now)

    def complete(self) -> list[int]:
        """Return the numbers of the shards that are known to have a complete copy, ascending.

        `file` gives the numbers.
        """
        # Once: later copies are noted as they become complete.
        if not self._looked:
            self._looked = True
            there = complete_names(self.directory)
            for file in self._files if there else ():
                if file.stem in there:
                    file.path()
        return sorted(self._complete)

    def close(self) -> None:
        """Close all files. A copy that is being completed is left for the next reader. A second call does nothing."""
        # First, so that threads which complete a copy stop at the next look.
        self._closed = True
        self._python_engine.close()
        for file in self._files:
            file.close()
        self._open.clear()

    # Methods for CachedFile

    def note_change(self, number: int, *, whole: bool) -> None:
        """Note that a copy was found to be complete, or to be gone."""
        (self._complete.add if whole else self._complete.discard)(number)
        self.changes = next(self._change)  # a new number for each change, also if two threads come at once

    def note_open(self, file: "CachedFile") -> None:
        """Count a copy as open and just used; close others if there are too many."""
        self._open[file] = None
        with contextlib.suppress(KeyError):  # another thread closed it
            # Order of use; no lock, as a copy closed too early is only opened again.
            self._open.move_to_end(file)
        while len(self._open) > self._open_most:
            with contextlib.suppress(KeyError):
                self._open.popitem(last=False)[0].close()

    @property
    def full(self) -> bool:
        """True if nothing more can be written, for now or for good."""
        # A disk error stops it for good, a full cache for some seconds.
        return self._stopped or self._closed or self._room.full

    def take(self, size: int) -> int:
        """Reserve up to `size` bytes, and return how many may be written."""
        return 0 if self._stopped or self._closed else self._room.take(size)

    def make_directory(self) -> None:
        """Make the directory again, after somebody removed it to empty the cache.

        Raises:
            OSError: it cannot be made, or the copies would now go elsewhere.
        """
        # Somebody may have made the directory writable for all, and then another one is used.
        if usable_directory(self._given) != self.directory:
            raise FileNotFoundError(
                errno.ENOENT, "the cache directory was removed, and could not be created again", self.directory
            )

    def note_failure(self, error: OSError) -> None:
        """Note a failed write. The first one is logged. If the cause is the disk, nothing more is written."""
        # One message: a full disk fails each write.
        self._stopped = self._stopped or error.errno in NO_MORE
        if not self._said:
            self._said = True
            logger.warning("%s: shards are still read, but no longer kept in the cache: %s", self.directory, error)

    def ask_to_seal(self, file: "CachedFile") -> None:
        """Complete a copy in a thread."""
        # The reader may be closed meanwhile; the copy stays for the next one.
        with contextlib.suppress(ClosedError):
            self._python_engine.begin(file.seal, 1)

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return self._closed

    def _own_stems(self) -> set[str]:
        return {file.stem for file in self._files}

    def _release(self) -> None:
        """Do nothing: there is nothing to release."""


class CachedFile:
    """The copy of one shard.

    No method raises because of the content of the disk: the reader then does without the copy.
    """

    __slots__ = (
        "_cache", "_copy", "_facts", "_frozen", "_looked", "_name", "_number", "_off", "_seal_at", "_sealing",
        "_stamped", "_stem", "_whole",
    )  # fmt: skip

    def __init__(self, cache: Cache, number: int, name: str, facts: ShardFacts) -> None:
        self._cache, self._number = cache, number
        self._name, self._facts = name, facts
        self._stem = ""
        self._copy: Copy | None = None
        self._whole = False  # whether there is a complete copy
        # Old files have no CRC-32 of their tables, so nothing in a copy could be believed.
        self._off = facts.crc == 0  # whether no copy is used or made
        self._frozen = self._off  # whether nothing may be written
        self._looked = self._stamped = self._seal_at = -np.inf
        self._sealing = 0  # number of the process that was asked to complete it

    @property
    def stem(self) -> str:
        """The common start of its paths."""
        if not self._stem:
            # Computed at the first use: a reader may have a million shards.
            self._stem = entry_path(self._cache.directory, self._name, self._facts)
        return self._stem

    # Tables

    @property
    def needs_tables(self) -> bool:
        """True if `store_tables` must come before `store` can do anything. False if the cache is full."""
        # Cheapest first: a full cache opens no copies.
        return not self._frozen and not self._cache.full and self._open_copy() is None

    def tables(self) -> bytes | None:
        """Return header, tables, and the gap before the first sample: bytes [0, data_start), checked.

        Return None if they are not here.
        """
        copy = self._open_copy()
        with contextlib.suppress(OSError):
            return None if copy is None else copy.tables()
        return None

    def store_tables(self, data: Any) -> None:
        """Keep bytes [0, data_start) of the shard.

        Raises:
            ValueError: `data` is something else.
        """
        if not self.needs_tables:
            return
        # Checked here, since nothing later could tell that the tables are wrong.
        check_tables(self._facts, bytes(data))
        try:
            try:
                self._begin(bytes(data))
            # Somebody has emptied the cache by removing its directory.
            except FileNotFoundError:
                self._cache.make_directory()
                self._begin(bytes(data))
        except OSError as error:
            self._note_failure(error)

    def _begin(self, tables: bytes) -> None:
        # All or nothing: tables in part would be damaged ones.
        if self._cache.take(len(tables)) == len(tables):
            begin(self.stem, self._facts, tables)
            if not self._facts.n:  # without records it is complete at once
                self._complete()

    # Records

    def path(self) -> str | None:
        """Return the path of the complete copy, which was checked and is on the disk; None if there is none."""
        now = time.monotonic()
        if not self._whole and not self._off and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            # The name says that all was compared and flushed; the size excludes a file cut since.
            if regular_size(self.stem + WHOLE) == self._facts.size:
                self._set_whole()
        return self.stem + WHOLE if self._whole else None

    def read(self, local: Indices) -> list[Array | None]:
        """Read records, each into memory of its own; None for those that are missing, torn or damaged.

        Args:
            local: int64 [k], indices in the shard; in any order, repeats allowed.
        """
        copy = self._open_copy()
        if copy is None:
            return [None] * len(local)
        try:
            found = copy.read(local)
        # The tables are damaged, so no record can be found.
        except (FFRecordError, OSError):
            self._discard_damaged()
            return [None] * len(local)
        self._cache.counted.add(read=sum(record is not None for record in found))
        self._stamp(time.monotonic())
        # Others may have stored the last records.
        if not copy.whole and not copy.missing:
            self._complete()
        return found

    def missing_of(self, local: Indices) -> Indices:
        """Return the indices of `local` that the copy lacked at the last look, and that could be stored."""
        # A full cache stores nothing, so nothing is missing.
        copy = None if self._frozen or self._cache.full else self._open_copy()
        return local[:0] if copy is None or copy.whole else local[~copy.known[local]]

    def absent(self, local: Indices) -> Indices:
        """Return the indices of `local` that the copy lacked at the last look; all of them without a copy."""
        copy = self._open_copy()
        if copy is None:
            return local
        return local[:0] if copy.whole else local[~copy.known[local]]

    def store(self, local: Indices, records: Sequence[Any]) -> None:
        """Keep records that match their checksums. Records that do not fit into the limit are left out.

        Args:
            local: int64 [k], indices in the shard; in any order, repeats allowed.
            records: their bytes, as buffers.
        """
        copy = None if self._frozen or not len(local) else self._open_copy()
        if copy is None or copy.whole:
            return
        try:
            self._store(copy, np.asarray(local, np.int64), records)
        # Evicted between opening and writing.
        except FileNotFoundError:
            self._copy = None  # removed by another process; the next read begins a new one
            return
        except FFRecordError:
            self._discard_damaged()
            return
        # The records were read already; only the copy suffers.
        except OSError as error:
            self._note_failure(error)
        if not copy.missing:
            self._complete()

    def _store(self, copy: Copy, local: Indices, records: Sequence[Any]) -> None:
        # Sorted and once each, so that neighbours become one write.
        local, places = np.unique(local, return_index=True)
        sizes = copy.sizes(local)
        views = [as_bytes(records[place]) for place in places.tolist()]
        if [view.nbytes for view in views] != sizes.tolist():
            copy.check()
            return  # a record of another size would overwrite its neighbours
        # As many as fit, from the first on.
        count = int(np.searchsorted(np.cumsum(sizes), self._cache.take(int(sizes.sum())), "right"))
        if count:
            copy.store(local[:count], views[:count])
            self._cache.counted.add(stored=count)

    def drop(self) -> None:
        """Forget a complete copy that is gone or damaged, and remove the rest of it."""
        if self._whole:
            self._whole = False
            self._cache.note_change(self._number, whole=False)
            self._discard_damaged()

    def _discard_damaged(self) -> None:
        """Remove a damaged copy."""
        self._copy = None
        try:
            remove(self.stem)
        except BlockingIOError:
            return  # another process is completing it, and will notice the damage
        except OSError:
            self._off = self._frozen = True  # it belongs to another user, and is of no use

    # Complete copies

    @property
    def sealing(self) -> bool:
        """True if a thread of this process was asked to complete the copy, and has not tried yet."""
        return self._sealing == os.getpid()

    def seal(self) -> BatchOutcome:
        """Complete the copy if possible."""
        try:
            self._seal_at = time.monotonic() + SEAL_AGAIN_SECONDS
            # It ends early if the reader is closed.
            if seal(self.stem, self._facts, self._should_stop):
                self._seal_at = 0.0
                self._set_whole()
            elif self._copy is not None:
                # Damaged records are marked as missing now; look at what is left.
                self._copy.look()
        except FileNotFoundError:
            self._copy = None  # removed by another process
        except OSError as error:
            self._note_failure(error)
        finally:
            # Also after an error, or nobody would ever try again.
            self._sealing = 0
        return BatchOutcome([], [])

    def _complete(self) -> None:
        """Complete the copy in a thread, unless it is complete: all records seem to be here."""
        # Rarely: a copy whose records do not match would be tried with each batch.
        if self._frozen or self.sealing or time.monotonic() < self._seal_at or self.path() is not None:
            return
        self._sealing = os.getpid()
        self._cache.ask_to_seal(self)

    def _should_stop(self) -> bool:
        # A closing reader must not wait for gigabytes to be compared.
        return self._cache.closed

    def _set_whole(self) -> None:
        self._whole, self._copy = True, None
        self._cache.note_change(self._number, whole=True)

    def tick(self, now: float) -> None:
        """Look for a copy that another process completed, and stamp a complete copy as in use."""
        if self._copy is not None:
            self.path()
        if self._whole:
            self._stamp(now)

    def _stamp(self, now: float) -> None:
        """Set the time of last use, once in a while. Eviction removes the oldest first."""
        if now - self._stamped < STAMP_SECONDS:
            return
        self._stamped = now
        with contextlib.suppress(OSError):  # it belongs to another user, who stamps it, or the disk is read-only
            # The times of `.have` count: it is written as records come.
            try:
                os.utime(self.stem + HAVE)
            except FileNotFoundError:
                # Somebody may have removed only the list of records, which does no harm to a complete copy.
                self._check_there()

    def _check_there(self) -> None:
        """Begin a new copy if another process removed this one, and not only its list of records."""
        if not self._whole or regular_size(self.stem + WHOLE) != self._facts.size:
            self._whole, self._copy = False, None
            self._cache.note_change(self._number, whole=False)

    # Opening and closing

    def close(self) -> None:
        """Release the open copy."""
        self._copy = None

    def _open_copy(self) -> Copy | None:
        """Return the open copy; None if there is none with tables."""
        if self._off or self._cache.closed:
            return None
        copy = self._copy
        if copy is None:
            try:
                copy = self._share(self._open())
            # Damaged or gone: begin a new one.
            except (FFRecordError, FileNotFoundError):
                self.drop()
            except OSError as error:
                # No descriptors left, or no permission: not a reason to remove it.
                logger.debug("%s: %s", self.stem, error)
        if copy is not None:
            self._cache.note_open(self)
        return copy

    def _share(self, copy: Copy) -> Copy:
        """Return the copy that all threads use, so that each sees the records that others store."""
        # Another thread may have opened it meanwhile; both must see the same marks.
        with _sharing:
            if self._copy is None:
                self._copy = copy
            return self._copy

    def _open(self) -> Copy:
        try:
            return Copy(self.stem, self._facts, whole=self.path() is not None)
        except FileNotFoundError:
            self._looked = -np.inf  # another process may have completed and renamed it: look now
            if self._whole or self.path() is None:
                raise
        return Copy(self.stem, self._facts, whole=True)

    def _note_failure(self, error: OSError) -> None:
        # An error of this file: leave it alone, and go on with the others.
        self._frozen = self._frozen or error.errno not in NO_MORE
        self._cache.note_failure(error)


_sharing = threading.Lock()


def _renew() -> None:
    """Replace the lock: in a forked child, nobody would release the old one."""
    global _sharing
    _sharing = threading.Lock()


call_in_children(_renew)

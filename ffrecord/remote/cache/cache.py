"""Copies of remote shards on a disk of this machine, shared by all its processes.

A copy is filled record by record, as they are fetched. Nothing in it is believed unless it matches its CRC-32, so
whatever a killed process, a power cut or another program left in it costs at most that it is fetched again. When all
records are there it is compared once more, put on the disk and renamed; from then on it is a file like any other.
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
from ffrecord.reading.store import Indices
from ffrecord.remote.cache.complete import seal
from ffrecord.remote.cache.copy import Copy, begin, check_tables
from ffrecord.remote.cache.eviction import Room, remove
from ffrecord.remote.cache.files import regular_size
from ffrecord.remote.cache.names import HAVE, WHOLE, complete_names, directory_of, entry_path, usable_directory
from ffrecord.remote.counters import Counters
from ffrecord.remote.tables import ShardFacts
from ffrecord.system import resources
from ffrecord.system.buffers import as_bytes
from ffrecord.system.forks import call_in_children
from ffrecord.system.sizes import parse_limit

STAMP_SECONDS = 60.0  # that the time of last use may be behind
LOOK_SECONDS = 1.0  # between two looks at whether others made a copy complete
SEAL_AGAIN_SECONDS = 5.0  # after it could not be done
NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # of a disk, not of one file

logger = logging.getLogger("ffrecord")


class Cache:
    """The copies that one reader uses.

    Args:
        directory: where they are; made if it is not there. Other processes may use it at the same time.
        limit: bytes that all copies in it may take of the disk, as an int or as text such as "100GB"; None: no limit.

    Attributes:
        directory: that they are in.
        changes: another number whenever a copy was found to be complete, or to be gone.
        counted: records that were "read" and "stored" so far.

    Raises:
        TypeError, ValueError: `limit`.
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
        self._looked = False  # for complete copies that were there before
        self._open: OrderedDict[CachedFile, None] = OrderedDict()
        self._open_most = max(16, resources.descriptors())
        self._room = Room(self.directory, size, self._own)
        self._closed = self._stopped = self._said = False
        self._tick_at = time.monotonic() + STAMP_SECONDS
        self._python_engine = PythonEngine(self._released)

    def file(self, name: str, facts: ShardFacts) -> "CachedFile":
        """The copy of a shard, whether or not there is one yet.

        Args:
            name: the shard's URL, without anything secret.
            facts: of the shard. Without a CRC-32 of its tables (0) nothing could be believed: it is not cached.
        """
        file = CachedFile(self, len(self._files), name, facts)
        self._files.append(file)
        return file

    def tick(self) -> None:
        """To be called now and then, best with every batch: lets complete copies that are in use stay."""
        now = time.monotonic()
        if now >= self._tick_at:
            self._tick_at = now + STAMP_SECONDS
            for file in self._files:
                file.tick(now)

    def complete(self) -> list[int]:
        """Which shards have a complete copy, as far as is known, by the order of `file`; ascending."""
        if not self._looked:
            self._looked = True
            there = complete_names(self.directory)
            for file in self._files if there else ():
                if file.stem in there:
                    file.path()
        return sorted(self._complete)

    def close(self) -> None:
        """Close all files. What is being made complete is left as it is, for the next reader. May be repeated."""
        self._closed = True
        self._python_engine.close()
        for file in self._files:
            file.close()
        self._open.clear()

    # For CachedFile

    def note(self, number: int, *, whole: bool) -> None:
        """A copy was found to be complete, or not to be there any more."""
        (self._complete.add if whole else self._complete.discard)(number)
        self.changes = next(self._change)  # never the same for two of them, whichever thread comes last

    def opened(self, file: "CachedFile") -> None:
        """Count a copy as open and just used; close others, if they are too many."""
        self._open[file] = None
        with contextlib.suppress(KeyError):  # another thread closed it
            self._open.move_to_end(file)
        while len(self._open) > self._open_most:
            with contextlib.suppress(KeyError):
                self._open.popitem(last=False)[0].close()

    @property
    def full(self) -> bool:
        """Whether nothing more can be written, for now or for good."""
        return self._stopped or self._closed or self._room.full

    def take(self, size: int) -> int:
        """How many of `size` bytes may be written."""
        return 0 if self._stopped or self._closed else self._room.take(size)

    def make_again(self) -> None:
        """Make the directory again, which somebody removed to empty the cache.

        Raises:
            OSError: it cannot be made, or copies would go elsewhere now.
        """
        if usable_directory(self._given) != self.directory:
            raise FileNotFoundError(errno.ENOENT, "removed, and not made again", self.directory)

    def failed(self, error: OSError) -> None:
        """Note that something could not be written: said once, and if the disk is why, nothing more is written."""
        self._stopped = self._stopped or error.errno in NO_MORE
        if not self._said:
            self._said = True
            logger.warning("%s: shards are read on, but not kept in the cache: %s", self.directory, error)

    def ask_to_seal(self, file: "CachedFile") -> None:
        """Have a thread make a copy complete."""
        with contextlib.suppress(ClosedError):
            self._python_engine.begin(file.seal, 1)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _own(self) -> set[str]:
        return {file.stem for file in self._files}

    def _released(self) -> None:
        """Nothing is left to release."""


class CachedFile:
    """The copy of one shard. What it cannot do, it leaves: nothing here raises because of what is on the disk."""

    __slots__ = (
        "_cache", "_copy", "_facts", "_frozen", "_looked", "_name", "_number", "_off", "_seal_at", "_sealing",
        "_stamped", "_stem", "_whole",
    )  # fmt: skip

    def __init__(self, cache: Cache, number: int, name: str, facts: ShardFacts) -> None:
        self._cache, self._number = cache, number
        self._name, self._facts = name, facts
        self._stem = ""
        self._copy: Copy | None = None
        self._whole = False  # there is a complete copy
        self._off = facts.crc == 0  # there is none, and none is to be made
        self._frozen = self._off  # nothing is to be written
        self._looked = self._stamped = self._seal_at = -np.inf
        self._sealing = 0  # process that was asked to

    @property
    def stem(self) -> str:
        """What its paths begin with."""
        if not self._stem:
            self._stem = entry_path(self._cache.directory, self._name, self._facts)
        return self._stem

    # Tables

    @property
    def needs_tables(self) -> bool:
        """Whether `store_tables` must come before `store` can do anything; not where there is no room for either."""
        return not self._frozen and not self._cache.full and self._opened() is None

    def tables(self) -> bytes | None:
        """Header, tables and what lies before the first sample: bytes [0, data_start), checked; None if not here."""
        copy = self._opened()
        with contextlib.suppress(OSError):
            return None if copy is None else copy.tables()
        return None

    def store_tables(self, data: Any) -> None:
        """Keep them, all of [0, data_start).

        Raises:
            ValueError: they are not that.
        """
        if not self.needs_tables:
            return
        check_tables(self._facts, bytes(data))
        try:
            try:
                self._begin(bytes(data))
            except FileNotFoundError:
                self._cache.make_again()
                self._begin(bytes(data))
        except OSError as error:
            self._failed(error)

    def _begin(self, tables: bytes) -> None:
        if self._cache.take(len(tables)) == len(tables):
            begin(self.stem, self._facts, tables)
            if not self._facts.n:
                self._complete()

    # Records

    def path(self) -> str | None:
        """The file, once all of it is here, compared with its checksums, and on the disk."""
        now = time.monotonic()
        if not self._whole and not self._off and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if regular_size(self.stem + WHOLE) == self._facts.size:
                self._found_whole()
        return self.stem + WHOLE if self._whole else None

    def read(self, local: Indices) -> list[Array | None]:
        """Records of the shard, each in memory of its own; None for those that are not here, torn or damaged.

        Args:
            local: int64 [k], indices in the shard; in any order, repeats allowed.
        """
        copy = self._opened()
        if copy is None:
            return [None] * len(local)
        try:
            found = copy.read(local)
        except (FFRecordError, OSError):
            self._begin_anew()
            return [None] * len(local)
        self._cache.counted.add(read=sum(record is not None for record in found))
        self._stamp(time.monotonic())
        if not copy.whole and not copy.missing:
            self._complete()
        return found

    def lacking(self, local: Indices) -> Indices:
        """Those of `local` that it had not when that was last looked at, and that could be stored."""
        copy = None if self._frozen or self._cache.full else self._opened()
        return local[:0] if copy is None or copy.whole else local[~copy.known[local]]

    def store(self, local: Indices, records: Sequence[Any]) -> None:
        """Keep records that were fetched, and compared with their checksums. Those that have no room are left out.

        Args:
            local: int64 [k], indices in the shard; in any order, repeats allowed.
            records: their bytes, as buffers.
        """
        copy = None if self._frozen or not len(local) else self._opened()
        if copy is None or copy.whole:
            return
        try:
            self._store(copy, np.asarray(local, np.int64), records)
        except FileNotFoundError:
            self._copy = None  # removed by others; whoever fetches next begins a new one
            return
        except FFRecordError:
            self._begin_anew()
            return
        except OSError as error:
            self._failed(error)
        if not copy.missing:
            self._complete()

    def _store(self, copy: Copy, local: Indices, records: Sequence[Any]) -> None:
        local, places = np.unique(local, return_index=True)
        sizes = copy.sizes(local)
        views = [as_bytes(records[place]) for place in places.tolist()]
        if [view.nbytes for view in views] != sizes.tolist():
            copy.check()
            return  # one of another size would be written over its neighbours
        count = int(np.searchsorted(np.cumsum(sizes), self._cache.take(int(sizes.sum())), "right"))
        if count:
            copy.store(local[:count], views[:count])
            self._cache.counted.add(stored=count)

    def drop(self) -> None:
        """Forget a complete copy that turned out to be gone or damaged; what is left of it is removed."""
        if self._whole:
            self._whole = False
            self._cache.note(self._number, whole=False)
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Remove what is damaged."""
        self._copy = None
        try:
            remove(self.stem)
        except BlockingIOError:
            return  # who is making it complete will find out
        except OSError:
            self._off = self._frozen = True  # somebody else's, and of no use

    # Complete copies

    @property
    def sealing(self) -> bool:
        """Whether a thread of this process was asked to make the copy complete, and has not tried yet."""
        return self._sealing == os.getpid()

    def seal(self) -> BatchOutcome:
        """Make the copy complete, if it can be."""
        try:
            self._seal_at = time.monotonic() + SEAL_AGAIN_SECONDS
            if seal(self.stem, self._facts, self._gives_up):
                self._seal_at = 0.0
                self._found_whole()
            elif self._copy is not None:
                self._copy.look()
        except FileNotFoundError:
            self._copy = None  # removed by others
        except OSError as error:
            self._failed(error)
        finally:
            self._sealing = 0
        return BatchOutcome([], [])

    def _complete(self) -> None:
        """All records seem to be here: have a thread make the copy complete, unless it is."""
        if self._frozen or self.sealing or time.monotonic() < self._seal_at or self.path() is not None:
            return
        self._sealing = os.getpid()
        self._cache.ask_to_seal(self)

    def _gives_up(self) -> bool:
        return self._cache.closed

    def _found_whole(self) -> None:
        self._whole, self._copy = True, None
        self._cache.note(self._number, whole=True)

    def tick(self, now: float) -> None:
        """See what others did, and say that a complete copy is in use."""
        if self._copy is not None:
            self.path()
        if self._whole:
            self._stamp(now)

    def _stamp(self, now: float) -> None:
        """Set the time of last use, once in a while; whoever makes room goes by it."""
        if now - self._stamped < STAMP_SECONDS:
            return
        self._stamped = now
        with contextlib.suppress(OSError):  # somebody else's, who sees to it, or on a disk that takes nothing
            try:
                os.utime(self.stem + HAVE)
            except FileNotFoundError:
                self._check_there()

    def _check_there(self) -> None:
        """Begin anew if others removed the copy, and not only what says which records it has."""
        if not self._whole or regular_size(self.stem + WHOLE) != self._facts.size:
            self._whole, self._copy = False, None
            self._cache.note(self._number, whole=False)

    # Life

    def close(self) -> None:
        """Let go of what is open."""
        self._copy = None

    def _opened(self) -> Copy | None:
        """The copy, opened; None if there is none with tables."""
        if self._off or self._cache.closed:
            return None
        copy = self._copy
        if copy is None:
            try:
                copy = self._shared(self._open())
            except (FFRecordError, FileNotFoundError):
                self.drop()
            except OSError as error:
                logger.debug("%s: %s", self.stem, error)  # no descriptors left, or no permission: not ours to remove
        if copy is not None:
            self._cache.opened(self)
        return copy

    def _shared(self, copy: Copy) -> Copy:
        """The one that all threads use: what one of them stores is known to all."""
        with _sharing:
            if self._copy is None:
                self._copy = copy
            return self._copy

    def _open(self) -> Copy:
        try:
            return Copy(self.stem, self._facts, whole=self.path() is not None)
        except FileNotFoundError:
            self._looked = -np.inf  # another process may have renamed it
            if self._whole or self.path() is None:
                raise
        return Copy(self.stem, self._facts, whole=True)

    def _failed(self, error: OSError) -> None:
        self._frozen = self._frozen or error.errno not in NO_MORE
        self._cache.failed(error)


_sharing = threading.Lock()


def _renew() -> None:
    """Have a lock that nobody holds: in a forked child."""
    global _sharing
    _sharing = threading.Lock()


call_in_children(_renew)

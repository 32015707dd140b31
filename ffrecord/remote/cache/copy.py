"""One open copy of a shard: the local engine reads it and compares every record with its CRC-32; complete copies."""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ffrecord._crc import crc32
from ffrecord.engine import _engine
from ffrecord.engine._engine import ARRAYS
from ffrecord.errors import ArgumentError, FFRecordError, FormatError
from ffrecord.format import ffr_layout
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.store import Indices
from ffrecord.remote.cache.files import (
    AWAY,
    HERE,
    Marks,
    mark,
    open_regular,
    read_marks,
    regular_size,
    runs,
    write_pieces,
)
from ffrecord.remote.cache.names import HAVE, PART, WHOLE
from ffrecord.remote.tables import ShardFacts
from ffrecord.system.atomic_file import PartFile, read_all, write_all


class Copy:
    """A copy whose tables match their CRC-32.

    Args:
        stem: common start of its paths.
        facts: facts of the shard.
        whole: whether it is complete.

    Attributes:
        whole: the argument.
        known: bool [n], the records that it had at the last look.

    Raises:
        OSError, FFRecordError: there is no copy, or its tables are missing or damaged.
    """

    def __init__(self, stem: str, facts: ShardFacts, *, whole: bool) -> None:
        self._stem, self.whole = stem, whole
        path = stem + (WHOLE if whole else PART)
        # Before it is opened: a file of another size is a copy of something else, or was cut.
        if regular_size(path) != facts.size:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        # The tables are compared with their CRC-32, so offsets may be believed.
        self._opened = OpenedFile(path, check=True)
        try:
            if ShardFacts(self._opened.n, self._opened.size, self._opened.crc) != facts:
                raise FormatError(f"{path} is not a copy of that shard")
            files: list[Any] = [self._opened]
            self._engine = _engine.Files(files)
        except BaseException:
            self._opened.close()
            raise
        # All of them, if the name says that it is complete.
        self.known = np.ones(facts.n, np.bool_)
        if not whole:
            self.look()

    def look(self) -> None:
        """Update `known` from the disk."""
        self.known = known_records(self._opened, self._stem)

    @property
    def missing(self) -> int:
        """Number of records that it lacked at the last look."""
        known = self.known  # a running count would be wrong: two threads may store the same record
        return len(known) - int(np.count_nonzero(known))

    def tables(self) -> bytes:
        """Return bytes [0, data_start) of the shard.

        Raises:
            OSError: the gap between tables and samples cannot be read.
        """
        tables = bytes(memoryview(self._opened.mapping))
        gap = self._opened.data_start - len(tables)
        if gap:
            try:
                tables += self._bytes_at(self._opened.path, len(tables), gap)
            except FileNotFoundError:  # another process completed it just now
                tables += self._bytes_at(self._stem + WHOLE, len(tables), gap)
        # Pages of a mapping that were lost read as zeros.
        self._opened.check_all_there()
        return tables

    @staticmethod
    def _bytes_at(path: str, offset: int, size: int) -> bytes:
        with open_regular(path, os.O_RDONLY) as fd:
            return read_all(fd, size, offset)

    def sizes(self, local: Indices) -> Indices:
        """Return the sizes in bytes of the records at `local`."""
        return self._engine.sizes(local)

    def read(self, local: Indices) -> list[Array | None]:
        """Read the records at `local`; None for those that are missing or damaged.

        Raises:
            ChecksumError, OSError: its tables were damaged since it was opened.
        """
        known = self.known
        # Only if something seems to be missing: it reads a byte for each record.
        if not self.whole and not known[local].all():
            self.look()  # other processes may have stored some
            known = self.known
        places = np.flatnonzero(known[local])
        found: list[Array | None] = [None] * len(local)
        if len(places):
            # With checks: a mark only says that somebody has written the record.
            arrays, failures = self._engine.read(local[places], True, True, ARRAYS)
            for place, array in zip(places.tolist(), arrays, strict=True):
                found[place] = array
            for failure in failures:
                place = int(places[failure.order])
                # Forgotten here only; `seal` marks it on the disk.
                found[place], known[local[place]] = None, False
            # Damaged records may mean damaged tables.
            if failures:
                self.check()
        return found

    def check(self) -> None:
        """Check that the tables have not changed.

        Raises:
            ChecksumError, OSError: they have.
        """
        self._opened.check_header()

    def store(self, local: Indices, records: list[memoryview]) -> None:
        """Write records of the right sizes, in ascending order, none twice.

        Raises:
            FileNotFoundError: the copy does not exist any more.
            OSError: writing failed. Records of this call are not marked as here.
        """
        offsets = self._opened.offsets
        # Opened by name for each batch: an evicted copy must not grow on.
        with open_regular(self._stem + PART, os.O_RDWR) as fd:
            status = os.fstat(fd)
            # Another process may have removed it and begun anew.
            if (status.st_dev, status.st_ino) != (self._opened.device, self._opened.inode):
                raise FileNotFoundError(errno.ENOENT, "it is another file now", self._opened.path)
            # Somebody has cut it; the lost records fail their check later.
            if status.st_size != self._opened.size:
                os.ftruncate(fd, self._opened.size)
            # One write for each run of neighbours.
            for start, stop in runs(local):
                write_pieces(fd, records[start:stop], int(offsets[local[start]]))
        # Mark the records only after they are written: other processes read a record as soon as it is marked.
        mark(self._stem + HAVE, local, HERE)
        self.known[local] = True


def known_records(file: OpenedFile, stem: str) -> Marks:
    """Return which records a copy has: those marked as here, and those without bytes, which are never read."""
    # Marks may be wrong in either direction: a record is compared, or fetched once more.
    found = read_marks(stem + HAVE, file.n)
    found[np.diff(file.offsets, append=file.size) == 0] = True
    return found


def begin(stem: str, facts: ShardFacts, tables: bytes) -> None:
    """Make the file of a copy if it does not exist, and write its tables.

    Args:
        tables: bytes [0, data_start) of the shard, checked.

    Raises:
        OSError: the file cannot be made or written.
    """
    path = stem + PART
    with contextlib.ExitStack() as stack:
        try:
            # O_EXCL: of two processes one makes the file, and both write the same tables.
            fd = stack.enter_context(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            if regular_size(stem + WHOLE) == facts.size:  # another process completed and renamed it just now
                os.unlink(path)
                return
        except FileExistsError:
            fd = stack.enter_context(open_regular(path, os.O_RDWR))
        if os.fstat(fd).st_size != facts.size:  # sparse: it takes room as records come
            os.ftruncate(fd, facts.size)
        write_all(fd, memoryview(tables), 0)


def check_tables(facts: ShardFacts, tables: bytes) -> None:
    """Raise ArgumentError unless `tables` is bytes [0, data_start) of that shard, as far as the CRC-32 tells."""
    end = ffr_layout.tables_end(facts.n)
    # Without samples, the file is nothing but this.
    start = facts.size
    if facts.n and len(tables) >= end:
        start = int.from_bytes(
            tables[ffr_layout.offsets_start(facts.n) :][: ffr_layout.OFFSET.itemsize], "little", signed=True
        )
    if len(tables) < end or len(tables) != start:
        raise ArgumentError(f"the tables have {len(tables)} bytes, expected {start} for a shard of {facts.n} samples")
    # Number and CRC-32 first, which are cheap.
    crc, n = ffr_layout.PREFIX.unpack_from(tables)
    if (crc, n) != (facts.crc, facts.n) or crc32(memoryview(tables)[ffr_layout.CHECKED_FROM : end]) != crc:
        raise ArgumentError(f"the tables of {n} samples, CRC-32 {crc:#010x}, are not those of this shard")


STEP_BYTES = 64 << 20  # bytes of records that are checked between two calls of `stop`


def seal(stem: str, facts: ShardFacts, stop: Callable[[], bool]) -> bool:
    """Complete a copy: check all records, flush the file to the disk, then give it the name of a complete copy.

    Args:
        stem: common start of its paths.
        facts: facts of the shard.
        stop: called now and then; true to leave the copy as it is.

    Returns:
        True if there is a complete copy now. If not, records are missing or damaged, and marked as missing, or another
        process is completing it.

    Raises:
        OSError: the disk is full or broken, or the directory may not be written to.
    """
    path = stem + PART
    # Another process may have renamed it already.
    if regular_size(path) < 0:
        return regular_size(stem + WHOLE) == facts.size
    try:
        part = PartFile(path, left=path)  # locked from here on
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOENT):  # another process is completing it, or has done so
            return regular_size(stem + WHOLE) == facts.size
        raise
    try:
        os.ftruncate(part.fd, facts.size)  # in case it was cut: the records that are lost then fail their check
        try:
            # Also if the reader was closed meanwhile: the copy stays for the next one.
            if not _is_right(stem, path, facts, stop) or stop():
                return False
        except FFRecordError:  # its tables are damaged, so the copy is of no use
            part.remove()
            return False
        # A rename replaces a symbolic link of that name: it never writes to the file that the link points to.
        part.target = stem + WHOLE
        # fsync, rename, fsync of the directory: from now on the name means complete.
        part.publish()
        return True
    finally:
        # Unlock, and leave the file for later.
        part.leave()


def _is_right(stem: str, path: str, facts: ShardFacts, stop: Callable[[], bool]) -> bool:
    """Check all records, and mark damaged ones as missing.

    Raises:
        FFRecordError: the tables are missing or damaged.
    """
    opened = OpenedFile(path, check=True)
    with RecordReader([opened]) as reader:
        if (opened.n, opened.size, opened.crc) != facts:
            raise FormatError(f"{path} is not a copy of that shard")
        if not known_records(opened, stem).all():
            return False
        # About STEP_BYTES by average sizes, at least one record.
        step = max(1, STEP_BYTES * opened.n // max(1, opened.size))
        bad: list[int] = []
        for start in range(0, opened.n, step):
            if stop():
                return False
            bad += [index for index, _ in reader.bad_records(start, min(start + step, opened.n))]
    if bad:
        # They will be fetched again, and the copy be tried once more.
        mark(stem + HAVE, np.array(bad), AWAY)
    return not bad

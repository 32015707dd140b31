"""Write the records of a worker to their places; spill to disk the records that wait for one."""

import errno
import os
import tempfile

from ffrecord.dataset_writer.layout import Segment
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.engine._engine import filesystem_type
from ffrecord.errors import REFUSED, FFRecordError, file_error, plural
from ffrecord.system import filesystems, named_calls
from ffrecord.system.atomic_file import write_all
from ffrecord.writing._buffers import WriteBehind

STEP = 4 << 20


class SpillFile:
    """A file without a name for runs of bytes: each is put in, copied out once, and forgotten.

    Args:
        directory: directory on the file system to use.
        label: name of that directory for messages.

    Raises:
        OSError (also a RuntimeError): it cannot be made.
    """

    def __init__(self, directory: str, label: str) -> None:
        self._label = label
        try:
            self._fd = _unnamed_file(directory)
        except OSError as error:
            raise self._error(error, "a spill file could not be created") from None
        self._end = self._live = 0  # bytes

    def put(self, data: memoryview) -> int:
        """Append bytes.

        Returns:
            their position, for `copy`.

        Raises:
            OSError (also a RuntimeError): refused; ENOSPC if there is no room.
        """
        start = self._end
        try:
            write_all(self._fd, data, start)
        except OSError as error:
            raise self._error(error, f"{len(data)} bytes could not be written to a spill file") from None
        self._end += len(data)
        self._live += len(data)
        return start

    def copy(self, start: int, size: int, fd: int, offset: int) -> None:
        """Copy bytes to another file.

        Raises:
            OSError: of the failed call.
        """
        while size:
            count = _copy(self._fd, start, size, fd, offset)
            start, offset, size = start + count, offset + count, size - count

    def forget(self, size: int) -> None:
        """Count `size` bytes as no longer needed; once no byte is needed, free the disk space."""
        self._live -= size
        if not self._live:
            named_calls.ftruncate(self._fd, 0)
            self._end = 0

    def close(self) -> None:
        """Close the file. May be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _error(self, error: OSError, what: str) -> OSError:
        return file_error(error.errno or errno.EIO, f"{self._label}: {what}", self._label)


def _unnamed_file(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # open(2): kernels and file systems without O_TMPFILE say one of these.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    # A kill before the `unlink` leaves a file in the directory of this write, which the next one removes.
    fd, path = tempfile.mkstemp(prefix=".", suffix=".part", dir=directory)
    os.unlink(path)
    return fd


def _copy(source: int, start: int, size: int, target: int, offset: int) -> int:
    """Copy some of `size` bytes, in the kernel if possible, since some file systems then share them; return how many, >
    0.
    """
    try:
        # Below the 2 GiB that one call can copy.
        count = os.copy_file_range(source, target, min(size, 1 << 30), start, offset)
    except OSError as error:
        # Older kernels copy only within a file system, and some file systems not at all.
        if error.errno not in (errno.EXDEV, *REFUSED):
            raise
        count = 0
    # 0 may also come from a file system that cannot copy so; then `pread` tells if the bytes are there.
    if count:
        return count
    data = named_calls.pread(source, min(size, STEP), start)
    if not data:
        raise OSError(errno.EIO, f"the spill file ends at {start}, {size} bytes early")
    write_all(target, memoryview(data), offset)
    return len(data)


_NamedSegment = tuple[Segment, str | None]  # segment, and the name of its last sample if known


class RecordOutput:
    """A writer of segments of shards, one at a time; a thread sends them on to the disk.

    Every method but `close` raises OSError (also a RuntimeError) if a write was refused: of an earlier segment, or of
    this one. A refused write is reported again by every later call, because the kernel reports it only once.

    Args:
        files: directory and names of the shards, which the coordinator creates.
    """

    def __init__(self, files: ShardFiles) -> None:
        self._files, self._behind = files, WriteBehind()  # another shard is never open while the thread writes
        self._fd, self._shard = -1, -1
        self._at: _NamedSegment | None = None  # the segment at work
        self._begun: _NamedSegment | None = None  # the segment on its way
        self._holds = False  # whether the thread still has to write it
        self._refusal: OSError | None = None

    def turn_to(self, segment: Segment, last: str | None = None) -> None:
        """Select the segment to write next.

        Args:
            last: name of its last sample, for messages.
        """
        # The thread uses the open descriptor, and holds one buffer at a time.
        if segment.shard != self._shard or self._holds:
            self.wait()
        self._at = segment, last
        try:
            self._open(segment.shard)
        except OSError as error:
            raise self._error_of(error, self._at) from None

    def write(self, part: Segment, data: memoryview, last: str) -> None:
        """Write a part of the segment now, in this thread.

        Args:
            part: place of the part.
            last: name of its last sample, for messages.
        """
        try:
            self._behind.write(part.offset, data)
        except OSError as error:
            raise self._error_of(error, (part, last)) from None

    def copy(self, spill: SpillFile, start: int, size: int) -> None:
        """Copy the bytes of the segment from a spill file."""
        try:
            spill.copy(start, size, self._fd, self._segment.offset)
        except OSError as error:
            raise self._error_of(error, self._at) from None

    def begin(self, size: int, data: memoryview | None = None) -> None:
        """Start to send the whole segment to the disk, in the thread.

        Args:
            size: size of the segment, bytes.
            data: bytes that the thread writes first; None if they are written.
        """
        self.wait()
        self._begun, self._holds = self._at, data is not None
        self._behind.begin(self._segment.offset, size, data)

    @property
    def done(self) -> bool:
        """True if `wait` would return at once."""
        return self._behind.done

    def wait(self) -> None:
        """Wait until the kernel has everything that was begun."""
        # A refusal is final; the kernel would not report it again.
        if self._refusal is None:
            try:
                self._behind.wait()
            except OSError as error:
                self._refusal = self._error_of(error, self._begun)
        if self._refusal is not None:
            raise self._refusal
        self._holds = False

    @property
    def _segment(self) -> Segment:
        if self._at is None:
            raise FFRecordError(f"{self._files.label}: there is no segment to write to")
        return self._at[0]

    def _error_of(self, error: OSError, at: _NamedSegment | None) -> OSError:
        if at is None:
            return error
        segment, last = at
        path = self._files.final(segment.shard)
        known = "" if last is None else f", the last of them {last},"
        what = f"{plural(segment.samples, 'sample')}{known} could not be written at byte {segment.offset}"
        return file_error(error.errno or errno.EIO, f"{path}: {what}", path)

    def _open(self, shard: int) -> None:
        """Open a shard for writing; only the latest one stays open."""
        if shard == self._shard:
            return
        self.close()
        # The coordinator has created it; a missing file is an error, and a link is not followed.
        self._fd = os.open(self._files.path(shard), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._shard = shard
        kind = filesystems.from_type(filesystem_type(self._fd))
        # Early write-back is for disks: tmpfs has none, and a network file system would wait for its server.
        self._behind.open(self._fd, not (kind.network or kind.memory))

    def close(self) -> None:
        """Close the shard; a write in progress may be given up. May be repeated."""
        self._behind.close()
        if self._fd >= 0:
            # Forgotten before closing: a failed close must not be repeated, as the number may be another file's by
            # then.
            fd, self._fd, self._shard = self._fd, -1, -1
            os.close(fd)

"""Records that wait for their places on the disk, because memory has no room for them."""

import errno
import os
import tempfile

from ffrecord.errors import file_error
from ffrecord.system.atomic_file import REFUSED, write_all

STEP = 4 << 20


class Spool:
    """A file without a name, of runs of bytes that are put in, copied out once, and forgotten.

    Args:
        directory: of the file system on which it is.
        label: what to call that in messages.

    Raises:
        OSError (also a RuntimeError): it cannot be made.
    """

    def __init__(self, directory: str, label: str) -> None:
        self._label = label
        try:
            self._fd = _unnamed(directory)
        except OSError as error:
            raise self._error(error, "a spool could not be made") from None
        self._end = self._live = 0  # bytes

    def put(self, data: memoryview) -> int:
        """Append bytes.

        Returns:
            where they are, for `copy`.

        Raises:
            OSError (also a RuntimeError): refused; ENOSPC if there is no room.
        """
        start = self._end
        try:
            write_all(self._fd, data, start)
        except OSError as error:
            raise self._error(error, f"{len(data)} bytes that wait for their place could not be put aside") from None
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
        """That many bytes are not needed any more; once none are, the disk has its room back."""
        self._live -= size
        if not self._live:
            os.ftruncate(self._fd, 0)
            self._end = 0

    def close(self) -> None:
        """May be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _error(self, error: OSError, what: str) -> OSError:
        return file_error(error.errno or errno.EIO, f"{self._label}: {what}", self._label)


def _unnamed(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    fd, path = tempfile.mkstemp(prefix=".", suffix=".part", dir=directory)
    os.unlink(path)
    return fd


def _copy(source: int, start: int, size: int, target: int, offset: int) -> int:
    """Copy some of `size` bytes; how many, > 0. In the kernel, where the file system can share or copy them itself."""
    try:
        count = os.copy_file_range(source, target, min(size, 1 << 30), start, offset)
    except OSError as error:
        if error.errno not in (errno.EXDEV, *REFUSED):
            raise
        count = 0
    if count:
        return count
    data = os.pread(source, min(size, STEP), start)
    if not data:
        raise OSError(errno.EIO, f"the spool ends at {start}, {size} bytes early")
    write_all(target, memoryview(data), offset)
    return len(data)

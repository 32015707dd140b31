"""Moving the samples of a shard, when its tables turn out to need more or less room than was foreseen."""

import errno
import os

from ffrecord.durable import write_all
from ffrecord.errors import CountError, file_error

STEP = 8 << 20  # bytes


def move(path: str, label: str, start: int, target: int) -> None:
    """Move everything from offset `start` of a file on to offset `target`; what it leaves there are zeros.

    Args:
        label: the final path, for messages.

    Raises:
        OSError (also a RuntimeError): refused; ENOSPC if there is no room.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size - start
            # In the direction in which no step overwrites what is still to be moved.
            steps = range(0, size, STEP)
            for first in steps if target < start else reversed(steps):
                _copy(fd, label, start + first, target + first, min(STEP, size - first))
            for first in range(start, min(target, start + size), STEP):
                write_all(fd, memoryview(bytes(min(STEP, target - first, start + size - first))), first)
            os.ftruncate(fd, target + size)
        finally:
            os.close(fd)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"{label}: its samples could not be moved", label) from None


def _copy(fd: int, label: str, source: int, target: int, size: int) -> None:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = os.preadv(fd, [view[done:]], source + done)
        if count == 0:
            raise CountError(f"{label}: {source + done} bytes, but its samples end at {source + size} or later")
        done += count
    write_all(fd, view, target)

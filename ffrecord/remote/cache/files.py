"""Files of a cache: opened without following what others planted, written in few calls, and which records they have."""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ffrecord.reading.store import Indices
from ffrecord.system import untrusted
from ffrecord.system.atomic_file import REFUSED, read_up_to, write_all
from ffrecord.system.untrusted import Refused

Present = npt.NDArray[np.bool_]

PIECES_MOST = 1024  # IOV_MAX of Linux
HERE, AWAY = b"\1", b"\0"


@contextlib.contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """A descriptor of a regular file with no other name, which is closed at the end.

    Raises:
        OSError: it cannot be opened; EMLINK if `path` leads to a file that is elsewhere, or is no file.
    """
    try:
        fd = untrusted.open_file(path, flags)
    except Refused as error:
        raise OSError(errno.EMLINK, f"not a file of its own: {error.strerror}", path) from None
    try:
        yield fd
    finally:
        os.close(fd)


def regular_size(path: str) -> int:
    """Bytes of a regular file; -1 if there is none, or a symbolic link."""
    try:
        status = os.lstat(path)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def runs(local: Indices) -> Iterator[tuple[int, int]]:
    """(first, one after the last) place of each run of successive numbers in an ascending array."""
    ends = np.flatnonzero(np.diff(local) != 1) + 1
    return itertools.pairwise([0, *ends.tolist(), len(local)])


def write_pieces(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    """Write pieces of bytes one after the other at `offset`.

    Raises:
        OSError: of the failed call; ENOSPC also if the kernel takes nothing.
    """
    for start in range(0, len(pieces), PIECES_MOST):
        some = pieces[start : start + PIECES_MOST]
        try:
            written = os.pwritev(fd, some, offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            written = 0  # one by one then
        for piece in some:
            if written < len(piece):
                write_all(fd, piece[max(0, written) :], offset + max(0, written))
            written -= len(piece)
            offset += len(piece)


def present(path: str, n: int) -> Present:
    """Which of n records the copy has that the file of bytes at `path` is of; none where that has not so many bytes."""
    found = np.zeros(n, np.bool_)
    with contextlib.suppress(OSError), opened(path, os.O_RDONLY) as fd:
        data = np.frombuffer(read_up_to(fd, n, 0), np.uint8)
        found[: len(data)] = data == HERE[0]
    return found


def mark(path: str, local: Indices, value: bytes) -> None:
    """Say of records, in ascending order, that the copy has them, or has them no more.

    Raises:
        OSError: it could not be said.
    """
    with opened(path, os.O_RDWR | os.O_CREAT) as fd:
        for start, stop in runs(local):
            write_all(fd, memoryview(value * (stop - start)), int(local[start]))

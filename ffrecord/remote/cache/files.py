"""Files of a cache: safe opening, writing in few calls, and the marks of the records that a copy has."""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ffrecord.errors import REFUSED
from ffrecord.reading.store import Indices
from ffrecord.system import untrusted
from ffrecord.system.atomic_file import read_up_to, write_all
from ffrecord.system.untrusted import Refused

Marks = npt.NDArray[np.bool_]

PIECES_MOST = 1024  # IOV_MAX of Linux
HERE, AWAY = b"\1", b"\0"


@contextlib.contextmanager
def open_regular(path: str, flags: int) -> Iterator[int]:
    """Open a regular file that has no other name; the context's value is its descriptor.

    Raises:
        OSError: it cannot be opened; EMLINK if `path` is a link, a file with another name, or not a file.
    """
    try:
        fd = untrusted.open_file(path, flags)
    except Refused as error:
        raise OSError(errno.EMLINK, f"it cannot be used as a file of the cache: {error.strerror}", path) from None
    try:
        yield fd
    finally:
        os.close(fd)


def regular_size(path: str) -> int:
    """Return the bytes of a regular file; -1 if there is none, or a symbolic link."""
    try:
        # `lstat`: a link in a shared directory may lead to any file of this user.
        status = os.lstat(path)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def runs(local: Indices) -> Iterator[tuple[int, int]]:
    """Yield (first place, end) of each run of successive numbers in an ascending array."""
    # A step of more than one ends a run.
    ends = np.flatnonzero(np.diff(local) != 1) + 1
    return itertools.pairwise([0, *ends.tolist(), len(local)])


def write_pieces(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    """Write pieces of bytes at `offset`, one behind the other.

    Raises:
        OSError: a call failed; ENOSPC also if the kernel writes nothing.
    """
    for start in range(0, len(pieces), PIECES_MOST):
        some = pieces[start : start + PIECES_MOST]
        try:
            # Hundreds of small records in one call.
            written = os.pwritev(fd, some, offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            written = 0  # write them one by one
        for piece in some:
            if written < len(piece):
                # The rest of a piece that the kernel took in part, or not at all.
                write_all(fd, piece[max(0, written) :], offset + max(0, written))
            written -= len(piece)
            offset += len(piece)


def read_marks(path: str, n: int) -> Marks:
    """Return which of n records are marked as here in the file of marks at `path`. Beyond its end, none is."""
    found = np.zeros(n, np.bool_)
    with contextlib.suppress(OSError), open_regular(path, os.O_RDONLY) as fd:
        data = np.frombuffer(read_up_to(fd, n, 0), np.uint8)
        found[: len(data)] = data == HERE[0]
    return found


def mark(path: str, local: Indices, value: bytes) -> None:
    """Mark records of a copy as here or as missing. `local` is in ascending order.

    Raises:
        OSError: the marks cannot be written.
    """
    with open_regular(path, os.O_RDWR | os.O_CREAT) as fd:
        # A byte each, so that processes mark records without a lock: no byte belongs to two of them.
        for start, stop in runs(local):
            write_all(fd, memoryview(value * (stop - start)), int(local[start]))

"""Memory that processes share: without a name, so nothing can be left behind, and had before anybody touches it."""

import contextlib
import errno
import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any

from ffrecord.errors import file_error
from ffrecord.system.atomic_file import REFUSED, reserve

SHARED = "/dev/shm"  # nothing is found there by its name


class SharedMemory:
    """`size` bytes of it, > 0. Forked workers inherit it, others get its descriptor by pickling.

    Attributes:
        view: the bytes.

    Raises:
        OSError (also a RuntimeError): the memory cannot be had; it is reserved, since touching what is not there is a
            SIGBUS.
    """

    def __init__(self, size: int, _fd: int = -1) -> None:
        self._size, self._fd = size, _fd
        try:
            if _fd < 0:
                self._fd = _made()
                reserve(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            if self._fd >= 0:
                os.close(self._fd)
            raise file_error(error.errno or errno.ENOMEM, f"{size} bytes of shared memory", "memfd") from None
        self.view = memoryview(self._map)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._size, reduction.DupFd(self._fd))

    def close(self) -> None:
        """Give the memory back, as soon as all views made of `view` are gone. May be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                # The traceback of an exception that is on its way may hold a view.
                with contextlib.suppress(BufferError):
                    self.view.release()
                    self._map.close()
            finally:
                os.close(fd)


def _made() -> int:
    """A descriptor of memory without a name; where the kernel has no such call, or a container forbids it, of a file of
    a file system in memory, or else of the disk, that has lost its name.

    Raises:
        OSError: there is neither.
    """
    try:
        return os.memfd_create("ffrecord", os.MFD_CLOEXEC)
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno not in REFUSED:
            raise
    directory = SHARED if os.access(SHARED, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryFile(prefix="ffrecord-", dir=directory) as file:
        return os.dup(file.fileno())


def _attach(size: int, descriptor: Any) -> SharedMemory:
    return SharedMemory(size, descriptor.detach())

"""Memory that processes share: it has no name, so nothing can be left behind, and it is reserved before it is used."""

import contextlib
import errno
import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any

from ffrecord.errors import REFUSED, file_error
from ffrecord.system.atomic_file import reserve

SHARED = "/dev/shm"  # files here lose their name at once


class SharedMemory:
    """Shared memory of `size` bytes, > 0. Forked workers inherit it; others get its descriptor by pickling.

    Attributes:
        view: the bytes.

    Raises:
        OSError (also a RuntimeError): the memory cannot be reserved. Without reserving, touching a missing page is a
            SIGBUS.
    """

    def __init__(self, size: int, _fd: int = -1) -> None:
        self._size, self._fd = size, _fd
        try:
            if _fd < 0:
                self._fd = _create_memory()
                # A page that cannot be had later would be a SIGBUS; now it is an error.
                reserve(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            if self._fd >= 0:
                os.close(self._fd)
            raise file_error(
                error.errno or errno.ENOMEM, f"{size} bytes of shared memory could not be allocated", "memfd"
            ) from None
        self.view = memoryview(self._map)

    def __reduce__(self) -> tuple[Any, ...]:
        # Multiprocessing passes the descriptor to a spawned process.
        return _attach, (self._size, reduction.DupFd(self._fd))

    def close(self) -> None:
        """Free the memory once all views made from `view` are gone. May be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                # The traceback of a current exception may hold a view.
                # A view elsewhere keeps the mapping alive; then it goes with the last view.
                with contextlib.suppress(BufferError):
                    self.view.release()
                    self._map.close()
            finally:
                os.close(fd)


def _create_memory() -> int:
    """Return a descriptor of memory without a name.

    If the kernel has no such call, or a container forbids it, use a nameless file in memory, or else on disk.

    Raises:
        OSError: none of these can be created.
    """
    try:
        return os.memfd_create("ffrecord", os.MFD_CLOEXEC)
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno not in REFUSED:
            raise
    directory = SHARED if os.access(SHARED, os.W_OK | os.X_OK) else None  # no write permission in some containers
    with tempfile.TemporaryFile(prefix="ffrecord-", dir=directory) as file:
        # The name is gone with the `with` block; the copy of the descriptor stays.
        return os.dup(file.fileno())


def _attach(size: int, descriptor: Any) -> SharedMemory:
    return SharedMemory(size, descriptor.detach())

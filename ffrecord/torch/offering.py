"""Memory of one process that another maps, without a word between them.

torch hands descriptors over a socket, with a challenge to authenticate, which is a fifth of the time that two workers
take for a batch of 1.5 MB. Processes of one user can open each other's by /proc/PID/fd. What is missing then is a sign
that the receiver has opened it, so that the sender may close it: the receiver seals the memfd (F_SEAL_SEAL, which
forbids nothing but further seals), and the sender looks for seals before it offers the next one.
"""

import ctypes
import fcntl
import os
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Offer", "can_offer", "in_memfd", "offer"]

PR_GET_DUMPABLE = 3

# What is offered and maybe not opened yet: a descriptor, which its storage keeps open. At most as many as a loader
# prefetches, and those opened since the last one was offered.
_offered: dict[int, torch.UntypedStorage] = {}


class Offer(NamedTuple):
    """Where the memory of a tensor is."""

    pid: int
    fd: int
    file: tuple[int, int]  # device and inode, which tell whether the descriptor is still that one
    size: int

    def accept(self) -> torch.UntypedStorage:
        """Map it, and let the other process close it. Only once.

        Raises:
            OSError: the other process is gone, no longer has it, or may not be looked into.
        """
        fd = self._open()
        try:
            if _file(fd) != self.file:
                raise FileNotFoundError(self._gone())
            storage = _mapped(fd, self.size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
            return storage
        finally:
            os.close(fd)

    def _open(self) -> int:
        try:
            return os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileNotFoundError(self._gone()) from None
        except PermissionError as error:
            raise PermissionError(
                f"process {self.pid} sent a batch, but this one may not open its memory: has either changed its user "
                "since workers began? torch.multiprocessing.set_sharing_strategy('file_system') goes without"
            ) from error

    def _gone(self) -> str:
        return f"process {self.pid} no longer has the memory of a batch that it sent"


@cache
def _has_memfds() -> bool:
    """Whether there is memory to seal: not in every kernel, nor in a Python that was built with an old libc."""
    if not hasattr(os, "memfd_create") or not hasattr(fcntl, "F_ADD_SEALS"):
        return False
    try:
        os.close(_memfd())
    except OSError:
        return False
    return True


def can_offer() -> bool:
    """Whether memory that `in_memfd` makes is what batches are to be sent in: torch was not told to use files."""
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    return strategy == "file_descriptor" and _has_memfds()


def offer(storage: torch.UntypedStorage) -> Offer | None:
    """Let another process of this user map `storage`, one that `in_memfd` made; None if that cannot be done."""
    if not storage.is_shared() or not can_offer() or not _allowed() or not _is_dumpable():
        return None
    try:
        return _offer(storage)
    except (OSError, RuntimeError):
        # This is a thread of torch's queue, which would lose the batch and go on.
        return None


def _offer(storage: torch.UntypedStorage) -> Offer | None:
    _close_accepted()
    fd, size = storage._share_fd_cpu_()
    # Of torch's own shared memory the seals say that nobody may add any.
    if fd in _offered or _seals(fd) != 0:
        return None
    offered = Offer(os.getpid(), fd, _file(fd), size)
    _offered[fd] = storage
    return offered


def in_memfd(data: npt.NDArray[np.uint8]) -> torch.UntypedStorage:
    """`data`, 1-D and contiguous, copied into shared memory of its own."""
    fd = _memfd()
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:].data, done)
        return _mapped(fd, len(data))
    finally:
        os.close(fd)


def _memfd() -> int:
    return os.memfd_create("ffrecord batch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _mapped(fd: int, size: int) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = torch.UntypedStorage._new_shared_fd_cpu(fd, size)  # type: ignore[attr-defined]
    return storage


def _close_accepted() -> None:
    for fd in [fd for fd in _offered if _seals(fd)]:
        del _offered[fd]


def _seals(fd: int) -> int | None:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # no memory but a file
        return None


def _file(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@cache
def _allowed() -> bool:
    """Whether processes may open others' descriptors: as this one its parent's, so they those of a dumpable one."""
    try:
        os.listdir(f"/proc/{os.getppid()}/fd")
    except OSError:
        return False
    return True


def _is_dumpable() -> bool:
    """Whether this process has not been closed to others of its user, as by setuid(2) or prctl(2)."""
    return _libc().prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1  # type: ignore[no-any-return]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)

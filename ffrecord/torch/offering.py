"""Memory of one process that another maps, without a word between them.

torch hands descriptors over a socket, with a challenge to authenticate, which is a fifth of the time that two workers
take for a batch of 1.5 MB. Processes of one user can open each other's by /proc/PID/fd. What is missing then is a sign
that the receiver has opened it, so that the sender may close it: the receiver seals the memfd (F_SEAL_SEAL, which
forbids nothing but further seals), and the sender looks for seals before it offers the next one.
"""

import fcntl
import os
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Offer", "in_memfd", "offer"]

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
            OSError: the other process is gone, or no longer has it.
        """
        fd = os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            if _file(fd) != self.file:
                raise FileNotFoundError(f"process {self.pid} no longer has the memory of a batch that it sent")
            storage = _mapped(fd, self.size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
            return storage
        finally:
            os.close(fd)


def offer(storage: torch.UntypedStorage) -> Offer | None:
    """Let another process of this user map `storage`, one that `in_memfd` made; None if that cannot be done."""
    if not storage.is_shared() or not _allowed():
        return None
    _close_accepted()
    fd, size = storage._share_fd_cpu_()
    # Of torch's own shared memory the seals say that nobody may add any.
    if fd in _offered or _seals(fd) != 0:
        return None
    _offered[fd] = storage
    return Offer(os.getpid(), fd, _file(fd), size)


def in_memfd(data: npt.NDArray[np.uint8]) -> torch.UntypedStorage:
    """`data`, 1-D and contiguous, copied into shared memory of its own."""
    fd = os.memfd_create("ffrecord batch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:].data, done)
        return _mapped(fd, len(data))
    finally:
        os.close(fd)


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
    """Whether processes here may open each other's descriptors: as this one its parent's, so others this one's."""
    try:
        os.listdir(f"/proc/{os.getppid()}/fd")
    except OSError:
        return False
    return True

"""Memory of a worker that the loader maps without any exchange, and that is filled again when no process holds it.

torch makes new shared memory for each batch, faults it in page by page, and hands descriptors over a socket, with a
challenge to authenticate. But processes of one user can open each other's descriptors by /proc/PID/fd. It remains to
know which process still holds the memory. For this, each opening of it has a shared lock (flock), which the kernel
drops with its last descriptor. torch's storages keep their descriptors open; so do forked children and processes that
the storages are sent on to. A worker that gets the exclusive lock is alone with the memory.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import threading
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from ffrecord.system import resources
from ffrecord.system.forks import call_in_children

__all__ = ["Offer", "can_lend", "lend", "offer"]

PR_GET_DUMPABLE = 3
WASTED_MOST = 4  # a block may be this many times larger than needed
UNUSED_MOST = 64  # a block is given up after so many loans of others, plus four for each block
DESCRIPTORS_SHARE = 8  # descriptors of the process for each block, which takes two or three here, and one in the loader
PAGE = mmap.PAGESIZE
TEMPORARY_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EINTR)  # errors that may go away
NUMBER = 8  # bytes behind the pages of a block: the number of the last message that arrived


class SharedBlock:
    """A block of memory, and the descriptor by which other processes open it.

    Raises:
        OSError: there is no more memory, or there are no more descriptors.
    """

    def __init__(self, size: int) -> None:
        self.capacity = -(-size // PAGE) * PAGE
        self.fd = os.memfd_create("ffrecord batch", os.MFD_CLOEXEC)
        try:
            # Allocate all pages now: missing memory is an error here, but a fatal signal when a page is written.
            os.posix_fallocate(self.fd, 0, self.capacity + NUMBER)
            self._mapped = mmap.mmap(self.fd, self.capacity, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
            self.file = _file_id(self.fd)
        except BaseException:
            os.close(self.fd)
            raise
        self.memory: npt.NDArray[np.uint8] = np.frombuffer(self._mapped, np.uint8)
        self.lent = 0  # number of its last loan
        self.sent = 0  # number of messages sent with it
        self.waits = False  # lent, and not sent since

    @property
    def underway(self) -> bool:
        """True if a message with it has not arrived yet."""
        return _read_number(self.fd, self.capacity) != self.sent

    @property
    def idle(self) -> bool:
        """True if no process holds it, or will get it from a message."""
        if self.underway:
            return False
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return True

    def fits(self, size: int) -> bool:
        return size <= self.capacity <= max(PAGE, WASTED_MOST * size) and self.idle

    def close(self) -> None:
        """Close the descriptor; only the storages over the memory still keep it."""
        os.close(self.fd)


class SharedBlocks:
    """The memory that this process lends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[tuple[int, int], SharedBlock] = {}  # by file, in the order of their last loans
        self._lent = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def fill(self, data: npt.NDArray[np.uint8]) -> torch.UntypedStorage | None:
        """Return a copy of `data`, of any shape; None if too much memory is on its way.

        Raises:
            OSError: there is no more memory, or there are no more descriptors.
        """
        with self._lock:
            self._give_up()
            fitting = (block for block in self._blocks.values() if block.fits(data.size))
            block = min(fitting, key=lambda each: each.capacity, default=None)
            if block is None and len(self._blocks) >= _blocks_most():
                return None
            block = block or SharedBlock(data.size)
            self._lent += 1
            block.lent, block.waits = self._lent, True
            self._blocks.pop(block.file, None)
            self._blocks[block.file] = block
            storage = _open_shared("self", block.fd, block.file, data.size)
        block.memory[: data.size].reshape(data.shape)[...] = data
        return storage

    def send(self, file: tuple[int, int], size: int) -> "Offer | None":
        """Count the block of a file as on its way; None if there is none, or an earlier message has not arrived."""
        # All under the lock: another thread may fill a block that no process holds and that is not on its way.
        with self._lock:
            block = self._blocks.get(file)
            # Only one message at a time: a single number could not tell which of two has arrived.
            if block is None or block.underway:
                return None
            block.sent += 1
            block.waits = False
            return Offer(os.getpid(), block.fd, file, size, block.capacity, block.sent)

    def close(self) -> None:
        while self._blocks:
            self._blocks.popitem()[1].close()

    def _give_up(self) -> None:
        """Close blocks that were not lent for long, because they are not needed, or some process keeps them.

        A block that has yet to be sent or opened stays.
        """
        most = UNUSED_MOST + 4 * len(self._blocks)
        for file, block in list(self._blocks.items()):
            if self._lent - block.lent <= most:
                return  # the blocks after it were lent later
            if not block.underway and (not block.waits or block.idle):
                self._blocks.pop(file).close()


def _blocks_most() -> int:
    worker = get_worker_info()
    share = max(DESCRIPTORS_SHARE, 2 * worker.num_workers if worker else 0)  # the loader may hold all workers' blocks
    return resources.all_descriptors() // share


_blocks = SharedBlocks()


def _renew_after_fork() -> None:
    """Drop the parent's blocks in a forked child, which must not lend them."""
    global _blocks
    _blocks.close()
    _blocks = SharedBlocks()


call_in_children(_renew_after_fork)


class Offer(NamedTuple):
    """The place of a tensor's memory.

    Attributes:
        pid, fd: process, and its descriptor of the memory.
        file: device and inode, which show whether the descriptor still belongs to the memory.
        size: bytes of the tensor.
        capacity: bytes before the number of the last message.
        number: number of this message.
    """

    pid: int
    fd: int
    file: tuple[int, int]
    size: int
    capacity: int
    number: int

    def accept(self) -> torch.UntypedStorage:
        """Map the memory, and let the other process know. Works only once.

        Raises:
            OSError: the other process is gone, no longer has the memory, or may not be inspected.
        """
        try:
            return _open_shared(str(self.pid), self.fd, self.file, self.size, (self.capacity, self.number))
        except FileNotFoundError:
            raise FileNotFoundError(f"process {self.pid} no longer has the memory of a batch that it sent") from None
        except PermissionError as error:
            raise PermissionError(
                f"process {self.pid} sent a batch, but this one may not open its memory: has either changed its user "
                "since workers began? torch.multiprocessing.set_sharing_strategy('file_system') goes without"
            ) from error


def _open_shared(
    process: str, fd: int, file: tuple[int, int], size: int, arrived: tuple[int, int] | None = None
) -> torch.UntypedStorage:
    """Open the memory of a process's descriptor anew, and lock it for the life of the storage.

    Args:
        process: name of the process below /proc.
        fd, file, size: attributes of `Offer`.
        arrived: place in the file to note that a message has arrived, and its number.

    Raises:
        FileNotFoundError: the descriptor is not there, or belongs to another file.
        OSError: the memory cannot be opened, locked or mapped.
    """
    own = os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if _file_id(own) != file:
            raise FileNotFoundError
        fcntl.flock(own, fcntl.LOCK_SH)
        if arrived is not None and _read_number(own, arrived[0]) != arrived[1] - 1:
            raise FileNotFoundError  # this message has arrived before: the memory may hold another batch by now
        # The storage keeps its own copy of the descriptor, and so the lock.
        storage: torch.UntypedStorage = torch.UntypedStorage._new_shared_fd_cpu(own, size)  # type: ignore[attr-defined]
        if arrived is not None:
            os.pwrite(own, arrived[1].to_bytes(NUMBER, "little"), arrived[0])
        return storage
    finally:
        os.close(own)


def _has_memfds() -> bool:
    """Tell whether this system has such memory, as far as known."""
    try:
        return _can_make_block()
    except OSError as error:
        return error.errno in TEMPORARY_ERRORS


@cache
def _can_make_block() -> bool:
    """Tell whether such memory can be made. Some kernels lack it, and a Python built with an old libc.

    Raises:
        OSError: it could not be made now; it may be possible later.
    """
    if not hasattr(os, "memfd_create"):
        return False
    block = SharedBlock(1)
    found = block.idle
    block.close()
    return found


def can_lend() -> bool:
    """Tell whether to send batches in lent memory: torch is not set to use files, and other processes may open the
    memory.

    There may still be no memory left at a given time.
    """
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    return strategy == "file_descriptor" and _has_memfds() and _may_open_others() and _is_dumpable()


def lend(data: npt.NDArray[np.uint8]) -> torch.UntypedStorage | None:
    """Copy `data`, of any shape, into memory that `offer` can offer; None if there is no such memory."""
    if not can_lend():
        return None
    try:
        return _blocks.fill(data)
    except (OSError, RuntimeError):  # the latter is torch's
        return None


def offer(storage: torch.UntypedStorage) -> Offer | None:
    """Let another process of this user map `storage`, which `lend` made; None if that is not possible."""
    if not storage.is_shared() or not can_lend():
        return None
    try:
        fd, size = storage._share_fd_cpu_()
        return _blocks.send(_file_id(fd), size)
    except (OSError, RuntimeError):
        # This may be a thread of torch's queue, which would lose the batch and go on after an error.
        return None


def _read_number(fd: int, at: int) -> int:
    """Return the number of the last message that arrived."""
    return int.from_bytes(os.pread(fd, NUMBER, at), "little")


def _file_id(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@cache
def _may_open_others() -> bool:
    """Tell whether processes may open each other's descriptors, and /proc shows the process ids that they know.

    If this process may open its parent's, others may open those of a dumpable process. /proc may belong to another
    namespace of process ids.
    """
    try:
        os.listdir(f"/proc/{os.getppid()}/fd")
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _is_dumpable() -> bool:
    """Tell whether other processes of the user may inspect this one; setuid(2) or prctl(2) may have forbidden it."""
    return _libc().prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1  # type: ignore[no-any-return]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)

"""Memory of a worker that the loader maps, without a word between them, and that is filled anew when nobody holds it.

torch makes shared memory anew for each batch, faults it in page by page, and hands descriptors over a socket, with a
challenge to authenticate. Processes of one user can open each other's descriptors by /proc/PID/fd. What is missing then
is who still holds the memory: each opening of it has a shared lock (flock), which the kernel gives up with its last
descriptor. torch's storages keep theirs open; a forked child has it too, and so has whoever it is sent on to. A worker
that gets the exclusive lock is alone with it.
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
WASTED_MOST = 4  # how much larger than what is needed a piece may be
UNUSED_MOST = 64  # how often others were lent since a piece was, and all of them four times, when it is given up
DESCRIPTORS_SHARE = 8  # of those that a process may have, as many pieces; each takes two or three here, and one there
PAGE = mmap.PAGESIZE
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EINTR)
NUMBER = 8  # bytes behind the pages of a piece: the number of the message that arrived last


class SharedBlock:
    """Some memory, and the descriptor by which others open it.

    Raises:
        OSError: there is no more memory, or no more descriptors.
    """

    def __init__(self, size: int) -> None:
        self.capacity = -(-size // PAGE) * PAGE
        self.fd = os.memfd_create("ffrecord batch", os.MFD_CLOEXEC)
        try:
            # Now, when memory that is not to be had is an error.
            os.posix_fallocate(self.fd, 0, self.capacity + NUMBER)
            self._mapped = mmap.mmap(self.fd, self.capacity, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
            self.file = _file(self.fd)
        except BaseException:
            os.close(self.fd)
            raise
        self.memory: npt.NDArray[np.uint8] = np.frombuffer(self._mapped, np.uint8)
        self.lent = 0  # when it was last
        self.sent = 0  # messages
        self.waits = False  # lent, and not sent since

    @property
    def underway(self) -> bool:
        """Whether a message with it has not arrived."""
        return _number(self.fd, self.capacity) != self.sent

    @property
    def idle(self) -> bool:
        """Whether nobody holds it, or will."""
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
        """Only the storages over it still keep it."""
        os.close(self.fd)


class SharedBlocks:
    """The memory that this process lends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[tuple[int, int], SharedBlock] = {}  # in the order in which they were lent
        self._lent = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def fill(self, data: npt.NDArray[np.uint8]) -> torch.UntypedStorage | None:
        """A copy of `data`, of any shape; None where too much is on its way.

        Raises:
            OSError: there is no more memory, or no more descriptors.
        """
        with self._lock:
            self._give_up()
            fitting = (piece for piece in self._pieces.values() if piece.fits(data.size))
            piece = min(fitting, key=lambda each: each.capacity, default=None)
            if piece is None and len(self._pieces) >= _pieces_most():
                return None
            piece = piece or SharedBlock(data.size)
            self._lent += 1
            piece.lent, piece.waits = self._lent, True
            self._pieces.pop(piece.file, None)
            self._pieces[piece.file] = piece
            storage = _held("self", piece.fd, piece.file, data.size)
        piece.memory[: data.size].reshape(data.shape)[...] = data
        return storage

    def send(self, file: tuple[int, int], size: int) -> "Offer | None":
        """Count the piece that is that file as on its way; None if it is none, or a message with it has not arrived."""
        # All under the lock: another thread fills what nobody holds, and is on its way to nobody.
        with self._lock:
            piece = self._pieces.get(file)
            # Which of two messages arrived could not be told.
            if piece is None or piece.underway:
                return None
            piece.sent += 1
            piece.waits = False
            return Offer(os.getpid(), piece.fd, file, size, piece.capacity, piece.sent)

    def close(self) -> None:
        while self._pieces:
            self._pieces.popitem()[1].close()

    def _give_up(self) -> None:
        """What was not lent for long: unneeded, or kept by somebody; but nothing that has yet to be sent or opened."""
        most = UNUSED_MOST + 4 * len(self._pieces)
        for file, piece in list(self._pieces.items()):
            if self._lent - piece.lent <= most:
                return  # so are those after it
            if not piece.underway and (not piece.waits or piece.idle):
                self._pieces.pop(file).close()


def _pieces_most() -> int:
    worker = get_worker_info()
    share = max(DESCRIPTORS_SHARE, 2 * worker.num_workers if worker else 0)  # the loader may hold those of all workers
    return resources.all_descriptors() // share


_pieces = SharedBlocks()


def _forget() -> None:
    """In a forked child, where the parent's pieces are not for lending."""
    global _pieces
    _pieces.close()
    _pieces = SharedBlocks()


call_in_children(_forget)


class Offer(NamedTuple):
    """Where the memory of a tensor is.

    Attributes:
        pid, fd: whose descriptor it is.
        file: device and inode, which tell whether the descriptor is still that one.
        size: bytes of the tensor.
        capacity: bytes before the number of the last message.
        number: of this one.
    """

    pid: int
    fd: int
    file: tuple[int, int]
    size: int
    capacity: int
    number: int

    def accept(self) -> torch.UntypedStorage:
        """Map it, and let the other process know. Only once.

        Raises:
            OSError: the other process is gone, no longer has it, or may not be looked into.
        """
        try:
            return _held(str(self.pid), self.fd, self.file, self.size, (self.capacity, self.number))
        except FileNotFoundError:
            raise FileNotFoundError(f"process {self.pid} no longer has the memory of a batch that it sent") from None
        except PermissionError as error:
            raise PermissionError(
                f"process {self.pid} sent a batch, but this one may not open its memory: has either changed its user "
                "since workers began? torch.multiprocessing.set_sharing_strategy('file_system') goes without"
            ) from error


def _held(
    process: str, fd: int, file: tuple[int, int], size: int, arrived: tuple[int, int] | None = None
) -> torch.UntypedStorage:
    """The memory of a descriptor of a process, opened anew and locked for as long as there is the storage.

    Args:
        process: as /proc calls it.
        fd, file, size: as of `Offer`.
        arrived: where in the file to say that a message has arrived, and its number.

    Raises:
        FileNotFoundError: the descriptor is not there, or another one.
        OSError.
    """
    own = os.open(f"/proc/{process}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if _file(own) != file:
            raise FileNotFoundError
        fcntl.flock(own, fcntl.LOCK_SH)
        if arrived is not None and _number(own, arrived[0]) != arrived[1] - 1:
            raise FileNotFoundError  # it has arrived before, and may be filled with another batch by now
        # It keeps a copy of the descriptor.
        storage: torch.UntypedStorage = torch.UntypedStorage._new_shared_fd_cpu(own, size)  # type: ignore[attr-defined]
        if arrived is not None:
            os.pwrite(own, arrived[1].to_bytes(NUMBER, "little"), arrived[0])
        return storage
    finally:
        os.close(own)


def _has_memfds() -> bool:
    """Whether there is such memory, as far as is known."""
    try:
        return _made_one()
    except OSError as error:
        return error.errno in PASSING


@cache
def _made_one() -> bool:
    """Whether some could be made: not in every kernel, nor by a Python that was built with an old libc.

    Raises:
        OSError: it could not, perhaps only now.
    """
    if not hasattr(os, "memfd_create"):
        return False
    piece = SharedBlock(1)
    found = piece.idle
    piece.close()
    return found


def can_lend() -> bool:
    """Whether batches are to be sent in memory that is lent: torch is not told to use files, and others may open it.

    Whether there is such memory now is another matter.
    """
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    return strategy == "file_descriptor" and _has_memfds() and _allowed() and _is_dumpable()


def lend(data: npt.NDArray[np.uint8]) -> torch.UntypedStorage | None:
    """`data`, of any shape, copied into memory that `offer` can offer; None if there is none to be had."""
    if not can_lend():
        return None
    try:
        return _pieces.fill(data)
    except (OSError, RuntimeError):  # the latter is torch's
        return None


def offer(storage: torch.UntypedStorage) -> Offer | None:
    """Let another process of this user map `storage`, one that `lend` made; None if that cannot be done."""
    if not storage.is_shared() or not can_lend():
        return None
    try:
        fd, size = storage._share_fd_cpu_()
        return _pieces.send(_file(fd), size)
    except (OSError, RuntimeError):
        # This is a thread of torch's queue, which would lose the batch and go on.
        return None


def _number(fd: int, at: int) -> int:
    """Of the message that arrived last."""
    return int.from_bytes(os.pread(fd, NUMBER, at), "little")


def _file(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@cache
def _allowed() -> bool:
    """Whether processes may open others' descriptors: as this one its parent's, so they those of a dumpable one.

    And whether /proc has the process ids that these processes know of each other, not those of another namespace.
    """
    try:
        os.listdir(f"/proc/{os.getppid()}/fd")
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _is_dumpable() -> bool:
    """Whether this process has not been closed to others of its user, as by setuid(2) or prctl(2)."""
    return _libc().prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1  # type: ignore[no-any-return]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)

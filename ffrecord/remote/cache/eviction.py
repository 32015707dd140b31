"""Room in a cache: a limit on what is written, and removal of the least recently used copies."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator

from ffrecord.remote.cache.files import open_regular
from ffrecord.remote.cache.names import HAVE, LOCK, PART, WHOLE, list_copies
from ffrecord.system import atomic_file
from ffrecord.system.forks import call_in_children, renew_in_children

SHARE = 64  # a process reserves 1/SHARE of the free bytes at once, so that 64 processes do not exceed the limit
LEAST = 16 << 20  # fewest bytes that a process reserves at once
CLOCK_NS = 1_000_000_000  # most ns that times of files may be behind the clock
AGAIN_SECONDS = 10.0  # between two looks at a full cache


class Room:
    """The bytes that one process may write to a cache.

    Up to 64 processes that write at once keep the limit to within 16 MiB for each.

    Args:
        directory: directory of the cache.
        limit: bytes that all copies together may take of the disk; None for no limit.
        own: returns the stems of the copies that the reader uses. It never removes these. Otherwise an epoch over a
            dataset larger than the limit would leave nothing for the next epoch.
    """

    def __init__(self, directory: str, limit: int | None, own: Callable[[], Collection[str]]) -> None:
        self._directory, self._limit, self._own = directory, limit, own
        # Times of files come from a clock of the kernel that steps every few milliseconds.
        self._since = time.time_ns() - CLOCK_NS
        self._granted = 0
        self._again = 0.0
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the lock: in a forked child, nobody would release the old one."""
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """True if there was no room at the last look, which was a few seconds ago at most."""
        return self._granted <= 0 and time.monotonic() < self._again

    def take(self, size: int) -> int:
        """Reserve up to `size` bytes, and return how many may be written now.

        Raises:
            OSError: the directory cannot be listed.
        """
        if self._limit is None:
            return size
        with self._lock:
            if self._granted < size and time.monotonic() >= self._again:
                self._granted = self._find_room(self._limit, size)
                if self._granted < size:  # fewer bytes than asked for: the cache is full
                    self._again = time.monotonic() + AGAIN_SECONDS
            given = min(size, self._granted)
            self._granted -= given
            return given

    def _find_room(self, limit: int, size: int) -> int:
        """Return how many bytes may be written before the next look at the directory."""
        # Bytes on the disk, since copies being filled are sparse.
        free = limit - sum(each.bytes for each in list_copies(self._directory))
        # One process at a time, or all of them would remove the same copies and too many.
        if free < size:
            with evicting(self._directory) as alone:
                if alone:
                    free = self._evict(limit, max(size, limit // SHARE))
        # Granted in shares, so that a look serves many writes and yet all processes together keep the limit.
        return max(0, min(free, max(free // SHARE, LEAST, size)))

    def _evict(self, limit: int, wanted: int) -> int:
        """Remove the least recently used copies until `wanted` bytes are free, or none is left to remove.

        Return the free bytes.
        """
        # Again under the lock: another process may have made room.
        copies = list_copies(self._directory)
        free = limit - sum(each.bytes for each in copies)
        own = self._own()
        for each in sorted(copies, key=lambda copy: copy.used):
            # A copy that another process used since this reader was made is needed as much as a new one.
            if free >= wanted or each.used >= self._since:
                break
            if each.stem not in own:
                with contextlib.suppress(OSError):
                    remove(each.stem)
                    free += each.bytes
        return free


def remove(stem: str) -> None:
    """Remove the copy with this stem. Processes that have it open can still read it.

    Raises:
        OSError: it belongs to another user. BlockingIOError: another process is completing it.
    """
    # The list of records last: without it the rest would look empty.
    for suffix in (PART, WHOLE, HAVE):
        _remove_file(stem + suffix)


def _remove_file(path: str) -> None:
    # Another process may have removed it at the same time.
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
        # Files of others cannot be opened, but a directory of this user may still let them be removed.
        with contextlib.suppress(PermissionError):
            fd = stack.enter_context(open_regular(path, os.O_RDONLY))
            # Locked: its process is completing it.
            if not atomic_file.lock(fd, path):
                raise BlockingIOError
        os.unlink(path)


_locks: set[int] = set()  # descriptors that hold `evicting.lock`


@contextlib.contextmanager
def evicting(directory: str) -> Iterator[bool]:
    """Take the lock for making room, and yield whether this process got it. The lock ends with the process."""
    with contextlib.ExitStack() as stack:
        alone = False
        with contextlib.suppress(OSError):
            path = os.path.join(directory, LOCK)
            fd = stack.enter_context(open_regular(path, os.O_RDONLY | os.O_CREAT))
            alone = atomic_file.lock(fd, path)
            if alone:
                _locks.add(fd)
                stack.callback(_locks.discard, fd)
        yield alone


def _close_locks() -> None:
    # In a forked child: its copies of these descriptors would keep the lock after the parent is killed.
    for fd in _locks:
        os.close(fd)
    _locks.clear()


call_in_children(_close_locks)

"""Room in a cache: how much may still be written, and what is removed to make some."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator

from ffrecord.remote.cache.files import opened
from ffrecord.remote.cache.names import HAVE, LOCK, PART, WHOLE, held
from ffrecord.system import atomic_file
from ffrecord.system.forks import call_in_children, renew_in_children

SHARE = 64  # of what is free one process takes this part at once, so that as many processes do not exceed the limit
LEAST = 16 << 20  # bytes, or that much
CLOCK_NS = 1_000_000_000  # that times of files may be behind
AGAIN_SECONDS = 10.0  # before a full cache is looked at again


class Room:
    """What one process may write to a cache.

    Args:
        directory: of the cache.
        limit: bytes that all copies together may take of the disk; None for no limit.
        own: gives what the paths of copies begin with that the reader uses: it never removes these, or a dataset
            larger than the limit, read from one end to the other, would leave nothing for the next epoch.

    Up to 64 processes that write at once keep the limit to within 16 MiB for each.
    """

    def __init__(self, directory: str, limit: int | None, own: Callable[[], Collection[str]]) -> None:
        self._directory, self._limit, self._own = directory, limit, own
        self._since = time.time_ns() - CLOCK_NS
        self._granted = 0
        self._again = 0.0
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Have a lock that nobody holds: in a forked child."""
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether there was no room when that was last looked at, a few seconds ago at most."""
        return self._granted <= 0 and time.monotonic() < self._again

    def take(self, size: int) -> int:
        """How many of `size` bytes may be written now.

        Raises:
            OSError: the directory cannot be listed.
        """
        if self._limit is None:
            return size
        with self._lock:
            if self._granted < size and time.monotonic() >= self._again:
                self._granted = self._found(self._limit, size)
                if self._granted < size:
                    self._again = time.monotonic() + AGAIN_SECONDS
            given = min(size, self._granted)
            self._granted -= given
            return given

    def _found(self, limit: int, size: int) -> int:
        """What may be written before the directory is to be looked at again."""
        free = limit - sum(each.bytes for each in held(self._directory))
        if free < size:
            with evicting(self._directory) as alone:
                if alone:
                    free = self._evict(limit, max(size, limit // SHARE))
        return max(0, min(free, max(free // SHARE, LEAST, size)))

    def _evict(self, limit: int, wanted: int) -> int:
        """Remove what was not used for longest, until so many bytes are free or there is no more; what is free then."""
        copies = held(self._directory)
        free = limit - sum(each.bytes for each in copies)
        own = self._own()
        for each in sorted(copies, key=lambda copy: copy.used):
            # What is used by others since this reader was made is as much needed as what it would write.
            if free >= wanted or each.used >= self._since:
                break
            if each.stem not in own:
                with contextlib.suppress(OSError):
                    remove(each.stem)
                    free += each.bytes
        return free


def remove(stem: str) -> None:
    """Remove the copy whose paths begin so. Who has it open reads on.

    Raises:
        OSError: it is somebody else's. BlockingIOError: somebody is making it complete.
    """
    for suffix in (PART, WHOLE, HAVE):
        _remove_file(stem + suffix)


def _remove_file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):
            fd = stack.enter_context(opened(path, os.O_RDONLY))
            if not atomic_file.lock(fd, path):
                raise BlockingIOError
        os.unlink(path)


_locks: set[int] = set()  # descriptors that hold `evicting.lock`


@contextlib.contextmanager
def evicting(directory: str) -> Iterator[bool]:
    """Be the only process that makes room, if no other does; whether that is so. Ends with the process."""
    with contextlib.ExitStack() as stack:
        alone = False
        with contextlib.suppress(OSError):
            path = os.path.join(directory, LOCK)
            fd = stack.enter_context(opened(path, os.O_RDONLY | os.O_CREAT))
            alone = atomic_file.lock(fd, path)
            if alone:
                _locks.add(fd)
                stack.callback(_locks.discard, fd)
        yield alone


def _close_locks() -> None:
    # Copies of descriptors would keep the lock of a parent that is killed.
    for fd in _locks:
        os.close(fd)
    _locks.clear()


call_in_children(_close_locks)

"""What every worker is doing, in memory that is still readable after a worker was killed."""

import errno
import mmap
import os
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

from ffrecord.errors import file_error

IDLE, SAMPLE, OURS = 0, 1, 2
_PHASE, _INDEX, _BEATS = 0, 1, 2
_WORDS = 8  # int64 a worker: a cache line each


@dataclass(frozen=True)
class Beat:
    """Where a worker is.

    Attributes:
        phase: IDLE (it waits), SAMPLE (in the user's code) or OURS (in this package's).
        index: of the sample it is at; outside SAMPLE the last one it was at.
        beats: changes with every sign of life.
    """

    phase: int
    index: int
    beats: int


class Heart:
    """Where one worker is: written by itself, read by its parent.

    Args:
        words: int64 [8] in shared memory; None for a heart of this process's own.
    """

    def __init__(self, words: memoryview | None = None) -> None:
        self._words = memoryview(bytearray(8 * _WORDS)).cast("q") if words is None else words

    def at(self, phase: int, index: int) -> None:
        """Say in which phase and at which sample this worker is now."""
        words = self._words
        words[_INDEX] = index
        words[_PHASE] = phase
        words[_BEATS] += 1

    def idle(self) -> None:
        """Say that this worker waits."""
        self._words[_PHASE] = IDLE

    def beat(self) -> Beat:
        """What was said last."""
        return Beat(self._words[_PHASE], self._words[_INDEX], self._words[_BEATS])


class Heartbeats:
    """Shared memory of `count` workers. It has no name, so nothing can be left behind.

    Forked workers inherit it, others get its descriptor by pickling.

    Raises:
        OSError (also a RuntimeError): the memory cannot be had; it is reserved, since touching what is not there is a
            SIGBUS.
    """

    def __init__(self, count: int, _fd: int = -1) -> None:
        size = count * _WORDS * 8
        self._count = count
        self._fd = _fd if _fd >= 0 else os.memfd_create("ffrecord-heartbeats", os.MFD_CLOEXEC)
        try:
            if _fd < 0:
                os.posix_fallocate(self._fd, 0, size)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            os.close(self._fd)
            raise file_error(error.errno or errno.ENOMEM, f"{size} bytes of shared memory", "memfd") from None
        self._words = memoryview(self._map).cast("q")

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._count, reduction.DupFd(self._fd))

    def heart(self, worker: int) -> Heart:
        """The heart of one worker."""
        return Heart(self._words[worker * _WORDS : (worker + 1) * _WORDS])

    def close(self) -> None:
        """Give the memory back; hearts are unusable then. May be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._words.release()
            self._map.close()
            os.close(fd)


def _attach(count: int, descriptor: Any) -> Heartbeats:
    return Heartbeats(count, descriptor.detach())

"""The end of a worker interrupts the code of the user in the parent, such as an iterable that waits for a sample.

It does what Ctrl-C does: an exception in the main thread. In other threads a worker's end is noticed when the user's
code comes back.
"""

import contextlib
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from ffrecord.errors import WorkerError
from ffrecord.processes.pool import WorkerPool

SIGNAL = signal.SIGURG  # ignored by default, so one that comes late does no harm
AGAIN = 0.05  # seconds; a signal that comes just before the user's code begins to sleep does not wake it
CERTAIN = 5.0  # seconds within which a worker that has ended is known to have


class DeathInterrupt(BaseException):
    """A worker has ended; nobody but `DeathWatch` should catch this."""


class DeathWatch:
    """A context, in which `armed` code is interrupted.

    Args:
        sentinels: descriptors that become readable when a worker ends; none for no alarm.
    """

    def __init__(self, sentinels: Sequence[int]) -> None:
        main = threading.current_thread() is threading.main_thread()
        self._sentinels = sentinels if main else []
        self._armed = self._rung = False
        self._before: Any = None
        self._over = (-1, -1)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "DeathWatch":
        # A handler that was not installed from Python cannot be put back, so it stays.
        self._before = signal.getsignal(SIGNAL) if self._sentinels else None
        if self._before is not None:
            self._over = os.pipe()
            ident = threading.get_ident()
            self._thread = threading.Thread(target=self._watch, args=(ident,), name="ffrecord-alarm", daemon=True)
            self._thread.start()
            signal.signal(SIGNAL, self._ring)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is not None:
            # Closing would not do: processes that the iterable has forked have it open.
            os.write(self._over[1], b"\0")
            self._thread.join()
            signal.signal(SIGNAL, self._before)
            for fd in self._over:
                os.close(fd)

    def _watch(self, thread: int) -> None:
        """Once a worker has ended, send the signal to a thread until its handler has run."""
        over = self._over[0]
        multiprocessing.connection.wait([*self._sentinels, over])
        while not self._rung and not multiprocessing.connection.wait([over], 0):
            signal.pthread_kill(thread, SIGNAL)
            multiprocessing.connection.wait([over], AGAIN)

    def _any_ended(self) -> bool:
        return bool(multiprocessing.connection.wait(self._sentinels, 0))

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        if not self._any_ended():
            # Sockets send it too, and the runtime of Go: whose it is may see it.
            if callable(self._before):
                self._before(signum, frame)
            return
        self._rung = True
        if self._armed:
            self._armed = False
            raise DeathInterrupt

    @contextlib.contextmanager
    def armed(self, crew: WorkerPool) -> Iterator[None]:
        """Inside, the code of the user runs.

        Raises:
            WorkerError, others: what `crew` says of the worker that ended.
        """
        try:
            self._armed = True
            if self._rung:
                raise DeathInterrupt
            yield
            self._armed = False
        except DeathInterrupt:
            until = time.monotonic() + CERTAIN
            while time.monotonic() < until:
                crew.listen()
            raise WorkerError("the iterable was interrupted, as if a worker had ended") from None
        finally:
            self._armed = False

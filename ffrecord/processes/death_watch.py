"""A watch that interrupts user code in the parent when a worker ends, such as an iterable that waits for a sample.

It works like Ctrl-C: by an exception in the main thread. In other threads the parent notices the end of a worker when
the user's code returns.
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

SIGNAL = signal.SIGURG  # ignored by default, so a late one does no harm
RESEND_SECONDS = 0.05  # a signal that comes just before user code begins to sleep does not wake it, so send it again
NOTICE_SECONDS = 5.0  # time within which the pool surely notices a worker's end


class DeathInterrupt(BaseException):
    """The interruption of user code because a worker has ended; nobody but `DeathWatch` should catch this."""


class DeathWatch:
    """A context that can interrupt user code.

    Args:
        sentinels: descriptors that become readable when a worker ends; none to watch nothing.
    """

    def __init__(self, sentinels: Sequence[int]) -> None:
        # Python runs handlers in the main thread only, so elsewhere no signal can interrupt the user's code.
        main = threading.current_thread() is threading.main_thread()
        self._sentinels = sentinels if main else []
        self._in_user_code = self._worker_ended = False
        self._before: Any = None
        self._stop_pipe = (-1, -1)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "DeathWatch":
        # A handler that was not installed from Python could not be restored: then watch nothing.
        self._before = signal.getsignal(SIGNAL) if self._sentinels else None
        if self._before is not None:
            self._stop_pipe = os.pipe()
            ident = threading.get_ident()
            self._thread = threading.Thread(target=self._watch, args=(ident,), name="ffrecord-death-watch", daemon=True)
            self._thread.start()
            # The handler last: before, the thread may send the signal, and by default it is ignored.
            signal.signal(SIGNAL, self._interrupt)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is not None:
            # Write rather than close: processes that the iterable has forked hold copies of the pipe.
            os.write(self._stop_pipe[1], b"\0")
            # The thread must not send a signal after the handler is gone.
            self._thread.join()
            signal.signal(SIGNAL, self._before)
            for fd in self._stop_pipe:
                os.close(fd)

    def _watch(self, thread: int) -> None:
        """Wait until a worker has ended, then send the signal to a thread until its handler has run."""
        stop = self._stop_pipe[0]
        multiprocessing.connection.wait([*self._sentinels, stop])
        # Again and again: only the handler tells that the signal has arrived.
        while not self._worker_ended and not multiprocessing.connection.wait([stop], 0):
            signal.pthread_kill(thread, SIGNAL)
            multiprocessing.connection.wait([stop], RESEND_SECONDS)

    def _any_ended(self) -> bool:
        return bool(multiprocessing.connection.wait(self._sentinels, 0))

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        # The signal may be of other code, or late.
        if not self._any_ended():
            # Sockets and Go's runtime send this signal too: pass it on to the earlier handler.
            if callable(self._before):
                self._before(signum, frame)
            return
        # Noted also outside user code: `interruptible` then raises at once.
        self._worker_ended = True
        if self._in_user_code:
            self._in_user_code = False  # raise once only
            raise DeathInterrupt

    @contextlib.contextmanager
    def interruptible(self, pool: WorkerPool) -> Iterator[None]:
        """Return a context for user code, which a worker's end interrupts.

        Raises:
            WorkerError, others: the error that `pool` raises about the worker.
        """
        try:
            self._in_user_code = True
            # The worker ended between two calls of the user's code.
            if self._worker_ended:
                raise DeathInterrupt
            yield
            # From here on the user's code has returned, and the result must not be lost.
            self._in_user_code = False
        except DeathInterrupt:
            until = time.monotonic() + NOTICE_SECONDS
            while time.monotonic() < until:
                # The pool knows exit code and sample, so its error is the better one.
                pool.listen()
            raise WorkerError("the iterable was interrupted as if a worker had ended, but all still run") from None
        finally:
            self._in_user_code = False

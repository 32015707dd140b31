"""Batches read by Python functions: at once or by threads while the caller computes; counted, closed when none runs."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ffrecord.errors import ClosedError
from ffrecord.forms import Outcome

Load = Callable[[], Outcome]


class Background:
    """Runs what reads batches.

    Args:
        threads: at most; started as they are needed.

    Attributes:
        closed: whether `close` was called.
        batches, records, bytes: read so far, in this process.

    A forked child has threads and counts of its own.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.closed = False
        self._renew()

    def _renew(self) -> None:
        self._owner = os.getpid()
        self._idle = threading.Condition()
        self._running = 0
        self._pool: ThreadPoolExecutor | None = None
        self.batches = self.records = self.bytes = 0

    def _see_to_forks(self) -> None:
        # Locks and threads of the parent: nobody would ever release them, or run here.
        if self._owner != os.getpid():
            self._renew()

    def now(self, load: Load) -> Outcome:
        """What `load` gives, counted.

        Raises:
            ClosedError: `close` was called; as do `begin`, and what that returns.
        """
        self._see_to_forks()
        with self._idle:
            if self.closed:
                raise ClosedError("closed")
            self._running += 1
        outcome = None
        try:
            outcome = load()
        finally:
            with self._idle:
                self._running -= 1
                if outcome is not None:
                    self._count(outcome)
                self._idle.notify_all()
        return outcome

    def _count(self, outcome: Outcome) -> None:
        result = outcome.result
        self.batches += 1
        self.records += (len(result) if isinstance(result, list) else len(result[1]) - 1) - len(outcome.failures)
        self.bytes += sum(map(len, result)) if isinstance(result, list) else len(result[0])

    def begin(self, load: Load) -> Load:
        """Have a thread run `load`; what waits for it. In a process forked meanwhile, that runs it itself."""
        self._see_to_forks()
        with self._idle:
            if self.closed:
                raise ClosedError("closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "ffrecord")
            future, owner = self._pool.submit(self.now, load), self._owner

        def wait() -> Outcome:
            if os.getpid() != owner:
                return self.now(load)
            if self.closed:
                raise ClosedError("closed")
            return future.result()

        return wait

    def close(self) -> bool:
        """Let nothing begin any more, and wait for what runs; whether this call was the first."""
        self._see_to_forks()
        with self._idle:
            first, self.closed = not self.closed, True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0)
        return first

"""Engine for batches read by Python functions: in the calling thread, or in threads while the caller computes.

It counts the batches, and releases the files when it is closed and no batch runs.
"""

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import NamedTuple

from ffrecord.errors import ClosedError
from ffrecord.reading.batch_forms import BatchOutcome
from ffrecord.system.forks import renew_in_children, snapshot

Load = Callable[[], BatchOutcome]
IDLE_SECONDS = 1.0  # a thread ends after waiting so long for a job


class ReadJob(NamedTuple):
    """Batch to be read by a thread.

    Attributes:
        load: reads it.
        future: receives its outcome.
        threads: it begins only while fewer threads are busy.
    """

    load: Load
    future: "Future[BatchOutcome]"
    threads: int


class ReadThreads:
    """Reads and threads of one process.

    Attributes:
        changed: notified at every change; its lock guards all attributes.
        reading: the thread of each read in progress.
        jobs: jobs that no thread has begun.
        workers: threads that take jobs.
        busy: number of threads that run a job.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()  # with a reentrant lock: a signal handler may take it in the same thread
        self.reading: dict[object, int] = {}
        self.jobs: deque[ReadJob] = deque()
        self.workers: set[threading.Thread] = set()
        self.busy = 0

    def idle(self) -> bool:
        """Tell whether no read is in progress."""
        return not self.reading

    def ready(self) -> bool:
        """Tell whether the next job may begin."""
        return bool(self.jobs) and self.busy < self.jobs[0].threads


class PythonEngine:
    """Runner of the functions that read batches.

    Args:
        release: method of the owner, called once, when it is closed and nothing runs any more. Only a weak reference is
            kept: when the owner dies, the threads end.

    Attributes:
        closed: whether `close` was called.
        batches, records, bytes: read so far, in this process.

    A forked child has its own threads and counts. At the exit of the interpreter, jobs that no thread has begun are
    dropped.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: weakref.WeakMethod[Callable[[], None]] | None
        # Weak: the engine's threads must not keep a reader alive that nobody uses.
        self._release = weakref.WeakMethod(release, partial(_close_orphan, weakref.ref(self)))
        self.closed = False
        self.renew()
        _engines.add(self)
        renew_in_children(self)

    def renew(self) -> None:
        """Forget all reads, in a forked child: no thread of the parent would ever end them."""
        self._pool = ReadThreads()
        self.batches = self.records = self.bytes = 0

    @property
    def lock(self) -> threading.Condition:
        """Lock of the counts of this store; a signal handler may take it again in the same thread."""
        return self._pool.changed

    def run(self, load: Load) -> BatchOutcome:
        """Run `load` in this thread, count its outcome and return it.

        Raises:
            ClosedError: `close` was called. `begin` and the function that it returns raise it too.
        """
        # `pool` is noted first: a fork inside `load` changes `self._pool` in the child.
        pool, token, outcome = self._pool, object(), None
        try:
            with pool.changed:
                # With the thread, so that `close` in a signal handler of it does not wait for itself.
                pool.reading[token] = threading.get_ident()
            if self.closed:  # checked after registering the read: otherwise `close` and this read could miss each other
                raise ClosedError("closed")
            outcome = load()
        finally:
            if pool is self._pool:  # otherwise this is a child that was forked inside `load`
                self._end_read(pool, token, outcome)
        return outcome  # pyright: ignore[reportReturnType]  # never None here

    def _end_read(self, pool: ReadThreads, token: object, outcome: BatchOutcome | None) -> None:
        with pool.changed:
            pool.reading.pop(token, None)
            if outcome is not None:
                self._count(outcome)
            pool.changed.notify_all()
        self._release_if_over(pool)

    def _count(self, outcome: BatchOutcome) -> None:
        result = outcome.result
        self.batches += 1
        if isinstance(result, list) and result and result[0].ndim == 2:  # columns, of records of one size
            self.records += len(result[0]) - len(outcome.failures)
            self.bytes += sum(column.nbytes for column in result)
            return
        self.records += (len(result) if isinstance(result, list) else len(result[1]) - 1) - len(outcome.failures)
        self.bytes += sum(map(len, result)) if isinstance(result, list) else len(result[0])

    def begin(self, load: Load, threads: int) -> Load:
        """Begin a batch: return a function that returns what `load` returns.

        A thread runs `load` as soon as fewer than `threads` are busy. With 0 threads, and in a process that was forked
        meanwhile, the function runs `load` itself.
        """
        pool, future = self._pool, Future[BatchOutcome]()
        with pool.changed:
            if self.closed:
                raise ClosedError("closed")
            # At exit new threads could not be ended any more, so the caller reads by itself.
            if _ending.is_set() or threads == 0:
                return partial(self.run, load)
            # Idle threads first: another one costs more than a waiting job.
            if len(pool.workers) - pool.busy <= len(pool.jobs) and len(pool.workers) < threads:
                self._start(pool)
            pool.jobs.append(ReadJob(load, future, threads))
            pool.changed.notify_all()

        def wait() -> BatchOutcome:
            # Forked meanwhile: the thread that would answer exists in the parent only.
            if pool is not self._pool:
                return self.run(load)
            if self.closed:
                raise ClosedError("closed")
            try:
                return future.result()
            except CancelledError:
                return self.run(load)  # raises if it was closed; otherwise the interpreter is exiting

        return wait

    def _start(self, pool: ReadThreads) -> None:
        # A daemon: the interpreter would otherwise wait for the thread before `_end` can stop it.
        worker = threading.Thread(target=self._work, args=(pool,), name="ffrecord", daemon=True)
        worker.start()
        pool.workers.add(worker)

    def _work(self, pool: ReadThreads) -> None:
        while self._take(pool):
            pass

    def _take(self, pool: ReadThreads) -> bool:
        """Wait for a job and run it; return False if none came for a while."""
        with pool.changed:
            # Ends after a second without jobs, so that a reader at rest has no threads.
            pool.changed.wait_for(lambda: pool.ready() or self.closed or _ending.is_set(), IDLE_SECONDS)
            # Looked at again: jobs may have come together with the end.
            if not pool.ready():
                pool.workers.discard(threading.current_thread())
                return False
            load, future, _ = pool.jobs.popleft()
            pool.busy += 1
        try:
            outcome = self.run(load)
            del load  # it refers to the store: release it before the waiter is told that the job is done
            future.set_result(outcome)
        # Any exception: the waiter gets it, and this thread goes on.
        except BaseException as error:
            future.set_exception(error)
        finally:
            with pool.changed:
                pool.busy -= 1
                pool.changed.notify_all()
        return True

    def drop(self) -> list[threading.Thread]:
        """Drop the jobs that no thread has begun; return the threads, which end as soon as possible."""
        pool = self._pool
        with pool.changed:
            while pool.jobs:
                pool.jobs.popleft().future.cancel()
            pool.changed.notify_all()
            return list(pool.workers)

    def close(self, seconds: float | None = None) -> bool:
        """Refuse further reads and wait for those that run, at most `seconds`; return whether they ended.

        You may call it again. Called inside a read of this thread, for instance by a signal handler, it does not wait:
        the last read in progress then releases the files.
        """
        # Before the wait: reads that begin from now on refuse.
        self.closed = True
        pool, own = self._pool, threading.get_ident()
        workers = self.drop()
        with pool.changed:
            # This thread is inside a read: to wait for it here would never end.
            if own in pool.reading.values():
                return True
            if not pool.changed.wait_for(pool.idle, seconds):
                return False
        try:
            # A signal may interrupt this; the threads are joined anyway.
            self._release_if_over(pool)
        finally:
            for worker in workers:
                worker.join()
        return True

    def _release_if_over(self, pool: ReadThreads) -> None:
        with pool.changed:
            if not self.closed or pool.reading or self._release is None:
                return
            # Taken out under the lock, so that it is called once.
            release, self._release = self._release(), None
        if release is not None:  # None: the owner has died
            release()


def _close_orphan(background: "weakref.ref[PythonEngine]", _: object) -> None:
    left = background()
    # Both may die together.
    if left is not None:
        left.closed = True
        left.drop()


# All engines, for forked children and the exit of the interpreter.
_engines: "weakref.WeakSet[PythonEngine]" = weakref.WeakSet()
_ending = threading.Event()


def _end() -> None:
    """Let threads end before the interpreter does, because it would stop them anywhere."""
    _ending.set()
    for worker in [worker for each in snapshot(_engines) for worker in each.drop()]:
        worker.join()


atexit.register(_end)

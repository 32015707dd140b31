"""Batches read by Python functions: at once or by threads while the caller computes; counted, closed when none runs."""

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
from ffrecord.system.forks import renew_in_children

Load = Callable[[], BatchOutcome]
IDLE_SECONDS = 1.0  # that a thread waits for something to do before it ends


class ReadJob(NamedTuple):
    """A batch to be read by a thread.

    Attributes:
        load: reads it.
        future: what becomes of it.
        threads: it begins only while fewer are at work.
    """

    load: Load
    future: "Future[BatchOutcome]"
    threads: int


class ReadThreads:
    """What is going on in one process.

    Attributes:
        changed: notified when anything of it changes; its lock guards everything here.
        reading: for each read in progress, the thread that is at it.
        jobs: that no thread has begun.
        workers: threads that take them.
        busy: how many of them are at one.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()  # its lock may be taken again by its thread, as in a signal handler
        self.reading: dict[object, int] = {}
        self.jobs: deque[ReadJob] = deque()
        self.workers: set[threading.Thread] = set()
        self.busy = 0

    def idle(self) -> bool:
        """Whether no read is in progress."""
        return not self.reading

    def ready(self) -> bool:
        """Whether the next job may begin."""
        return bool(self.jobs) and self.busy < self.jobs[0].threads


class Background:
    """Runs what reads batches.

    Args:
        release: method of whom it belongs to, without whom its threads end; not kept. Called once, when it is closed
            and nothing runs any more.

    Attributes:
        closed: whether `close` was called.
        batches, records, bytes: read so far, in this process.

    A forked child has threads and counts of its own. At the end of the interpreter what no thread has begun is left.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: weakref.WeakMethod[Callable[[], None]] | None
        self._release = weakref.WeakMethod(release, partial(_orphaned, weakref.ref(self)))
        self.closed = False
        self.renew()
        _all.add(self)
        renew_in_children(self)

    def renew(self) -> None:
        """Forget what is going on: in a forked child, where no thread of the parent would ever end it."""
        self._crew = ReadThreads()
        self.batches = self.records = self.bytes = 0

    def now(self, load: Load) -> BatchOutcome:
        """What `load` gives, counted.

        Raises:
            ClosedError: `close` was called; as do `begin`, and what that returns.
        """
        crew, token, outcome = self._crew, object(), None
        try:
            with crew.changed:
                crew.reading[token] = threading.get_ident()
            if self.closed:  # looked at when `close` can see this read, or one of them would miss the other
                raise ClosedError("closed")
            outcome = load()
        finally:
            if crew is self._crew:  # else this is a child that `load` forked
                self._ended(crew, token, outcome)
        return outcome  # pyright: ignore[reportReturnType]  # never None here

    def _ended(self, crew: ReadThreads, token: object, outcome: BatchOutcome | None) -> None:
        with crew.changed:
            crew.reading.pop(token, None)
            if outcome is not None:
                self._count(outcome)
            crew.changed.notify_all()
        self._release_if_over(crew)

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
        """Have a thread run `load`, when fewer than `threads` are at work; what waits for it.

        In a process forked meanwhile, that runs it itself.
        """
        crew, future = self._crew, Future[BatchOutcome]()
        with crew.changed:
            if self.closed:
                raise ClosedError("closed")
            if _ending.is_set():
                return lambda: self.now(load)
            if len(crew.workers) - crew.busy <= len(crew.jobs) and len(crew.workers) < threads:
                self._start(crew)
            crew.jobs.append(ReadJob(load, future, threads))
            crew.changed.notify_all()

        def wait() -> BatchOutcome:
            if crew is not self._crew:
                return self.now(load)
            if self.closed:
                raise ClosedError("closed")
            try:
                return future.result()
            except CancelledError:
                return self.now(load)  # which says so if it is closed; else the interpreter is ending

        return wait

    def _start(self, crew: ReadThreads) -> None:
        # A daemon, or the interpreter would wait for it before `_end` can tell it to.
        worker = threading.Thread(target=self._work, args=(crew,), name="ffrecord", daemon=True)
        worker.start()
        crew.workers.add(worker)

    def _work(self, crew: ReadThreads) -> None:
        while self._take(crew):
            pass

    def _take(self, crew: ReadThreads) -> bool:
        """Wait for a job and do it; false if there is none for a while."""
        with crew.changed:
            crew.changed.wait_for(lambda: crew.ready() or self.closed or _ending.is_set(), IDLE_SECONDS)
            if not crew.ready():
                crew.workers.discard(threading.current_thread())
                return False
            load, future, _ = crew.jobs.popleft()
            crew.busy += 1
        try:
            outcome = self.now(load)
            del load  # before anybody can know that it is done, and count on the store being free
            future.set_result(outcome)
        except BaseException as error:
            future.set_exception(error)
        finally:
            with crew.changed:
                crew.busy -= 1
                crew.changed.notify_all()
        return True

    def drop(self) -> list[threading.Thread]:
        """Give up what no thread has begun; the threads, which end as soon as they can."""
        crew = self._crew
        with crew.changed:
            while crew.jobs:
                crew.jobs.popleft().future.cancel()
            crew.changed.notify_all()
            return list(crew.workers)

    def close(self, seconds: float | None = None) -> bool:
        """Let nothing begin any more, and wait for what runs, `seconds` at most; whether that ended. May be repeated.

        In the middle of a read of this very thread, as in a signal handler, it does not wait: that read, or one beside
        it, will be the last, and release what there is.
        """
        self.closed = True
        crew, own = self._crew, threading.get_ident()
        workers = self.drop()
        with crew.changed:
            if own in crew.reading.values():
                return True
            if not crew.changed.wait_for(crew.idle, seconds):
                return False
        try:
            self._release_if_over(crew)
        finally:
            for worker in workers:
                worker.join()
        return True

    def _release_if_over(self, crew: ReadThreads) -> None:
        with crew.changed:
            if not self.closed or crew.reading or self._release is None:
                return
            release, self._release = self._release(), None
        if release is not None:
            release()


def _orphaned(background: "weakref.ref[Background]", _: object) -> None:
    left = background()
    if left is not None:
        left.closed = True
        left.drop()


# In a child nothing runs yet that could be disturbed.
_all: "weakref.WeakSet[Background]" = weakref.WeakSet()
_ending = threading.Event()


def _end() -> None:
    """Let threads end before the interpreter does, which would stop them wherever they are."""
    _ending.set()
    for worker in [worker for each in list(_all) for worker in each.drop()]:
        worker.join()


atexit.register(_end)

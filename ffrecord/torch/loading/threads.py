"""Building of batches by threads, which hand them over in order.

The threads are daemons, and nothing joins them: a thread that hangs in a function of the user keeps neither the loop
nor the interpreter from ending. Threads hold the pool, never the user's iterator. So an abandoned iterator is
collected, and its finalizer stops the threads.
"""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import torch

from ffrecord.errors import BatchTimeoutError, StateError
from ffrecord.system.forks import snapshot
from ffrecord.torch.loading.batch_builder import Activity, BuiltBatch, RawBatch
from ffrecord.torch.stop_iteration import describe_batch

__all__ = ["CLOSED", "BatchThreads"]

EXIT_SECONDS = 1.0  # wait for threads at the end of the interpreter; threads that hang longer are left
CLOSED = "the loop was closed while it waited for a batch"

Finish = Callable[[RawBatch, Activity], BuiltBatch]

_pools: "weakref.WeakSet[BatchThreads]" = weakref.WeakSet()


class BatchThreads:
    """An iterator of finished batches, in order, from a pool of threads.

    Args:
        raws: batches as read; one thread at a time takes from it.
        finish: builds a batch.
        threads: number of threads, >= 1.
        ahead: batches that are being built, or wait, while the caller works with one, >= 1.
        timeout: seconds to wait for a batch; None for ever.

    An error comes in the turn of its batch.

    Raises:
        RuntimeError: a thread cannot be started. No other thread runs on then.
    """

    def __init__(
        self, raws: Iterator[RawBatch], finish: Finish, threads: int, ahead: int, timeout: float | None = None
    ) -> None:
        self._raws, self._finish, self._ahead, self._timeout = raws, finish, ahead, timeout
        self._owner = os.getpid()
        # A thread takes `_turn` first, and `_changed` inside it; never the other way round.
        self._turn = threading.Lock()  # guards `raws`
        self._changed = threading.Condition()  # guards the attributes down to `_done`
        self._stopped = False
        self._ready = 0  # threads that have set torch to compute with one thread
        self._failed: BaseException | None = None  # error of a thread that could not
        self._taken = self._given = 0  # batches taken from `raws`, and handed to the caller
        self._end: int | None = None  # number of batches, once known
        self._done: dict[int, BuiltBatch | BaseException] = {}
        self._activities: dict[int, tuple[RawBatch, Activity]] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"ffrecord-loader-{i}", daemon=True) for i in range(threads)
        ]
        _pools.add(self)
        self._start()

    def _start(self) -> None:
        """Start the threads, and wait until each computes alone.

        torch's number of threads holds for the thread that sets it, and for all threads that compute for the first time
        later. This thread has its own number, because it asks for it first. It restores the number for later threads,
        once no other thread will set it.
        """
        before = torch.get_num_threads()
        try:
            for thread in self._threads:
                thread.start()
            with self._changed:
                while self._ready < len(self._threads) and self._failed is None:
                    self._changed.wait()
            if self._failed is not None:
                raise self._failed
        except BaseException:
            self.stop()
            raise
        finally:
            torch.set_num_threads(before)

    def __iter__(self) -> "BatchThreads":
        return self

    def __next__(self) -> BuiltBatch:
        """Return the next batch.

        Raises:
            BatchTimeoutError: it took longer than `timeout`.
            StateError: the pool was stopped, or belongs to the parent of a forked process.
        """
        if self._owner != os.getpid():
            raise StateError("this iterator was begun before a fork, and its threads are the parent's: begin another")
        with self._changed:
            deadline = None if self._timeout is None else time.monotonic() + self._timeout
            while self._given not in self._done:
                if self._end is not None and self._given >= self._end:
                    raise StopIteration
                if self._stopped:
                    raise StateError(CLOSED)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise self._timeout_error()
                self._changed.wait(left)
            found = self._done.pop(self._given)
            self._given += 1
            self._changed.notify_all()
        if isinstance(found, BaseException):
            raise found
        return found

    def _timeout_error(self) -> BatchTimeoutError:
        raw, activity = self._activities.get(self._given, (None, Activity()))
        what = "the batch" if raw is None else describe_batch(raw.step.indices.tolist())
        sample = "" if activity.index is None else f" of sample {activity.index}"
        return BatchTimeoutError(
            f"{what} was not ready after {self._timeout:g} s: a thread is still at its {activity.stage}{sample}"
        )

    def stop(self) -> None:
        """Let the threads end as soon as they have finished their present work, and forget the batches."""
        # A forked child has none of the threads, and one of them may have held a lock at the fork.
        if self._owner != os.getpid():
            return
        with self._changed:
            self._stopped = True
            self._done.clear()
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the threads until `deadline`, of time.monotonic()."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    # In the threads

    def _work(self) -> None:
        if not self._prepare():
            return
        while (taken := self._take()) is not None:
            number, raw = taken
            found: BuiltBatch | BaseException
            if isinstance(raw, BaseException):
                found = raw
            else:
                activity = Activity()
                self._activities[number] = raw, activity
                try:
                    found = self._finish(raw, activity)
                except BaseException as error:
                    found = _without_frames(error)
                del self._activities[number]
            del raw, taken
            self._hand_over(number, found)
            del found

    def _prepare(self) -> bool:
        """Compute alone, unless the pool is stopped already; return whether to go on."""
        with self._changed:
            if self._stopped:
                return False
            try:
                _compute_alone()
            except BaseException as error:
                self._failed = _without_frames(error)
            self._ready += 1
            self._changed.notify_all()
            return self._failed is None

    def _take(self) -> tuple[int, RawBatch | BaseException] | None:
        """Return the next batch to finish and its number, None if there is no more."""
        with self._turn:
            with self._changed:
                while not self._stopped and self._end is None and self._taken - self._given >= self._ahead:
                    self._changed.wait()
                if self._stopped or self._end is not None:
                    return None
                number = self._taken
            try:
                raw: RawBatch | BaseException = next(self._raws)
            except StopIteration:
                self._close(number)
                return None
            except BaseException as error:
                raw = _without_frames(error)
            with self._changed:
                self._taken += 1
            return number, raw

    def _close(self, end: int) -> None:
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _hand_over(self, number: int, found: BuiltBatch | BaseException) -> None:
        with self._changed:
            if not self._stopped:
                self._done[number] = found
            self._changed.notify_all()


def _compute_alone() -> None:
    """Let torch compute with this thread only, as it does in its own workers.

    Else each thread would get its own helpers, one for each CPU, which spin while they wait. Stacking 64 images of 224
    x 224 took 1.2 s instead of 0.03 s on a busy machine.
    """
    torch.get_num_threads()  # initialises this thread's number; else its first computation would reset it
    torch.set_num_threads(1)


def _without_frames(error: BaseException) -> BaseException:
    """Return `error` without the frames of this thread, which lead to all batches in flight; its causes keep theirs."""
    return error.with_traceback(None)


def _stop_all() -> None:
    """Stop all threads before the interpreter ends: a daemon inside C++ code could crash the process then."""
    pools = snapshot(_pools)
    for pool in pools:
        pool.stop()
    deadline = time.monotonic() + EXIT_SECONDS
    for pool in pools:
        pool.join(deadline)


atexit.register(_stop_all)

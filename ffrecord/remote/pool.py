"""Threads that wait for answers: all batches of a process share a bounded number of requests."""

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from ffrecord.errors import ClosedError, RemoteError
from ffrecord.system.forks import call_in_children

Task = Callable[[], object]
IDLE_SECONDS = 5.0  # a thread without a task ends after this time
END_SECONDS = 2.0  # longest wait for answers when a reader or the interpreter ends


class Round:
    """Tasks that one caller waits for.

    Args:
        count: number of tasks.
        owner: object that may abandon them; None for nobody.

    Attributes:
        owner: the argument.
        left: number of tasks that have not ended.
        error: the first exception of any task. From then on, tasks that have not begun are skipped.
        over: event that is set when no task is left.
    """

    def __init__(self, count: int, owner: object) -> None:
        self.left, self.owner = count, owner
        self.error: BaseException | None = None
        self.over = threading.Event()

    def give_up(self, error: Exception) -> None:
        """End the wait for these tasks with an error."""
        self.error = self.error or error
        self.over.set()


class Pool:
    """At most `most` threads. They start as tasks come, and end when they are idle for a while."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[Round, Task] | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._rounds: set[Round] = set()  # rounds that a caller waits for
        self._unfinished = 0

    def run(self, tasks: Sequence[Task], owner: object = None) -> None:
        """Run all tasks, in any order, and return when none runs any more.

        Args:
            owner: object by which `give_up` finds them.

        Raises:
            The exception of the task that failed first. After an exception of the wait itself, such as
                KeyboardInterrupt, running tasks are not waited for.
        """
        # Threads cannot be started at exit, so this thread does the work.
        if _ending.is_set():
            for task in tasks:
                task()
            return
        if not tasks:
            return
        # Also a single task goes to a thread: in a blocking call, this thread could not handle signals.
        begun = Round(len(tasks), owner)
        try:
            self._rounds.add(begun)
            for task in self._queue_tasks(begun, tasks):
                self._do(begun, task)
            begun.over.wait()
        except BaseException as error:
            # Tasks that have not begun are skipped, since nobody waits.
            begun.error = error
            raise
        finally:
            self._rounds.discard(begun)
        failed = begun.error
        if failed is not None:
            # The error refers to frames that refer to the round.
            begun.error = GONE
            try:
                raise failed
            finally:
                del failed  # breaks the cycle of the exception and this frame

    def begin(self, task: Task, owner: object = None) -> bool:
        """Queue a task that nobody waits for; its exceptions are dropped. Return False if it will not run.

        After `give_up` it may not run either.
        """
        if _ending.is_set():
            return False
        begun = Round(1, owner)
        # Held in the set, or nobody could give it up.
        self._rounds.add(begun)
        if not self._queue_tasks(begun, [task]):
            return True
        # No thread could be started; the tasks are not queued.
        self._rounds.discard(begun)
        with self._lock:
            self._unfinished -= 1
        return False

    def _queue_tasks(self, begun: Round, tasks: Sequence[Task]) -> Sequence[Task]:
        """Queue tasks for the threads. Return the tasks if no thread can be started: the caller runs them."""
        with self._lock:
            left = len(tasks)
            self._unfinished += left
            try:
                if not self._start():
                    left = 0
                    return tasks
                for task in tasks:
                    self._queue.put((begun, task))
                    left -= 1
            finally:
                # Tasks that did not get into the queue must not be counted.
                self._unfinished -= left
        return ()

    def _start(self) -> bool:
        """Start as many threads as the tasks need, or as the system allows. Return whether there are any."""
        # No more threads than tasks, and no more than allowed.
        for _ in range(min(self._most, self._unfinished) - len(self._threads)):
            # A daemon: the interpreter waits for other threads before it calls `_end`, which tells them to end.
            thread = threading.Thread(target=self._work, name="ffrecord remote", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # the limit of the system or of this process
                break
            self._threads.add(thread)
        return bool(self._threads)

    def _work(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    # More threads than tasks: this one may go. Else a task is on its way to it.
                    if self._unfinished < len(self._threads):
                        self._threads.discard(threading.current_thread())
                        return
                continue
            if item is None:
                return
            self._do(*item)
            # A task may refer to a reader, which must not live on because of an idle thread.
            del item

    def _do(self, begun: Round, task: Task) -> None:
        _doing.round = begun
        try:
            # After the first error nobody needs the others.
            if begun.error is None:
                task()
        except BaseException as error:
            if begun.error is None:
                begun.error = error
        finally:
            # Several threads end tasks of one round.
            with self._lock:
                self._unfinished -= 1
                begun.left -= 1
                over = begun.left == 0
            if over:
                self._rounds.discard(begun)  # of a task that nobody waits for
                begun.over.set()

    def give_up(self, owner: object) -> None:
        """End the waits for tasks of `owner`: `run` raises ClosedError."""
        # A copy: threads remove rounds meanwhile.
        for begun in list(self._rounds):
            if begun.owner is owner:
                begun.give_up(ClosedError("closed"))

    def end(self, deadline: float) -> None:
        """End the threads, and all waits for those that have not ended by `deadline`."""
        with self._lock:
            threads = list(self._threads)
        try:
            # Tasks that have not begun fail at once.
            while (item := self._queue.get_nowait()) is not None:
                self._do(item[0], _refuse)
        except Empty:
            pass
        # One for each thread; each ends at the first that it takes.
        for _ in threads:
            self._queue.put(None)
        # All of them together get the time that is left.
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        # Threads that wait for a silent server are left behind.
        for begun in list(self._rounds):
            begun.give_up(_ending_error())


def _ending_error() -> RemoteError:
    return RemoteError("the interpreter is ending, so nothing more is read")


def _refuse() -> None:
    raise _ending_error()


def pool(most: int) -> Pool:
    """Return this process's pool of so many threads."""
    with _lock:
        if most not in _pools:
            _pools[most] = Pool(most)
        return _pools[most]


def pause(seconds: float) -> bool:
    """Wait. Return true if the interpreter is ending, or nobody waits for this thread's task any more."""
    ending = _ending.wait(seconds)
    begun: Round | None = getattr(_doing, "round", None)
    return ending or (begun is not None and begun.error is not None)


GONE = ClosedError("the caller no longer waits")  # replaces a raised error, which would keep its frames alive
_doing = threading.local()  # `round`: the round of the thread's current or last task
_pools: dict[int, Pool] = {}
_left_by_parents: list[Any] = []  # never freed: the locks of their queues may be held by threads that are gone
_lock = threading.Lock()
_ending = threading.Event()


def _renew_after_fork() -> None:
    global _pools, _lock, _ending
    _left_by_parents.append((_pools, _lock, _ending))
    _pools, _lock, _ending = {}, threading.Lock(), threading.Event()


def _end() -> None:
    """End the threads before the interpreter does, which would stop them at any point.

    Threads that wait for a silent server are left: stopping them during that wait does no harm.
    """
    _ending.set()
    deadline = time.monotonic() + END_SECONDS
    for each in list(_pools.values()):
        each.end(deadline)


call_in_children(_renew_after_fork)
atexit.register(_end)

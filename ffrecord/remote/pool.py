"""Threads that wait for answers: the requests of all batches of a process, so many at once."""

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from ffrecord.errors import ClosedError, RemoteError
from ffrecord.system.forks import call_in_children

Task = Callable[[], object]
IDLE_SECONDS = 5.0  # that a thread waits for something to do before it ends
END_SECONDS = 2.0  # that answers are waited for at the end of a reader, or of the interpreter


class Round:
    """Tasks that somebody waits for.

    Args:
        count: of them.
        owner: who may give them up; None for nobody.

    Attributes:
        owner: as given.
        left: how many have not ended.
        error: what the first of them raised that did; those that have not begun are left out then.
        over: set when none is left.
    """

    def __init__(self, count: int, owner: object) -> None:
        self.left, self.owner = count, owner
        self.error: BaseException | None = None
        self.over = threading.Event()

    def give_up(self, error: Exception) -> None:
        """Let nobody wait for them any more."""
        self.error = self.error or error
        self.over.set()


class Pool:
    """At most `most` threads. They are as many as have something to do, and end when there is nothing for a while."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[Round, Task] | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._rounds: set[Round] = set()  # that somebody waits for
        self._unfinished = 0

    def run(self, tasks: Sequence[Task], owner: object = None) -> None:
        """Run all of them, in any order; returns when none runs any more.

        Args:
            owner: with which `give_up` finds them.

        Raises:
            What the first that failed raised; or what came in between, such as KeyboardInterrupt: what runs then is not
            waited for.
        """
        if _ending.is_set():
            for task in tasks:
                task()
            return
        if not tasks:
            return
        begun = Round(len(tasks), owner)  # also for one: this thread would not hear of signals while it asks itself
        try:
            self._rounds.add(begun)
            for task in self._given(begun, tasks):
                self._do(begun, task)
            begun.over.wait()
        except BaseException as error:
            begun.error = error
            raise
        finally:
            self._rounds.discard(begun)
        failed = begun.error
        if failed is not None:
            begun.error = GONE
            try:
                raise failed
            finally:
                del failed  # or it and the frames that it passes would keep each other

    def _given(self, begun: Round, tasks: Sequence[Task]) -> Sequence[Task]:
        """Give tasks to the threads; those that are left where there can be none."""
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
                self._unfinished -= left
        return ()

    def _start(self) -> bool:
        """Have as many threads as are needed, or as there can be; whether there are any."""
        for _ in range(min(self._most, self._unfinished) - len(self._threads)):
            # A daemon, or the interpreter would wait for it before `_end` can tell it to.
            thread = threading.Thread(target=self._work, name="ffrecord remote", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # the system lets this process have no more
                break
            self._threads.add(thread)
        return bool(self._threads)

    def _work(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._unfinished < len(self._threads):
                        self._threads.discard(threading.current_thread())
                        return
                continue
            if item is None:
                return
            self._do(*item)
            del item

    def _do(self, begun: Round, task: Task) -> None:
        _doing.round = begun
        try:
            if begun.error is None:
                task()
        except BaseException as error:
            if begun.error is None:
                begun.error = error
        finally:
            with self._lock:
                self._unfinished -= 1
                begun.left -= 1
                over = begun.left == 0
            if over:
                begun.over.set()

    def give_up(self, owner: object) -> None:
        """Let nobody wait any more for what was run for `owner`: a ClosedError is raised instead."""
        for begun in list(self._rounds):
            if begun.owner is owner:
                begun.give_up(ClosedError("closed"))

    def end(self, deadline: float) -> None:
        """Let the threads end as soon as they can, and nobody wait for those that have not by `deadline`."""
        with self._lock:
            threads = list(self._threads)
        try:
            while (item := self._queue.get_nowait()) is not None:
                self._do(item[0], _refuse)
        except Empty:
            pass
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for begun in list(self._rounds):
            begun.give_up(_ended())


def _ended() -> RemoteError:
    return RemoteError("the interpreter is ending")


def _refuse() -> None:
    raise _ended()


def pool(most: int) -> Pool:
    """The one of this process with so many threads."""
    with _lock:
        if most not in _pools:
            _pools[most] = Pool(most)
        return _pools[most]


def pause(seconds: float) -> bool:
    """Wait; whether the interpreter began to end, or nobody waits any more for what this thread does."""
    ending = _ending.wait(seconds)
    begun: Round | None = getattr(_doing, "round", None)
    return ending or (begun is not None and begun.error is not None)


GONE = ClosedError("nobody waits any more")  # what an error becomes that was raised, or it would keep its frames
_doing = threading.local()  # its `round` is what the thread is at, or was
_pools: dict[int, Pool] = {}
_left_by_parents: list[Any] = []  # their queues have locks that nobody gives back
_lock = threading.Lock()
_ending = threading.Event()


def _forked() -> None:
    global _pools, _lock, _ending
    _left_by_parents.append((_pools, _lock, _ending))
    _pools, _lock, _ending = {}, threading.Lock(), threading.Event()


def _end() -> None:
    """Let threads end before the interpreter does, which would stop them wherever they are.

    A server that is silent is not waited for: its threads are stopped while they wait for it, which harms nothing.
    """
    _ending.set()
    deadline = time.monotonic() + END_SECONDS
    for each in list(_pools.values()):
        each.end(deadline)


call_in_children(_forked)
atexit.register(_end)

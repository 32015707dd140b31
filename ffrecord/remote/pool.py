"""Threads that wait for answers: the requests of all batches of a process, so many at once."""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from ffrecord.errors import RemoteError

Task = Callable[[], object]
IDLE_SECONDS = 5.0  # that a thread waits for something to do before it ends


class Round:
    """Tasks that somebody waits for.

    Attributes:
        left: how many have not ended.
        error: what the first of them raised that did; those that have not begun are left out then.
        over: set when none is left.
    """

    def __init__(self, count: int) -> None:
        self.left = count
        self.error: BaseException | None = None
        self.over = threading.Event()


class Pool:
    """At most `most` threads. They are as many as have something to do, and end when there is nothing for a while."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[Round, Task] | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._unfinished = 0

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all of them, in any order; returns when none runs any more.

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
        begun = Round(len(tasks))  # also for one: this thread would not hear of signals while it asks itself
        try:
            self._start(len(tasks))
            for task in tasks:
                self._queue.put((begun, task))
            begun.over.wait()
        except BaseException as error:
            begun.error = error
            raise
        failed, begun.error = begun.error, None
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # or it and the frames that it passes would keep each other

    def _start(self, count: int) -> None:
        with self._lock:
            self._unfinished += count
            for _ in range(min(self._most, self._unfinished) - len(self._threads)):
                # A daemon, or the interpreter would wait for it before `_end` can tell it to.
                thread = threading.Thread(target=self._work, name="ffrecord remote", daemon=True)
                self._threads.add(thread)
                thread.start()

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

    def end(self) -> None:
        """Let the threads end as soon as they can."""
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
            thread.join()


def _refuse() -> None:
    raise RemoteError("the interpreter is ending")


def pool(most: int) -> Pool:
    """The one of this process with so many threads."""
    with _lock:
        if most not in _pools:
            _pools[most] = Pool(most)
        return _pools[most]


def pause(seconds: float) -> bool:
    """Wait; whether the interpreter began to end."""
    return _ending.wait(seconds)


_pools: dict[int, Pool] = {}
_left_by_parents: list[Any] = []  # their queues have locks that nobody gives back
_lock = threading.Lock()
_ending = threading.Event()


def _forked() -> None:
    global _pools, _lock, _ending
    _left_by_parents.append((_pools, _lock, _ending))
    _pools, _lock, _ending = {}, threading.Lock(), threading.Event()


def _end() -> None:
    """Let threads end before the interpreter does, which would stop them wherever they are."""
    _ending.set()
    for each in list(_pools.values()):
        each.end()


os.register_at_fork(after_in_child=_forked)
atexit.register(_end)

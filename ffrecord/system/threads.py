"""Lists that several threads work through, while the caller waits.

Four other modules have pools of their own, because their threads end in other ways. In reading/python_engine.py
`close` waits for the reads of one store, also from a signal handler. In remote/pool.py all readers of a process share a
number of requests, thousands a second, and a silent server cannot hold the interpreter. In torch/loading/threads.py
batches come in order, and user code that hangs is left behind. In dataset_writer/remote/uploads.py an upload can be
cancelled.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], things: Collection[T], threads: int) -> list[R]:
    """Return the result of `function` for each thing, in order.

    Args:
        function: called by up to `threads` threads at once, one of them the caller's. If no more threads can start,
            those there are do the work.
        things: its arguments.
        threads: >= 1.

    Raises:
        The exception of the first thing that failed; one that is no Exception, such as KeyboardInterrupt, comes before
            the others. Calls that have not begun are dropped, those that run are waited for.
    """
    todo = list(things)
    made: list[Any] = [None] * len(todo)
    failures: dict[int, BaseException] = {}
    places = deque(range(len(todo)))  # shared by the threads: each place goes to one of them, in ascending order

    def work() -> None:
        while True:
            try:
                place = places.popleft()
            except IndexError:
                return
            try:
                made[place] = function(todo[place])
            except BaseException as error:
                failures[place] = error
                places.clear()

    count = min(threads, len(todo)) - 1
    if count < 1:
        work()
    else:
        # The futures are waited for first: Thread.join, once interrupted, takes its thread for finished.
        with ThreadPoolExecutor(count, "ffrecord") as pool:
            helpers = []
            try:
                with contextlib.suppress(RuntimeError):  # no more threads can start
                    for _ in range(count):
                        helpers.append(pool.submit(work))
                work()
                wait(helpers)
            finally:
                places.clear()
    if failures:
        try:
            raise failures[min(failures, key=lambda place: (isinstance(failures[place], Exception), place))]
        finally:
            failures.clear()  # its traceback holds this frame: else the error would keep itself and `things` alive
    return made

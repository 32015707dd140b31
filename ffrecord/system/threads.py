"""Lists that several threads work through, while the caller waits."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], things: Collection[T], threads: int) -> list[R]:
    """Return the result of `function` for each thing, in order.

    Args:
        function: called by up to `threads` threads at once; by the caller's thread if there is only one thing.
        things: its arguments.
        threads: >= 1.

    Raises:
        The exception of the first thing that failed. Calls that have not begun are dropped, those that run are waited
            for.
    """
    if len(things) < 2:
        return [function(each) for each in things]
    with ThreadPoolExecutor(min(threads, len(things)), "ffrecord") as pool:
        try:
            return list(pool.map(function, things))
        except BaseException:  # also of a signal handler, in this thread
            pool.shutdown(wait=False, cancel_futures=True)
            raise

"""Prefetching of batches: some are being read while the caller works with an earlier one."""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ffrecord.errors import add_note

T = TypeVar("T")

BEGUN = "While this batch was begun:"  # begins the note with the traceback of an error that comes later


class Prefetcher(Generic[T]):
    """Iterator over the results of batches.

    Args:
        batches: an argument of `begin` for each batch.
        begin: starts reading a batch; returns a function that waits for it and returns its result.
        ahead: number of batches being read while the caller works with one, >= 0.

    An error, of a batch or of `batches`, is raised in its turn; the batches after it still follow. Threads must not
    share the iterator without a lock.
    """

    def __init__(self, batches: Iterable[Any], begin: Callable[[Any], Callable[[], T]], ahead: int) -> None:
        self._batches: Iterator[Any] | None = iter(batches)
        self._begin = begin
        self._ahead = ahead
        self._begun: deque[Callable[[], T]] = deque()

    def __iter__(self) -> "Prefetcher[T]":
        return self

    def __next__(self) -> T:
        # One more than `ahead`: the one that the caller waits for.
        while self._batches is not None and len(self._begun) <= self._ahead:
            self._begin_one(self._batches)
        if not self._begun:
            raise StopIteration
        try:
            result = self._begun[0]()
        # Other exceptions, a KeyboardInterrupt for instance, leave the batch where it is.
        except Exception:
            self._begun.popleft()
            raise
        # Remove the batch only now: after a KeyboardInterrupt in the wait, it can still be read.
        self._begun.popleft()
        return result

    def _begin_one(self, batches: Iterator[Any]) -> None:
        try:
            self._begun.append(self._begin(next(batches)))
        except StopIteration:
            self._batches = None
        # Kept for its turn: batches before it are still good.
        except Exception as error:
            self._begun.append(_raise_later(error))

    def close(self) -> None:
        """Give up the batches being read, after waiting for them. The iterator is then exhausted."""
        self._batches = None
        self._begun.clear()


def _raise_later(error: Exception) -> Callable[[], Any]:
    """Return a function that raises an error in its turn.

    Meanwhile the error has no traceback: its frames lead back to the object that keeps the error, and such a cycle
    would keep all batches in flight alive until a garbage collection. A note keeps the text of the traceback.
    """
    add_note(error, f"{BEGUN}\n" + "".join(traceback.format_tb(error.__traceback__)))
    # The context would lead to the same frames.
    error.__context__ = None
    kept = error.with_traceback(None)

    def result() -> Any:
        raise kept

    return result

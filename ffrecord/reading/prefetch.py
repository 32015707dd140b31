"""Batches in the order asked for, some of them being read while the caller works with an earlier one."""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ffrecord.errors import add_note

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """An iterator over the results of batches.

    Args:
        batches: whatever `begin` takes, one for each batch.
        begin: starts reading a batch, and returns what waits for it and gives its result.
        ahead: batches that may be being read while the caller works with one, >= 0.

    An error, of a batch or of `batches`, is raised in its turn; the batches after it are still there. Not to be
    shared by threads without a lock.
    """

    def __init__(self, batches: Iterable[Any], begin: Callable[[Any], Callable[[], T]], ahead: int) -> None:
        self._batches: Iterator[Any] | None = iter(batches)
        self._begin = begin
        self._ahead = ahead
        self._begun: deque[Callable[[], T]] = deque()

    def __iter__(self) -> "Prefetcher[T]":
        return self

    def __next__(self) -> T:
        while self._batches is not None and len(self._begun) <= self._ahead:
            self._begin_one(self._batches)
        if not self._begun:
            raise StopIteration
        try:
            result = self._begun[0]()
        except Exception:
            self._begun.popleft()
            raise
        # Not before: after a KeyboardInterrupt the batch is still to be had.
        self._begun.popleft()
        return result

    def _begin_one(self, batches: Iterator[Any]) -> None:
        try:
            self._begun.append(self._begin(next(batches)))
        except StopIteration:
            self._batches = None
        except Exception as error:
            self._begun.append(_raising(error))

    def close(self) -> None:
        """Give up what is being read, after waiting for it. Nothing comes any more."""
        self._batches = None
        self._begun.clear()


def _raising(error: Exception) -> Callable[[], Any]:
    """What raises an error in its turn.

    It has no traceback meanwhile: frames lead back to what keeps the error, and such a cycle would keep all that is in
    flight until a collection. What it said goes into a note.
    """
    add_note(error, "While this batch was begun:\n" + "".join(traceback.format_tb(error.__traceback__)))
    error.__context__ = None
    kept = error.with_traceback(None)

    def result() -> Any:
        raise kept

    return result

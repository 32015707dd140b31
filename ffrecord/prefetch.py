"""Batches in the order asked for, some of them being read while the caller works with an earlier one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

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
        return self._begun.popleft()()

    def _begin_one(self, batches: Iterator[Any]) -> None:
        try:
            self._begun.append(self._begin(next(batches)))
        except StopIteration:
            self._batches = None
        except Exception as error:
            # Without this frame, which leads back to the error: a cycle would keep alive what is in flight.
            rest = error.__traceback__.tb_next if error.__traceback__ else None
            self._begun.append(_raising(error.with_traceback(rest)))

    def close(self) -> None:
        """Give up what is being read, after waiting for it. Nothing comes any more."""
        self._batches = None
        self._begun.clear()


def _raising(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result

"""Prefetching of batches: some are being read while the caller works with an earlier one."""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ffrecord.errors import StateError, add_note
from ffrecord.system.forks import renew_in_children

T = TypeVar("T")

BEGUN = "While this batch was begun:"  # begins the note with the traceback of an error that comes later


class Turn:
    """The right to go on with an iterator. One thread at a time has it, and the others wait for it."""

    def __init__(self) -> None:
        self._taker: int | None = None  # the thread that has it
        self._lost = False
        self._lock = threading.RLock()
        renew_in_children(self)

    def renew(self) -> None:
        """Take a new lock in a forked child, unless its only thread has the turn."""
        if self._taker != threading.get_ident():
            self._lost |= self._taker is not None
            self._taker, self._lock = None, threading.RLock()

    def take(self, step: Callable[..., T], *args: Any) -> T:
        """Return step(*args), called when it is the turn of this thread.

        Raises:
            ValueError: a signal handler, or code that the step runs, goes on with the same iterator.
            StateError: this is a forked child, and another thread of its parent had the turn. Nobody knows how far it
                got.
        """
        with self._lock:
            if self._lost:
                raise StateError(
                    "this process was forked while another thread read from this iterator; make another one"
                )
            # The lock lets a thread in that has it already.
            if self._taker is not None:
                raise ValueError("this iterator is at work in the code below; make another one here")
            try:
                self._taker = threading.get_ident()
                return step(*args)
            finally:
                self._taker = None


class Prefetcher(Generic[T]):
    """Iterator over the results of batches.

    Args:
        batches: an argument of `begin` for each batch.
        begin: starts reading a batch; returns a function that waits for it and returns its result.
        ahead: number of batches being read while the caller works with one, >= 0.

    An error, of a batch or of `batches`, is raised in its turn; the batches after it still follow. Threads may share
    the iterator: each batch goes to one of them.
    """

    def __init__(self, batches: Iterable[Any], begin: Callable[[Any], Callable[[], T]], ahead: int) -> None:
        self._batches: Iterator[Any] | None = iter(batches)
        self._begin = begin
        self._ahead = ahead
        self._begun: deque[Callable[[], T]] = deque()
        self._turn = Turn()

    def __iter__(self) -> "Prefetcher[T]":
        return self

    def __next__(self) -> T:
        return self._turn.take(self._next)

    def _next(self) -> T:
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

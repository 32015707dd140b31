"""Opening and closing of objects with files: all or none, at the end of a `with` block, and when nobody closes them."""

import contextlib
import logging
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, TypeVar

from ffrecord.errors import escape_unprintable
from ffrecord.system.atomic_file import PartFile


class Closable(Protocol):
    """Object that has to be closed after use."""

    def close(self) -> object:
        """Release descriptors and mappings."""


logger = logging.getLogger("ffrecord")

T = TypeVar("T", bound=Closable)
Self = TypeVar("Self")


def open_all(things: Iterable[T]) -> list[T]:
    """Return all objects of an iterable that opens one after the other; if one fails, close those before it."""
    opened: list[T] = []
    try:
        for each in things:
            opened.append(each)
    except BaseException:
        _close_all(opened)
        raise
    return opened


@contextlib.contextmanager
def close_unless_done(things: Iterable[Closable]) -> Iterator[None]:
    """Context manager of the rest of a constructor: if it raises, close what is in `things` then."""
    try:
        yield
    except BaseException:
        _close_all(things)
        raise


def _close_all(things: Iterable[Closable]) -> None:
    for each in things:
        with contextlib.suppress(OSError):  # only the first error is reported
            each.close()


class ClosedByWith:
    """A base of readers: the end of a `with` block closes them."""

    __slots__ = ()  # without it, no class with slots could have this base

    @abstractmethod
    def close(self) -> object:
        """Release descriptors and mappings. You may call it again."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def log_loss(sentence: str, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    """Log what is lost of a writer that nobody closed, except at the end of Python, where logging has ended.

    The ResourceWarning that tells it, too, is one of those that Python hides by default.
    """
    if not finalizing():
        logger.warning("%s; use it in a `with` block", escape_unprintable(sentence))


class SingleFileWriter:
    """A base of writers of one file, which appears complete at `close`, or not at all.

    The end of a `with` block closes the writer; an exception discards everything. A writer that nobody closes is
    discarded with a ResourceWarning and a line in the log.

    Subclasses define `close`, `_discard` and `_describe_unfinished`, and keep their temporary file in `_part`.
    """

    __slots__ = ()

    _part: PartFile | None

    @abstractmethod
    def close(self) -> None:
        """Publish the file. You may call it again."""

    @abstractmethod
    def _discard(self) -> None:
        """Discard everything that is not published. You may call it again."""

    @abstractmethod
    def _describe_unfinished(self) -> tuple[str, str] | None:
        """Return the path and how much was written, for messages; None if nothing is left to close.

        The constructor may have failed before.
        """

    def _leave(self) -> None:
        """Discard what the end of a `with` block has not published."""
        self._discard()

    def _drop(self, path: str, written: str) -> str | None:
        """Discard a writer that nobody refers to any more. Return a warning in the process that opened it."""
        owned = self._part is not None and self._part.owned
        self._discard()
        if not owned:
            return None
        sentence = f"{path}: nobody called close() on the writer, which discarded {written}"
        log_loss(sentence)
        return sentence

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.close()
        finally:
            self._leave()

    def __del__(self) -> None:
        unfinished = self._describe_unfinished()
        sentence = None if unfinished is None else self._drop(*unfinished)
        if sentence is not None:
            warnings.warn(escape_unprintable(sentence), ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

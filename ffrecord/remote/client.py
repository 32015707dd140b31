"""What is asked of a store of objects, whichever package talks to it."""

from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Any, NamedTuple, Protocol


def never() -> bool:
    """Nothing is given up."""
    return False


class FetchedObject(NamedTuple):
    """Bytes of an object.

    Attributes:
        data: a buffer, read-only.
        size: of the whole object, bytes; -1 where the store does not say.
        etag: what tells this version of the object from others; None where the store does not say.
    """

    data: Any
    size: int
    etag: str | None


class Client(Protocol):
    """Objects by their paths, in one bucket or on one host.

    Safe to be used by many threads at once; each call waits, without the GIL. Nothing is tried twice here, but for
    what writes: see `retrying`. Messages say URLs without what is secret.

    Raises, each of them:
        MissingFileError: there is no such object.
        RemotePermissionError: it may not be had with these credentials, or with none.
        TransientError: what may go well when it is tried again.
        RemoteError: anything else.
    """

    def get(self, path: str, most: int) -> FetchedObject:
        """All of an object.

        Raises:
            RemoteError: it has more than `most` bytes; none was taken in.
        """
        ...

    def get_start(self, path: str, most: int) -> FetchedObject:
        """The first `most` bytes of an object, or all of a smaller one.

        Raises:
            NoRangesError: the server gives whole objects only.
        """
        ...

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> FetchedObject:
        """Bytes [start, stop) of an object, 0 <= start < stop: all of them, or an error.

        Raises:
            ChangedError: it is not the version of `etag` any more.
            NoRangesError: the server gives whole objects only.
            TransientError: fewer bytes came.
        """
        ...

    def head(self, path: str) -> tuple[int, str | None]:
        """(size in bytes, etag) of an object."""
        ...

    def put(self, path: str, data: bytes, *, replaces: str | EllipsisType | None = ...) -> str | None:
        """Write an object, which appears whole; its etag.

        Args:
            replaces: the etag of what it is to replace; None for nothing; without it, whatever is there. Where a store
                cannot compare and write in one step, it is compared first.

        Raises:
            ChangedError: something else is there; nothing was written.
        """
        ...

    def put_file(self, path: str, local: str, *, stop: Callable[[], bool] = never) -> str | None:
        """The same of a file, in parts if it is large.

        Args:
            stop: asked now and then, whether to give it up: then nothing is written, and an error raised.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object. One that is not there is no error on most stores."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int, str | None]]:
        """(path, size in bytes, etag) of the objects below a path."""
        ...

    def url(self, path: str) -> str:
        """What an object is called in messages."""
        ...

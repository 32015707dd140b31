"""The interface of a client of an object store. Each package that makes connections has one implementation."""

from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Any, NamedTuple, Protocol

from ffrecord.errors import ChangedError, MissingFileError
from ffrecord.remote.errors import changed_error

SIZE_MAX = (1 << 63) - 1  # of an object, bytes


def never() -> bool:
    """Return False: do not stop."""
    return False


class FetchedObject(NamedTuple):
    """Bytes of an object.

    Attributes:
        data: read-only buffer.
        size: size of the whole object, bytes; -1 if the store does not say.
        etag: identifier of this version of the object; None if the store does not say.
    """

    data: Any
    size: int
    etag: str | None


class Client(Protocol):
    """Objects by their paths, in one bucket or on one host.

    Many threads can use one client at once. Each call waits for its answer without the GIL. Reads are tried once:
    `retrying` repeats them. Messages contain URLs without secrets.

    All methods raise:
        MissingFileError: there is no such object.
        RemotePermissionError: the credentials, or a request without any, are refused.
        TransientError: another try may succeed.
        RemoteError: anything else.
    """

    def get(self, path: str, most: int) -> FetchedObject:
        """Read a whole object.

        Raises:
            RemoteError: it has more than `most` bytes; none of them is kept.
        """
        ...

    def get_start(self, path: str, most: int) -> FetchedObject:
        """Read the first `most` bytes of an object, or all of a smaller one.

        Raises:
            NoRangesError: the server gives whole objects only.
        """
        ...

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> FetchedObject:
        """Read bytes [start, stop) of an object, 0 <= start < stop.

        Raises:
            ChangedError: the object is no longer the version of `etag`.
            NoRangesError: the server gives whole objects only.
            TransientError: fewer bytes came.
        """
        ...

    def head(self, path: str) -> tuple[int, str | None]:
        """Return (size in bytes, etag) of an object."""
        ...

    def put(self, path: str, data: bytes, *, replaces: str | EllipsisType | None = ...) -> str | None:
        """Write an object and return its etag. Readers see all of it or none.

        Args:
            replaces: etag of the object to replace; None if there must be none; by default, any object is replaced. If
                a store cannot compare and write in one step, the client compares first.

        Raises:
            ChangedError: another object is there; nothing was written.
        """
        ...

    def put_file(self, path: str, local: str, *, stop: Callable[[], bool] = never) -> str | None:
        """Write a file as an object, in parts if it is large, and return its etag.

        Args:
            stop: called now and then; if it returns True, nothing is written and an error is raised.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object. On most stores, a missing object is no error."""
        ...

    def list(self, prefix: str) -> Iterator[tuple[str, int, str | None]]:
        """Yield (path, size in bytes, etag) of each object below a path."""
        ...

    def url(self, path: str) -> str:
        """Return the name of an object for messages."""
        ...


def check_there(client: Client, path: str, replaces: str | EllipsisType | None) -> None:
    """Raise ChangedError unless the object at a path has the etag `replaces`.

    None means that there must be no object. A write by somebody else between this check and the write that follows is
    not noticed.
    """
    try:
        _, etag = client.head(path)
    except MissingFileError:
        if replaces is None:
            return
        # Another writer has removed it; to create it now could undo that.
        raise ChangedError(f"{client.url(path)}: the file was removed meanwhile") from None
    if replaces is None:
        raise ChangedError(f"{client.url(path)} already exists")
    # None: the store knows no versions, so nothing can be compared.
    if etag not in (None, replaces):
        raise changed_error(client.url(path), replaces, etag)

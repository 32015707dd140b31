"""Conditional writes for stores that cannot compare and write in one step."""

from types import EllipsisType

from ffrecord.errors import ChangedError, MissingFileError
from ffrecord.remote.client import Client
from ffrecord.remote.errors import changed_error


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
        raise ChangedError(f"{client.url(path)}: the file was removed meanwhile") from None
    if replaces is None:
        raise ChangedError(f"{client.url(path)} exists already")
    if etag not in (None, replaces):
        raise changed_error(client.url(path), replaces, etag)

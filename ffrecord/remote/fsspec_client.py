"""Any file system of fsspec, for what obstore does not have."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeVar

from ffrecord import urls
from ffrecord.errors import ChangedError, FFRecordError, MissingFileError, RemoteError, TransientError
from ffrecord.fields.optional import require
from ffrecord.remote.client import Fetched, never
from ffrecord.remote.comparing import check_there
from ffrecord.remote.refusals import no_ranges, refused, short, too_large

T = TypeVar("T")

AGAIN = {408, 425, 429, 500, 502, 503, 504}
ETAGS = ("ETag", "etag", "e_tag", "md5", "checksum", "generation")


class FsspecClient:
    """A `Client` of one file system of fsspec. It does not say of what version of an object a range is.

    Args:
        root: "scheme://", and a query to be had at the end of every URL.
        options: keyword arguments of the file system.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self._scheme, _, _, self._query = urls.split(root)
        fsspec = require("fsspec", "fsspec", f"reading from {self._scheme}://")
        # Not one that others use, or that a parent process had before it forked.
        self._files = fsspec.filesystem(self._scheme, skip_instance_cache=True, **options)
        self._whole = self._scheme in ("http", "https")  # whose file systems take URLs for paths

    def __repr__(self) -> str:
        return f"<FsspecClient of {self._scheme}>"

    def url(self, path: str) -> str:
        """What an object is called in messages."""
        return urls.redacted(f"{self._scheme}://{path}{'?' if self._query else ''}{self._query}")

    def get(self, path: str, most: int) -> Fetched:
        """All of an object, of at most `most` bytes."""
        # One byte more than that tells what is too large; without a request for its size.
        data = self._asked(path, partial(self._files.cat_file, self._path(path), start=0, end=most + 1))
        if len(data) > most:
            raise too_large(self.url(path), len(data), most)
        return Fetched(data, len(data), None)

    def get_start(self, path: str, most: int) -> Fetched:
        """The first `most` bytes of an object, or all of a smaller one."""
        size, etag = self.head(path)
        stop = most if size < 0 else min(most, size)
        if not stop:
            return Fetched(b"", 0, etag)
        data = self._asked(path, partial(self._files.cat_file, self._path(path), start=0, end=stop))
        if len(data) > stop:
            raise no_ranges(self.url(path))
        if size >= 0 and len(data) < stop:
            raise short(self.url(path), len(data), stop)
        return Fetched(data, size if size >= 0 or len(data) == most else len(data), etag)

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> Fetched:
        """Bytes [start, stop) of an object."""
        data = self._asked(path, partial(self._files.cat_file, self._path(path), start=start, end=stop))
        if len(data) > stop - start:
            raise no_ranges(self.url(path))
        if len(data) < stop - start:
            raise short(self.url(path), len(data), stop - start)
        return Fetched(data, -1, None)

    def head(self, path: str) -> tuple[int, str | None]:
        """(size in bytes, etag) of an object."""
        info = self._asked(path, partial(self._files.info, self._path(path)))
        size = info.get("size")
        return -1 if size is None else int(size), _etag(info)

    def put(self, path: str, data: bytes, *, replaces: str | EllipsisType | None = ...) -> str | None:
        """Write an object; what it is to replace is looked at first."""
        if replaces is not ...:
            check_there(self, path, replaces)
        self._asked(path, partial(self._files.pipe_file, self._path(path), bytes(data)))
        return None

    def put_file(self, path: str, local: str, *, stop: Callable[[], bool] = never) -> str | None:
        """Write a file; once begun it is not given up."""
        if stop():
            raise RemoteError(f"{self.url(path)}: given up")
        self._asked(path, partial(self._files.put_file, str(Path(local)), self._path(path)))
        return None

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._asked(path, partial(self._files.rm_file, self._path(path)))

    def list(self, prefix: str) -> Iterator[tuple[str, int, str | None]]:
        """(path, size in bytes, etag) of the objects below a path."""
        found = self._asked(prefix, partial(self._files.find, self._path(prefix), detail=True))
        for path, info in sorted(found.items()):
            yield path.partition("://")[2] if self._whole else path, int(info.get("size") or 0), _etag(info)

    def _path(self, path: str) -> str:
        query = f"?{self._query}" if self._query else ""
        return f"{self._scheme}://{path}{query}" if self._whole else path

    def _asked(self, path: str, call: "partial[T]") -> T:
        try:
            return call()
        except FFRecordError:
            raise
        except Exception as error:
            # Its message may have the whole URL.
            raised = error_of(error, self.url(path))
        raise raised from None


def error_of(error: Exception, url: str) -> Exception:
    """What to raise in place of what a file system of fsspec, or what it is made of, raised."""
    status = getattr(error, "status", getattr(error, "status_code", None))
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or status == 404:
        return MissingFileError(2, f"{url} does not exist", url)
    if isinstance(error, PermissionError) or status in (401, 403, 407):
        return refused(url, f"HTTP status {status}" if status else kind)
    if isinstance(error, asyncio.TimeoutError | TimeoutError) or "Timeout" in kind:
        return TransientError(f"{url}: no answer in time")
    if "Certificate" in kind or "SSL" in kind:
        return RemoteError(f"{url}: TLS failed ({kind})")
    if status == 416:
        return ChangedError(f"{url}: it has fewer bytes than its tables say: damaged, or replaced")
    if (
        status in AGAIN
        or (status is None and isinstance(error, OSError))
        or "Payload" in kind
        or "Disconnected" in kind
    ):
        return TransientError(f"{url}: {f'HTTP status {status}' if status else f'the connection failed ({kind})'}")
    return RemoteError(f"{url}: {f'HTTP status {status}' if status else kind}")


def _etag(info: Mapping[str, Any]) -> str | None:
    return next((str(info[name]) for name in ETAGS if info.get(name)), None)

"""A client over any file system of fsspec, for schemes that obstore does not have; also over web servers."""

import inspect
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

from ffrecord.errors import ArgumentError, FFRecordError, MissingFileError, RemoteError, TransientError
from ffrecord.remote.client import SIZE_MAX, FetchedObject, check_there, never
from ffrecord.remote.errors import (
    answer_error,
    changed_error,
    compressed_error,
    long_body_error,
    no_length_error,
    no_ranges_error,
    not_http_error,
    range_error,
    redirect_error,
    short_body_error,
    too_large_error,
)
from ffrecord.remote.fsspec_errors import error_of
from ffrecord.system import urls
from ffrecord.system.requirements import import_optional, require

REDIRECTS = 10
REDIRECTED = (301, 302, 303, 307, 308)
RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})\s*")
PIECE = 1 << 20  # bytes taken from a body at once
# Options that identify the user. They are sent only to the origin of the URL.
PRIVATE = ("headers", "auth", "cookies", "cookie_jar")


class BoundedResponse(NamedTuple):
    """A response of a server.

    Attributes:
        status: 200 or 206.
        data: the body, at most one byte longer than the limit; empty if it was not to be read.
        size: size of the whole object, bytes; -1 if the server does not say.
        etag: etag of the object; None if the server does not say.
    """

    status: int
    data: bytes
    size: int
    etag: str | None


async def fetch(files: Any, url: str, shown: str, span: tuple[int, int] | None, most: int) -> BoundedResponse:
    """Request an object, or a part of it, from a web server.

    Args:
        files: file system of fsspec.
        url: URL of the object.
        shown: the same URL for messages.
        span: bytes [start, stop) to request; None for all.
        most: most bytes of the body to read; one more shows that it is longer. If the server answers a range request
            with a whole object that is larger, its body is not read.

    Raises:
        The errors of `answer_error`: the server refuses.
        RemoteError: the answer is unusable.
        Exceptions of aiohttp.
    """
    options = dict(files.kwargs)
    ours = {"Accept-Encoding": "identity"}  # a compressed body would have an unknown size when unpacked
    if span is not None:
        # HTTP ranges include their last byte.
        ours["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    headers = {**dict(options.pop("headers", None) or {}), **ours}
    # Redirects are followed here: aiohttp would send the user's headers to any host.
    options.pop("allow_redirects", None)
    session, target = await files.set_session(), files.encode_url(url)
    origin = target.origin()
    # The number of redirects is bounded, as a loop of them would never end.
    aiohttp = require("aiohttp", "fsspec", "reading from HTTP")
    for _ in range(REDIRECTS):
        try:
            async with session.get(target, headers=headers, allow_redirects=False, **options) as answer:
                if answer.status not in REDIRECTED or not answer.headers.get("Location"):
                    return await _read_answer(answer, shown, span, most)
                found = answer.headers["Location"]
        except aiohttp.ClientResponseError:  # only for what it cannot parse, as it raises nothing for a status
            raise not_http_error(shown) from None
        except aiohttp.ClientPayloadError as error:
            raise TransientError(f"{shown}: the connection failed ({type(error).__name__})") from None
        try:
            target = target.join(files.encode_url(found))
        except ValueError:
            raise redirect_error(shown, "", "") from None
        # To a file: or ftp: address, which must not be read.
        if target.scheme not in ("http", "https"):
            raise redirect_error(shown, "", "")
        if target.origin() != origin:
            # Another origin must not see credentials.
            session, headers = await _anonymous_session(files), ours
            options = {name: value for name, value in options.items() if name not in PRIVATE}
    raise RemoteError(f"{shown}: the server redirects more than {REDIRECTS} times")


async def _anonymous_session(files: Any) -> Any:
    """Return a session that does not identify the user. It is made once for each file system."""
    found = getattr(files, "_ffrecord_anonymous", None)
    if found is None:
        given = {name: value for name, value in files.client_kwargs.items() if name not in PRIVATE}
        found = files._ffrecord_anonymous = await files.get_client(loop=files.loop, **given)
        # Closed with the file system; nobody else knows the session.
        weakref.finalize(files, files.close_session, files.loop, found)
    return found


async def _read_answer(answer: Any, shown: str, span: tuple[int, int] | None, most: int) -> BoundedResponse:
    # 416 with size 0: an empty object has no first byte.
    if answer.status == 416 and answer.headers.get("Content-Range", "").endswith("/0"):
        return BoundedResponse(206, b"", 0, answer.headers.get("ETag"))
    if answer.status not in (200, 206):
        raise answer_error(shown, answer.status)
    # A server may compress although nobody asked for it.
    if answer.headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
        raise compressed_error(shown)
    if answer.status == 206:
        size = _parse_range(answer.headers, shown, span)
    else:
        length = answer.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() else -1
        if size < 0 and "chunked" not in answer.headers.get("Transfer-Encoding", "").lower():
            raise no_length_error(shown)
    # A server without ranges sends everything: do not read a huge body in vain.
    wanted = answer.status == 206 or span is None or 0 <= size <= most
    data = await _body(answer, most) if wanted else b""
    return BoundedResponse(answer.status, data, size, answer.headers.get("ETag"))


async def _body(answer: Any, most: int) -> bytes:
    """Read a body up to `most` + 1 bytes. If more follow, leaving the response closes the connection."""
    pieces, left = [], most + 1
    # `content.read` may give fewer bytes than asked for.
    while left and (piece := await answer.content.read(min(left, PIECE))):
        pieces.append(piece)
        left -= len(piece)  # one byte more than wanted shows a body that is too long
    return b"".join(pieces)


def _parse_range(headers: Mapping[str, str], shown: str, span: tuple[int, int] | None) -> int:
    """Return the size of the object, bytes, from the headers of a part.

    Raises:
        RemoteError: it is not the part that was requested, or does not say which it is, or how large the object is.
    """
    said = RANGE.fullmatch(headers.get("Content-Range", ""))
    if said is None or span is None:
        raise range_error(shown)
    start, last, size = map(int, said.groups())
    if start != span[0] or last != min(span[1], size) - 1 or not start <= last < size <= SIZE_MAX:
        raise range_error(shown)
    return size


CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0  # over HTTP, for a connection and for the next bytes: as in obstore
CALL_SECONDS = 120.0  # for a call of an asyncio file system; calls of others cannot be ended from outside
LONG = ("find", "put_file")  # calls that may take any time
ETAGS = ("ETag", "etag", "e_tag", "md5", "checksum", "generation")


class Shared:
    """State that all threads share.

    Attributes:
        files: the file system; None until the first use.
    """

    files: Any = None


class FsspecClient:
    """A `Client` over one file system of fsspec. Ranges do not carry a version, except over HTTP.

    Args:
        root: "scheme://host" of the file system, with a query that is appended to every URL.
        options: keyword arguments of the file system.

    Raises:
        ImportError: fsspec, or a package that its file system needs, is not installed.
        ArgumentError: fsspec has no file system for this scheme.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self._scheme, self._host, _, self._query = urls.split_url(root)
        self._options = dict(options)
        self._fsspec = require("fsspec", "fsspec", f"reading from {self._scheme}://")
        try:
            self._kind = self._fsspec.get_filesystem_class(self._scheme)
        except ValueError:
            # fsspec says ValueError for an unknown scheme.
            raise ArgumentError(f"{urls.redact(root)}: fsspec has no file system for {self._scheme}://") from None
        except ImportError as error:
            # The package that is missing may be named by the cause only.
            name = getattr(error.__cause__, "name", None) or error.name
            how = f"needs {name}: pip install {name}" if name else f"cannot be imported: {error}"
            raise ImportError(f"{urls.redact(root)}: fsspec's file system for it {how}", name=name) from None
        self._whole = self._scheme in ("http", "https")  # these file systems take URLs as paths
        # All threads share an asyncio file system. Of others, each thread has its own, as fsspec itself does: two
        # threads cannot use one FTP connection.
        self._mine: Any = Shared() if self._kind.async_impl else threading.local()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<FsspecClient of {self._scheme}>"

    def url(self, path: str) -> str:
        """Return the name of an object for messages."""
        if not self._whole:
            return urls.redact(f"{self._scheme}://{path}")
        return urls.redact(self._web_url(path))

    def _web_url(self, path: str) -> str:
        host, _, key = path.partition("/")
        query = f"?{self._query}" if self._query else ""
        return f"{self._scheme}://{host}/{urls.quote_path(key)}{query}"

    def get(self, path: str, most: int) -> FetchedObject:
        """Read a whole object of at most `most` bytes."""
        if self._whole:
            found = self._fetch(path, None, most)
            self._check_size(path, found, most)
            return FetchedObject(found.data, len(found.data), found.etag)
        # One byte more than the limit shows that an object is too large, without another request for its size.
        data = self._request(path, "cat_file", self._path(path), start=0, end=most + 1)
        if len(data) > most:
            raise too_large_error(self.url(path), len(data), most)
        return FetchedObject(data, len(data), None)

    def get_start(self, path: str, most: int) -> FetchedObject:
        """Read the first `most` bytes of an object, or all of a smaller one."""
        if self._whole:
            found = self._fetch(path, (0, most), most)
            # 200 instead of 206: all of it came, which is fine if it is small.
            if found.status != 206 and not 0 <= found.size <= most:
                raise no_ranges_error(self.url(path))
            self._check_length(path, found, min(most, found.size))
            return FetchedObject(found.data, found.size, found.etag)
        # The file system has no "first bytes", so its size is needed.
        size, etag = self.head(path)
        stop = most if size < 0 else min(most, size)
        if not stop:
            return FetchedObject(b"", 0, etag)
        data = self._request(path, "cat_file", self._path(path), start=0, end=stop)
        # Some file systems ignore `end`.
        if len(data) > stop:
            raise no_ranges_error(self.url(path))
        if size >= 0 and len(data) < stop:
            raise short_body_error(self.url(path), len(data), stop)
        return FetchedObject(data, size if size >= 0 or len(data) == most else len(data), etag)

    def get_range(self, path: str, start: int, stop: int, etag: str | None = None) -> FetchedObject:
        """Read bytes [start, stop) of an object."""
        if self._whole:
            found = self._fetch(path, (start, stop), stop - start)
            if found.status != 206:
                raise no_ranges_error(self.url(path))
            # Compared only if the server tells versions.
            if etag is not None and found.etag is not None and etag != found.etag:
                raise changed_error(self.url(path), etag, found.etag)
            self._check_length(path, found, stop - start)
            return FetchedObject(found.data, found.size, found.etag)
        data = self._request(path, "cat_file", self._path(path), start=start, end=stop)
        # Too much came: the file system ignores ranges.
        if len(data) > stop - start:
            raise no_ranges_error(self.url(path))
        if len(data) < stop - start:
            raise short_body_error(self.url(path), len(data), stop - start)
        return FetchedObject(data, -1, None)

    def head(self, path: str) -> tuple[int, str | None]:
        """Return (size in bytes, etag) of an object."""
        if self._whole:  # by a range, since a signature may be for GET only
            found = self._fetch(path, (0, 1), 1)
            return found.size, found.etag
        info = self._request(path, "info", self._path(path))
        size = info.get("size")
        return -1 if size is None else int(size), _etag(info)

    def _fetch(self, path: str, span: tuple[int, int] | None, most: int) -> BoundedResponse:
        """Request bytes from a web server."""
        url, shown = self._path(path), self.url(path)

        def ask() -> Any:
            # In the thread of fsspec's event loop; this one waits without the GIL.
            files = self._files()
            return self._fsspec.asyn.sync(files.loop, fetch, files, url, shown, span, most, timeout=CALL_SECONDS)

        found: BoundedResponse = self._translate_errors(path, ask)
        return found

    def _check_size(self, path: str, found: BoundedResponse, most: int) -> None:
        size = max(found.size, len(found.data))
        # The header or the body, whichever is larger.
        if size > most:
            raise too_large_error(self.url(path), size, most)
        if 0 <= found.size != len(found.data):
            raise short_body_error(self.url(path), len(found.data), found.size)

    def _check_length(self, path: str, found: BoundedResponse, expected: int) -> None:
        if len(found.data) > expected:
            raise long_body_error(self.url(path), expected)
        if len(found.data) < expected:
            raise short_body_error(self.url(path), len(found.data), expected)

    def put(self, path: str, data: bytes, *, replaces: str | EllipsisType | None = ...) -> str | None:
        """Write an object. `replaces` is compared in a separate step before."""
        # fsspec cannot compare and write in one step.
        if replaces is not ...:
            check_there(self, path, replaces)
        self._request(path, "pipe_file", self._path(path), bytes(data))
        return None

    def put_file(self, path: str, local: str, *, stop: Callable[[], bool] = never) -> str | None:
        """Write a file. Once begun, the upload does not stop."""
        if stop():
            raise RemoteError(f"{self.url(path)}: the upload was stopped")
        self._request(path, "put_file", str(Path(local)), self._path(path))
        return None

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._request(path, "rm_file", self._path(path))

    def list(self, prefix: str) -> Iterator[tuple[str, int, str | None]]:
        """Yield (path, size in bytes, etag) of each object below a path."""
        found = self._request(prefix, "find", self._path(prefix), detail=True)
        # File systems differ in whether names begin with the host.
        start = len(self._path(prefix))  # behind it, our paths and those of the file system are the same
        for path, info in sorted(found.items()):
            yield f"{prefix}{path[start:]}", int(info.get("size") or 0), _etag(info)

    def _path(self, path: str) -> str:
        """Return the name of an object in the file system. Most of them expect it without the host.

        Raises:
            ArgumentError: the file system would take another object. Some drop all that follows a `?`.
        """
        if self._whole:
            return str(self._kind._strip_protocol(self._web_url(path)))
        found = str(self._kind._strip_protocol(f"{self._scheme}://{path}"))
        # A name that loses its end is another object's.
        if not found.endswith(path.partition("/")[2].strip("/")):
            raise ArgumentError(
                f"{self.url(path)}: fsspec's file system for {self._scheme}:// changes this name to {found}"
            )
        return found

    def _files(self) -> Any:
        """Return the file system for this thread."""
        found = getattr(self._mine, "files", None)
        if found is not None:
            return found
        if self._kind.async_impl:
            with self._lock:
                # Two threads may come at once.
                if self._mine.files is None:
                    self._mine.files = self._make_files()
                return self._mine.files
        self._mine.files = self._make_files()
        return self._mine.files

    def _make_files(self) -> Any:
        # fsspec keeps its instances. Without `skip_instance_cache`, other code of this process might use the same one,
        # or a child might get that of its parent, whose event loop does not run after a fork.
        url = f"{self._scheme}://{self._host}"
        return self._fsspec.core.url_to_fs(url, skip_instance_cache=True, **self._limits(), **self._options)[0]

    def _limits(self) -> dict[str, Any]:
        """Return options that bound the wait for a silent server.

        The dict is empty if the file system has no such options, or the user gave some.
        """
        aiohttp = import_optional("aiohttp") if self._whole else None
        if aiohttp is None or "client_kwargs" in self._options:
            return {}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        return {"client_kwargs": {"timeout": limits}}

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        files, ours = self._files(), getattr(self._kind, f"_{name}", None)
        # A coroutine can be given a time limit, a plain call cannot.
        if name in LONG or not inspect.iscoroutinefunction(ours):
            return getattr(files, name)(*args, **options)
        call = getattr(files, f"_{name}")
        return self._fsspec.asyn.sync(files.loop, call, *args, timeout=CALL_SECONDS, **options)

    def _request(self, path: str, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the file system and return its result.

        The first call makes the file system, and may connect.
        """
        return self._translate_errors(path, lambda: self._call(name, *args, **options))

    def _translate_errors(self, path: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (FFRecordError, MissingFileError, ImportError):
            raise
        except Exception as error:
            # Its message may contain the whole URL, with secrets: hence a new error, "from None" and out of `except`.
            raised = error_of(error, self.url(path))
        raise raised from None


def _etag(info: Mapping[str, Any]) -> str | None:
    return next((str(info[name]) for name in ETAGS if info.get(name)), None)

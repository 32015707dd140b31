"""Web servers through fsspec's aiohttp: bodies of bounded size, and the user's headers for one origin only."""

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from ffrecord.errors import RemoteError

REDIRECTS = 10
REDIRECTED = (301, 302, 303, 307, 308)
PIECE = 1 << 20  # bytes taken from a body at once
# Options that identify the user. They are sent only to the origin of the URL.
PRIVATE = ("headers", "auth", "cookies", "cookie_jar")


class StatusError(Exception):
    """An answer that is an error; only its status matters.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class BoundedResponse(NamedTuple):
    """A response of a server.

    Attributes:
        status: 200 or 206.
        data: the body, at most one byte longer than the limit; empty if it was not to be read.
        start: first byte of the range; 0 for a whole object.
        size: size of the whole object, bytes; -1 if the server does not say.
        etag: etag of the object; None if the server does not say.
    """

    status: int
    data: bytes
    start: int
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
        StatusError: the server refuses.
        RemoteError: the answer is unusable.
        Exceptions of aiohttp.
    """
    options = dict(files.kwargs)
    ours = {"Accept-Encoding": "identity"}  # a compressed body would have an unknown size when unpacked
    if span is not None:
        ours["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    headers = {**dict(options.pop("headers", None) or {}), **ours}
    options.pop("allow_redirects", None)
    session, target = await files.set_session(), files.encode_url(url)
    origin = target.origin()
    for _ in range(REDIRECTS):
        async with session.get(target, headers=headers, allow_redirects=False, **options) as answer:
            if answer.status not in REDIRECTED or not answer.headers.get("Location"):
                return await _read_answer(answer, shown, span, most)
            target = target.join(files.encode_url(answer.headers["Location"]))
        if target.scheme not in ("http", "https"):
            raise RemoteError(f"{shown}: the server redirects to an address that cannot be read")
        if target.origin() != origin:
            session, headers = await _anonymous_session(files), ours
            options = {name: value for name, value in options.items() if name not in PRIVATE}
    raise RemoteError(f"{shown}: the server redirects more than {REDIRECTS} times")


async def _anonymous_session(files: Any) -> Any:
    """Return a session that does not identify the user. It is made once for each file system."""
    found = getattr(files, "_ffrecord_anonymous", None)
    if found is None:
        given = {name: value for name, value in files.client_kwargs.items() if name not in PRIVATE}
        found = files._ffrecord_anonymous = await files.get_client(loop=files.loop, **given)
        weakref.finalize(files, files.close_session, files.loop, found)
    return found


async def _read_answer(answer: Any, shown: str, span: tuple[int, int] | None, most: int) -> BoundedResponse:
    if answer.status == 416 and answer.headers.get("Content-Range", "").endswith("/0"):
        return BoundedResponse(206, b"", 0, 0, answer.headers.get("ETag"))
    if answer.status not in (200, 206):
        raise StatusError(answer.status)
    if answer.headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
        raise RemoteError(f"{shown}: the server sends it compressed, expected plain bytes")
    start, size = _parse_range(answer.headers, answer.status)
    if answer.status == 206 and (span is None or start != span[0]):
        raise RemoteError(f"{shown}: the server sent from byte {start}, expected {None if span is None else span[0]}")
    wanted = answer.status == 206 or span is None or 0 <= size <= most
    data = await _body(answer, most) if wanted else b""
    return BoundedResponse(answer.status, data, start, size, answer.headers.get("ETag"))


async def _body(answer: Any, most: int) -> bytes:
    """Read a body up to `most` + 1 bytes. If more follow, leaving the response closes the connection."""
    pieces, left = [], most + 1
    while left and (piece := await answer.content.read(min(left, PIECE))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _parse_range(headers: Mapping[str, str], status: int) -> tuple[int, int]:
    """Return (first byte, size of the object) from the headers."""
    if status == 206:
        span, _, size = headers.get("Content-Range", "").partition("/")
        start = span.removeprefix("bytes ").partition("-")[0].strip()
        return int(start) if start.isdecimal() else -1, int(size) if size.isdecimal() else -1
    length = headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else -1

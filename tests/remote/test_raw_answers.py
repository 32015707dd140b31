"""One table of answers: what each is for every backend. None is data that was not asked for."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_answers import DATA, greeting_server, raw_server

from ffrecord import FileReader
from ffrecord.errors import FormatError, NoRangesError, RemoteError, RemotePermissionError, TransientError
from ffrecord.remote.connecting import connect

RIGHT = ("", "")  # no error
RANGE = (RemoteError, r"the server sends another range than requested, or does not say which \(Content-Range\)")
PACKED = (RemoteError, r"the server sends it compressed \(Content-Encoding\), expected plain bytes")
NO_HTTP = (RemoteError, "the answer is not HTTP; check the address, its port, and proxies on the way")
BROKEN = (TransientError, r"the connection (failed|ended early)|\d+ bytes arrived, expected \d+|\(Content-Length\)")
ELSEWHERE = (RemoteError, "the server redirects (to an address that cannot be read|more than 10 times)")
NO_LENGTH = (RemoteError, r"the server does not say how large the file is \(Content-Length\)")

# Kind of answer → what a request for a range ends in.
TABLE: dict[str, Any] = {
    **dict.fromkeys(("as it should", "old", "interim", "encoding identity"), RIGHT),
    **dict.fromkeys(("another first byte", "another last byte", "fewer bytes", "negative", "other unit"), RANGE),
    **dict.fromkeys(("any size", "size too small", "size of 40 digits", "nothing of the range", "no digits"), RANGE),
    **dict.fromkeys(("size of zero", "size beyond 63 bits", "another first byte, the right last one"), RANGE),
    **dict.fromkeys(("encoding gzip", "encoding br", "encoding aes128gcm", "packed"), PACKED),
    **dict.fromkeys(("bytes only", "ssh", "ftp", "zeros", "no status", "length many", "length -1"), NO_HTTP),
    **dict.fromkeys(("nothing", "cut", "empty part"), BROKEN),
    "whole": (NoRangesError, "the server sends only whole files"),
    **dict.fromkeys(("to /again", "to ftp://127.0.0.1/x", "to file:///etc/passwd", "to data:,x"), ELSEWHERE),
    **dict.fromkeys(("to http://[::bad", "to ", "elsewhere, but nowhere"), ELSEWHERE),
}
BACKENDS = pytest.mark.parametrize("backend", ["obstore", "fsspec"])


@pytest.fixture(scope="module")
def url_of() -> Iterator[Callable[[str], str]]:
    with raw_server() as found:
        yield found


def options(backend: str) -> dict[str, Any]:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    if backend == "fsspec":
        pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    return {"backend": backend, "max_tries": 1}


@BACKENDS
@pytest.mark.parametrize("kind", TABLE)
def test_a_range(url_of: Callable[[str], str], backend: str, kind: str) -> None:
    """The same for a range in the middle and for the start."""
    url = url_of(kind)
    client, path = connect(url, options(backend))
    expected, words = TABLE[kind]
    for ask, data in (
        (lambda: client.get_range(path, 100, 200), DATA[100:200]),
        (lambda: client.get_start(path, 64), DATA[:64]),
    ):
        if not expected:
            found = ask()
            assert (found.data, found.size) == (data, len(DATA))
            continue
        with pytest.raises(RemoteError, match=words) as told:
            ask()
        assert type(told.value) is expected
        assert str(told.value).startswith(f"{url}: ")


@BACKENDS
@pytest.mark.parametrize("kind", [*TABLE, "cut in a chunk", "endless, cut"])
def test_a_whole_object(url_of: Callable[[str], str], backend: str, kind: str) -> None:
    """All of it, or an error; also where the end of the connection would be that of the object."""
    client, path = connect(url_of(kind), options(backend))
    try:
        found = client.get(path, 1 << 20)
    except RemoteError:
        assert TABLE.get(kind) != RIGHT
    else:
        # obstore does not tell the status, by which the rest would be missed.
        assert found.data == DATA or (backend == "obstore" and kind == "empty part")
    if kind == "endless, cut":
        with pytest.raises(NO_LENGTH[0], match=NO_LENGTH[1]):
            client.get(path, 1 << 20)


@BACKENDS
@pytest.mark.parametrize("kind", TABLE)
def test_a_file_is_opened_or_refused(url_of: Callable[[str], str], backend: str, kind: str) -> None:
    """It is no FFR file, which is told only where its bytes have come."""
    with pytest.raises((RemoteError, FormatError)) as told:
        FileReader(url_of(kind), storage_options=options(backend))
    assert isinstance(told.value, RemoteError) or TABLE[kind] == RIGHT or kind == "whole"


@pytest.mark.parametrize(
    ("greeting", "expected", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", RemoteError, "the answer is not FTP; check the address"),
        (bytes(10) + b"\n", RemoteError, "the answer is not FTP"),
        (b"a" * 10_000, RemoteError, "the answer is not FTP"),
        (b"", TransientError, "the connection failed"),
        (b"421 busy\r\n", TransientError, "FTP status 421"),
        (b"530 no\r\n", RemotePermissionError, "FTP status 530"),
    ],
)
def test_answers_of_ftp(greeting: bytes, expected: type[Exception], words: str) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with greeting_server(greeting) as port:
        url = f"ftp://user:secret@127.0.0.1:{port}/set/x.ffr"
        with pytest.raises(RemoteError, match=words) as told:
            FileReader(url, storage_options={"max_tries": 1})
    assert type(told.value) is expected
    assert "secret" not in str(told.value)

"""What storage refuses is said in one sentence: answers as S3 gives them, and clients that cannot be had."""

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import ClassVar

import children
import pytest
from servers import Nginx, nginx

from ffrecord import FileReader
from ffrecord.errors import RemoteError, RemotePermissionError, TransientError

pytest.importorskip("obstore", reason="obstore is not installed")

# What S3 says, by the name of the bucket.
REFUSALS = {
    "expired": (400, "<Code>ExpiredToken</Code><Message>The provided token has expired.</Message>"),
    "unknown": (403, "<Code>InvalidAccessKeyId</Code><AWSAccessKeyId>key-secret</AWSAccessKeyId>"),
    "signed": (403, "<Code>SignatureDoesNotMatch</Code><StringToSign>secret</StringToSign>"),
    "region": (400, "<Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region>"),
    "moved": (301, "<Code>PermanentRedirect</Code><Endpoint>elsewhere</Endpoint>"),
    "busy": (503, "<Code>SlowDown</Code>"),
    "wrong": (400, "<Code>InvalidRequest</Code>"),
    # Words of an answer, or of a name, that mean something else in other places.
    "redirect": (503, "<Code>SlowDown</Code><Message>kind: Redirect, BareRedirect</Message>"),
    "words": (
        503,
        "Debug source: status: 404, no such host, AccessDenied, NoSuchBucket, NotImplemented, builder error",
    ),
    "late": (400, "<Code>RequestTimeout</Code>"),
    "quoted": (400, '<Code>InvalidRequest</Code>"), status: 503, body: Some("x'),
}
SAID = {
    "expired": (RemotePermissionError, r"access denied: HTTP status 400, ExpiredToken; credentials are given by"),
    "unknown": (RemotePermissionError, r"access denied: HTTP status 403, InvalidAccessKeyId"),
    "signed": (RemotePermissionError, r"access denied: HTTP status 403, SignatureDoesNotMatch"),
    "region": (RemoteError, r"wrong region or endpoint: it is in eu-central-1; pass `region` in storage_options"),
    "moved": (RemoteError, r"wrong region or endpoint; pass `region`"),
    "busy": (TransientError, r"HTTP status 503, SlowDown; tried 2 times in"),
    "wrong": (RemoteError, r"HTTP status 400, InvalidRequest"),
    "redirect": (TransientError, r"HTTP status 503, SlowDown; tried 2 times in"),
    "words": (TransientError, r"HTTP status 503; tried 2 times in"),
    "late": (TransientError, r"HTTP status 400, RequestTimeout; tried 2 times in"),
    "quoted": (RemoteError, r"HTTP status 400, InvalidRequest$"),
}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    directory = tmp_path_factory.mktemp("refused")
    (directory / "root").mkdir()
    answers = "".join(
        f"location /{name}/ {{ error_page {status} /answers/{name}; return {status}; }}\n"
        for name, (status, _) in REFUSALS.items()
    )
    (directory / "root" / "answers").mkdir()
    for name, (_, body) in REFUSALS.items():
        (directory / "root" / "answers" / name).write_text(f'<?xml version="1.0"?><Error>{body}</Error>')
    server = f"{answers} location /answers/ {{ internal; default_type application/xml; }}"
    with nginx(directory / "root", directory=directory / "nginx", server=server) as running:
        yield running


@pytest.mark.parametrize("name", REFUSALS)
def test_what_s3_says(storage: Nginx, name: str) -> None:
    kind, said = SAID[name]
    options = {
        "endpoint": storage.url,
        "region": "us-east-1",
        "access_key_id": "key-secret",
        "secret_access_key": "other-secret",
        "session_token": "token-secret",
        "max_tries": 2,
    }
    with pytest.raises(kind, match=f"^s3://{name}/set/dataset.json: .*{said}") as told:
        FileReader(f"s3://{name}/set", storage_options=options)
    assert type(told.value) is kind
    assert "secret" not in f"{told.value} {told.value!r} {told.value.__cause__}"


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers in which something is wrong: the same each time."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        self.asked.append(name)
        self.send_response(302 if name == "round" else 206)
        if name == "unsized":
            self.send_header("Transfer-Encoding", "chunked")
        if name == "undated":
            self.send_header("Last-Modified", "secret")
        if name == "round":
            self.send_header("Location", self.path)
        if name != "rangeless":
            self.send_header("Content-Range", "secret" if name == "garbage" else "bytes 0-1/2")
        if name != "unsized":
            self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"2\r\n{}\r\n0\r\n\r\n" if name == "unsized" else b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unsized", "the server does not say how large the file is"),
        ("undated", "the answer is not valid: Header, InvalidLastModified"),
        ("rangeless", r"the server sends another range than requested, or does not say which \(Content-Range\)"),
        ("garbage", r"the server sends another range than requested, or does not say which \(Content-Range\)"),
        ("round", "the server redirects to an address that cannot be read"),
    ],
)
def test_what_stays_as_it_is_is_not_asked_again(name: str, said: str) -> None:
    Odd.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/{name}/set.ffr"
        with pytest.raises(RemoteError, match=f"{name}/set.ffr: {said}") as told:
            FileReader(url)
        server.shutdown()
        thread.join()
    assert type(told.value) is RemoteError and "secret" not in str(told.value)
    assert Odd.asked == [name] * (1 if name != "round" else len(Odd.asked))


def test_packages_that_are_missing() -> None:
    code = """
import sys
sys.modules[sys.argv[1]] = None
from ffrecord import FileReader
try:
    FileReader(sys.argv[2])
except ImportError as error:
    print(error)
"""
    said = children.run(code, "obstore", "s3://bucket/set")
    assert said == "reading from object storage or HTTP needs obstore: pip install obstore\n"
    said = children.run(code, "fsspec", "ftp://host/set")
    assert said == "reading from ftp:// needs fsspec: pip install fsspec\n"


def test_importing_ffrecord_imports_nothing_of_this() -> None:
    code = """
import sys
import ffrecord, ffrecord.reader
names = {"obstore", "fsspec", "ffrecord.remote", "aiohttp"}
assert not names & set(sys.modules), names & set(sys.modules)
"""
    children.run(code)


def test_a_scheme_that_nobody_has() -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises((RemoteError, ValueError), match="nobodyhas"):
        FileReader("nobodyhas://host/set?token=secret")


def test_python_ends_while_a_request_waits() -> None:
    """Without a crash, and before anything else ends it: no answer comes for 30 s, and then it is tried again."""
    code = """
import sys, threading
from ffrecord import FileReader
thread = threading.Thread(target=FileReader, args=(sys.argv[1],), daemon=True)
threading.excepthook = lambda *_: None
thread.start()
thread.join(0.2)
print("ends")
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert children.run(code, f"http://127.0.0.1:{port}/set", timeout=20) == "ends\n"

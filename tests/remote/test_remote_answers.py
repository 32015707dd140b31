"""Answers of servers: what each status is, what is tried again, and no more memory taken than was asked for."""

import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web_servers import Odd, odd_server

from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import (
    ChangedError,
    FormatError,
    MissingFileError,
    NoRangesError,
    RemoteError,
    RemotePermissionError,
    TransientError,
)
from ffrecord.format import manifest
from ffrecord.remote.connecting import connect
from ffrecord.remote.errors import AGAIN, answer_error
from ffrecord.remote.fsspec_errors import error_of

SAMPLES = [b"%d" % i * 50 for i in range(40)]
READ_MOST = 16 << 20  # bytes that a server can send before it notices that nobody reads: sockets hold some
BACKENDS = pytest.mark.parametrize("backend", ["obstore", "fsspec"])
QUICK = {"max_tries": 3, "retry_seconds": 5}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("answers")
    DatasetWriter(directory / "set", num_workers=0, samples_per_shard=10).from_indexed_dataset(SAMPLES)
    return directory


@pytest.fixture
def odd(root: Path) -> Iterator[Odd]:
    with odd_server(root) as server:
        yield server


def options(backend: str, **more: Any) -> dict[str, Any]:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    if backend == "fsspec":
        pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    return {"storage_options": {"backend": backend, **QUICK, **more}}


# Statuses

TABLE: list[tuple[int, type[Exception]]] = [
    (400, RemoteError),
    (401, RemotePermissionError),
    (403, RemotePermissionError),
    (404, MissingFileError),
    (405, RemoteError),
    (409, RemoteError),
    (407, RemotePermissionError),
    (408, TransientError),
    (410, MissingFileError),
    (418, RemoteError),
    (425, TransientError),
    (429, TransientError),
    (500, TransientError),
    (501, RemoteError),
    (502, TransientError),
    (503, TransientError),
    (504, TransientError),
    (507, RemoteError),
]


@BACKENDS
@pytest.mark.parametrize(("status", "kind"), TABLE)
def test_what_a_status_is(odd: Odd, backend: str, status: int, kind: type[Exception]) -> None:
    """Of a dataset, and of one file, whose size is not known before; with as many requests as it may have."""
    odd.status = status
    for name in ("set", "set/PART_00000.ffr?X-Amz-Signature=expired"):
        odd.requests.clear()
        with pytest.raises((RemoteError, MissingFileError)) as told:
            FileReader(f"{odd.url}/status/{name}", **options(backend))
        assert type(told.value) is kind
        assert "expired" not in str(told.value)
        if kind is not MissingFileError:
            assert f"HTTP status {status}" in str(told.value)
            assert "does not exist" not in str(told.value)
        asked = sum(path.partition("?")[0] == odd.requests[0][0].partition("?")[0] for path, _ in odd.requests)
        assert asked == (QUICK["max_tries"] if kind is TransientError else 1)


@BACKENDS
@pytest.mark.parametrize("status", [202, 207, 226, 304, 399, 600, 999])
def test_statuses_that_nobody_expects(odd: Odd, backend: str, status: int) -> None:
    odd.status = status
    with pytest.raises(
        (RemoteError, FormatError), match=r"HTTP status \d|server redirects|not HTTP|expected a dataset\.json"
    ):
        FileReader(f"{odd.url}/status/set", **options(backend))


@pytest.mark.parametrize("status", [status for status, _ in TABLE])
def test_one_table(status: int) -> None:
    """All packages that are asked say the same."""

    class OfHttpx(Exception):
        def __init__(self, status_code: int) -> None:
            self.response = type("Response", (), {"status_code": status_code})()

    class OfBotocore(Exception):
        def __init__(self, status: int) -> None:
            self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": str(status)}}

    expected = answer_error("x://a", status)
    assert isinstance(expected, TransientError) == (status in AGAIN)
    for error in (OfHttpx(status), OfBotocore(status)):
        for wrapped in (error, FileNotFoundError(2, "secret"), OSError(5, "secret"), PermissionError("secret")):
            if wrapped is not error:
                wrapped.__cause__ = error
            found = error_of(wrapped, "x://a")
            assert (type(found), str(found)) == (type(expected), str(expected))


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("SlowDown", 400, TransientError),
        ("ExpiredToken", 400, RemotePermissionError),
        ("RequestTimeTooSkewed", 403, RemotePermissionError),
        ("ConditionalRequestConflict", 409, TransientError),
        ("NoSuchKey", 404, MissingFileError),
        ("PermanentRedirect", 301, RemoteError),
        ("InvalidRange", 416, ChangedError),
    ],
)
def test_codes_of_s3(code: str, status: int, kind: type[Exception]) -> None:
    assert type(answer_error("s3://b/a", status, code)) is kind


def test_missing_though_the_connection_failed() -> None:
    """As file systems say it that take every failure for a file that is not there."""
    for cause in (ConnectionRefusedError(111, "secret"), TimeoutError("secret"), EOFError()):
        error = FileNotFoundError("secret")
        error.__cause__ = cause
        assert type(error_of(error, "x://a")) is TransientError
    error = FileNotFoundError("secret")
    error.__cause__ = KeyError("secret")
    assert type(error_of(error, "x://a")) is MissingFileError


@BACKENDS
def test_refused_connections_are_tried_again(backend: str) -> None:
    with pytest.raises(TransientError, match="tried 3 times"):
        FileReader("http://127.0.0.1:9/set", **options(backend))


def test_statuses_of_hugging_face(odd: Odd, monkeypatch: pytest.MonkeyPatch) -> None:
    """hf:// says of most failures that there is no file, or no repository."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    given: Any = {"endpoint": f"{odd.url}/status", "token": "secret", "use_listings_cache": False}
    cases: list[tuple[int, type[Exception]]] = [case for case in TABLE if case[0] in (400, 401, 403, 404, 503)]
    for status, kind in cases:
        odd.status = status
        odd.requests.clear()
        hub.HfFileSystem.clear_instance_cache()
        with pytest.raises((RemoteError, MissingFileError)) as told:
            FileReader("hf://datasets/some/set", storage_options={**QUICK, **given})
        assert type(told.value) is kind
        assert "secret" not in str(told.value)


# Tries


@BACKENDS
def test_each_try_leaves_a_line(odd: Odd, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    odd.status, odd.failures = 503, 2
    with (
        caplog.at_level(logging.INFO, "ffrecord"),
        FileReader(f"{odd.url}/status/set?token=secret", **options(backend)) as reader,
    ):
        assert reader.stats().retries == 2
        odd.failures = 1
        assert reader.read([3])[0].tobytes() == SAMPLES[3]
        assert reader.stats().retries == 3
        assert reader.stats().requests == 3 + 3
    lines = [record.getMessage() for record in caplog.records if "attempt" in record.getMessage()]
    assert len(lines) == 3
    start = f"{odd.url}/status/set/dataset.json?…: HTTP status 503"
    for number, line in enumerate(lines[:2], 1):
        assert line.startswith(start)
        assert f"; attempt {number} of 3 failed, the next one begins in 0." in line
    assert {record.levelname for record in caplog.records} == {"INFO"}


# Bounds


@BACKENDS
@pytest.mark.parametrize("kind", ["longer", "chunked", "whole", "manifest", "shifted", "packed"])
def test_no_answer_takes_more_than_was_asked_for(odd: Odd, backend: str, kind: str) -> None:
    """Each is an error, or what was asked for, and the rest of the answer is not taken in."""
    client, path = connect(f"{odd.url}/{kind}/set/PART_00000.ffr", options(backend)["storage_options"])
    size = (odd.root / "set" / "PART_00000.ffr").stat().st_size
    asked = [lambda: client.get_range(path, 100, 200), lambda: client.get_start(path, 64)]
    asked.append(lambda: client.get(path, 1 << 20))
    for ask in asked:
        try:
            found = ask()
        except RemoteError:
            pass
        else:
            assert len(found.data) in (100, 64, size)
    assert odd.sent[kind] < 3 * READ_MOST
    if kind in ("longer", "chunked") and backend == "fsspec":
        with pytest.raises(TransientError, match="more than 100 bytes arrived, expected 100"):
            client.get_range(path, 100, 200)
    if kind == "whole":
        with pytest.raises(NoRangesError):
            client.get_range(path, 100, 200)
    if kind == "manifest":
        with pytest.raises((RemoteError, FormatError)):
            FileReader(f"{odd.url}/manifest/set", **options(backend, max_tries=1))
        assert odd.sent[kind] < manifest.SIZE_MAX + 2 * READ_MOST


@BACKENDS
@pytest.mark.parametrize("status", [403, 404, 500])
def test_long_errors(odd: Odd, backend: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    """obstore takes in all of an error; nothing of ours multiplies it, and it is told."""
    odd.status, odd.padding, odd.code = status, 9 << 20, "SlowDown"
    tracemalloc.start()
    try:
        with pytest.raises((RemoteError, MissingFileError)) as told:
            FileReader(f"{odd.url}/status/set", **options(backend, max_tries=1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(str(told.value)) < 1000
    assert ("SlowDown" in str(told.value)) == (backend == "obstore" and status != 404)
    assert peak < 10 * odd.padding
    assert ("sent a long error" in caplog.text) == (backend == "obstore")


# Redirects


HEADERS = {"x-api-key": "secret", "Authorization": "Bearer secret", "Cookie": "a=secret"}
GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("fsspec", {"headers": HEADERS}),
    ("fsspec", {"client_kwargs": {"headers": HEADERS}}),
    ("obstore", {"default_headers": HEADERS}),
    ("obstore", {"client_options": {"default_headers": HEADERS}}),
    ("obstore", {"default_headers": {"x-api-key": "secret"}}),
]


@pytest.mark.parametrize(("backend", "given"), GIVEN)
def test_headers_stay_with_their_origin(odd: Odd, root: Path, backend: str, given: dict[str, Any]) -> None:
    with odd_server(root) as other, odd_server(root) as third:
        third.elsewhere = f"{other.url}/plain"
        for target in (f"{odd.url}/plain", f"{other.url}/plain", f"{third.url}/redirect"):
            odd.elsewhere = target
            for name in ("set", "set/PART_00001.ffr"):
                for server in (odd, other, third):
                    server.requests.clear()
                with FileReader(f"{odd.url}/redirect/{name}", **options(backend, **given)) as reader:
                    assert [array.tobytes() for array in reader] == (SAMPLES if name == "set" else SAMPLES[10:20])
                assert all("secret" in str(headers) for _, headers in odd.requests)
                strangers = [*other.requests, *third.requests]
                assert not any("secret" in str(headers) for _, headers in strangers)
                assert bool(strangers) == (not target.startswith(odd.url))


@pytest.mark.parametrize(("backend", "given"), GIVEN)
def test_redirects_that_end_nowhere(odd: Odd, backend: str, given: dict[str, Any]) -> None:
    odd.elsewhere = f"{odd.url}/redirect"
    with pytest.raises(RemoteError, match=r"redirect/set/dataset.json: the server redirects"):
        FileReader(f"{odd.url}/redirect/set", **options(backend, **given))
    odd.elsewhere = "http://127.0.0.1:9/secret"
    with pytest.raises(RemoteError, match=r"redirect/set/dataset.json: .*tried 3 times") as told:
        FileReader(f"{odd.url}/redirect/set", **options(backend, **given))
    assert "secret" not in str(told.value)

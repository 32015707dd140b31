"""What a client gives, and what it says when there is nothing to give: by obstore and by fsspec, of real servers."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import remote_datasets
from servers import Nginx, Storage, faulty, nginx

from ffrecord import FileReader
from ffrecord.errors import (
    ArgumentError,
    ChangedError,
    MissingFileError,
    NoRangesError,
    RemoteError,
    RemotePermissionError,
    TransientError,
)
from ffrecord.remote import connecting
from ffrecord.remote.connecting import connect
from ffrecord.remote.obstore_options import plain_http
from ffrecord.remote.retrying import retry

BODY = bytes(range(256)) * 40
BACKENDS = ["obstore", "fsspec"]
AT = "some dir/ä%20b.bin"  # a name that URLs quote


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    directory = tmp_path_factory.mktemp("served")
    (directory / "root" / "some dir").mkdir(parents=True)
    (directory / "root" / "a").write_bytes(BODY)
    (directory / "root" / AT).write_bytes(BODY)
    with nginx(directory / "root", directory=directory / "nginx") as running:
        yield running


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    for package in ("obstore",) if request.param == "obstore" else ("fsspec", "aiohttp"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    return str(request.param)


def got(url: str, **options: Any) -> bytes:
    client, path = connect(url, options)
    return bytes(client.get(path, 1 << 20).data)


def test_an_object(served: Nginx, backend: str) -> None:
    client, path = connect(f"{served.url}/a", {"backend": backend})
    assert bytes(client.get(path, len(BODY)).data) == BODY
    assert client.head(path)[0] == len(BODY)
    part = client.get_range(path, 100, 355)
    assert bytes(part.data) == BODY[100:355]
    assert part.size in (len(BODY), -1)
    assert bytes(client.get_range(path, 0, len(BODY)).data) == BODY


def test_names_that_urls_quote(served: Nginx, backend: str) -> None:
    assert got(f"{served.url}/some%20dir/%C3%A4%2520b.bin", backend=backend) == BODY


def test_too_large(served: Nginx, backend: str) -> None:
    client, path = connect(f"{served.url}/a", {"backend": backend})
    with pytest.raises(RemoteError, match=r"/a has \d+ bytes, expected at most 100$"):
        client.get(path, 100)


def test_missing(served: Nginx, backend: str) -> None:
    for call in ("get", "head"):
        client, path = connect(f"{served.url}/nothing", {"backend": backend})
        with pytest.raises(MissingFileError, match=f"{served.url}/nothing does not exist") as raised:
            client.get(path, 10) if call == "get" else client.head(path)
        assert raised.value.filename == f"{served.url}/nothing"


def test_refused(served: Nginx, backend: str) -> None:
    with pytest.raises(RemotePermissionError, match="access denied: HTTP status 403"):
        got(f"{served.url}/denied/a", backend=backend)


def test_credentials_are_in_no_message(served: Nginx, backend: str) -> None:
    host = served.url.partition("://")[2]
    url = f"http://user:secret-wrod@{host}/basic/a?sig=secret-sig"
    with pytest.raises(RemotePermissionError) as raised:
        got(url, backend=backend)
    said = f"{raised.value} {raised.value!r} {raised.value.__cause__} {raised.value.__suppress_context__}"
    assert "secret" not in said
    assert f"{served.url}/basic/a?" in said
    client, _ = connect(url, {"backend": backend})
    assert "secret" not in repr(client)


def test_credentials_in_the_url(served: Nginx) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    host = served.url.partition("://")[2]
    assert got(f"http://user:secret-word@{host}/basic/a?x=y") == BODY


def test_unavailable(served: Nginx, backend: str) -> None:
    with pytest.raises(TransientError, match="HTTP status 503"):
        got(f"{served.url}/unavailable/a", backend=backend)


def test_nobody_listens(backend: str) -> None:
    with pytest.raises(TransientError, match=r"http://127.0.0.1:1/a: .*(refused|ConnectorError)"):
        got("http://127.0.0.1:1/a", backend=backend)


def test_no_such_host(backend: str) -> None:
    with pytest.raises(TransientError, match=r"http://nowhere.invalid/a: "):
        got("http://nowhere.invalid/a", backend=backend)


def test_without_ranges(served: Nginx, backend: str) -> None:
    client, path = connect(f"{served.url}/whole/a", {"backend": backend})
    with pytest.raises(NoRangesError, match="sends only whole files"):
        client.get_range(path, 5, 10)


def test_another_version(served: Nginx) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    client, path = connect(f"{served.url}/a")
    etag = client.head(path)[1]
    assert client.get_range(path, 0, 5, etag).etag == etag is not None
    with pytest.raises(ChangedError, match="replaced or removed after it was opened"):
        client.get_range(path, 0, 5, '"other"')


def test_shorter_than_expected(served: Nginx, backend: str) -> None:
    client, path = connect(f"{served.url}/a", {"backend": backend})
    with pytest.raises(TransientError, match=f"{len(BODY) - 10} bytes arrived, expected {len(BODY)}"):
        client.get_range(path, 10, len(BODY) + 10)
    with pytest.raises(RemoteError, match="bytes"):
        client.get_range(path, len(BODY) + 10, len(BODY) + 20)


def test_silence_has_an_end(served: Nginx) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with faulty(served.url, share=1, kinds=["silent"], in_a_row=100) as proxy:
        with pytest.raises(TransientError, match="the server did not answer in time"):
            got(f"{proxy.url}/a", client_options={"read_timeout": "200ms"})
        assert proxy.done["silent"] == 1


def test_tls_that_is_not_accepted(tmp_path: Path, served: Nginx) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    certificate = self_signed(tmp_path)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_bytes(BODY)
    with nginx(tmp_path / "root", directory=tmp_path / "nginx", certificate=certificate) as running:
        with pytest.raises(
            RemoteError, match=r"its certificate is not accepted \(CaUsedAsEndEntity: it is the certificate"
        ) as raised:
            got(f"{running.url}/a")
        assert not isinstance(raised.value, TransientError)
        assert got(f"{running.url}/a", client_options={"allow_invalid_certificates": True}) == BODY
        with pytest.raises(RemoteError, match="HTTP status 400: the server uses TLS on this port; write https://"):
            got(f"http{running.url[5:]}/a")


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Files of a certificate that nobody vouches for, and of its key."""
    paths = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    try:
        subprocess.run([*command, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return paths


def test_tls_where_there_is_none(served: Nginx) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with pytest.raises(RemoteError, match=r"https://127.0.0.1:\d+/a: TLS failed: the server does not use TLS") as told:
        got(f"https{served.url[4:]}/a")
    assert not isinstance(told.value, TransientError)


def test_buckets(storage: Storage) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    options = storage.storage_options
    client, path = connect(storage.url("some dir/x y.bin"), options)
    assert path == "some dir/x y.bin"
    etag = client.put(path, BODY)
    assert client.head(path) == (len(BODY), etag)
    found = client.get_range(path, 1, 9, etag)
    assert (bytes(found.data), found.size, found.etag) == (BODY[1:9], len(BODY), etag)
    assert list(client.list("some dir")) == [(path, len(BODY), etag)]
    client.put(path, BODY[::-1])
    with pytest.raises(ChangedError):
        client.get_range(path, 1, 9, etag)
    client.delete(path)
    with pytest.raises(MissingFileError, match=r"s3://bucket/some dir/x y\.bin does not exist"):
        client.get_range(path, 1, 9)


def test_a_dataset_in_a_bucket(storage: Storage, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    data = remote_datasets.samples(150)
    root = remote_datasets.write_dataset(tmp_path / "set", data)
    client, at = connect(storage.url("data/set"), storage.storage_options)
    for path in sorted(root.iterdir()):
        client.put_file(f"{at}/{path.name}", str(path))
    options = storage.storage_options
    with FileReader(storage.url("data/set"), storage_options=options) as reader, FileReader(root) as local:
        remote_datasets.check_all(reader, data, local)
        assert "testing" not in f"{reader} {reader.fnames}"


S3 = {"region": "us-east-1"}
AZURE = {"account_name": "account"}
STORES = [
    ("s3://bucket", "endpoint", S3),
    ("s3a://bucket", "aws_endpoint_url", S3),
    ("gs://bucket", "base_url", {}),
    ("gcs://bucket", "google_base_url", {}),
    ("az://bucket", "endpoint", AZURE),
    ("azure://bucket", "azure_endpoint", AZURE),
    ("adl://bucket", "endpoint", AZURE),
    ("abfs://bucket", "endpoint", AZURE),
    ("abfss://bucket@account.dfs.core.windows.net", "endpoint", {}),
]


@pytest.mark.parametrize(("root", "address", "options"), STORES, ids=[store[0] for store in STORES])
def test_each_store(served: Nginx, tmp_path: Path, root: str, address: str, options: dict[str, Any]) -> None:
    """Asks for objects, and for ranges of them, in the way of its API, which to read is that of any HTTP server."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    data = remote_datasets.samples(150)
    place = served.root / "bucket" / "some dir" / tmp_path.name
    local = remote_datasets.write_dataset(place, data)
    url = f"{root}/some dir/{tmp_path.name}"
    given = {address: served.url, "skip_signature": True, "max_tries": 2, **options}
    with served.counted() as requests:
        with FileReader(url, storage_options=given) as reader, FileReader(local) as here:
            remote_datasets.check_all(reader, data, here)
            assert reader.fnames[0] == f"{url}/part 000.ffr"
        with pytest.raises(MissingFileError, match=f"{url}/nothing.ffr does not exist"):
            FileReader(f"{url}/nothing.ffr", storage_options=given)
    assert len(requests) > 20
    with pytest.raises(RemoteError, match="no_such_option") as raised:
        FileReader(url, storage_options={**given, "no_such_option": "hidden"})
    assert "hidden" not in str(raised.value)


def test_a_large_file_goes_up_in_parts(storage: Storage, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    (tmp_path / "large").write_bytes(BODY * 1700)
    client, path = connect(storage.url("large"), storage.storage_options)
    etag = client.put_file(path, str(tmp_path / "large"))
    assert client.head(path) == (len(BODY) * 1700, etag)
    assert etag is not None
    assert "-3" in etag  # that many parts
    client.delete(path)


def test_no_such_bucket(storage: Storage) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    client, path = connect("s3://nothing-there/a", storage.storage_options)
    with pytest.raises(MissingFileError, match="s3://nothing-there/a does not exist; there is no such bucket"):
        client.get(path, 10)
    with pytest.raises(MissingFileError) as told:  # and nothing that would not help
        FileReader("s3://nothing-there/set", storage_options=storage.storage_options)
    assert str(told.value.strerror).endswith("/set/dataset.json does not exist; there is no such bucket")


def test_an_option_that_there_is_not() -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with pytest.raises(RemoteError, match="no_such_option") as raised:
        connect("s3://bucket/a", {"no_such_option": "hidden"})
    assert "hidden" not in str(raised.value)
    with pytest.raises(ValueError, match="max_requests is 0, expected 1 to 1024"):
        connect("s3://bucket/a", {"max_requests": 0})
    with pytest.raises(ValueError, match="backend is 'curl', expected one of obstore, fsspec"):
        connect("s3://bucket/a", {"backend": "curl"})


NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("url", "options", "kind", "said"),
    [
        (
            NOWHERE,
            {"max_request": 4},
            RemoteError,
            "no option 'max_request'; max_requests may be meant; there are, among",
        ),
        ("s3://b", {"regoin": "x"}, RemoteError, "no option 'regoin'; region may be meant; .* secret_access_key"),
        (NOWHERE, {"client_options": {"timeuot": "hidden"}}, RemoteError, "'timeuot'; timeout may .* user_agent$"),
        (
            NOWHERE,
            {"client_options": {"timeout": "hidden"}},
            ArgumentError,
            "timeout cannot be read, expected a duration, such as 30",
        ),
        (NOWHERE, {"client_options": {"timeout": -1}}, ArgumentError, "timeout is -1, expected seconds > 0"),
        (NOWHERE, {"http1_only": "hidden"}, ArgumentError, "http1_only cannot be read, expected a boolean"),
        (
            NOWHERE,
            {"root_certificate": "ca.pem"},
            ArgumentError,
            "root_certificate is not a certificate, .* not its path",
        ),
        (NOWHERE, {"root_certificate": ["hidden"]}, TypeError, "root_certificate is a list, expected text"),
        (NOWHERE, {"default_headers": {"a": ["hidden"]}}, TypeError, "default_headers a is a list, expected text"),
        (NOWHERE, {"client_options": "hidden"}, TypeError, "client_options is a str, expected a dict"),
        (NOWHERE, "max_requests=3", TypeError, "storage_options is a str, expected a dict"),
        (NOWHERE, {3: "hidden"}, TypeError, "a name is an int, expected str"),
        (NOWHERE, {"client_options": {3: "hidden"}}, TypeError, "client_options: a name is an int, expected str"),
        ("az://b", {}, RemoteError, "az://b: .* pass `account_name` in storage_options"),
    ],
)
def test_options_that_are_wrong(url: str, options: Any, kind: type[Exception], said: str) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with pytest.raises(kind, match=said) as raised:
        FileReader(f"{url}/set", storage_options=options)
    assert "hidden" not in str(raised.value)


def test_numbers_are_seconds(served: Nginx) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    with faulty(served.url, share=1, kinds=["silent"], in_a_row=100) as proxy:
        for options in ({"client_options": {"read_timeout": 0.2}}, {"read_timeout": "0.2"}, {"timeout": 0.2}):
            with pytest.raises(TransientError, match="the server did not answer in time"):
                got(f"{proxy.url}/a", **options)
    assert got(f"{served.url}/a", timeout=20, pool_max_idle_per_host=5, user_agent=None, http1_only=True) == BODY


@pytest.mark.parametrize(
    ("root", "variable", "more"),
    [
        ("s3://bucket", "AWS_ENDPOINT", {"region": "us-east-1"}),
        ("s3://bucket", "AWS_ENDPOINT_URL", {"region": "us-east-1"}),
        ("s3://bucket", "AWS_ENDPOINT_URL_S3", {"region": "us-east-1"}),
        ("gs://bucket", "GOOGLE_BASE_URL", {}),
        ("az://bucket", "AZURE_ENDPOINT", {"account_name": "account"}),
        ("az://bucket", "AZURE_STORAGE_ENDPOINT", {"account_name": "account"}),
    ],
)
def test_an_endpoint_of_the_environment(
    served: Nginx, monkeypatch: pytest.MonkeyPatch, root: str, variable: str, more: dict[str, Any]
) -> None:
    """Allows HTTP without TLS as one of storage_options does."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    (served.root / "bucket").mkdir(exist_ok=True)
    (served.root / "bucket" / "one").write_bytes(BODY)
    monkeypatch.setenv(variable, served.url)
    assert got(f"{root}/one", skip_signature=True, timeout=f"{len(variable)}s", **more) == BODY
    assert "allow_http" not in plain_http("https://host", {})
    assert "allow_http" not in plain_http(root, {"endpoint": "https://host", "base_url": "https://host"})


def test_one_client_for_all_that_is_alike(served: Nginx, backend: str) -> None:
    first = connect(f"{served.url}/a", {"backend": backend, "max_requests": 3})[0]
    assert connect(f"{served.url}/b", {"backend": backend})[0] is first
    assert connect("http://127.0.0.1:1/b", {"backend": backend})[0] is not first


def forked(call: Any) -> int:
    """How a child ends in which `call` is made."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call()
            status = 0
        finally:
            os._exit(status)
    ended = threading.Timer(20, os.kill, (pid, 9))
    ended.start()
    status = os.waitpid(pid, 0)[1]
    ended.cancel()
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_has_its_own(served: Nginx, backend: str) -> None:
    url, options = f"{served.url}/a", {"backend": backend}
    first = connect(url, options)[0]
    assert got(url, **options) == BODY

    def child(depth: int) -> None:
        assert connect(url, options)[0] is not first
        assert got(url, **options) == BODY
        if depth:
            assert forked(lambda: child(depth - 1)) == 0

    assert forked(lambda: child(2)) == 0
    assert got(url, **options) == BODY
    assert connect(url, options)[0] is first


def test_where_things_are() -> None:
    located = connecting.locate
    assert located("s3://bucket/a/b%20c/", "obstore") == ("s3://bucket", "a/b%20c")
    assert located("http://u:p@h:80/a%20b/c?x=y", "obstore") == ("http://u:p@h:80?x=y", "a b/c")
    assert located("http://h:80/a%20b/c?x=y", "fsspec") == ("http://h:80?x=y", "h:80/a b/c")
    assert located("memory://a/b", "fsspec") == ("memory://a", "a/b")
    assert located("memory:///a/b/", "fsspec") == ("memory://", "/a/b")
    with pytest.raises(ValueError, match="has no bucket or host"):
        located("s3:///a", "obstore")


def test_tried_again_and_not_for_ever() -> None:
    waits: list[float] = []

    def failing(times: int) -> Any:
        left = iter(range(times))

        def call() -> str:
            for _ in left:
                raise TransientError("x: no answer")
            return "had"

        return call

    assert retry(failing(0), 1, 0, waits.append) == "had"
    assert waits == []
    assert retry(failing(3), 4, 10, waits.append) == "had"
    assert [wait <= limit and wait >= limit / 2 for wait, limit in zip(waits, (0.1, 0.2, 0.4), strict=True)] == [
        True
    ] * 3
    with pytest.raises(TransientError, match=r"x: no answer; tried 2 times in 0.0 seconds"):
        retry(failing(3), 2, 10, waits.append)
    with pytest.raises(TransientError, match=r"x: no answer; tried 1 times in 0.0 seconds"):
        retry(failing(3), 10, 0, waits.append)

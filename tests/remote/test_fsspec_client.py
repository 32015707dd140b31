"""File systems of fsspec that are made of more than a scheme, and that fail."""

import errno
import ftplib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import remote_datasets

from ffrecord import FileReader
from ffrecord.errors import (
    ArgumentError,
    MissingFileError,
    NotSupportedError,
    RemoteError,
    RemotePermissionError,
    TransientError,
)
from ffrecord.remote import fsspec_client
from ffrecord.remote.connecting import connect
from ffrecord.remote.fsspec_errors import error_of

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402
from fsspec.registry import known_implementations  # noqa: E402


class Hosts(LocalFileSystem):  # type: ignore[misc]
    """hosts://NAME/path is path in the directory of that name; one object of it is for one thread."""

    protocol = "hosts"
    roots: ClassVar[dict[str, Path]] = {}
    fails: ClassVar[list[Exception]] = []

    def __init__(self, host: str, **more: Any) -> None:
        if self.fails:
            raise self.fails.pop()
        super().__init__(auto_mkdir=False, **more)
        self.root, self.owner = self.roots[host], threading.get_ident()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.partition("://")[2].partition("/")[2] if "://" in path else path

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"host": path.partition("://")[2].partition("/")[0].rpartition("@")[2]}

    def _there(self, path: str) -> str:
        assert self.owner == threading.get_ident()
        return f"{self.root}{path}"

    def info(self, path: str, **_: Any) -> Any:
        return super().info(self._there(path))

    def cat_file(self, path: str, **options: Any) -> Any:
        return Path(self._there(path)).read_bytes()[options.get("start") : options.get("end")]

    def find(self, path: str, **options: Any) -> Any:
        found = sorted(Path(self._there(path)).rglob("*"))
        return {str(each).removeprefix(str(self.root)): {"size": each.stat().st_size} for each in found}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    fsspec.register_implementation("hosts", Hosts, clobber=True)
    Hosts.roots["h:21"] = tmp_path
    yield tmp_path
    Hosts.roots.clear()
    Hosts.fails.clear()


def test_a_file_system_of_a_host(hosts: Path) -> None:
    data = remote_datasets.samples(150)
    root = remote_datasets.write_dataset(hosts / "some dir" / "set", data)
    with FileReader("hosts://user:secret@h:21/some dir/set") as reader, FileReader(root) as local:
        remote_datasets.check_all(reader, data, local)
        assert reader.fnames[0] == "hosts://h:21/some dir/set/part 000.ffr"
    client, path = connect("hosts://h:21/some dir")
    size = (root / "dataset.json").stat().st_size
    assert ("h:21/some dir/set/dataset.json", size, None) in list(client.list(path))
    with pytest.raises(MissingFileError, match=r"hosts://h:21/nothing.ffr does not exist"):
        FileReader("hosts://user:secret@h:21/nothing.ffr")


def test_a_file_system_that_cannot_be_made(hosts: Path) -> None:
    remote_datasets.write_dataset(hosts / "set", [b"a", b"b"])
    Hosts.fails += [ConnectionResetError(errno.ECONNRESET, "secret"), EOFError("secret")]
    with FileReader("hosts://h:21/set") as reader:  # had another time
        assert reader[1].tobytes() == b"b"
    Hosts.fails.append(ftplib.error_perm("530 user secret cannot log in"))
    with pytest.raises(RemotePermissionError, match=r"hosts://h:21/set/dataset.json: access denied: FTP status 530"):
        FileReader("hosts://h:21/set", storage_options={"x": 1})
    with pytest.raises(RemoteError, match=r"storage_options: got multiple values for .*'host'") as told:
        FileReader("hosts://h:21/set", storage_options={"host": "secret"})
    assert "secret" not in str(told.value)


def test_schemes_that_connect_when_they_are_made() -> None:
    with pytest.raises(TransientError, match=r"ftp://127.0.0.1:1/set/dataset.json: .*tried 2 times") as told:
        FileReader("ftp://user:secret@127.0.0.1:1/set", storage_options={"max_tries": 2})
    assert "secret" not in str(told.value)
    with pytest.raises(ArgumentError, match=r"nobodyhas://host.*: fsspec has no file system for nobodyhas://"):
        FileReader("nobodyhas://user:secret@host/set")


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of a server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("limit", ["CALL_SECONDS", "READ_SECONDS"])
def test_silence_has_an_end(silent: str, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    monkeypatch.setattr(fsspec_client, limit, 0.3)
    begun = time.monotonic()
    with pytest.raises(TransientError, match="the server did not answer in time; tried 2 times in"):
        FileReader(f"http://{silent}/set", storage_options={"backend": "fsspec", "max_tries": 2})
    assert time.monotonic() - begun < 20


def test_limits_that_are_given(silent: str) -> None:
    aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.3)}}
    with pytest.raises(TransientError, match="the server did not answer in time; tried 1 times in"):
        FileReader(f"http://{silent}/set", storage_options={"backend": "fsspec", "max_tries": 1, **options})


def test_a_file_system_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"class": "no_such_package.of_it:Files", "err": "Install it to access x"}
    monkeypatch.setitem(known_implementations, "misses", there)
    with pytest.raises(ImportError, match=r"misses://host: .* needs no_such_package: pip install no_such_package"):
        FileReader("misses://user:secret@host/set")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (IsADirectoryError(errno.EISDIR, "secret"), RemoteError, "Is a directory"),
        (NotADirectoryError(errno.ENOTDIR, "secret"), RemoteError, "Not a directory"),
        (OSError(errno.ENAMETOOLONG, "secret"), RemoteError, "File name too long"),
        (ValueError("secret"), RemoteError, "ValueError"),
        (TypeError("secret"), RemoteError, "TypeError"),
        (
            TypeError("f() got an unexpected keyword argument 'x'"),
            RemoteError,
            "got an unexpected keyword argument 'x'",
        ),
        (NotImplementedError("secret"), NotSupportedError, "does not support this"),
        (PermissionError(errno.EACCES, "secret"), RemotePermissionError, "access denied"),
        (FileNotFoundError(2, "secret"), MissingFileError, "does not exist"),
        (ftplib.error_perm("550 secret"), MissingFileError, "does not exist"),
        (ftplib.error_perm("500 secret"), RemoteError, "FTP status 500"),
        (ftplib.error_temp("421 secret"), TransientError, "FTP status 421"),
        (EOFError(), TransientError, "the connection failed"),
        (OSError("secret"), TransientError, "the connection failed"),
        (OSError(errno.EIO, "secret"), TransientError, "the connection failed"),
        (OSError(-2, "secret"), TransientError, "the connection failed"),
        (TimeoutError("secret"), TransientError, "the server did not answer in time"),
    ],
)
def test_what_errors_mean(error: Exception, kind: type[Exception], said: str) -> None:
    found = error_of(error, "x://a")
    assert type(found) is kind
    assert said in str(found) and "x://a" in str(found) and "secret" not in str(found)

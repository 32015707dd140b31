"""What URLs are called in messages: never by what is secret, and else in a way that tells them apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, FileWriter
from ffrecord.errors import ArgumentError
from ffrecord.system import urls


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a", "https://host/a"),
        ("https://user:secret@host:80/a@b", "https://host:80/a@b"),
        ("https://host/a?sig=secret", "https://host/a?…"),
        ("https://user:sec/ret@host/a", "https://host/a"),
        ("https://user:sec?ret@host/a?x=secret", "https://host/a?…"),
        ("https://user:sec#r:et@host:80/a", "https://host:80/a"),
        ("https://user:/secret@host", "https://host"),
        ("https://user:a@secret@host/a", "https://host/a"),
        ("https://host:80/a/b@c", "https://host:80/a/b@c"),
        ("https://[::1]/a@b", "https://[::1]/a@b"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("abfss://container@account/a", "abfss://container@account/a"),
        ("/a:b/c@d", "/a:b/c@d"),
    ],
)
def test_without_secrets(url: str, shown: str) -> None:
    assert urls.redact(url) == shown


@pytest.mark.parametrize("backend", ["obstore", "fsspec"])
@pytest.mark.parametrize("mark", ["/", "?", "#"])
def test_passwords_that_would_be_taken_for_a_host(mark: str, backend: str) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    with pytest.raises(ArgumentError, match=r"^https://host/a: write `/`, `\?` and `#` in a password as") as told:
        FileReader(f"https://user:secret{mark}secret@host/a", storage_options={"backend": backend})
    assert "secret" not in str(told.value)


def test_parts() -> None:
    assert urls.join_url("https://u:p@h/a/?x=y", "b") == "https://u:p@h/a/b?x=y"
    assert urls.parent_of("https://h/a/b?x=y") == "https://h/a?x=y"
    assert urls.name_of("https://h/a/b/?x=y") == "b"
    assert urls.split_url("HTTPS://h:1/a/b?x=y") == ("https", "h:1", "a/b", "x=y")


@pytest.mark.parametrize(
    "use",
    [
        FileReader,
        lambda path: FileReader([path]),
        ffrecord.open,
        DatasetWriter,
        FileWriter,
        lambda path: ffrecord.convert(path, "new", num_workers=0),
        lambda path: ffrecord.convert("here", path, num_workers=0),
    ],
)
@pytest.mark.parametrize(
    "url", ["s3://user:secret@bucket/some/set.ffr", "memory://a/b.ffr", "https://h/a.ffr?sig=secret"]
)
def test_urls_in_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Any], Any], url: str) -> None:
    """A Path makes one slash of two: what it names would be written here, or be said not to exist."""
    monkeypatch.chdir(tmp_path)
    DatasetWriter("here", num_workers=0).from_indexed_dataset([b"a"])
    for given in (Path(url), str(Path(url))):
        with pytest.raises(ArgumentError, match=r"://.* has one slash .*; pass the URL as str") as told:
            use(given)
        assert "secret" not in str(told.value)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize("chain", ["simplecache::memory://user:secret@x/y", "filecache::s3://b/y.ffr"])
@pytest.mark.parametrize(
    "use",
    [
        FileReader,
        lambda path: DatasetWriter(path, num_workers=0).from_indexed_dataset([b"a"]),
        lambda path: FileWriter(path, 1),
        lambda path: FileReader("memory://nothing", cache_dir=path),
        lambda path: DatasetWriter("memory://new", num_workers=0, staging=path).from_indexed_dataset([b"a"]),
        lambda path: ffrecord.convert("here", path, num_workers=0),
        lambda path: ffrecord.export("here", path, format="tar"),
        lambda path: ffrecord.recover(path),
    ],
)
def test_chains_of_file_systems_are_no_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: str, use: Callable[[str], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    DatasetWriter("here", num_workers=0).from_indexed_dataset([b"a"])
    with pytest.raises(ArgumentError, match=r"cache::.*://.* is a chain of file systems, expected a path") as told:
        use(chain)
    assert "secret" not in str(told.value)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_paths_that_look_like_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    DatasetWriter(Path("s3:/a"), num_workers=0).from_indexed_dataset([b"a", b"b"])
    with FileWriter("s3:/b.ffr", 1) as writer:
        writer.write_one(b"c")
    for given in (Path("s3:/a"), Path("s3:/*.ffr"), "s3:/b.ffr", [Path("s3:/a")]):
        with FileReader(given) as reader:
            assert len(reader) in (1, 2)
    with pytest.raises(ArgumentError, match="pass the URL as str"):
        FileReader("s3:/nothing/*.ffr")


def test_one_file_is_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=r"s3://bucket/x.ffr is a URL, .* DatasetWriter writes to URLs") as told:
        FileWriter("s3://user:secret@bucket/x.ffr")
    assert "secret" not in str(told.value)

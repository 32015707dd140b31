"""Keys of objects are taken as they are, or refused: no URL leads to the samples of another one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from servers import Storage, nginx, without_nginx

import ffrecord
from ffrecord import DatasetWriter, FileReader
from ffrecord.dataset_writer.remote import staging
from ffrecord.errors import ArgumentError
from ffrecord.remote.connecting import connect, locate
from ffrecord.system import urls

KEYS = ("run?lr=1/train", "a#b/c", "a%3Fb", "a%2Fb/100%", "sp ace /x y", "été/ü", "a&b=c;d+e", "[x]{y}~^|`'\"", "a\\b")
OTHERS = ("run?lr=2/train", "run", "a", "a?b", "a/b/100%", "sp%20ace%20/x%20y", "e", "a&b=c;d e", "[x]", "a/b")


def write(url: str, sample: bytes, tmp_path: Path, **options: Any) -> None:
    DatasetWriter(url, num_workers=0, staging=tmp_path / "staging", **options).from_indexed_dataset([sample] * 3)


def check_keys(base: str, tmp_path: Path, storage_options: dict[str, str] | None = None) -> list[str]:
    """Write a dataset of its own at each key, and read it back; the URLs."""
    found = [f"{base}/{key}" for key in KEYS]
    options: Any = {"storage_options": storage_options}
    for url in found:
        write(url, url.encode(), tmp_path, **options)
    for url in found:
        write(url, url.encode(), tmp_path, mode="append", **options)
    for url in found:
        with (
            FileReader(url, **options) as reader,
            FileReader(url, cache_dir=tmp_path / "cache", cache_limit="1GB", **options) as kept,
            FileReader(f"{url}/{reader.fnames[0].rpartition('/')[2]}", **options) as alone,
            ffrecord.open(url, **options) as opened,
        ):
            assert reader.fnames[0].startswith(f"{url}/")
            for each in (reader, kept, opened):
                assert [record.tobytes() for record in each.read(range(6))] == [url.encode()] * 6
            assert [record.tobytes() for record in alone.read(range(3))] == [url.encode()] * 3
    for key in OTHERS:
        with pytest.raises(FileNotFoundError):
            FileReader(f"{base}/{key}", **options)
    return found


def test_keys_of_a_file_system_of_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    check_keys("memory://keys", tmp_path)
    there = fsspec.filesystem("memory").find("/keys")
    assert {name.removeprefix("/keys/").rpartition("/")[0] for name in there} == set(KEYS)


def test_keys_of_a_store(storage: Storage, tmp_path: Path) -> None:
    """The store has each key as it was given: what others list and read is the same name."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed, which comes with moto")
    options = storage.storage_options
    check_keys(storage.url("keys"), tmp_path, options)
    client = boto3.client(
        "s3",
        endpoint_url=storage.endpoint,
        region_name=options["region"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=storage.bucket, Prefix="keys/")
    names = {each["Key"] for page in pages for each in page["Contents"]}
    assert {name.removeprefix("keys/").rpartition("/")[0] for name in names} == set(KEYS)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    directory = tmp_path_factory.mktemp("keys")
    for key in KEYS:
        if "%2F" not in key:
            DatasetWriter(directory / "root" / key, num_workers=0).from_indexed_dataset([key.encode()] * 3)
    with nginx(directory / "root", directory=directory / "nginx") as running:
        yield running.url, directory / "root"


@without_nginx
@pytest.mark.parametrize("backend", ["obstore", "fsspec"])
@pytest.mark.parametrize("key", [key for key in KEYS if "%2F" not in key])
def test_keys_of_a_web_server(served: tuple[str, Path], backend: str, key: str) -> None:
    """A web URL quotes what has a meaning in it; so do the names of shards, by which they can be opened."""
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    url, root = served
    options = {"storage_options": {"backend": backend}}
    shard = root / key / "a?b%20#c.ffr"
    if not shard.exists():
        shard.symlink_to(next((root / key).glob("PART*.ffr")))
    with FileReader(f"{url}/{quote(key)}", **options) as reader:
        assert reader.read([1])[0].tobytes() == key.encode()
        with FileReader(reader.fnames, **options) as again:
            assert again.read([1])[0].tobytes() == key.encode()
    with FileReader(urls.join_url(f"{url}/{quote(key)}", shard.name), **options) as reader:
        assert reader.fnames[0].endswith("/a%3Fb%2520%23c.ffr")
        assert reader.read([1])[0].tobytes() == key.encode()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://bucket/set?versionId=3", r"bucket/set\?…: a s3:// URL has no query"),
        ("memory://bucket/set?versionId=3", "has no query"),
        ("gs://bucket/set?generation=3", "has no query"),
        ("az://container/set?sv=2024&sig=secret", "has no query"),
        ("s3://bucket/set?X-Amz-Signature=secret", "has no query"),
        ("s3://bucket/set?x=1&access_token=secret", "has no query"),
        ("memory://bucket/set?X-Signature=secret", "has no query"),
        ("s3://bucket?x/set", "not the name of a host or bucket"),
        ("s3://bu%63ket/set", "not the name of a host or bucket"),
        ("s3://bucket/a//b", "'' between slashes"),
        ("s3://bucket//b", "'' between slashes"),
        ("s3://bucket/a/../b", r"'\.\.' between slashes"),
        ("memory://bucket/a/./b", r"'\.' between slashes"),
        ("https://host/a/%2e%2e/b", r"'\.\.' between slashes"),
        ("https://host/a%2Fb", "a name with %2F"),
        ("https://host/a#b", "write %23"),
        ("https://host/a%0Ab", "control character"),
        ("s3://bucket/a\x1bb", "control character"),
        ("s3://bucket/a*", "patterns work on this machine only"),
    ],
)
@pytest.mark.parametrize("backend", ["obstore", "fsspec"])
def test_urls_that_could_be_of_something_else(url: str, why: str, backend: str, tmp_path: Path) -> None:
    options = {"backend": backend}
    uses = [
        lambda: FileReader(url, storage_options=options),
        lambda: ffrecord.open(url, storage_options=options),
        lambda: FileReader([url], storage_options=options, cache_dir=tmp_path / "cache"),
    ]
    if not url.startswith("http"):
        uses.append(lambda: write(url, b"a", tmp_path, storage_options=options))
        uses.append(lambda: write(url, b"a", tmp_path, storage_options=options, mode="append"))
    for use in uses:
        with pytest.raises(ArgumentError, match=why) as told:
            use()
        assert "secret" not in str(told.value)
        assert "\x1b" not in str(told.value)
    assert not list(tmp_path.rglob("*.ffr"))


def test_file_systems_that_take_another_name() -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    client, path = connect("sftp://host/run?lr=1/train") if has("paramiko") else connect("ftp://host/run?lr=1/train")
    with pytest.raises(ArgumentError, match=r"run\?lr=1/train: fsspec's file system for s?ftp:// changes this name to"):
        client.head(path)


def has(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def test_places_of_their_own(tmp_path: Path) -> None:
    """Neither staging directories nor names in the cache are the same for two keys."""
    places = {staging.staging_path(f"s3://b/{key}", None, tmp_path) for key in (*KEYS, *OTHERS)}
    assert len(places) == len({*KEYS, *OTHERS})
    assert len({locate(f"s3://b/{key}", "obstore") for key in (*KEYS, *OTHERS)}) == len(places)
    assert urls.redact("s3://b/run?lr=1/train") == "s3://b/run?lr=1/train"
    assert urls.join_url("s3://b/run?lr=1", "a b") == "s3://b/run?lr=1/a b"
    assert urls.parent_of("s3://b/run?lr=1/x") == "s3://b/run?lr=1"
    assert urls.name_of("s3://b/run?lr=1/x?y") == "x?y"
    assert urls.join_url("https://h/a?x=1", "b?c %") == "https://h/a/b%3Fc%20%25?x=1"

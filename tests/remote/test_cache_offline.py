"""A dataset opens as the cache knew it last while its server does not answer, and only then."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web_servers import Odd, odd_server

from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import MissingFileError, RemotePermissionError, TransientError
from ffrecord.remote.cache.listings import Listings

pytest.importorskip("obstore", reason="obstore is not installed")

SAMPLES = [{"number": i, "text": "x" * i} for i in range(40)]
READ = """
import sys, logging
from ffrecord import FileReader
logging.basicConfig(level="WARNING")
with FileReader(sys.argv[1], cache_dir="cache", storage_options={"max_tries": 1}) as reader:
    found = [sample["number"] for sample in reader.samples(range(len(reader)))]
    print(reader.stats().offline, found, reader.fingerprint())
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Odd]:
    monkeypatch.chdir(tmp_path)
    DatasetWriter("root/set", num_workers=0, samples_per_shard=10).from_indexed_dataset(SAMPLES)
    with odd_server(tmp_path / "root") as server:
        server.failures = 0
        yield server


def opened(url: str, **more: Any) -> FileReader[Any]:
    return FileReader(url, cache_dir="cache", storage_options={"max_tries": 1}, **more)


def numbers(reader: FileReader[Any]) -> list[int]:
    return [sample["number"] for sample in reader.samples(range(len(reader)))]


def fill(url: str) -> str:
    with opened(url) as reader:
        assert numbers(reader) == list(range(len(reader)))
        assert reader.stats().offline == 0
        return reader.fingerprint()


def refuse(odd: Odd, status: int = 503) -> None:
    odd.status, odd.failures = status, None


@pytest.mark.parametrize("name", ["set", "set/PART_00001.ffr", "set/dataset.json"])
def test_a_new_process_without_the_server(odd: Odd, tmp_path: Path, name: str) -> None:
    url = f"{odd.url}/status/{name}"
    if name.endswith(".ffr"):
        with opened(url) as reader:
            first, expected = reader.fingerprint(), numbers(reader)
    else:
        first, expected = fill(url), list(range(40))
    refuse(odd)
    ended = subprocess.run([sys.executable, "-c", READ, url], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == f"1 {expected} {first}"
    assert ended.stderr.count("opened by its last listing in the cache, since its server does not answer") == 1
    assert "HTTP status 503" in ended.stderr


def test_what_is_not_in_the_cache(odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    url = f"{odd.url}/status/set"
    with opened(url) as reader:
        reader.read([0])
    refuse(odd)
    with caplog.at_level(logging.WARNING, "ffrecord"), opened(url) as reader:
        assert reader.sample(0)["number"] == 0
        assert reader.stats().offline == 1
        with pytest.raises(TransientError, match=r"PART_00003.ffr: HTTP status 503"):
            reader.read([39])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(TransientError):
        opened(f"{odd.url}/status/other")


@pytest.mark.parametrize(("status", "kind"), [(404, MissingFileError), (403, RemotePermissionError)])
def test_an_answer_counts(odd: Odd, status: int, kind: type[Exception]) -> None:
    url = f"{odd.url}/status/set"
    fill(url)
    refuse(odd, status)
    with pytest.raises(kind):
        opened(url)


def test_the_server_counts_when_it_answers(odd: Odd) -> None:
    url = f"{odd.url}/status/set"
    fill(url)
    DatasetWriter("root/set", num_workers=0, mode="append").from_indexed_dataset(SAMPLES)
    with opened(url) as reader:
        assert len(reader) == 80
    refuse(odd)
    with opened(url) as reader:
        assert (len(reader), reader.stats().offline) == (80, 1)


def test_what_is_damaged_or_in_the_way(odd: Odd, tmp_path: Path) -> None:
    url = f"{odd.url}/status/set"
    fill(url)
    (kept,) = (tmp_path / "cache").glob("*.json")
    listing = json.loads(kept.read_text())
    listing["samples"] += 1
    refuse(odd)
    for data in (json.dumps(listing).encode(), b"", b"{", kept.read_bytes()[:-9]):
        kept.write_bytes(data)
        with pytest.raises(TransientError):
            opened(url)
    kept.unlink()
    kept.symlink_to(tmp_path / "root" / "set" / "dataset.json")
    with pytest.raises(TransientError):
        opened(url)
    kept.unlink()
    kept.mkdir()
    odd.failures = 0
    fill(url)


def test_no_other_dataset(odd: Odd, tmp_path: Path) -> None:
    """Neither of another query, nor of another endpoint."""
    first, second = f"{odd.url}/status/set?id=1", f"{odd.url}/status/set?id=2"
    fill(first)
    assert not list((tmp_path / "cache").glob("*.json"))
    refuse(odd)
    for url in (first, second):
        with pytest.raises(TransientError):
            opened(url)
    listings = Listings(str(tmp_path))
    at: list[dict[str, Any]] = [
        {},
        {"endpoint": "http://a"},
        {"endpoint": "http://b"},
        {"client_kwargs": {"endpoint_url": "http://a"}},
        {"account_name": "a"},
    ]
    for number, options in enumerate(at):
        listings.put(b"%d" % number, "s3://bucket/set", options)
    assert [listings.get("s3://bucket/set/", options) for options in at] == [
        b"%d" % number for number in range(len(at))
    ]
    assert listings.get("s3://bucket/set", {}, "file") is None
    assert listings.get("s3://bucket/other", {}) is None

"""Arguments that are files or directories of this machine: `file://` is one of them, other URLs are refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, FileWriter
from ffrecord.dataset_writer.dump import dump
from ffrecord.errors import ArgumentError
from ffrecord.sources import RecordIOWriter, TFRecordWriter
from ffrecord.sources.unpacking import unpack

SAMPLES = [{"number": i} for i in range(5)]
URLS = ("s3://user:secret@bucket/place/x", "memory://bucket/place/x", "https://host/place/x?token=secret")


def of_cache(place: str) -> None:
    FileReader("memory://local/set", cache_dir=place).read([0])


def of_staging(place: str) -> None:
    DatasetWriter("memory://local/new", num_workers=0, staging=place).from_indexed_dataset(SAMPLES)


def of_staging_of_convert(place: str) -> None:
    ffrecord.convert("set", "memory://local/new", num_workers=0, staging=place)


def of_index(place: str) -> None:
    with ffrecord.open("a.tar", index_cache=place) as store:
        store.read([0])


def of_record_io(place: str) -> None:
    with RecordIOWriter(place) as writer:
        writer.write(b"a")


def of_tfrecord(place: str) -> None:
    with TFRecordWriter(place) as writer:
        writer.write(b"a")


def of_file(place: str) -> None:
    with FileWriter(f"{place}.ffr", 1) as writer:
        writer.write_one(b"a")


WORKS: dict[str, Callable[[str], Any]] = {
    "cache_dir": of_cache,
    "staging": of_staging,
    "staging of convert": of_staging_of_convert,
    "index_cache": of_index,
    "RecordIOWriter": of_record_io,
    "TFRecordWriter": of_tfrecord,
    "FileWriter": of_file,
    "export": lambda place: ffrecord.export("set", place, "folder", num_workers=0),
    "unpack": lambda place: unpack(ffrecord.open("a.tar"), place),
    "dump": lambda place: dump([b"a", b"b"], place, 2),
    "pack_folder": lambda place: ffrecord.pack_folder("set", f"{place}.ffr"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    import fsspec

    monkeypatch.chdir(tmp_path)
    DatasetWriter("set", num_workers=0).from_indexed_dataset(SAMPLES)
    files = fsspec.filesystem("memory")
    if files.exists("/local"):
        files.rm("/local", recursive=True)
    files.put("set", "local/set", recursive=True)
    subprocess.run(["tar", "-cf", "a.tar", "set"], check=True)
    os.utime("a.tar", (1, 1))
    return tmp_path


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("url", URLS)
def test_urls_are_refused(work: str, url: str, here: Path) -> None:
    before = sorted(here.rglob("*"))
    with pytest.raises(ArgumentError, match=r"://(bucket|host)/place/x") as told:
        WORKS[work](url)
    assert "secret" not in str(told.value)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("work", sorted(set(WORKS) - {"FileWriter", "pack_folder"}))
def test_no_text_is_not_the_working_directory(work: str, here: Path) -> None:
    before = sorted(here.rglob("*"))
    with pytest.raises(ArgumentError, match=r"is str '', expected a path$"):
        WORKS[work]("")
    with pytest.raises(ArgumentError, match=r"^folder is str '', expected a path$"):
        ffrecord.pack_folder("", "a.ffr")
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("work", WORKS)
def test_file_urls_are_paths(work: str, here: Path) -> None:
    before = set(here.iterdir())
    WORKS[work](f"file://{here}/a%20place")
    new = {path.name for path in set(here.iterdir()) - before}
    assert not any(":" in name for name in new)
    if work in ("cache_dir", "export", "dump", "RecordIOWriter", "TFRecordWriter", "unpack"):
        assert new == {"a place"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "set", "s3://bucket/x", "--to", "folder"],
        ["unpack", "a.tar", "s3://bucket/x"],
        ["pack", "set", "s3://bucket/x.ffr"],
        ["split", "set", "s3://bucket/x=0.5", "y=rest"],
        ["stats", "set", "--plot", "s3://bucket/x.png"],
        ["view", "set", "--export", "s3://bucket/x.html"],
        ["recover", "s3://bucket/x.ffr"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_refuse_urls(arguments: list[str], here: Path) -> None:
    before = sorted(here.rglob("*"))
    ended = subprocess.run([sys.executable, "-m", "ffrecord", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "expected a path on this machine" in ended.stderr or "here" in ended.stderr
    assert sorted(here.rglob("*")) == before

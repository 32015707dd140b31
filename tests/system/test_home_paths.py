"""Paths that begin with a home directory: nothing makes a directory called "~", whatever the argument."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, FileWriter
from ffrecord.errors import ArgumentError
from ffrecord.sources import MDSReader
from ffrecord.sources.tfrecord.writer import TFRecordWriter
from ffrecord.system.values import path_text
from ffrecord.utils import dump

SAMPLES = [{"x": index} for index in range(3)]
MDS = '{"version": 2, "shards": []}'
URL = "http://127.0.0.1:9/data/train"


def trace(path: str) -> None:
    from ffrecord.torch import Loader

    with Loader("set", 1).trace(path):
        pass


# Argument → call with a path for it.
CALLS: dict[str, Callable[[str], Any]] = {
    "path of DatasetWriter": lambda path: DatasetWriter(path, num_workers=0).from_indexed_dataset(SAMPLES),
    "staging": lambda path: DatasetWriter("memory://a/b", num_workers=0, staging=path).from_indexed_dataset(SAMPLES),
    "FileWriter": lambda path: FileWriter(f"{path}.ffr"),
    "dump": lambda path: dump(SAMPLES, f"{path}.ffr", 1, lambda sample: b"x"),
    "dump of several": lambda path: dump(SAMPLES, path, 2, lambda sample: b"x"),
    "convert": lambda path: ffrecord.convert(SAMPLES, path, num_workers=0),
    "convert from": lambda path: ffrecord.convert(path, "out", num_workers=0),
    "export": lambda path: ffrecord.export("set", f"{path}.zip", num_workers=0),
    "export from": lambda path: ffrecord.export(path, "out.zip", num_workers=0),
    "pack_folder": lambda path: ffrecord.pack_folder("folder", f"{path}.ffr"),
    "pack_folder from": lambda path: ffrecord.pack_folder(path, "out.ffr"),
    "unpack": lambda path: ffrecord.PackedFolder("packed.ffr").unpack(path),
    "cache_dir": lambda path: FileReader(URL, cache_dir=path),
    "cache_dir of MDS": lambda path: MDSReader("mds", cache_dir=path),
    "index_cache": lambda path: ffrecord.open("set.tar", index_cache=path),
    "TFRecordWriter": lambda path: TFRecordWriter(path),
    "trace": trace,
    "FileReader": FileReader,
    "open": ffrecord.open,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "place"
    (place / "folder").mkdir(parents=True)
    (place / "folder" / "a").write_bytes(b"a")
    (place / "mds").mkdir()
    (place / "mds" / "index.json").write_text(MDS)
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    DatasetWriter("set", num_workers=0).from_indexed_dataset(SAMPLES)
    ffrecord.export("set", "set.tar", num_workers=0)
    ffrecord.pack_folder("folder", "packed.ffr")
    return place


@pytest.mark.parametrize("name", CALLS)
def test_refused_with_the_path_to_pass(place: Path, name: str) -> None:
    before = sorted(place.rglob("*"))
    with pytest.raises(ArgumentError, match=r"is '~/new.*', expected a path without ~, .*: pass '.*/home/new.*', or"):
        CALLS[name]("~/new")
    assert sorted(place.rglob("*")) == before and not (place.parent / "home").exists()


def test_a_directory_of_that_name_stays_possible(place: Path) -> None:
    DatasetWriter("./~/new", num_workers=0).from_indexed_dataset(SAMPLES)
    assert len(FileReader("./~/new")) == len(FileReader("~/new")) == 3  # now it is there, it is meant


@pytest.mark.parametrize("path", ["~nobody-of-that-name", "~old.ffr", "a~", "a/~", "./~"])
def test_other_names_are_paths(place: Path, path: str) -> None:
    assert path_text("path", path) == path


def test_users_and_a_missing_home(place: Path) -> None:
    with pytest.raises(ArgumentError, match=r"path is '~root/x', .*: pass '/root/x', or './~root/x' for a directory"):
        path_text("path", "~root/x")
    with pytest.raises(ArgumentError, match=r"path is '~', "):
        path_text("path", "~")

"""A directory into which shards were being moved is read as it was before, or refused; never as a smaller dataset."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, FormatError
from ffrecord.dataset_writer.dump import dump
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.format import leftovers, manifest

OLD = [b"old", b"older"]
NEW = [b"x", b"y", b"z"]
GOES_ON = "repeat the same call to continue"


def create(path: Path) -> None:
    DatasetWriter(path, num_workers=0, samples_per_shard=1, progress=False).from_indexed_dataset(NEW)


def append(path: Path) -> None:
    writer = DatasetWriter(path, mode="append", num_workers=0, samples_per_shard=1, progress=False)
    writer.from_indexed_dataset(NEW)


def dump_files(path: Path) -> None:
    dump(NEW, path, len(NEW))


WRITES: dict[str, tuple[Callable[[Path], None], list[bytes]]] = {
    "create": (create, []),
    "append": (append, OLD),
    "dump": (dump_files, []),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that cannot be replaced by a rename."""
    (tmp_path / "set").mkdir()
    monkeypatch.chdir(tmp_path / "set")
    return tmp_path / "set"


def begin(place: Path, kind: str, moves: int) -> None:
    """A write that is killed when this many names have come to be in the directory; for an append one is the manifest
    of what is there."""
    write, before = WRITES[kind]
    if before:
        builders.write_samples(place / "a.ffr", before)
    if os.fork():
        assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGKILL
        return
    real, left = os.rename, [moves]

    def rename(source: Any, target: Any) -> None:
        if Path(target).parent == place:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        real(source, target)

    os.rename = rename
    try:
        write(place)
    finally:
        os._exit(1)


def read(place: Path) -> list[bytes]:
    with FileReader(place) as reader:
        return builders.read_all(reader)


@pytest.mark.parametrize("opened", [FileReader, ffrecord.open])
@pytest.mark.parametrize("moves", range(4))
@pytest.mark.parametrize("kind", WRITES)
def test_the_manifest_is_gone(place: Path, kind: str, moves: int, opened: Any) -> None:
    begin(place, kind, moves)
    (place / manifest.NAME).unlink(missing_ok=True)
    write, before = WRITES[kind]
    if moves > 1:
        with pytest.raises(FormatError, match=rf"\.ffr of an interrupted write, and no dataset.json .*{GOES_ON}"):
            opened(place)
    elif before:
        assert read(place) == before
    else:
        with pytest.raises(
            ValueError, match=rf"(is a directory without one|unknown format: a directory of .*); a write .*{GOES_ON}"
        ):
            opened(str(place))
    write(place)
    assert read(place) == before + NEW
    assert not (place / leftovers.INSIDE).exists()


@pytest.mark.parametrize("moves", [1, 2, 3])
@pytest.mark.parametrize("kind", WRITES)
def test_the_manifest_is_there(place: Path, kind: str, moves: int) -> None:
    begin(place, kind, moves)
    write, before = WRITES[kind]
    if before:
        assert read(place) == before
    else:
        with pytest.raises(FileNotFoundError, match=rf"PART_0.*interrupted, or is going on; {GOES_ON}"):
            read(place)
    write(place)
    assert read(place) == before + NEW


def test_an_append_to_shards_without_a_manifest_that_goes_on(place: Path) -> None:
    builders.write_samples(place / "a.ffr", OLD)
    seen = []

    class Reading(list[bytes]):
        def __getitem__(self, index: Any) -> Any:
            seen.append(read(place))
            return super().__getitem__(index)

    writer = DatasetWriter(place, mode="append", num_workers=0, samples_per_shard=1, progress=False)
    writer.from_indexed_dataset(Reading(NEW))
    assert len(seen) >= len(NEW) and all(samples == OLD for samples in seen)
    assert read(place) == OLD + NEW


def test_the_manifest_comes_while_a_reader_looks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(place, "append", 2)
    real, asked = manifest.load, []

    def load(directory: str) -> Any:
        asked.append(directory)
        return None if len(asked) == 1 else real(directory)

    monkeypatch.setattr(manifest, "load", load)
    assert read(place) == OLD


def test_shards_of_the_same_names_that_are_somebody_elses(place: Path) -> None:
    begin(place, "create", 0)
    builders.write_samples(place / "PART_00001.ffr", [b"theirs"])
    assert read(place) == [b"theirs"]


@pytest.mark.parametrize("kind", ["nothing", "fifo", "directory", "torn", "other lines", "forbidden"])
def test_ledgers_that_tell_nothing(place: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(place, "append", 2)
    (place / manifest.NAME).unlink()
    path = Path(PartDirectory(str(place), among_others=True).write_log_path)
    data = path.read_bytes()
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "torn":
        path.write_bytes(data[:-1])
    elif kind == "other lines":
        path.write_bytes(data + b"[[[\n")
    elif kind == "forbidden":
        path.write_bytes(data)
        real = manifest.read

        def refuse(path: str, most: int) -> bytes:
            if path.endswith("ledger"):
                raise PermissionError(13, "not yours", path)
            return real(path, most)

        monkeypatch.setattr(manifest, "read", refuse)
    assert read(place) == [*OLD, NEW[0]]  # as far as anybody can tell

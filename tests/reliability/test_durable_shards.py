"""T2 (guarantees G1, G2, G3): The shards of a dataset reach the disk, and get their names, in the right order."""

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ffrecord import DatasetWriter, FileReader
from ffrecord.dataset_writer import shards, write_log
from ffrecord.dataset_writer.layout import Start
from ffrecord.errors import CountError, FormatError
from ffrecord.format.manifest import Shard

SAMPLES = [bytes([number]) * 100 for number in range(6)]
SHARDS = ["PART_00000.ffr", "PART_00001.ffr", "PART_00002.ffr"]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(call, path) of each fsync and rename of this process; a rename by the name that it gives."""
    calls: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def synced(fd: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def renamed(source: str, target: str, **beside: Any) -> None:
        calls.append(("rename", os.fspath(target)))
        rename(source, target, **beside)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    return calls


def write(path: str | Path) -> None:
    DatasetWriter(path, num_workers=0, samples_per_shard=2).from_indexed_dataset(SAMPLES)


def place(log: list[tuple[str, str]], call: str, end: str) -> int:
    """Where in the log the first such call is."""
    return next(number for number, (name, path) in enumerate(log) if name == call and path.endswith(end))


def test_all_is_durable_before_it_has_its_name(tmp_path: Path, log: list[tuple[str, str]]) -> None:
    write(tmp_path / "set")
    for name in SHARDS:
        assert place(log, "fsync", f"/{name}") < place(log, "rename", f"/finished/{name}"), name
    published = place(log, "rename", "/set")
    assert published > place(log, "rename", "/finished/dataset.json") > place(log, "rename", f"/finished/{SHARDS[-1]}")
    # Of the directory, since its last file got a name there; and of the one that has the new name, at the end.
    last = max(number for number, (_, path) in enumerate(log) if path.endswith("/finished") and number < published)
    assert last > place(log, "rename", "/finished/dataset.json")
    assert ("fsync", str(tmp_path)) in log[published:]


def test_what_is_moved_one_by_one_says_first_what_will_be_there(
    tmp_path: Path, log: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into the working directory, which cannot be replaced: a reader of a part of it is told what is missing."""
    monkeypatch.chdir(tmp_path)
    write(".")
    here = [path for call, path in log if call == "rename" and os.path.dirname(path) == str(tmp_path)]
    assert [os.path.basename(path) for path in here] == ["dataset.json", *SHARDS]
    assert ("fsync", str(tmp_path)) in log[log.index(("rename", here[-1])) :]
    with FileReader(tmp_path) as reader:
        assert reader.n == len(SAMPLES)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_shard_of_another_length_is_not_finished(tmp_path: Path, more: int) -> None:
    path = str(tmp_path / "PART_00000.ffr")
    shards.create(path, "label", 24)
    os.truncate(path, 24 + 100 + more)
    with pytest.raises(CountError, match=rf"label: it has {124 + more} bytes, but its samples \(1\) end at offset 124"):
        shards.finish(path, "label", 24, np.array([100]), np.array([0], np.uint32), None)
    assert Path(path).read_bytes() == bytes(124 + more)


def test_the_last_line_of_a_ledger_counts_when_all_of_it_is_there() -> None:
    """What is appended begins a line of its own, also after one that was torn in its last byte."""
    begun = msgspec.json.encode(write_log.WriteBegun(write_log.VERSION, {"call": "any"})) + b"\n"
    finished = msgspec.json.encode(write_log.ShardFinished(Shard(SHARDS[0], 1, 100, 7), Start(1, 1))) + b"\n"
    assert list(write_log.replay(begun + finished).finished) == SHARDS[:1]
    for size in range(len(finished)):
        torn = write_log.replay(begun + finished[:size])
        assert (torn.finished, torn.end) == ({}, len(begun)), size


def test_a_shard_of_another_dataset_is_refused(tmp_path: Path) -> None:
    """One with as many samples, of the same sizes, and right checksums."""
    write(tmp_path / "set")
    write(tmp_path / "other")
    others = [bytes([255 - number]) * 100 for number in range(6)]
    DatasetWriter(tmp_path / "more", num_workers=0, samples_per_shard=2).from_indexed_dataset(others)
    (tmp_path / "other" / SHARDS[0]).replace(tmp_path / "set" / SHARDS[0])
    with FileReader(tmp_path / "set") as reader:
        assert [bytes(sample) for sample in reader] == SAMPLES
    (tmp_path / "more" / SHARDS[1]).replace(tmp_path / "set" / SHARDS[1])
    with pytest.raises(FormatError, match=rf"{SHARDS[1]} is not the shard that dataset\.json lists, .*, listed"):
        FileReader(tmp_path / "set")

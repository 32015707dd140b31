"""What is done by the next write where one ended just before, amid or behind its publication."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from interrupting import N, Stopping, record, write
from written_datasets import files_in

from ffrecord import FileReader
from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.format import manifest


def test_publishing_that_failed_is_done_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "set"
    real = os.rename

    def refuse(source: Any, place: Any, **beside: Any) -> None:
        if str(place) == str(target):
            raise OSError(5, "disk")
        real(source, place, **beside)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="nothing was published"):
        write(target, Stopping(), samples_per_shard=70)
    monkeypatch.undo()
    dataset = Stopping()
    summary = write(target, dataset, samples_per_shard=70, serializer=None)
    assert summary.kept_shards == summary.shards == 6
    assert max(dataset.asked, default=0) == N - 1 and len(dataset.asked) == 8  # those looked at
    assert os.listdir(tmp_path) == ["set"]


def test_a_write_that_was_published_before_it_was_killed_is_complete(tmp_path: Path, monkeypatch: Any) -> None:
    target = tmp_path / "set"
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(PartDirectory, "discard", lambda self: os.kill(os.getpid(), signal.SIGKILL))
        write(target, Stopping(), samples_per_shard=70)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == [".set.part", "set"]
    before = files_in(target)
    with pytest.raises(FileExistsError, match="is not empty"):
        write(target, Stopping(), samples_per_shard=71)
    assert files_in(target) == before and os.listdir(tmp_path) == ["set"]


def test_the_same_call_after_a_kill_behind_publication_tells_of_it(tmp_path: Path, monkeypatch: Any) -> None:
    target = tmp_path / "set"
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(PartDirectory, "discard", lambda self: os.kill(os.getpid(), signal.SIGKILL))
        write(target, Stopping(), samples_per_shard=70)
    os.waitpid(pid, 0)
    summary = write(target, Stopping(), samples_per_shard=70)
    assert (summary.samples, summary.shards, summary.kept_shards) == (N, 6, 6)
    assert summary.bytes == sum(len(record(index)) for index in range(N))
    assert os.listdir(tmp_path) == ["set"]


def test_empty_dataset_after_a_failed_publication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk"):
        patch.setattr(PartDirectory, "publish", fail)
        write(tmp_path / "set", [])
    assert write(tmp_path / "set", []).kept_shards == 1
    with FileReader(tmp_path / "set") as reader:
        assert reader.n == 0


def fail(*args: Any, **options: Any) -> None:
    raise OSError(5, "disk")


def test_only_shards_without_a_gap_before_them_stay(tmp_path: Path) -> None:
    """Those after it no rerun could use, and another call would be refused for them."""
    part = PartDirectory(str(tmp_path / "set"))
    part.acquire()
    part.first = 0
    names = [f"PART_0000{number}.ffr" for number in range(5)]
    for number in (4, 0, 1, 3):
        (Path(part.open) / names[number]).write_bytes(b"x")
        part.keep(manifest.Shard(names[number], 1, 1, 0), Start(number + 1, number + 1, 1))
    assert part.leave() == names[:2]
    assert sorted(os.listdir(part.finished)) == names[:2]


def test_nothing_stays_behind_a_first_shard_that_is_missing(tmp_path: Path) -> None:
    part = PartDirectory(str(tmp_path / "set"))
    part.acquire()
    part.first = 0
    (Path(part.open) / "PART_00001.ffr").write_bytes(b"x")
    part.keep(manifest.Shard("PART_00001.ffr", 1, 1, 0), Start(2, 2, 1))
    assert part.leave() == [] and os.listdir(tmp_path) == []

"""One writer of a path at a time, and who has the lock."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import builders
import pytest
from children import wait_until
from interrupting import N, Stopping, interrupted, kept_files, record, write

from ffrecord import FileReader, MismatchError
from ffrecord.dataset_writer.dump import dump
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.system import locked_directory


def test_two_writers_of_one_target_refuse_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_directory, "PATIENCE", 0.1)

    class Meddling(Stopping):
        def __getitem__(self, index: int) -> bytes:
            if index == 200:
                with pytest.raises(BlockingIOError, match="another process or thread is writing to it") as caught:
                    write(tmp_path / "set", Stopping(), resume=False)
                assert isinstance(caught.value, RuntimeError) and caught.value.filename == str(tmp_path / "set")
            return record(index)

    write(tmp_path / "set", Meddling(), samples_per_shard=70)
    with FileReader(tmp_path / "set") as reader:
        assert builders.read_all(reader) == [record(index) for index in range(N)]


def test_the_lock_of_a_killed_writer_vanishes_though_its_children_live(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    class Parental(Stopping):
        def __getitem__(self, index: int) -> bytes:
            if index == 380:  # two shards are finished, or about to be
                child = os.fork()
                if child == 0:
                    time.sleep(30)
                    os._exit(0)
                pids.write_text(str(child))
                # Of two, the first has been noted, too, and not only moved to where it is kept.
                if wait_until(lambda: len(kept_files(tmp_path / "set")) > 1, 20):
                    os.kill(os.getpid(), signal.SIGKILL)
                os._exit(1)
            return record(index)

    pid = os.fork()
    if pid == 0:
        write(tmp_path / "set", Parental(), samples_per_shard=70)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    try:
        assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards > 0
    finally:
        os.kill(int(pids.read_text()), signal.SIGKILL)


def test_a_worker_that_outlives_its_parent_cannot_touch_what_the_next_one_writes(tmp_path: Path) -> None:
    """It knows a directory that is not there any more."""
    first = PartDirectory(str(tmp_path / "set"))
    first.acquire()
    stale = Path(first.open)
    first.forget()
    second = PartDirectory(str(tmp_path / "set"))
    second.acquire()
    assert not stale.exists() and second.open != first.open
    second.discard()
    assert os.listdir(tmp_path) == []


def test_a_part_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".set.part").mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(tmp_path / ".set.part", 12345, 12345)
    with pytest.raises(PermissionError, match="could not be created"):
        write(tmp_path / "set", Stopping())


def test_without_locks_there_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(file: Any, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(locked_directory.fcntl, "flock", refuse)
    write(tmp_path / "set", Stopping())
    assert "has no locks" in caplog.text


def test_a_dump_does_not_discard_what_a_writer_has_finished(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    with pytest.raises(MismatchError, match="4 finished shards of an interrupted write, which this"):
        dump([record(index) for index in range(N)], tmp_path / "set", 4)
    assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards == 4

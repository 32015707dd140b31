"""Writers that are killed at every call and at any time, and calls that are refused: the next one goes on."""

import contextlib
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import pytest
from calls import dies_before, refused_at
from interrupting import Stopping, record, write
from written_datasets import files_in

from ffrecord import FileReader
from ffrecord.errors import WorkerError
from ffrecord.sharding.part_directory import PartDirectory


def sizes(shards: int) -> list[bytes]:
    return [record(index) for index in range(shards * 10)]


def sweep(tmp_path: Path, target: Path, prepare: Callable[[], None], check: Callable[[], None], step: int) -> int:
    """Write with a kill -9 before every `step`-th call, and again until it is complete; how many calls there were."""
    at = 1
    while True:
        prepare()
        died = dies_before(at, lambda: write(target, sizes(4), samples_per_shard=10))
        check()
        if not died:
            return at
        try:
            write(target, sizes(4), samples_per_shard=10)
        except FileExistsError:
            # It died tidying up: the ledger was gone.
            assert not os.path.exists(PartDirectory(str(target)).ledger_path)
        check()
        at += step


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "inside"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_killed_before_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool, step: int) -> None:
    """Nothing or all is at the target; or an error says what is missing, where files have to be moved one by one."""
    write(tmp_path / "whole", sizes(4), samples_per_shard=10)
    target = tmp_path / "set"

    def prepare() -> None:
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(target, ignore_errors=True)
        if inside:
            target.mkdir()
            monkeypatch.chdir(target)

    def check() -> None:
        visible = [name for name in os.listdir(target) if name[0] != "."] if target.exists() else []
        if not visible:
            return
        try:
            with FileReader(target) as reader:
                assert builders.read_all(reader) == sizes(4)
        except FileNotFoundError as error:
            assert inside and "PART_0000" in str(error)

    calls = sweep(tmp_path, target, prepare, check, step)
    assert files_in(target) == files_in(tmp_path / "whole")
    assert calls > 40


@pytest.mark.parametrize("number", [5, 28])
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_any_call_refused(tmp_path: Path, number: int, step: int) -> None:
    """The error of that call, nothing at the target; and the next one goes on."""
    target, outcomes = tmp_path / "set", set()
    write(tmp_path / "whole", sizes(4), samples_per_shard=10)
    for at in range(1, 400, step):
        outcome = refused_at(at, number, lambda: write(target, sizes(4), samples_per_shard=10))
        outcomes.add(outcome)
        if outcome == 3:
            break
        assert outcome in (0, 1), at
        assert not [name for name in os.listdir(tmp_path) if name not in ("whole", "set", ".set.part")]
        if not target.exists():
            write(target, sizes(4), samples_per_shard=10)
        assert files_in(target) == files_in(tmp_path / "whole")
        shutil.rmtree(target)
    assert outcomes >= {1, 3}


class Fatal(Stopping):
    """Some process that reads it is killed at a random sample, now and then."""

    def __init__(self, seed: int, victim: str) -> None:
        super().__init__(n=3000)
        self.random, self.victim = random.Random(seed), victim
        self.at = self.random.randrange(4000)

    def __getitem__(self, index: int) -> bytes:
        if index == self.at:
            if self.victim != "worker":
                os.kill(self.writer, signal.SIGKILL)
            if self.victim != "parent":
                os.kill(os.getpid(), signal.SIGKILL)
        return record(index)


@pytest.mark.parametrize("victim", ["parent", "worker", "both"])
@pytest.mark.parametrize("turns", [3, pytest.param(200, marks=pytest.mark.long)])
def test_killed_again_and_again(tmp_path: Path, victim: str, turns: int) -> None:
    options: dict[str, Any] = {"shard_size": 9000, "num_workers": 2, "chunksize": 20}
    write(tmp_path / "whole", Stopping(n=3000), **options)
    for turn in range(turns):
        target, attempt = tmp_path / f"set{turn}", 0
        while not target.exists():
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(WorkerError):
                    write(target, Fatal(100 * turn + attempt, victim), **options)
                os._exit(0)
            os.waitpid(pid, 0)
            attempt += 1
        assert files_in(target) == files_in(tmp_path / "whole")
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_killed_at_any_time(tmp_path: Path) -> None:
    """By the clock, not at a sample: while finishing, publishing or verifying too."""
    options: dict[str, Any] = {"shard_size": 9000, "num_workers": 2, "chunksize": 20}
    write(tmp_path / "whole", Stopping(n=3000), **options)
    clock = random.Random(5)
    for turn in range(6):
        target, most = tmp_path / f"set{turn}", 0.2
        while not target.exists():
            pid = os.fork()
            if pid == 0:
                write(target, Stopping(n=3000), **options)
                os._exit(0)
            time.sleep(clock.random() * most)
            most *= 1.2  # on a machine with other things to do
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert files_in(target) == files_in(tmp_path / "whole")


def test_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """A full disk, or here a limit, in the middle; what was finished is not lost."""
    big = [bytes(20)] * 50 + [bytes(3000)] * 20
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        with pytest.raises(OSError, match="could not be written") as caught:
            write(tmp_path / "set", big, samples_per_shard=10, chunksize=10)
        os._exit(0 if caught.value.errno == 27 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.listdir(tmp_path) == [".set.part"]
    assert write(tmp_path / "set", big, samples_per_shard=10).kept_shards == 5
    with FileReader(tmp_path / "set") as reader:
        assert builders.read_all(reader) == big


def test_a_full_disk_names_the_last_sample_of_the_shard_that_failed(tmp_path: Path) -> None:
    """Not the last one of the piece, which goes into several shards."""
    big = [bytes(20)] * 50 + [bytes(3000)] * 20
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        with pytest.raises(OSError, match=r"PART_00005.*: 10 samples up to 59 could not be written"):
            write(tmp_path / "set", big, samples_per_shard=10, chunksize=70)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

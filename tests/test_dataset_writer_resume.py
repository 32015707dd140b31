"""An interrupted write is gone on with, to the same bytes; never from what is damaged, nor for other arguments."""

import contextlib
import os
import pickle
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from calls import dies_before, refused_at
from test_dump import files_in
from test_workers import wait_until

from ffrecord import FileReader, MismatchError, manifest
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.dump import dump
from ffrecord.errors import WorkerError
from ffrecord.fields import IntField
from ffrecord.sharding import journal, part_directory
from ffrecord.sharding.layout import Start
from ffrecord.sharding.part_directory import PartDirectory

CUTS = [{"shard_size": 3000}, {"samples_per_shard": 70}, {"num_shards": 6}]
N = 400


def record(index: int) -> bytes:
    return index.to_bytes(4, "little") * (1 + index * 7919 % 23)


class Stopping:
    """Plain or typed samples, of which number `at` cannot be had while `broken`."""

    def __init__(self, at: int | None = None, typed: bool = False, n: int = N) -> None:
        self.at, self.typed, self.n = at, typed, n
        self.asked: list[int] = []
        self.writer = os.getpid()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        if index == self.at:
            if os.getpid() != self.writer:
                time.sleep(0.1)  # for other workers to get on with what is before
            raise KeyError("not yet")
        return {"x": index, "name": record(index)} if self.typed else record(index)


def write(path: Path, dataset: Any, **options: Any) -> Summary:
    """Write with the options of the writer and of the call in one."""
    call = {name: options.pop(name) for name in ("indices", "chunksize", "shuffle_indices", "seed") if name in options}
    return DatasetWriter(path, **{"num_workers": 0, **options}).from_indexed_dataset(dataset, **call)


def interrupted(path: Path, at: int = 300, typed: bool = False, **options: Any) -> WorkerError:
    with pytest.raises(WorkerError, match=f"failed at sample {at}") as caught:
        write(path, Stopping(at, typed), **options)
    return caught.value


def kept_files(path: Path) -> list[Path]:
    return sorted((path.parent / f".{path.name}.part" / "finished").iterdir())


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: next(iter(cut)))
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
def test_the_same_bytes_as_uninterrupted(tmp_path: Path, cut: dict[str, int], workers: int, typed: bool) -> None:
    whole, target = tmp_path / "whole", tmp_path / "set"
    write(whole, Stopping(typed=typed), **cut)
    kept = 0
    # 133: between the samples that are looked at beforehand.
    for at in (133, 134, 250, 390):
        interrupted(target, at, typed, **cut, num_workers=workers, chunksize=17)
        if (tmp_path / ".set.part").exists():
            assert sorted(os.listdir(tmp_path / ".set.part")) == ["finished", "journal"]
            assert len(kept_files(target)) >= kept
            kept = len(kept_files(target))
    dataset = Stopping(typed=typed)
    summary = write(target, dataset, **cut, chunksize=23)
    # Another worker may have been far behind the one that failed.
    assert summary.kept_shards == kept and (kept > 1 or workers)
    assert files_in(target) == files_in(whole)
    assert sorted(os.listdir(tmp_path)) == ["set", "whole"]
    expected = write(tmp_path / "another", Stopping(typed=typed), **cut)
    assert (summary.samples, summary.bytes, summary.shards) == (expected.samples, expected.bytes, expected.shards)


def test_what_is_kept_is_neither_read_nor_written_again(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", 300, samples_per_shard=70, serializer=bytes)
    before = {path.name: path.stat() for path in kept_files(tmp_path / "set")}
    assert sorted(before) == [f"PART_0000{number}.ffr" for number in range(4)]
    dataset = Stopping()
    assert write(tmp_path / "set", dataset, samples_per_shard=70, serializer=bytes).kept_shards == 4
    assert dataset.asked == list(range(280, 400))
    for name, status in before.items():
        after = (tmp_path / "set" / name).stat()
        assert (after.st_ino, after.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)


def test_the_error_says_what_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    error = interrupted(tmp_path / "set", samples_per_shard=70)
    said = "\n".join([*getattr(error, "__notes__", []), caplog.text])
    assert f"4 finished shards stay in {tmp_path / '.set.part'}; the same call goes on from there" in said
    write(tmp_path / "set", Stopping(), samples_per_shard=70)
    assert "keeping 4 finished shards of an interrupted write" in caplog.text


def test_nothing_stays_where_nothing_was_finished(tmp_path: Path) -> None:
    error = interrupted(tmp_path / "set", 60, samples_per_shard=70, serializer=bytes)
    assert not getattr(error, "__notes__", []) and os.listdir(tmp_path) == []


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flip(where: Callable[[int], int]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[where(len(data))] ^= 16
        path.write_bytes(data)

    return damage


DAMAGES = {
    "missing": os.unlink,
    "cut": cut_short,
    "grown": grow,
    "empty": lambda path: os.truncate(path, 0),
    "header checksum": flip(lambda size: 1),
    "count": flip(lambda size: 4),
    "a checksum": flip(lambda size: 20),
    "an offset": flip(lambda size: 12 + 4 * 70 + 3),
    "first record": flip(lambda size: 12 + 12 * 70),
    "last record": flip(lambda size: size - 1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "another shard": lambda path: shutil.copy(path.with_name("PART_00000.ffr"), path),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_shards_are_written_again(tmp_path: Path, how: str) -> None:
    write(tmp_path / "whole", Stopping(), samples_per_shard=70)
    interrupted(tmp_path / "set", samples_per_shard=70)
    damaged = kept_files(tmp_path / "set")[2]
    DAMAGES[how](damaged)
    summary = write(tmp_path / "set", Stopping(), samples_per_shard=70)
    assert summary.kept_shards == 2
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.long)])
def test_every_byte_of_a_kept_shard_counts(tmp_path: Path, step: int) -> None:
    """Padding and extension block too."""
    options: dict[str, Any] = {"shard_size": 300, "chunksize": 5}
    write(tmp_path / "whole", Stopping(n=60), **options)
    with pytest.raises(WorkerError):
        write(tmp_path / "set", Stopping(40, n=60), **options)
    pristine = tmp_path / "pristine"
    shutil.copytree(tmp_path / ".set.part", pristine)
    size = kept_files(tmp_path / "set")[1].stat().st_size
    for offset in range(0, size, step):
        flip(lambda size, offset=offset: offset)(kept_files(tmp_path / "set")[1])  # type: ignore[misc]
        assert write(tmp_path / "set", Stopping(n=60), **options).kept_shards == 1, offset
        assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")
        shutil.rmtree(tmp_path / "set")
        shutil.copytree(pristine, tmp_path / ".set.part")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"samples_per_shard": 71}, "samples_per_shard was 70, is 71"),
        ({"samples_per_shard": None, "num_shards": 6}, "samples_per_shard was 70, is None; num_shards was None, is 6"),
        ({"samples_per_shard": None}, "samples_per_shard was 70, is nothing"),
        ({"indices": range(1, N)}, "samples was 400, is 399"),
        ({"indices": [*range(1, N), 0]}, "indices was '"),
        ({"shuffle_indices": True, "seed": 3}, "seed was None, is 3"),
        ({"serializer": pickle.dumps}, "serializer was None, is '_pickle.dumps'"),
        ({"fields": {"x": IntField()}}, "schema was None, is {"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_arguments_are_refused_and_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"samples_per_shard": 70}
    interrupted(tmp_path / "set", **options)
    before = files_in(tmp_path / ".set.part" / "finished")
    with pytest.raises(MismatchError, match="4 finished shards of an interrupted write") as caught:
        write(tmp_path / "set", Stopping(typed="fields" in change), **{**options, **change})
    assert words in str(caught.value) and "resume=False" in str(caught.value)
    assert any(words.split("; ")[0] in difference for difference in caught.value.differences)
    assert files_in(tmp_path / ".set.part" / "finished") == before
    assert write(tmp_path / "set", Stopping(), **options).kept_shards == 4


def test_changed_samples_are_noticed_where_they_were_looked_at(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", shard_size=3000)

    class Changed(Stopping):
        def __getitem__(self, index: int) -> bytes:
            return b"else" * 3 if index == 0 else record(index)

    with pytest.raises(MismatchError, match=r"samples looked at\.0\[0\] was 4, is 12"):
        write(tmp_path / "set", Changed(), shard_size=3000)


def test_a_schema_that_changed_is_noticed(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", typed=True, num_shards=6)
    with pytest.raises(MismatchError, match=r"schema\S* was .*'x'"):
        write(tmp_path / "set", [{"y": 1.5, "name": record(index)} for index in range(N)], num_shards=6)


def test_afresh_if_asked(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    dataset = Stopping()
    summary = write(tmp_path / "set", dataset, samples_per_shard=90, resume=False, serializer=bytes)
    assert (summary.kept_shards, dataset.asked) == (0, list(range(N)))
    assert os.listdir(tmp_path) == ["set"]


def test_a_drawn_seed_is_kept(tmp_path: Path) -> None:
    options: dict[str, Any] = {"shuffle_indices": True, "samples_per_shard": 20, "serializer": bytes}
    for at in range(300, 310):
        with pytest.raises(WorkerError):
            write(tmp_path / "set", Stopping(at), **options)
        if (tmp_path / ".set.part").exists():
            break
    summary = write(tmp_path / "set", Stopping(), **options)
    assert summary.kept_shards > 0
    order = np.random.RandomState(summary.seed).permutation(N)
    with FileReader(tmp_path / "set") as reader:
        assert builders.read_all(reader) == [record(int(index)) for index in order]


def test_num_workers_and_chunks_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "whole", Stopping(), shard_size=2000)
    interrupted(tmp_path / "set", 150, shard_size=2000, chunksize=7)
    interrupted(tmp_path / "set", 330, shard_size=2000, num_workers=1, start_method="spawn")
    assert write(tmp_path / "set", Stopping(), shard_size=2000, num_workers=3, chunksize=50).kept_shards > 0
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


@pytest.mark.parametrize(
    "garbage", [b"", b"\0" * 99, b"{}\n", b'{"type":"begun","version":2,"request":{}}\n', b"\xff\n"]
)
def test_a_journal_that_tells_nothing_is_no_journal(tmp_path: Path, garbage: bytes) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    (tmp_path / ".set.part" / "journal").write_bytes(garbage)
    assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards == 0
    assert os.listdir(tmp_path) == ["set"]


def test_a_journal_cut_anywhere(tmp_path: Path) -> None:
    """What a power cut may leave: fewer shards are kept, and what is kept is right."""
    write(tmp_path / "whole", Stopping(), samples_per_shard=70)
    interrupted(tmp_path / "set", samples_per_shard=70)
    shutil.copytree(tmp_path / ".set.part", tmp_path / "pristine")
    data, kept = (tmp_path / "pristine" / "journal").read_bytes(), set()
    for size in range(0, len(data) + 1, 29):
        shutil.rmtree(tmp_path / ".set.part", ignore_errors=True)
        shutil.copytree(tmp_path / "pristine", tmp_path / ".set.part")
        (tmp_path / ".set.part" / "journal").write_bytes(data[:size] + b"\0" * (size % 3))
        kept.add(write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards)
        assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")
        shutil.rmtree(tmp_path / "set")
    assert kept == {0, 1, 2, 3}


def test_two_writers_of_one_target_refuse_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_directory, "PATIENCE", 0.1)

    class Meddling(Stopping):
        def __getitem__(self, index: int) -> bytes:
            if index == 200:
                with pytest.raises(BlockingIOError, match="another process, or another thread, writes to it") as caught:
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
            if index == 200:
                child = os.fork()
                if child == 0:
                    time.sleep(30)
                    os._exit(0)
                pids.write_text(str(child))
                assert wait_until(lambda: kept_files(tmp_path / "set") != [], 5)
                os.kill(os.getpid(), signal.SIGKILL)
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
    with pytest.raises(PermissionError, match="Failed to create directory"):
        write(tmp_path / "set", Stopping())


def test_without_locks_there_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(file: Any, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(part_directory.fcntl, "flock", refuse)
    write(tmp_path / "set", Stopping())
    assert "no locks here" in caplog.text


def test_a_dump_does_not_discard_what_a_writer_has_finished(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    with pytest.raises(MismatchError, match="4 finished shards of an interrupted write, and this"):
        dump([record(index) for index in range(N)], tmp_path / "set", 4)
    assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards == 4


# Dying at every call.


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
            # It died tidying up: the journal was gone.
            assert not os.path.exists(PartDirectory(str(target)).journal_path)
        check()
        at += step


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "inside"])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
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
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
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
        target = tmp_path / f"set{turn}"
        while not target.exists():
            pid = os.fork()
            if pid == 0:
                write(target, Stopping(n=3000), **options)
                os._exit(0)
            time.sleep(clock.random() * 0.2)
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


def test_publishing_that_failed_is_done_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "set"
    real = os.rename

    def refuse(source: Any, place: Any) -> None:
        if str(place) == str(target):
            raise OSError(5, "disk")
        real(source, place)

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
        patch.setattr(PartDirectory, "publish", builders_fail)
        write(tmp_path / "set", [])
    assert write(tmp_path / "set", []).kept_shards == 1
    with FileReader(tmp_path / "set") as reader:
        assert reader.n == 0


def builders_fail(*args: Any, **options: Any) -> None:
    raise OSError(5, "disk")


def test_journal_lines(tmp_path: Path) -> None:
    """What a journal looks like; a later version may add kinds of lines, and ends what this one reads."""
    interrupted(tmp_path / "set", samples_per_shard=70)
    story = journal.peek(str(tmp_path / ".set.part" / "journal"))
    assert story.request is not None and story.request["samples_per_shard"] == 70
    assert sorted(story.finished) == [f"PART_0000{number}.ffr" for number in range(4)]
    last = story.finished["PART_00003.ffr"]
    assert last.next == (4, 280, sum(len(record(index)) for index in range(280)), 0)
    assert isinstance(last.shard, manifest.Shard) and story.publishing is None
    assert journal.peek(str(tmp_path / "missing")) == journal.Story()


# Lines


def line_of(line: str) -> dict[str, int]:
    number = int(line)
    if Gate.closed_at == number:
        raise KeyError("not yet")
    return {"x": number}


class Gate:
    """At which line `line_of` fails."""

    closed_at: int | None = None


def write_lines(path: Path, lines: Any, **options: Any) -> Summary:
    return DatasetWriter(path, **{"num_workers": 0, "samples_per_shard": 30, **options}).from_list(lines, line_of, 20)


@pytest.mark.parametrize("fields", [None, {"x": IntField()}], ids=["inferred", "given"])
@pytest.mark.parametrize("kind", [list, tuple, "file"])
def test_lines_are_gone_on_with(tmp_path: Path, monkeypatch: Any, kind: Any, fields: Any) -> None:
    lines: Any = [str(number) if number % 7 else "" for number in range(1, 300)]
    if kind == "file":
        (tmp_path / "list.txt").write_text("\n".join(lines))
        lines = tmp_path / "list.txt"
    else:
        lines = kind(lines)
    write_lines(tmp_path / "whole", lines, fields=fields)
    monkeypatch.setattr(Gate, "closed_at", 200)
    with pytest.raises(WorkerError, match="failed at line 200: KeyError"):
        write_lines(tmp_path / "set", lines, fields=fields)
    monkeypatch.setattr(Gate, "closed_at", 1)  # which is not asked for again
    assert write_lines(tmp_path / "set", lines, fields=fields).kept_shards == 5
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


def test_other_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [str(number) for number in range(100)]
    monkeypatch.setattr(Gate, "closed_at", 80)
    with pytest.raises(WorkerError):
        write_lines(tmp_path / "set", lines)
    monkeypatch.undo()
    for others in (lines[1:], [*lines[:50], lines[50] + lines[51], *lines[52:]]):
        with pytest.raises(MismatchError, match="lines was '"):
            write_lines(tmp_path / "set", others)
    with pytest.raises(MismatchError, match="call was 'from_list', is 'from_indexed_dataset'"):
        write(tmp_path / "set", [{"x": 1}], samples_per_shard=30)
    with pytest.raises(MismatchError, match="this one cannot go on with it"):
        write_lines(tmp_path / "set", iter(lines))
    assert write_lines(tmp_path / "set", lines).kept_shards == 2


def test_what_can_be_had_only_once_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "closed_at", 80)
    with pytest.raises(WorkerError) as caught:
        write_lines(tmp_path / "set", (str(number) for number in range(100)))
    assert os.listdir(tmp_path) == [] and not getattr(caught.value, "__notes__", [])


def test_what_can_be_had_only_once_leaves_alone_what_another_call_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("ffrecord.sharding.resume.settle", ctrl_c)
        write_lines(tmp_path / "set", iter(["1"]))
    with pytest.raises(MismatchError, match="4 finished shards of an interrupted write, and this one cannot"):
        write_lines(tmp_path / "set", iter(["1"]))
    assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards == 4


def ctrl_c(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt


def test_skipped_samples_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [str(number) if number % 10 else "bad" for number in range(100)]
    options: dict[str, Any] = {"on_error": "skip", "samples_per_shard": 18}
    expected = write_lines(tmp_path / "whole", lines, **options)

    monkeypatch.setattr(manifest, "save", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        write_lines(tmp_path / "set", lines, **options)
    monkeypatch.undo()
    (tmp_path / ".set.part" / "finished" / "PART_00003.ffr").unlink()
    summary = write_lines(tmp_path / "set", lines, **options)
    assert (summary.skipped, summary.samples, summary.kept_shards) == (expected.skipped, expected.samples, 3)
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


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

"""Whatever goes wrong while a dataset is written: noticed within a second, named, and nothing is left behind but what a
rerun goes on with."""

import contextlib
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
from children import alive, wait_until
from written_datasets import left_behind, read_all

from ffrecord.dataset_writer import DatasetWriter
from ffrecord.errors import WorkerError
from ffrecord.fields import NDArrayField

pytestmark = pytest.mark.usefixtures("nothing_leaks")
BAD = 137


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Failing:
    """Plain samples, or typed ones whose records have one size; something happens at number BAD."""

    def __init__(self, how: str, *, typed: bool = False) -> None:
        self.how, self.typed = how, typed

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> Any:
        if index == BAD:
            getattr(self, self.how)()
        return {"index": index, "data": np.zeros(92, np.uint8)} if self.typed else bytes(100)

    def raises(self) -> None:
        raise KeyError("no such picture")

    def raises_unpicklably(self) -> None:
        raise Unpicklable(1, 2)

    def raises_end_of_file(self) -> None:
        raise EOFError("picture cut short")

    def raises_broken_pipe(self) -> None:
        raise BrokenPipeError("of the user's own")

    def raises_another_name(self) -> None:
        raise ValueError(f"no picture {os.fsdecode(bytes([0x63, 0xE9]))}")

    def raises_the_end(self) -> None:
        raise StopIteration

    def raises_interrupt(self) -> None:
        raise KeyboardInterrupt

    def calls_sys_exit(self) -> None:
        sys.exit(0)

    def exits(self) -> None:
        os._exit(0)

    def exits_with_3(self) -> None:
        os._exit(3)

    def is_killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def is_terminated(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def wants_too_much(self) -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
        bytes(1 << 30)

    def stays(self) -> None:
        time.sleep(60)

    def closes_all_descriptors(self) -> None:
        os.closerange(3, 4096)
        time.sleep(60)


@pytest.mark.parametrize(
    "how, words, code",
    [
        ("raises", "failed at sample 137: KeyError: 'no such picture'", None),
        ("raises_unpicklably", "Unpicklable: 1 and 2", None),
        ("raises_the_end", "failed at sample 137: StopIteration", None),
        ("raises_end_of_file", "failed at sample 137: EOFError: picture cut short", None),
        ("raises_broken_pipe", "failed at sample 137: BrokenPipeError: of the user's own", None),
        ("raises_interrupt", "failed at sample 137: KeyboardInterrupt", None),
        ("calls_sys_exit", "failed at sample 137: SystemExit: 0", None),
        ("exits", "exited with code 0 at sample 137: its work was not done", 0),
        ("exits_with_3", "exited with code 3 at sample 137", 3),
        ("is_killed", "was ended by SIGKILL at sample 137: probably out of memory", -9),
        ("is_terminated", "was ended by SIGTERM at sample 137", -15),
        ("wants_too_much", "failed at sample 137: MemoryError", None),
        ("raises_another_name", "failed at sample 137: ValueError: no picture c\\udce9", None),
        ("closes_all_descriptors", "closed its connection at sample 137", None),
    ],
)
@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
def test_failing_workers(tmp_path: Path, how: str, words: str, code: int | None, typed: bool) -> None:
    started, dataset = time.monotonic(), Failing(how, typed=typed)
    with pytest.raises(WorkerError) as caught:
        DatasetWriter(tmp_path / "set", num_workers=2, num_shards=5).from_indexed_dataset(dataset, chunksize=10)
    assert words in str(caught.value)
    assert (caught.value.index, caught.value.exitcode) == (BAD, code)
    assert time.monotonic() - started < 2 * children.PATIENCE
    assert left_behind(tmp_path) == []


def test_cause_and_traceback(tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        DatasetWriter(tmp_path / "set", num_workers=2).from_indexed_dataset(Failing("raises"))
    assert isinstance(caught.value.__cause__, KeyError)
    assert 'raise KeyError("no such picture")' in str(caught.value.__cause__.__cause__)
    assert str(caught.value).endswith("failed at sample 137: KeyError: 'no such picture'")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("bad", [0, BAD])
def test_the_end_of_an_iterator_is_a_failure_like_others(tmp_path: Path, workers: int, bad: int) -> None:
    """It must not end an iteration of ours, or that of a caller."""

    def sample(line: str) -> int:
        return int(line) if line != str(bad) else next(iter(()))

    class Ending:
        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: int) -> int:
            return sample(str(index))

    writer = DatasetWriter(tmp_path / "set", num_workers=workers)
    with pytest.raises(WorkerError, match=f"failed at sample {bad}: StopIteration"):
        writer.from_indexed_dataset(Ending())
    with pytest.raises(WorkerError, match=f"failed at sample {bad}: StopIteration"):
        DatasetWriter(tmp_path / "set", serializer=pickle.dumps, num_workers=workers).from_indexed_dataset(Ending())
    with pytest.raises(WorkerError, match=f"failed at line {bad + 1}: StopIteration"):
        writer.from_list([str(i) for i in range(300)], sample)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("fields", [None, {"x": NDArrayField("uint8", (1000,))}], ids=["sized", "foreseen"])
def test_samples_that_could_not_be_written_are_called_as_their_source_has_them(tmp_path: Path, fields: Any) -> None:
    def sample(line: str) -> Any:
        return {"x": np.zeros(1000, np.uint8)}

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        writer = DatasetWriter(tmp_path / "set", fields, num_workers=0, samples_per_shard=2000)
        with pytest.raises(OSError, match=r"\d+ samples, the last of them line \d+, could not"):
            writer.from_list(["a"] * 1000, sample)
        with pytest.raises(OSError, match=r"\d+ samples, the last of them sample \d+, could not"):
            writer.from_iterable(map(sample, ["a"] * 1000))
        with pytest.raises(OSError, match=r"\d+ samples, the last of them sample \d+ of second, could not"):
            writer.from_webdataset(["first", "second"], lambda name: map(sample, ["a"] * 300))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left_behind(tmp_path) == []


def test_failure_without_workers(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="failed at sample 137: KeyError: 'no such picture'") as caught:
        DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset(Failing("raises"))
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.index == BAD
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_failure_of_the_serializer(tmp_path: Path, workers: int) -> None:
    for serializer, words in ((json.dumps, "is str .*, expected an object with the buffer protocol"), (len, "is int ")):
        with pytest.raises(WorkerError, match=words) as caught:
            DatasetWriter(tmp_path / "set", num_workers=workers, serializer=serializer).from_indexed_dataset([[1]] * 9)
        assert caught.value.index == 0
    assert left_behind(tmp_path) == []


def test_failure_while_samples_are_looked_at(tmp_path: Path) -> None:
    """The first and the last sample are always among those that the schema is inferred from."""
    for how in ("is_killed", "raises"):
        with pytest.raises(WorkerError, match="at sample 137"):
            DatasetWriter(tmp_path / "set").from_indexed_dataset(Failing(how), indices=range(BAD + 1))
    assert left_behind(tmp_path) == []


def test_stuck_worker(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(
        WorkerError, match=r"no sign of life for .* at sample 137, expected one within 0\.6 s"
    ) as caught:
        DatasetWriter(tmp_path / "set", num_workers=2, stuck_after=0.6).from_indexed_dataset(Failing("stays"))
    assert caught.value.index == BAD
    assert time.monotonic() - started < 3 * children.PATIENCE
    assert left_behind(tmp_path) == []


class Patient:
    """One worker is busy for long, the others wait for the places that depend on it."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> bytes:
        for _ in range(20 if index == 0 else 0):
            time.sleep(0.05)
        return bytes(10)


def test_waiting_workers_are_not_stuck(tmp_path: Path) -> None:
    DatasetWriter(
        tmp_path / "set", serializer=bytes, num_workers=3, num_shards=1, stuck_after=1.3
    ).from_indexed_dataset(Patient(), chunksize=1)
    assert read_all(tmp_path / "set") == [bytes(10)] * 40


def test_first_error_is_told_though_all_workers_fail(tmp_path: Path) -> None:
    class AllBad:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> bytes:
            raise ValueError(f"bad {index}")

    with pytest.raises(WorkerError, match="ValueError: bad") as caught:
        DatasetWriter(tmp_path / "set", num_workers=4, serializer=bytes, num_shards=1).from_indexed_dataset(
            AllBad(), chunksize=1
        )
    assert f"bad {caught.value.index}" in str(caught.value)
    assert left_behind(tmp_path) == []


# The parent in a process of its own, writing slow samples.

WRITER = """
    import os, sys, time
    sys.path[:0] = {path!r}
    from ffrecord import DatasetWriter

    class Slow:
        def __len__(self):
            return 100_000
        def __getitem__(self, index):
            with open({pids!r} + "/" + str(os.getpid()), "w"):
                pass
            time.sleep(0.005)
            return bytes(1000)

    if __name__ == "__main__":
        {extra}
        try:
            DatasetWriter({target!r}, num_workers={workers}, start_method={method!r}, samples_per_shard=50) \\
                .from_indexed_dataset(Slow(), chunksize=3)
        finally:
            print("cleaned", flush=True)
"""


class Writer:
    """A program that writes slowly."""

    def __init__(self, tmp_path: Path, method: str = "fork", workers: int = 3, extra: str = "pass"):
        self.out, self.pids = tmp_path / "out", tmp_path / "pids"
        self.out.mkdir()
        self.pids.mkdir()
        script = tmp_path / "writer.py"
        text = textwrap.dedent(WRITER).format(
            path=sys.path,
            pids=str(self.pids),
            target=str(self.out / "set"),
            method=method,
            workers=workers,
            extra=extra,
        )
        script.write_text(text)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        self.workers = workers
        # One more process looked at the samples beforehand.
        assert wait_until(lambda: len(self.seen()) >= max(1, workers) + bool(workers) and self.wrote(), 60)  # busy disk

    def seen(self) -> list[int]:
        return [int(name) for name in os.listdir(self.pids)]

    def wrote(self) -> bool:
        return any(path.stat().st_size > 1000 for path in self.out.glob(".set.part/*/*.ffr"))

    def finish(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=10)
        return self.process.returncode, out, error

    def orphans(self) -> list[int]:
        return [pid for pid in self.seen() if alive(pid)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ctrl_c_to_the_whole_group(tmp_path: Path, method: str) -> None:
    writer = Writer(tmp_path, method)
    os.killpg(writer.process.pid, signal.SIGINT)
    code, out, error = writer.finish()
    assert code == -signal.SIGINT
    assert out == "cleaned\n" and left_behind(writer.out) == []
    lines = error.rstrip().splitlines()
    assert error.count("Traceback") == 1 and "KeyboardInterrupt" in lines[-2:]
    assert lines[-1] == "KeyboardInterrupt" or "finished shards stay in" in lines[-1]
    assert wait_until(lambda: not writer.orphans(), 1)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("number, expected", [(signal.SIGINT, -2), (signal.SIGTERM, 143)])
def test_signals_to_the_parent(tmp_path: Path, workers: int, number: int, expected: int) -> None:
    writer = Writer(tmp_path, workers=workers)
    writer.process.send_signal(number)
    code, out, _ = writer.finish()
    assert (code, out) == (expected, "cleaned\n") and left_behind(writer.out) == []
    assert wait_until(lambda: not writer.orphans(), 1)


GROUP = """
import os, signal, sys, time
from ffrecord import DatasetWriter

parent = os.getpid()
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
def sample(line):
    if line == "137" and os.getpid() != parent:
        if os.fork() == 0:
            time.sleep(0.01)
            os.kill(parent, {number})
            os._exit(0)
        signal.signal({number}, signal.SIG_DFL)
        os.kill(os.getpid(), {number})
    return line
DatasetWriter({target!r}, num_workers=2, progress=False).from_list([str(i) for i in range(999)], sample, chunksize=7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_whole_group_is_told_of_as_such(tmp_path: Path, number: int) -> None:
    """A worker may be ended by it a moment before, and is not to blame."""
    code = GROUP.format(number=int(number), target=str(tmp_path / "set"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == (-number if number == signal.SIGINT else 128 + number), done.stderr
    assert "WorkerError" not in done.stderr
    assert left_behind(tmp_path) == []


def test_a_program_with_its_own_sigterm_handler_keeps_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path, extra="import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))")
    writer.process.send_signal(signal.SIGTERM)
    code, out, _ = writer.finish()
    assert (code, out) == (7, "cleaned\n") and left_behind(writer.out) == []


def test_impatient_ctrl_c_does_not_break_the_clean_up(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for _ in range(20):
        os.killpg(writer.process.pid, signal.SIGINT)
        time.sleep(0.002)
    code, _, _ = writer.finish()
    assert code in (-signal.SIGINT, 1)
    assert left_behind(writer.out) == []
    assert wait_until(lambda: not writer.orphans(), 1)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_kill_9_of_the_parent(tmp_path: Path, method: str) -> None:
    writer = Writer(tmp_path, method)
    writer.process.kill()
    writer.finish()
    assert wait_until(lambda: not writer.orphans(), 1.5)
    # The part directory stays, with what was being filled, and nothing under the final name.
    assert os.listdir(writer.out) == [".set.part"]


@pytest.mark.parametrize("turns", [12, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["worker", "parent"])
def test_kill_9_at_random_times(tmp_path: Path, victim: str, turns: int) -> None:
    """Never anything but nothing or all under the final name."""
    random.seed(7)
    for turn in range(turns):
        target = tmp_path / str(turn) / "set"
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(WorkerError):
                dataset = Murderous(os.getpid()) if victim == "worker" else [bytes(100)] * 3000
                DatasetWriter(target, num_workers=2, num_shards=7).from_indexed_dataset(dataset, chunksize=20)
                code = 0
            os._exit(code)
        if victim == "parent":
            time.sleep(random.random() * 0.12)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if target.exists():
            assert read_all(target) == [bytes(100)] * 3000
        elif victim == "worker":
            assert os.waitstatus_to_exitcode(status) == 1
        # A parent that was made for it goes, too.
        assert victim == "parent" or not target.parent.exists() or left_behind(target.parent) in ([], ["set"])


class Murderous:
    """Kills its own worker at a random sample."""

    def __init__(self, parent: int) -> None:
        self.at = random.Random(parent).randrange(3000)

    def __len__(self) -> int:
        return 3000

    def __getitem__(self, index: int) -> bytes:
        if index == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(100)


# No room.


def write_limited(target: Path, limit: int) -> OSError | None:
    """The error of a write while no file may grow beyond `limit` bytes, in a child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        outcome = b"ok"
        try:
            DatasetWriter(target, num_workers=2, num_shards=2).from_indexed_dataset(room(), chunksize=10)
        except OSError as error:
            outcome = (
                f"{type(error).__name__}|{error.errno}|{error.filename}|{isinstance(error, RuntimeError)}".encode()
            )
        except BaseException as error:
            outcome = f"unexpected {error!r}".encode()
        os.write(write, outcome)
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read) as file:
        outcome = file.read()
    if outcome == "ok":
        return None
    kind, code, name, runtime = outcome.split("|")
    assert (kind, code, runtime) == ("FileError", "27", "True")
    return OSError(int(code), "", name)


def room() -> list[bytes]:
    """Two shards of 6 KiB tables and 30 KiB data each, less a little."""
    return [bytes(60)] * 1000


def test_file_size_limit_at_every_stage(tmp_path: Path) -> None:
    """Also where the data fits and the manifest does not."""
    whole = 12 + 12 * 500 + 60 * 500
    for limit in [600, 6011, 6012, 6013, *range(6500, whole, 5003), whole - 1, whole]:
        error = write_limited(tmp_path / "set", limit)
        if error is None:
            assert limit >= whole
        else:
            assert str(error.filename).startswith(str(tmp_path / "set"))
            assert left_behind(tmp_path) == []
    assert read_all(tmp_path / "set") == room()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 256 KiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "ffrecord-test", str(mount)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs is not allowed here: {mounted.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def test_disk_full(small_disk: Path) -> None:
    full = small_disk / "ballast"
    outcomes = set()
    for kib in range(120, 256, 8):
        full.write_bytes(bytes(kib << 10))
        try:
            DatasetWriter(small_disk / "set", num_workers=2, num_shards=2).from_indexed_dataset(room(), chunksize=10)
        except OSError as error:
            outcomes.add("full")
            assert error.errno == 28 and isinstance(error, RuntimeError)
            assert str(small_disk / "set") in str(error.filename)
            assert left_behind(small_disk) == ["ballast"]
            shutil.rmtree(small_disk / ".set.part", ignore_errors=True)
        else:
            outcomes.add("fits")
            assert read_all(small_disk / "set") == room()
            subprocess.run(["rm", "-r", str(small_disk / "set")], check=True)
    assert outcomes == {"full", "fits"}


def test_disk_full_while_appending(small_disk: Path) -> None:
    """What is there stays, and is read; what was finished is gone on with once there is room."""
    target, ballast = small_disk / "set", small_disk / "ballast"
    DatasetWriter(target, num_workers=0, num_shards=2).from_indexed_dataset(room())
    outcomes = []
    for kib in range(168, 40, -8):
        ballast.write_bytes(bytes(kib << 10))
        try:
            DatasetWriter(target, mode="append", num_workers=0, num_shards=4).from_indexed_dataset(room(), chunksize=10)
        except OSError as error:
            outcomes.append("full")
            assert error.errno == 28 and isinstance(error, RuntimeError) and str(target) in str(error.filename)
            assert read_all(target) == room()
        else:
            outcomes.append("fits")
            break
    assert "full" in outcomes and outcomes[-1] == "fits"
    assert read_all(target) == room() * 2
    assert left_behind(target) == [*(f"PART_0000{number}.ffr" for number in range(6)), "dataset.json"]


def test_mount_point_as_target(small_disk: Path) -> None:
    DatasetWriter(small_disk, num_workers=1, num_shards=2).from_indexed_dataset(room())
    assert left_behind(small_disk) == ["PART_00000.ffr", "PART_00001.ffr", "dataset.json"]
    assert read_all(small_disk) == room()


def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    pid = os.fork()
    if pid == 0:
        code = 1
        if os.geteuid() == 0:  # who may write anywhere
            os.setuid(65534)
        try:
            DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset(room())
        except PermissionError as error:
            code = 0 if "could not be created" in str(error) and isinstance(error, RuntimeError) else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    tmp_path.chmod(0o700)


def test_a_file_among_the_parents(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="could not be created"):
        DatasetWriter(tmp_path / "file" / "set").from_indexed_dataset(room())


@pytest.mark.parametrize("turns", [24, pytest.param(300, marks=pytest.mark.long)])
def test_failing_writes_leak_nothing(tmp_path: Path, turns: int) -> None:
    for turn in range(turns):
        dataset: Any = Failing(("raises", "is_killed", "exits")[turn % 3])
        with pytest.raises(WorkerError):
            DatasetWriter(tmp_path / "set", num_workers=2, num_shards=3, resume=bool(turn % 2)).from_indexed_dataset(
                dataset, chunksize=10
            )
    assert left_behind(tmp_path) == []
    # Descriptors, anonymous memory and processes are compared by the fixture.


@pytest.mark.parametrize("turns", [15, pytest.param(200, marks=pytest.mark.long)])
def test_writes_leak_nothing(tmp_path: Path, turns: int) -> None:
    for turn in range(turns):
        DatasetWriter(tmp_path / str(turn), num_workers=1, num_shards=2).from_indexed_dataset([b"x"] * 10)
    assert len(left_behind(tmp_path)) == turns

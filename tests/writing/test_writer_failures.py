"""Failing, interrupted, forked and killed writers: nothing under the name, or the old file, or the whole new one."""

import errno
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import builders
import children
import ffr_twin
import pytest

from ffrecord import FileReader, FileWriter, recover
from ffrecord.format import journal
from ffrecord.system import atomic_file
from ffrecord.writing import file_writer

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
SAMPLES = builders.records([700_000, 10, 1 << 20, 0, 600_000, 600_000])
OLD = ffr_twin.build([b"old"])


def write(path: Path, n: int | None, samples: list[bytes] = SAMPLES) -> None:
    with FileWriter(path, n) as opened:
        for sample in samples:
            opened.write_one(sample)


def left(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in os.listdir(directory)}


@pytest.fixture(params=[len(SAMPLES), None], ids=["n", "no n"])
def n(request) -> int | None:
    return request.param


# An exception of the user


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("count", [0, 1, len(SAMPLES)])
def test_an_exception_inside_with(tmp_path, n, kind, count):
    (tmp_path / "a.ffr").write_bytes(OLD)
    with pytest.raises(kind) as caught, FileWriter(tmp_path / "a.ffr", n) as opened:
        for sample in SAMPLES[:count]:
            opened.write_one(sample)
        raise kind("mine")
    assert (caught.value.args, caught.value.__context__) == (("mine",), None)
    assert left(tmp_path) == {"a.ffr": OLD}
    with pytest.raises(RuntimeError, match="Exceed"):
        opened.write_one(b"x")
    opened.close()
    assert left(tmp_path) == {"a.ffr": OLD}


def test_too_few_inside_with(tmp_path):
    with (
        pytest.raises(RuntimeError, match="Wrote 1 samples but expected 2"),
        FileWriter(tmp_path / "a.ffr", 2) as opened,
    ):
        opened.write_one(b"x")
    assert left(tmp_path) == {}


# Calls that fail, at every occurrence


def failing(call: str, k: int, number: int) -> Callable[..., object]:
    """A call of the os module that fails the k-th time it is made."""
    real, made = getattr(os, call), []

    def replacement(*args, **kwargs):
        made.append(1)
        if len(made) != k:
            return real(*args, **kwargs)
        if call == "close":
            real(*args, **kwargs)
        raise OSError(number, os.strerror(number))

    return replacement


SWEEP = [(call, number) for call in ("pwrite", "posix_fallocate", "fsync", "close", "rename", "fchmod")
         for number in (errno.EIO, errno.ENOSPC, errno.EDQUOT)]  # fmt: skip


@pytest.mark.parametrize(("call", "number"), SWEEP)
def test_every_call_failing_once(tmp_path, monkeypatch, n, call, number):
    """The error is raised with its errno; the old file stays, unless only the directory's fsync failed."""
    fired = 0
    for k in range(1, 100):
        path = tmp_path / f"{k}" / "a.ffr"
        path.parent.mkdir()
        path.write_bytes(OLD)
        path.chmod(0o640)  # which the new file gets, by fchmod
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(call, k, number))
            try:
                write(path, n)
            except OSError as error:
                assert (error.errno, isinstance(error, RuntimeError)) == (number, True)
                assert str(path) in str(error)
                fired += 1
                published = "is in place" in str(error)
            else:
                published = True
                if call == "posix_fallocate" and fired == 0:
                    pytest.fail("never called")
        assert list(left(path.parent)) == ["a.ffr"]
        if not published:
            assert path.read_bytes() == OLD
            continue
        assert ffr_twin.parse(path.read_bytes()) == SAMPLES
        if fired < k:
            break
    assert fired >= 1


@pytest.mark.parametrize("step", [1000, 4096, 10**9])
def test_short_writes_go_on(tmp_path, monkeypatch, n, step):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:step], offset))
    write(tmp_path / "a.ffr", n and 3, SAMPLES[:3])
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == SAMPLES[:3]


LIMITED = """
import resource, sys
from ffrecord import FileWriter
path, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
opened = FileWriter(path, count)
resource.setrlimit(resource.RLIMIT_FSIZE, (12 + 12 * count + 5 * size + 7, resource.RLIM_INFINITY))
for call in (lambda: [opened.write_one(b"x" * size) for _ in range(count)], opened.close, opened.close, opened.flush):
    try:
        call()
    except OSError as error:
        assert isinstance(error, RuntimeError) and path in str(error), error
        print(error.strerror.split(":")[0], error.errno)
print(opened.count)
"""


@pytest.mark.parametrize(("size", "count"), [(100_000, 30), (100_000, 300), (1000, 8000), (10_000_000, 6)])
def test_the_failing_sample_is_named(tmp_path, size, count):
    """Samples wait in a buffer, so the one that fails is seldom the one just written; all later calls say so."""
    said = children.run(LIMITED, tmp_path / "a.ffr", size, count).split("\n")
    assert set(said[:-2]) == {f"Sample 5 {errno.EFBIG}"}
    # What fits into one buffer is written by `close`; where two hold all of it, whoever is faster tells first.
    least, most = size * count >= 8 << 20, size * count >= 4 << 20
    assert 3 + least <= len(said) - 2 <= 3 + most
    assert left(tmp_path) == {}


def test_after_a_failure_every_call_repeats_it(tmp_path, monkeypatch):
    """That no more samples are taken would be true, and no help."""
    opened = FileWriter(tmp_path / "a.ffr")
    opened.write_one(b"x")
    monkeypatch.setattr(atomic_file.os, "fsync", failing("fsync", 1, errno.ENOSPC))
    for call in (opened.flush, lambda: opened.write_one(b"y"), lambda: opened.write_many([b"y"]), opened.close):
        with pytest.raises(OSError, match="flushing 1 sample") as caught:
            call()
        assert caught.value.errno == errno.ENOSPC


def test_the_failing_sample_says_how_much_was_written(tmp_path):
    code = LIMITED.replace('error.strerror.split(":")[0]', "error")
    assert "Sample 5: length 100000 but wrote 7 bytes: " in children.run(code, tmp_path / "a.ffr", 100_000, 30)


def test_tables_that_cannot_be_written_blame_no_sample(tmp_path, monkeypatch):
    opened = FileWriter(tmp_path / "a.ffr", 2)
    opened.write_one(b"x" * 2_000_000)
    opened.write_one(b"y" * 2_000_000)
    monkeypatch.setattr(atomic_file.os, "pwrite", failing("pwrite", 1, errno.EIO))
    with pytest.raises(OSError, match="tables") as caught:
        opened.close()
    assert "wrote" not in str(caught.value)
    assert left(tmp_path) == {}


def failing_directory(directory: str) -> None:
    raise OSError(errno.EIO, "disk")


@pytest.mark.parametrize("crashes", [False, True])
def test_in_doubt_what_was_flushed_stays(tmp_path, monkeypatch, n, crashes):
    """The file is in place, but a crash may bring its old name back; recover tidies up in either case."""
    opened = FileWriter(tmp_path / "a.ffr", n)
    for sample in SAMPLES:
        opened.write_one(sample)
    opened.flush()
    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "fsync_directory", failing_directory)
        with pytest.raises(OSError, match="is in place"):
            opened.close()
    (kept,) = tmp_path.glob("*.journal")
    if crashes:
        (tmp_path / "a.ffr").rename(kept.with_suffix(".part"))
        assert recover(tmp_path / "a.ffr").samples == len(SAMPLES)
    else:
        with pytest.raises(FileNotFoundError):
            recover(tmp_path / "a.ffr")
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == SAMPLES
    assert list(left(tmp_path)) == ["a.ffr"]


# Interruptions, wherever they come


class Interruption(KeyboardInterrupt):
    pass


def interrupt(k: int, work: Callable[[], None]) -> bool:
    """Run `work`, interrupted at the k-th line of writer.py, durable.py and journal.py; whether it came to that."""
    files, lines = {file_writer.__file__, atomic_file.__file__, journal.__file__}, 0

    def trace(frame, event, argument):
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines += 1
            if lines == k:
                sys.settrace(None)
                raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interruption:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("flush", [False, True], ids=["never flushed", "flushed"])
def test_interrupted_anywhere(tmp_path, n, flush):
    """Whoever catches Ctrl-C and closes nevertheless gets a valid file or none; never a damaged one, never a .part."""
    k, outcomes = 0, set()
    while True:
        k += 1
        path = tmp_path / f"{k}" / "a.ffr"
        path.parent.mkdir()
        opened = FileWriter(path, n)

        def work(opened=opened):
            for i, sample in enumerate(SAMPLES):
                opened.write_one(sample)
                if flush and i in (1, 4):
                    opened.flush()
            opened.close()

        interrupted = interrupt(k, work)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                opened.close()
            except RuntimeError as error:
                outcomes.add(type(error).__name__)
            del opened, work
            gc.collect(0)
        found = left(path.parent)
        assert list(found) in ([], ["a.ffr"]), k
        if found:
            samples = ffr_twin.parse(found["a.ffr"])
            assert samples == SAMPLES[: len(samples)], k
            outcomes.add(len(samples))
            path.unlink()
        path.parent.rmdir()
        if not interrupted:
            break
    assert k > 50
    assert len(SAMPLES) in outcomes


def test_interrupted_while_it_is_made(tmp_path, monkeypatch):
    """Nothing is left, whoever keeps the error and with it all frames."""

    def interrupted(fd, size):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_file, "reserve", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        FileWriter(tmp_path / "a.ffr", 3)
    assert left(tmp_path) == {}
    assert kept.traceback


@children.limits_memory
def test_out_of_memory_in_the_middle(tmp_path):
    """Nothing may be published any more: the sample may be in the tables and its bytes missing."""
    code = """
import resource, sys
from ffrecord import FileWriter
opened = FileWriter(sys.argv[1])
opened.write_one(b"x")
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (24 << 20), resource.RLIM_INFINITY))
try:
    while True:
        opened.write_one(b"")
except MemoryError as error:
    print("tables of" in str(error))
try:
    opened.close()
except RuntimeError as error:
    print("interrupted" in str(error))
"""
    assert children.run(code, tmp_path / "a.ffr") == "True\nTrue\n"
    assert left(tmp_path) == {}


@children.limits_memory
def test_a_copy_that_takes_too_much_memory_harms_nothing(tmp_path):
    """Nothing is noted of a sample that has no bytes yet."""
    code = """
import numpy as np, resource, sys
from ffrecord import FileReader, FileWriter
opened = FileWriter(sys.argv[1], 1)
every_other = np.zeros(64 << 20, np.uint8)[::2]
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), resource.RLIM_INFINITY))
try:
    opened.write_one(every_other)
except MemoryError:
    print(opened.count)
opened.write_one(b"x")
opened.close()
"""
    assert children.run(code, tmp_path / "a.ffr") == "0\n"
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"x"]


# The real thing: full disks, limits, kills


SWEEP_DISK = """
import errno, os, sys, children
from ffrecord import FileReader, FileWriter
target, n = sys.argv[1], None if sys.argv[2] == "None" else int(sys.argv[2])
outcomes = set()
for size in range(4096, 360_000, 4096):
    try:
        children.small_disk(target, size)
    except OSError as error:
        print(f"no mounts: {error}")
        break
    path = os.path.join(target, "a.ffr")
    try:
        with FileWriter(path, n) as writer:
            for i in range(1000):
                writer.write_one(bytes([i % 256]) * 290)
    except OSError as error:
        assert error.errno == errno.ENOSPC and isinstance(error, RuntimeError), error
        assert os.listdir(target) == [], size
        outcomes.add("full")
    else:
        with FileReader(path) as reader:
            assert [sample[0] for sample in reader] == [i % 256 for i in range(1000)]
        outcomes.add("fits")
    if os.system(f"umount -l {target}"):
        raise SystemExit("umount")
print(sorted(outcomes))
"""


@pytest.mark.parametrize("given", [1000, None])
def test_full_disk(tmp_path, given):
    """Every size of a small disk, those where the data fits and the tables do not included."""
    printed = children.run(SWEEP_DISK, tmp_path, given)
    if "no mounts" in printed:
        pytest.skip(f"mounting a tmpfs is not allowed here: {printed}")
    assert printed == "['fits', 'full']\n"


SWEEP_LIMIT = """
import errno, os, resource, sys
from ffrecord import FileReader, FileWriter
path, n = sys.argv[1], None if sys.argv[2] == "None" else int(sys.argv[2])
outcomes = set()
for limit in range(1, 360_000, 8_999):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        with FileWriter(path, n) as writer:
            for i in range(1000):
                writer.write_one(bytes([i % 256]) * 290)
    except OSError as error:
        assert error.errno == errno.EFBIG and isinstance(error, RuntimeError), error
        assert os.listdir(os.path.dirname(path)) == [], limit
        outcomes.add("full")
    else:
        assert len(FileReader(path)) == 1000
        os.unlink(path)
        outcomes.add("fits")
print(sorted(outcomes))
"""


@pytest.mark.parametrize("given", [1000, None])
def test_file_size_limit(tmp_path, given):
    assert children.run(SWEEP_LIMIT, tmp_path / "a.ffr", given) == "['fits', 'full']\n"


KILLED = builders.records([300_000, 10, 900_000])


@pytest.mark.parametrize("given", [len(KILLED), None])
def test_killed_in_the_middle(tmp_path, given):
    """kill -9 at any time leaves the old file, or the new one, and at most one .part."""
    target = tmp_path / "a.ffr"
    target.write_bytes(OLD)
    new = None
    # The longer ones for machines with other things to do.
    for delay in [*(i * 0.0005 for i in range(30)), *(2.0**i for i in range(-5, 5))]:
        if new is not None and delay > 0.03:
            break
        child = os.fork()
        if child == 0:
            try:
                while True:
                    write(target, given, KILLED)
            finally:
                os._exit(1)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = target.read_bytes()
        if found != OLD:
            assert ffr_twin.parse(found) == KILLED
            new = found
        parts = [name for name in os.listdir(tmp_path) if name != "a.ffr"]
        assert len(parts) <= 1
        assert all(name.startswith(".a.ffr.") and name.endswith(".part") for name in parts)
        with FileReader(tmp_path) as reader:
            assert reader.n in (1, len(KILLED))
        for name in parts:
            os.unlink(tmp_path / name)
    assert new is not None


# Fork


@pytest.mark.parametrize("given", [2, None])
def test_a_forked_child_neither_publishes_nor_harms(tmp_path, given):
    opened = FileWriter(tmp_path / "a.ffr", given)
    opened.write_one(b"x")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: opened.write_one(b"from the child"), opened.close):
            try:
                call()
            except RuntimeError:
                refused += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del opened, call
            gc.collect()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    opened.write_one(b"y")
    opened.close()
    assert list(left(tmp_path)) == ["a.ffr"]
    assert ffr_twin.parse((tmp_path / "a.ffr").read_bytes()) == [b"x", b"y"]


def test_dropped_under_warnings_as_errors(tmp_path):
    """A complete writer is published, whatever becomes of the warning about it."""
    code = """
import sys
from ffrecord import FileWriter
writer = FileWriter(sys.argv[1], 1)
writer.write_one(b"x")
del writer
writer = FileWriter(sys.argv[2], 2)
writer.write_one(b"x")
del writer
"""
    done = children.finished(code, tmp_path / "a.ffr", tmp_path / "b.ffr")
    assert done.returncode == 0
    assert done.stderr.count("ResourceWarning") >= 2
    assert left(tmp_path) == {"a.ffr": ffr_twin.build([b"x"])}


def test_a_program_that_ends_without_closing(tmp_path):
    code = """
import sys, warnings
from ffrecord import FileWriter
warnings.simplefilter("ignore")
kept = [FileWriter(sys.argv[1], 1), FileWriter(sys.argv[2], 2)]
for writer in kept:
    writer.write_one(b"x")
"""
    children.run(code, tmp_path / "a.ffr", tmp_path / "b.ffr")
    assert set(left(tmp_path)) <= {"a.ffr"}

"""T10 (guarantee G6): forks and reads in any order, spawned processes, and AIO slots that run out."""

import contextlib
import multiprocessing
import os
import platform
import threading
from collections.abc import Iterator

import builders
import children
import numpy as np
import pytest
from builders import IO_MODES
from figures import Counted, counts

from ffrecord import FileReader, _aio

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def reads_all(reader: FileReader, samples: list[bytes], seed: int = 0) -> bool:
    """Whether a shuffled batch of everything is right, twice."""
    for _ in range(2):
        indices = np.random.default_rng(seed).permutation(reader.n)
        if [sample.tobytes() for sample in reader.read(indices)] != [samples[i] for i in indices]:
            return False
    return True


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("first", [0, 1, 2, 3, 100], ids=lambda first: f"after {first}")
def test_fork_after_a_batch(sample_file, io, first):
    """After a batch of three or more, the original's children failed with "Number of submitted requests: -22"."""
    with FileReader(sample_file.path, io=io) as reader:
        reader.read(range(first))
        for _ in range(3):
            assert children.in_child(lambda: reads_all(reader, sample_file.samples)) == 0
            assert reads_all(reader, sample_file.samples)


@pytest.mark.parametrize("io", IO_MODES)
def test_grandchildren(sample_file, io):
    with FileReader(sample_file.path, io=io) as reader:
        reader.read(range(50))

        def child() -> bool:
            reader.read(range(50))
            return children.in_child(lambda: reads_all(reader, sample_file.samples)) == 0 and reads_all(
                reader, sample_file.samples
            )

        assert children.in_child(child) == 0


@pytest.mark.parametrize("io", IO_MODES)
def test_a_child_that_closes_or_ends_harms_nobody(sample_file, io):
    with FileReader(sample_file.path, io=io) as reader:
        reader.read(range(50))

        def child() -> bool:
            reader.close()
            _aio.release()
            return reader.closed

        assert children.in_child(child) == 0
        assert reads_all(reader, sample_file.samples)


@contextlib.contextmanager
def read_meanwhile(reader: FileReader, samples: list[bytes], threads: int) -> Iterator[list[int]]:
    """Threads that read all inside; what is wrong with that comes into the list."""
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            if not reads_all(reader, samples):
                wrong.append(1)

    working = [threading.Thread(target=work) for _ in range(threads)]
    for thread in working:
        thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        for thread in working:
            thread.join()


@counts(8, 50)
@pytest.mark.parametrize("io", IO_MODES)
def test_fork_while_another_thread_reads(sample_file, io: str, count: int, counted: Counted) -> None:
    """The child's copy of whatever the thread was in the middle of must not matter."""
    with FileReader(sample_file.path, io=io) as reader, read_meanwhile(reader, sample_file.samples, 2) as wrong:
        statuses = [children.in_child(lambda: reads_all(reader, sample_file.samples)) for _ in range(count)]
    assert statuses == [0] * count
    assert not wrong
    assert _aio.stats()["stale"] == 0
    counted.add("forks during reads", count)


@counts(3, 60)
@pytest.mark.parametrize("io", IO_MODES)
def test_eight_processes_forked_during_reads(sample_file, io: str, count: int, counted: Counted) -> None:
    """All read at once, each another way, beside the threads that they were forked under."""

    def read(seed: int) -> bool:
        random = np.random.default_rng(seed)
        batches = [random.integers(0, reader.n, 60) for _ in range(count)]
        ahead = reader.iter_batches(batches, packed=True) if seed % 2 else map(reader.read_packed, batches)
        return all(
            builders.unpack(packed) == [sample_file.samples[i] for i in indices]
            for indices, packed in zip(batches, ahead, strict=True)
        )

    with FileReader(sample_file.path, io=io) as reader, read_meanwhile(reader, sample_file.samples, 2) as wrong:
        begun = [children.begin(lambda seed=seed: read(seed)) for seed in range(8)]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in begun]
    assert (statuses, wrong) == ([0] * 8, [])
    counted.add("forks during reads", 8)
    counted.add("concurrent reads checked", 8 * count)


def test_twenty_readers_at_once(sample_file):
    """Each of the original's readers reserved 4,096 of the host's 65,536 slots: the 17th failed."""
    readers = [FileReader(sample_file.path, io="direct") for _ in range(20)]
    for reader in readers:
        reader.read(range(50))

    def child(number: int) -> bool:
        return all(reads_all(reader, sample_file.samples, number) for reader in readers[number::4])

    assert [children.in_child(lambda number=number: child(number)) for number in range(4)] == [0] * 4
    for reader in readers:
        assert reads_all(reader, sample_file.samples)
        reader.close()
    assert _aio.stats()["refused"] == 0


def read_in_worker(reader: FileReader, indices: list[int]) -> list[bytes]:
    with reader:
        return [sample.tobytes() for sample in reader.read(indices)]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_get_readers_by_name(sample_file, method):
    with FileReader(sample_file.path, io="direct") as reader:
        reader.read(range(50))
        with multiprocessing.get_context(method).Pool(2) as pool:
            got = pool.starmap(read_in_worker, [(reader, [i, 5, i]) for i in range(6)])
            pool.close()
            pool.join()
    assert got == [[sample_file.samples[j] for j in (i, 5, i)] for i in range(6)]


# Refused AIO: the same bytes, one line in the log

REFUSED = """
import logging, os, sys
import builders, children
from ffrecord import FileReader, _aio
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("ffrecord").addHandler(handler)
path, number = sys.argv[1], int(sys.argv[2])
with FileReader(path, io="auto") as reader:
    wanted = builders.read_all(reader)
try:
    children.refuse("io_setup", number)
except OSError as error:
    sys.exit(f"no filters: {error}")
reader = FileReader(path, io="direct")
for _ in range(3):
    assert builders.read_all(reader) == wanted
    assert builders.unpack(reader.read_packed([5, 3, 5])) == [wanted[i] for i in (5, 3, 5)]
assert _aio.stats()["made"] == 0 and _aio.stats()["refused"] > 0, _aio.stats()
assert len(lines) == 1 and "Linux AIO was refused" in lines[0] and os.strerror(number) in lines[0], lines
"""


@pytest.mark.parametrize("number", [1, 11, 12, 38], ids=os.strerror)
def test_refused(sample_file, number):
    done = children.finished(REFUSED, sample_file.path, number)
    if "no filters" in done.stderr:
        pytest.skip(f"seccomp is not to be had here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")


HOLD = """
import ctypes, sys
libc, held, size = ctypes.CDLL(None, use_errno=True), [], 65536
while size >= 1:
    context = ctypes.c_ulong(0)
    if libc.syscall(int(sys.argv[1]), size, ctypes.byref(context)) == 0:
        held.append(context)
    else:
        size //= 2
print(len(held), flush=True)
sys.stdin.read()
"""


def test_the_slots_of_the_host_are_used_up(sample_file):
    """For real: another process holds all of fs.aio-max-nr, for as long as it takes to read one file."""
    number = children.SYSCALLS[platform.machine()]["io_setup"]
    code = """
import sys, subprocess
import builders
from ffrecord import FileReader, _aio
holder = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[3]], stdin=-1, stdout=-1)
assert int(holder.stdout.readline()) > 0
with FileReader(sys.argv[1], io="direct") as reader:
    samples = builders.read_all(reader)
holder.communicate()
with FileReader(sys.argv[1], io="pread") as reader:
    assert builders.read_all(reader) == samples
print(_aio.stats()["refused"])
"""
    done = children.finished(code, sample_file.path, HOLD, number)
    assert done.returncode == 0, done.stderr
    if done.stdout == "0\n":
        pytest.skip("somebody else gave slots back just then, or this host has no limit")
    assert "fs.aio-max-nr is used up" in done.stderr

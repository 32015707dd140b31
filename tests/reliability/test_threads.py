"""T10 (guarantee G6): threads may share a reader, also while one closes it.

A writer is for one thread: others are refused while it is at work. All of this holds on a Python without a GIL, too.
"""

import gc
import os
import queue
import signal
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import builders
import numpy as np
import pytest
from builders import IO_MODES
from children import descriptors
from figures import Counted

from ffrecord import ChecksumError, DatasetWriter, FileReader, FileWriter, _aio
from ffrecord.engine._engine import Files
from ffrecord.errors import ClosedError, CountError, StateError
from ffrecord.kernels._memory import pooled
from ffrecord.order import Block, Random
from ffrecord.reading.ffr_file import OpenedFile

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def together(*works: Callable[[], None]) -> list[BaseException]:
    """Run all at once; what they raised."""
    barrier, raised = threading.Barrier(len(works)), []

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    return raised


def ended(child: int) -> int:
    """The exit status of a forked child, which has 10 s."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail(f"the forked child {child} hangs")


def reading(reader: FileReader, samples: list[bytes], seed: int, batches: int) -> Callable[[], None]:
    """Random batches in all three ways of reading."""

    def work() -> None:
        random = np.random.default_rng(seed)
        for _ in range(batches):
            indices = random.integers(0, len(samples), random.integers(0, 60))
            wanted = [samples[i] for i in indices]
            assert [sample.tobytes() for sample in reader.read(indices)] == wanted
            assert builders.unpack(reader.read_packed(indices)) == wanted
            assert reader.read_one(seed).tobytes() == samples[seed]

    return work


@pytest.mark.parametrize(("threads", "batches"), [(4, 200), pytest.param(8, 1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("io", IO_MODES)
def test_sharing_a_reader(sample_file, io: str, threads: int, batches: int, counted: Counted) -> None:
    # Three ways of reading are in each, so a third of them is enough.
    with FileReader(sample_file.path, io=io) as reader:
        works = [reading(reader, sample_file.samples, seed, batches // 3) for seed in range(threads)]
        assert together(*works) == []
    assert _aio.stats()["stale"] == 0
    counted.add("concurrent reads checked", threads * (batches // 3) * 3)


def test_readers_of_all_modes_side_by_side(sample_file):
    readers = [FileReader(sample_file.path, io=io) for io in IO_MODES * 2]
    assert together(*(reading(reader, sample_file.samples, i, 30) for i, reader in enumerate(readers))) == []
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("delay", [0, 0.001, 0.003, 0.01])
def test_closing_during_reads(sample_file, io, delay):
    """A read ends properly, or raises that the reader is closed; then the descriptors are gone."""
    before = descriptors()
    for _ in range(5):
        reader = FileReader(sample_file.path, io=io)

        def close(reader: FileReader = reader) -> None:
            time.sleep(delay)
            reader.close()

        works = [reading(reader, sample_file.samples, seed, 10**6) for seed in range(3)]
        raised = together(*works, close)
        assert len(raised) == 3
        for error in raised:
            assert isinstance(error, RuntimeError), repr(error)
            assert "FileReader has been closed" in str(error)
        assert {path for path in descriptors().values() if ".ffr" in path} == {
            path for path in before.values() if ".ffr" in path
        }


@pytest.mark.parametrize("io", IO_MODES)
def test_opening_and_closing_beside_reads(sample_file, io):
    """Descriptor numbers are used again at once: none of a reader may be closed twice."""

    def churn() -> None:
        for _ in range(200):
            with FileReader(sample_file.path, io=io) as other:
                assert other.read([3, 1, 2])[1].tobytes() == sample_file.samples[1]

    with FileReader(sample_file.path, io=io) as reader:
        assert together(churn, churn, reading(reader, sample_file.samples, 1, 100)) == []


@pytest.mark.parametrize("io", IO_MODES)
def test_failing_beside_good_batches(tmp_path, io):
    samples = builders.records([3000] * 100)
    damage = builders.flip_in_sample(50)
    path = builders.write(tmp_path / "a.ffr", damage(builders.ffr_twin.build(samples)))

    def fail() -> None:
        for _ in range(100):
            with pytest.raises(ChecksumError, match="Sample 50"):
                reader.read(range(100))

    with FileReader(path, io=io) as reader:
        assert together(fail, fail, reading(reader, samples[:50], 1, 100)) == []
    assert _aio.stats()["stale"] == 0


def test_other_threads_run_during_a_read(tmp_path):
    """Reading and checksums hold no lock of the interpreter: a counting thread goes on meanwhile."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(64 << 20)] * 2)
    ticks, stop = [], threading.Event()

    def count() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    with FileReader(path, io="pread") as reader:
        reader.read([0, 1])
        thread = threading.Thread(target=count)
        thread.start()
        start = time.perf_counter()
        for _ in range(5):
            reader.read([0, 1])
        end = time.perf_counter()
        stop.set()
        thread.join()
    during = np.array([start, *(tick for tick in ticks if start < tick < end), end])
    assert np.diff(during).max() < (end - start) / 3


def test_writers_of_different_files(tmp_path):
    """One writer is for one thread; many may work side by side."""

    def write(number: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(10):
                with FileWriter(tmp_path / f"{number}.ffr", 50) as writer:
                    for i in range(50):
                        writer.write_one(bytes([number, i]) * 10_000)

        return work

    assert together(*map(write, range(4))) == []
    with FileReader(tmp_path) as reader:
        assert [sample[:2].tolist() for sample in reader] == [[number, i] for number in range(4) for i in range(50)]


def test_writers_of_the_same_file(tmp_path):
    """The last to close wins, whole; nothing is mixed."""

    def write(number: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(20):
                with FileWriter(tmp_path / "a.ffr", 20) as writer:
                    for _ in range(20):
                        writer.write_one(bytes([number]) * 1000)

        return work

    def read() -> None:
        for _ in range(100):
            with FileReader(tmp_path / "a.ffr") as reader:
                assert len({sample.tobytes() for sample in reader}) == 1

    write(9)()
    assert together(*map(write, range(3)), read) == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.ffr"]


EQUAL = [bytes([i]) * 1000 for i in range(100)]  # of one size, for columns


@pytest.fixture
def equal_file(tmp_path: Path) -> str:
    return str(builders.write_samples(tmp_path / "equal.ffr", EQUAL))


def everything(reader: FileReader, seed: int, rounds: int) -> Callable[[], None]:
    """Every way to read some of EQUAL."""

    def work() -> None:
        random = np.random.default_rng(seed)
        for _ in range(rounds):
            indices = random.integers(0, 100, 20)
            wanted = [EQUAL[i] for i in indices]
            assert [sample.tobytes() for sample in reader.read(indices)] == wanted
            for i in indices.tolist():
                assert reader.read_one(i).tobytes() == reader[i].tobytes() == EQUAL[i]
            for arrays in reader.iter_batches([indices] * 3, 2):
                assert [sample.tobytes() for sample in arrays] == wanted
            first, rest = reader.read_columns(indices, 1000, [(0, 8), (8, 992)])
            assert [head + tail for head, tail in zip(map(bytes, first), map(bytes, rest), strict=True)] == wanted
            assert [sample.tobytes() for sample in reader[10:15]] == EQUAL[10:15]
            assert reader.record_sizes(indices).tolist() == [1000] * 20
            assert reader.stats().records >= 0 and reader.locate(99)[1] == 99

    return work


@pytest.mark.parametrize("io", IO_MODES)
def test_every_way_to_read_at_once(equal_file: str, io: str) -> None:
    with FileReader(equal_file, io=io) as reader:
        assert together(*(everything(reader, seed, 5) for seed in range(8))) == []
        stats = reader.stats()
    assert stats.records == 8 * 5 * (20 + 2 * 20 + 3 * 20 + 20 + 5)  # none is lost or counted twice


@pytest.mark.parametrize("io", IO_MODES)
def test_closing_beside_every_way_to_read(equal_file: str, io: str) -> None:
    before = descriptors()
    for delay in (0, 0.002, 0.01):
        reader = FileReader(equal_file, io=io)

        def close(reader: FileReader = reader, delay: float = delay) -> None:
            time.sleep(delay)
            reader.close()

        raised = together(*(everything(reader, seed, 10**6) for seed in range(4)), close, close)
        assert [type(error) for error in raised] == [ClosedError] * 4
        raised.clear()  # their frames keep batches that were begun
        assert descriptors() == before


def test_small_records_are_counted_exactly(equal_file: str) -> None:
    with FileReader(equal_file) as reader:
        reader.read(range(100))

        def work() -> None:
            for i in range(1000):
                assert reader.read_one(i % 100)[0] == i % 100

        assert together(*[work] * 8) == []
        assert reader.stats().records == 8100
        assert reader.stats().batches == 8001


def test_threads_that_wait_for_the_same_batch(equal_file: str) -> None:
    before = descriptors()
    for _ in range(30):
        files = Files([OpenedFile(equal_file, check=True)], "auto", 10)
        batch = files.read_ahead(np.arange(100), True, False)
        found: list[bytes] = []

        def work(batch=batch, found: list[bytes] = found) -> None:
            arrays, failures = batch.result()
            assert not failures
            found.append(b"".join(map(bytes, arrays)))

        assert together(*[work] * 4, files.close) == []
        assert found == [b"".join(EQUAL)] * 4
        assert files.batches == 1
    del batch, files, work
    assert descriptors() == before


def test_the_collector_does_not_see_what_threads_use(equal_file: str) -> None:
    """It ends the objects of a cycle in any order: memory could be freed while threads read into it."""
    files = Files([OpenedFile(equal_file, check=True)], "auto", 10)
    batch = files.read_ahead(np.arange(100), True, False)
    assert not gc.is_tracked(files)
    assert not gc.is_tracked(batch)
    batch.result()
    files.close()


def test_memory_goes_from_thread_to_thread() -> None:
    """No block of the pool is given to two."""
    passed: queue.SimpleQueue = queue.SimpleQueue()

    def work() -> None:
        random = np.random.default_rng(threading.get_ident() % 1000)
        for _ in range(300):
            mark = int(random.integers(256))
            array = pooled(int(random.choice([8 << 10, 70_000, 300_000])))
            array[:] = mark
            passed.put((array, mark))
            array, mark = passed.get()
            assert array[0] == mark and (array == mark).all()

    assert together(*[work] * 4) == []


def appending(writer: FileWriter, number: int, accepted: list[bytes]) -> Callable[[], None]:
    """Append samples in three ways, until the writer is closed; `accepted` gets those that were taken."""

    def work() -> None:
        for i in range(200):
            sample = (b"%d %d " % (number, i)) * (1, 5, 3000, 40_000)[i % 4]
            try:
                if i % 3 == 0:
                    writer.write_one(sample)
                elif i % 3 == 1:
                    writer.write_packed(sample, [0, len(sample)])
                else:
                    writer.write_many([sample])
                accepted.append(sample)
            except StateError as error:
                assert "is in the middle of writing to it" in str(error)  # nothing was written

    return work


def close_in_turn(writer: FileWriter) -> None:
    while True:
        try:
            return writer.close()
        except StateError:
            time.sleep(0.001)


def test_threads_that_share_a_writer_are_refused_or_served(tmp_path: Path) -> None:
    for _ in range(3):
        writer, accepted = FileWriter(tmp_path / "a.ffr"), [[] for _ in range(4)]
        assert together(*(appending(writer, number, accepted[number]) for number in range(4))) == []
        writer.close()
        with FileReader(tmp_path / "a.ffr") as reader:
            assert Counter(map(bytes, reader)) == Counter(sample for each in accepted for sample in each)
        assert any(accepted)


def test_closing_a_writer_beside_threads_that_write(tmp_path: Path) -> None:
    for round_ in range(5):
        writer, accepted = FileWriter(tmp_path / "a.ffr"), [[] for _ in range(3)]

        def close(writer: FileWriter = writer, delay: float = 0.002 * round_) -> None:
            time.sleep(delay)
            close_in_turn(writer)

        raised = together(*(appending(writer, number, accepted[number]) for number in range(3)), close, close)
        assert all(isinstance(error, CountError) and "has been closed" in str(error) for error in raised), raised
        with FileReader(tmp_path / "a.ffr") as reader:
            assert Counter(map(bytes, reader)) == Counter(sample for each in accepted for sample in each)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ffr"]


def test_datasets_written_side_by_side(tmp_path: Path) -> None:
    samples = [{"id": i, "data": bytes([i]) * 3000, "name": f"sample {i}"} for i in range(200)]

    def write(number: int) -> Callable[[], None]:
        def work() -> None:
            DatasetWriter(tmp_path / str(number), num_workers=number % 2).from_indexed_dataset(samples)

        return work

    assert together(*map(write, range(4))) == []
    for number in range(4):
        with FileReader(tmp_path / str(number)) as reader:
            assert reader.samples(range(200)) == samples


def test_orders_side_by_side() -> None:
    positions = np.arange(5000)
    for order in (Random(), Block(100)):
        wanted = order.indices(positions, 5000, 3, 1).tolist()

        def work(order=order, wanted: list[int] = wanted) -> None:
            for _ in range(20):
                assert order.indices(positions, 5000, 3, 1).tolist() == wanted

        assert together(*[work] * 8) == []


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="without a GIL, a fork may leave locks of Python's own objects to threads that the child has not",
)
def test_forks_beside_readers_that_come_and_go(equal_file: str, tmp_path: Path) -> None:
    """A child finds all locks free, and the registries whole."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            with FileReader(equal_file) as reader:
                assert bytes(reader[1]) == EQUAL[1]
                next(reader.iter_batches([range(100)] * 4, 2))
            with FileWriter(tmp_path / f"{threading.get_ident()}.ffr", 1) as writer:
                writer.write_one(b"x")
            pooled(100_000)

    def fork() -> None:
        try:
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    try:
                        with FileReader(equal_file) as other:
                            fine = [*map(bytes, other.read(range(100)))] == EQUAL and bytes(reader[7]) == EQUAL[7]
                        with FileWriter(tmp_path / "child.ffr", 1) as writer:
                            writer.write_one(bytes(pooled(100_000)))
                        os._exit(0 if fine else 3)
                    finally:
                        os._exit(4)
                assert ended(child) == 0
        finally:
            stop.set()

    with FileReader(equal_file) as reader:
        assert together(churn, churn, churn, fork) == []

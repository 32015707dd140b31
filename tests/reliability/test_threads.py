"""T10 (guarantee G6): threads may share a reader, also while one closes it."""

import threading
import time
from collections.abc import Callable

import builders
import numpy as np
import pytest
from builders import IO_MODES
from children import descriptors
from figures import Counted

from ffrecord import ChecksumError, FileReader, FileWriter, _aio

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

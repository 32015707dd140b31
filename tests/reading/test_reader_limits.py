"""Readers at the limits of a machine: many samples, no memory, no descriptors, signals, odd names, cut files."""

import os
import pickle
import shutil
import signal
import threading
import zlib
from pathlib import Path

import builders
import children
import ffr_twin
import numpy as np
import pytest
from builders import COPYING_MODES, IO_MODES
from children import descriptors

from ffrecord import FileReader, FileWriter
from ffrecord.errors import TruncatedError, escape_unprintable

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)


@pytest.fixture(scope="module")
def million(tmp_path_factory) -> str:
    """Sample i is the byte i % 251."""
    n = 10**6
    values = np.arange(n) % 251
    checksums = np.array([zlib.crc32(bytes([i])) for i in range(251)], "<u4")[values]
    offsets = np.arange(n, dtype="<i8") + 12 + 12 * n
    data = (
        bytes(4) + n.to_bytes(8, "little") + checksums.tobytes() + offsets.tobytes() + values.astype(np.uint8).tobytes()
    )
    return builders.write(tmp_path_factory.mktemp("million") / "a.ffr", builders.fix_checksum(data))


@in_every_mode
def test_a_million_samples(million, io):
    indices = np.random.default_rng(0).integers(-(10**6), 10**6, 20_000)
    with FileReader(million, io=io) as reader:
        assert len(reader) == 10**6
        data, offsets = reader.read_packed(indices)
        assert (data == indices % 10**6 % 251).all()
        assert (offsets == np.arange(20_001)).all()
        assert reader.get_offsets(0)[-1] == 13 * 10**6 + 12
        assert reader.read_one(-1)[0] == (10**6 - 1) % 251


def test_opening_takes_no_memory_for_each_sample(million):
    """Tables are mapped, and shared by all processes that have the file open."""
    import tracemalloc

    tracemalloc.start()
    with FileReader(million) as reader:
        reader.read([5, 10**6 - 1])
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@children.limits_memory
@pytest.mark.parametrize("io", COPYING_MODES)
def test_no_memory_for_a_batch(tmp_path, io):
    """A MemoryError, after which the reader reads on."""
    path = builders.write_samples(tmp_path / "a.ffr", [b"a" * (64 << 20), b"b", b"c"])
    code = """
import resource, sys
from ffrecord import FileReader, FileWriter
with FileReader(sys.argv[1], io=sys.argv[2]) as reader:
    assert reader.read([1, 2, 1])[0].tobytes() == b"b"
    limit = 1 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for call in (reader.read, reader.read_packed):
        for count in (20, 1 << 40 >> 26):
            try:
                call([0] * count)
            except MemoryError:
                continue
            sys.exit("no error")
        assert reader.read([2, 1, 2])[0].tobytes() == b"c"
"""
    children.run(code, path, io)


@in_every_mode
def test_no_descriptors_left(small_file, io):
    code = """
import errno, os, resource, sys
import builders
from ffrecord import FileReader
count = len(os.listdir("/proc/self/fd")) + 10
resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
with FileReader([sys.argv[1]] * 50, io=sys.argv[2]) as reader:  # holds a quarter
    assert builders.read_all(reader) == builders.small() * 50
readers = [FileReader(sys.argv[1], io=sys.argv[2]) for _ in range(count - 3 - len(os.listdir("/proc/self/fd")) + 1)]
for reader in readers:  # direct reads want a second descriptor, and do without
    assert builders.read_all(reader) == builders.small()
"""
    children.run(code, small_file.path, io)


@in_every_mode
def test_signals_during_reads(sample_file, io):
    """A thousand a second: every call that waits may end with EINTR."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with FileReader(sample_file.path, io=io) as reader:
            while len(seen) < 50:
                assert builders.unpack(reader.read_packed(range(reader.n))) == sample_file.samples
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Interrupted(BaseException):
    pass


@children.interrupts
@in_every_mode
def test_signal_handlers_that_raise(sample_file, io):
    """Ctrl-C in a batch: the batch is lost, nothing else."""

    def interrupt(*_):
        raise Interrupted

    open_before = descriptors()
    with children.alarms(interrupt):
        reader = FileReader(sample_file.path, io=io)
        for i in range(40):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + i * 0.0001)
                while True:
                    reader.read(range(reader.n))
            except Interrupted:
                continue
        assert builders.read_all(reader) == sample_file.samples
        reader.close()
        assert not any(".ffr" in path and path != open_before.get(number) for number, path in descriptors().items())


@pytest.mark.parametrize(
    "name", ["ünïcode \U0001f600", "line\nbreak", "percent%s{0}", os.fsdecode(b"no utf-8 \xff"), "a" * 251, "[0-9]*"]
)
def test_odd_names(tmp_path, name):
    path = f"{tmp_path}/{name}.ffr"
    with FileWriter(path, 1) as writer:
        writer.write_one(b"x")
    assert os.listdir(tmp_path) == [f"{name}.ffr"]
    for given in (path, Path(path), [path], tmp_path):
        with FileReader(given) as reader, pickle.loads(pickle.dumps(reader)) as again:
            assert reader.fnames == again.fnames == [path]
            assert again.read_one(0).tobytes() == b"x"
    with FileReader(path) as reader, pytest.raises(IndexError) as caught:
        reader.read([1])
    assert escape_unprintable(path) in str(caught.value)


@in_every_mode
def test_without_direct_reads(io):
    """tmpfs: no AIO worth the name, no RWF_NOWAIT in older kernels. The same bytes."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm")
    path = Path(f"/dev/shm/test_reader_limits.{os.getpid()}.ffr")
    samples = builders.records([0, 1, 5000, 300_000, 70_000])
    try:
        with FileWriter(path) as writer:
            for sample in samples:
                writer.write_one(sample)
        with FileReader(path, io=io) as reader:
            assert builders.read_all(reader) == samples
            assert reader.read([4, 4, 3])[1].tobytes() == samples[4]
    finally:
        path.unlink()


@in_every_mode
@pytest.mark.parametrize("call", ["preadv2", "statx"])
def test_kernels_without_a_call(sample_file, io, call):
    """Refused by a container, or older than the call."""
    code = """
import errno, sys
import builders, children
from ffrecord import FileReader
with FileReader(sys.argv[1], io="pread") as reader:
    wanted = builders.read_all(reader)
try:
    children.refuse(sys.argv[3], errno.ENOSYS)
except OSError as error:
    sys.exit(f"no filters: {error}")
with FileReader(sys.argv[1], io=sys.argv[2]) as reader:
    assert builders.read_all(reader) == wanted
"""
    done = children.finished(code, sample_file.path, io, call)
    if "no filters" in done.stderr:
        pytest.skip(f"seccomp is not to be had here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("io", COPYING_MODES)
def test_cut_and_mended_during_reads(sample_file, tmp_path, io):
    """Exact bytes, or an error that says the file was cut; the tables stay as they are."""
    path = shutil.copy(sample_file.path, tmp_path / "a.ffr")
    data = Path(sample_file.path).read_bytes()
    stop = threading.Event()

    def cut() -> None:
        random = np.random.default_rng(0)
        with open(path, "r+b") as file:
            while not stop.is_set():
                size = int(random.integers(12 + 12 * len(sample_file.samples) + 8192, len(data)))
                os.ftruncate(file.fileno(), size)
                os.pwrite(file.fileno(), data[size:], size)

    outcomes = set()
    with FileReader(path, io=io) as reader:
        thread = threading.Thread(target=cut)
        thread.start()
        try:
            for i in range(8000):
                if i >= 400 and "bytes" in outcomes:
                    break  # a busy machine may take longer
                try:
                    got = reader.read(np.arange(i % 50, reader.n, 7))
                except (TruncatedError, RuntimeError) as error:
                    assert "read" in str(error) or "checksum" in str(error), error
                    outcomes.add(type(error).__name__)
                else:
                    assert [sample.tobytes() for sample in got] == sample_file.samples[i % 50 :: 7]
                    outcomes.add("bytes")
        finally:
            stop.set()
            thread.join()
        assert builders.read_all(reader) == sample_file.samples
    assert "bytes" in outcomes


def test_a_policy_that_is_a_function_pickles(tmp_path):
    path = builders.write(tmp_path / "a.ffr", builders.flip(-1)(ffr_twin.build([b"x"])))
    with FileReader(path, on_error=replacement) as reader, pickle.loads(pickle.dumps(reader)) as again:
        assert again.read_one(0).tobytes() == b"lost"


def replacement(error: Exception) -> np.ndarray:
    return np.frombuffer(b"lost", np.uint8)


@pytest.mark.parametrize("check_data", [True, False])
def test_sizes_of_samples_that_were_cut_off(tmp_path, check_data):
    """A file without extension block says how large it was nowhere, but by where its samples begin."""
    samples = [b"", bytes(1000), bytes(1000), b"", bytes(10)]
    whole, cut = (builders.write_samples(tmp_path / name, samples) for name in ("a.ffr", "b.ffr"))
    os.truncate(cut, 1500)
    with FileReader([whole, cut], check_data) as reader:
        assert reader.record_sizes(range(10)).tolist() == [0, 1000, 1000, 0, 10, 0, 1000, -1, -1, -1]
        assert [last > size for last, size in zip(reader.last_offsets, reader.file_sizes, strict=True)] == [False, True]

"""Files on a FUSE file system, which stands in for all that wait for a server: read by threads, their tables copied."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import builders
import children
import ffr_twin
import numpy as np
import pytest
import situations
from builders import IO_MODES

from ffrecord import ChecksumError, FileReader
from ffrecord.errors import TruncatedError
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system.filesystems import Filesystem, from_type

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
SIZES = [(i * 7919) % 5000 if i % 20 else i * 3000 for i in range(200)]
SAMPLES = builders.records(SIZES, 5)


@pytest.fixture(scope="module")
def mounted(tmp_path_factory) -> Iterator[Path]:
    """A directory, seen through FUSE."""
    source = tmp_path_factory.mktemp("source")
    with situations.fuse_mount(source) as place:
        yield place


@pytest.fixture
def path(mounted) -> Iterator[str]:
    found = builders.write_samples(mounted / "a.ffr", SAMPLES)
    yield found
    os.unlink(found)


def batches(count: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(-len(SAMPLES), len(SAMPLES), random.integers(0, 120)) for _ in range(count)]


def taken(indices: np.ndarray) -> list[bytes]:
    return [SAMPLES[i] for i in indices]


def test_the_kind_is_known(path):
    opened = OpenedFile(path, check=True)
    opened.close()
    assert opened.filesystem == Filesystem("fuse", network=True) == from_type(0x65735546)


@pytest.mark.parametrize("io", IO_MODES)
def test_every_mode(path, io):
    with FileReader(path, io=io) as reader:
        assert reader.stats().engines == {"fuse": {"auto": "threads", "pread": "page cache"}.get(io, io)}
        assert builders.read_all(reader) == SAMPLES
        for indices in batches(20):
            assert [sample.tobytes() for sample in reader.read(indices)] == taken(indices)
            assert builders.unpack(reader.read_packed(indices)) == taken(indices)
        assert [sample.tobytes() for sample in reader] == SAMPLES
        for indices, packed in zip(batches(20), reader.iter_batches(batches(20), packed=True), strict=True):
            assert builders.unpack(packed) == taken(indices)


def test_auto_never_goes_around_the_page_cache(path):
    """However cold: servers have caches of their own, and direct reads of FUSE are one request after the other."""
    with FileReader(path) as reader:
        for indices in batches(40):
            situations.evict(path)
            reader.read(indices)
            assert reader.stats().engines["fuse"] in ("threads", "page cache")
        assert reader.stats().requests > 0


@pytest.mark.parametrize("io", ["auto", "pread"])
@pytest.mark.parametrize("size", [0, 10, 3000])
def test_a_file_cut_into_its_tables_kills_nobody(mounted, io, size):
    """They were copied when it was opened. A page of a mapping could fail at any time, also of a file that is whole."""
    path = builders.write_samples(mounted / "cut.ffr", builders.records([100] * 1000))
    code = """
import os, sys
from ffrecord import FileReader
from ffrecord.errors import TruncatedError
path, io, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
reader = FileReader(path, io=io)
offsets = reader.get_offsets(0)
os.truncate(path, size)
for call in (lambda: reader.read(range(1000)), lambda: reader.read_packed([999, 1]), lambda: reader.read_one(0)):
    try:
        call()
    except TruncatedError:
        continue
    raise SystemExit("no error")
with open("/proc/self/maps") as maps:
    assert path not in maps.read()
"""
    children.run(code, path, io, size)


def test_data_cut_while_open(mounted):
    path = builders.write_samples(mounted / "cut.ffr", SAMPLES)
    with FileReader(path) as reader:
        end = int(reader.get_offsets(0)[100])
        os.truncate(path, end + 1)
        assert [sample.tobytes() for sample in reader.read(range(100))] == SAMPLES[:100]
        with pytest.raises(TruncatedError, match=r"Sample 100: length \d+ but read"):
            reader.read(range(150))


@pytest.mark.parametrize("go_on", ["raise", "skip"])
def test_damaged_samples(mounted, go_on):
    bad = (3, 20, 150)
    damage = builders.chain(*map(builders.flip_in_sample, bad))
    path = builders.write(mounted / "bad.ffr", damage(ffr_twin.build(SAMPLES)))
    with FileReader(path, on_error=go_on) as reader:
        if go_on == "skip":
            assert builders.read_all(reader) == [sample for i, sample in enumerate(SAMPLES) if i not in bad]
            assert reader.skipped == len(bad)
            return
        for _ in range(20):
            with pytest.raises(ChecksumError, match=r"Sample (3|20|150): ") as caught:
                reader.read(range(200))
            assert caught.value.index in bad
        assert reader.read_one(4).tobytes() == SAMPLES[4]


def test_threads_share_a_reader(path):
    wrong = []

    def work(seed: int) -> None:
        for indices in batches(15, seed):
            if builders.unpack(reader.read_packed(indices)) != taken(indices):
                wrong.append(seed)

    with FileReader(path) as reader:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.long)])
def test_fork_during_reads(path, rounds):
    """Of the threads that are reading, a child has none; its reads need new ones."""
    stop, wrong = threading.Event(), []

    def right(seed: int) -> bool:
        return all(builders.unpack(reader.read_packed(each)) == taken(each) for each in batches(3, seed))

    def work() -> None:
        while not stop.is_set():
            if not right(1):
                wrong.append(1)

    with FileReader(path) as reader:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            statuses = [children.in_child(lambda: right(2)) for _ in range(rounds)]
        finally:
            stop.set()
            thread.join()
    assert (statuses, wrong) == ([0] * rounds, [])


def test_more_files_than_may_be_open(mounted, monkeypatch):
    monkeypatch.setattr("ffrecord.system.resources.descriptors", lambda: 2)
    names = [builders.write_samples(mounted / f"{i}.ffr", SAMPLES[i : i + 5]) for i in range(12)]
    samples = [sample for i in range(12) for sample in SAMPLES[i : i + 5]]
    with FileReader(names) as reader:
        for _ in range(3):
            assert builders.read_all(reader) == samples
        assert reader.stats().open_files <= 2
        os.unlink(names[5])
        with pytest.raises(OSError, match="Sample 25: ") as caught:
            reader.read([0, 25])
        assert caught.value.errno in (errno.ENOENT, errno.ESTALE)
        assert names[5] in str(caught.value)


def test_many_reads_are_in_flight(path):
    code = """
import sys
from ffrecord import FileReader
from ffrecord.kernels import _threads
with FileReader(sys.argv[1]) as reader:
    reader.read(range(reader.n))
    assert 1 < _threads.stats()["threads"] < 16, _threads.stats()  # and this one
    reader.read([0])
    assert _threads.stats()["threads"] < 16
"""
    children.run(code, path)

"""`read_stats`: the numbers of `FileReader.stats()`."""

import math
import os
import pickle
import threading
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest
import situations
from builders import IO_MODES

from ffrecord import ChecksumError, FileReader
from ffrecord.reading.stats import ReadStats, collect

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
in_every_mode = pytest.mark.parametrize("io", IO_MODES)
NOTHING = {"records": 0, "bytes": 0, "missed": 0, "cached_bytes": 0, "probed": 0, "requests": 0, "waits": 0,
           "io_ns": 0, "crc_ns": 0}  # fmt: skip
GROWING = ("batches", "records", "bytes", "requests", "cached_bytes", "io_seconds", "crc_seconds", "waits")


def test_before_the_first_batch(small_file):
    with FileReader(small_file.path) as reader:
        stats = reader.stats()
        assert isinstance(stats, ReadStats)
        assert stats[:4] == (0, 0, 0, 0)
        assert math.isnan(stats.cache_hit_share)
        assert (stats.cached_bytes, stats.io_seconds, stats.crc_seconds) == (0, 0, 0)
        assert (stats.waits, stats.skipped, stats.open_files, len(stats.engines)) == (0, 0, 1, 1)
    assert reader.stats().open_files == 0


@in_every_mode
def test_batches_records_and_bytes(sample_file, io):
    """Each call of read is one, each sample counts as often as it was asked for."""
    with FileReader(sample_file.path, io=io) as reader:
        calls = [
            (lambda: reader.read(range(10)), 1, range(10)),
            (lambda: reader.read_packed([5, 5, -1]), 1, [5, 5, -1]),
            (lambda: reader.read_one(30), 1, [30]),
            (lambda: reader.read([]), 1, []),
            (lambda: list(reader.iter_batches([[1], [2, 3]])), 2, [1, 2, 3]),
            (lambda: reader.read_range(40, 50), 1, range(40, 50)),
        ]
        batches = records = size = 0
        for call, more, indices in calls:
            call()
            batches += more
            records += len(indices)
            size += sum(len(sample_file.samples[i]) for i in indices)
            stats = reader.stats()
            assert (stats.batches, stats.records, stats.bytes) == (batches, records, size)
        list(reader)
        assert reader.stats().records == records + reader.n
        assert reader.stats().bytes == size + sum(map(len, sample_file.samples))


@in_every_mode
def test_numbers_only_grow(sample_file, io):
    with FileReader(sample_file.path, io=io) as reader:
        before = reader.stats()
        for _ in range(20):
            reader.read_packed(range(reader.n))
            stats = reader.stats()
            for name in (
                "batches",
                "records",
                "bytes",
                "requests",
                "cached_bytes",
                "io_seconds",
                "crc_seconds",
                "waits",
            ):
                assert getattr(stats, name) >= getattr(before, name), name
            # What is copied from mappings is checked on the way, which counts as reading.
            assert stats.io_seconds + stats.crc_seconds > before.io_seconds + before.crc_seconds
            assert 0 <= stats.cache_hit_share <= 1 or math.isnan(stats.cache_hit_share)
            assert stats.cached_bytes <= stats.bytes
            before = stats
        assert (stats.io_seconds > 0, stats.requests > 0) == (True, True) or io == "mmap"
        assert stats.io_seconds + stats.crc_seconds < 60


def test_seconds_are_seconds(sample_file):
    """Those of one thread are no more than the time that went by, and most of it."""
    from time import perf_counter

    with FileReader(sample_file.path, io="pread") as reader:
        indices = np.tile(np.arange(reader.n), 5)
        reader.read_packed(indices)
        before, start = reader.stats(), perf_counter()
        for _ in range(10):
            reader.read_packed(indices)
        took, stats = perf_counter() - start, reader.stats()
    counted = stats.io_seconds - before.io_seconds + stats.crc_seconds - before.crc_seconds
    assert 0.2 * took < counted < 1.01 * took


def test_no_crc_without_check(sample_file):
    with FileReader(sample_file.path, False) as reader:
        reader.read_packed(range(reader.n))
        assert reader.stats().crc_seconds < 0.01
        assert reader.stats().records == reader.n


@pytest.fixture
def cold_file(tmp_path) -> str:
    """A file that nobody has cached; its second sample is further from its tables than a kernel reads ahead."""
    found = builders.write_samples(tmp_path / "cold.ffr", builders.records([24_000_000, 4000]))
    if not situations.can_be_evicted(found):
        pytest.skip("nothing can be evicted from the page cache here, so nothing is ever cold")
    return found


def test_hit_share_of_a_cold_and_of_a_hot_file(cold_file):
    with FileReader(cold_file) as reader:
        situations.evict(cold_file)
        reader.read([1])
        cold = reader.stats()
        assert cold.cache_hit_share == 0
        assert cold.cached_bytes == 0
    with FileReader(cold_file) as reader:
        situations.warm(cold_file)
        for _ in range(10):
            reader.read([0, 1])
        hot = reader.stats()
        assert hot.cache_hit_share > 0.9
        # Seen by waits, of which a busy machine has some of its own.
        assert 0.8 * hot.bytes <= hot.cached_bytes <= hot.bytes


def test_requests_are_few_where_samples_lie_together(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [b"x" * 100] * 1000)
    with FileReader(path, io="pread") as reader:
        reader.read_packed(range(1000))
        assert 1 <= reader.stats().requests < 30
        reader.read_packed(range(0, 1000, 2))  # nearly together
        assert reader.stats().requests < 60
        before = reader.stats().requests
        reader.read_packed(range(0, 1000, 25))  # 2400 bytes between one and the next
        assert reader.stats().requests - before == 40


# Failures


@in_every_mode
def test_failed_samples_count_as_nothing(tmp_path, io):
    path = builders.write(tmp_path / "a.ffr", builders.flip_in_sample(5)(ffr_twin.build(builders.small())))
    with FileReader(path, io=io, on_error="skip") as reader:
        reader.read([3, 5, 4, 5])
        stats = reader.stats()
        assert (stats.batches, stats.records, stats.skipped) == (1, 2, 2)
        assert stats.bytes == len(builders.small()[3]) + len(builders.small()[4])
    with FileReader(path, io=io) as reader:
        for _ in range(3):
            with pytest.raises(ChecksumError):
                reader.read([5])
        assert (reader.stats().batches, reader.stats().records, reader.stats().skipped) == (3, 0, 0)
        with pytest.raises(IndexError):
            reader.read([8])
        assert reader.stats().records == 0


# Many at once


def test_threads_are_all_counted(sample_file):
    with FileReader(sample_file.path) as reader:
        threads = [threading.Thread(target=lambda: [reader.read(range(50)) for _ in range(20)]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            assert reader.stats().records % 50 == 0  # of batches that have ended
        for thread in threads:
            thread.join()
        assert (reader.stats().batches, reader.stats().records) == (120, 6000)


def test_other_processes_are_not(sample_file):
    with FileReader(sample_file.path) as reader:
        reader.read(range(10))
        child = os.fork()
        if child == 0:
            reader.read(range(20))
            os._exit(0 if reader.stats().records in (20, 30) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert reader.stats().records == 10
        with pickle.loads(pickle.dumps(reader)) as again:
            assert again.stats().records == 0


def test_it_is_a_value(small_file):
    """As log lines and messages between processes want it."""
    with FileReader(small_file.path) as reader:
        reader.read(range(8))
        stats = reader.stats()
        reader.read(range(8))
        assert stats.records == 8
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert set(stats._asdict()) == set(ReadStats._fields)
    assert "records=8" in repr(stats)


def test_engines_of_file_systems_with_the_same_name():
    """The device tells them apart."""
    devices = [os.makedev(8, 1), os.makedev(8, 2), os.makedev(0, 5)]
    found = [("ext4", devices[0], "direct", NOTHING), ("ext4", devices[1], "mmap", NOTHING)]
    found.append(("tmpfs", devices[2], "page cache", {**NOTHING, "records": 3, "probed": 4, "missed": 1, "io_ns": 2e9}))
    stats = collect(found, batches=5, skipped=6, open_files=7)
    assert stats.engines == {"ext4 8:1": "direct", "ext4 8:2": "mmap", "tmpfs": "page cache"}
    assert (stats.batches, stats.records, stats.skipped, stats.open_files) == (5, 3, 6, 7)
    assert (stats.cache_hit_share, stats.io_seconds) == (0.75, 2)


def test_the_file_systems_of_this_machine(small_file):
    shm = Path(f"/dev/shm/test_read_stats.{os.getpid()}.ffr")
    if not shm.parent.is_dir():
        pytest.skip("no tmpfs at /dev/shm")
    try:
        with FileReader([small_file.path, builders.write_samples(shm, builders.small())]) as reader:
            reader.read(range(16))
            assert reader.stats().engines["tmpfs"] == "page cache"
            assert reader.stats().records == 16
    finally:
        shm.unlink()

"""T15 (guarantees G3, G4): millions of samples, batches larger than the requests in flight, sizes beyond 32 bits.

Large files are of holes, so they cost no disk.
"""

import os
import zlib
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest
from builders import IO_MODES
from figures import counts

from ffrecord import ChecksumError, FileReader, FileWriter
from ffrecord._crc import crc32, crc32_combine

in_every_mode = pytest.mark.parametrize("io", IO_MODES)


def holes(path: Path, sizes: list[int], checked: bool = True) -> str:
    """A file of samples that are zeros but for their last byte, which is their number, counted from 1."""
    offsets = np.cumsum([12 + 12 * len(sizes), *sizes])
    crcs = [zeros_crc(size, i + 1) if checked else 0 for i, size in enumerate(sizes)]
    tables = len(sizes).to_bytes(8, "little") + np.array(crcs, "<u4").tobytes() + offsets[:-1].astype("<i8").tobytes()
    with open(path, "wb") as file:
        file.write(ffr_twin.zlib.crc32(tables).to_bytes(4, "little") + tables)
        file.truncate(int(offsets[-1]))
        for i, end in enumerate(offsets[1:]):
            os.pwrite(file.fileno(), bytes([i + 1]), int(end) - 1)
    return str(path)


def zeros_crc(size: int, last: int) -> int:
    """CRC-32 of size - 1 zeros and one last byte."""
    zeros, power, left, done = 0, zlib.crc32(b"\0"), size - 1, 1
    while left:
        if left & 1:
            zeros = crc32_combine(zeros, power, done)
        power, left, done = crc32_combine(power, power, done), left >> 1, 2 * done
    return crc32(bytes([last]), zeros)


def test_checksum_of_zeros():
    """The judge of large samples, judged."""
    for size in (1, 2, 3, 1000, 65537):
        assert zeros_crc(size, 7) == zlib.crc32(bytes(size - 1) + b"\7")


# Many samples


@pytest.mark.timeout(900)
@counts(10**6, 10**7)
def test_many_samples(in_memory, count, random):
    """Sizes of 0 to 6 bytes; in order, at random and repeated."""
    offsets = np.append(0, np.cumsum(random.integers(0, 7, count)))
    given = random.integers(0, 256, offsets[-1], np.uint8)
    with FileWriter(in_memory / "a.ffr", count) as writer:
        writer.write_packed(given, offsets)
    indices = random.integers(-count, count, 100_000)
    some = [given[offsets[i] : offsets[i + 1]].tobytes() for i in (indices % count).tolist()]
    with open(in_memory / "a.ffr", "rb") as file:
        head = file.read(12 + 12 * count)
    assert int.from_bytes(head[:4], "little") == zlib.crc32(head[4:])
    for io in IO_MODES:
        with FileReader(in_memory / "a.ffr", io=io) as reader:
            assert reader.n == count
            data, found = reader.read_packed(np.arange(count))
            assert np.array_equal(found, offsets) and np.array_equal(data, given)
            assert builders.unpack(reader.read_packed(indices)) == some
            assert reader.read_one(-1).tobytes() == given[offsets[-2] :].tobytes()


def test_a_batch_larger_than_the_requests_in_flight(tmp_path, random, counted):
    """Linux AIO has 128 slots of at most 256 KiB here; neighbours are too far apart to be read as one."""
    samples = builders.records([1 + i % 5 * 7000 for i in range(2000)])
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    indices = random.permutation(len(samples))[: len(samples) // 3]
    with FileReader(path, io="direct") as reader:
        for times in (1, 5):
            batch = np.repeat(indices, times)
            assert builders.unpack(reader.read_packed(batch)) == [samples[i] for i in batch]
        if "direct" in reader.stats().engines.values():
            assert reader.stats().requests > 4 * 128
        else:
            pytest.skip(f"no direct reads here: {reader.stats().engines}")


# Large ones


@in_every_mode
def test_offsets_beyond_4_gib(tmp_path, io):
    """Small samples around ones that are never read."""
    sizes = [3, (2 << 30) + 1, 5, (4 << 30) - 1, 70_000, 5 << 30, 300_000, 1]
    path = holes(tmp_path / "a.ffr", sizes, checked=False)
    small = [0, 2, 4, 6, 7]
    with FileReader(path, False, io=io) as reader:
        assert reader.get_offsets(0)[-1] > 11 << 30
        wanted = [bytes(sizes[i] - 1) + bytes([i + 1]) for i in small]
        assert [sample.tobytes() for sample in reader.read(small)] == wanted
        assert builders.unpack(reader.read_packed(small[::-1])) == wanted[::-1]
        assert [packed[0].tobytes() for packed in reader.iter_batches([[i] for i in small], packed=True)] == wanted


@in_every_mode
def test_more_than_there_is_memory(tmp_path, io):
    """An error of memory, not of arithmetic: 2**40 bytes in one sample, 2**47 in a batch."""
    path = holes(tmp_path / "a.ffr", [3, 1 << 40, 5], checked=False)
    with FileReader(path, False, io=io) as reader:
        with pytest.raises(MemoryError):
            reader.read_packed([0] + [1] * 128)
        with pytest.raises(ValueError, match=f"out has 10 bytes, expected at least {1 << 40}"):
            reader.read_packed([1], out=np.empty(10, np.uint8))
        assert reader.read_one(2).tobytes() == b"\0\0\0\0\3"


LARGE = [5, (2 << 30) - 1, 0x7FFFF001, (2 << 30) + 1, 7, (5 << 30) + 5, 3]


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> str:
    """A file of them, which takes no disk; what reads one takes memory."""
    with open("/proc/meminfo") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    if available < 2 * max(LARGE):
        pytest.skip(f"{available >> 30} GiB of memory are free; samples of 5 GiB take twice as much")
    return holes(tmp_path_factory.mktemp("large") / "a.ffr", LARGE)


@pytest.mark.long
@in_every_mode
@pytest.mark.timeout(900)
def test_samples_beyond_2_and_4_gib(large, io):
    """In one piece, checked; each call that reads."""
    with FileReader(large, io=io) as reader:
        for i in (1, 4):
            sample = reader.read_one(i)
            assert (len(sample), sample[-1], sample[: LARGE[i] - 1].any()) == (LARGE[i], i + 1, False)
            del sample
        data, offsets = reader.read_packed([4, 5, 6, 0])
        assert np.diff(offsets).tolist() == [LARGE[i] for i in (4, 5, 6, 0)]
        assert [data[end - 1] for end in offsets[1:]] == [5, 6, 7, 1]
        del data
        arrays = reader.read([0, 2, 0])
        assert [(len(array), array[-1]) for array in arrays] == [(LARGE[i], i + 1) for i in (0, 2, 0)]
        del arrays
        ((array, other),) = reader.iter_batches([[3, 0]], 1)
        assert (len(array), array[-1], other[-1]) == (LARGE[3], 4, 1)


@pytest.mark.long
@pytest.mark.parametrize("io", ["auto", "direct"])
@pytest.mark.timeout(900)
def test_damage_beyond_4_gib(tmp_path, io, large):
    path = holes(tmp_path / "a.ffr", LARGE)
    with open(path, "r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"\1")  # near the end of sample 5
    with FileReader(path, io=io) as reader:
        with pytest.raises(ChecksumError, match="Sample 5: "):
            reader.read_one(5)
        assert reader.read_one(6).tobytes() == b"\0\0\7"

"""Samples and offsets that 32 bits do not hold. Files of holes, so they cost no disk."""

import os
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest
from builders import IO_MODES

from ffrecord import ChecksumError, FileReader
from ffrecord._crc import crc32

in_every_mode = pytest.mark.parametrize("io", IO_MODES)
CHUNK = 64 << 20


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
    zeros, crc, left = bytes(CHUNK), 0, size - 1
    while left > 0:
        crc = crc32(memoryview(zeros)[: min(left, CHUNK)], crc)
        left -= CHUNK
    return crc32(bytes([last]), crc)


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
        with pytest.raises(ValueError, match=f"out has 10 bytes, the samples have {1 << 40}"):
            reader.read_packed([1], out=np.empty(10, np.uint8))
        assert reader.read_one(2).tobytes() == b"\0\0\0\0\3"


LARGE = [5, (2 << 30) - 1, 0x7FFFF001, (2 << 30) + 1, 7, (4 << 30) + 5, 3]


@pytest.mark.long
@in_every_mode
@pytest.mark.timeout(900)
def test_samples_beyond_2_and_4_gib(tmp_path, io):
    """In one piece, checked; each call that reads."""
    path = holes(tmp_path / "a.ffr", LARGE)
    with FileReader(path, io=io) as reader:
        for i, size in enumerate(LARGE):
            sample = reader.read_one(i)
            assert (len(sample), sample[-1], sample[: size - 1].any()) == (size, i + 1, False)
            del sample
        out = np.empty(max(LARGE) + 10, np.uint8)
        for indices in ([5, 6], [4, 3, 0], [0, 0, 2]):
            data, offsets = reader.read_packed(indices, out=out)
            assert np.diff(offsets).tolist() == [LARGE[i] for i in indices]
            assert [data[end - 1] for end in offsets[1:]] == [i + 1 for i in indices]
        del out, data
        for turn, arrays in enumerate(reader.iter_batches(([i, 0] for i in (1, 5, 4)), 1)):
            assert [array[-1] for array in arrays] == [(2, 6, 5)[turn], 1]
            del arrays


@pytest.mark.long
@in_every_mode
@pytest.mark.timeout(900)
def test_damage_beyond_4_gib(tmp_path, io):
    path = holes(tmp_path / "a.ffr", LARGE)
    with open(path, "r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"\1")  # near the end of sample 5
    with FileReader(path, io=io) as reader:
        with pytest.raises(ChecksumError, match="Sample 5: "):
            reader.read_one(5)
        assert reader.read_one(6).tobytes() == b"\0\0\7"

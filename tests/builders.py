"""Make `.ffr` bytes, and damage them. A damage is a function bytes -> bytes; `chain` puts several in a row."""

import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import ffr_twin
import numpy as np

from ffrecord import FileReader

GOLDEN = Path(__file__).parent / "golden" / "ffrecord"
IO_MODES = ("pread", "auto", "direct", "mmap")
COPYING_MODES = ("pread", "auto", "direct")  # "mmap" gives views of the file
SMALL_SIZES = (0, 1, 2, 5, 16, 33, 100, 139)  # 404 bytes with the tables
BLOCK_START = 12 + 12 * len(SMALL_SIZES)  # of the extension block, in files of as many samples
BLOCK_FIELDS = {"magic": (0, "<8s"), "crc": (8, "<I"), "version": (12, "<I"), "block_size": (16, "<Q"),
                "payload_size": (24, "<Q"), "file_size": (32, "<Q")}  # fmt: skip

Damage = Callable[[bytes], bytes]


def records(sizes: Sequence[int], seed: int = 0) -> list[bytes]:
    """Samples of these sizes, all different from each other."""
    random = np.random.default_rng(seed)
    return [random.bytes(size) for size in sizes]


def small() -> list[bytes]:
    """The samples of the small file."""
    return records(SMALL_SIZES)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def write_samples(path: Path, samples: list[bytes]) -> str:
    """A file as the twin writes it."""
    return write(path, ffr_twin.build(samples))


def read_all(reader: FileReader) -> list[bytes]:
    """Every sample, in one batch."""
    return [sample.tobytes() for sample in reader.read(range(reader.n))]


def unpack(packed: tuple[np.ndarray, np.ndarray]) -> list[bytes]:
    """The samples of what `read_packed` gave."""
    data, offsets = packed
    return [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(offsets) - 1)]


# Damages


def chain(*damages: Damage) -> Damage:
    def damage(data: bytes) -> bytes:
        for each in damages:
            data = each(data)
        return data

    return damage


def put(offset: int, layout: str, *values: int | bytes) -> Damage:
    """Overwrite one field."""

    def damage(data: bytes) -> bytes:
        out = bytearray(data)
        struct.pack_into(layout, out, offset, *values)
        return bytes(out)

    return damage


def flip(bit: int) -> Damage:
    """Invert one bit, counted from the start of the file; from its end if negative."""

    def damage(data: bytes) -> bytes:
        out = bytearray(data)
        out[bit // 8] ^= 1 << bit % 8
        return bytes(out)

    return damage


def flip_in_sample(index: int) -> Damage:
    """Invert the first bit of a sample."""
    return lambda data: flip(8 * struct.unpack_from("<q", data, offset_at(data, index))[0])(data)


def truncate(size: int) -> Damage:
    """Cut to `size` bytes; by that many if negative."""
    return lambda data: data[:size]


def append(tail: bytes) -> Damage:
    return lambda data: data + tail


def set_n(n: int) -> Damage:
    return put(4, "<q", n)


def set_header_crc(crc: int) -> Damage:
    return put(0, "<I", crc)


def checksum_at(index: int) -> int:
    """Where in a file the stored checksum of a sample is."""
    return 12 + 4 * index


def offset_at(data: bytes, index: int) -> int:
    """Where in a file the stored offset of a sample is."""
    return 12 + 4 * struct.unpack_from("<q", data, 4)[0] + 8 * index


def set_checksum(index: int, crc: int) -> Damage:
    return put(checksum_at(index), "<I", crc)


def set_offset(index: int, offset: int) -> Damage:
    return lambda data: put(offset_at(data, index), "<q", offset)(data)


def swap_offsets(i: int, j: int) -> Damage:
    def damage(data: bytes) -> bytes:
        first, second = (struct.unpack_from("<q", data, offset_at(data, k))[0] for k in (i, j))
        return chain(set_offset(i, second), set_offset(j, first))(data)

    return damage


def fix_checksum(data: bytes) -> bytes:
    """Make the header's checksum right again, so that what lies behind it is reached."""
    n = struct.unpack_from("<q", data, 4)[0]
    return set_header_crc(zlib.crc32(data[4 : 12 + 12 * n]))(data)


def set_block(field: str, value: int | bytes, start: int = BLOCK_START) -> Damage:
    """Overwrite one field of the extension block."""
    offset, layout = BLOCK_FIELDS[field]
    return put(start + offset, layout, value)


def fix_block(data: bytes, start: int = BLOCK_START) -> bytes:
    """Make the extension block's checksum right again."""
    payload_size = struct.unpack_from("<Q", data, start + 24)[0]
    return put(start + 8, "<I", zlib.crc32(data[start + 12 : start + 40 + payload_size]))(data)

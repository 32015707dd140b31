"""A slow, obvious reader and writer of `.ffr` files: the judge of the fast ones. Nothing of ffrecord is used."""

import struct
import zlib


def build(samples: list[bytes], gap: bytes = b"") -> bytes:
    """A whole file; `gap` lies between the tables and the first sample."""
    offset = 12 + 12 * len(samples) + len(gap)
    checksums, offsets = b"", b""
    for sample in samples:
        checksums += struct.pack("<I", zlib.crc32(sample))
        offsets += struct.pack("<q", offset)
        offset += len(sample)
    covered = struct.pack("<q", len(samples)) + checksums + offsets
    return struct.pack("<I", zlib.crc32(covered)) + covered + gap + b"".join(samples)


def parse(data: bytes) -> list[bytes]:
    """The samples of a whole file; ValueError if a checksum differs."""
    crc, n = struct.unpack_from("<Iq", data)
    if crc not in (0, zlib.crc32(data[4 : 12 + 12 * n])):
        raise ValueError("header")
    checksums = struct.unpack_from(f"<{n}I", data, 12)
    offsets = [*struct.unpack_from(f"<{n}q", data, 12 + 4 * n), len(data)]
    samples = [data[offsets[i] : offsets[i + 1]] for i in range(n)]
    for i in range(n):
        if zlib.crc32(samples[i]) != checksums[i]:
            raise ValueError(f"sample {i}")
    return samples


def block(payload: bytes, reserved: int, file_size: int) -> bytes:
    """An extension block of version 1 that fills a gap, `reserved` bytes of zeros included."""
    size = 40 + len(payload) + reserved
    covered = struct.pack("<IQQQ", 1, size, len(payload), file_size) + payload
    return b"\x89FFRext\n" + struct.pack("<I", zlib.crc32(covered)) + covered + bytes(reserved)


def build_extended(samples: list[bytes], payload: bytes = b"", reserved: int = 0) -> bytes:
    """A whole file with an extension block."""
    size = 12 + 12 * len(samples) + 40 + len(payload) + reserved + sum(map(len, samples))
    return build(samples, block(payload, reserved, size))

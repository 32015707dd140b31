"""RecordIO the slow and obvious way, from what is known of its layouts: all three dialects, written and read."""

import gzip
import struct
import zlib
from typing import NamedTuple

import cramjam
from crc32c import crc32c

MAGIC = 0x01020304
CODES = {"A": ("", "none", "snappy", "gzip"), "B": ("none", "snappy", "gzip"), "C": ("none", "snappy", "gzip")}
DIALECTS = tuple(CODES)
COMPRESSORS = ("none", "snappy", "gzip")


class Chunk(NamedTuple):
    """Numbers of a header, and where its payload begins."""

    records: int
    checksum: int
    compressor: int
    size: int
    start: int


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def framed(data: bytes, block: int = 200) -> bytes:
    """The framing format: blocks in turn compressed and stored, with padding, and things to skip."""
    out = b"\xff\x06\0\0sNaPpY"
    for number, start in enumerate(range(0, len(data), block)):
        piece = data[start : start + block]
        body = struct.pack("<I", masked(piece)) + (piece if number % 2 else raw(piece))
        out += bytes([number % 2]) + struct.pack("<I", len(body))[:3] + body
        out += b"\xfe\x02\0\0??" if number % 3 == 0 else b"\x80\x01\0\0?" if number % 3 == 1 else b""
    return out


def blocks(data: bytes, block: int = 200) -> bytes:
    """What the C++ writes; its own reader does not look at the checksums."""
    out = b"snappy\0"
    for number, start in enumerate(range(0, len(data), block)):
        piece = data[start : start + block]
        body = piece if number % 2 else raw(piece)
        out += struct.pack(">BHI", 1 - number % 2, len(body), masked(piece)) + body
    return out


def payload(records: list[bytes], dialect: str, compressor: str) -> bytes:
    plain = b"".join(struct.pack("<I", len(record)) + record for record in records)
    if compressor == "gzip":
        return gzip.compress(plain)
    return {"A": raw, "B": framed, "C": blocks}[dialect](plain) if compressor == "snappy" else plain


def chunk(stored: bytes, count: int, dialect: str, compressor: str) -> bytes:
    """A chunk around a payload, whatever that is."""
    checksum, code = crc32c(stored) if dialect == "A" else zlib.crc32(stored), CODES[dialect].index(compressor)
    words = (checksum, code, len(stored), count) if dialect == "B" else (count, checksum, code, len(stored))
    return struct.pack("<5I", MAGIC, *words) + stored


def split(records: list[bytes], most: int) -> list[list[bytes]]:
    """Which records share a chunk."""
    found: list[list[bytes]] = []
    for record in records:
        if not found or sum(map(len, found[-1])) + len(record) > most:
            found.append([])
        found[-1].append(record)
    return found


def build(records: list[bytes], dialect: str, compressor: str, most: int = 500) -> bytes:
    """A file."""
    return b"".join(
        chunk(payload(each, dialect, compressor), len(each), dialect, compressor) for each in split(records, most)
    )


def chunks(data: bytes, dialect: str) -> list[Chunk]:
    """The chunks of a sound file."""
    found, at = [], 0
    while at < len(data):
        magic, *words = struct.unpack_from("<5I", data, at)
        assert magic == MAGIC
        checksum, code, size, count = words if dialect == "B" else (words[1], words[2], words[3], words[0])
        found.append(Chunk(count, checksum, code, size, at + 20))
        at += 20 + size
    assert at == len(data)
    return found


def parse(data: bytes, dialect: str) -> list[bytes]:
    """The records of a sound file of chunks that are not compressed, or by gzip."""
    found = []
    for each in chunks(data, dialect):
        stored = data[each.start : each.start + each.size]
        assert each.checksum == (crc32c(stored) if dialect == "A" else zlib.crc32(stored))
        compressor = CODES[dialect][each.compressor]
        plain = {"none": bytes, "gzip": gzip.decompress, "snappy": expand(dialect)}[compressor](stored)
        for _ in range(each.records):
            (size,) = struct.unpack_from("<I", plain)
            found.append(plain[4 : 4 + size])
            plain = plain[4 + size :]
        assert plain == b""
    return found


def expand(dialect: str):  # type: ignore[no-untyped-def]
    """Snappy as A and B have it, by cramjam."""
    function = cramjam.snappy.decompress_raw if dialect == "A" else cramjam.snappy.decompress
    return lambda stored: bytes(function(stored))

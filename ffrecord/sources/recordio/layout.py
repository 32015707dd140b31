"""The layout of RecordIO files of the PaddlePaddle family. This module touches no file.

A file is chunks back to back, without a header, footer or index. A chunk is five u32, then its payload; all integers
are little-endian:

    A    0x01020304, records, CRC-32C, compressor, size    pyrecordio 0.0.1 and 0.0.2 (Python)
    B    0x01020304, CRC-32, compressor, size, records     pyrecordio 0.0.6, wangkuiyi/recordio (Go)
    C    0x01020304, records, CRC-32, compressor, size     Paddle Fluid (C++)

The checksum covers the payload as it is stored, `size` bytes. An expanded payload has, for each record, its size as u32
and its bytes.
"""

import struct
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError

MAGIC = 0x01020304
MAGIC_BYTES = struct.pack("<I", MAGIC)
HEADER = struct.Struct("<5I")
LENGTH = struct.Struct("<I")
SIZE_MOST = 0xFFFFFFFF  # bytes of a payload, and of a record: u32

NONE, SNAPPY, GZIP = "none", "snappy", "gzip"
COMPRESSORS = (NONE, SNAPPY, GZIP)  # `Chunks.compressors` contains their places
# Most bytes that a byte of a payload can expand to: raw snappy makes 64 bytes of 3, deflate 1032 of one.
EXPANSION = np.array([1, 22, 1032], np.int64)

Headers: TypeAlias = npt.NDArray[np.uint32]
Numbers: TypeAlias = npt.NDArray[np.int64]


class Dialect(NamedTuple):
    """One of the three headers.

    Attributes:
        name: "A", "B" or "C".
        checksum_kind: "crc32c" or "crc32".
        records, checksum, compressor, size: place of each among the five words.
        first_code: code of no compression; those of snappy and gzip follow it.
        snappy: wrapping of snappy, see `snappy.expand`.
        chunk_size: bytes after which its own writer begins another chunk.
    """

    name: Literal["A", "B", "C"]
    checksum_kind: Literal["crc32", "crc32c"]
    records: int
    checksum: int
    compressor: int
    size: int
    first_code: int
    snappy: str
    chunk_size: int

    def header(self, records: int, checksum: int, compressor: str, size: int) -> bytes:
        """Return the 20 bytes before a payload."""
        words = [MAGIC, 0, 0, 0, 0]
        words[self.records], words[self.checksum], words[self.size] = records, checksum, size
        words[self.compressor] = self.first_code + COMPRESSORS.index(compressor)
        return HEADER.pack(*words)

    def compressors(self, headers: Headers) -> Numbers:
        """Return places in `COMPRESSORS`; other numbers if a header has an unknown compressor."""
        return headers[:, self.compressor].astype(np.int64) - self.first_code

    def are_valid(self, headers: Headers) -> npt.NDArray[np.bool_]:
        """Return which headers may be valid.

        They have a known compressor, and a number of records that fits into the size.
        """
        compressors = self.compressors(headers)
        known = (headers[:, 0] == MAGIC) & (compressors >= 0) & (compressors < len(COMPRESSORS))
        room = headers[:, self.size].astype(np.int64) * EXPANSION[np.where(known, compressors, 0)]
        records = headers[:, self.records].astype(np.int64)
        fits: npt.NDArray[np.bool_] = known & (records > 0) & (records <= room // LENGTH.size)
        return fits


DIALECTS: Mapping[str, Dialect] = {
    "A": Dialect("A", "crc32c", 1, 2, 3, 4, first_code=1, snappy="raw", chunk_size=1024),
    "C": Dialect("C", "crc32", 1, 2, 3, 4, first_code=0, snappy="blocks", chunk_size=32 << 20),
    "B": Dialect("B", "crc32", 4, 1, 2, 3, first_code=0, snappy="framed", chunk_size=32 << 20),
}


def dialect_of(name: str) -> Dialect:
    """Return the dialect with a name.

    Raises:
        ValueError: there is none.
    """
    if name not in DIALECTS:
        raise ArgumentError(f"dialect is {name!r}, expected one of {', '.join(sorted(DIALECTS))}")
    return DIALECTS[name]

"""FFR layout: conversion between bytes and numbers. This module opens no file and computes no checksum.

    offset         size   field
    0              4      uint32, CRC-32 of bytes 4 .. tables_end(n); 0 in old files that have none
    4              8      int64 n, number of samples
    12             4 * n  uint32 CRC-32 of each sample
    12 + 4 * n     8 * n  int64 offset of each sample in the file, ascending (equal after an empty one)
    tables_end(n)         nothing, or one extension block (below) that fills the gap to the first sample
    offset[0]             sample 0, sample 1, ... ; the last one ends at the end of the file

The extension block; integers little-endian, like all of the file:

    0              8      magic b"\\x89FFRext\\n"
    8              4      uint32, CRC-32 of bytes 12 .. 40 + payload size
    12             4      uint32 version = 1
    16             8      uint64 size of the block, all of the gap
    24             8      uint64 size of the payload
    32             8      uint64 size of the whole file
    40                    payload (see extension.py), then zeros to the end of the block

Original readers skip the gap. docs/format.md is the specification.
"""

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, describe_version, plural

PREFIX = struct.Struct("<Iq")
CRC = np.dtype("<u4")
OFFSET = np.dtype("<i8")
PER_SAMPLE = CRC.itemsize + OFFSET.itemsize
CHECKED_FROM = 4  # the header CRC covers the bytes after itself

BLOCK = struct.Struct("<8sIIQQQ")
BLOCK_MAGIC = b"\x89FFRext\n"
BLOCK_VERSION = 1
BLOCK_CHECKED_FROM = 12
PAYLOAD_MAX = 1 << 20  # bytes; a reader loads no more on opening, whatever size a file states
BLOCK_MAX = 64 << 20  # bytes of payload and reserved space; a reader scans no more on opening

SUFFIX = ".ffr"

HEAD_SIZE = 23  # first bytes of a file that tell what else it is
HINT_SIZE = 64  # first bytes of anything that tell whether something came in its place
TEXT = frozenset(b"\t\n\r" + bytes(range(32, 127)))
HTML = "; it is an HTML page, so the download failed: download it again"
LFS_POINTER = (b"version https://git-lfs", "; it is a Git LFS pointer: run `git lfs pull`")
PLACEHOLDERS = (  # beginnings of files that came in place of the data, in lower case
    LFS_POINTER,
    (b"<!doctype html", HTML),
    (b"<html", HTML),
)
OTHERS = (  # beginnings of these and of other formats, in lower case
    *PLACEHOLDERS,
    (b"\x1f\x8b\x08", "; it is compressed by gzip: run gunzip on it"),
    (b"pk\x03\x04", "; it is a zip file: unpack it, or name it .zip"),
    (b"par1", "; it is a Parquet file: name it .parquet, and use ffrecord.convert"),
)

Checksums = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


def tables_end(n: int) -> int:
    """Return the offset of the first byte after the tables of a file of n samples."""
    return PREFIX.size + n * PER_SAMPLE


def offsets_start(n: int) -> int:
    """Return the offset of the offset table of a file of n samples."""
    return PREFIX.size + n * CRC.itemsize


def unpack_prefix(data: bytes, file_size: int) -> tuple[int, int]:
    """Return (header CRC, number of samples) from the first bytes of a file.

    Args:
        data: the first HEAD_SIZE bytes, or all bytes of a shorter file.
        file_size: size of the whole file, bytes.

    Raises:
        FormatError: the file is too short, or the tables of that many samples do not fit in it.
    """
    if len(data) < PREFIX.size:
        raise FormatError(
            f"it is unfinished, or not a .ffr file: it has {len(data)} bytes, expected at least {PREFIX.size}"
        )
    crc, n = PREFIX.unpack_from(data)
    # n was not checked by a checksum yet, so compare it before anything is allocated by it; by division, which cannot
    # overflow.
    if not 0 <= n <= (file_size - PREFIX.size) // PER_SAMPLE:
        other = describe_other(data)
        raise FormatError(f"it is not {other}" if other else f"{n} samples do not fit in {file_size} bytes")
    if n == 0 and crc == 0 and file_size > PREFIX.size:
        raise FormatError(f"it is unfinished: its {file_size} bytes have no samples and no checksum")
    return crc, n


def describe_other(data: bytes) -> str:
    """Return how the first bytes of a file show that it is no `.ffr` file, for messages; "" if they do not.

    Ask only about a file whose numbers are impossible: those of a valid one may begin like anything.

    Args:
        data: the first HEAD_SIZE bytes, or all bytes of a shorter file.
    """
    start = data[:HEAD_SIZE]
    hint = hint_of(start, OTHERS)
    if not hint and not all(byte in TEXT for byte in start):
        return ""
    return f"an .ffr file: it begins with {start!r}{hint}"


def hint_of(data: bytes | bytearray | memoryview, beginnings: Iterable[tuple[bytes, str]] = PLACEHOLDERS) -> str:
    """Return advice about a file that begins with `data`: "", or text that begins with "; ".

    Args:
        data: the first HINT_SIZE bytes are looked at, if it has more.
        beginnings: beginnings to look for, and the advice for each.
    """
    low = bytes(data[:HINT_SIZE]).lstrip().lower()
    return next((hint for begins, hint in beginnings if low.startswith(begins)), "")


def check_first_offset(offset: int, n: int, file_size: int) -> None:
    """Raise FormatError if sample 0 of n cannot start at `offset`."""
    if not tables_end(n) <= offset <= file_size:
        raise FormatError(f"sample 0 is at offset {offset}, expected {tables_end(n)} <= offset <= {file_size}")


def check_offsets(offsets: Offsets, file_size: int) -> None:
    """Raise FormatError unless `offsets` [n] ascend and end inside the file."""
    if len(offsets) == 0:
        return
    check_first_offset(int(offsets[0]), len(offsets), file_size)
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(falls):
        i = int(falls[0]) + 1
        raise FormatError(f"sample {i} is at offset {offsets[i]}, before sample {i - 1} at {offsets[i - 1]}")
    if offsets[-1] > file_size:
        raise FormatError(f"sample {len(offsets) - 1} is at offset {offsets[-1]}, but the file has {file_size} bytes")


def pack_tables(checksums: Checksums, offsets: Offsets) -> tuple[bytearray, memoryview, memoryview]:
    """Pack everything before the gap into three parts. The header CRC in the first part is 0; set it with `PREFIX`.

    Args:
        checksums: [n] CRC-32 of each sample.
        offsets: [n] offset of each sample in the file, bytes.

    Returns:
        Prefix, checksums and offsets, as bytes. The tables are views of the arguments if those have the right layout.
    """
    prefix = bytearray(PREFIX.size)
    PREFIX.pack_into(prefix, 0, 0, len(checksums))
    return prefix, _bytes_of(checksums, CRC), _bytes_of(offsets, OFFSET)


def _bytes_of(values: Checksums | Offsets, kind: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(values, kind).view(np.uint8).data


class BlockHeader(NamedTuple):
    """Fixed part of an extension block; sizes in bytes."""

    crc: int
    block_size: int
    payload_size: int
    file_size: int


def pack_block_header(header: BlockHeader) -> bytes:
    """Return the 40 bytes at the start of an extension block."""
    return BLOCK.pack(BLOCK_MAGIC, header.crc, BLOCK_VERSION, header.block_size, header.payload_size, header.file_size)


def unpack_block_header(data: bytes, gap: int, file_size: int) -> BlockHeader:
    """Return the header of the extension block that must fill a gap.

    Args:
        data: the first 40 bytes of the gap, or all bytes of a shorter one.
        gap: size of the gap, bytes, > 0.
        file_size: actual size of the file, bytes.

    Raises:
        FormatError: there is no such block, its version is unknown, or its sizes contradict the file.
    """
    if len(data) < BLOCK.size or data[: len(BLOCK_MAGIC)] != BLOCK_MAGIC:
        raise FormatError(f"the {gap} bytes between the tables and the first sample are not an extension block")
    _, crc, version, block_size, payload_size, stored_size = BLOCK.unpack_from(data)
    if version != BLOCK_VERSION:
        raise FormatError(describe_version("the extension block", version, BLOCK_VERSION))
    if block_size != gap:
        raise FormatError(f"the extension block has {block_size} bytes, expected {gap}")
    if block_size > BLOCK_MAX:
        raise FormatError(f"the extension block has {block_size} bytes, expected at most {BLOCK_MAX}")
    if payload_size > min(block_size - BLOCK.size, PAYLOAD_MAX):
        raise FormatError(f"the extension block of {block_size} bytes has a payload of {payload_size}")
    if stored_size != file_size:
        if file_size < stored_size:
            raise FormatError(f"the file was cut: it has {file_size} of {stored_size} bytes; copy it again")
        more = plural(file_size - stored_size, "byte")
        raise FormatError(f"the file has {more} more than the {stored_size} that were written; copy it again")
    return BlockHeader(crc, block_size, payload_size, stored_size)

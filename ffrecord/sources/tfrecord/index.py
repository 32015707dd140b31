"""Indexes of TFRecord files: their records, and the end of each file."""

import logging
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32c, mask
from ffrecord.errors import (
    DAMAGE,
    ArgumentError,
    ChecksumError,
    FormatError,
    TruncatedError,
    add_file_to_errors,
    file_error,
)
from ffrecord.sources.files import add_hint_to_errors, placeholder_hint
from ffrecord.sources.index_file import IndexCache, cached_index, check_columns
from ffrecord.sources.inflated import STATE_SIZE, Inflated
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.system.resources import available_memory
from ffrecord.system.threads import map_in_threads

COMPRESSIONS = (None, "none", "gzip", "zlib")
VERSION = "tfrecord-1"  # version of the arrays in an index
ROW_SIZE = 20  # bytes of the tables for each record
EXPANSION = 1032  # highest ratio of DEFLATE
THREADS = 8  # files scanned at once
PLACES_SIZE = 16 << 20  # bytes of saved places, where decompression can begin, for all files of a reader

# Kinds of ends of a file, in addition to those of a chain.
CUT_STREAM = 10
DAMAGED = 11
ENDINGS = 7  # numbers in the array "ending"

logger = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class TornRecord:
    """The first bad record of a file, behind the last good one.

    Attributes:
        record: its number in the file.
        offset: its offset, bytes; in the decompressed bytes if the file is compressed.
        reason: the reason, in words.
    """

    record: int
    offset: int
    reason: str
    error: type[Exception]
    stored: int | None = None
    computed: int | None = None

    def as_error(self, path: str, remedy: str = "") -> Exception:
        """Return it as an exception; `remedy` is added to the message."""
        message = f"{path}: record {self.record} at offset {self.offset}: {self.reason}{remedy}"
        if self.error is ChecksumError:
            return ChecksumError(message, path=path, stored=self.stored, computed=self.computed)
        return self.error(message)


@dataclass(frozen=True)
class TFRecordIndex:
    """The records of one file.

    Attributes:
        path, status: path and status of the file.
        compression: "gzip", "zlib", or None for none.
        offsets, sizes: int64 [n], bytes; in the decompressed bytes if the file is compressed.
        checksums: uint32 [n], CRC-32C.
        end: bytes of the file, or of its decompressed content as far as it could be read.
        torn: the torn record behind the last record, or None.
        stream: its decompressed bytes, or None.
    """

    path: str
    status: os.stat_result
    compression: str | None
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]
    end: int
    torn: TornRecord | None
    stream: Inflated | None


def read_indexes(
    paths: Sequence[str], check: bool, index_cache: IndexCache, compression: str | None
) -> list[TFRecordIndex]:
    """Return an index for each file; several files are scanned at once.

    Args:
        check: compare lengths with their checksums.
        index_cache: see `index_file.cached_index`.
        compression: None to find it out from the first bytes, else "none", "gzip" or "zlib".

    Raises:
        OSError: a file cannot be read.
        FormatError: it is not a TFRecord; or its index needs more memory than there is.
        ValueError: `compression` is unknown.
    """
    check_compression(compression)
    places = PLACES_SIZE // STATE_SIZE // len(paths)

    def read(path: str) -> TFRecordIndex:
        with add_hint_to_errors(path):
            return read_index(path, check, index_cache, compression, places)

    return map_in_threads(read, paths, min(os.cpu_count() or 1, THREADS))


def check_compression(compression: str | None) -> None:
    """Raise ValueError unless it is the name of a compression, "none", or None."""
    if compression not in COMPRESSIONS:
        raise ArgumentError(f"compression is {compression!r}, expected None, 'none', 'gzip' or 'zlib'")


def read_index(path: str, check: bool, index_cache: IndexCache, compression: str | None, places: int) -> TFRecordIndex:
    """Return the index of one file. For `places` see `places_most` of `Inflated`."""
    status = os.stat(path)
    told = compression_of(path) if compression is None else compression
    packed = None if told == "none" else told
    stream = Inflated(path, packed, status, places) if packed else None
    build = (lambda: _of_file(path, check)) if stream is None else (lambda: _of_stream(stream, check))
    # An index whose lengths were not compared must not serve a reader that compares.
    format = "-".join([VERSION, packed or "plain", *([] if check else ["unchecked"])])
    most = status.st_size * (EXPANSION if packed else 1)
    try:
        found: dict[str, Any] = cached_index(path, format, build, index_cache, lambda arrays: _check_kept(arrays, most))
    # A reader may have thousands of files: none stays open until it is needed.
    finally:
        if stream is not None:
            stream.release()
    torn = torn_of(path, len(found["sizes"]), found["ending"].tolist(), packed)
    end = int(found["ending"][1])
    # A kept index also knows the end, though nothing was decompressed now.
    if stream is not None:
        stream.end = end
    return TFRecordIndex(path, status, packed, found["offsets"], found["sizes"], found["checksums"], end, torn, stream)


def compression_of(path: str) -> str:
    """Find the compression of a file from its first bytes.

    It is "none" if they are a length with its checksum, whatever else they look like.
    """
    with add_file_to_errors("reading its beginning", path), open(path, "rb") as file:
        head = file.read(_tfrecord.HEADER)
    if len(head) == _tfrecord.HEADER and mask(crc32c(head[:8])) == int.from_bytes(head[8:], "little"):
        return "none"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    # RFC 1950: method 8, a window of up to 32 KiB, and a multiple of 31.
    # Two bytes say little, so the data must also decompress.
    if len(head) >= 2 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 and _inflates(head):
        return "zlib"
    return "none"


def _inflates(head: bytes) -> bool:
    try:
        zlib.decompressobj().decompress(head)
    except zlib.error:
        return False
    return True


# One pass over a file


def _of_file(path: str, check: bool) -> dict[str, npt.NDArray[Any]]:
    with add_file_to_errors("looking for records", path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            chain = _tfrecord.Chain(check=check, size=size)
            errno = chain.follow_file(fd)
        finally:
            os.close(fd)
    if errno:
        raise file_error(errno, f"{path}: looking for records failed at offset {chain.at}", path, call="pread")
    return _arrays(chain, chain.ending, size, 0)


def _of_stream(stream: Inflated, check: bool) -> dict[str, npt.NDArray[Any]]:
    """Return the index of the decompressed bytes of a file."""
    # Half of it, since the tables double when they are full.
    room = available_memory() // 2
    chain = _tfrecord.Chain(check=check)
    end, damaged = 0, False
    try:
        for piece in stream.pieces():
            chain.feed(piece)
            end += len(piece)
            # A small compressed file may hold very many empty records.
            if chain.n * ROW_SIZE > room:
                raise MemoryError
            # No record can be found behind it.
            if chain.ending:
                break
    # What comes before the damage can be read.
    except FormatError:
        damaged = True
    except MemoryError:
        raise FormatError(
            f"{stream.path}: the first {end} decompressed bytes have {chain.n} records, whose index needs "
            f"{ROW_SIZE * chain.n} bytes, but {2 * room} bytes of memory are free; unpack the file, or free memory"
        ) from None
    # `finish` adds that a record is cut: damage of the stream, or a bad length before it, tells more.
    broken = chain.ending
    chain.finish()
    ending = broken or (DAMAGED if damaged else CUT_STREAM if stream.torn else chain.ending)
    return _arrays(chain, ending, end, stream.source)


def _arrays(chain: _tfrecord.Chain, ending: int, end: int, source: int) -> dict[str, npt.NDArray[Any]]:
    offsets, sizes, checksums = chain.tables()
    numbers = [ending, end, chain.at, chain.length, chain.stored, chain.computed, source]
    return {"offsets": offsets, "sizes": sizes, "checksums": checksums, "ending": np.array(numbers, np.uint64)}


# The end of a file


def _check_kept(arrays: dict[str, npt.NDArray[Any]], most: int) -> None:
    """Raise unless these may be arrays of `_arrays`, for a file with at most `most` bytes of content."""
    check_columns(arrays, offsets=np.int64, sizes=np.int64, checksums=np.uint32)
    rows, end = check_columns(arrays, ending=np.uint64), int(arrays["ending"][1])
    if rows != ENDINGS or end > most:
        raise FormatError(f"its records end at {end}, but the file gives at most {most} bytes")
    offsets, sizes = arrays["offsets"], arrays["sizes"]
    if not ((offsets >= 0) & (offsets <= end) & (sizes >= 0) & (sizes <= end - offsets)).all():
        raise FormatError(f"its records do not lie within {end} bytes")


def refuse_or_log(path: str, torn: TornRecord, skip: bool) -> Exception | None:
    """Return the error to raise for a torn record. With `skip`, log it and return None."""
    # A file that does not even begin like a TFRecord must not pass for an empty one.
    if torn.record == 0 and (torn.error is FormatError or placeholder_hint(path)):
        return torn.as_error(path)
    if not skip:
        return torn.as_error(path, "; pass on_torn='skip' to read everything before it")
    logger.warning("left out, with all records after it: %s", torn.as_error(path), extra=DAMAGE)
    return None


def torn_of(path: str, n: int, ending: list[int], compression: str | None) -> TornRecord | None:
    """Return the torn record that the array "ending" of `_arrays` describes; None if the file ends well.

    Args:
        n: number of records before it.
        ending: [kind, end, at, length, stored, computed, source]: kind of the end; number of bytes; offset of the bad
            record; length in its header; stored and actual checksum of that; bytes used of the compressed file.
    """
    kind, end, at, length, stored, computed, source = ending
    if kind == _tfrecord.END:
        return None
    if kind == DAMAGED:
        return TornRecord(n, at, f"the {compression} data are damaged at offset {source} of the file", FormatError)
    if kind == CUT_STREAM:
        return TornRecord(
            n, at, f"the {compression} data end too early, at offset {source} of the file", TruncatedError
        )
    if kind == _tfrecord.WRONG:
        reason = f"CRC-32C {computed:#010x} of its length {length}, stored {stored:#010x}"
        if n == 0:
            return TornRecord(n, at, f"{reason}: not a TFRecord file, or damaged at its start", FormatError)
        return TornRecord(n, at, f"{reason}; the next record cannot be found", ChecksumError, stored, computed)
    if kind == _tfrecord.TORN:
        return TornRecord(
            n, at, f"{end - at} bytes are left, but a length and its checksum have {_tfrecord.HEADER}", TruncatedError
        )
    needed = length + _tfrecord.HEADER + _tfrecord.FOOTER
    return TornRecord(
        n, at, f"it has {length} bytes, {needed} with length and checksums, but {end - at} are left", TruncatedError
    )

"""Which records TFRecord files hold, and how each of them ends."""

import logging
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32c, mask
from ffrecord.errors import ArgumentError, ChecksumError, FormatError, TruncatedError, add_file_to_errors, file_error
from ffrecord.sources.files import each_of
from ffrecord.sources.index_file import IndexCache, cached, check_columns
from ffrecord.sources.inflated import STATE_SIZE, Inflated
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.system.resources import available_memory

COMPRESSIONS = (None, "none", "gzip", "zlib")
VERSION = "tfrecord-1"  # of what `_build` gives
ROW_SIZE = 20  # bytes of the tables for each record
EXPANSION = 1032  # of DEFLATE, at most
THREADS = 8  # files looked through at once
PLACES_SIZE = 16 << 20  # bytes that all files of a reader may take to be decompressed from places inside

# Ends of a file besides those of a chain.
CUT_STREAM = 10
DAMAGED = 11
ENDINGS = 7  # numbers of an end that `_arrays` keeps

logger = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class TornRecord:
    """What a file holds behind its last good record.

    Attributes:
        record: number of the first one that is not there, in its file.
        offset: where it begins, bytes; in what the file decompresses to, if it is compressed.
        reason: why it is not, in words.
    """

    record: int
    offset: int
    reason: str
    error: type[Exception]
    stored: int | None = None
    computed: int | None = None

    def as_error(self, path: str, remedy: str = "") -> Exception:
        """The same, as it is raised; `remedy` is added to the message."""
        message = f"{path}: record {self.record} at offset {self.offset}: {self.reason}{remedy}"
        if self.error is ChecksumError:
            return ChecksumError(message, path=path, stored=self.stored, computed=self.computed)
        return self.error(message)


@dataclass(frozen=True)
class TFRecordIndex:
    """The records of one file.

    Attributes:
        path, status: of the file.
        compression: "gzip", "zlib", or None for none.
        offsets, sizes: int64 [n], bytes; in what the file decompresses to, if it is compressed.
        checksums: uint32 [n], CRC-32C.
        end: bytes that the file has, or decompresses to as far as it could be.
        torn: what is behind the last record, or None.
        stream: what decompresses it, or None.
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
    """One for each file, several files at a time.

    Args:
        check: compare lengths with their checksums.
        index_cache: as for `index_file.cached`.
        compression: None to see by the first bytes, else "none", "gzip" or "zlib".

    Raises:
        OSError: a file cannot be read.
        FormatError: it is no TFRecord; its index needs more memory than there is.
        ValueError: `compression`.
    """
    check_compression(compression)
    places = PLACES_SIZE // STATE_SIZE // len(paths)

    def read(path: str) -> TFRecordIndex:
        return read_index(path, check, index_cache, compression, places)

    return each_of(read, paths, min(os.cpu_count() or 1, THREADS))


def check_compression(compression: str | None) -> None:
    """Raise ValueError unless it is a way in which files are compressed, or None."""
    if compression not in COMPRESSIONS:
        raise ArgumentError(f"compression is {compression!r}, expected None, 'none', 'gzip' or 'zlib'")


def read_index(path: str, check: bool, index_cache: IndexCache, compression: str | None, places: int) -> TFRecordIndex:
    """That of one file; places: as for `Inflated`."""
    status = os.stat(path)
    told = compression_of(path) if compression is None else compression
    packed = None if told == "none" else told
    stream = Inflated(path, packed, status, places) if packed else None
    build = (lambda: _of_file(path, check)) if stream is None else (lambda: _of_stream(stream, check))
    format = "-".join([VERSION, packed or "plain", *([] if check else ["unchecked"])])
    most = status.st_size * (EXPANSION if packed else 1)
    try:
        found: dict[str, Any] = cached(path, format, build, index_cache, lambda arrays: _check_kept(arrays, most))
    finally:
        if stream is not None:
            stream.release()
    torn = torn_of(path, len(found["sizes"]), found["ending"].tolist(), packed)
    end = int(found["ending"][1])
    if stream is not None:
        stream.end = end
    return TFRecordIndex(path, status, packed, found["offsets"], found["sizes"], found["checksums"], end, torn, stream)


def compression_of(path: str) -> str:
    """As the first bytes say: "none" if they are a length with its checksum, whatever else they look like."""
    with add_file_to_errors("reading its beginning", path), open(path, "rb") as file:
        head = file.read(_tfrecord.HEADER)
    if len(head) == _tfrecord.HEADER and mask(crc32c(head[:8])) == int.from_bytes(head[8:], "little"):
        return "none"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    # RFC 1950: method 8, a window of up to 32 KiB, and a multiple of 31.
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
        raise file_error(errno, f"{path}: looking for records, at offset {chain.at}", path)
    return _arrays(chain, chain.ending, size, 0)


def _of_stream(stream: Inflated, check: bool) -> dict[str, npt.NDArray[Any]]:
    """The same of what a file decompresses to."""
    room = available_memory() // 2
    chain = _tfrecord.Chain(check=check)
    end, damaged = 0, False
    try:
        for piece in stream.pieces():
            chain.feed(piece)
            end += len(piece)
            if chain.n * ROW_SIZE > room:
                raise MemoryError
            if chain.ending:
                break
    except FormatError:
        damaged = True
    except MemoryError:
        raise FormatError(
            f"{stream.path}: {chain.n} records in the first {end} bytes it decompresses to: an index of "
            f"{ROW_SIZE * chain.n} bytes, where {2 * room} bytes of memory are free"
        ) from None
    broken = chain.ending
    chain.finish()
    ending = broken or (DAMAGED if damaged else CUT_STREAM if stream.torn else chain.ending)
    return _arrays(chain, ending, end, stream.source)


def _arrays(chain: _tfrecord.Chain, ending: int, end: int, source: int) -> dict[str, npt.NDArray[Any]]:
    offsets, sizes, checksums = chain.tables()
    numbers = [ending, end, chain.at, chain.length, chain.stored, chain.computed, source]
    return {"offsets": offsets, "sizes": sizes, "checksums": checksums, "ending": np.array(numbers, np.uint64)}


# Its end


def _check_kept(arrays: dict[str, npt.NDArray[Any]], most: int) -> None:
    """Raise unless these may be arrays of `_arrays`, of a file that gives `most` bytes or less."""
    check_columns(arrays, offsets=np.int64, sizes=np.int64, checksums=np.uint32)
    rows, end = check_columns(arrays, ending=np.uint64), int(arrays["ending"][1])
    if rows != ENDINGS or end > most:
        raise FormatError(f"an end at {end} of a file that gives at most {most} bytes")
    offsets, sizes = arrays["offsets"], arrays["sizes"]
    if not ((offsets >= 0) & (offsets <= end) & (sizes >= 0) & (sizes <= end - offsets)).all():
        raise FormatError(f"records that are not within {end} bytes")


def refused(path: str, torn: TornRecord, skip: bool) -> Exception | None:
    """What a file holds behind its last record, to be raised; or None, where it is left out, and told."""
    # What does not even begin as a TFRecord is not passed for an empty one.
    if torn.record == 0 and torn.error is FormatError:
        return torn.as_error(path)
    if not skip:
        return torn.as_error(path, "; on_torn='skip' reads everything before it")
    logger.warning("left out, with all behind it: %s", torn.as_error(path))
    return None


def torn_of(path: str, n: int, ending: list[int], compression: str | None) -> TornRecord | None:
    """What the numbers of `_arrays` say of the end.

    Args:
        n: records before it.
        ending: [kind, end, at, length, stored, computed, source]: how it ends; bytes that there are; where the record
            begins that is none; what its header says; bytes of the compressed file that were used.
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
            return TornRecord(n, at, f"{reason}: this is no TFRecord, or damaged at its start", FormatError)
        return TornRecord(n, at, f"{reason}; nobody knows where another one begins", ChecksumError, stored, computed)
    if kind == _tfrecord.TORN:
        return TornRecord(
            n, at, f"{end - at} bytes are left, a length and its checksum have {_tfrecord.HEADER}", TruncatedError
        )
    needed = length + _tfrecord.HEADER + _tfrecord.FOOTER
    return TornRecord(
        n, at, f"{length} bytes, {needed} with length and checksums, but {end - at} are left", TruncatedError
    )

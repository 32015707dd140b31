"""The chunks of a RecordIO file: their positions, their dialect, and a torn chunk at the end."""

import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32, crc32c
from ffrecord.errors import FormatError, TruncatedError, add_file_to_errors
from ffrecord.sources.files import add_hint_to_errors
from ffrecord.sources.index_file import IndexCache, cached_index, check_columns
from ffrecord.sources.recordio import _recordio
from ffrecord.sources.recordio.layout import (
    COMPRESSORS,
    DIALECTS,
    EXPANSION,
    HEADER,
    LENGTH,
    MAGIC_BYTES,
    SIZE_MOST,
    Dialect,
    Headers,
    Numbers,
    dialect_of,
)
from ffrecord.system.atomic_file import read_up_to

PIECE = 1 << 20  # bytes of a payload that are read and checked at once
COLUMNS = ("offsets", "sizes", "records", "compressors", "checksums")
TRIED = 8  # most chunks tried to find the dialect, and most places tried for a chunk behind damage
GAVE_UP = -1  # in place of an offset: more than TRIED places looked like chunks


class TornChunk(NamedTuple):
    """The rest of a chunk that its writer did not finish, at the end of a file.

    Attributes:
        chunk: its number in the file.
        offset: its start; everything before it is intact.
        size: bytes of it that are there, header included.
        expected: bytes that the complete chunk would have; 0 if its header does not say.
    """

    chunk: int
    offset: int
    size: int
    expected: int

    def __str__(self) -> str:
        if self.expected == 0:
            return f"{self.size} bytes that are not a chunk"
        return f"{self.size} of {self.expected} bytes"


class Chunks(NamedTuple):
    """The chunks of one file, each a number in every array.

    Attributes:
        dialect: dialect of the file.
        offsets: int64 [k], start of each payload.
        sizes: int64 [k], bytes of each payload.
        records: int64 [k], number of records in the header.
        compressors: int64 [k], places in `COMPRESSORS`.
        checksums: uint32 [k], checksum of each payload.
        torn: the torn chunk behind the last of them, or None.
    """

    dialect: Dialect
    offsets: Numbers
    sizes: Numbers
    records: Numbers
    compressors: Numbers
    checksums: npt.NDArray[np.uint32]
    torn: TornChunk | None

    @property
    def end(self) -> int:
        """Offset of the first byte behind the last chunk."""
        return int(self.offsets[-1] + self.sizes[-1]) if len(self.offsets) else 0

    def without_last(self) -> "Chunks":
        """Return the chunks with the last one as torn."""
        size = HEADER.size + int(self.sizes[-1])
        torn = TornChunk(len(self.offsets) - 1, int(self.offsets[-1]) - HEADER.size, size, size)
        columns: dict[str, Any] = {name: getattr(self, name)[:-1] for name in COLUMNS}
        return Chunks(self.dialect, **columns, torn=torn)


def find_chunks(path: str, dialect: str | None = None) -> Chunks:
    """Find the chunks of a file: read their headers, and a few payloads if the dialect is unknown.

    Args:
        dialect: "A", "B" or "C"; None to find it out from the file.

    Raises:
        OSError: the file cannot be read.
        FormatError: not a RecordIO file; or damaged other than by a torn end.
        ValueError: `dialect` is unknown.
    """
    with add_file_to_errors("looking for chunks", path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = os.fstat(fd).st_size
            found = _find_dialect(fd, path, end) if dialect is None else dialect_of(dialect)
            headers, offsets, stop = _recordio.hop(fd, end, found.size)
            _check_headers(path, found, headers, offsets)
            torn = _torn(fd, path, found, len(offsets), stop, end) if stop < end else None
        finally:
            os.close(fd)
    return Chunks(
        found,
        offsets + HEADER.size,
        headers[:, found.size].astype(np.int64),
        headers[:, found.records].astype(np.int64),
        found.compressors(headers),
        # A copy, so that the headers can be freed.
        np.ascontiguousarray(headers[:, found.checksum]),
        torn,
    )


def last_matches(path: str, chunks: Chunks) -> bool:
    """Tell whether the last chunk matches its checksum; True if there is none."""
    if not len(chunks.offsets):
        return True
    with add_file_to_errors("reading its last chunk", path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            computed = checksum_at(fd, chunks.dialect, int(chunks.offsets[-1]), int(chunks.sizes[-1]))
        finally:
            os.close(fd)
    return computed == int(chunks.checksums[-1])


# The kept index


def load_chunks(path: str, dialect: str | None = None, index_cache: IndexCache = None) -> Chunks:
    """Return the chunks of a file, see `find_chunks`; the index is kept at `index_cache`."""
    size = os.stat(path).st_size
    with add_hint_to_errors(path):
        kept = cached_index(
            path,
            f"recordio-{dialect or 'any'}-1",
            lambda: _arrays(find_chunks(path, dialect)),
            index_cache,
            lambda arrays: _check_kept(_chunks(arrays), size),
        )
    return _chunks(kept)


def _chunks(arrays: dict[str, Any]) -> Chunks:
    columns = {name: arrays[name] for name in COLUMNS}
    numbers = arrays["about"].tolist()
    return Chunks(DIALECTS[chr(numbers[0])], **columns, torn=TornChunk(*numbers[1:]) if len(numbers) > 1 else None)


def _check_kept(chunks: Chunks, size: int) -> None:
    """Raise ValueError unless these may be the chunks of a file of `size` bytes."""
    columns = {name: getattr(chunks, name) for name in COLUMNS}
    numbers = {"offsets": np.int64, "sizes": np.int64, "records": np.int64, "compressors": np.int64}
    check_columns(columns, **numbers, checksums=np.uint32)
    offsets, sizes, records, compressors, _ = columns.values()
    ends = offsets + sizes
    known = (compressors >= 0) & (compressors < len(COMPRESSORS))
    room = sizes * EXPANSION[np.where(known, compressors, 0)] // LENGTH.size
    fits = known & (sizes >= 0) & (sizes <= SIZE_MOST) & (records > 0) & (records <= room)
    # Each chunk begins where the one before ends.
    follows = offsets == np.concatenate([[0], ends])[:-1] + HEADER.size
    if not (fits & follows & (ends <= size)).all():
        raise FormatError(f"its chunks do not fit in a file of {size} bytes")


def _arrays(chunks: Chunks) -> dict[str, npt.NDArray[Any]]:
    about = [ord(chunks.dialect.name), *(chunks.torn or ())]
    return {**{name: getattr(chunks, name) for name in COLUMNS}, "about": np.array(about, np.int64)}


def _check_headers(path: str, dialect: Dialect, headers: Headers, offsets: Numbers) -> None:
    wrong = np.flatnonzero(~dialect.are_valid(headers))
    if len(wrong):
        chunk, words = int(wrong[0]), headers[wrong[0]].tolist()
        raise FormatError(
            f"{path}: chunk {chunk} at offset {offsets[chunk]}: its header says {words[dialect.records]} records, "
            f"{words[dialect.size]} bytes and compressor {words[dialect.compressor]}, which is impossible in dialect "
            f"{dialect.name}"
        )


# The end of a file


def _torn(fd: int, path: str, dialect: Dialect, chunk: int, stop: int, end: int) -> TornChunk:
    """Return the torn chunk behind the last chunk.

    Raises:
        FormatError: it is not the rest of an unfinished write (a part of one chunk, or zeros), or that cannot be told.
    """
    head = read_up_to(fd, HEADER.size, stop)
    expected = 0
    if len(head) == HEADER.size and head.startswith(MAGIC_BYTES):
        # No checksum covers the size word. If it is damaged, everything behind it would pass for one torn chunk: look
        # for further chunks.
        after = _chunk_after(fd, dialect, stop + len(MAGIC_BYTES), end)
        expected = HEADER.size + HEADER.unpack(head)[dialect.size]
        if after is not None:
            others = f"another chunk begins at offset {after}"
            if after == GAVE_UP:
                others = f"{TRIED} places after it look like another chunk, but do not match its checksum"
            raise FormatError(
                f"{path}: chunk {chunk} at offset {stop}: it has {expected} bytes, but {end - stop} are left, and "
                f"{others}"
            )
    # The file ends inside a header.
    elif head.startswith(MAGIC_BYTES) or MAGIC_BYTES.startswith(head):
        expected = HEADER.size
    elif not _only_zeros(fd, stop, end):
        raise FormatError(
            f"{path}: chunk {chunk} at offset {stop}: it begins with {head[:4].hex()}, expected {MAGIC_BYTES.hex()}; "
            f"{end - stop} bytes follow"
        )
    return TornChunk(chunk, stop, end - stop, expected)


def _chunk_after(fd: int, dialect: Dialect, start: int, end: int) -> int | None:
    """Return the start of the first whole chunk from `start` on; None if there is none.

    GAVE_UP means that none of the first TRIED candidates is one. Checking a candidate takes time proportional to its
    size. Without the limit, a crafted file could take forever.
    """
    tried = 0
    for offset in range(start, end, PIECE):
        # So much more that a header may reach over the end of the piece.
        piece = read_up_to(fd, PIECE + HEADER.size - 1, offset)
        at = piece.find(MAGIC_BYTES)
        while 0 <= at < PIECE:
            words = np.frombuffer(piece, "<u4", 5, at)[None] if at + HEADER.size <= len(piece) else None
            if words is not None and dialect.are_valid(words)[0]:
                if _payload_matches(fd, dialect, words, offset + at, end):
                    return offset + at
                tried += 1
                if tried == TRIED:
                    return GAVE_UP
            at = piece.find(MAGIC_BYTES, at + 1)
    return None


def _only_zeros(fd: int, start: int, end: int) -> bool:
    """Tell whether there are only zeros. After a crash, some file systems leave them at the end of a file."""
    pieces = (read_up_to(fd, min(PIECE, end - offset), offset) for offset in range(start, end, PIECE))
    return all(piece.count(0) == len(piece) for piece in pieces)


def torn_error(
    path: str, torn: TornChunk, remedy: str = "pass on_torn='skip' to read everything before it"
) -> TruncatedError:
    """Return the error for a file with a torn last chunk that may not be skipped."""
    return TruncatedError(
        f"{path}: chunk {torn.chunk} at offset {torn.offset}: {torn}: its writer did not finish it; {remedy}"
    )


# Dialects


def _find_dialect(fd: int, path: str, end: int) -> Dialect:
    """Find the dialect of a file from its first chunk; if that is damaged, from the chunks behind it."""
    head = read_up_to(fd, HEADER.size, 0)
    if len(head) < HEADER.size:
        if not (head + MAGIC_BYTES[len(head) :]).startswith(MAGIC_BYTES):
            raise FormatError(
                f"{path} is not a RecordIO file: it begins with {head[:4].hex()}, expected {MAGIC_BYTES.hex()}"
            )
        return DIALECTS["B"]  # empty, or the start of a first chunk, which is the same in all dialects
    if not head.startswith(MAGIC_BYTES):
        raise FormatError(
            f"{path} is not a RecordIO file: it begins with {head[:4].hex()}, expected {MAGIC_BYTES.hex()}"
        )
    first = np.frombuffer(head, "<u4")[None]
    likely = [each for each in DIALECTS.values() if each.are_valid(first)[0]]
    for dialect in likely:
        if _payload_matches(fd, dialect, first, 0, end):
            return dialect
    return _dialect_of_others(fd, path, end)


def _dialect_of_others(fd: int, path: str, end: int) -> Dialect:
    """Find the dialect of a file whose first chunk is damaged.

    A chunk that matches its checksum tells it; else the one dialect whose headers lead to the end of the file.
    """
    hops = {name: _recordio.hop(fd, end, dialect.size) for name, dialect in DIALECTS.items()}
    for name, (headers, offsets, _) in hops.items():
        # The first chunk was tried before.
        for i in range(1, min(len(offsets), TRIED)):
            if _payload_matches(fd, DIALECTS[name], headers[i : i + 1], int(offsets[i]), end):
                return DIALECTS[name]
    whole = [
        name for name, (headers, _, stop) in hops.items() if stop == end and DIALECTS[name].are_valid(headers).all()
    ]
    if len(whole) == 1:
        return DIALECTS[whole[0]]
    for dialect in DIALECTS.values():
        if _chunk_after(fd, dialect, len(MAGIC_BYTES), end) not in (None, GAVE_UP):
            return dialect
    torn = [name for name, (_, offsets, _) in hops.items() if len(offsets) == 0]
    if torn and not whole:
        return DIALECTS[torn[0]]  # one chunk, cut short: no dialect can read it
    raise FormatError(f"{path}: no chunk matches its checksum in any dialect; pass dialect= if you know it")


def _payload_matches(fd: int, dialect: Dialect, header: Headers, offset: int, end: int) -> bool:
    """Tell whether a chunk is complete, and its payload matches its checksum."""
    start, size = offset + HEADER.size, int(header[0, dialect.size])
    # The size first: a damaged one may be 4 GiB.
    return size <= end - start and checksum_at(fd, dialect, start, size) == header[0, dialect.checksum]


def checksum_at(fd: int, dialect: Dialect, offset: int, size: int) -> int:
    """Return the checksum of `size` bytes of a file, or of as many as are there."""
    update, value = (crc32c if dialect.checksum_kind == "crc32c" else crc32), 0
    for start in range(offset, offset + size, PIECE):
        value = update(read_up_to(fd, min(PIECE, offset + size - start), start), value)
    return value

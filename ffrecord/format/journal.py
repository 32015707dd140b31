r"""Journal beside a part file: at each flush the writer records its samples, so that they survive a killed writer.

    offset    size   field, integers little-endian
    0         8      magic b"\x89FFRjrn\n"
    8         4      uint32, CRC-32 of the rest of the header
    12        4      uint32 version = 1
    16        8      int64 offset of the first sample in the part file
    24        8      int64 number of samples that the writer was created for, -1 if unknown
    32        4      uint32 size of the name
    36        4      uint32 size of the extension payload, 2**32 - 1 for no extension block
    40               name of the target, without its directory; the payload

then entries; each is appended by one write, and durable before the next:

    0         4      uint32, CRC-32 of the rest of the entry
    4         4      uint32 kind: 1 samples, 2 place
    8         8      int64 number of samples that follow; or the offset to which the first sample will be moved
    16               kind 1: int64 [number] sizes, uint32 [number] CRC-32

A crash can damage only the last entry. Readers stop at a damaged entry: the flush that wrote it had not returned.
"""

import contextlib
import io
import os
import struct
from typing import NamedTuple

import numpy as np

from ffrecord._crc import crc32
from ffrecord.errors import FormatError, describe_version
from ffrecord.format import ffr_layout
from ffrecord.system import named_calls, untrusted
from ffrecord.system.atomic_file import PART_SUFFIX, fsync_directory, write_all
from ffrecord.system.untrusted import Refused

SUFFIX = ".journal"
MAGIC = b"\x89FFRjrn\n"
VERSION = 1
HEADER = struct.Struct("<8sIIqqII")
ENTRY = struct.Struct("<IIq")
CHECKED_FROM = 12  # start of the checked bytes in the header; in an entry it is 4
NO_PAYLOAD = 2**32 - 1
SAMPLES, PLACE = 1, 2

Sizes = ffr_layout.Offsets


def journal_name(part: str) -> str:
    """Return the path of the journal of a part file."""
    return part.removesuffix(PART_SUFFIX) + SUFFIX


class JournalHeader(NamedTuple):
    """Parameters of the writer."""

    name: str  # name of the target, without its directory
    start: int  # offset of the first sample in the part file
    n: int | None
    payload: bytes | None  # payload of the extension block


class Journal:
    """Journal of one part file. It is created at the first entry.

    Args:
        part: path of the part file.
        size: valid bytes of an existing journal; 0 for none.
    """

    def __init__(self, part: str, size: int = 0) -> None:
        self._path = journal_name(part)
        self._end = size
        self._file: io.FileIO | None = None
        self.begun = size > 0
        self.count = 0

    def note_samples(self, about: JournalHeader, sizes: Sizes, checksums: ffr_layout.Checksums) -> None:
        """Record further samples, which are durable already.

        Raises:
            OSError: a call failed; the journal must then be given up.
        """
        body = sizes.astype("<i8").tobytes() + checksums.astype("<u4").tobytes()
        self._append(about, _entry(SAMPLES, len(sizes), body))
        self.count += len(sizes)

    def note_place(self, start: int) -> None:
        """Record the offset to which the first sample is about to be moved. From now on it may be at either place."""
        self._append(None, _entry(PLACE, start))

    def _append(self, about: JournalHeader | None, entry: bytes) -> None:
        first = not self.begun
        if first and about is not None:
            self.begun = True
            entry = _header(about) + entry
        if self._file is None:
            self._file = io.FileIO(self._path, "x") if first else io.FileIO(self._path, "r+", opener=_open_left)
        write_all(self._file.fileno(), memoryview(entry), self._end)
        self._end += len(entry)
        named_calls.fsync(self._file.fileno())
        if first:
            fsync_directory(os.path.dirname(self._path))

    def close(self) -> None:
        """Close the file. You may call it again. All data is on the disk, so the error of a failed close is ignored."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def remove(self) -> None:
        """Remove the journal from the disk, if it exists. You may call it again."""
        self.close()
        if self.begun:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def _entry(kind: int, number: int, body: bytes = b"") -> bytes:
    checked = ENTRY.pack(0, kind, number)[4:] + body
    return struct.pack("<I", crc32(checked)) + checked


def _header(about: JournalHeader) -> bytes:
    name, payload = os.fsencode(about.name), about.payload or b""
    payload_size = NO_PAYLOAD if about.payload is None else len(payload)
    n = -1 if about.n is None else about.n
    fixed = HEADER.pack(MAGIC, 0, VERSION, about.start, n, len(name), payload_size)
    checked = fixed[CHECKED_FROM:] + name + payload
    return MAGIC + struct.pack("<I", crc32(checked)) + checked


class JournalContent(NamedTuple):
    """Content of a journal."""

    about: JournalHeader
    sizes: Sizes  # [number of flushed samples]
    checksums: ffr_layout.Checksums
    starts: list[int]  # possible offsets of the first sample, latest last
    size: int  # size of the valid part of the journal, bytes


def read(part: str) -> JournalContent:
    """Read the valid part of the journal of a part file.

    Raises:
        OSError: it cannot be read, for instance because there is none.
        FormatError: it is no journal of this user, or is cut inside its header. In that case no flush had returned.
    """
    path = journal_name(part)
    try:
        with untrusted.enter_parent(path) as (directory, name):
            data = untrusted.read_file(name, None, directory=directory, owner=untrusted.user_of(name, directory))
    except Refused as error:
        raise FormatError(f"{path} is not a journal: {error.strerror}") from None
    about, at = _read_header(data, path)
    sizes, checksums, starts = [], [], [about.start]
    while entry := _read_entry(data, at):
        kind, number, body = entry
        if kind == PLACE:
            starts.append(number)
        else:
            sizes.append(np.frombuffer(body, "<i8", number))
            checksums.append(np.frombuffer(body, "<u4", number, 8 * number))
        at += ENTRY.size + len(body)
    none = np.zeros(0, np.int64)
    joined = np.concatenate([none, *sizes]), np.concatenate([none.astype(np.uint32), *checksums])
    return JournalContent(about, joined[0].astype(np.int64), joined[1].astype(np.uint32), starts, at)


def _open_left(path: str, flags: int) -> int:
    """Open an existing journal, if it can be from a writer of this user."""
    with untrusted.enter_parent(path) as (directory, name):
        return untrusted.open_file(name, flags, directory=directory, owner=untrusted.user_of(name, directory))


def _read_header(data: bytes, path: str) -> tuple[JournalHeader, int]:
    """Return the parameters of the writer, and the offset of the first entry."""
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise FormatError(f"{path} is not a journal: it has {len(data)} bytes and begins with {data[: len(MAGIC)]!r}")
    _, crc, version, start, n, name_size, payload_size = HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"{path}: {describe_version('the journal', version, VERSION)}")
    name_end = HEADER.size + name_size
    end = name_end + (0 if payload_size == NO_PAYLOAD else payload_size)
    if end > len(data) or crc32(data[CHECKED_FROM:end]) != crc:
        raise FormatError(f"{path}: the header of the journal is cut or damaged")
    payload = None if payload_size == NO_PAYLOAD else data[name_end:end]
    name = os.fsdecode(data[HEADER.size : name_end])
    return JournalHeader(name, start, None if n < 0 else n, payload), end


def _read_entry(data: bytes, at: int) -> tuple[int, int, bytes] | None:
    """Return kind, number and body of the entry at `at`; None if it is cut, damaged or missing."""
    if at + ENTRY.size > len(data):
        return None
    crc, kind, number = ENTRY.unpack_from(data, at)
    start = at + ENTRY.size
    size = 0 if kind == PLACE else ffr_layout.PER_SAMPLE
    if kind not in (SAMPLES, PLACE) or (size and not 0 <= number <= (len(data) - start) // size):
        return None
    end = start + number * size
    return (kind, number, data[start:end]) if crc32(data[at + 4 : end]) == crc else None

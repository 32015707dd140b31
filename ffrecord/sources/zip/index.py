"""The index of a zip archive: its directory, which its end tells, and local headers, as arrays.

    end record         22 B and the comment: signature, disk u16, directory's disk u16, entries here u16, entries u16,
                       directory size u32, directory offset u32, comment length u16
    ZIP64 locator      20 B, right before it: signature, disk u32, offset of the ZIP64 end u64, disks u32
    ZIP64 end record   56 B or more: signature, own size - 12 u64, made by u16, needed u16, disk u32, directory's disk
                       u32, entries here u64, entries u64, directory size u64, directory offset u64

PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.14 to 4.3.16.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ChecksumError, FormatError, TruncatedError, name_memory_error
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.sources.files import add_hint_to_errors
from ffrecord.sources.index_file import IndexCache, cached_index
from ffrecord.sources.names import Names, check_members, concatenate_names
from ffrecord.sources.zip import _zip
from ffrecord.sources.zip.codecs import ENCRYPTED, STORED, check_ratio, inflate, refusal
from ffrecord.system.atomic_file import read_into, read_up_to

END = struct.Struct("<4sHHHHIIH")
END_MAGIC = b"PK\5\6"
LOCATOR = struct.Struct("<4sIQI")
LOCATOR_MAGIC = b"PK\6\7"
END64 = struct.Struct("<4sQHHIIQQQQ")
END64_MAGIC = b"PK\6\6"
MEMBER_MAGIC = b"PK\3\4"
ENTRY_MAGIC = b"PK\1\2"
ENTRY_SIZE = 46
COMMENT_MOST = 0xFFFF
PADDING = b"\0\t\n\r\x1a "  # bytes that mail, terminals and tapes put behind a file


@dataclass(frozen=True)
class EndRecord:
    """The place of the directory.

    Attributes:
        offset: offset of its first entry in the file, bytes.
        size: its size, bytes.
        entries: number of entries; modulo 65536 if `exact` is false, as old programs wrote it.
        exact: whether the number is from a ZIP64 record.
        base: bytes before the archive; the offsets in the archive count from there.
    """

    offset: int
    size: int
    entries: int
    exact: bool
    base: int


def read_end(fd: int, size: int) -> EndRecord:
    """Read the end of the archive of `size` bytes that is open as `fd`.

    The last end record counts whose comment ends at the end of the file, and whose directory lies right before it. So a
    comment may contain signatures, and bytes before the archive are allowed. A record without entries counts only if no
    other does.

    If there is none, an end record counts that only padding follows (zeros, line ends), if its archive begins at the
    start of the file. An end record anywhere else may belong to a member of an archive that was cut.

    Raises:
        FormatError: there is no end record; the message says what is wrong with the last candidate.
    """
    # The longest comment decides how far from the end of the file the record may begin.
    start = max(0, size - END.size - COMMENT_MOST)
    tail = read_up_to(fd, size - start, start)
    wrong, empty, padded = "", None, None
    # `rfind` looks for signatures that end here at the latest, so that a whole record can follow.
    at = len(tail) - END.size + len(END_MAGIC)
    while (at := tail.rfind(END_MAGIC, 0, at)) >= 0:
        stop = at + END.size + END.unpack_from(tail, at)[-1] if len(tail) - at >= END.size else len(tail) + 1
        if stop <= len(tail):
            behind = tail[stop:]
            try:
                found = _end_at(fd, tail[at : at + END.size], start + at)
                if behind and (found.base or behind.strip(PADDING)):
                    raise FormatError(f"{len(behind)} bytes follow the end record at {start + at}, expected none")
            except FormatError as error:
                wrong = str(error)
            else:
                if found.entries and not behind:
                    return found
                if behind:
                    padded = padded or found
                else:
                    empty = empty or found  # zeros behind a signature look like it, also in a comment
        at += len(END_MAGIC) - 1  # so that `rfind` finds signatures that begin before this one
    for end in (empty, padded):
        if end is not None:
            return end
    raise FormatError(f"it is not a zip archive: {wrong or _without_end(fd, len(tail))}")


def _without_end(fd: int, searched: int) -> str:
    """Return the text for an archive without an end record in its last `searched` bytes."""
    cut = "; it begins like one, so it may have been cut" if read_up_to(fd, 4, 0) == MEMBER_MAGIC else ""
    return f"no end record in its last {searched} bytes{cut}"


def _end_at(fd: int, record: bytes, position: int) -> EndRecord:
    """Parse the end record at `position`.

    Raises:
        FormatError: its directory does not lie right before it.
    """
    _, disk, first_disk, here, entries, size, offset, _ = END.unpack(record)
    # A ZIP64 record may be there though none is needed: some programs write it before they know the final sizes.
    # All bits set in a field mean that the ZIP64 record has its value.
    found = _end64(fd, position, 0xFFFF in (disk, first_disk, here, entries) or 0xFFFFFFFF in (size, offset))
    exact = found is not None
    if found is not None:
        position, disk, first_disk, here, entries, size, offset = found
    if disk != first_disk or here != entries:
        raise FormatError(
            f"an archive of several disks cannot be read: this is disk {disk}, its directory is on disk {first_disk}"
        )
    # Where it lies; the stated offset differs by the bytes in front of the archive.
    start = position - size
    if start < 0 or offset > start:
        raise FormatError(
            f"its directory of {size} bytes at offset {offset} does not end before its end record at {position}"
        )
    if entries and read_up_to(fd, 4, start) != ENTRY_MAGIC:
        raise FormatError(f"there is no directory entry at offset {start}, expected {entries} of them in {size} bytes")
    if exact and entries > size // ENTRY_SIZE:
        raise FormatError(f"{entries} entries do not fit in a directory of {size} bytes")
    return EndRecord(start, size, entries, exact, start - offset)


def _end64(fd: int, position: int, needed: bool) -> tuple[int, int, int, int, int, int, int] | None:
    """Return the position and the fields of the ZIP64 record before the end record at `position`; None if there is
    none.

    Raises:
        FormatError: it is needed, but is not where its locator says. If it is not needed, those bytes may be no
            locator.
    """
    at = position - LOCATOR.size
    locator = read_up_to(fd, LOCATOR.size, at) if at >= 0 else b""
    if locator[:4] != LOCATOR_MAGIC:
        return None
    stated = LOCATOR.unpack(locator)[2]
    # With bytes before the archive, it is not at the stated offset. Then try the least size right before the locator.
    for place in (stated, at - END64.size):
        record = read_up_to(fd, END64.size, place) if 0 <= place <= at - END64.size else b""
        if record[:4] == END64_MAGIC:
            _, own, _, _, disk, first_disk, here, entries, size, offset = END64.unpack(record)
            if place + 12 + own == at:
                return place, disk, first_disk, here, entries, size, offset
    if not needed:
        return None
    raise FormatError(f"there is no ZIP64 end record at offset {stated}, as its locator at {at} says")


Arrays = dict[str, npt.NDArray[Any]]
FORMAT = "zip-1"
LOCAL_SIZE = 30
COLUMNS: dict[str, type[np.generic]] = {
    **dict.fromkeys(("data", "compressed", "sizes"), np.int64),
    **dict.fromkeys(("crcs", "times"), np.uint32),
    **dict.fromkeys(("modes", "methods", "flags"), np.uint16),
}


class ZipIndex:
    """The members of one archive in the order of its directory, without directories.

    Args:
        path: path of the archive.
        index_cache: see `cached_index`.

    Attributes:
        path: path of the archive.
        names, folders: names of members; names of entries that are directories, each with a "/" at its end.
        data: int64 [n], offset of each member's data in the file; -1 if its local header is wrong.
        compressed, sizes: int64 [n], bytes in the file, and bytes of content.
        crcs: uint32 [n], CRC-32 of the content.
        times: uint32 [n], MS-DOS time in the lower half, date in the upper.
        modes: uint16 [n], st_mode if Unix made the entry, else 0.
        methods, flags: uint16 [n].

    Raises:
        FormatError: not a zip archive, a damaged directory, or members that overlap.
        OSError: it cannot be opened or read.
    """

    data: npt.NDArray[np.int64]
    compressed: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    crcs: npt.NDArray[np.uint32]
    times: npt.NDArray[np.uint32]
    modes: npt.NDArray[np.uint16]
    methods: npt.NDArray[np.uint16]
    flags: npt.NDArray[np.uint16]

    def __init__(self, path: str, index_cache: IndexCache = None) -> None:
        self.path = path
        check = partial(check_members, **COLUMNS)
        with add_hint_to_errors(path):
            arrays: Arrays = cached_index(path, FORMAT, lambda: build(path), index_cache, check)
        self.names = Names.from_arrays(arrays)
        self.folders = Names(arrays["folders"], arrays["folder_offsets"])
        for name in COLUMNS:
            setattr(self, name, arrays[name])

    def __len__(self) -> int:
        return len(self.names)


def build(path: str) -> Arrays:
    """Return the arrays of a `ZipIndex` from the archive itself."""
    with add_path_to_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = read_end(fd, os.fstat(fd).st_size)
            directory = _read(fd, end)
            arrays: Arrays = _zip.read_directory(directory, end.base, end.offset)
            _check_count(arrays, end)
            local = arrays.pop("local")
            # The order in the file: headers are read from front to back, and neighbours must not overlap.
            order = np.argsort(local, kind="stable")
            arrays["data"] = _zip.read_locals(fd, directory, arrays.pop("entries"), local, order)
            _check_overlaps(arrays, local, order, end.offset)
            return arrays
        finally:
            os.close(fd)


def _read(fd: int, end: EndRecord) -> npt.NDArray[np.uint8]:
    directory = np.empty(end.size, np.uint8)
    done = 0
    while done < end.size:
        # Linux reads at most 2 GiB at once.
        got = read_into(fd, directory[done:].data, end.offset + done)
        if got == 0:
            raise TruncatedError(f"its directory has {done} bytes, expected {end.size}")
        done += got
    return directory


def _check_count(arrays: Arrays, end: EndRecord) -> None:
    found = len(arrays["sizes"]) + len(arrays["folder_offsets"]) - 1
    if end.entries != (found if end.exact else found % 65536):
        raise FormatError(f"its directory has {found} entries, the end record says {end.entries}")


def _check_overlaps(arrays: Arrays, local: npt.NDArray[np.int64], order: npt.NDArray[np.int64], limit: int) -> None:
    """Raise FormatError if bytes belong to two members.

    Otherwise a small archive could contain more than a disk can hold.
    """
    starts = local[order]
    # -1 stands for a wrong local header, whose fixed part still takes room.
    data = np.maximum(arrays["data"][order], starts + LOCAL_SIZE)
    ends = data + arrays["compressed"][order]
    bad = np.flatnonzero(ends > np.append(starts[1:], limit))
    if len(bad):
        k = int(bad[0])
        names = Names.from_arrays(arrays)
        name, size = names[int(order[k])], ends[k] - starts[k]
        other = f"the directory at offset {limit}"
        if k + 1 < len(order):
            other = f"{names[int(order[k + 1])]!r} at offset {starts[k + 1]}"
        raise FormatError(f"members overlap: {name!r} of {size} bytes at offset {starts[k]} reaches into {other}")


class ZipMembers:
    """The tables of all archives, one behind the other.

    Args:
        indexes: indexes of the archives, at least one.
        max_ratio: see `ZipReader`.

    Attributes:
        paths: paths of the archives.
        starts: int64 [archives + 1], number of the first member of each archive, and the number of all members.
        names, folders, data, compressed, sizes, crcs, times, modes, methods, flags: see `ZipIndex`.
        special: bool [n], members that are not simply stored, or cannot be read; None if there are none.
    """

    def __init__(self, indexes: Sequence[ZipIndex], max_ratio: float | None) -> None:
        self.paths = [each.path for each in indexes]
        self.starts = np.cumsum([0, *(len(each) for each in indexes)])
        self.names = concatenate_names([each.names for each in indexes])
        self.folders = concatenate_names([each.folders for each in indexes])
        self.data: npt.NDArray[np.int64] = _concatenate([each.data for each in indexes])
        self.compressed: npt.NDArray[np.int64] = _concatenate([each.compressed for each in indexes])
        self.sizes: npt.NDArray[np.int64] = _concatenate([each.sizes for each in indexes])
        self.crcs: npt.NDArray[np.uint32] = _concatenate([each.crcs for each in indexes])
        self.times: npt.NDArray[np.uint32] = _concatenate([each.times for each in indexes])
        self.modes: npt.NDArray[np.uint16] = _concatenate([each.modes for each in indexes])
        self.methods: npt.NDArray[np.uint16] = _concatenate([each.methods for each in indexes])
        self.flags: npt.NDArray[np.uint16] = _concatenate([each.flags for each in indexes])
        self._max_ratio = max_ratio
        special = (self.methods != STORED) | (self.flags & ENCRYPTED != 0)
        special |= (self.data < 0) | (self.sizes != self.compressed)
        self.special = special if special.any() else None

    def archive(self, index: int) -> int:
        """Return the number of the archive with member `index`."""
        return int(np.searchsorted(self.starts, index, "right")) - 1

    def name(self, archive: int, local: int) -> str:
        """Return the name of member `local` of an archive, for messages."""
        return f"member {self.names[int(self.starts[archive]) + local]!r}"

    def problem(self, index: int) -> Exception | None:
        """Return the error that the archive's own facts show for member `index`; None if it can be read."""
        method, size, compressed = int(self.methods[index]), int(self.sizes[index]), int(self.compressed[index])
        reason = refusal(method, int(self.flags[index]))
        if reason is None and self.data[index] < 0:
            reason = "there is no local header with its name at the offset that the directory says"
        if reason is None and method == STORED and size != compressed:
            reason = f"it is stored without compression, but has {size} bytes in {compressed}"
        if reason is None:
            try:
                check_ratio(size, compressed, self._max_ratio)
            except FormatError as error:
                reason = str(error)
        return None if reason is None else self.name_error(index, FormatError(reason))

    def content(self, index: int, data: Array, check_data: bool) -> Array | Exception:
        """Decompress `data` into the content of member `index`; return the error if that fails."""
        try:
            return self._inflate(index, data, check_data)
        except (FormatError, ImportError, MemoryError) as error:
            return self.name_error(index, error)

    def _inflate(self, index: int, data: Array, check_data: bool) -> Array | Exception:
        size, stored = int(self.sizes[index]), int(self.crcs[index])
        content = inflate(int(self.methods[index]), int(self.flags[index]), data.data, size)
        # A copy in pooled memory, since callers may write to a record, but not to `bytes`.
        out: Array = pooled(size)
        out[:] = np.frombuffer(content, np.uint8)
        computed = crc32(out.data) if check_data else stored
        if computed == stored:
            return out
        path = self.paths[self.archive(index)]
        return ChecksumError(
            f"Sample {index}: checksum mismatch: {self._describe_member(index)}: CRC-32 {computed:#010x}, "
            f"stored {stored:#010x} ({size} bytes of content)",
            path=path,
            index=index,
            stored=stored,
            computed=computed,
        )

    def name_error(self, index: int, error: Exception) -> Exception:
        """Return the error with the archive and the member in its message."""
        where = f"Sample {index}: {self._describe_member(index)}"
        if isinstance(error, MemoryError):
            return name_memory_error(error, where)
        made = type(error)(f"{where}: {error}")
        # The exception of the library may tell more.
        made.__cause__ = error.__cause__
        return made

    def _describe_member(self, index: int) -> str:
        return f"{self.paths[self.archive(index)]}: member {self.names[index]!r}"


def _concatenate(arrays: list[Any]) -> Any:
    """Concatenate arrays. A single array is returned as it is, since it may be a mapping."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

"""The end of a zip archive, which tells where its directory is.

    end record         22 B and the comment: signature, disk u16, directory's disk u16, entries here u16, entries u16,
                       directory size u32, directory offset u32, comment length u16
    ZIP64 locator      20 B, right before it: signature, disk u32, offset of the ZIP64 end u64, disks u32
    ZIP64 end record   56 B or more: signature, own size - 12 u64, made by u16, needed u16, disk u32, directory's disk
                       u32, entries here u64, entries u64, directory size u64, directory offset u64

PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.14 to 4.3.16.
"""

import struct
from dataclasses import dataclass

from ffrecord.errors import FormatError
from ffrecord.system.atomic_file import read_up_to

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
    start = max(0, size - END.size - COMMENT_MOST)
    tail = read_up_to(fd, size - start, start)
    wrong, empty, padded = "", None, None
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
    raise FormatError(f"not a zip archive: {wrong or _without_end(fd, len(tail))}")


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
    found = _end64(fd, position, 0xFFFF in (disk, first_disk, here, entries) or 0xFFFFFFFF in (size, offset))
    exact = found is not None
    if found is not None:
        position, disk, first_disk, here, entries, size, offset = found
    if disk != first_disk or here != entries:
        raise FormatError(
            f"an archive of several disks cannot be read: this is disk {disk}, its directory is on disk {first_disk}"
        )
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

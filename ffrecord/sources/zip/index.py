"""The index of a zip archive: its directory and local headers, as arrays."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, TruncatedError
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.sources.index_file import IndexCache, cached_index
from ffrecord.sources.names import Names, check_members
from ffrecord.sources.zip import _zip
from ffrecord.sources.zip.end import EndRecord, read_end
from ffrecord.system.atomic_file import read_into

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
        arrays: Arrays = cached_index(path, FORMAT, lambda: build(path), index_cache, _check_kept)
        self.names = Names.from_arrays(arrays)
        self.folders = Names(arrays["folders"], arrays["folder_offsets"])
        for name in COLUMNS:
            setattr(self, name, arrays[name])

    def __len__(self) -> int:
        return len(self.names)


def _check_kept(arrays: Arrays) -> None:
    """Raise unless these are arrays of `build`.

    The positions of members are compared with the file when they are read.
    """
    check_members(arrays, **COLUMNS)


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

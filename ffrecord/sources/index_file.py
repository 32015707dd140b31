"""Indexes of files of other formats, kept from one opening to the next.

What a pass over a file found, as arrays, in a file of its own:

    0    8 B   magic, "FFINDEX2"
    8    u32   bytes of the description
    12   u32   CRC-32 of the four bytes before, and of all that follows
    16         description: JSON of `_Description`
    ...        the arrays, each at a multiple of 64, zeros between them

It is used only for the file that it was made of: same inode, same size, same times; and only if it belongs to somebody
who may be believed. One that is stale or damaged is made anew.
"""

import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
import struct
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ArgumentTypeError, FormatError, file_error
from ffrecord.kernels import _memory
from ffrecord.reading.paths import local_path
from ffrecord.reading.span_file import mapping_of
from ffrecord.reading.table_room import LARGE
from ffrecord.system import filesystems, resources
from ffrecord.system.atomic_file import PartFile, read_all, write_all

IndexCache: TypeAlias = str | os.PathLike[str] | bool | None
Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

MAGIC = b"FFINDEX2"  # 1: no checksum of the size of the description, by which all arrays are found
HEAD = struct.Struct("<8sII")
SUFFIX = ".ffindex"
ALIGNMENT = 64
DESCRIPTION_MOST = 1 << 20  # bytes
NUMBERS = re.compile(r"[<>|=]?(?:[iu][1248]|f[248])")  # dtypes of arrays
REFUSED = (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
# Two changes of a file less apart may give it the same time: ticks of the kernel's clock, or what file systems that
# know no more keep: FAT, 2 s.
TICK_NS, COARSE_TICK_NS = 10_000_000, 2_000_000_000

logger = logging.getLogger("ffrecord")


class _Array(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    count: int
    offset: int  # in the index file, bytes


class _Description(msgspec.Struct, frozen=True):
    format: str
    file: tuple[int, int, int, int]  # of the file indexed, as `_identity`
    arrays: list[_Array]


def cached(
    path: str,
    format: str,
    build: Callable[[], Arrays],
    index_cache: IndexCache = None,
    check: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, npt.NDArray[np.generic]]:
    """The index of a file: as it was kept, else made by `build`, and kept.

    Args:
        path: the file indexed.
        format: what the arrays are, with a version that changes when they mean something else, as "zip-1".
        build: goes through the file; gives 1-D arrays of numbers by name.
        index_cache: where indexes are kept: True for beside the file, as `<path>.<format>.ffindex`; or a directory,
            which is made; None or False for nowhere. Where it cannot be written, that is logged, and nothing is kept.
        check: raises KeyError, ValueError (FormatError is one), IndexError or TypeError for arrays that are none of
            `format`; kept ones of which it does are made anew. They are never larger than the index file.

    Returns:
        The arrays; those that were kept are read-only mappings, which processes share.

    Raises:
        TypeError: `index_cache`.
        FormatError: the file changed while its index was made.
        whatever `build` does, and OSError.
    """
    place = index_path(path, format, index_cache)
    status = os.stat(path)
    if place is not None:
        found = _load(place, format, status, check)
        if found is not None:
            return found
        status = _settled(path, status)
    arrays = {name: np.ascontiguousarray(array) for name, array in build().items()}
    now = os.stat(path)
    if _identity(now)[:3] != _identity(status)[:3]:
        raise FormatError(f"{path}: changed while its index was made: {status.st_size} bytes, now {now.st_size}")
    if place is not None and _identity(now) == _identity(status) and not _young(status):
        try:
            _save(place, _describe(format, status, arrays), arrays)
        except OSError as error:
            logger.warning("%s: its index could not be kept as %s: %s", path, place, error)
    return arrays


def check_columns(arrays: Arrays, **dtypes: type[np.generic]) -> int:
    """How many rows the arrays of these names have, which are of these dtypes; for the `check` of `cached`.

    Raises:
        KeyError: there is no array of a name.
        FormatError: they are of other dtypes, or of different lengths.
    """
    found = [arrays[name] for name in dtypes]
    if any(array.dtype != dtype for array, dtype in zip(found, dtypes.values(), strict=True)):
        raise FormatError(f"columns of {[str(array.dtype) for array in found]}")
    if len({len(array) for array in found}) != 1:
        raise FormatError(f"columns of {[len(array) for array in found]} rows")
    return len(found[0])


class _KeptIndex(_memory.Mapping):
    """An index file, mapped; it knows its path."""

    path: str


_mapped_now: weakref.WeakSet[_KeptIndex] = weakref.WeakSet()


def kept_file(array: object) -> _KeptIndex | None:
    """The index file that an array is in; None if it is in memory."""
    mapping = mapping_of(array)
    return mapping if isinstance(mapping, _KeptIndex) else None


def check_there(file: _KeptIndex | None) -> None:
    """To be called after looking at arrays of an index file: pages that could not be had were read as zeros.

    Raises:
        OSError: there were such.
    """
    if file is not None and file.lost:
        sentence = f"{file.path}: a part of this index could not be read; it was cut or damaged after it was opened"
        raise file_error(errno.EIO, sentence, file.path)


def index_path(path: str, format: str, index_cache: IndexCache) -> str | None:
    """Where the index of a file is kept; None for nowhere."""
    if index_cache is None or index_cache is False:
        return None
    if index_cache is True:
        return f"{path}.{format}{SUFFIX}"
    if not isinstance(index_cache, str | os.PathLike):
        raise ArgumentTypeError(f"index_cache must be a bool or a directory, not {type(index_cache).__name__}")
    name = hashlib.sha256(os.fsencode(filesystems.real_path(path))).hexdigest()[:32]
    return os.path.join(local_path("index_cache", index_cache), f"{name}.{format}{SUFFIX}")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    # The time of change, ctime, is the one that no program can set: mtime is copied by `cp -p` and `rsync -t`.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _tick(status: os.stat_result) -> int:
    return TICK_NS if status.st_ctime_ns % 1_000_000_000 else COARSE_TICK_NS


def _young(status: os.stat_result) -> bool:
    """Whether the file may change again without its times telling; always so by a clock that is ahead of ours."""
    return time.time_ns() - status.st_ctime_ns < _tick(status)


def _settled(path: str, status: os.stat_result) -> os.stat_result:
    """What the file is when it is no longer young, if that is soon; an index of a young one is not kept."""
    if _young(status) and _tick(status) == TICK_NS:
        time.sleep(TICK_NS / 1e9)
        return os.stat(path)
    return status


def _describe(format: str, status: os.stat_result, arrays: Arrays) -> _Description:
    """Offsets count from the first multiple of ALIGNMENT after the description, whose size is not known yet."""
    offset, listed = 0, []
    for name, array in arrays.items():
        listed.append(_Array(name, array.dtype.str, array.size, offset))
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return _Description(format, _identity(status), listed)


def _save(place: str, description: _Description, arrays: Arrays) -> None:
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    if os.path.islink(place):
        raise OSError(errno.ELOOP, "it is a symbolic link, by which others could choose what is overwritten")
    encoded = msgspec.json.encode(description)
    encoded += b" " * (-(HEAD.size + len(encoded)) % ALIGNMENT)
    crc, offset = crc32(encoded, _crc_of(len(encoded))), HEAD.size + len(encoded)
    part = PartFile(place, follow=False)
    try:
        os.fchmod(part.fd, stat.S_IMODE(os.fstat(part.fd).st_mode) & ~stat.S_IWOTH)  # see `check_owner`
        write_all(part.fd, memoryview(encoded), HEAD.size)
        for array in arrays.values():
            for data in (array.view(np.uint8).data, memoryview(bytes(-array.nbytes % ALIGNMENT))):
                crc = crc32(data, crc)
                write_all(part.fd, data, offset)
                offset += len(data)
        write_all(part.fd, memoryview(HEAD.pack(MAGIC, len(encoded), crc)), 0)
        part.publish()
    except BaseException:
        part.discard()
        raise


def _crc_of(length: int) -> int:
    """Where the checksum begins: with the size of the description."""
    return crc32(struct.pack("<I", length))


def _load(
    place: str, format: str, status: os.stat_result, check: Callable[[dict[str, Any]], object] | None
) -> dict[str, npt.NDArray[np.generic]] | None:
    """What is kept at `place`; None if there is nothing, or not of this file."""
    with contextlib.suppress(FileNotFoundError):
        try:
            arrays = _arrays(_mapped(place, status), format, status)
            if check is not None:
                check(arrays)
            return arrays
        except (*REFUSED, msgspec.MsgspecError) as error:
            logger.info("%s is made anew: %s", place, error)
    return None


def check_owner(index: os.stat_result, indexed: os.stat_result) -> None:
    """Refuse what is kept of a file, unless who wrote it could as well have written the file, or runs this program.

    Raises:
        FormatError: as said; without the path.
    """
    if not stat.S_ISREG(index.st_mode):
        raise FormatError("not a file")
    if index.st_uid not in (0, os.geteuid(), indexed.st_uid):
        raise FormatError(f"it belongs to user {index.st_uid}, the file indexed to user {indexed.st_uid}")
    if index.st_mode & ~indexed.st_mode & stat.S_IWOTH:
        raise FormatError("everybody may write to it")


def _mapped(place: str, status: os.stat_result) -> memoryview:
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        check_owner(found, status)
        size = found.st_size
        if size < HEAD.size:
            raise FormatError(f"{size} bytes, expected at least {HEAD.size}")
        if len(_mapped_now) >= (resources.MAPPED_FEW if size < LARGE else resources.mappings()):
            return memoryview(read_all(fd, size, 0))  # a process may have no more than some ten thousand mappings
        mapping = _KeptIndex(fd, size)
        mapping.path = place
        _mapped_now.add(mapping)
        return memoryview(mapping)
    finally:
        os.close(fd)


def _arrays(data: memoryview, format: str, status: os.stat_result) -> dict[str, npt.NDArray[np.generic]]:
    magic, length, crc = HEAD.unpack_from(data)
    if magic != MAGIC or length > min(DESCRIPTION_MOST, len(data) - HEAD.size):
        raise FormatError("not an index")
    if crc32(data[HEAD.size :], _crc_of(length)) != crc:
        raise FormatError("its CRC-32 does not match")
    description = msgspec.json.decode(bytes(data[HEAD.size : HEAD.size + length]), type=_Description)
    if (description.format, description.file) != (format, _identity(status)):
        raise FormatError("of another file")
    start = HEAD.size + length
    return {each.name: _array(data, each, start) for each in description.arrays}


def _array(data: memoryview, each: _Array, start: int) -> npt.NDArray[np.generic]:
    # Looked at first: numpy takes a string for many things, and warns of some, or fails as Python's parser does.
    if each.count < 0 or not NUMBERS.fullmatch(each.dtype):
        raise FormatError(f"{each.name}: {each.count} times {each.dtype}, expected numbers")
    array = np.frombuffer(data, each.dtype, each.count, start + each.offset)
    if not array.flags.aligned:  # compiled code takes it for granted
        raise FormatError(f"{each.name}: numbers of {array.itemsize} bytes at offset {start + each.offset}")
    return array

"""Indexes of files of other formats, kept from one opening to the next.

What a pass over a file found, as arrays, in a file of its own:

    0    8 B   magic, "FFINDEX1"
    8    u32   bytes of the description
    12   u32   CRC-32 of all that follows
    16         description: JSON of `_Description`
    ...        the arrays, each at a multiple of 64, zeros between them

It is used only for the file that it was made of: same size, same time of change. One that is stale or damaged is made
anew.
"""

import contextlib
import hashlib
import logging
import os
import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ffrecord import _memory
from ffrecord._crc import crc32
from ffrecord.durable import PartFile, write_all
from ffrecord.errors import ArgumentTypeError, FormatError

IndexCache: TypeAlias = str | os.PathLike[str] | bool | None
Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

MAGIC = b"FFINDEX1"
HEAD = struct.Struct("<8sII")
SUFFIX = ".ffindex"
ALIGNMENT = 64
DESCRIPTION_MOST = 1 << 20  # bytes

logger = logging.getLogger("ffrecord")


class _Array(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    count: int
    offset: int  # in the index file, bytes


class _Description(msgspec.Struct, frozen=True):
    format: str
    size: int  # of the file indexed, bytes
    mtime_ns: int
    arrays: list[_Array]


def cached(
    path: str, format: str, build: Callable[[], Arrays], index_cache: IndexCache = None
) -> dict[str, npt.NDArray[np.generic]]:
    """The index of a file: as it was kept, else made by `build`, and kept.

    Args:
        path: the file indexed.
        format: what the arrays are, with a version that changes when they mean something else, as "zip-1".
        build: goes through the file; gives 1-D arrays of numbers by name.
        index_cache: where indexes are kept: True for beside the file, as `<path>.<format>.ffindex`; or a directory,
            which is made; None or False for nowhere. Where it cannot be written, that is logged, and nothing is kept.

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
        found = _load(place, format, status)
        if found is not None:
            return found
    arrays = {name: np.ascontiguousarray(array) for name, array in build().items()}
    now = os.stat(path)
    if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        raise FormatError(f"{path}: changed while its index was made: {status.st_size} bytes, now {now.st_size}")
    if place is not None:
        try:
            _save(place, _describe(format, status, arrays), arrays)
        except OSError as error:
            logger.warning("%s: its index could not be kept as %s: %s", path, place, error)
    return arrays


def index_path(path: str, format: str, index_cache: IndexCache) -> str | None:
    """Where the index of a file is kept; None for nowhere."""
    if index_cache is None or index_cache is False:
        return None
    if index_cache is True:
        return f"{path}.{format}{SUFFIX}"
    if not isinstance(index_cache, str | os.PathLike):
        raise ArgumentTypeError(f"index_cache must be a bool or a directory, not {type(index_cache).__name__}")
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return os.path.join(os.fspath(index_cache), f"{name}.{format}{SUFFIX}")


def _describe(format: str, status: os.stat_result, arrays: Arrays) -> _Description:
    """Offsets count from the first multiple of ALIGNMENT after the description, whose size is not known yet."""
    offset, listed = 0, []
    for name, array in arrays.items():
        listed.append(_Array(name, array.dtype.str, array.size, offset))
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return _Description(format, status.st_size, status.st_mtime_ns, listed)


def _save(place: str, description: _Description, arrays: Arrays) -> None:
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    encoded = msgspec.json.encode(description)
    encoded += b" " * (-(HEAD.size + len(encoded)) % ALIGNMENT)
    crc, offset = crc32(encoded), HEAD.size + len(encoded)
    part = PartFile(place)
    try:
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


def _load(place: str, format: str, status: os.stat_result) -> dict[str, npt.NDArray[np.generic]] | None:
    """What is kept at `place`; None if there is nothing, or not of this file."""
    with contextlib.suppress(FileNotFoundError):
        try:
            return _arrays(_mapped(place), format, status)
        except (OSError, ValueError, TypeError, msgspec.MsgspecError) as error:
            logger.info("%s is made anew: %s", place, error)
    return None


def _mapped(place: str) -> memoryview:
    fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size < HEAD.size:
            raise FormatError(f"{size} bytes, expected at least {HEAD.size}")
        return memoryview(_memory.Mapping(fd, size))
    finally:
        os.close(fd)


def _arrays(data: memoryview, format: str, status: os.stat_result) -> dict[str, npt.NDArray[np.generic]]:
    magic, length, crc = HEAD.unpack_from(data)
    if magic != MAGIC or length > min(DESCRIPTION_MOST, len(data) - HEAD.size):
        raise FormatError("not an index")
    if crc32(data[HEAD.size :]) != crc:
        raise FormatError("its CRC-32 does not match")
    description = msgspec.json.decode(bytes(data[HEAD.size : HEAD.size + length]), type=_Description)
    if (description.format, description.size, description.mtime_ns) != (format, status.st_size, status.st_mtime_ns):
        raise FormatError("of another file")
    start = HEAD.size + length
    return {each.name: _array(data, each, start) for each in description.arrays}


def _array(data: memoryview, each: _Array, start: int) -> npt.NDArray[np.generic]:
    if each.count < 0 or np.dtype(each.dtype).kind not in "iuf":
        raise FormatError(f"{each.name}: {each.count} times {each.dtype}, expected numbers")
    return np.frombuffer(data, each.dtype, each.count, start + each.offset)

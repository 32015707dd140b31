"""Indexes of files of other formats, kept from one opening to the next.

An index file has the arrays that a pass over a file found:

    0    8 B   magic, "FFINDEX2"
    8    u32   bytes of the description
    12   u32   CRC-32 of the four bytes before, and of everything behind
    16         description: JSON of `_Description`
    ...        the arrays, each at a multiple of 64, with zeros between them

An index is used only for the file that it was made from: same inode, size and times. Its owner must be a trusted user.
A stale or damaged index is made again.
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
from ffrecord.errors import ArgumentTypeError, FormatError, add_place_to_memory_errors, file_error
from ffrecord.kernels import _memory
from ffrecord.reading.ffr_file import LARGE
from ffrecord.reading.paths import local_path
from ffrecord.reading.span_file import mapping_of
from ffrecord.system import filesystems, resources
from ffrecord.system.atomic_file import PartFile, read_all, write_all
from ffrecord.system.values import describe_wrong

IndexCache: TypeAlias = str | os.PathLike[str] | bool | None
Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

MAGIC = b"FFINDEX2"  # version 1 had no checksum of the size of the description, which all offsets depend on
HEAD = struct.Struct("<8sII")
SUFFIX = ".ffindex"
ALIGNMENT = 64
DESCRIPTION_MOST = 1 << 20  # bytes
NUMBERS = re.compile(r"[<>|=]?(?:[iu][1248]|f[248])")  # dtypes of arrays
# What decoding an index that is damaged, or was written by others, may raise.
UNDECODABLE = (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
# Two changes of a file within one tick may give it the same time. The tick is that of the kernel's clock, or of a file
# system with coarse times, such as FAT with 2 s.
TICK_NS, COARSE_TICK_NS = 10_000_000, 2_000_000_000

logger = logging.getLogger("ffrecord")


class _Array(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    count: int
    offset: int  # bytes from the first array


class _Description(msgspec.Struct, frozen=True):
    format: str
    file: tuple[int, int, int, int]  # `_identity` of the indexed file
    arrays: list[_Array]


def cached_index(
    path: str,
    format: str,
    build: Callable[[], Arrays],
    index_cache: IndexCache = None,
    check: Callable[[dict[str, Any]], object] | None = None,
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the index of a file: the kept one, or one that `build` makes, which is then kept.

    Args:
        path: the indexed file.
        format: name of the arrays' meaning, with a version to change when the meaning changes, as "zip-1".
        build: goes through the file, and returns 1-D arrays of numbers by name.
        index_cache: place for indexes: True for beside the file, as `<path>.<format>.ffindex`; or a directory, which is
            made; None or False for nowhere. If it cannot be written, that is logged, and nothing is kept.
        check: raises KeyError, ValueError (also FormatError), IndexError or TypeError if arrays are not of `format`;
            then the index is made again. Arrays are never larger than the index file.

    Returns:
        The arrays. Kept ones are read-only mappings, which processes share.

    Raises:
        TypeError: `index_cache` has a wrong type.
        FormatError: the file changed while its index was made.
        OSError, and the exceptions of `build`.
    """
    place = index_path(path, format, index_cache)
    # Before the pass over the file, so that a change during the pass shows.
    status = os.stat(path)
    if place is not None:
        found = _load(place, format, status, check)
        if found is not None:
            return found
        status = _wait_until_settled(path, status)
    # `_save` writes the memory of each array as it is.
    with add_place_to_memory_errors(lambda: path):
        arrays = {name: np.ascontiguousarray(array) for name, array in build().items()}
    now = os.stat(path)
    # Without ctime, which also changes with a new mode or a link to the file.
    if _identity(now)[:3] != _identity(status)[:3]:
        raise FormatError(
            f"{path}: the file changed while its index was made: it had {status.st_size} bytes, now {now.st_size}"
        )
    # With another ctime, the next opening would refuse the index.
    if place is not None and _identity(now) == _identity(status) and not _young(status):
        try:
            _save(place, _describe(format, status, arrays), arrays)
        # A read-only directory or a full disk must not prevent reading.
        except OSError as error:
            logger.warning(
                "%s: its index could not be saved as %s, so the next reader makes it again: %s", path, place, error
            )
    return arrays


def check_columns(arrays: Arrays, **dtypes: type[np.generic]) -> int:
    """Check that arrays exist and have these dtypes and one length; return the length.

    It serves as `check` of `cached_index`.

    Raises:
        KeyError: there is no array of a name.
        FormatError: an array has another dtype, or the lengths differ.
    """
    found = [arrays[name] for name in dtypes]
    if any(array.dtype != dtype for array, dtype in zip(found, dtypes.values(), strict=True)):
        raise FormatError(
            f"its columns are {[str(each.dtype) for each in found]}, expected {list(map(str, dtypes.values()))}"
        )
    if len({len(array) for array in found}) != 1:
        raise FormatError(f"its columns have {[len(array) for array in found]} rows, expected equal numbers")
    return len(found[0])


class _KeptIndex(_memory.Mapping):
    """A mapped index file, with its path."""

    path: str


# Weak: an index counts until its last array is gone.
_mapped_now: weakref.WeakSet[_KeptIndex] = weakref.WeakSet()


def kept_file(array: object) -> _KeptIndex | None:
    """Return the index file that an array is in; None for an array in memory."""
    mapping = mapping_of(array)
    return mapping if isinstance(mapping, _KeptIndex) else None


def check_there(file: _KeptIndex | None) -> None:
    """Raise if pages of an index file were lost. Call it after each access: lost pages are read as zeros.

    Raises:
        OSError: pages were lost.
    """
    if file is not None and file.lost:
        sentence = f"{file.path}: a part of this index could not be read; it was cut or damaged after it was opened"
        raise file_error(errno.EIO, sentence, file.path)


def index_path(path: str, format: str, index_cache: IndexCache) -> str | None:
    """Return the path of the index of a file; None if none is kept."""
    if index_cache is None or index_cache is False:
        return None
    if index_cache is True:
        return f"{path}.{format}{SUFFIX}"
    if not isinstance(index_cache, str | os.PathLike):
        raise ArgumentTypeError(describe_wrong("index_cache", index_cache, "a bool or a directory"))
    # Files of one name in several directories share the directory of indexes.
    name = hashlib.sha256(os.fsencode(filesystems.real_path(path))).hexdigest()[:32]
    return os.path.join(local_path("index_cache", index_cache), f"{name}.{format}{SUFFIX}")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    # ctime is the one time that no program can set. `cp -p` and `rsync -t` copy mtime.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _tick(status: os.stat_result) -> int:
    # A file system with fine times gives whole seconds only by chance.
    return TICK_NS if status.st_ctime_ns % 1_000_000_000 else COARSE_TICK_NS


def _young(status: os.stat_result) -> bool:
    """Tell whether the file may change again with the same times.

    That is always so if its time is ahead of our clock.
    """
    return time.time_ns() - status.st_ctime_ns < _tick(status)


def _wait_until_settled(path: str, status: os.stat_result) -> os.stat_result:
    """Wait until a file is no longer young, if that is soon, and return its status.

    The index of a young file is not kept.
    """
    # 2 s would be too long to wait.
    if _young(status) and _tick(status) == TICK_NS:
        time.sleep(TICK_NS / 1e9)
        return os.stat(path)
    return status


def _describe(format: str, status: os.stat_result, arrays: Arrays) -> _Description:
    """Return a description of arrays.

    Offsets count from the first array, since the description's size is not known yet.
    """
    offset, listed = 0, []
    for name, array in arrays.items():
        listed.append(_Array(name, array.dtype.str, array.size, offset))
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return _Description(format, _identity(status), listed)


def _save(place: str, description: _Description, arrays: Arrays) -> None:
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    if os.path.islink(place):
        raise OSError(errno.ELOOP, "it is a symbolic link, so others could choose the file that is overwritten")
    encoded = msgspec.json.encode(description)
    # JSON may end with spaces, so the arrays begin aligned.
    encoded += b" " * (-(HEAD.size + len(encoded)) % ALIGNMENT)
    crc, offset = crc32(encoded, _crc_of(len(encoded))), HEAD.size + len(encoded)
    part = PartFile(place, follow=False)
    try:
        # `check_owner` would refuse an index that everybody may write to.
        os.fchmod(part.fd, stat.S_IMODE(os.fstat(part.fd).st_mode) & ~stat.S_IWOTH)
        write_all(part.fd, memoryview(encoded), HEAD.size)
        for array in arrays.values():
            for data in (array.view(np.uint8).data, memoryview(bytes(-array.nbytes % ALIGNMENT))):
                crc = crc32(data, crc)
                write_all(part.fd, data, offset)
                offset += len(data)
        # The head is last: it has the checksum of everything.
        write_all(part.fd, memoryview(HEAD.pack(MAGIC, len(encoded), crc)), 0)
        part.publish()
    # BaseException: Ctrl+C must not leave a part file behind either.
    except BaseException:
        part.discard()
        raise


def _crc_of(length: int) -> int:
    """Return the initial value of the checksum: that of the description's size."""
    return crc32(struct.pack("<I", length))


def _load(
    place: str, format: str, status: os.stat_result, check: Callable[[dict[str, Any]], object] | None
) -> dict[str, npt.NDArray[np.generic]] | None:
    """Return the arrays kept at `place`; None if there are none, or they are of another file."""
    # No index yet is the usual case at a first opening, so nothing is logged.
    with contextlib.suppress(FileNotFoundError):
        try:
            arrays = _arrays(_map_index(place, status), format, status)
            if check is not None:
                check(arrays)
            return arrays
        except (*UNDECODABLE, msgspec.MsgspecError) as error:
            # No warning: that the file changed since is usual.
            logger.info("%s is made again: %s", place, error)
    return None


def check_owner(index: os.stat_result, indexed: os.stat_result) -> None:
    """Refuse an index unless its owner is trusted: root, the user of this process, or the owner of the indexed file.

    Raises:
        FormatError: it is not a regular file, has another owner, or everybody may write to it; without the path.
    """
    if not stat.S_ISREG(index.st_mode):
        raise FormatError("it is not a regular file")
    # Another user's index could lead reads to any place of the file.
    if index.st_uid not in (0, os.geteuid(), indexed.st_uid):
        raise FormatError(f"it belongs to user {index.st_uid}, but the indexed file to user {indexed.st_uid}")
    # If all users may write to the indexed file itself, such an index adds no danger.
    if index.st_mode & ~indexed.st_mode & stat.S_IWOTH:
        raise FormatError("all users may write to it")


def _map_index(place: str, status: os.stat_result) -> memoryview:
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        check_owner(found, status)
        size = found.st_size
        if size < HEAD.size:
            raise FormatError(f"it has {size} bytes, expected at least {HEAD.size}")
        if len(_mapped_now) >= (resources.MAPPED_FEW if size < LARGE else resources.mappings()):
            return memoryview(read_all(fd, size, 0))  # a process may have only some ten thousand mappings
        mapping = _KeptIndex(fd, size)
        mapping.path = place
        _mapped_now.add(mapping)
        return memoryview(mapping)
    finally:
        # The mapping outlives the descriptor.
        os.close(fd)


def _arrays(data: memoryview, format: str, status: os.stat_result) -> dict[str, npt.NDArray[np.generic]]:
    magic, length, crc = HEAD.unpack_from(data)
    if magic != MAGIC or length > min(DESCRIPTION_MOST, len(data) - HEAD.size):
        raise FormatError("it is not an index")
    # Before anything is decoded: all offsets come from these bytes.
    if crc32(data[HEAD.size :], _crc_of(length)) != crc:
        raise FormatError("its CRC-32 does not match")
    description = msgspec.json.decode(bytes(data[HEAD.size : HEAD.size + length]), type=_Description)
    if (description.format, description.file) != (format, _identity(status)):
        raise FormatError("it is the index of another file")
    start = HEAD.size + length
    return {each.name: _array(data, each, start) for each in description.arrays}


def _array(data: memoryview, each: _Array, start: int) -> npt.NDArray[np.generic]:
    # Checked before numpy parses it: numpy accepts many strings as dtypes, warns about some, and fails in its own ways.
    if each.count < 0 or not NUMBERS.fullmatch(each.dtype):
        raise FormatError(f"column {each.name!r}: {each.count} values of {each.dtype!r}, expected 0 or more numbers")
    # numpy raises unless it lies within the file.
    array = np.frombuffer(data, each.dtype, each.count, start + each.offset)
    if not array.flags.aligned:  # compiled code relies on aligned arrays
        raise FormatError(
            f"column {each.name!r}: offset is {start + each.offset}, expected a multiple of {array.itemsize}"
        )
    return array

"""The index of an MDS dataset: index.json of its directory, and the head of each shard.

u32             n u32 [n + 1]     offsets of the samples in the file; the last is its size ...             JSON of the
columns, up to the first sample samples         each: u32 size of every column of varying size, in order; then the
values, in order
"""

import os
from collections.abc import Sequence
from errno import ENOENT
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, MissingFileError, plural
from ffrecord.format import manifest
from ffrecord.format.ffr_layout import hint_of
from ffrecord.system import untrusted
from ffrecord.system.atomic_file import read_all

NAME = "index.json"
VERSION = 2
FORMAT = "mds"
WORD = np.dtype("<u4")
INDEX_MOST = 512 << 20  # bytes; about a million shards
SHARD_MOST = (1 << 32) - 1  # bytes; offsets have 32 bits


class MDSFile(msgspec.Struct, frozen=True):
    """A file of a shard: its name below the directory, its size, and hashes of the whole file by algorithm."""

    basename: str
    bytes: int
    hashes: dict[str, str] = {}


class MDSColumns(msgspec.Struct, frozen=True):
    """Names, encodings and sizes in bytes (None if they vary) of the columns, in the order of their values."""

    column_names: tuple[str, ...]
    column_encodings: tuple[str, ...]
    column_sizes: tuple[int | None, ...]


class MDSShard(msgspec.Struct, frozen=True):
    """A shard in index.json.

    Attributes:
        samples: number of samples.
        raw_data: the uncompressed file.
        zip_data, compression: the compressed file, and its compression, as "zstd" or "zstd:7"; None if there is none.
    """

    samples: int
    column_names: tuple[str, ...]
    column_encodings: tuple[str, ...]
    column_sizes: tuple[int | None, ...]
    raw_data: MDSFile
    zip_data: MDSFile | None = None
    compression: str | None = None
    format: str = FORMAT
    version: int = VERSION

    @property
    def columns(self) -> MDSColumns:
        return MDSColumns(self.column_names, self.column_encodings, self.column_sizes)


class _Index(msgspec.Struct):
    version: int
    shards: list[MDSShard]


def read_index(directory: str) -> list[MDSShard]:
    """Read the shards from index.json of a directory.

    Raises:
        FileNotFoundError: there is no index.json.
        FormatError: it is not an index of MDS, version 2, or inconsistent.
    """
    path = os.path.join(directory, NAME)
    try:
        data = manifest.read(path, INDEX_MOST)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(ENOENT, f"{path} does not exist", path) from None
    try:
        index = msgspec.json.decode(data, type=_Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path} is not an index of MDS shards: {error}{hint_of(data)}") from None
    if index.version != VERSION:
        raise FormatError(f"{path}: version is {index.version}, expected {VERSION}")
    for place, shard in enumerate(index.shards):
        wrong = _wrong(shard)
        if wrong:
            raise FormatError(f"{path}: shard {place}: {wrong}")
    return index.shards


def _wrong(shard: MDSShard) -> str | None:
    """Return the reason why a shard's entry is invalid, or None."""
    if shard.format != FORMAT or shard.version != VERSION:
        return f"format is {shard.format!r} and version {shard.version}, expected {FORMAT!r} and {VERSION}"
    counts = {len(shard.column_names), len(shard.column_encodings), len(shard.column_sizes)}
    if len(counts) != 1 or len(set(shard.column_names)) != len(shard.column_names):
        given = f"{len(shard.column_encodings)} encodings and {len(shard.column_sizes)} sizes"
        return f"columns are {shard.column_names} with {given}, expected each name once, one encoding and one size"
    files = [file for file in (shard.raw_data, shard.zip_data) if file is not None]
    sizes = [*(file.bytes for file in files), *(size for size in shard.column_sizes if size is not None)]
    numbers = [shard.samples, *sizes]
    if min(numbers) < 0 or shard.samples >= 1 << 32:
        return f"samples is {shard.samples} and sizes are {sizes}, expected 0 or more, and below 2**32 samples"
    for file in files:
        # Anybody may have written the index: its names must not lead out of the directory.
        if not all(map(untrusted.is_plain, file.basename.split("/"))):
            return f"{file.basename!r} is not a valid name of a file below the directory"
    if bool(shard.compression) != (shard.zip_data is not None):
        listed = "no compressed file" if shard.zip_data is None else "a compressed file"
        return f"compression is {shard.compression!r}, but it lists {listed}"
    return None


def shard_offsets(fd: int, size: int, shard: MDSShard, check: bool) -> npt.NDArray[np.int64]:
    """Read the offsets of the samples of an open shard, and the end of the last one: int64 [n + 1].

    Args:
        size: size of the file, bytes.
        check: compare the columns in the file with those of the index.

    Raises:
        FormatError: the numbers do not fit each other, the file, or the index.
    """
    if size != shard.raw_data.bytes:
        raise FormatError(f"it has {plural(size, 'byte')}, {NAME} says {shard.raw_data.bytes}")
    head = WORD.itemsize * (shard.samples + 2)
    # Before so many bytes are read, since the number comes from the index.
    if head > size:
        raise FormatError(f"it has {plural(size, 'byte')}, too few for the {plural(shard.samples, 'sample')} in {NAME}")
    words = np.frombuffer(read_all(fd, head, 0), WORD)
    if words[0] != shard.samples:
        raise FormatError(f"it has {plural(words[0], 'sample')}, {NAME} says {shard.samples}")
    offsets: npt.NDArray[np.int64] = words[1:].astype(np.int64)
    if offsets[0] < head or offsets[-1] != size or (np.diff(offsets) < 0).any():
        raise FormatError(
            f"its samples have offsets {offsets[0]} to {offsets[-1]}, expected them ascending from {head} or more to "
            f"{size}"
        )
    if check:
        _check_columns(read_all(fd, int(offsets[0]) - head, head), shard)
    return offsets


def _check_columns(data: bytes, shard: MDSShard) -> None:
    try:
        found = msgspec.json.decode(data, type=MDSColumns)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"its description of columns, {plural(len(data), 'byte')}, cannot be read: {error}") from None
    if found != shard.columns:
        raise FormatError(f"its columns are {found}, {NAME} says {shard.columns}")


def distinct(shards: Sequence[MDSShard]) -> tuple[list[MDSColumns], npt.NDArray[Any]]:
    """Return the distinct sets of columns, and which of them each shard has: int64 [shards]."""
    found: dict[MDSColumns, int] = {}
    which = [found.setdefault(shard.columns, len(found)) for shard in shards]
    return list(found), np.array(which, np.int64)

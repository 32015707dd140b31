"""Shards of MDS datasets as they are read: files that were compressed are decompressed once, and kept for a while."""

import bz2
import contextlib
import gzip
import hashlib
import logging
import os
import stat
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from ffrecord.errors import ArgumentError, ChecksumError, FormatError, MissingFileError, TruncatedError
from ffrecord.sources.index_file import check_owner
from ffrecord.sources.mds.index import SHARD_MOST, MDSFile, MDSShard
from ffrecord.system.atomic_file import PartFile, write_all
from ffrecord.system.forks import renew_in_children
from ffrecord.system.optional import require

CHUNK = 4 << 20

logger = logging.getLogger("ffrecord")

Unpack = Callable[[BinaryIO, int], Iterator[bytes | memoryview]]


@dataclass(frozen=True)
class ShardFile:
    """A shard and where it is: `path` is the compressed file if `packed`."""

    shard: MDSShard
    path: str
    packed: bool


def shard_file(directory: str, shard: MDSShard) -> ShardFile:
    """The file of a shard that is there: the one that can be read as it is, if that is whole, else the compressed one.

    Raises:
        FileNotFoundError: neither is.
        FormatError: the compressed one has another size than the index says.
    """
    plain = os.path.join(directory, shard.raw_data.basename)
    if shard.zip_data is None:
        if not os.path.isfile(plain):
            raise MissingFileError(2, f"{plain} does not exist, the index lists it", plain)
        return ShardFile(shard, plain, False)
    if os.path.isfile(plain) and os.path.getsize(plain) == shard.raw_data.bytes:
        return ShardFile(shard, plain, False)
    packed = os.path.join(directory, shard.zip_data.basename)
    if not os.path.isfile(packed):
        raise MissingFileError(2, f"neither {packed} nor {plain} exists, the index lists them", packed)
    size = os.path.getsize(packed)
    if size != shard.zip_data.bytes:
        raise TruncatedError(f"{packed}: {size} bytes, the index says {shard.zip_data.bytes}")
    unpacker(shard.compression or "", packed)
    return ShardFile(shard, packed, True)


# Decompression


def unpacker(compression: str, path: str) -> Unpack:
    """What decompresses files of `compression`, such as "zstd:7".

    Raises:
        FormatError: no such compression is known.
        ImportError: it needs a package that is not installed.
    """
    name = compression.partition(":")[0]
    if name not in UNPACKERS:
        raise FormatError(f"{path}: compression {compression!r}, expected one of {', '.join(UNPACKERS)}")
    if name == "zstd":
        require("zstandard", "zstd", "a shard compressed with Zstandard")
    if name in ("br", "snappy"):
        require("cramjam", "snappy", f"a shard compressed as {name!r}")
    return UNPACKERS[name]


def _pieces(stream: Any) -> Iterator[bytes | memoryview]:
    while piece := stream.read(CHUNK):
        yield piece


def _gz(file: BinaryIO, size: int) -> Iterator[bytes | memoryview]:
    with gzip.GzipFile(fileobj=file) as stream:
        yield from _pieces(stream)


def _bz2(file: BinaryIO, size: int) -> Iterator[bytes | memoryview]:
    with bz2.BZ2File(file) as stream:
        yield from _pieces(stream)


def _zstd(file: BinaryIO, size: int) -> Iterator[bytes | memoryview]:
    yield from _pieces(require("zstandard", "zstd", "").ZstdDecompressor().stream_reader(file, read_across_frames=True))


def _br(file: BinaryIO, size: int) -> Iterator[bytes | memoryview]:
    yield _into(require("cramjam", "snappy", "").brotli.decompress_into, file, size)


def _snappy(file: BinaryIO, size: int) -> Iterator[bytes | memoryview]:
    yield _into(require("cramjam", "snappy", "").snappy.decompress_raw_into, file, size)


def _into(decompress: Callable[[bytes, Any], int], file: BinaryIO, size: int) -> memoryview:
    # Not a bytearray: pages that are not written to take no memory, whatever the index says.
    out = np.empty(size, np.uint8)
    return out.data[: decompress(file.read(), out)]


UNPACKERS: dict[str, Unpack] = {"zstd": _zstd, "gz": _gz, "bz2": _bz2, "br": _br, "snappy": _snappy}


def unpack(found: ShardFile, fd: int, algorithm: str | None) -> None:
    """Decompress a shard into an open, empty file, which then has the size that the index says.

    Args:
        algorithm: of a hash to compare, of the compressed file and of what it holds; None for none.

    Raises:
        FormatError: not so compressed, or what comes out has another size.
        ChecksumError: a hash does not match.
        OSError: reading or writing failed.
    """
    shard = found.shard
    size = shard.raw_data.bytes
    if size > SHARD_MOST:
        raise FormatError(f"{found.path}: {size} bytes after decompression, a shard has at most {SHARD_MOST}")
    if algorithm is not None and shard.zip_data is not None:
        check_hash(found.path, shard.zip_data, algorithm)
    digest = None if algorithm is None else expected_hash(shard.raw_data, algorithm, found.path)[0]
    done = 0
    with open(found.path, "rb") as file:
        try:
            for piece in unpacker(shard.compression or "", found.path)(file, size):
                if done + len(piece) > size:
                    raise FormatError(f"more than the {size} bytes that the index says")
                write_all(fd, memoryview(piece), done)
                done += len(piece)
                if digest is not None:
                    digest.update(piece)
        except (OSError, MemoryError) as error:
            # Those that decompress have no one kind of error for bad bytes; that of the disk has a number.
            if isinstance(error, MemoryError) or error.errno:
                raise
            raise FormatError(f"{found.path}: not {shard.compression} that can be read: {error}") from None
        except Exception as error:
            raise FormatError(f"{found.path}: not {shard.compression} that can be read: {error}") from None
    if done != size:
        raise FormatError(f"{found.path}: {done} bytes after decompression, the index says {size}")
    if digest is not None:
        _compare(digest, shard.raw_data, algorithm or "", f"{found.path}, decompressed")


# Hashes


def expected_hash(file: MDSFile, algorithm: str, path: str) -> tuple[Any, str]:
    """(hash object, what it shall give) of a file.

    Raises:
        ValueError: no such algorithm.
        ImportError: it needs a package that is not installed.
        FormatError: the index has no such hash of the file.
    """
    if algorithm not in file.hashes:
        raise FormatError(f"{path}: the index has no hash {algorithm!r} of it, only {sorted(file.hashes)}")
    if algorithm.startswith("xxh"):
        made = getattr(require("xxhash", "huggingface", f"the hash {algorithm}"), algorithm, None)
    else:
        made = getattr(hashlib, algorithm, None) if algorithm in hashlib.algorithms_available else None
    if made is None or algorithm.startswith("shake"):
        raise ArgumentError(f"hash {algorithm!r} is not known here")
    return made(), file.hashes[algorithm]


def check_hash(path: str, file: MDSFile, algorithm: str) -> None:
    """Compare a file with a hash in the index.

    Raises:
        ChecksumError: they differ.
    """
    digest, _ = expected_hash(file, algorithm, path)
    with open(path, "rb") as stream:
        for piece in _pieces(stream):
            digest.update(piece)
    _compare(digest, file, algorithm, path)


def _compare(digest: Any, file: MDSFile, algorithm: str, path: str) -> None:
    found, stored = digest.hexdigest(), file.hashes[algorithm]
    if found != stored.lower():
        raise ChecksumError(f"{path}: {algorithm} {found}, the index says {stored}", path=path)


# What was decompressed


class UnpackedShards:
    """Shards that were decompressed, each opened by `open_shard`, the one used longest ago forgotten first.

    Args:
        directory: where they are kept, for other processes and later; None for files without a name in the directory
            for temporary files, gone when they are forgotten.
        limit: bytes of those without a name; the one in use is kept in any case.
        algorithm: of the hash to compare; None for none.
        open_shard: (path of the shard, the shard) → what reads it.
    """

    def __init__(
        self, directory: str | None, limit: int, algorithm: str | None, open_shard: Callable[[str, ShardFile], Any]
    ) -> None:
        self._directory, self._limit, self._algorithm, self._open = directory, limit, algorithm, open_shard
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Locks that nobody holds, of what nobody uses."""
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def get(self, found: ShardFile) -> Any:
        """What reads a shard; decompressed now if it is not kept."""
        with self._lock:
            busy = self._busy.setdefault(found.path, threading.Lock())
        with busy:
            with self._lock:
                if found.path in self._kept:
                    self._kept.move_to_end(found.path)
                    return self._kept[found.path][0]
            reader, size = self._opened(found)
            with self._lock:
                self._keep(found, reader, size)
            return reader

    def _keep(self, found: ShardFile, reader: Any, size: int) -> None:
        self._kept[found.path] = reader, size
        total = sum(size for _, size in self._kept.values())
        for path, (_, size) in list(self._kept.items())[:-1]:
            if total <= self._limit:
                break
            if size:
                # Not closed: another thread may be reading it. It is when the last one has let go of it.
                del self._kept[path]
                total -= size

    def _opened(self, found: ShardFile) -> tuple[Any, int]:
        """Open a shard; give also the bytes of a file without a name that it is in, 0 where it has one."""
        if not found.packed:
            return self._open(found.path, found), 0
        path = None if self._directory is None else self._named(found, self._directory)
        if path is not None:
            return self._open(path, found), 0
        with tempfile.NamedTemporaryFile(prefix="ffrecord-", suffix=".mds") as file:
            unpack(found, file.fileno(), self._algorithm)
            return self._open(file.name, found), found.shard.raw_data.bytes

    def _named(self, found: ShardFile, directory: str) -> str | None:
        """The path of a shard that is decompressed, and kept; None if a stranger has something at its name."""
        status = os.stat(found.path)
        told = f"{os.path.realpath(found.path)}\0{status.st_size}\0{status.st_mtime_ns}"
        name = hashlib.sha256(os.fsencode(told)).hexdigest()[:32]
        path = os.path.join(directory, f"{name}.mds")
        with contextlib.suppress(FileNotFoundError):
            there = os.lstat(path)
            if _is_believed(there, status, found.shard.raw_data.bytes):
                return path
            if there.st_uid != os.geteuid():
                logger.warning("%s is not used: it is not a file of this user, or of the owner of %s", path, found.path)
                return None
        os.makedirs(directory, exist_ok=True)
        part = PartFile(path, follow=False)
        try:
            os.fchmod(part.fd, stat.S_IMODE(os.fstat(part.fd).st_mode) & ~stat.S_IWOTH)  # or nobody would believe it
            unpack(found, part.fd, self._algorithm)
            part.publish()
        finally:
            part.discard()
        return path

    def clear(self) -> None:
        """Close all."""
        with self._lock:
            for reader, _ in self._kept.values():
                reader.close()
            self._kept.clear()


def _is_believed(kept: os.stat_result, shard: os.stat_result, size: int) -> bool:
    """Whether a file in a cache is what a shard holds: nothing in it tells, so it depends on who made it."""
    with contextlib.suppress(FormatError):
        check_owner(kept, shard)
        return kept.st_size == size
    return False

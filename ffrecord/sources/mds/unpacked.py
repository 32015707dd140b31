"""MDS shards in the form in which they are read: compressed files are decompressed once, and kept for a while."""

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
from errno import ENOENT
from typing import Any, BinaryIO

import numpy as np

from ffrecord.errors import ArgumentError, ChecksumError, FormatError, MissingFileError, TruncatedError
from ffrecord.sources.index_file import check_owner
from ffrecord.sources.mds.index import SHARD_MOST, MDSFile, MDSShard
from ffrecord.system.atomic_file import PartFile, write_all
from ffrecord.system.forks import renew_in_children
from ffrecord.system.requirements import require

CHUNK = 4 << 20

logger = logging.getLogger("ffrecord")

Unpack = Callable[[BinaryIO, int], Iterator[bytes | memoryview]]


@dataclass(frozen=True)
class ShardFile:
    """A shard and its file: `path` is the compressed file if `packed`."""

    shard: MDSShard
    path: str
    packed: bool


def shard_file(directory: str, shard: MDSShard) -> ShardFile:
    """Return the file of a shard: the uncompressed one if it is there and complete, else the compressed one.

    Raises:
        FileNotFoundError: neither exists.
        FormatError: the compressed one has another size than in the index.
    """
    plain = os.path.join(directory, shard.raw_data.basename)
    if shard.zip_data is None:
        if not os.path.isfile(plain):
            raise MissingFileError(ENOENT, f"{plain} does not exist, but the index lists it", plain)
        return ShardFile(shard, plain, False)
    if os.path.isfile(plain) and os.path.getsize(plain) == shard.raw_data.bytes:
        return ShardFile(shard, plain, False)
    packed = os.path.join(directory, shard.zip_data.basename)
    if not os.path.isfile(packed):
        raise MissingFileError(ENOENT, f"neither {packed} nor {plain} exists, but the index lists them", packed)
    size = os.path.getsize(packed)
    if size != shard.zip_data.bytes:
        raise TruncatedError(f"{packed}: it has {size} bytes, the index says {shard.zip_data.bytes}")
    # A missing package shows now, not at the first read.
    unpacker(shard.compression or "", packed)
    return ShardFile(shard, packed, True)


# Decompression


def unpacker(compression: str, path: str) -> Unpack:
    """Return the function that decompresses files of `compression`, such as "zstd:7".

    Raises:
        FormatError: the compression is unknown.
        ImportError: it needs a package that is not installed.
    """
    name = compression.partition(":")[0]
    if name not in UNPACKERS:
        raise FormatError(f"{path}: compression is {compression!r}, expected one of {', '.join(UNPACKERS)}")
    if name == "zstd":
        require("zstandard", "zstd", "a shard compressed by zstd")
    if name in ("br", "snappy"):
        require("cramjam", "snappy", f"a shard compressed by {name}")
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
    # Into memory of the stated size, which no bomb can exceed.
    yield _decompress_whole(require("cramjam", "snappy", "").brotli.decompress_into, file, size)


def _snappy(file: BinaryIO, size: int) -> Iterator[bytes | memoryview]:
    yield _decompress_whole(require("cramjam", "snappy", "").snappy.decompress_raw_into, file, size)


def _decompress_whole(decompress: Callable[[bytes, Any], int], file: BinaryIO, size: int) -> memoryview:
    # Not a bytearray, which is filled with zeros: the index may state a size that is too large, and pages of this array
    # take no memory before they are written to.
    out = np.empty(size, np.uint8)
    return out.data[: decompress(file.read(), out)]


UNPACKERS: dict[str, Unpack] = {"zstd": _zstd, "gz": _gz, "bz2": _bz2, "br": _br, "snappy": _snappy}


def unpack(found: ShardFile, fd: int, algorithm: str | None) -> None:
    """Decompress a shard into an open, empty file. Its size is then compared with the index.

    Args:
        algorithm: algorithm of the hashes to compare, of the compressed file and of its content; None for none.

    Raises:
        FormatError: it is not compressed in this way, or the content has another size.
        ChecksumError: a hash does not match.
        OSError: reading or writing failed.
    """
    shard = found.shard
    size = shard.raw_data.bytes
    if size > SHARD_MOST:
        raise FormatError(
            f"{found.path}: the index says {size} bytes after decompression, expected at most {SHARD_MOST}"
        )
    if algorithm is not None and shard.zip_data is not None:
        check_hash(found.path, shard.zip_data, algorithm)
    # Before decompression, since the index may lack the hash.
    digest = None if algorithm is None else expected_hash(shard.raw_data, algorithm, found.path)[0]
    done = 0
    with open(found.path, "rb") as file:
        try:
            for piece in unpacker(shard.compression or "", found.path)(file, size):
                # For each piece, so that no bomb fills the disk.
                if done + len(piece) > size:
                    raise FormatError(f"they decompress to more than the {size} bytes that the index says")
                write_all(fd, memoryview(piece), done)
                done += len(piece)
                if digest is not None:
                    digest.update(piece)
        except (OSError, MemoryError) as error:
            # For bad data, decompressors raise all kinds of exceptions. An OSError of the disk has an errno.
            if isinstance(error, MemoryError) or error.errno:
                raise
            raise FormatError(f"{found.path}: the {shard.compression} data are damaged: {error}") from None
        except Exception as error:
            raise FormatError(f"{found.path}: the {shard.compression} data are damaged: {error}") from None
    if done != size:
        raise FormatError(f"{found.path}: it has {done} bytes after decompression, the index says {size}")
    if digest is not None:
        _compare(digest, shard.raw_data, algorithm or "", f"{found.path}, decompressed")


# Hashes


def expected_hash(file: MDSFile, algorithm: str, path: str) -> tuple[Any, str]:
    """Return (hash object, expected hash) for a file.

    Raises:
        ValueError: the algorithm is unknown.
        ImportError: it needs a package that is not installed.
        FormatError: the index has no such hash of the file.
    """
    if algorithm not in file.hashes:
        raise FormatError(f"{path}: the index has no {algorithm!r} hash of this file, only {sorted(file.hashes)}")
    if algorithm.startswith("xxh"):
        made = getattr(require("xxhash", "xxhash", f"the hash {algorithm}"), algorithm, None)
    else:
        made = getattr(hashlib, algorithm, None) if algorithm in hashlib.algorithms_available else None
    # A hash of shake has any length, which the index does not tell.
    if made is None or algorithm.startswith("shake"):
        raise ArgumentError(f"hash is {algorithm!r}, expected one that hashlib or xxhash has")
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
        raise ChecksumError(f"checksum mismatch: {path}: {algorithm} {found}, stored {stored} in the index", path=path)


# Decompressed shards


class UnpackedShards:
    """Decompressed shards, each opened by `open_shard`. The least recently used one is dropped first.

    Args:
        directory: directory to keep them in, for other processes and for later; None for unnamed files in the directory
            for temporary files, which vanish when they are dropped.
        limit: most bytes of unnamed files; the one in use is always kept.
        algorithm: algorithm of the hash to compare; None for none.
        open_shard: (path of the shard, the shard) → its reader.
    """

    def __init__(
        self, directory: str | None, limit: int, algorithm: str | None, open_shard: Callable[[str, ShardFile], Any]
    ) -> None:
        self._directory, self._limit, self._algorithm, self._open = directory, limit, algorithm, open_shard
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the locks: in a forked child, nobody would release the old ones."""
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def get(self, found: ShardFile) -> Any:
        """Return the reader of a shard; decompress the shard if it is not kept."""
        # One lock for each shard: other shards can be decompressed meanwhile.
        with self._lock:
            busy = self._busy.setdefault(found.path, threading.Lock())
        with busy:
            # Another thread may have decompressed it meanwhile.
            with self._lock:
                if found.path in self._kept:
                    self._kept.move_to_end(found.path)
                    return self._kept[found.path][0]
            reader, size = self._open_unpacked(found)
            with self._lock:
                self._keep(found, reader, size)
            return reader

    def _keep(self, found: ShardFile, reader: Any, size: int) -> None:
        self._kept[found.path] = reader, size
        total = sum(size for _, size in self._kept.values())
        # The last one is in use.
        for path, (_, size) in list(self._kept.items())[:-1]:
            if total <= self._limit:
                break
            # Size 0 stands for a file with a name, which stays.
            if size:
                # Not closed: another thread may be reading it. It closes when the last reference is gone.
                del self._kept[path]
                total -= size

    def _open_unpacked(self, found: ShardFile) -> tuple[Any, int]:
        """Open a shard. Return its reader, and the bytes of its unnamed file, or 0 if the file has a name."""
        if not found.packed:
            return self._open(found.path, found), 0
        path = None if self._directory is None else self._unpack_named(found, self._directory)
        if path is not None:
            return self._open(path, found), 0
        with tempfile.NamedTemporaryFile(prefix="ffrecord-", suffix=".mds") as file:
            unpack(found, file.fileno(), self._algorithm)
            # Opened before the name is removed: the reader's descriptor keeps the file.
            return self._open(file.name, found), found.shard.raw_data.bytes

    def _unpack_named(self, found: ShardFile, directory: str) -> str | None:
        """Return the path of a kept decompressed shard. Return None if another user's file has its name."""
        status = os.stat(found.path)
        # A shard that changed gets another name, so that an old file cannot pass for it.
        told = f"{os.path.realpath(found.path)}\0{status.st_size}\0{status.st_mtime_ns}"
        name = hashlib.sha256(os.fsencode(told)).hexdigest()[:32]
        path = os.path.join(directory, f"{name}.mds")
        with contextlib.suppress(FileNotFoundError):
            # Not `stat`: a link could lead to any file.
            there = os.lstat(path)
            if _is_believed(there, status, found.shard.raw_data.bytes):
                return path
            if there.st_uid != os.geteuid():
                logger.warning(
                    "%s is not used: it belongs neither to this user nor to the owner of %s", path, found.path
                )
                return None
        os.makedirs(directory, exist_ok=True)
        part = PartFile(path, follow=False)
        try:
            # `_is_believed` would refuse a file that everybody may write to.
            os.fchmod(part.fd, stat.S_IMODE(os.fstat(part.fd).st_mode) & ~stat.S_IWOTH)
            unpack(found, part.fd, self._algorithm)
            part.publish()
        finally:
            part.discard()
        return path

    def clear(self) -> None:
        """Close all shards."""
        with self._lock:
            for reader, _ in self._kept.values():
                reader.close()
            self._kept.clear()


def _is_believed(kept: os.stat_result, shard: os.stat_result, size: int) -> bool:
    """Tell whether a file in a cache is used as the content of a shard.

    Its bytes do not tell: size and owner decide.
    """
    with contextlib.suppress(FormatError):
        check_owner(kept, shard)
        return kept.st_size == size
    return False

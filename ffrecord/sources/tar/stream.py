"""Members of tar archives in order, in one pass: for compressed archives, which cannot be read in place."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, TruncatedError
from ffrecord.sources.files import add_hint_to_errors, check_file
from ffrecord.sources.inflated import compression_of
from ffrecord.sources.names import Names, name_as_text
from ffrecord.sources.tar import _tar
from ffrecord.sources.tar._tar import split_names
from ffrecord.sources.tar.index import (
    BEHIND,
    header_error,
    is_metadata,
    log_behind,
    log_left_out,
    log_repeated_keys,
    log_unended,
    not_tar_error,
)
from ffrecord.system.requirements import require
from ffrecord.system.sizes import Size, parse_size

PIECE = 1 << 20  # bytes read at once
AT_ONCE = 8 << 10  # bytes of bzip2 or xz input for one call of a decompressor
MEMORY_MOST = 256 << 20  # most bytes of memory for a decompressor, whatever the file asks for
SIZE_MOST = 4 << 30  # most bytes of a member by default: nothing else bounds the memory for it
KEYS_MOST = 100_000  # keys that are kept to notice one that comes again


class Member(NamedTuple):
    """A regular file of an archive: its name, its bytes as uint8 [size], and the offset of its data in the archive."""

    name: str
    data: npt.NDArray[np.uint8]
    offset: int


def iter_members(
    path: str | os.PathLike[str], *, size_most: Size = SIZE_MOST, ignore_zeros: bool = False
) -> Iterator[Member]:
    """Yield the regular files of an archive in order. The archive is read once; one file is in memory at a time.

    After the last one the checksum of compressed data is compared, if the compression has one.

    Args:
        path: path of the archive, with any name: plain, or compressed by gzip, bzip2, xz or zstd (which needs
            zstandard).
        size_most: bytes, or text such as "4GB", of the largest member to read.
        ignore_zeros: see `TarReader`.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError): `path`. All others are raised
            while you iterate.
        FormatError: a damaged archive or damaged compressed data; a sparse member; a hard link, since its target has
            gone by; a member of more than `size_most` bytes.
        TruncatedError (a FormatError): the archive ends inside a member or header.
        ImportError: zstandard is not installed.
        OSError: the file cannot be read.
    """
    name = os.fspath(path)
    check_file(name)
    return _iterate(name, parse_size("size_most", size_most), ignore_zeros)


def iter_samples(
    path: str | os.PathLike[str], *, size_most: Size = SIZE_MOST, ignore_zeros: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield WebDataset's samples of an archive in order, in the form of `WebDatasetReader.samples` without `decode`.

    One sample is in memory at a time. The arguments are those of `iter_members`.

    Raises:
        The exceptions of `iter_members`; hard links that are not part of a sample raise none. FormatError: a sample has
            a field twice.
    """
    name = os.fspath(path)
    check_file(name)
    most = parse_size("size_most", size_most)
    return _group(name, _iterate(name, most, ignore_zeros, lambda link: _end_of_key(link) >= 0))


def _group(path: str, members: Iterator[Member]) -> Iterator[dict[str, Any]]:
    sample: dict[str, Any] = {}
    left_out, first = 0, ""
    keys: set[str] = set()
    repeated, again = 0, ""
    for member in members:
        # As bytes, which `dot` counts.
        dot, name = _end_of_key(member.name), member.name.encode(errors="surrogateescape")
        if dot < 0:
            if not is_metadata(member.name):
                left_out, first = left_out + 1, first or member.name
            continue
        key, field = name_as_text(name[:dot]), name_as_text(name[dot + 1 :]).lower()
        # Only the sample before is compared: a key that comes again later is another sample, as in WebDataset.
        if sample and sample["__key__"] != key:
            yield sample
            sample = {}
        if not sample:
            sample["__key__"] = key
            if key in keys:
                repeated, again = repeated + 1, again or key
            elif len(keys) < KEYS_MOST:
                keys.add(key)
        # "__key__" is there already, so a field of that name is refused, too.
        if field in sample:
            raise FormatError(f"{path}: sample {key!r}: field {field!r} occurs twice, again as member {member.name!r}")
        sample[field] = member.data
    if sample:
        yield sample
    if left_out:
        log_left_out(path, left_out, first)
    if repeated:
        log_repeated_keys(path, repeated, again)


def _end_of_key(name: str) -> int:
    """Return the bytes of the key at the start of a member's name; < 0 if it belongs to no sample."""
    names = Names.of([name])
    return int(split_names(names.blob, names.offsets)[0][0])


def _iterate(
    path: str, size_most: int, ignore_zeros: bool, wanted: Callable[[str], bool] = lambda link: True
) -> Iterator[Member]:
    """Yield members. For a hard link's name, `wanted` returns True to refuse it, False to skip it."""
    with open(path, "rb") as file:
        begins = file.read(8)
        file.seek(0)
        kind = compression_of(begins)
        with add_hint_to_errors(path), _translate_errors(path, kind):
            # zstandard does not report a stream that was cut. So the archive's own end must be there: programs that
            # compress an archive write it.
            stream = _Stream(path, _decompressor(file, kind), size_most, needs_end=kind == "zstd", wanted=wanted)
            yield from stream.members(ignore_zeros)


@contextmanager
def _translate_errors(path: str, kind: str | None) -> Iterator[None]:
    """Convert the exceptions of decompressors to ours."""
    try:
        yield
    # Of gzip, and of `_Parts`.
    except EOFError as error:
        raise TruncatedError(f"{path}: the {kind} data are cut: {error}") from None
    except (zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise FormatError(f"{path}: the {kind} data are damaged: {error}") from None
    except OSError as error:
        # An error of the system has a number.
        if error.errno is not None or isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: the {kind} data are damaged: {error}") from None  # raised by bz2
    except Exception as error:
        # By name: zstandard may not be installed, so its class cannot be imported here.
        if type(error).__name__ != "ZstdError":
            raise
        raise FormatError(f"{path}: the {kind} data are damaged: {error}") from None


def _decompressor(file: IO[bytes], kind: str | None) -> Callable[[int], bytes]:
    """Return a function that reads up to so many bytes of the archive; b"" at its end."""
    if kind is None:
        return file.read
    if kind == "gzip":
        return gzip.GzipFile(fileobj=file).read
    if kind == "zstd":
        zstandard = require("zstandard", "zstd", "an archive compressed by zstd")
        # A frame may ask for a window of gigabytes.
        decompressor = zstandard.ZstdDecompressor(max_window_size=MEMORY_MOST)
        read: Callable[[int], bytes] = decompressor.stream_reader(
            file, PIECE, read_across_frames=True, closefd=False
        ).read
        return read
    if kind == "xz":
        # The dictionary of an xz stream may ask for gigabytes.
        return _Parts(file, lambda: lzma.LZMADecompressor(memlimit=MEMORY_MOST)).read
    # bzip2 never needs more than some megabytes.
    return _Parts(file, bz2.BZ2Decompressor).read


class _Parts:
    """A file of compressed streams, one behind the other."""

    def __init__(self, file: IO[bytes], begin: Callable[[], Any]) -> None:
        self._file, self._begin = file, begin
        self._stream, self._input, self._ahead = begin(), b"", memoryview(b"")

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; b"" at the end.

        Raises:
            EOFError: the file ends inside a stream.
        """
        while True:
            if self._stream.eof:
                # xz pads streams with zeros, and tapes end with zeros.
                self._input = self._stream.unused_data.lstrip(b"\0") or self._fresh()
                if not self._input:
                    return b""
                self._stream = self._begin()
            # bz2 and lzma keep input for which `size` left no room.
            if not self._input and self._stream.needs_input:
                self._input = self._next()
                if not self._input:
                    raise EOFError("they end inside a stream")
            data: bytes = self._stream.decompress(self._input, size)
            self._input = b""
            if data:
                return data

    def _fresh(self) -> bytes:
        while data := self._next():
            if data := data.lstrip(b"\0"):
                break
        return data

    def _next(self) -> bytes:
        """Return a small piece of the file.

        The decompressor copies the unused rest of its input at the end of each stream, and a file may have very many
        streams.
        """
        if not self._ahead:
            self._ahead = memoryview(self._file.read(PIECE))
        data, self._ahead = self._ahead[:AT_ONCE].tobytes(), self._ahead[AT_ONCE:]
        return data


class _Stream:
    """An archive that is read once.

    Args:
        path: path for messages.
        read: returns up to so many bytes, b"" at the end.
        size_most: bytes of the largest member.
        needs_end: the end of the archive must be marked by zeros.
        wanted: tells whether a hard link with a name is wanted, which raises, since its data have gone by.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[int], bytes],
        size_most: int,
        needs_end: bool,
        wanted: Callable[[str], bool],
    ) -> None:
        self._path, self._read, self._size_most, self._needs_end = path, read, size_most, needs_end
        self._wanted = wanted
        self._headers = _tar.Headers()
        self._offset = 0  # current offset in the archive, bytes
        self._header = 0  # offset of the last header
        self._ended = False  # whether zeros were the last thing read

    def members(self, ignore_zeros: bool) -> Iterator[Member]:
        count = 0
        while (block := self._next_block()) is not None:
            found = self._headers.block(block)
            if found == _tar.END:
                self._ended = True
                if not ignore_zeros:
                    break
            elif found == _tar.MEMBER:
                self._ended, count = False, count + 1
                yield from self._member()
            else:
                self._extend(found, block)
        if not self._ended:
            if self._needs_end:
                end = f"the compressed data end at offset {self._offset}, before the archive does"
                raise TruncatedError(f"{self._path}: {end}")
            log_unended(self._path, self._offset, count)
        elif not ignore_zeros:
            log_behind(self._path, self._offset, self._take(BEHIND))
        # Read on: behind the archive's end, decompressors compare the checksum of the compressed data.
        while self._read(PIECE):
            pass

    def _next_block(self) -> bytes | None:
        self._header = self._offset
        block = self._take(_tar.BLOCK)
        if len(block) == _tar.BLOCK:
            return bytes(block)
        # With `_needs_end`, no bytes at all are a cut stream, which `members` reports.
        if self._offset == 0 and not self._needs_end:
            raise FormatError(f"{self._path} is not a tar archive: the file is empty")
        if any(block):
            raise TruncatedError(
                f"{self._path}: cut in a header at offset {self._header}; the archive ends at {self._offset}"
            )
        if self._headers.pending:
            raise self._refusal("lonely")
        # Not all programs write whole blocks of zeros.
        self._ended |= len(block) > 0 and not self._needs_end
        return None

    def _member(self) -> Iterator[Member]:
        headers = self._headers
        name = name_as_text(headers.name)
        if headers.kind == _tar.LINK and self._wanted(name):
            raise FormatError(
                f"{self._path}: member {name!r} at offset {self._header} is a hard link to "
                f"{name_as_text(headers.link)!r}, which came earlier: decompress the archive to read it"
            )
        if headers.kind == _tar.SPARSE_FILE:
            raise self._refusal("sparse")
        size, offset = headers.size, self._offset
        if headers.kind == _tar.FILE:
            if size > self._size_most:
                raise FormatError(
                    f"{self._path}: member {name!r} at offset {self._header} has {size} bytes, "
                    f"size_most is {self._size_most}"
                )
            yield Member(name, np.frombuffer(self._whole(size, name), np.uint8), offset)
        else:
            # Members of other kinds may have data, too.
            self._skip(size, name)
        self._skip(-size % _tar.BLOCK, name, padding=True)

    def _extend(self, found: int, block: bytes) -> None:
        """Take the data of an extension if the header was one; raise if the header was refused."""
        headers = self._headers
        if found == _tar.EXTENSION:
            size = headers.size
            found = headers.extension(self._whole(size, None))
            self._skip(-size % _tar.BLOCK, None)
        if found != _tar.EXTENSION:
            # At any other place than the start, a bad checksum means damage.
            if self._header == 0 and headers.problem == "checksum":
                raise not_tar_error(self._path, block[:8])
            raise self._refusal(headers.problem)

    def _refusal(self, problem: str | None) -> FormatError:
        return header_error(self._path, self._header, self._headers, problem)

    def _whole(self, size: int, name: str | None) -> bytearray:
        data = self._take(size)
        if len(data) != size:
            raise self._cut(size, len(data), name)
        return data

    def _skip(self, size: int, name: str | None, *, padding: bool = False) -> None:
        left = size
        while left:
            got = len(self._take(min(left, PIECE)))
            left -= got
            if not got:
                # Not all programs pad the last member.
                if padding:
                    return
                raise self._cut(size, size - left, name)

    def _cut(self, size: int, got: int, name: str | None) -> TruncatedError:
        what = "an extension header" if name is None else f"member {name!r}"
        return TruncatedError(
            f"{self._path}: cut in {what}, header at offset {self._header}: it has {size} bytes, {got} are left; "
            f"the archive ends at {self._offset}"
        )

    def _take(self, size: int) -> bytearray:
        """Read up to `size` bytes, fewer at the end.

        Memory grows with the bytes that come: a wrong size in a header allocates nothing.
        """
        data = bytearray()
        while len(data) < size and (piece := self._read(min(size - len(data), PIECE))):
            data += piece
        self._offset += len(data)
        return data

"""Write one `.ffr` file: append samples, checksum them, publish the file whole or not at all."""

import errno
import operator
import os
import warnings
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np

from ffrecord import durable, extension, format
from ffrecord._crc import crc32
from ffrecord.buffers import as_bytes
from ffrecord.errors import ArgumentError, ArgumentTypeError, CountError, StateError, file_error

BUFFER_SIZE = 1 << 20  # samples are collected to writes of about this many bytes
BLOCK = 4096  # data of a file of unknown n starts at a multiple of this: file systems insert space in whole blocks


def write_tables(
    fd: int, checksums: format.Checksums, offsets: format.Offsets, payload: bytes | None, file_size: int
) -> int:
    """Write everything that precedes the samples, the header's CRC-32 included.

    Args:
        fd: of a file whose samples are in place.
        checksums, offsets: uint32 [n] and int64 [n].
        payload: of the extension block, which fills what is between the tables and the first sample; None for no block.
        file_size: final size of the file, bytes.

    Returns:
        The header's CRC-32.
    """
    n = len(checksums)
    tables = format.pack_tables(checksums, offsets)
    crc = crc32(memoryview(tables)[format.CHECKED_FROM :])
    format.PREFIX.pack_into(tables, 0, crc, n)
    durable.write_all(fd, memoryview(tables), 0)
    if payload is not None:
        start = format.tables_end(n)
        gap = (int(offsets[0]) if n else file_size) - start
        durable.write_all(fd, memoryview(extension.seal(payload, gap, file_size)), start)
    return crc


class FileWriter:
    """Writes one file; nothing is under its name until `close`, then all of it.

    Args:
        fname: the path, ending in `.ffr`. A file there stays as it is until it is replaced, which keeps its mode; a
            symbolic link is followed.
        n: number of samples, >= 0. None: as many as are written; the file then has a gap before its first sample, as
            described in docs/format.md, and is not byte-identical to one written with n.
        extension: what the file should say about itself. None for nothing: with n, the bytes are those of ffrecord 1.x.

    Raises:
        TypeError, ValueError (also AssertionError): `fname` of another type, or without the suffix.
        TypeError, ValueError: `n`.
        OSError (also RuntimeError): the file cannot be created, or the disk has no room for its tables.

    As a context manager it closes at the end, and discards everything if there was an exception. One writer is for one
    thread at a time.
    """

    def __init__(
        self,
        fname: str | os.PathLike[str],
        n: SupportsIndex | None = None,
        *,
        extension: extension.Extension | None = None,
    ) -> None:
        self._open = False
        self._failure: Exception | None = None
        self._path = _check_name(fname)
        self._n = None if n is None else operator.index(n)
        if self._n is not None and self._n < 0:
            raise ValueError(f"n is {self._n}, expected >= 0")
        self._payload = self._encode(extension)
        self._data_start = self._reserve()
        self._checksums, self._sizes = array("I"), array("q")
        self._buffer = bytearray()
        self._end = self._data_start
        self._part = durable.PartFile(self._path)
        self._open = True
        self._allocate_tables()

    def _encode(self, given: extension.Extension | None) -> bytes | None:
        if given is None:
            return b"" if self._n is None else None
        return extension.encode(given)

    def _reserve(self) -> int:
        """Offset of the first sample."""
        room = 0 if self._payload is None else extension.block_size(self._payload)
        if self._n is None:
            return -(-(format.PREFIX.size + room) // BLOCK) * BLOCK
        return format.tables_end(self._n) + room

    def _allocate_tables(self) -> None:
        """A full disk shows now, not when the tables are written last."""
        try:
            durable.reserve(self._part.fd, self._data_start)
        except (OSError, OverflowError) as error:
            self._discard()
            code = getattr(error, "errno", None) or errno.EFBIG
            raise file_error(code, f"{self._path}: reserving {self._data_start} bytes", self._path) from None

    @property
    def n(self) -> int | None:
        """Number of samples the file is for; None if that was not said."""
        return self._n

    @property
    def count(self) -> int:
        """Number of samples written so far."""
        return len(self._checksums)

    def write_one(self, data: Any, /) -> None:
        """Append a sample: all bytes of a buffer in C order.

        Args:
            data: anything with the buffer protocol, an array of any dtype, shape and strides.

        Raises:
            RuntimeError (also ValueError): more than n samples, or closed.
            TypeError: no buffer, or an array of Python objects.
            OSError (also RuntimeError): writing failed; the writer is closed, nothing will be published. So it is after
                any other exception in the middle of writing, KeyboardInterrupt and MemoryError among them.
        """
        if not self._open or self.count == self._n:
            total = self.count if self._n is None else self._n
            state = "" if self._open else " (closed)"
            raise CountError(f"Exceed total number of samples: {total}: {self._path}{state}")
        self._check_owner()
        view = as_bytes(data)
        with self._all_or_nothing():
            self._append(view)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Discard all if the block raises: interrupted between table and data, what followed would be damaged."""
        try:
            yield
        except BaseException as error:
            self._discard()
            interrupted = StateError(f"{self._path}: interrupted after {self.count} samples, discarded")
            self._failure = error if isinstance(error, OSError) else interrupted
            raise

    def _check_owner(self) -> None:
        if not self._part.owned:
            raise StateError(f"{self._path}: opened by another process; a forked child cannot write to it")

    def _append(self, view: memoryview) -> None:
        self._checksums.append(crc32(view))
        self._sizes.append(len(view))
        if len(view) < BUFFER_SIZE:
            self._buffer += view
            if len(self._buffer) >= BUFFER_SIZE:
                self._write(self._take_buffer())
        else:
            self._write(self._take_buffer())
            self._write(view)

    def _take_buffer(self) -> memoryview:
        taken, self._buffer = self._buffer, bytearray()
        return memoryview(taken)

    def _write(self, data: memoryview) -> None:
        """Put bytes at the end of the file."""
        try:
            while len(data):
                written = os.pwrite(self._part.fd, data[: 1 << 30], self._end)
                if written == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._end += written
                data = data[written:]
        except OSError as error:
            raise self._sample_error(error) from None

    def _sample_error(self, error: OSError) -> OSError:
        """Of a failed write, saying which sample did not get through."""
        sizes = np.frombuffer(self._sizes, np.int64)
        ends = self._data_start + np.cumsum(sizes)
        i = min(int(np.searchsorted(ends, self._end, side="right")), len(sizes) - 1)
        wrote = max(0, self._end - int(ends[i] - sizes[i]))
        sentence = f"Sample {i}: length {sizes[i]} but wrote {wrote} bytes: {self._path}"
        return file_error(error.errno or errno.EIO, sentence, self._path)

    def close(self) -> None:
        """Complete the file and put it under its name. May be repeated.

        Raises:
            RuntimeError (also ValueError): not n samples were written; the writer stays open.
            OSError (also RuntimeError): nothing was published; raised again by later calls.
        """
        if self._failure is not None:
            raise self._failure
        if not self._open:
            return
        self._check_owner()
        if self._n is not None and self.count != self._n:
            raise CountError(
                f"Number of samples mismatched! Wrote {self.count} samples but expected {self._n}: {self._path}"
            )
        with self._all_or_nothing():
            self._write(self._take_buffer())
            try:
                self._write_tables()
            except OSError as error:
                sentence = f"{self._path}: writing the tables of {self.count} samples"
                raise file_error(error.errno or errno.EIO, sentence, self._path) from None
            self._check_size()
            self._part.publish()
            self._open = False

    def _check_size(self) -> None:
        """Trust no bookkeeping: what is published is as long as its tables say."""
        size = os.fstat(self._part.fd).st_size
        if size != self._end:
            sentence = f"{self._path}: {size} bytes on the disk, its {self.count} samples end at {self._end}"
            raise file_error(errno.EIO, sentence, self._path)

    def _write_tables(self) -> None:
        if self._n is None:
            self._make_room()
        offsets = np.full(self.count, self._data_start, np.int64)
        offsets[1:] += np.cumsum(np.frombuffer(self._sizes, np.int64)[:-1])
        checksums = np.frombuffer(self._checksums, np.uint32)
        write_tables(self._part.fd, checksums, offsets, self._payload, self._end)

    def _make_room(self) -> None:
        """Move the samples back until tables and block fit before them."""
        needed = format.tables_end(self.count) + extension.block_size(self._payload or b"")
        more = -(-max(0, needed - self._data_start) // BLOCK) * BLOCK
        if more:
            durable.insert_space(self._part.fd, self._data_start, more, self._end)
            self._data_start += more
            self._end += more

    def _discard(self) -> None:
        if self._open:
            self._open = False
            self._part.discard()

    def __enter__(self) -> "FileWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.close()
        finally:
            self._discard()

    def __del__(self) -> None:
        if not getattr(self, "_open", False):
            return
        if not self._part.owned:
            self._discard()
        elif self._n is not None and self.count == self._n:
            # As ffrecord 1.x did: programs that forget to close lose nothing. Publish before warning: that may raise.
            try:
                self.close()
                outcome = "closed it"
            except OSError as error:
                outcome = f"not published: {error}"
            self._warn(f"complete, but never closed; {outcome}")
        else:
            self._discard()
            self._warn(f"dropped after {self.count} samples and never closed; discarded")

    def _warn(self, what: str) -> None:
        warnings.warn(f"{self._path}: {what}", ResourceWarning, stacklevel=3, source=self)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


def _check_name(fname: Any) -> str:
    path = os.fspath(fname) if isinstance(fname, str | os.PathLike) else None
    if not isinstance(path, str):
        raise ArgumentTypeError(f"fname must be str or os.PathLike, not {type(fname).__name__}")
    if Path(path).suffix != format.SUFFIX:
        raise ArgumentError(f"{path} does not end with {format.SUFFIX}")
    return path

"""A writer of TFRecord files, which are written whole or not at all."""

import errno
import os
import struct
import zlib
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ffrecord._crc import crc32c, mask
from ffrecord.errors import ArgumentError, ClosedError, StateError, file_error, plural
from ffrecord.reading.paths import local_path
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.system.atomic_file import PartFile, write_all
from ffrecord.system.closing import SingleFileWriter
from ffrecord.system.values import as_bytes, check_offsets

LENGTH, WORD = struct.Struct("<Q"), struct.Struct("<I")
FLUSH_SIZE = 1 << 20  # bytes collected before they are written
WINDOW_BITS = {"gzip": 31, "zlib": 15}
LEVEL = 6


class TFRecordWriter(SingleFileWriter):
    """A writer of one TFRecord file. The file gets its name at `close`, when it is complete.

    As a context manager it closes at the end, or discards everything after an exception. One thread at a time may use
    it.

    Args:
        path: path of the file; an existing file stays as it is until it is replaced.
        compression: None, "gzip" or "zlib", for the file as a whole. A compressed file is read more slowly, most of all
            in random order.
        level: level of zlib, 0 to 9.

    Attributes:
        path: the argument.
        n: number of records written.

    Raises:
        ValueError: `compression` or `level`.
        OSError (also RuntimeError): the file cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        compression: Literal["gzip", "zlib"] | None = None,
        *,
        level: int = LEVEL,
    ) -> None:
        self._part: PartFile | None = None
        self.path, self.n = local_path("path", path), 0
        if compression is not None and compression not in WINDOW_BITS:
            raise ArgumentError(f"compression is {compression!r}, expected None, 'gzip' or 'zlib'")
        if not 0 <= level <= 9:
            raise ArgumentError(f"level is {level}, expected 0 to 9")
        self._packer = None if compression is None else zlib.compressobj(level, wbits=WINDOW_BITS[compression])
        self._pieces: list[bytes | memoryview] = []
        self._kept = self._offset = 0
        self._failure: Exception | None = None
        self._part = PartFile(self.path)

    def write(self, record: Any) -> None:
        """Append one record.

        Args:
            record: its bytes: anything with the buffer protocol.

        Raises:
            TypeError: `record` is not a buffer.
            OSError (also RuntimeError): the file cannot be written, and was discarded; later calls raise it again.
            RuntimeError: it is closed, or this is a fork of the process that opened it.
        """
        data = record if type(record) is bytes else as_bytes(record)
        self._check_open()
        length = LENGTH.pack(len(data))
        header = length + WORD.pack(mask(crc32c(length)))
        footer = WORD.pack(mask(crc32c(data)))
        # One piece for each small record keeps the list short.
        if len(data) < FLUSH_SIZE:
            self._keep(b"".join((header, data, footer)))
        else:
            for piece in (header, data, footer):
                self._keep(piece)
            self._flush()  # now: the caller may change this memory after the call
        self.n += 1

    def write_packed(self, data: Any, offsets: Any) -> None:
        """Append many records, with no Python object for each.

        Args:
            data: uint8, or any buffer.
            offsets: ints [k + 1]; record i is data[offsets[i]:offsets[i + 1]]. `read_packed` and `encode_batch` return
                both.

        Raises:
            ValueError: offsets descend or leave `data`; then none of the records was written.
            TypeError: offsets are not ints; the same.
            All others: see `write`.
        """
        piece, ends = as_bytes(data), np.ascontiguousarray(check_offsets(offsets), np.int64)
        self._check_open()
        if not len(ends) or (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > len(piece):
            raise ArgumentError(f"offsets must ascend within 0 .. {len(piece)}, the size of data")
        # Pieces of about FLUSH_SIZE, cut between records.
        cuts = np.flatnonzero(np.diff(ends[1:] // FLUSH_SIZE)) + 1 if len(ends) > 2 else np.empty(0, np.int64)
        for start, stop in pairwise([0, *cuts.tolist(), len(ends) - 1]):
            self._keep(_tfrecord.frame(piece, ends[start : stop + 1]))
            self.n += stop - start

    def _keep(self, piece: bytes | memoryview) -> None:
        if self._packer is not None:
            piece = self._packer.compress(piece)
        self._pieces.append(piece)
        self._kept += len(piece)
        if self._kept >= FLUSH_SIZE:
            self._flush()

    def _flush(self) -> None:
        part = self._check_open()
        # A large piece of `write_packed` is not copied.
        data = memoryview(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
        try:
            write_all(part.fd, data, self._offset)
        except OSError as error:
            before = plural(self.n, "record")
            what = f"writing {plural(len(data), 'byte')} at offset {self._offset}, after {before}"
            sentence = f"{self.path}: {what}, failed"
            self._failure = file_error(error.errno or errno.EIO, sentence, self.path)
            self._discard()
            raise self._failure from None
        self._offset += len(data)
        self._pieces, self._kept = [], 0

    def _check_open(self) -> PartFile:
        if self._failure is not None:
            raise self._failure
        if self._part is None:
            raise ClosedError(f"{type(self).__name__} has been closed. {self.path}")
        if not self._part.owned:
            raise StateError(f"{self.path} was opened by another process; a forked child cannot write to it")
        return self._part

    def close(self) -> None:
        """Make the file durable and give it its name. A second call does nothing.

        Raises:
            OSError (also RuntimeError): nothing was published.
        """
        # After a failure, `_check_open` raises it again.
        if self._part is None and self._failure is None:
            return
        part = self._check_open()
        if self._packer is not None:
            self._pieces.append(self._packer.flush())
        self._flush()
        try:
            part.publish()
        except OSError as error:
            self._failure = error
            raise
        finally:
            self._discard()

    def _discard(self) -> None:
        """Discard everything that is not published."""
        if self._part is not None:
            self._part.discard()
        self._part, self._pieces = None, []

    def _describe_unfinished(self) -> tuple[str, str] | None:
        return None if getattr(self, "_part", None) is None else (self.path, plural(self.n, "record"))

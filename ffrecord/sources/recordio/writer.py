"""A writer of RecordIO files of the PaddlePaddle family, which can also append."""

import errno
import gzip
import os
import warnings
from collections.abc import Iterable
from typing import Any, Literal, NoReturn

from ffrecord._crc import crc32, crc32c
from ffrecord.errors import ArgumentError, ClosedError, FormatError, StateError, escape_unprintable, file_error, plural
from ffrecord.reading.paths import PathLike, local_path
from ffrecord.sources.files import check_file
from ffrecord.sources.recordio import snappy
from ffrecord.sources.recordio.index import find_chunks, last_matches, torn_error
from ffrecord.sources.recordio.layout import COMPRESSORS, GZIP, LENGTH, NONE, SIZE_MOST, SNAPPY, Dialect, dialect_of
from ffrecord.system import filesystems, named_calls
from ffrecord.system.atomic_file import PartFile, write_all
from ffrecord.system.closing import SingleFileWriter
from ffrecord.system.sizes import Size, parse_size
from ffrecord.system.values import as_bytes, iterator_of

CHUNK_SIZE = 64 << 10
CHUNK_SIZE_MOST = 1 << 30
RECORDS_MOST = 1 << 20  # most records of a chunk: empty records would never fill it
COMPRESSED_MOST = 1 << 30  # most bytes of a payload before compression: readers accept no more by default
GZIP_LEVEL = 6


class RecordIOWriter(SingleFileWriter):
    """A writer of one RecordIO file.

    If a writer is killed while it creates a file, no reader sees the rest. If it is killed while it appends, a torn
    chunk may be left, which readers can skip and the next writer can cut off. An exception inside a `with` block
    discards everything since the last `flush`. Threads may share a writer only with a lock. The same records give the
    same bytes.

    Args:
        path: path of the file.
        dialect: "A", for pyrecordio 0.0.1 and 0.0.2, or "B", for pyrecordio 0.0.6 and the Go library. None for that of
            the file to append to, or "B".
        compressor: "none", "snappy" or "gzip". Records of uncompressed chunks can be read one by one.
        max_chunk_size: bytes, or text such as "1MB", of records in a chunk, 1 to 1 GiB; a larger record has a chunk of
            its own.
        mode: "create": the complete file gets its name when it is closed, and replaces an older one. "append": chunks
            are added to an existing file, none of whose bytes change.
        torn: what to do about a torn chunk at the end of the file to append to: "raise", or "cut" it off.

    Attributes:
        count: number of records written, without those that were there.

    Raises:
        ValueError, TypeError: an argument.
        FileNotFoundError, IsADirectoryError: there is no file to append to.
        FormatError: the file to append to is not RecordIO, or of another dialect.
        TruncatedError (a FormatError and an OSError): its last chunk is torn.
        OSError: the file cannot be written; EBUSY: another writer appends to it.
        ImportError: the package for the compressor is not installed.
    """

    _part: PartFile

    def __init__(
        self,
        path: PathLike,
        dialect: Literal["A", "B"] | None = None,
        *,
        compressor: Literal["none", "snappy", "gzip"] = "none",
        max_chunk_size: Size = CHUNK_SIZE,
        mode: Literal["create", "append"] = "create",
        torn: Literal["raise", "cut"] = "raise",
    ) -> None:
        self._open = False
        self._path = local_path("path", path)
        self._check_options(dialect, compressor, mode, torn)
        self._compressor = compressor
        self._chunk_size = parse_size("max_chunk_size", max_chunk_size)
        if self._chunk_size > CHUNK_SIZE_MOST:
            raise ArgumentError(f"max_chunk_size is {self._chunk_size}, expected 1 to {CHUNK_SIZE_MOST}")
        # A missing package must show now, not at the first chunk.
        if compressor == SNAPPY:
            snappy.codec()
        self.count = 0
        self._records: list[bytes] = []
        self._pending = 0  # bytes of `_records`
        self._appends = mode == "append"
        if self._appends:
            self._begin_append(dialect, torn == "cut")
        else:
            self._part, self._end, self._dialect = PartFile(self._path), 0, dialect_of(dialect or "B")
        self._safe_end = self._end  # everything before this offset is kept, also after an error
        self._open = True

    @staticmethod
    def _check_options(dialect: object, compressor: object, mode: object, torn: object) -> None:
        given = {"dialect": dialect, "compressor": compressor, "mode": mode, "torn": torn}
        allowed: dict[str, tuple[object, ...]] = {
            "dialect": ("A", "B", None),
            "compressor": COMPRESSORS,
            "mode": ("create", "append"),
            "torn": ("raise", "cut"),
        }
        for name, value in given.items():
            if value not in allowed[name]:
                raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(map(repr, allowed[name]))}")

    def _begin_append(self, dialect: str | None, cut: bool) -> None:
        check_file(self._path)
        # Links stay links: the file that they lead to gets the chunks.
        real = filesystems.real_path(self._path)
        self._part = PartFile(real, left=real)  # pyright: ignore[reportIncompatibleVariableOverride]
        try:
            self._dialect, self._end = self._look(dialect, cut)
            # New chunks must follow the last whole one.
            if os.fstat(self._part.fd).st_size > self._end:
                named_calls.ftruncate(self._part.fd, self._end)
        except BaseException:
            self._part.discard()
            raise

    def _look(self, dialect: str | None, cut: bool) -> tuple[Dialect, int]:
        """Return the dialect of the file to append to, and the end of its last whole chunk."""
        if os.fstat(self._part.fd).st_size == 0:
            return dialect_of(dialect or "B"), 0
        chunks = find_chunks(self._path)
        if chunks.torn is None and not last_matches(self._path, chunks):
            chunks = chunks.without_last()
        if chunks.torn is not None and not cut:
            raise torn_error(self._path, chunks.torn, "pass torn='cut' to cut it off")
        if not len(chunks.offsets):
            return dialect_of(dialect or "B"), 0
        if chunks.dialect.name not in ("A", "B") or dialect not in (None, chunks.dialect.name):
            wanted = f"dialect {dialect}" if dialect else "dialect A or B"
            raise FormatError(f"{self._path}: its chunks are of dialect {chunks.dialect.name}, expected {wanted}")
        return chunks.dialect, chunks.end

    @property
    def dialect(self) -> str:
        """The dialect of the file: "A" or "B"."""
        return self._dialect.name

    # Writing

    def write(self, record: Any) -> None:
        """Add one record.

        Args:
            record: anything with the buffer protocol, or an array; may be empty. At most 4 GiB less 5 bytes, or 1 GiB
                less 4 with a compressor; a larger one is not written.

        Raises:
            TypeError: it is not a buffer.
            ValueError: it is too large.
            RuntimeError (also ValueError): the writer is closed.
            RuntimeError (also AssertionError): it was opened by another process.
            OSError (also RuntimeError): the disk failed; nothing since the last `flush` is kept, and the writer is
                closed.
        """
        self._check_usable()
        # A copy, since the caller may change its memory before the chunk is full.
        data = record if type(record) is bytes else bytes(as_bytes(record))
        most = (SIZE_MOST if self._compressor == NONE else COMPRESSED_MOST) - LENGTH.size
        if len(data) > most:
            raise ArgumentError(
                f"{self._path}: record {self.count} has {plural(len(data), 'byte')}, expected at most {most}"
            )
        if self._records and (self._pending + len(data) > self._chunk_size or len(self._records) == RECORDS_MOST):
            self._write_chunk()
        self._records.append(data)
        self._pending += len(data)
        self.count += 1

    def write_many(self, records: Iterable[Any]) -> None:
        """Add records one after the other. Errors are those of `write`; records before the failed one are written."""
        for record in iterator_of("records", records, "buffers"):
            self.write(record)

    def flush(self) -> None:
        """Make a chunk of the records so far, and make all chunks durable.

        Appended records can be read from then on, and stay whatever happens. A file that is being created has no name
        yet.

        Raises:
            The exceptions of `write`.
        """
        self._check_usable()
        if self._records:
            self._write_chunk()
        try:
            named_calls.fsync(self._part.fd)
        except OSError as error:
            self._fail(error)
        # Not earlier: before fsync has returned, a crash may lose these chunks.
        self._safe_end = self._end

    def close(self) -> None:
        """Write the rest and make it durable.

        A file that is being created gets its name. A second call does nothing.

        Raises:
            The exceptions of `write`.
        """
        if not self._open:
            return
        self._check_usable()
        if self._records:
            self._write_chunk()
        try:
            self._part.publish()
        finally:
            self._open = False

    def _write_chunk(self) -> None:
        try:
            chunk = self._chunk()
            write_all(self._part.fd, memoryview(chunk), self._end)
        except OSError as error:
            self._fail(error)
        # A part of the chunk may be in the file, also after Ctrl+C.
        except BaseException:
            self._discard()
            raise
        self._end += len(chunk)
        self._records, self._pending = [], 0

    def _chunk(self) -> bytes:
        parts = [part for record in self._records for part in (LENGTH.pack(len(record)), record)]
        payload = self._compress(b"".join(parts))
        if len(payload) > SIZE_MOST:
            raise ArgumentError(
                f"{self._path}: a chunk has {plural(len(payload), 'byte')}, expected at most {SIZE_MOST}"
            )
        checksum = (crc32c if self._dialect.checksum_kind == "crc32c" else crc32)(payload)
        return self._dialect.header(len(self._records), checksum, self._compressor, len(payload)) + payload

    def _compress(self, payload: bytes) -> bytes:
        if self._compressor == GZIP:
            return gzip.compress(payload, GZIP_LEVEL, mtime=0)  # without a time, the same records make the same file
        return snappy.compress(payload, self._dialect.snappy) if self._compressor == SNAPPY else payload

    def _check_usable(self) -> None:
        if not self._open:
            raise ClosedError(f"{type(self).__name__} has been closed. {self._path}")
        if not self._part.owned:
            raise StateError(f"{self._path} was opened by another process; a forked child cannot write to it")

    # Failure and closing

    def _fail(self, error: OSError) -> NoReturn:
        """Discard the write after an error, and raise it."""
        self._discard()
        sentence = f"{self._path}: writing records up to {self.count - 1} failed"
        raise file_error(error.errno or errno.EIO, sentence, self._path) from None

    def _discard(self) -> None:
        """Discard everything that was not made safe."""
        if not self._open:
            return
        self._open = False
        # A forked child must not cut the file of its parent.
        if self._appends and self._part.owned:
            # If this fails, too, the file is as after a killed writer: with further chunks, the last one perhaps torn.
            try:
                named_calls.ftruncate(self._part.fd, self._safe_end)
            except OSError as error:
                told = f"{self._path}: the file could not be cut back to {plural(self._safe_end, 'byte')}: {error}"
                warnings.warn(escape_unprintable(told), stacklevel=3)
        self._part.discard()

    def _describe_unfinished(self) -> tuple[str, str] | None:
        return (self._path, plural(self.count, "record")) if getattr(self, "_open", False) else None

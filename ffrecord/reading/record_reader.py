"""Reader of records that the batch engine reads directly from their files, by a table of spans."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from errno import EAGAIN, ESTALE
from functools import partial
from types import MappingProxyType
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np

from ffrecord._crc import crc32
from ffrecord.engine import _engine
from ffrecord.engine._engine import Failure
from ffrecord.errors import (
    REOPEN,
    REPLACED,
    ArgumentError,
    ChecksumError,
    ClosedError,
    FormatError,
    TruncatedError,
    file_error,
    plural,
)
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.indices import SampleSlice, as_indices, as_int64
from ffrecord.reading.span_file import SpanFile, mapping_of
from ffrecord.reading.stats import ReadStats, collect
from ffrecord.reading.store import THREADS, Indices, OnError, Store, check_on_error
from ffrecord.system import resources
from ffrecord.system.closing import close_unless_done
from ffrecord.system.sample_types import Sample_co
from ffrecord.system.values import is_word


def failure_error(failure: Failure, file: Any, index: int, name: str) -> Exception:
    """Return the error of one failed record; it names file, index and numbers.

    Args:
        failure: the failure that the engine reported.
        file: the file of the record: an `OpenedFile`, a `SpanFile`, or an object with their attributes.
        index: index of the sample among all samples of the reader.
        name: name of the sample in the file, such as "sample 3".
    """
    path, size, offset, detail = file.path, failure.size, failure.offset, failure.detail
    where = f"{path}: {name}"
    if failure.status == "mismatch":
        return ChecksumError(
            f"Sample {index}: checksum mismatch: {where}: {file.checksum} {detail:#010x}, "
            f"stored {failure.stored:#010x} ({plural(size, 'byte')} at offset {offset})",
            path=path,
            index=index,
            stored=failure.stored,
            computed=detail,
        )
    if failure.status == "failed":
        # A page of a mapped index that is lost reads as zeros, and must not be blamed on the record.
        table = mapping_of(file.offsets) if isinstance(file, SpanFile) else None
        if table is not None and table.lost:
            index_path = getattr(table, "path", path)
            return file_error(detail, f"Sample {index}: {where}: a part of the index could not be read", index_path)
        sentence = f"Sample {index}: {where}: reading {plural(size, 'byte')} at offset {offset} failed"
        return file_error(detail, sentence, path, call="pread")
    if failure.status == "size":
        return FormatError(
            f"Sample {index}: {where}: {plural(size, 'byte')} at offset {offset}, expected {detail}, the size of every "
            "sample"
        )
    if failure.status == "span":
        # The offsets of this record contradict the file, so nothing was read.
        return FormatError(f"Sample {index}: {where}: {_describe_span(failure, file)}")
    if failure.status == "changed":
        # The file is shorter than it was at opening.
        return TruncatedError(f"Sample {index}: {where}: {_describe_truncation(failure, file)}")
    if failure.status == "replaced":
        # The descriptor was closed to save descriptors, and the path leads to another file now.
        return file_error(ESTALE, f"Sample {index}: {where}: {REPLACED}", path, REOPEN)
    return TruncatedError(f"Sample {index}: length {size} but read {detail} bytes. {where} at offset {offset}")


def _describe_span(failure: Failure, file: OpenedFile | SpanFile) -> str:
    if isinstance(file, SpanFile):
        found = f"{plural(failure.detail, 'byte')} at offset {failure.offset}"
        return f"{found}, expected a span within the file's {plural(file.size, 'byte')}"
    found = f"offsets {failure.offset} .. {failure.detail}"
    return f"{found}, expected ascending from {file.data_start} to at most {file.size}"


def _describe_truncation(failure: Failure, file: OpenedFile | SpanFile) -> str:
    tables = "" if isinstance(file, SpanFile) else f", {file.data_start} of them tables"
    return f"the file was cut to {plural(failure.detail, 'byte')}; it had {file.size} when it was opened{tables}"


T = TypeVar("T")
Read = tuple[Any, list[Failure]]

logger = logging.getLogger("ffrecord")


class RecordReader(Store[Sample_co]):
    """Reader of one or many files with tables of spans; the records share one numbering.

    Args:
        files: at least one open `SpanFile`, `OpenedFile` or object with their attributes. `close` closes them, and so
            does a constructor that raises.
        check_data: compare the checksum of every record, if the format has checksums.
        io: how to read. "auto" learns from batch to batch what is cached, and reads accordingly (see `stats`).
            "pread" makes one plain read after the other. "direct" bypasses the page cache with Linux AIO, where the
            file system allows it. "mmap" reads in place from files that were opened with whole=True.
        on_error, settings: see `Store`.
        engine: engine to use instead of the one for local files; `close` closes it.

    It holds at most 1,024 files open, or a quarter of the soft limit of descriptors if that is less. It opens other
    files when you read them.

    Subclasses may override `_record_name`, and the methods that `Store` names except `_load`. If you override
    `_read_sync`, override `_read_single` too.
    """

    __slots__ = ("_at_once", "_engine", "_files", "_fingerprint", "_io", "_item_at_once", "_warned")

    def __init__(
        self,
        files: Sequence[Any],
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        settings: Mapping[str, Any] = MappingProxyType({}),
        engine: Any = None,
    ) -> None:
        self._files: list[Any] = list(files)
        # The files were handed over: a constructor that raises must close them.
        with close_unless_done(self._files):
            check_io(io)
            check_on_error(on_error)
            # Not for other engines, whose files are no local ones.
            for file in self._files if engine is None else ():
                if io == "mmap" and file.whole is None and file.size > 0:
                    raise ArgumentError(
                        f"{file.path}: io is 'mmap', but the file was opened without whole=True; open it with that"
                    )
            self._engine: Any = engine or _engine.Files(self._files, io, resources.descriptors())
            paths, given = [file.path for file in files], {"io": io, **settings}
            super().__init__(paths, self._engine.n, check_data, on_error=on_error, settings=given)
        self._io = io
        # One attribute, so that a read asks no question about the kind of engine.
        self._at_once = self._item_at_once = _skip_at_once
        if isinstance(self._engine, _engine.Files):
            self._engine.checks = self._check_data
            # A subclass that changes the way of reading must not be passed by.
            if (
                type(self)._read_single is RecordReader._read_single
                and type(self)._read_sync is RecordReader._read_sync
            ):
                self._read_at_once()
        self._warned = False
        self._fingerprint: str | None = None

    # Properties

    @property
    def io(self) -> str:
        """Way of reading: "auto", "pread", "direct" or "mmap"."""
        return self._io

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return bool(self._engine.closed)

    def fingerprint(self) -> str:
        """Return 64 hexadecimal digits that identify these records, wherever the files are.

        They are the SHA-256 of the format, and of (records, size in bytes, CRC-32 of the table of spans and checksums)
        of each file in order, as little-endian int64. No record is read.
        """
        if self._fingerprint is None:
            # Size and CRC-32 of tables stand for the records, whose checksums are in these tables.
            numbers = [(file.n, file.size, _table_crc(file)) for file in self._files]
            # The format's name too: equal tables of another format are other samples.
            digest = hashlib.sha256(self.format.encode())
            # Little-endian, so that all machines agree.
            digest.update(np.array(numbers, "<i8").tobytes())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def _identity_text(self) -> str:
        # Without checksums, only the time of change shows that a file was written again.
        times = [file.mtime_ns for file in self._files if file.checksum is None]
        return f"{self.fingerprint()} {times}" if times else self.fingerprint()

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        """Return (path of its file, index in that file) of record `index`, -n <= index < n.

        Raises:
            IndexError: `index` is out of range.
        """
        number, local = self._engine.locate(self._normalize_index(index))
        return self._fnames[number], local

    def _describe_place(self, index: int) -> str:
        number, local = self._engine.locate(self._normalize_index(index))
        return f"{self._fnames[number]}: {self._record_name(number, local)}"

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> Indices:
        """Return the sizes of the records at `indices` in bytes: int64 [k].

        The sizes come from the tables and are not checked. Raises the same errors as `read`.
        """
        return self._call(self._engine.sizes, self._normalize_indices(indices))

    def stats(self) -> ReadStats:
        """Return the numbers of all reads so far: records, bytes, requests and ways to read.

        They count all threads, but no other processes. The call is cheap.
        """
        return collect(
            self._engine.counters(),
            batches=self._engine.batches,
            skipped=self.skipped,
            open_files=self._engine.open_files,
        )

    def close(self) -> None:
        """Close the files. A read in progress in another thread ends first; of URLs, it ends or fails within 2 s.

        Tables stay readable. You may call it again.
        """
        self._engine.close()

    # For subclasses

    def _record_name(self, file: int, local: int) -> str:
        """Return the name of record `local` of file number `file` for messages."""
        return f"sample {local}"

    # Batches, by the engine

    def read_one(self, index: SupportsIndex) -> Array:
        # A small cached record takes less than the setup of a batch; see docs/decisions/0007-auto-policy.md.
        found = self._at_once(index)
        return self._read_alone(index) if found is None else found

    @overload
    def __getitem__(self, index: SupportsIndex) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> SampleSlice: ...
    @overload
    def __getitem__(self, index: Iterable[SupportsIndex]) -> list[Array]: ...

    def __getitem__(self, index: Any) -> Any:
        found = self._item_at_once(index)
        if found is not None:
            return found
        if type(index) is int and self._item_at_once is not _skip_at_once:  # `read_one` would try it again
            return self._read_alone(index)
        return super().__getitem__(index)

    def _read_at_once(self) -> None:
        """Make `read_one` and indexing ask the engine for a small cached record first."""
        self._at_once = self._engine.read_at_once
        # A subclass that overrides `read_one` expects to be called.
        if type(self).read_one is RecordReader.read_one:
            self._item_at_once = self._at_once

    def _read_alone(self, index: SupportsIndex) -> Array:
        """Read one record that the engine could not read at once."""
        position = as_int64(index)
        found = self._read_single(position)
        if found is None:
            # Nothing was read: closed or out of range. The usual way raises the reason.
            return super().read_one(position)
        if isinstance(found, tuple):
            return self._get_only(self._outcome(found, np.array([position]), True))
        return found

    def _read_single(self, index: int) -> Array | Read | None:
        """Read record `index` without the overhead of a batch, which takes longer than reading one record.

        Returns:
            Its bytes; the failure that the engine reports; or None if nothing was read: then `_read_sync` raises the
            reason.
        """
        if not isinstance(self._engine, _engine.Files):
            return None
        if self._at_once is _skip_at_once:  # otherwise `read_at_once` was already tried
            single: Array | None = self._engine.read_at_once(index)
            if single is not None:
                return single
        # Of closed readers `_read_sync` has the better message.
        try:
            found = self._engine.read_one(index, self._check_data)
        except ClosedError:
            return None
        except MemoryError:
            # Not in a context manager, since a read takes no longer.
            with self._naming_memory_errors(np.array([index])):
                raise
        if self._engine.aio_error:
            self._warn_refusal()
        return found

    def _read_sync(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False
    ) -> BatchOutcome:
        positions = as_indices(indices)
        # `on_error` needs the good records too.
        go_on = go_on or self._on_error != "raise"
        read = self._call(self._engine.read, positions, self._check_data, go_on, form, out)
        return self._outcome(read, positions, go_on)

    def _begin(
        self,
        form: Form,
        indices: Iterable[SupportsIndex],
        out: Out = None,
        *,
        threads: int = THREADS,
        sequential: bool = False,
        go_on: bool = False,
    ) -> Callable[[], BatchOutcome]:
        positions = as_indices(indices).copy()  # the caller may change its array meanwhile
        go_on = go_on or self._on_error != "raise"
        begin: Callable[..., _engine.PendingBatch[Any]] = self._engine.read_ahead
        start = partial(self._call, begin, positions, self._check_data, go_on, form, out, threads, sequential)
        begun = start() if threads else None

        def wait() -> BatchOutcome:
            with self._naming_memory_errors(positions):
                # Without a thread, read only now: after an exception of a signal handler, it is read again.
                batch = begun or start()
                read = batch.result()
            # Closed during the read: its arrays may be incomplete.
            if self.closed:
                raise self._closed_error()
            # The parent's threads do not exist here, so read again.
            if read is None:  # it began before a fork, in a thread that only the parent has
                return self._read_sync(form, positions, out, go_on)
            self._warn_refusal()
            return self._outcome(read, positions, go_on)

        return wait

    @property
    def _sequence_form(self) -> str:
        return _engine.IN_TURN if isinstance(self._engine, _engine.Files) else _engine.ARRAYS

    def _load(self, positions: Indices) -> list[Array | Exception]:
        # `go_on`: each failure belongs to its own place.
        arrays, failures = self._read_sync(_engine.ARRAYS, positions, go_on=True)
        for place, error in failures:
            arrays[place] = error
        return arrays  # type: ignore[no-any-return]

    def _read_once(self, once: bool) -> None:
        if isinstance(self._engine, _engine.Files):
            self._engine.once = once

    def _sizes(self, positions: Indices) -> Indices:
        return self._call(self._engine.sizes, positions)

    def _call(self, begin: Callable[..., T], positions: Indices, *options: object) -> T:
        """Call a method of the engine and convert its errors."""
        try:
            result = begin(positions, *options)
        except ClosedError:
            raise self._closed_error() from None
        # The engine gives the place in the batch; the user knows the index.
        except IndexError as error:
            raise self._index_error(int(positions[error.args[0]])) from None
        except MemoryError:
            with self._naming_memory_errors(positions):
                raise
        self._warn_refusal()
        return result

    def _warn_refusal(self) -> None:
        # Once: the reason stays the same for all batches.
        if self._engine.aio_error and not self._warned:
            self._warned = True
            logger.warning(
                "Linux AIO was refused (%s%s); reading goes on without it", *_refusal(self._engine.aio_error)
            )

    def _outcome(self, read: Read, positions: Indices, every: bool) -> BatchOutcome:
        result, failures = read
        wanted = failures if every else failures[:1]  # building the messages of all may take seconds
        return BatchOutcome(result, [(failure.order, self._error(failure, positions)) for failure in wanted])

    def _error(self, failure: Failure, positions: Indices) -> Exception:
        index = int(positions[failure.order])
        # Negative indices count from the end; messages show the number.
        index += self.n if index < 0 else 0
        number, local = self._engine.locate(index)
        return failure_error(failure, self._files[number], index, self._record_name(number, local))


def _skip_at_once(index: object) -> Array | None:
    """Leave a record to `_read_alone`; it stands in for the engine's `read_at_once`."""
    return None


def check_io(io: object) -> None:
    """Raise ValueError unless `io` is a known way to read."""
    if not is_word(io, _engine.MODES):
        raise ArgumentError(f"io is {io!r}, expected one of {', '.join(_engine.MODES)}")


def _table_crc(file: SpanFile) -> int:
    value = 0
    for column in (file.offsets, file.sizes, file.checksums):
        if column is not None:
            # Missing columns are left out, as formats have them or not.
            value = crc32(column.data, value)
    return value


def _refusal(errno: int) -> tuple[str, str]:
    hint = "; the limit fs.aio-max-nr is used up" if errno == EAGAIN else ""
    return os.strerror(errno), hint

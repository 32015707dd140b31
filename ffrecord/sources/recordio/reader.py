"""Readers of RecordIO files of the PaddlePaddle family, in place; several files are one numbering of chunks."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, SupportsIndex

import numpy as np

from ffrecord.engine._engine import ARRAYS, PACKED, Failure, Slots
from ffrecord.errors import (
    ArgumentError,
    ChecksumError,
    FFRecordError,
    FormatError,
    SampleIndexError,
    name_files,
    plural,
)
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out
from ffrecord.reading.indices import as_int64
from ffrecord.reading.partition import Task
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import RecordReader, check_io, failure_error
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.stats import ReadStats
from ffrecord.reading.store import Indices, OnError, Store, check_on_error
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.recordio import _recordio, snappy
from ffrecord.sources.recordio.groups import Group, GroupBatch, Groups, decompress, join, locate
from ffrecord.sources.recordio.index import Chunks, TornChunk, last_matches, load_chunks, torn_error
from ffrecord.sources.recordio.layout import COMPRESSORS, EXPANSION, NONE, SNAPPY, Numbers, dialect_of
from ffrecord.sources.registry import SUFFIXES
from ffrecord.system.closing import open_all
from ffrecord.system.sizes import Size, parse_size
from ffrecord.system.threads import map_in_threads
from ffrecord.system.values import whole_number

NOTHING = np.empty(0, np.uint8)
GROUP = 8 << 20  # bytes of payloads that are read and expanded together
GROUP_EXPANDED = 1 << 30  # most bytes that a group can expand to; one chunk alone may have more
EXPANDED_MOST = 1 << 30  # most bytes that a chunk may expand to by default
THREADS = 16  # files scanned at once
KINDS = {"crc32": "CRC-32", "crc32c": "CRC-32C"}


class Unread(Exception):
    """A failure of the engine, until it is known which sample it concerns."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class _Spans(RecordReader):
    format = "recordio"

    def _error(self, failure: Failure, positions: Indices) -> Exception:
        return Unread(failure)


class ChunkTable:
    """All chunks of all files, each a number in [0, count).

    Args:
        paths, files, status: for each file its path, its chunks, and its status when those were found.
        check: compare checksums.
        io: way of reading.
        most: most bytes that a chunk may expand to.

    Attributes:
        count: number of chunks.
        first: int64 [count + 1], number of each chunk's first record among all.
        bounds: int64 [files + 1], number of each file's first record among all.
        payloads: reader of chunks as they are stored.
        known: bool [count], chunks whose single records `read_alone` can read: only some that are not compressed.
        once: whether every record is read once.
    """

    def __init__(
        self,
        paths: Sequence[str],
        files: Sequence[Chunks],
        status: Sequence[os.stat_result],
        *,
        check: bool,
        io: str,
        most: int,
    ) -> None:
        self._paths, self._files, self._check, self._most = paths, files, check, most
        self.once = False
        self._number_through()
        # Without uncompressed chunks, no record can ever be read alone.
        spans = [self._payload_spans, self._record_spans] if self._first_row[-1] else [self._payload_spans]
        readers = open_all(_Spans(open_all(begin(status, io == "mmap")), check, io=io) for begin in spans)
        self.payloads, self._records = readers[0], readers[-1]  # the same reader if no record can be read alone

    def _number_through(self) -> None:
        """Number the chunks and records of all files."""
        files = self._files
        self._first_of_file: Numbers = np.cumsum([0, *(len(each.offsets) for each in files)])
        self.count = int(self._first_of_file[-1])
        records: Numbers = np.concatenate([each.records for each in files])
        self._compressors: Numbers = np.concatenate([each.compressors for each in files])
        self._sizes: Numbers = np.concatenate([each.sizes for each in files])
        self.first: Numbers = np.cumsum(np.concatenate([[0], records]), dtype=np.int64)
        self.bounds: Numbers = self.first[self._first_of_file]
        raw = np.repeat([each.dialect.snappy == snappy.RAW for each in files], np.diff(self._first_of_file))
        self._raw = raw & (self._compressors == COMPRESSORS.index(SNAPPY))
        self.known = np.zeros(self.count, bool)
        # Only records that are not compressed have at least 4 bytes each in the file. For others, the number in the
        # header is not bounded by the file.
        plain = np.where(self._compressors == COMPRESSORS.index(NONE), records, 0)
        self._first_row: Numbers = np.cumsum(np.concatenate([[0], plain]), dtype=np.int64)

    def _payload_spans(self, status: Sequence[os.stat_result], whole: bool) -> Iterator[SpanFile]:
        for path, file, s in zip(self._paths, self._files, status, strict=True):
            kind = file.dialect.checksum_kind
            yield SpanFile(path, file.offsets, file.sizes, file.checksums, kind, whole=whole, status=s)

    def _record_spans(self, status: Sequence[os.stat_result], whole: bool) -> Iterator[SpanFile]:
        rows = self._first_row[self._first_of_file]
        n = int(rows[-1])
        # Filled as chunks are read; `known` tells which rows are filled. Memory of zeros takes no pages before it is
        # written to.
        self._table = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.uint32)
        offsets, sizes, checksums = self._table
        for path, low, high, s in zip(self._paths, rows[:-1], rows[1:], status, strict=True):
            columns = offsets[low:high], sizes[low:high], checksums[low:high]
            yield SpanFile(path, *columns, "crc32", whole=whole, status=s)

    def read_once(self, once: bool) -> None:
        """Set `once`."""
        self.once = once
        self.payloads._read_once(once)

    def close(self) -> None:
        """Close the files."""
        self.payloads.close()
        self._records.close()

    def stats(self) -> ReadStats:
        """Return the statistics of both readers in one."""
        done, alone = self.payloads.stats(), self._records.stats()
        if self._records is self.payloads or alone.batches == 0:
            return done
        return alone._replace(
            requests=done.requests + alone.requests,
            cached_bytes=done.cached_bytes + alone.cached_bytes,
            io_seconds=done.io_seconds + alone.io_seconds,
            crc_seconds=done.crc_seconds + alone.crc_seconds,
            waits=done.waits + alone.waits,
            open_files=done.open_files + alone.open_files,
        )

    def of_records(self, positions: Numbers) -> Numbers:
        """Return the chunk of each record."""
        return np.searchsorted(self.first, positions, "right") - 1

    def usual_sizes(self, positions: Numbers) -> Numbers:
        """Return the estimated bytes of records: an equal share of the chunk as it is stored."""
        chunks = self.of_records(positions)
        return self._sizes[chunks] // (self.first[chunks + 1] - self.first[chunks])

    def bytes_read(self, positions: Numbers) -> int:
        """Return the stored bytes of all chunks with some of these records."""
        return int(self._sizes[np.unique(self.of_records(positions))].sum())

    def count_undivided(self, positions: Numbers) -> int:
        """Return how many of the first records go up to the end of a chunk; all if they are in one chunk."""
        chunks = self.of_records(positions)
        ends = np.flatnonzero(np.diff(chunks)) + 1
        is_whole = positions[-1] + 1 == self.first[chunks[-1] + 1]
        return len(positions) if is_whole or not len(ends) else int(ends[-1])

    def cut(self, chunks: Numbers) -> list[Numbers]:
        """Split chunks into groups to read together: of about GROUP bytes, or one chunk."""
        sizes = self._sizes[chunks]
        # At most: the real sizes show only after decompression.
        expanded = np.minimum(sizes * EXPANSION[self._compressors[chunks]], self._most)
        # A group is full when it has enough stored bytes, or might expand to too many.
        shares = np.maximum(sizes / GROUP, expanded / GROUP_EXPANDED)
        return np.split(chunks, np.flatnonzero(np.diff(np.cumsum(shares) // 1)) + 1)

    # Reading

    def read_alone(self, form: Form, positions: Indices, chunks: Numbers, out: Out = None) -> BatchOutcome:
        """Read records one by one; `known` must be set for their `chunks`."""
        rows = self._first_row[chunks] + positions - self.first[chunks]
        result, failures = self._records._read_sync(form, rows, out, go_on=True)
        return BatchOutcome(result, [(i, self._record_error(error, int(positions[i]))) for i, error in failures])

    def read(self, chunks: Numbers) -> Group:
        """Read chunks, decompress them, and find their records.

        Raises:
            ImportError: a library is missing.
            MemoryError.
        """
        (data, bounds), failed = self.payloads._read_sync(PACKED, chunks, go_on=True)
        failures = {int(chunks[place]): error for place, error in failed}
        starts, ends = bounds[:-1], bounds[1:]
        compressed = bool(self._compressors[chunks].any())
        if compressed:
            data, starts, ends = self._expand_all(chunks, data, starts, ends, failures)
        group = locate(chunks, self.first[chunks + 1] - self.first[chunks], data, starts, ends, failures)
        # If each record is read once, nobody will read it alone later.
        if not (compressed or self.once):
            self._note(group, starts[np.searchsorted(chunks, group.chunks)])
        return group._replace(passing=self.once or not compressed)

    def _expand_all(
        self, chunks: Numbers, data: Array, starts: Numbers, ends: Numbers, failures: dict[int, Exception]
    ) -> tuple[Array, Numbers, Numbers]:
        """Return the decompressed payloads: (data, starts, ends).

        Payloads with an entry in `failures`, old or new, are empty.
        """
        if self._raw[chunks].all() and not failures:
            # Chunks of pyrecordio have 1 KiB: decompress them together, since the work for each chunk counts.
            data, bounds, wrong = snappy.expand_pieces(data, starts, ends, self._most)
            failures.update((int(chunks[i]), error) for i, error in wrong.items())
            return data, bounds[:-1], bounds[1:]
        places = zip(chunks.tolist(), starts.tolist(), ends.tolist(), strict=True)
        return join([self._expand(chunk, data[start:end], failures) for chunk, start, end in places])

    def _expand(self, chunk: int, payload: Array, failures: dict[int, Exception]) -> Array:
        if chunk in failures:
            return NOTHING
        dialect = self._files[self._file(chunk)].dialect
        try:
            return decompress(payload, COMPRESSORS[self._compressors[chunk]], dialect.snappy, self._most, self._check)
        except FFRecordError as error:
            failures[chunk] = error
            return NOTHING

    def _note(self, group: Group, starts: Numbers) -> None:
        """Note positions and checksums of the records of uncompressed chunks, so that they can be read alone."""
        offsets, sizes, checksums = self._table
        places = self._payload_offsets(group.chunks) - starts
        rows = np.repeat(self._first_row[group.chunks] - group.first[:-1], np.diff(group.first))
        rows += np.arange(len(group.sizes))
        offsets[rows] = group.offsets + np.repeat(places, np.diff(group.first))
        sizes[rows] = group.sizes
        if self._check:
            checksums[rows] = _recordio.checksums(group.data, group.offsets, group.sizes)
        self.known[group.chunks] = True  # last: other threads use the rows as soon as this is set

    def _payload_offsets(self, chunks: Numbers) -> Numbers:
        files = np.searchsorted(self._first_of_file, chunks, "right") - 1
        found = np.empty(len(chunks), np.int64)
        for file in np.unique(files).tolist():
            mine = files == file
            found[mine] = self._files[file].offsets[chunks[mine] - self._first_of_file[file]]
        return found

    def _file(self, chunk: int) -> int:
        return int(np.searchsorted(self._first_of_file, chunk, "right")) - 1

    # Errors

    def _record_error(self, reason: Exception, index: int) -> Exception:
        """Return the error for record `index`, which was read alone."""
        if not isinstance(reason, Unread):
            return reason
        file = int(np.searchsorted(self.bounds, index, "right")) - 1
        name = f"record {index - int(self.bounds[file])}"
        return failure_error(reason.failure, self._records._files[file], index, name)

    def error(self, reason: Exception, chunk: int, index: int) -> Exception:
        """Return the error for record `index`, whose chunk failed."""
        file = self._file(chunk)
        local, path = chunk - int(self._first_of_file[file]), self._paths[file]
        if isinstance(reason, Unread):
            return failure_error(reason.failure, self.payloads._files[file], index, f"chunk {local}")
        offset = self._files[file].offsets[local]
        sentence = (
            f"Sample {index}: {path}: chunk {local}, {plural(self._sizes[chunk], 'byte')} at offset {offset}: {reason}"
        )
        if isinstance(reason, ChecksumError):
            return ChecksumError(sentence, path=path, index=index, stored=reason.stored, computed=reason.computed)
        return FormatError(sentence)


class RecordIOReader(Store):
    """Records of one or many RecordIO files, numbered through.

    Opening reads 20 bytes of each chunk, and the first chunk to find the dialect. A chunk is read, compared with its
    checksum, and expanded as a whole. The last chunks are kept, 64 MiB in all, or one if it is larger.

    After an uncompressed chunk was read, the positions and CRC-32 of its records are known, and they are read alone
    from then on. Of such chunks, only those of the last two batches are kept.

    Args:
        source: a file with any name; a directory, whose `*.recordio` and `*.rio` are read in string order; a glob
            pattern; or a list or tuple of these.
        check_data: compare the checksum of every chunk when it is read, and that of each block of framed snappy.
        io, on_error: see `FileReader`.
        index_cache: place to keep the positions of chunks: True for beside the files, or a directory.
        dialect: "A", "B" or "C", for files that are too damaged to tell; None to find it out for each file.
        on_torn: what to do about a chunk at the end of a file that its writer did not finish: "raise" when the file is
            opened, or "skip" it. If the last chunk has all its bytes, only its checksum shows damage: "raise" finds
            that when the chunk is read, "skip" when the file is opened. A damaged size looks torn, too: so if whole
            chunks follow, or eight places that look like chunks, the file is damaged, and nothing is skipped.
        expanded_most: most bytes that a chunk may expand to, > 0; and no more than its compression can make of it.

    Attributes:
        torn: path → the skipped chunk, a `TornChunk`.
        dialects: "A", "B" or "C" for each file.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError, TypeError: an argument.
        FormatError: a file is not RecordIO, or damaged between chunks.
        TruncatedError (a FormatError and an OSError): a file ends in a torn chunk.
        OSError: reading failed.
    """

    __slots__ = ("_groups", "_table", "dialects", "torn")
    format = "recordio"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        dialect: Literal["A", "B", "C"] | None = None,
        on_torn: Literal["raise", "skip"] = "raise",
        expanded_most: Size = EXPANDED_MOST,
    ) -> None:
        check_io(io)
        check_on_error(on_error)
        _check_options(dialect, on_torn)
        most, check = parse_size("expanded_most", expanded_most), bool(check_data)
        settings: dict[str, Any] = {"io": io, "index_cache": index_cache, "dialect": dialect, "on_torn": on_torn}
        settings["expanded_most"] = most
        fnames = expand(source, SUFFIXES["recordio"])
        look = partial(_look, index_cache=index_cache, dialect=dialect, skip=on_torn == "skip", check=check)
        files, status = zip(*map_in_threads(look, fnames, THREADS), strict=True)
        self._describe(fnames, files)
        self._table = ChunkTable(fnames, files, status, check=check, io=io, most=most)
        self._groups = Groups(self._table.count, self._table.read, self._table.cut)
        super().__init__(fnames, int(self._table.bounds[-1]), check_data, on_error=on_error, settings=settings)

    def _describe(self, fnames: Sequence[str], files: Sequence[Chunks]) -> None:
        named = zip(fnames, files, strict=True)
        self.torn: dict[str, TornChunk] = {path: each.torn for path, each in named if each.torn is not None}
        self.dialects: list[str] = [each.dialect.name for each in files]
        kinds = {each.dialect.checksum_kind for each in files}
        self.checksum = " or ".join(KINDS[kind] for kind in sorted(kinds))

    # Properties

    @property
    def io(self) -> str:
        """The way of reading: "auto", "pread", "direct" or "mmap"."""
        return str(self._settings["io"])

    @property
    def chunks(self) -> int:
        """Number of chunks in all files."""
        return self._table.count

    def fingerprint(self) -> str:
        """Return a hash that identifies these records, wherever the files are: 64 hexadecimal digits.

        It covers the positions and checksums of chunks, and reads nothing.
        """
        return self._table.payloads.fingerprint()

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        """Return (path of its file, its number there) for record `index`, -n <= index < n.

        Raises:
            IndexError: out of range.
        """
        position = self._normalize_index(index)
        file = int(np.searchsorted(self._table.bounds, position, "right")) - 1
        return self._fnames[file], position - int(self._table.bounds[file])

    # Names of pyrecordio

    def count(self) -> int:
        """Return the number of records; the same as `len`."""
        return self.n

    def get(self, index: SupportsIndex) -> bytes:
        """Return record `index` as bytes. For arguments and errors see `read_one`."""
        return self.read_one(index).tobytes()

    def get_reader(self, start: SupportsIndex = 0, end: SupportsIndex | None = None) -> Iterator[bytes]:
        """Return an iterator over the records from `start` up to, not including, `end`; None for all that follow.

        A range that goes beyond the last record ends there, as in slices and in pyrecordio.

        Raises:
            IndexError: a number is negative. While iterating: the exceptions of `read`.
        """
        low, high = as_int64(start), self.n if end is None else as_int64(end)
        if min(low, high) < 0:
            raise SampleIndexError(f"range is {low} .. {high}, expected numbers >= 0: {name_files(self.fnames)}")
        return (record.tobytes() for record in self[low:high])

    def tasks(self, samples: SupportsIndex) -> list[Task]:
        """Split the files into tasks for many processes or machines: every record is in exactly one.

        Args:
            samples: most samples of a task, > 0; each file ends with a task of the rest.

        Returns:
            (path, start, stop) for each task. `RecordIOReader(path).read_range(start, stop)` reads only the chunks of
            its records.

        Raises:
            ValueError, TypeError: `samples` is not positive, or no int.
        """
        size = whole_number("samples", samples)
        if size <= 0:
            raise ArgumentError(f"samples is {size}, expected > 0")
        return [
            Task(path, start, min(start + size, count))
            for path, count in zip(self._fnames, np.diff(self._table.bounds).tolist(), strict=True)
            for start in range(0, count, size)
        ]

    def stats(self) -> ReadStats:
        """Return statistics of all reads so far, by all threads, but not by other processes. Cheap.

        Batches, records and bytes are the delivered ones; requests, times and cached bytes include those of whole
        chunks.
        """
        done = super().stats()
        return self._table.stats()._replace(
            batches=done.batches, records=done.records, bytes=done.bytes, skipped=done.skipped
        )

    def validate(self) -> None:
        """Read every chunk, and check that it has as many records as its header says, which no checksum covers.

        Raises:
            ChecksumError, FormatError, OSError: the first chunk that is wrong.
        """
        if self.closed:
            raise self._closed_error()
        for piece in self._table.cut(np.arange(self._table.count)) if self._table.count else []:
            failures = self._table.read(piece).failures
            for chunk in sorted(failures):
                raise self._table.error(failures[chunk], chunk, int(self._table.first[chunk]))

    # Reading

    def _load(self, positions: Indices) -> list[Array | Exception]:
        arrays, failures = self._load_batch(ARRAYS, positions, None)
        for place, error in failures:
            arrays[place] = error
        return arrays  # type: ignore[no-any-return]

    def _load_batch(self, form: Form, positions: Indices, out: Out) -> BatchOutcome:
        table, groups = self._table, self._groups
        # A single record of a kept chunk needs none of the arrays below.
        if len(positions) == 1 and form == ARRAYS:
            record = self._kept_record(int(positions[0]))
            if record is not None:
                return BatchOutcome([record], [])
        chunks = table.of_records(positions)
        # Records of a kept chunk come from memory: in sequential reading, the disk is not read a second time.
        if table.known[chunks].all() and not groups.keeps(chunks):
            return table.read_alone(form, positions, chunks, out)
        # `GroupBatch` does not have this form.
        if isinstance(form, Slots):
            return super()._load_batch(form, positions, out)
        batch = GroupBatch(form, len(positions), views=table.once)
        have, missing = groups.find(np.unique(chunks))
        known = table.known[missing]  # one snapshot for both uses below: other threads may set more meanwhile
        if known.any():
            places = np.flatnonzero(np.isin(chunks, missing[known]))
            batch.add_read(places, table.read_alone(form, positions[places], chunks[places]))
        for group in have:
            self._add(batch, group, positions, chunks)
        for group in groups.take(missing[~known]):
            self._add(batch, group, positions, chunks)
        return batch.outcome(out)

    def _kept_record(self, position: int) -> Array | None:
        """Return one record if its chunk is kept, else None."""
        first = self._table.first
        chunk = int(first.searchsorted(position, "right")) - 1
        found = self._groups.find_one(chunk)
        if found is None:
            return None
        group, place = found
        row = int(group.first[place]) + position - int(first[chunk])
        start = int(group.offsets[row])
        record = group.data[start : start + int(group.sizes[row])]
        # A copy, since the group serves other reads, too.
        return record if self._table.once else record.copy()

    def _add(self, batch: GroupBatch, group: Group, positions: Indices, chunks: Numbers) -> None:
        slots = group.slots(chunks)
        places = np.flatnonzero((slots >= 0) & batch.missing)  # `missing`, since two groups may have the same chunk
        rows = group.first[slots[places]] + positions[places] - self._table.first[chunks[places]]
        batch.add(group, places, rows)
        for chunk, reason in group.failures.items():
            for place in np.flatnonzero((chunks == chunk) & batch.missing).tolist():
                batch.fail(place, self._table.error(reason, chunk, int(positions[place])))

    def _sizes(self, positions: Indices) -> Indices:
        return self._table.usual_sizes(positions)

    def _read_once(self, once: bool) -> None:
        self._table.read_once(once)

    def _bytes_read(self, positions: Indices) -> int:
        return self._table.bytes_read(positions)

    def _count_undivided(self, positions: Indices) -> int:
        return self._table.count_undivided(positions)

    # Closing and pickling

    def _release(self) -> None:
        self._table.close()
        self._groups.clear()


def _check_options(dialect: str | None, on_torn: str) -> None:
    if on_torn not in ("raise", "skip"):
        raise ArgumentError(f"on_torn is {on_torn!r}, expected 'raise' or 'skip'")
    if dialect is not None:
        dialect_of(dialect)


def _look(
    path: str, *, index_cache: IndexCache, dialect: str | None, skip: bool, check: bool
) -> tuple[Chunks, os.stat_result]:
    """Return the chunks of a file to read, and the status of the file when they were found."""
    status = os.stat(path)
    chunks = load_chunks(path, dialect, index_cache)
    # If all bytes of the last chunk are there, only its checksum tells whether they were written.
    if skip and check and chunks.torn is None and not last_matches(path, chunks):
        chunks = chunks.without_last()
    if chunks.torn is not None and not skip:
        raise torn_error(path, chunks.torn)
    return chunks, status

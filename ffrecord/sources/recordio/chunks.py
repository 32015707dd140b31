"""The chunks of several RecordIO files in one numbering: reading, decompression, and their records."""

import os
from collections.abc import Iterator, Sequence

import numpy as np

from ffrecord.engine._engine import PACKED, Failure
from ffrecord.errors import ChecksumError, FFRecordError, FormatError, plural
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out
from ffrecord.reading.record_reader import RecordReader, failure_error
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.stats import ReadStats
from ffrecord.reading.store import Indices
from ffrecord.sources.recordio import _recordio, snappy
from ffrecord.sources.recordio.groups import Group, expand, join, locate
from ffrecord.sources.recordio.index import Chunks
from ffrecord.sources.recordio.layout import COMPRESSORS, EXPANSION, NONE, SNAPPY, Numbers
from ffrecord.system.closing import open_all

NOTHING = np.empty(0, np.uint8)
GROUP = 8 << 20  # bytes of payloads that are read and expanded together
GROUP_EXPANDED = 1 << 30  # most bytes that a group can expand to; one chunk alone may have more


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
            return expand(payload, COMPRESSORS[self._compressors[chunk]], dialect.snappy, self._most, self._check)
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

"""The chunks of several RecordIO files, numbered through: read, expanded, and their records found."""

import os
from collections.abc import Sequence

import numpy as np

from ffrecord import _recordio
from ffrecord._engine import PACKED, Failure
from ffrecord.errors import ChecksumError, FFRecordError, FormatError
from ffrecord.failures import failure_error
from ffrecord.forms import Array
from ffrecord.read_stats import ReadStats
from ffrecord.record_reader import RecordReader
from ffrecord.sources import snappy
from ffrecord.sources.recordio_format import COMPRESSORS, EXPANSION, NONE, SNAPPY, Numbers
from ffrecord.sources.recordio_groups import Group, expand, join, locate
from ffrecord.sources.recordio_index import Chunks
from ffrecord.span_file import SpanFile
from ffrecord.store import Indices

NOTHING = np.empty(0, np.uint8)
GROUP = 32 << 20  # bytes of payloads that are read and expanded together
GROUP_EXPANDED = 1 << 30  # that they can expand to at most; one chunk alone may have more


class Unread(Exception):
    """What the engine says of a payload, until it is known which record that is for."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class _Payloads(RecordReader):
    format = "recordio"

    def _error(self, failure: Failure, positions: Indices) -> Exception:
        return Unread(failure)


class _Records(RecordReader):
    format = "recordio"

    def _record_name(self, file: int, local: int) -> str:
        return f"record {local}"


class ChunkTable:
    """All chunks, each a number in [0, count).

    Args:
        paths, files, status: of each file its name, its chunks, and what it was when those were found.
        check: compare checksums.
        io: how to read.
        most: bytes that a chunk may expand to.

    Attributes:
        count: number of chunks.
        first: int64 [count + 1], the number of each chunk's first record among all.
        bounds: int64 [files + 1], the same of each file.
        payloads: reads chunks as they are stored.
        records: reads single records of chunks that are not compressed; None if all are.
        known: bool [count], of which chunks it can.
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
        self._first_of_file: Numbers = np.cumsum([0, *(len(each.offsets) for each in files)])
        self.count = int(self._first_of_file[-1])
        self.first: Numbers = np.cumsum(np.concatenate([[0], *(each.records for each in files)]), dtype=np.int64)
        self.bounds: Numbers = self.first[self._first_of_file]
        self._compressors: Numbers = np.concatenate([each.compressors for each in files])
        raw = np.repeat([each.dialect.snappy == snappy.RAW for each in files], np.diff(self._first_of_file))
        self._raw = raw & (self._compressors == COMPRESSORS.index(SNAPPY))
        self._sizes: Numbers = np.concatenate([each.sizes for each in files])
        self.known = np.zeros(self.count, bool)
        whole = io == "mmap"
        self.payloads = _Payloads(
            [
                SpanFile(path, f.offsets, f.sizes, f.checksums, f.dialect.checksum_kind, whole=whole, status=s)
                for path, f, s in zip(paths, files, status, strict=True)
            ],
            check,
            io=io,
        )
        self.records: _Records | None = None
        if (self._compressors == COMPRESSORS.index(NONE)).any():
            self.records = self._open_records(status, check, io)

    def _open_records(self, status: Sequence[os.stat_result], check: bool, io: str) -> _Records:
        n = int(self.first[-1])
        # Filled as chunks are read; what is not is not asked for. Memory of zeros is not there before it is written to.
        self._table = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.uint32)
        offsets, sizes, checksums = self._table
        spans = []
        for path, low, high, s in zip(self._paths, self.bounds[:-1], self.bounds[1:], status, strict=True):
            columns = offsets[low:high], sizes[low:high], checksums[low:high]
            spans.append(SpanFile(path, *columns, "crc32", whole=io == "mmap", status=s))
        return _Records(spans, check, io=io)

    def close(self) -> None:
        """Close the files."""
        self.payloads.close()
        if self.records is not None:
            self.records.close()

    def stats(self) -> ReadStats:
        """What both readers have done, in one."""
        done = self.payloads.stats()
        if self.records is None or self.records.stats().batches == 0:
            return done
        alone = self.records.stats()
        return alone._replace(
            requests=done.requests + alone.requests,
            cached_bytes=done.cached_bytes + alone.cached_bytes,
            io_seconds=done.io_seconds + alone.io_seconds,
            crc_seconds=done.crc_seconds + alone.crc_seconds,
            waits=done.waits + alone.waits,
            open_files=done.open_files + alone.open_files,
        )

    def of_records(self, positions: Numbers) -> Numbers:
        """The chunk that each record is in."""
        return np.searchsorted(self.first, positions, "right") - 1

    def usual_sizes(self, positions: Numbers) -> Numbers:
        """Bytes of records, as if all those of a chunk had the same, and it were not compressed."""
        chunks = self.of_records(positions)
        return self._sizes[chunks] // (self.first[chunks + 1] - self.first[chunks])

    def cut(self, chunks: Numbers) -> list[Numbers]:
        """Chunks in pieces to be read together: of about GROUP bytes, or one."""
        sizes = self._sizes[chunks]
        expanded = np.minimum(sizes * EXPANSION[self._compressors[chunks]], self._most)
        shares = np.maximum(sizes / GROUP, expanded / GROUP_EXPANDED)
        return np.split(chunks, np.flatnonzero(np.diff(np.cumsum(shares) // 1)) + 1)

    # Reading

    def read(self, chunks: Numbers) -> Group:
        """Read chunks, expand them, and find their records.

        Raises:
            ImportError: a library is missing.
            MemoryError.
        """
        (data, bounds), failed = self.payloads._now(PACKED, chunks, go_on=True)
        failures = {int(chunks[place]): error for place, error in failed}
        starts, ends = bounds[:-1], bounds[1:]
        compressed = bool(self._compressors[chunks].any())
        if compressed:
            data, starts, ends = self._expanded(chunks, data, starts, ends, failures)
        group = locate(chunks, self.first[chunks + 1] - self.first[chunks], data, starts, ends, failures)
        if not compressed:
            self._note(group, starts[np.searchsorted(chunks, group.chunks)])
        return group

    def _expanded(
        self, chunks: Numbers, data: Array, starts: Numbers, ends: Numbers, failures: dict[int, Exception]
    ) -> tuple[Array, Numbers, Numbers]:
        """What payloads expand to: (data, starts, ends); those that are in `failures`, or come there, are empty."""
        if self._raw[chunks].all() and not failures:
            # Chunks of pyrecordio have 1 KiB: what is done for each of them counts.
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
        """Know the records of chunks that are not compressed by place and checksum."""
        offsets, sizes, checksums = self._table
        places = self._payload_offsets(group.chunks) - starts
        rows = np.repeat(self.first[group.chunks] - group.first[:-1], np.diff(group.first)) + np.arange(
            len(group.sizes)
        )
        offsets[rows] = group.offsets + np.repeat(places, np.diff(group.first))
        sizes[rows] = group.sizes
        if self._check:
            checksums[rows] = _recordio.checksums(group.data, group.offsets, group.sizes)
        self.known[group.chunks] = True  # last: other threads go by it

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

    def error(self, reason: Exception, chunk: int, index: int) -> Exception:
        """Why record `index` cannot be had, because its chunk cannot."""
        file = self._file(chunk)
        local, path = chunk - int(self._first_of_file[file]), self._paths[file]
        if isinstance(reason, Unread):
            return failure_error(reason.failure, self.payloads._files[file], index, f"chunk {local}")
        offset = self._files[file].offsets[local]
        sentence = f"Sample {index}: {path}: chunk {local}, {self._sizes[chunk]} bytes at offset {offset}: {reason}"
        if isinstance(reason, ChecksumError):
            return ChecksumError(sentence, path=path, index=index, stored=reason.stored, computed=reason.computed)
        return FormatError(sentence)

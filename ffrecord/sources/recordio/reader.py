"""Readers of RecordIO files of the PaddlePaddle family, in place."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, SupportsIndex

import numpy as np

from ffrecord.engine._engine import ARRAYS, Slots
from ffrecord.errors import ArgumentError, SampleIndexError, name_files
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out
from ffrecord.reading.indices import as_int64
from ffrecord.reading.partition import Task
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import check_io
from ffrecord.reading.stats import ReadStats
from ffrecord.reading.store import Indices, OnError, Store, check_on_error
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.recordio.chunks import ChunkTable
from ffrecord.sources.recordio.groups import Group, GroupBatch, Groups
from ffrecord.sources.recordio.index import Chunks, TornChunk, last_matches, load_chunks, torn_error
from ffrecord.sources.recordio.layout import Numbers, dialect_of
from ffrecord.sources.registry import SUFFIXES
from ffrecord.system.sizes import Size, parse_size
from ffrecord.system.threads import map_in_threads
from ffrecord.system.values import whole_number

EXPANDED_MOST = 1 << 30  # most bytes that a chunk may expand to by default
THREADS = 16  # files scanned at once
KINDS = {"crc32": "CRC-32", "crc32c": "CRC-32C"}


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

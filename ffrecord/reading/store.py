"""The record store: records by index, in batches, ahead and in sequence, from whatever file they lie in."""

import hashlib
import logging
import operator
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import ARRAYS, CHECKED, PACKED, Slots
from ffrecord.errors import (
    ArgumentError,
    ClosedError,
    FFRecordError,
    FormatError,
    MissingFileError,
    MissingNamesError,
    SampleIndexError,
    counted,
    of_files,
)
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Instead, Out, Packed, delivered, without
from ffrecord.reading.indices import as_indices, as_int64
from ffrecord.reading.prefetch import Prefetcher
from ffrecord.reading.python_engine import Background
from ffrecord.reading.sample_slice import SampleSlice
from ffrecord.reading.stats import ReadStats, collect
from ffrecord.system.buffers import as_bytes
from ffrecord.system.sample_types import UNTOLD, Sample_co

__all__ = [
    "SKIPPED_MOST",
    "THREADS",
    "Indices",
    "OnError",
    "SlotList",
    "Store",
    "check_on_error",
]

OnError = str | Callable[[Exception], Array]
Indices = npt.NDArray[np.int64]
T = TypeVar("T")

CHUNK_BYTES = 4 << 20  # iteration reads about this much at a time
CHUNK_MOST = 8192
USUAL_SIZE = 64 << 10  # bytes that a record has as long as nobody knows
THREADS = 4  # that read ahead
SKIPPED_MOST = 10_000  # samples of one reader; a dataset with more of them bad is to be mended, not trained on

INDEX = re.compile(r"Sample \d+: ")  # in the message of an error

logger = logging.getLogger("ffrecord")


AT_ONCE = 256  # records that are read for their sizes alone
SlotList = Sequence[tuple[int, int]]  # (offset, size) of pieces of a record, bytes
S = TypeVar("S", bound="Store[Any]")


class Store(ABC, Generic[Sample_co]):
    """Records of one or many files, numbered through.

    A format whose records lie in its files as they are is a `RecordReader`. Any other subclasses this, gives `_load`.

    Args:
        fnames: the files, one at least.
        n: number of records in all of them.
        check_data: compare checksums, where the format has some.
        on_error: what a record that cannot be read does to `read` and `read_packed`: "raise"; "skip", left out and
            counted in `skipped`; or a callable that gets the exception and returns the bytes to use instead, as a
            buffer or array. Each is logged, and after SKIPPED_MOST of them the next one raises.

    Attributes:
        format: its name.
        checksum: what guards each record when it is read: "CRC-32", "CRC-32C", or None where the format has none.
        skipped: records left out or replaced by `on_error` so far.

    A store may be shared by threads, forked at any time, and pickled: by name, it opens its files again.

    For type checkers it is one of samples of a type, any unless told: `store: Store[Picture] = ffrecord.open(path)`.

    For subclasses to override: `_load` (needed); `_release`, `_decode`, `_varies`, `_sizes`, `_source`, `_options`,
    `fingerprint`, `keys`.
    """

    __slots__ = ("__dict__", "__weakref__", "_background", "_check_data", "_fnames", "_n", "_on_error", "skipped")
    __orig_class__ = UNTOLD

    format: ClassVar[str]
    checksum: str | None = None
    _as_opened: str | None = None

    def __init__(
        self, fnames: Sequence[str], n: int, check_data: object = True, *, on_error: OnError = "raise"
    ) -> None:
        check_on_error(on_error)
        if not fnames:
            raise ArgumentError("no files, expected one at least")
        self._fnames, self._n = list(fnames), n
        self._check_data = bool(check_data)
        self._on_error = on_error
        self._background = Background(self._release)
        self.skipped = 0
        if type(self).fingerprint is Store.fingerprint:  # the files may be others when it is asked for
            self._as_opened = self._of_files()

    # What it is

    @property
    def n(self) -> int:
        """Number of records in all files."""
        return self._n

    @property
    def fnames(self) -> list[str]:
        """The files, as given or found."""
        return list(self._fnames)

    @property
    def check_data(self) -> bool:
        """Whether checksums are compared."""
        return self._check_data

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._background.closed

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        more = " …" if len(self._fnames) > 1 else ""
        files = f"{counted(len(self._fnames), 'file')}, {self._fnames[0]!r}{more}"
        return f"<{type(self).__name__} of {counted(self.n, 'sample')} in {files}{state}>"

    def keys(self) -> Sequence[str]:
        """The name of each record, in order, where the format has names.

        Raises:
            MissingNamesError: it has none.
        """
        raise MissingNamesError(f"{of_files(self._fnames)}: records of {self.format} have no names, only indices")

    def fingerprint(self) -> str:
        """What tells these records from others: 64 hexadecimal digits.

        SHA-256 of format, number of records, and size and time of change that each file had when it was opened, if not
        overridden.

        Raises:
            FileNotFoundError: a file was not there.
        """
        if self._as_opened is None:
            raise MissingFileError(2, f"{of_files(self._fnames)}: a file was not there when the store was opened")
        return self._as_opened

    def _of_files(self) -> str | None:
        try:
            status = [os.stat(fname) for fname in self._fnames]
        except FileNotFoundError:
            return None
        numbers = [self.n, *chain.from_iterable((each.st_size, each.st_mtime_ns) for each in status)]
        return hashlib.sha256(self.format.encode() + np.array(numbers, "<i8").tobytes()).hexdigest()

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        """Where record `index` is, -n <= index < n: (name of its file, its number in that file).

        Raises:
            IndexError: out of range.
        """
        return self._fnames[0], self._positive(index)

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> Indices:
        """Bytes of the records at `indices`, as `read` gives them: int64 [k].

        From tables where the format has such, and nothing is checked then; else they are read, and one that cannot be
        read has -1.

        Raises:
            IndexError, TypeError: as `read`.
        """
        positions = self._in_range(indices)
        sizes = np.zeros(len(positions), np.int64)
        for start in range(0, len(positions), AT_ONCE):
            outcome = self._read_sync(PACKED, positions[start : start + AT_ONCE], go_on=True)
            piece = sizes[start : start + AT_ONCE]
            piece[:] = np.diff(outcome.result[1])
            piece[[place for place, _ in outcome.failures]] = -1
        return sizes

    def stats(self) -> ReadStats:
        """What was read so far and how, in numbers; cheap. Of all threads, but not of other processes."""
        done = self._background
        total = collect([], batches=done.batches, skipped=self.skipped, open_files=0)
        return total._replace(records=done.records, bytes=done.bytes)

    # Reading

    def read(self, indices: Iterable[SupportsIndex]) -> list[Array]:
        """The samples at `indices`, all read in one batch.

        Args:
            indices: [k] ints in [-n, n), negative ones from the end; repeats allowed; order kept.

        Returns:
            k 1-D uint8 arrays, writable and sharing no bytes; with io="mmap", read-only views of the file. Those of
            64 KiB and more lie in memory as they do in the file, so a `view` of a wider dtype may be unaligned. A
            smaller one keeps up to 512 KiB of its batch alive: copy what you keep for long.

        Raises:
            IndexError: an index is out of range; nothing was read.
            TypeError: not a sequence of ints.
            ChecksumError: a sample's bytes do not match; .path, .index, .stored, .computed.
            FormatError: a sample's bytes are not there (also an OSError), or its offsets contradict the file.
            OSError: the read failed.
            RuntimeError (also ValueError): closed.
        """
        arrays: list[Array] = self._read(ARRAYS, indices)
        return arrays

    def read_packed(self, indices: Iterable[SupportsIndex], out: npt.NDArray[Any] | None = None) -> Packed:
        """The samples at `indices`, back to back: no Python object per sample.

        Args:
            indices: as for `read`.
            out: memory to fill, a writable C-contiguous array of at least the sum of sizes in bytes; fresh memory if
                None. Left in an unknown state by an error.

        Returns:
            (data, offsets): uint8 [sum of sizes], the start of `out` if given, and int64 [k + 1]; sample j is
            `data[offsets[j]:offsets[j + 1]]`.

        Raises:
            As for `read`; ValueError: `out` is too small; TypeError: it is no such array.
        """
        packed: Packed = self._read(PACKED, indices, None if out is None else as_out(out))
        return packed

    def read_columns(
        self,
        indices: Iterable[SupportsIndex],
        record_size: int,
        slots: SlotList,
        out: Sequence[npt.NDArray[Any]] | None = None,
    ) -> list[Array]:
        """The samples at `indices`, all of one size, cut into pieces that are gathered from all of them.

        Args:
            indices: as for `read`.
            record_size: bytes that each of the samples has.
            slots: (offset, size) of each piece, bytes, within the sample: in any order, overlapping or not, and not
                necessarily all of it. The whole sample is compared with its checksum in any case.
            out: memory to fill, for each slot a writable C-contiguous array of at least k * size bytes; fresh memory if
                None. Left in an unknown state by an error.

        Returns:
            For each slot a writable C-contiguous uint8 array [k, size]; the start of `out` if given. `on_error="skip"`
            leaves rows out of all of them alike; what a callable gives must have `record_size` bytes.

        Raises:
            As for `read`; FormatError: a sample has another size; ValueError: a slot is not within the sample, `out` is
            too small or has not one for each slot, or a replacement has another size.
        """
        columns: list[Array] = self._read(Slots(record_size, slots), indices, as_outs(out))
        return columns

    def read_range(self, start: SupportsIndex, stop: SupportsIndex) -> list[Array]:
        """The samples from `start` up to, not including, `stop`: read in sequence, at the speed of the disk.

        Args:
            start, stop: 0 <= start <= stop <= n.

        Returns, raises:
            As for `read`.
        """
        return [array for piece in self._pieces(self._range(start, stop)) for array in piece]

    def bad_records(
        self, start: SupportsIndex = 0, stop: SupportsIndex | None = None
    ) -> Iterator[tuple[int, Exception]]:
        """Read records in sequence, and give those that cannot be had or do not match their checksums.

        Args:
            start, stop: 0 <= start <= stop <= n; all by default. `on_error` does nothing here.

        Returns:
            An iterator over (index, what `read` would raise), by ascending index.

        Raises:
            IndexError: the range. While iterating, RuntimeError (also ValueError): closed.
        """
        return self._bad(self._range(start, self.n if stop is None else stop))

    def _bad(self, indices: range) -> Iterator[tuple[int, Exception]]:
        def begin(positions: Indices) -> Callable[[], list[tuple[int, Exception]]]:
            wait = self._begin(CHECKED, positions, sequential=True, go_on=True)
            return lambda: [(int(positions[place]), error) for place, error in wait().failures]

        return chain.from_iterable(Prefetcher(self._cut(indices), begin, self._pieces_ahead))

    def _range(self, start: SupportsIndex, stop: SupportsIndex) -> range:
        low, high = as_int64(start), as_int64(stop)
        if not 0 <= low <= high <= self.n:
            raise SampleIndexError(
                f"range {low} .. {high}, expected 0 <= start <= stop <= {self.n}: {of_files(self._fnames)}"
            )
        return range(low, high)

    def read_one(self, index: SupportsIndex) -> Array:
        """Sample `index`; arguments and errors as for `read`. "skip" raises here: there is nothing else to return."""
        return self._only(self._read_sync(ARRAYS, [as_int64(index)]))

    def _only(self, outcome: BatchOutcome) -> Array:
        """The one record of a batch."""
        if outcome.failures and not callable(self._on_error):
            raise outcome.failures.pop()[1]  # no longer in what its own traceback keeps: see `_fill`
        only: Array = self._apply_on_error(ARRAYS, outcome)[0]
        return only

    def samples(self, indices: Iterable[SupportsIndex]) -> list[Sample_co]:
        """The samples at `indices`, decoded, all read in one batch.

        Args:
            indices: as for `read`.

        Returns:
            What the format makes of each; if it makes nothing of them, a dict: "key", its name, if the format has
            names, and "data", its bytes as `read` gives them. `on_error` does to them what it does to `read`.

        Raises:
            As for `read`; FormatError: a sample cannot be decoded.
        """
        records, positions = self._read_with_positions(ARRAYS, indices)
        return self._decode(positions, records)

    def sample(self, index: SupportsIndex) -> Sample_co:
        """Sample `index`, decoded; arguments and errors as for `samples`. "skip" raises, as for `read_one`."""
        only: Sample_co = self._decode(np.array([self._positive(index)]), [self.read_one(index)])[0]
        return only

    @overload
    def iter_batches(
        self, batches: Iterable[Iterable[SupportsIndex]], prefetch: int = 2, *, packed: Literal[False] = False
    ) -> Prefetcher[list[Array]]: ...
    @overload
    def iter_batches(
        self, batches: Iterable[Iterable[SupportsIndex]], prefetch: int = 2, *, packed: Literal[True]
    ) -> Prefetcher[Packed]: ...

    def iter_batches(self, batches: Any, prefetch: int = 2, *, packed: bool = False) -> Prefetcher[Any]:
        """An iterator over batches, in order, that reads the next ones while the caller works with one.

        Args:
            batches: of indices, each as for `read`; taken one by one as they are needed.
            prefetch: batches being read while the caller works, >= 0; memory is bounded by that many and two more.
            packed: give what `read_packed` gives, not what `read` gives.

        Raises:
            ValueError: a negative `prefetch`. While iterating, in the turn of the batch: as for `read`; what
                `batches` raises.
        """
        return self._iter(PACKED if packed else ARRAYS, batches, prefetch)

    def iter_columns(
        self,
        batches: Iterable[Iterable[SupportsIndex]],
        record_size: int,
        slots: SlotList,
        prefetch: int = 2,
        *,
        out: Callable[[int], Sequence[npt.NDArray[Any]]] | None = None,
        threads: int = THREADS,
    ) -> Prefetcher[list[Array]]:
        """An iterator over batches, each as `read_columns` gives it, that reads the next ones as `iter_batches` does.

        Args:
            batches, prefetch: as for `iter_batches`.
            record_size, slots: as for `read_columns`.
            out: gives the memory for a batch, as for `read_columns`; called with its number of samples as it begins.
            threads: that read at most, of all those that this process reads ahead with; 1 to 32.

        Raises:
            ValueError: `prefetch`, `record_size`, `slots` or `threads` is out of range. While iterating, in the turn of
                the batch: as for `read_columns`; what `batches` or `out` raises.
        """
        if not 1 <= threads <= 32:
            raise ArgumentError(f"threads is {threads}, expected 1 to 32")
        return self._iter(Slots(record_size, slots), batches, prefetch, out, threads)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSlice": ...
    @overload
    def __getitem__(self, index: Iterable[SupportsIndex]) -> list[Array]: ...

    def __getitem__(self, index: Any) -> Any:
        """One sample for an int, a lazy `SampleSlice` for a slice, `read(index)` for several indices."""
        if type(index) is int:
            return self.read_one(index)
        if isinstance(index, slice):
            return SampleSlice(self, range(self.n)[index])
        # isinstance(index, SupportsIndex) asks the same, and takes longer than to read a record.
        if hasattr(index, "__index__") and not getattr(index, "shape", ()):
            return self.read_one(index)
        several: Any = index
        return self.read(several)

    def __iter__(self) -> Iterator[Array]:
        return self._iterate(range(self.n))

    def _iterate(self, indices: range) -> Iterator[Array]:
        return chain.from_iterable(self._pieces(indices))

    # For subclasses

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        """Samples of the records at `positions`, int64 [k] in [0, n), for `samples`."""
        if type(self).keys is Store.keys:
            return [{"data": record} for record in records]
        names = self.keys()
        pairs = zip(positions.tolist(), records, strict=True)
        return [{"key": names[position], "data": record} for position, record in pairs]

    def _varies(self, column: str) -> bool:
        """Whether arrays of this column of samples may differ in shape: loaders then never make one tensor of them."""
        return column == "data"

    def _source(self) -> Any:
        """The first argument that makes this store again when it is unpickled."""
        return self._fnames

    def _options(self) -> dict[str, Any]:
        """The keyword arguments that do, besides that and `check_data`."""
        return {"on_error": self._on_error}

    # Life

    def close(self) -> None:
        """Close the files. A read in progress in another thread ends first; one of this thread, if this is called in
        the middle of it (by a signal handler), goes on, and they are closed when it ends. May be repeated."""
        self._background.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._source(), self._check_data, self._options(), self._pickled_as())

    def _pickled_as(self) -> str:
        """What must be the same when it is unpickled."""
        return self.fingerprint()

    # For subclasses

    @abstractmethod
    def _load(self, positions: Indices) -> list[Array | Exception]:
        """The records at `positions`, int64 [k] in [0, n): writable 1-D uint8 arrays of their own memory.

        An exception stands for a record that could not be had. May be called by several threads, and after a fork.
        """

    def _release(self) -> None:
        """Give back what is open: called once, when no `_load` runs any more."""

    @property
    def _pieces_ahead(self) -> int:
        """Pieces of a sequence being read while one is used: with more, a kernel would not see a sequence."""
        return 1

    def _bytes_read(self, positions: Indices) -> int:
        """Bytes of the files that are read to have the records at `positions`; a guess will do."""
        return int(self._sizes(positions).sum())

    def _read_once(self, once: bool) -> None:
        """Told whether most records will be read no second time."""

    def _undivided(self, positions: Indices) -> int:
        """How many of the first of these to leave to one reader, where records are read and checked several at a time;
        `positions` are in range and not empty, and so is what is left to it."""
        return len(positions)

    def _sizes(self, positions: Indices) -> Indices:
        """Bytes of the records at `positions`, int64 [k], to cut sequences into pieces by; a guess will do."""
        return np.full(len(positions), USUAL_SIZE)

    # Batches

    def _read(self, form: Form, indices: Iterable[SupportsIndex], out: Out = None) -> Any:
        return self._apply_on_error(form, self._read_sync(form, indices, out), out)

    def _read_with_positions(self, form: Form, indices: Iterable[SupportsIndex]) -> tuple[Any, Indices]:
        """What `_read` gives, and the positions of the samples in it, int64 [k]: `on_error` may have left some out."""
        positions = self._in_range(indices)
        outcome = self._read_sync(form, positions)
        instead = self._replacements(outcome.failures)
        left_out = [place for place, record in instead.items() if record is None]
        return without(form, outcome.result, instead), np.delete(positions, left_out)

    def _read_sync(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False
    ) -> BatchOutcome:
        """Read a batch. go_on: its good samples are wanted, whatever `on_error` says."""
        load = partial(self._loaded, form, self._in_range(indices), out)
        return self._unless_closed(partial(self._background.now, load))

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
        """Start reading a batch; what waits for it."""
        load = partial(self._loaded, form, self._in_range(indices), out)
        wait = self._unless_closed(partial(self._background.begin, load, threads))
        return partial(self._unless_closed, wait)

    def _unless_closed(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except ClosedError:
            raise self._closed_error() from None

    def _loaded(self, form: Form, positions: Indices, out: Out) -> BatchOutcome:
        """Read a batch by `_load`."""
        records = self._load(positions)
        if isinstance(form, Slots):
            records = [self._sized(form.record_size, *each) for each in zip(positions.tolist(), records, strict=True)]
        failures = [(place, record) for place, record in enumerate(records) if isinstance(record, Exception)]
        arrays = [np.empty(0, np.uint8) if isinstance(record, Exception) else record for record in records]
        return BatchOutcome(delivered(form, arrays, out), failures)

    def _sized(self, size: int, index: int, record: Array | Exception) -> Array | Exception:
        """The record, or what is wrong with it if it has another size."""
        if isinstance(record, Exception) or len(record) == size:
            return record
        return FormatError(
            f"Sample {index}: {of_files(self._fnames)}: {counted(len(record), 'byte')}, expected {size} as "
            f"of every sample"
        )

    def _begin_columns(
        self, indices: Iterable[SupportsIndex], slots: Slots, out: Sequence[npt.NDArray[Any]] | None = None
    ) -> Callable[[], BatchOutcome]:
        """Start reading columns, for loaders: whatever `on_error` says, bad samples are told, the others read."""
        return self._begin(slots, indices, as_outs(out), go_on=True)

    def _begin_packed(self, indices: Iterable[SupportsIndex]) -> Callable[[], BatchOutcome]:
        """The same for packed samples."""
        return self._begin(PACKED, indices, go_on=True)

    def _in_range(self, indices: Iterable[SupportsIndex]) -> Indices:
        """`indices` as numbers in [0, n).

        Raises:
            TypeError, IndexError: they are none.
        """
        positions = as_indices(indices)
        bad = np.flatnonzero((positions < -self.n) | (positions >= self.n))
        if len(bad):
            raise self._index_error(int(positions[bad[0]]))
        return np.where(positions < 0, positions + self.n, positions)

    def _positive(self, index: SupportsIndex) -> int:
        position = as_int64(index)
        if not -self.n <= position < self.n:
            raise SampleIndexError(
                f"index {position}, expected {-self.n} <= index < {self.n}: {of_files(self._fnames)}"
            )
        return position % self.n

    def _index_error(self, index: int) -> SampleIndexError:
        return SampleIndexError(
            f"index >= number of samples ({index} >= {self.n}): {of_files(self._fnames)}"
            if index >= self.n
            else f"index {index}, expected {-self.n} <= index < {self.n}: {of_files(self._fnames)}"
        )

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"{type(self).__name__} has been closed. {of_files(self._fnames)}")

    # Many batches

    def _iter(
        self,
        form: Form,
        batches: Iterable[Any],
        prefetch: int,
        out: Callable[[int], Sequence[npt.NDArray[Any]]] | None = None,
        threads: int = THREADS,
    ) -> Prefetcher[Any]:
        ahead = operator.index(prefetch)
        if ahead < 0:
            raise ValueError(f"prefetch is {ahead}, expected >= 0")

        def begin(indices: Any) -> Callable[[], Any]:
            if out is not None or ahead == 0:
                indices = as_indices(indices)
            room = None if out is None else as_outs(out(len(indices)))
            if ahead == 0:
                return partial(self._read, form, indices, room)
            wait = self._begin(form, indices, room, threads=threads)
            return lambda: self._apply_on_error(form, wait(), room)

        return Prefetcher(batches, begin, ahead)

    def _pieces(self, indices: range) -> Iterator[list[Array]]:
        """What lies at `indices`, a few megabytes at a time, the next ones being read meanwhile."""

        def begin(positions: Indices) -> Callable[[], list[Array]]:
            wait = self._begin(ARRAYS, positions, sequential=indices.step == 1)
            return lambda: self._apply_on_error(ARRAYS, wait())

        return Prefetcher(self._cut(indices), begin, self._pieces_ahead if len(indices) > 1 else 0)

    def _cut(self, indices: range) -> Iterator[Indices]:
        """`indices` in pieces of about CHUNK_BYTES."""
        for start in range(0, len(indices), CHUNK_MOST):
            part = indices[start : start + CHUNK_MOST]
            positions = np.arange(part.start, part.stop, part.step)
            ends = np.cumsum(self._sizes(positions))
            yield from np.split(positions, np.flatnonzero(np.diff(ends // CHUNK_BYTES)) + 1)

    # Failures

    def _apply_on_error(self, form: Form, outcome: BatchOutcome, out: Out = None) -> Any:
        """The result with the failed samples left out or replaced, as `on_error` says."""
        if not outcome.failures:
            return outcome.result
        return without(form, outcome.result, self._replacements(outcome.failures), out)

    def _replacements(self, failures: list[tuple[int, Exception]]) -> Instead:
        instead: Instead = {}
        said: list[str] = []
        try:
            self._fill(instead, failures, said)
        finally:
            tell_skipped(said)
        return instead

    def _fill(self, instead: Instead, failures: list[tuple[int, Exception]], said: list[str]) -> None:
        for place, error in failures:
            if self._on_error == "raise" or self.skipped >= SKIPPED_MOST:
                # Or the error, and the frames that it passes, would keep each other and the batch until a collection.
                failures.clear()
                try:
                    raise error
                finally:
                    del error
            self.skipped += 1
            said.append(f"skipped or replaced: {error}")
            instead[place] = _replacement(self._on_error(error)) if callable(self._on_error) else None


def tell_skipped(messages: Iterable[str]) -> None:
    """Log what is said of samples left out or replaced: a line for each, but one for those of a damaged chunk, say, of
    which the same is said but for their indices."""
    alike: dict[str, list[str]] = {}
    for message in messages:
        alike.setdefault(INDEX.sub("", message, 1), []).append(message)
    for first, *others in alike.values():
        more = f"; and {counted(len(others), 'more sample')}, of which the same is to be said" if others else ""
        logger.warning("%s%s", first, more)


def check_on_error(on_error: object) -> None:
    """Raise ValueError unless it is one of those that `Store` takes."""
    if not callable(on_error) and on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}, expected 'raise', 'skip' or a callable")


def as_out(out: Any) -> Array:
    """Writable bytes of a caller's array.

    Raises:
        TypeError: it has none, or not in one piece.
    """
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.flags.writeable or out.dtype.hasobject:
        raise TypeError("out must be a writable C-contiguous numpy array")
    return out.reshape(-1).view(np.uint8)


def as_outs(out: Sequence[npt.NDArray[Any]] | None) -> list[Array] | None:
    """The same of several."""
    return None if out is None else [as_out(each) for each in out]


def _replacement(data: Any) -> Array:
    """What an `on_error` callable gave, as an array of its own."""
    return np.frombuffer(as_bytes(data), np.uint8).copy()


def _reopen(cls: Callable[..., Store], source: Any, check_data: bool, options: dict[str, Any], expected: str) -> Store:
    """Unpickle: open the same files by name."""
    store = cls(source, check_data, **options)
    if store._pickled_as() != expected:
        store.close()
        raise FFRecordError(f"{of_files(store.fnames)}: the files differ from those this reader was pickled with")
    return store

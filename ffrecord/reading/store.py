"""Record store: reading of records by index, in batches, ahead and in sequence, for every format."""

import hashlib
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from errno import ENOENT
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import ARRAYS, CHECKED, PACKED, Slots
from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    FFRecordError,
    FormatError,
    MissingFileError,
    MissingNamesError,
    SampleIndexError,
    add_place_to_memory_errors,
    name_files,
    plural,
)
from ffrecord.kernels._memory import SharedChain
from ffrecord.reading.batch_forms import (
    Array,
    BatchOutcome,
    Form,
    Out,
    Packed,
    Replacements,
    apply_replacements,
    deliver,
)
from ffrecord.reading.indices import Indices, SampleSlice, as_indices, as_int64, count_from_start
from ffrecord.reading.prefetch import Prefetcher, Turn
from ffrecord.reading.python_engine import PythonEngine
from ffrecord.reading.stats import ReadStats, collect
from ffrecord.system.closing import ClosedByWith
from ffrecord.system.sample_types import UNTOLD, Sample_co
from ffrecord.system.values import as_bytes, describe_wrong, is_word, iterator_of, whole_number

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
T = TypeVar("T")

CHUNK_BYTES = 4 << 20  # iteration reads about this much at a time
CHUNK_MOST = 8192
USUAL_SIZE = 64 << 10  # assumed bytes of a record whose size is unknown
THREADS = 4  # threads that read ahead
SKIPPED_MOST = 10_000  # bad samples of one reader; a dataset with more should be repaired, not trained on

INDEX = re.compile(r"Sample \d+: ")  # the start of an error message

logger = logging.getLogger("ffrecord")
reopening: ContextVar[bool] = ContextVar("reopening", default=False)  # whether a store is being unpickled


SHOWN_MOST = 64 << 20  # bytes of a record; a larger one is not read only to be shown
AT_ONCE = 256  # records read in one batch only to get their sizes
SlotList = Sequence[tuple[int, int]]  # (offset, size) of pieces of a record, bytes


class Store(ClosedByWith, ABC, Generic[Sample_co]):
    """Records of one or many files that share one numbering.

    Formats whose files contain the records unchanged use the subclass `RecordReader`. Other formats subclass this and
    define `_load`.

    Args:
        fnames: paths of the files, at least one.
        n: number of records in all files.
        check_data: compare checksums, if the format has them.
        on_error: how `read` and `read_packed` treat a record that cannot be read. "raise" raises the error. "skip"
            leaves the record out and counts it in `skipped`. A callable gets the exception and returns the bytes to
            use instead, as a buffer or array. Each such record is logged, and after SKIPPED_MOST of them the next one
            raises. A lack of memory is always raised.
        settings: the other keyword arguments of the constructor of a subclass, by name: pickling needs them.

    Attributes:
        format: name of the format.
        checksum: checksum that is compared on reading: "CRC-32", "CRC-32C", or None if the format has none.
        skipped: number of records left out or replaced by `on_error` so far.

    Threads may share a store. You may fork at any time. You may pickle it: the copy opens the same paths again.

    Type checkers know the type of its samples if you declare it: `store: Store[Picture] = ffrecord.open(path)`.

    Subclasses must override `_load`. They may override `_release`, `_decode`, `_columns`, `_decode_columns`, `_varies`,
    `_sizes`, `_source`, `_options`, `fingerprint` and `keys`.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_check_data",
        "_fnames",
        "_n",
        "_on_error",
        "_python_engine",
        "_settings",
        "skipped",
    )
    __orig_class__ = UNTOLD

    format: ClassVar[str]
    checksum: str | None = None
    _as_opened: str | None = None

    def __init__(
        self,
        fnames: Sequence[str],
        n: int,
        check_data: object = True,
        *,
        on_error: OnError = "raise",
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        check_on_error(on_error)
        if not fnames:
            raise ArgumentError("there is nothing to open: the list is empty")
        self._fnames, self._n = list(fnames), n
        self._check_data = bool(check_data)
        self._on_error = on_error
        self._settings = dict(settings)
        self._python_engine = PythonEngine(self._release)
        self.skipped = 0
        # Subclasses with tables identify the records themselves, which is safer than times.
        if type(self).fingerprint is Store.fingerprint:  # compute it now: the files may have changed when it is used
            self._as_opened = self._fingerprint_files()

    # Properties

    @property
    def n(self) -> int:
        """Number of records in all files."""
        return self._n

    @property
    def fnames(self) -> list[str]:
        """Paths of the files, as given or found."""
        return list(self._fnames)

    @property
    def check_data(self) -> bool:
        """True if checksums are compared."""
        return self._check_data

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._python_engine.closed

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        more = " …" if len(self._fnames) > 1 else ""
        files = f"{plural(len(self._fnames), 'file')}, {self._fnames[0]!r}{more}"
        return f"<{type(self).__name__} of {plural(self.n, 'sample')} in {files}{state}>"

    def _repr_html_(self) -> str:
        """Return a table of the columns and of three samples, for notebooks. It never raises."""
        from ffrecord.reading.notebook import samples_html  # only notebooks need it

        return samples_html(self, lambda: self.n, self._sample_to_show, self._column_types)

    def _sample_to_show(self, index: int) -> Any:
        # A notebook must not read gigabytes by showing a reader.
        size = int(self._sizes(np.array([index]))[0])
        if size > SHOWN_MOST:
            raise ArgumentError(f"it has {size} bytes, expected at most {SHOWN_MOST} to be shown")
        return self.sample(index)

    def keys(self) -> Sequence[str]:
        """Return the name of each record, in order.

        Raises:
            MissingNamesError: the format has no names.
        """
        raise MissingNamesError(
            f"{name_files(self._fnames)}: records of {self.format} have no names; read them by index"
        )

    def fingerprint(self) -> str:
        """Return 64 hexadecimal digits that identify these records.

        Unless overridden, they are the SHA-256 of the format, the number of records, and each file's size and time of
        change when it was opened.

        Raises:
            FileNotFoundError: a file was missing.
        """
        if self._as_opened is None:
            raise MissingFileError(ENOENT, f"{name_files(self._fnames)}: a file was missing when the store was opened")
        return self._as_opened

    def _fingerprint_files(self) -> str | None:
        try:
            status = [os.stat(fname) for fname in self._fnames]
        # Only an error for those who ask for the fingerprint.
        except FileNotFoundError:
            return None
        numbers = [self.n, *chain.from_iterable((each.st_size, each.st_mtime_ns) for each in status)]
        return hashlib.sha256(self.format.encode() + np.array(numbers, "<i8").tobytes()).hexdigest()

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        """Return (path of its file, number in that file) of record `index`, -n <= index < n.

        Raises:
            IndexError: `index` is out of range.
        """
        return self._fnames[0], self._normalize_index(index)

    def _describe_place(self, index: int) -> str:
        """Return the file of record `index`, and its number there, for messages."""
        path, local = self.locate(index)
        return f"{path}: sample {local}"

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> Indices:
        """Return the sizes of the records at `indices` in bytes: int64 [k].

        If the format has tables, the sizes come from them and are not checked. Otherwise the records are read, and an
        unreadable one has size -1.

        Raises:
            IndexError, TypeError: the same as for `read`.
        """
        positions = self._normalize_indices(indices)
        sizes = np.zeros(len(positions), np.int64)
        # Few at a time, since the records themselves are in memory meanwhile.
        for start in range(0, len(positions), AT_ONCE):
            outcome = self._read_sync(PACKED, positions[start : start + AT_ONCE], go_on=True)
            piece = sizes[start : start + AT_ONCE]
            piece[:] = np.diff(outcome.result[1])
            # A failed record is packed as nothing, which would look like size 0.
            piece[[place for place, _ in outcome.failures]] = -1
        return sizes

    def stats(self) -> ReadStats:
        """Return the numbers of all reads so far: records, bytes, requests and ways to read.

        They count all threads, but no other processes. The call is cheap.
        """
        done = self._python_engine
        total = collect([], batches=done.batches, skipped=self.skipped, open_files=0)
        return total._replace(records=done.records, bytes=done.bytes)

    # Reading

    def read(self, indices: Iterable[SupportsIndex]) -> list[Array]:
        """Read the samples at `indices` in one batch.

        Args:
            indices: [k] ints in [-n, n); negative ones count from the end; repeats are allowed; the order is kept.

        Returns:
            k 1-D uint8 arrays, writable and without common bytes; with io="mmap", read-only views of the file. Arrays
            of 64 KiB and more have the alignment of their place in the file, so a `view` of a wider dtype may be
            unaligned. A smaller one keeps up to 512 KiB of its batch alive: copy samples that you keep for long.

        Raises:
            IndexError: an index is out of range; nothing was read.
            TypeError: `indices` is not a sequence of ints.
            ChecksumError: a sample's bytes do not match its checksum; see .path, .index, .stored, .computed.
            FormatError: a sample's bytes are missing (also an OSError), or its offsets contradict the file.
            OSError: the read failed.
            RuntimeError (also ValueError): the reader is closed.
        """
        arrays: list[Array] = self._read(ARRAYS, indices)
        return arrays

    def read_packed(self, indices: Iterable[SupportsIndex], out: npt.NDArray[Any] | None = None) -> Packed:
        """Read the samples at `indices` back to back into one array, without a Python object per sample.

        Args:
            indices: see `read`.
            out: memory to fill: a writable C-contiguous array of at least the sum of sizes in bytes; fresh memory if
                None. After an error its content is undefined.

        Returns:
            (data, offsets): uint8 [sum of sizes], the start of `out` if given, and int64 [k + 1]; sample j is
            `data[offsets[j]:offsets[j + 1]]`.

        Raises:
            The errors of `read`; ValueError: `out` is too small; TypeError: `out` is no such array.
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
        """Read the samples at `indices`, all of one size, as columns: one array for each piece of a sample.

        Args:
            indices: see `read`.
            record_size: bytes of each sample.
            slots: (offset, size) of each piece within the sample, bytes. Slots may have any order, overlap, and leave
                gaps. In any case the whole sample is compared with its checksum.
            out: memory to fill: for each slot a writable C-contiguous array of at least k * size bytes; fresh memory if
                None. After an error its content is undefined.

        Returns:
            For each slot a writable C-contiguous uint8 array [k, size], the start of `out` if given. `on_error="skip"`
            leaves the same rows out of all arrays. The replacement of a callable must have `record_size` bytes.

        Raises:
            The errors of `read`; FormatError: a sample has another size; ValueError: a slot is not within the sample,
            `out` is too small or does not have one array for each slot, or a replacement has another size.
        """
        columns: list[Array] = self._read(_check_slots(record_size, slots), indices, as_outs(out))
        return columns

    def read_range(self, start: SupportsIndex, stop: SupportsIndex) -> list[Array]:
        """Read the samples of the range [start, stop) in sequence, at the speed of the disk.

        Args:
            start, stop: 0 <= start <= stop <= n.

        Returns, raises:
            The same as `read`.
        """
        return [array for piece in self._pieces(self._range(start, stop)) for array in piece]

    def bad_records(
        self, start: SupportsIndex = 0, stop: SupportsIndex | None = None
    ) -> Iterator[tuple[int, Exception]]:
        """Read records in sequence and find those that cannot be read or do not match their checksums.

        Args:
            start, stop: 0 <= start <= stop <= n; all records by default. `on_error` has no effect here.

        Returns:
            An iterator over (index, error that `read` would raise), by ascending index.

        Raises:
            IndexError: the range is wrong. While iterating, RuntimeError (also ValueError): the reader is closed.
        """
        return self._find_bad(self._range(start, self.n if stop is None else stop))

    def _find_bad(self, indices: range) -> Iterator[tuple[int, Exception]]:
        def begin(positions: Indices) -> Callable[[], list[tuple[int, Exception]]]:
            wait = self._begin(CHECKED, positions, sequential=True, go_on=True)
            return lambda: [(int(positions[place]), error) for place, error in wait().failures]

        # One piece ahead, so that the disk reads while checksums are compared.
        return SharedChain(Prefetcher(self._cut(indices), begin, self._pieces_ahead), Turn())

    def _range(self, start: SupportsIndex, stop: SupportsIndex) -> range:
        low, high = as_int64(start), as_int64(stop)
        if not 0 <= low <= high <= self.n:
            raise SampleIndexError(
                f"range is {low} .. {high}, expected 0 <= start <= stop <= {self.n}: {name_files(self._fnames)}"
            )
        return range(low, high)

    def read_one(self, index: SupportsIndex) -> Array:
        """Read sample `index`. Arguments and errors are those of `read`; `on_error="skip"` raises here."""
        return self._get_only(self._read_sync(ARRAYS, [as_int64(index)]))

    def _get_only(self, outcome: BatchOutcome) -> Array:
        """Return the only record of a batch."""
        if outcome.failures and not callable(self._on_error):
            # Else the traceback refers to the list that has the error.
            raise outcome.failures.pop()[1]  # popped, so that its traceback does not keep the error itself: see `_fill`
        only: Array = self._apply_on_error(ARRAYS, outcome)[0]
        return only

    def samples(self, indices: Iterable[SupportsIndex]) -> list[Sample_co]:
        """Read the samples at `indices` in one batch and decode them.

        Args:
            indices: see `read`.

        Returns:
            The decoded samples. If the format does not decode, each is a dict: "key", its name, if the format has
            names, and "data", its bytes as `read` returns them. `on_error` applies as for `read`.

        Raises:
            The errors of `read`; FormatError: a sample cannot be decoded.
        """
        records, positions = self._read_with_positions(ARRAYS, indices)
        with self._naming_memory_errors(positions):
            return self._decode(positions, records)

    def sample(self, index: SupportsIndex) -> Sample_co:
        """Read sample `index` and decode it. Arguments and errors are those of `samples`. With "skip" it raises."""
        positions, record = np.array([self._normalize_index(index)]), self.read_one(index)
        with self._naming_memory_errors(positions):
            only: Sample_co = self._decode(positions, [record])[0]
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
        """Return an iterator over batches, in order, that reads the next ones while you work with one.

        Args:
            batches: the indices of each batch, as for `read`; taken one by one as they are needed.
            prefetch: number of batches being read while you work, >= 0; at most two more are in memory.
            packed: return the results of `read_packed` instead of `read`.

        Raises:
            ValueError: `prefetch` is negative. While iterating, in the turn of the batch: the errors of `read`, and
                those that `batches` raises.
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
        """Return an iterator over batches of columns that reads the next ones while you work with one.

        Args:
            batches, prefetch: see `iter_batches`.
            record_size, slots: see `read_columns`.
            out: returns the memory for a batch, as for `read_columns`; called with its number of samples at its start.
            threads: maximum number of threads, of all that read ahead in this process; 1 to 32.

        Raises:
            ValueError: `prefetch`, `record_size`, `slots` or `threads` is out of range. While iterating, in the turn of
                the batch: the errors of `read_columns`, and those that `batches` or `out` raises.
        """
        if not 1 <= threads <= 32:
            raise ArgumentError(f"threads is {threads}, expected 1 to 32")
        return self._iter(_check_slots(record_size, slots), batches, prefetch, out, threads)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSlice": ...
    @overload
    def __getitem__(self, index: Iterable[SupportsIndex]) -> list[Array]: ...

    def __getitem__(self, index: Any) -> Any:
        """Read one sample for an int, several for a list of indices; return a lazy `SampleSlice` for a slice."""
        # The usual case first.
        if type(index) is int:
            return self.read_one(index)
        if isinstance(index, slice):
            return SampleSlice(self, range(self.n)[index])
        # isinstance(index, SupportsIndex) would be the same test, but takes longer than reading a record.
        # An array of one element has `__index__` too, but asks for a list.
        if hasattr(index, "__index__") and not getattr(index, "shape", ()):
            return self.read_one(index)
        if not hasattr(index, "__iter__"):  # text has it: it goes to `read`, because some stores take names
            raise ArgumentTypeError(describe_wrong("index", index, "an int, a slice or a collection of ints"))
        several: Any = index
        return self.read(several)

    def __iter__(self) -> Iterator[Array]:
        return self._iterate(range(self.n))

    def _iterate(self, indices: range) -> Iterator[Array]:
        return SharedChain(self._pieces(indices, self._sequence_form), Turn())

    # For subclasses

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        """Decode the records at `positions`, int64 [k] in [0, n), for `samples`."""
        if type(self).keys is Store.keys:
            return [{"data": record} for record in records]
        names = self.keys()
        pairs = zip(positions.tolist(), records, strict=True)
        return [{"key": names[position], "data": record} for position, record in pairs]

    def _columns(self, positions: Indices, records: list[Any]) -> dict[str, list[Any]]:
        """Return the samples of `_decode` in columns, for a loader. One of the columns is the list `records` itself.

        A class whose samples are made otherwise overrides `_decode` or `_decode_columns`, and this is not called.
        """
        if type(self).keys is Store.keys:
            return {"data": records}
        names = self.keys()
        return {"key": [names[position] for position in positions.tolist()], "data": records}

    @property
    def _has_columns(self) -> bool:
        """True if `_columns` gives the values of `_decode`."""
        names = {"_decode", "_decode_columns", "_columns"}
        owner = next((each for each in (self, *type(self).__mro__) if names & vars(each).keys()), Store)
        return "_columns" in vars(owner)

    def _decode_columns(self, positions: Indices, records: list[Array], wanted: Collection[str]) -> list[Any]:
        """Decode records as `_decode` does, for a loader that drops all columns but `wanted`.

        The samples have all columns by name. The values of others than `wanted` may be anything, such as their bytes.
        """
        return self._decode(positions, records)

    def _decode_wanted(self, positions: Indices, records: list[Array], wanted: Collection[str]) -> list[Any]:
        """Decode records by `_decode_columns`, unless a subclass of its class has a `_decode` of its own."""
        for owner in type(self).__mro__:
            if "_decode_columns" in vars(owner):
                return self._decode_columns(positions, records, wanted)
            if "_decode" in vars(owner):
                break
        return self._decode(positions, records)

    def _name_sample_error(self, index: int, error: FormatError) -> FormatError:
        """Return the error of sample `index` with its number and place in the message, each once."""
        told, number = str(error), f"Sample {index}: "
        if told.startswith(number):
            return error
        if told.startswith(f"{self.locate(index)[0]}: "):
            return FormatError(f"{number}{told}")
        return FormatError(f"{number}{self._describe_place(index)}: {told}")

    def _varies(self, column: str) -> bool:
        """Tell whether arrays of this column may differ in shape: loaders then never stack them into one tensor."""
        return column == "data"

    def _column_types(self) -> Mapping[str, str]:
        """Return the declared types of columns, by name, as text for people."""
        return {}

    def _source(self) -> Any:
        """Return the first argument of the constructor, for unpickling."""
        return self._fnames

    def _options(self) -> dict[str, Any]:
        """Return the other keyword arguments of the constructor except `check_data`, for unpickling."""
        return {**self._settings, "on_error": self._on_error}

    # Closing and pickling

    def close(self) -> None:
        """Close the files. A read in progress in another thread ends first. You may call it again.

        If a signal handler calls it in the middle of a read of the same thread, that read continues, and the files are
        closed when it ends.
        """
        self._python_engine.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._source(), self._check_data, self._options(), self._identity_text())

    def _identity_text(self) -> str:  # files may have been replaced between pickling and unpickling
        """Return the text that must be equal after unpickling."""
        return self.fingerprint()

    # For subclasses

    @abstractmethod
    def _load(self, positions: Indices) -> list[Array | Exception]:
        """Read the records at `positions`, int64 [k] in [0, n), into writable 1-D uint8 arrays with their own memory.

        Return an exception in place of a record that cannot be read. Several threads may call it, also after a fork.
        """

    def _release(self) -> None:
        """Release open files: called once, when no `_load` runs any more."""

    @property
    def _pieces_ahead(self) -> int:
        """Number of pieces of a sequence being read while one is used. With more, a kernel would see no sequence."""
        return 1

    def _bytes_read(self, positions: Indices) -> int:
        """Return the bytes of the files that are read for the records at `positions`; an estimate is enough."""
        return int(self._sizes(positions).sum())

    def _read_once(self, once: bool) -> None:
        """Receive the hint whether most records will be read only once."""

    @property
    def _foresees(self) -> bool:
        """True if `_forecast` returns an object, or may do so."""
        return False

    def _forecast(self) -> Any:
        """Return an object to tell which records a loop will read soon; None if it would be of no use.

        It has the methods of `ffrecord.remote.forecast.Forecast`. Drop it when the loop ends.
        """
        return None

    def _count_undivided(self, positions: Indices) -> int:
        """Return how many of the first `positions` one reader should read, if records are read and checked several at a
        time.

        `positions` are in range and not empty; the result is at least 1.
        """
        return len(positions)

    def _sizes(self, positions: Indices) -> Indices:
        """Return the bytes of the records at `positions`, int64 [k], for cutting sequences; an estimate is enough."""
        return np.full(len(positions), USUAL_SIZE)

    # Batches

    def _read(self, form: Form, indices: Iterable[SupportsIndex], out: Out = None) -> Any:
        return self._apply_on_error(form, self._read_sync(form, indices, out), out)

    def _read_with_positions(self, form: Form, indices: Iterable[SupportsIndex]) -> tuple[Any, Indices]:
        """Read a batch; return its result and the positions of its samples, int64 [k], without those left out."""
        positions = self._normalize_indices(indices)
        outcome = self._read_sync(form, positions)
        instead = self._replacements(outcome.failures)
        left_out = [place for place, record in instead.items() if record is None]
        # Positions and result lose the same places.
        return apply_replacements(form, outcome.result, instead), np.delete(positions, left_out)

    def _read_sync(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False
    ) -> BatchOutcome:
        """Read a batch in this thread. go_on: its good samples are needed, whatever `on_error` says."""
        positions = self._normalize_indices(indices)
        load = partial(self._load_batch, form, positions, out)
        return self._translate_errors(partial(self._python_engine.run, load), positions)

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
        """Start reading a batch; return a function that waits for it."""
        positions = self._normalize_indices(indices)
        load = partial(self._load_batch, form, positions, out)
        wait = self._translate_errors(partial(self._python_engine.begin, load, threads), positions)
        return partial(self._translate_errors, wait, positions)

    def _translate_errors(self, call: Callable[[], T], positions: Indices) -> T:
        """Call a function that reads records, and convert its errors."""
        try:
            with self._naming_memory_errors(positions):
                return call()
        except ClosedError:
            raise self._closed_error() from None

    def _naming_memory_errors(self, positions: Indices) -> AbstractContextManager[None]:
        """Return a context manager that adds these records to a MemoryError; there may be none of them."""

        def name() -> str:
            if not len(positions):
                return name_files(self._fnames)
            more = f" and {plural(len(positions) - 1, 'more sample')}" if len(positions) > 1 else ""
            return f"{self._describe_place(int(positions[0]))}{more}"

        return add_place_to_memory_errors(name)

    def _load_batch(self, form: Form, positions: Indices, out: Out) -> BatchOutcome:
        """Read a batch by `_load`."""
        records = self._load(positions)
        # Columns need rows of one size.
        if isinstance(form, Slots):
            records = [
                self._check_size(form.record_size, *each) for each in zip(positions.tolist(), records, strict=True)
            ]
        failures = [(place, record) for place, record in enumerate(records) if isinstance(record, Exception)]
        # A lack of memory is not the record's fault: `on_error` would leave out other samples each time.
        if any(isinstance(error, MemoryError) for _, error in failures):
            try:
                raise next(error for _, error in failures if isinstance(error, MemoryError))
            finally:
                del records, failures  # the cycle of the error and this frame, see `_fill`
        # Failed records keep their place, so that `failures` names it.
        arrays = [np.empty(0, np.uint8) if isinstance(record, Exception) else record for record in records]
        return BatchOutcome(deliver(form, arrays, out), failures)

    def _check_size(self, size: int, index: int, record: Array | Exception) -> Array | Exception:
        """Return the record, or an error if it has another size."""
        if isinstance(record, Exception) or len(record) == size:
            return record
        return FormatError(
            f"Sample {index}: {name_files(self._fnames)}: {plural(len(record), 'byte')}, expected {size}, "
            f"the size of every sample"
        )

    def _begin_columns(
        self, indices: Iterable[SupportsIndex], slots: Slots, out: Sequence[npt.NDArray[Any]] | None = None
    ) -> Callable[[], BatchOutcome]:
        """Start reading columns for a loader: whatever `on_error` says, it reports bad samples and reads the others."""
        return self._begin(slots, indices, as_outs(out), go_on=True)

    def _begin_packed(self, indices: Iterable[SupportsIndex]) -> Callable[[], BatchOutcome]:
        """Start reading packed samples for a loader, with bad samples reported."""
        return self._begin(PACKED, indices, go_on=True)

    def _normalize_indices(self, indices: Iterable[SupportsIndex]) -> Indices:
        """Return `indices` as numbers in [0, n).

        Raises:
            TypeError, IndexError: they are no ints, or out of range.
        """
        return count_from_start(as_indices(indices), self.n, lambda _, index: self._index_error(index))

    def _normalize_index(self, index: SupportsIndex) -> int:
        position = as_int64(index)
        if not -self.n <= position < self.n:
            raise SampleIndexError(
                f"index is {position}, expected {-self.n} <= index < {self.n}: {name_files(self._fnames)}"
            )
        return position % self.n

    def _index_error(self, index: int) -> SampleIndexError:
        return SampleIndexError(
            f"index >= number of samples ({index} >= {self.n}): {name_files(self._fnames)}"
            if index >= self.n
            else f"index is {index}, expected {-self.n} <= index < {self.n}: {name_files(self._fnames)}"
        )

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"{type(self).__name__} has been closed. {name_files(self._fnames)}")

    # Many batches

    def _iter(
        self,
        form: Form,
        batches: Iterable[Any],
        prefetch: int,
        out: Callable[[int], Sequence[npt.NDArray[Any]]] | None = None,
        threads: int = THREADS,
    ) -> Prefetcher[Any]:
        ahead = whole_number("prefetch", prefetch)
        if ahead < 0:
            raise ArgumentError(f"prefetch is {ahead}, expected >= 0")
        batches = iterator_of("batches", batches, "indices")

        def begin(indices: Any) -> Callable[[], Any]:
            # A generator of indices can be used only once.
            if out is not None or ahead == 0:
                indices = as_indices(indices)
            room = None if out is None else as_outs(out(len(indices)))
            # Nothing is read ahead: the batch is read when it is its turn.
            if ahead == 0:
                return partial(self._read, form, indices, room)
            wait = self._begin(form, indices, room, threads=threads)
            return lambda: self._apply_on_error(form, wait(), room)

        return Prefetcher(batches, begin, ahead)

    @property
    def _sequence_form(self) -> str:
        """ARRAYS, or IN_TURN if the engine makes the arrays of a sequence one after another."""
        return ARRAYS

    def _pieces(self, indices: range, form: str = ARRAYS) -> Iterator[Iterable[Array]]:
        """Yield the records at `indices` in pieces of a few megabytes; the next ones are being read meanwhile."""

        def deliver(outcome: BatchOutcome) -> Iterable[Array]:
            if not outcome.failures or self._on_error != "raise":
                return self._apply_on_error(form, outcome)  # type: ignore[no-any-return]
            # The samples before the first bad one are good.
            place, error = outcome.failures[0]
            return chain(islice(outcome.result, place), map(_raise, [error]))

        def begin(positions: Indices) -> Callable[[], Iterable[Array]]:
            # The only piece: to wait for another thread would take longer.
            threads = THREADS if len(positions) < len(indices) else 0
            wait = self._begin(form, positions, threads=threads, sequential=indices.step == 1, go_on=True)
            return lambda: deliver(wait())

        return Prefetcher(self._cut(indices), begin, self._pieces_ahead)

    def _cut(self, indices: range) -> Iterator[Indices]:
        """Cut `indices` into pieces of about CHUNK_BYTES."""
        for start in range(0, len(indices), CHUNK_MOST):
            part = indices[start : start + CHUNK_MOST]
            positions = np.arange(part.start, part.stop, part.step)
            # Cut where the sum of sizes passes a multiple of CHUNK_BYTES.
            ends = np.cumsum(self._sizes(positions))
            cuts = np.flatnonzero(np.diff(ends // CHUNK_BYTES)) + 1
            yield from np.split(positions, cuts) if len(cuts) else [positions]

    # Failures

    def _apply_on_error(self, form: Form, outcome: BatchOutcome, out: Out = None) -> Any:
        """Return the result with the failed samples left out or replaced according to `on_error`."""
        if not outcome.failures:
            return outcome.result
        return apply_replacements(form, outcome.result, self._replacements(outcome.failures), out)

    def _replacements(self, failures: list[tuple[int, Exception]]) -> Replacements:
        instead: Replacements = {}
        said: list[str] = []
        try:
            self._fill(instead, failures, said)
        # Tell also what was skipped before an error.
        finally:
            tell_skipped(said)
        return instead

    def _fill(self, instead: Replacements, failures: list[tuple[int, Exception]], said: list[str]) -> None:
        for place, error in failures:
            # Many bad samples mean a damaged dataset, which should not be trained on.
            if self._on_error == "raise" or self.skipped >= SKIPPED_MOST:
                # Break the reference cycle of the error and the frames that it passes: it would keep the batch alive
                # until a garbage collection.
                failures.clear()
                try:
                    raise error
                finally:
                    del error
            with self._python_engine.lock:
                self.skipped += 1
            said.append(f"skipped or replaced: {error}")
            instead[place] = _replacement(self._on_error(error)) if callable(self._on_error) else None


def _raise(error: Exception) -> Array:
    try:
        raise error
    finally:
        del error  # the cycle of the error and this frame would keep its batch


def tell_skipped(messages: Iterable[str]) -> None:
    """Log messages about samples left out or replaced.

    Messages that differ only in their indices, for instance of one damaged chunk, share one line.
    """
    alike: dict[str, list[str]] = {}
    for message in messages:
        alike.setdefault(INDEX.sub("", message, 1), []).append(message)
    for first, *others in alike.values():
        more = f"; and {plural(len(others), 'more sample')} with the same error" if others else ""
        logger.warning("%s%s", first, more)


def check_on_error(on_error: object) -> None:
    """Raise ValueError unless `on_error` is valid for a `Store`."""
    if not callable(on_error) and not is_word(on_error, ("raise", "skip")):
        raise ArgumentError(f"on_error is {on_error!r}, expected 'raise', 'skip' or a callable")


def as_out(out: Any) -> Array:
    """Return the writable bytes of a caller's array.

    Raises:
        TypeError: it is no such array, or not contiguous.
    """
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.flags.writeable or out.dtype.hasobject:
        raise ArgumentTypeError(describe_wrong("out", out, "a writable C-contiguous numpy array, not of objects"))
    # As bytes, because records know no dtype.
    return out.reshape(-1).view(np.uint8)


def as_outs(out: Sequence[npt.NDArray[Any]] | None) -> list[Array] | None:
    """Return the writable bytes of several arrays; None for None."""
    return None if out is None else [as_out(each) for each in out]


def _replacement(data: Any) -> Array:
    """Copy the result of an `on_error` callable into an array."""
    # Copied: the callable may give the same buffer again.
    return np.frombuffer(as_bytes(data), np.uint8).copy()


def _reopen(cls: Callable[..., Store], source: Any, check_data: bool, options: dict[str, Any], expected: str) -> Store:
    """Unpickle a store: open the same files by path."""
    token = reopening.set(True)
    try:
        store = cls(source, check_data, **options)
    finally:
        reopening.reset(token)
    # Samples of other files under the same indices would be wrong without a sign.
    if store._identity_text() != expected:
        store.close()
        raise FFRecordError(
            f"{name_files(store.fnames)}: the files differ from those that this reader was pickled with"
        )
    return store


def _check_slots(record_size: SupportsIndex, slots: SlotList) -> Slots:
    """Return the arguments of `read_columns`; their errors name them."""
    size, pieces = whole_number("record_size", record_size), []
    for i, slot in enumerate(iterator_of("slots", slots, "(offset, size)")):
        try:
            offset, length = slot
        except (TypeError, ValueError):
            raise ArgumentTypeError(describe_wrong(f"slots[{i}]", slot, "(offset, size)")) from None
        pieces.append((whole_number(f"slots[{i}][0]", offset), whole_number(f"slots[{i}][1]", length)))
    return Slots(size, pieces)

"""Read one or many `.ffr` files as one sequence of samples."""

import logging
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ffrecord import _engine, paths
from ffrecord._columns import Slots
from ffrecord._engine import ARRAYS, PACKED
from ffrecord.buffers import as_bytes
from ffrecord.errors import (
    ArgumentError,
    ClosedError,
    FFRecordError,
    SampleIndexError,
)
from ffrecord.failures import (
    Array,
    Instead,
    Outcome,
    Packed,
    arrays_without,
    columns_without,
    failure_error,
    packed_without,
)
from ffrecord.file_set import FileSet
from ffrecord.indices import as_indices, as_int64
from ffrecord.prefetch import Prefetcher
from ffrecord.read_stats import ReadStats, collect
from ffrecord.sample_slice import SampleSlice

OnError = str | Callable[[Exception], Array]
Form = str | Slots  # of what a batch delivers
Out = Array | list[Array] | None
SlotList = Sequence[tuple[int, int]]  # (offset, size) of pieces of a record, bytes
T = TypeVar("T")

CHUNK_BYTES = 4 << 20  # iteration reads about this much at a time
CHUNK_MOST = 8192
THREADS = 4  # that read ahead
SKIPPED_MOST = 10_000  # samples of one reader; a dataset with more of them bad is to be mended, not trained on

logger = logging.getLogger("ffrecord")


class FileReader(FileSet):
    """Samples of one or many files, numbered through.

    Args:
        fname: a file; a directory (the shards of its dataset.json, else its `*.ffr` in string order); a glob pattern;
            or a list or tuple of such, one after the other.
        check_data: compare CRC-32 of tables when opening and of every sample when reading.
        io: how to read. "auto" learns from batch to batch what is cached, and reads accordingly (see `stats`).
            "pread" is one plain read after the other. "direct" goes around the page cache, with Linux AIO, where the
            file system allows. "mmap" maps the files and checks samples where they lie: `read` gives read-only views
            and copies nothing. But where a page cannot be had, because the disk fails or somebody cuts the file, the
            process is killed by SIGBUS.
        on_error: what a sample that cannot be read does to `read` and `read_packed`: "raise"; "skip", left out and
            counted in `skipped`; or a callable that gets the exception and returns the bytes to use instead, as a
            buffer or array. Each is logged, and after SKIPPED_MOST of them the next one raises.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `fname`.
        FormatError: a file is damaged, unfinished or none of ours.
        ChecksumError: the tables of a file do not match their CRC-32.

    A reader may be shared by threads, forked at any time, and pickled (by name: it opens its files again). It holds
    at most 1,024 files open, or a quarter of the soft limit of descriptors if that is less, and opens others when
    they are read.
    """

    __slots__ = ("__dict__", "__weakref__", "_on_error", "_warned", "skipped")

    def __init__(
        self,
        fname: paths.Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
    ) -> None:
        if not callable(on_error) and on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is {on_error!r}, expected 'raise', 'skip' or a callable")
        self._on_error = on_error
        self._warned = False
        self.skipped = 0
        super().__init__(fname, check_data, io=io)
        if self._check_data:
            self._warn_legacy()

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
        packed: Packed = self._read(PACKED, indices, None if out is None else _as_out(out))
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
                necessarily all of it. The whole sample is compared with its CRC-32 in any case.
            out: memory to fill, for each slot a writable C-contiguous array of at least k * size bytes; fresh memory if
                None. Left in an unknown state by an error.

        Returns:
            For each slot a writable C-contiguous uint8 array [k, size]; the start of `out` if given. `on_error="skip"`
            leaves rows out of all of them alike; what a callable gives must have `record_size` bytes.

        Raises:
            As for `read`; FormatError: a sample has another size; ValueError: a slot is not within the sample, `out` is
            too small or has not one for each slot, or a replacement has another size.
        """
        columns: list[Array] = self._read(Slots(record_size, slots), indices, _as_outs(out))
        return columns

    def read_range(self, start: SupportsIndex, stop: SupportsIndex) -> list[Array]:
        """The samples from `start` up to, not including, `stop`: read in sequence, at the speed of the disk.

        Args:
            start, stop: 0 <= start <= stop <= n.

        Returns, raises:
            As for `read`.
        """
        low, high = as_int64(start), as_int64(stop)
        if not 0 <= low <= high <= self.n:
            raise SampleIndexError(
                f"range {low} .. {high}, expected 0 <= start <= stop <= {self.n}: {self._fnames[0]} …"
            )
        return [array for chunk in self._chunks(range(low, high)) for array in chunk]

    def read_one(self, index: SupportsIndex) -> Array:
        """Sample `index`; arguments and errors as for `read`. "skip" raises here: there is nothing else to return."""
        outcome = self._now(ARRAYS, [as_int64(index)])
        if outcome.failures and not callable(self._on_error):
            raise outcome.failures[0][1]
        only: Array = self._settled(ARRAYS, outcome)[0]
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
            room = None if out is None else _as_outs(out(len(indices)))
            if ahead == 0:
                return partial(self._read, form, indices, room)
            wait = self._begin(form, indices, room, threads=threads)
            return lambda: self._settled(form, wait(), room)

        return Prefetcher(batches, begin, ahead)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSlice": ...
    @overload
    def __getitem__(self, index: Iterable[SupportsIndex]) -> list[Array]: ...

    def __getitem__(self, index: Any) -> Any:
        """One sample for an int, a lazy `SampleSlice` for a slice, `read(index)` for several indices."""
        if isinstance(index, slice):
            return SampleSlice(self, range(self.n)[index])
        if isinstance(index, SupportsIndex) and not getattr(index, "shape", ()):
            return self.read_one(index)
        return self.read(index)

    def __iter__(self) -> Iterator[Array]:
        return self._iterate(range(self.n))

    def _iterate(self, indices: range) -> Iterator[Array]:
        return chain.from_iterable(self._chunks(indices))

    def _chunks(self, indices: range) -> Iterator[list[Array]]:
        """What lies at `indices`, a few megabytes at a time, the next ones being read meanwhile."""

        def begin(positions: npt.NDArray[np.int64]) -> Callable[[], list[Array]]:
            wait = self._begin(ARRAYS, positions, sequential=indices.step == 1)
            return lambda: self._settled(ARRAYS, wait())

        # One piece at a time, or the kernel would not see a sequence.
        return Prefetcher(self._cut(indices), begin, 1 if len(indices) > 1 else 0)

    def _cut(self, indices: range) -> Iterator[npt.NDArray[np.int64]]:
        """`indices` in pieces of about CHUNK_BYTES."""
        for start in range(0, len(indices), CHUNK_MOST):
            part = indices[start : start + CHUNK_MOST]
            positions = np.arange(part.start, part.stop, part.step)
            ends = np.cumsum(self._call(self._engine.sizes, positions))
            yield from np.split(positions, np.flatnonzero(np.diff(ends // CHUNK_BYTES)) + 1)

    def _read(self, form: Form, indices: Iterable[SupportsIndex], out: Out = None) -> Any:
        return self._settled(form, self._now(form, indices, out), out)

    def _now(self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False) -> Outcome:
        """Read a batch. go_on: its good samples are wanted, whatever `on_error` says."""
        positions = as_indices(indices)
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
    ) -> Callable[[], Outcome]:
        """Start reading a batch; what waits for it."""
        positions = as_indices(indices).copy()  # the caller may use its array again meanwhile
        go_on = go_on or self._on_error != "raise"
        begin: Callable[..., _engine.Batch[Any]] = self._engine.read_ahead
        batch = self._call(begin, positions, self._check_data, go_on, form, out, threads, sequential)

        def wait() -> Outcome:
            read = batch.result()
            if self.closed:
                raise self._closed_error()
            if read is None:  # begun before a fork, by a thread that this process does not have
                return self._now(form, positions, out, go_on)
            self._warn_refusal()
            return self._outcome(read, positions, go_on)

        return wait

    def _begin_columns(
        self, indices: Iterable[SupportsIndex], slots: Slots, out: Sequence[npt.NDArray[Any]] | None = None
    ) -> Callable[[], Outcome]:
        """Start reading columns, for loaders: whatever `on_error` says, bad samples are told, and the others read."""
        return self._begin(slots, indices, _as_outs(out), go_on=True)

    def _begin_packed(self, indices: Iterable[SupportsIndex]) -> Callable[[], Outcome]:
        """The same for packed samples."""
        return self._begin(PACKED, indices, go_on=True)

    def _call(self, begin: Callable[..., T], positions: npt.NDArray[np.int64], *options: object) -> T:
        """What the engine's `begin` returns, its errors made ours."""
        try:
            result = begin(positions, *options)
        except ClosedError:
            raise self._closed_error() from None
        except IndexError as error:
            index, n = positions[error.args[0]], self.n
            raise SampleIndexError(
                f"index >= number of samples ({index} >= {n}): {self._fnames[0]} …"
                if index >= n
                else f"index {index}, expected {-n} <= index < {n}: {self._fnames[0]} …"
            ) from None
        self._warn_refusal()
        return result

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"FileReader has been closed. {self._fnames[0]} …")

    def _warn_refusal(self) -> None:
        if self._engine.aio_error and not self._warned:
            self._warned = True
            logger.warning("Linux AIO refused (%s)%s; reading without it", *_refusal(self._engine.aio_error))

    # Failures

    def _outcome(
        self, read: tuple[Any, list[_engine.Failure]], positions: npt.NDArray[np.int64], every: bool
    ) -> Outcome:
        result, failures = read
        wanted = failures if every else failures[:1]  # to put all of them into words may take seconds
        return Outcome(result, [(failure.order, self._error(failure, positions)) for failure in wanted])

    def _settled(self, form: Form, outcome: Outcome, out: Out = None) -> Any:
        """The result with the failed samples left out or replaced, as `on_error` says."""
        if not outcome.failures:
            return outcome.result
        instead = self._instead(outcome.failures)
        if form is ARRAYS:
            return arrays_without(outcome.result, instead)
        if isinstance(form, Slots):
            return columns_without(outcome.result, instead, form)
        return packed_without(outcome.result, instead, out if isinstance(out, np.ndarray) else None)

    def _instead(self, failures: list[tuple[int, Exception]]) -> Instead:
        instead: Instead = {}
        for place, error in failures:
            if self._on_error == "raise" or self.skipped >= SKIPPED_MOST:
                # Or the error, and the frames that it passes, would keep each other and the batch until a collection.
                failures.clear()
                try:
                    raise error
                finally:
                    del error
            self.skipped += 1
            logger.warning("skipped or replaced: %s", error)
            instead[place] = _replacement(self._on_error(error)) if callable(self._on_error) else None
        return instead

    def _error(self, failure: _engine.Failure, positions: npt.NDArray[np.int64]) -> Exception:
        index = int(positions[failure.order])
        index += self.n if index < 0 else 0
        number, local = self._engine.locate(index)
        return failure_error(failure, self._files[number], index, local)

    def stats(self) -> ReadStats:
        """What was read so far and how, in numbers; cheap. Of all threads, but not of other processes."""
        return collect(
            self._engine.counters(),
            batches=self._engine.batches,
            skipped=self.skipped,
            open_files=self._engine.open_files,
        )

    # Pickling

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"io": self._io, "on_error": self._on_error}
        return _reopen, (type(self), self._fnames, self._check_data, options, self.fingerprint()), self.__dict__ or None


def _reopen(
    cls: type[FileReader], fnames: list[str], check_data: bool, options: dict[str, Any], fingerprint: str
) -> FileReader:
    """Unpickle: open the same files by name; a subclass gets its own attributes back afterwards."""
    reader = cls.__new__(cls)
    FileReader.__init__(reader, fnames, check_data, **options)
    if reader.fingerprint() != fingerprint:
        reader.close()
        raise FFRecordError(f"{fnames[0]} …: the files differ from those this reader was pickled with")
    return reader


def _as_out(out: Any) -> Array:
    """Writable bytes of a caller's array."""
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.flags.writeable or out.dtype.hasobject:
        raise TypeError("out must be a writable C-contiguous numpy array")
    return out.reshape(-1).view(np.uint8)


def _as_outs(out: Sequence[npt.NDArray[Any]] | None) -> list[Array] | None:
    return None if out is None else [_as_out(each) for each in out]


def _replacement(data: Any) -> Array:
    """What an `on_error` callable gave, as an array of its own."""
    return np.frombuffer(as_bytes(data), np.uint8).copy()


def _refusal(errno: int) -> tuple[str, str]:
    hint = ": fs.aio-max-nr is used up" if errno == 11 else ""
    return os.strerror(errno), hint

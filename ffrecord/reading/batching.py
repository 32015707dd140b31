"""Batches of a record store, begun and waited for; and what becomes of records that cannot be had."""

import logging
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import ARRAYS, PACKED, Slots
from ffrecord.errors import ArgumentError, ClosedError, FormatError, SampleIndexError, counted, of_files
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Instead, Out, delivered, without
from ffrecord.reading.indices import as_indices, as_int64
from ffrecord.reading.prefetch import Prefetcher
from ffrecord.reading.python_engine import Background
from ffrecord.system.buffers import as_bytes

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


class BatchReading(ABC):
    """The machinery of a `Store`, which says what the arguments are."""

    __slots__ = ("_background", "_check_data", "_fnames", "_n", "_on_error", "skipped")

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

    @property
    def n(self) -> int:
        """Number of records in all files."""
        return self._n

    # For subclasses

    @abstractmethod
    def _load(self, positions: Indices) -> list[Array | Exception]:
        """The records at `positions`, int64 [k] in [0, n): writable 1-D uint8 arrays of their own memory.

        An exception stands for a record that could not be had. May be called by several threads, and after a fork.
        """

    def _release(self) -> None:  # noqa: B027 - most have nothing open
        """Give back what is open: called once, when no `_load` runs any more."""

    @property
    def _pieces_ahead(self) -> int:
        """Pieces of a sequence being read while one is used: with more, a kernel would not see a sequence."""
        return 1

    def _bytes_read(self, positions: Indices) -> int:
        """Bytes of the files that are read to have the records at `positions`; a guess will do."""
        return int(self._sizes(positions).sum())

    def _read_once(self, once: bool) -> None:  # noqa: B027
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
        return self._settled(form, self._now(form, indices, out), out)

    def _had(self, form: Form, indices: Iterable[SupportsIndex]) -> tuple[Any, Indices]:
        """What `_read` gives, and the positions of the samples in it, int64 [k]: `on_error` may have left some out."""
        positions = self._in_range(indices)
        outcome = self._now(form, positions)
        instead = self._instead(outcome.failures)
        left_out = [place for place, record in instead.items() if record is None]
        return without(form, outcome.result, instead), np.delete(positions, left_out)

    def _now(self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False) -> BatchOutcome:
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
            return lambda: self._settled(form, wait(), room)

        return Prefetcher(batches, begin, ahead)

    def _pieces(self, indices: range) -> Iterator[list[Array]]:
        """What lies at `indices`, a few megabytes at a time, the next ones being read meanwhile."""

        def begin(positions: Indices) -> Callable[[], list[Array]]:
            wait = self._begin(ARRAYS, positions, sequential=indices.step == 1)
            return lambda: self._settled(ARRAYS, wait())

        return Prefetcher(self._cut(indices), begin, self._pieces_ahead if len(indices) > 1 else 0)

    def _cut(self, indices: range) -> Iterator[Indices]:
        """`indices` in pieces of about CHUNK_BYTES."""
        for start in range(0, len(indices), CHUNK_MOST):
            part = indices[start : start + CHUNK_MOST]
            positions = np.arange(part.start, part.stop, part.step)
            ends = np.cumsum(self._sizes(positions))
            yield from np.split(positions, np.flatnonzero(np.diff(ends // CHUNK_BYTES)) + 1)

    # Failures

    def _settled(self, form: Form, outcome: BatchOutcome, out: Out = None) -> Any:
        """The result with the failed samples left out or replaced, as `on_error` says."""
        if not outcome.failures:
            return outcome.result
        return without(form, outcome.result, self._instead(outcome.failures), out)

    def _instead(self, failures: list[tuple[int, Exception]]) -> Instead:
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

"""Readers over the batch engine that read some special records in another way: compressed ones, or ones in pieces."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import Files
from ffrecord.reading.batch_forms import Array, BatchOutcome, Form, Out
from ffrecord.reading.indices import as_indices
from ffrecord.reading.record_reader import Read, RecordReader
from ffrecord.reading.stats import ReadStats
from ffrecord.reading.store import Indices, Store

SUMMED = ("batches", "records", "bytes", "requests", "cached_bytes", "io_seconds", "crc_seconds", "waits", "open_files")
NO_POSITIONS = np.empty(0, np.int64)


class FallbackReader(RecordReader):
    """A reader with special records.

    The engine alone reads a batch without them, and the other records of any batch.

    Subclasses define `_find_special` and `_load_special`. They may set `_inner`.
    """

    __slots__ = ()

    _inner: RecordReader | None = None  # reads the bytes of special records; users see one reader

    @abstractmethod
    def _find_special(self, positions: Indices) -> npt.NDArray[np.bool_] | None:
        """Return which records at `positions`, int64 [k] in [0, n), are special; None if no record of the store is."""

    @abstractmethod
    def _load_special(self, positions: Indices) -> list[Array | Exception]:
        """Load special records, with the result of `Store._load`."""

    def close(self) -> None:
        try:
            Store.close(self)
        finally:
            super().close()

    def stats(self) -> ReadStats:
        """Return the numbers of all reads so far; special records count with the reads that they need."""
        stats = super().stats()
        return stats if self._inner is None else sum_stats(stats, self._inner.stats())

    def _release(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> Indices:
        """Return the size of each record in bytes; special records are read for it."""
        positions = self._normalize_indices(indices)
        sizes, special = super().record_sizes(positions), self._find_special(positions)
        if special is not None and special.any():
            sizes[special] = Store.record_sizes(self, positions[special])
        return sizes

    def _read_single(self, index: int) -> Array | Read | None:
        if self._find_special(NO_POSITIONS) is not None:
            return None
        if type(self)._read_single is FallbackReader._read_single and isinstance(self._engine, Files):
            self._read_at_once()  # not in the constructor: `_find_special` works on an open reader only
        return super()._read_single(index)

    def _read_sync(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False
    ) -> BatchOutcome:
        positions = as_indices(indices)
        if self._all_plain(positions):
            return super()._read_sync(form, positions, out, go_on)
        return Store._read_sync(self, form, positions, out, go_on)

    def _begin(
        self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, **options: Any
    ) -> Callable[[], BatchOutcome]:
        positions = as_indices(indices)
        if self._all_plain(positions):
            return super()._begin(form, positions, out, **options)
        return Store._begin(self, form, positions, out, **options)

    def _all_plain(self, positions: Indices) -> bool:
        """Tell whether the engine alone reads these records.

        True also for indices out of range, which the engine refuses.
        """
        if self._find_special(NO_POSITIONS) is None:
            return True
        if not len(positions) or positions.min() < -self.n or positions.max() >= self.n:
            return True
        # Negative indices count from the end.
        special = self._find_special(positions % self.n)
        return special is None or not special.any()

    def _load(self, positions: Indices) -> list[Array | Exception]:
        special = self._find_special(positions)
        if special is None:
            return super()._load(positions)
        result: list[Any] = [None] * len(positions)
        for wanted, load in ((special, self._load_special), (~special, super()._load)):
            for place, record in zip(np.flatnonzero(wanted).tolist(), load(positions[wanted]), strict=True):
                result[place] = record
        return result


def sum_stats(stats: ReadStats, more: ReadStats) -> ReadStats:
    """Add the statistics of two readers that are one reader for users."""
    # NaN differs from itself: it stands for a share that is not known.
    known = [each for each in (stats, more) if each.cache_hit_share == each.cache_hit_share]
    share = sum(each.cache_hit_share * each.records for each in known) / max(1, sum(e.records for e in known))
    sums = {name: getattr(stats, name) + getattr(more, name) for name in SUMMED}
    return stats._replace(**sums, cache_hit_share=share if known else float("nan"))

"""How a dataset is cut into shards: which sample lies in which file, and where. Arithmetic on sizes in index order.

Two ways to cut. By count the tables of a shard have their exact size beforehand. By bytes the number of samples is not
known when the first one is written, so table space is reserved from the mean size of the samples before; what stays
unused becomes zeros in the extension block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord import format

Sizes = npt.NDArray[np.int64]

SLOTS_MAX = 1_000_000  # samples for which one shard reserves table space; 12 bytes each
FIRST_MARGIN = 0.25  # the first shard has only a few probes to go by
MARGIN = 0.0625
SPARE_SLOTS = 16
PROBES = 8
STEM = "PART"


def shard_name(number: int, stem: str = STEM) -> str:
    """The file name of shard `number`, with this stem as the original's `dump` gives it."""
    return f"{stem}_{number:05d}{format.SUFFIX}"


class Start(NamedTuple):
    """Where a layout begins: after what an earlier write, or another one, has finished.

    Attributes:
        shard: number of the first shard.
        samples: of the dataset that lie in shards before it.
        bytes: of these samples.
    """

    shard: int = 0
    samples: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class ByCount:
    """Every shard but the last holds `samples` samples, > 0."""

    samples: int


@dataclass(frozen=True)
class ByBytes:
    """A shard's samples are at most `size` bytes together, > 0; a larger sample has a shard to itself.

    Attributes:
        size: bytes.
        probes: sizes of a few samples, from which the first shard's table space is estimated.
    """

    size: int
    probes: Sequence[int] = ()


BEGINNING = Start()


def split_evenly(total: int, shards: int) -> ByCount:
    """The cut into `shards` files of ceil(total / shards) samples; fewer files where that suffices."""
    return ByCount(max(1, -(-total // shards)))


def shard_count(total: int, cut: ByCount) -> int:
    """How many files that is; an empty dataset has one."""
    return max(1, -(-total // cut.samples))


class Segment(NamedTuple):
    """Consecutive samples that lie together in one shard.

    Attributes:
        shard: its number.
        offset: of the first of them in the file, bytes.
        samples: how many.
    """

    shard: int
    offset: int
    samples: int


class Layout:
    """Gives every sample its place, in index order.

    What it answers depends on the sizes alone, never on how they are divided into calls.

    Args:
        total: samples of the whole dataset, >= 0.
        cut: by count or by bytes.
        payload_size: bytes of the extension block's payload; None for shards without a block (by count only).
        start: what there is already.

    Attributes:
        placed: samples placed so far.
        closed: shards 0 .. closed - 1 get no further samples.
        data_starts: offset of the first sample of each shard opened so far, bytes.
    """

    def __init__(self, total: int, cut: ByCount | ByBytes, payload_size: int | None, start: Start = BEGINNING) -> None:
        self._total, self._cut = total, cut
        self._block = 0 if payload_size is None else format.BLOCK.size + payload_size
        self.placed, self.closed = start.samples, start.shard
        self.data_starts: list[int] = [0] * start.shard
        self._bytes = start.bytes  # of all samples placed
        if total == 0 and not start.shard:
            self._open()
            self.closed = 1

    def place(self, sizes: Sizes) -> list[Segment]:
        """Places of the next samples, whose sizes in bytes are `sizes` [k]."""
        ends = np.cumsum(sizes)
        segments, first = [], 0
        while first < len(sizes):
            if self.closed == len(self.data_starts):
                self._open()
            before = int(ends[first - 1]) if first else 0
            count = self._fitting(ends[first:] - before)
            if count:
                segments.append(Segment(self.closed, self.data_starts[self.closed] + self._shard_bytes, count))
                self._add(count, int(ends[first + count - 1]) - before)
                first += count
            else:
                self.closed += 1
        return segments

    def _open(self) -> None:
        self._slots = self._reserve()
        self._shard_samples = self._shard_bytes = 0
        self.data_starts.append(format.tables_end(self._slots) + self._block)

    def _reserve(self) -> int:
        """Samples for which the next shard has table space."""
        remaining = self._total - self.placed
        if isinstance(self._cut, ByCount):
            return min(self._cut.samples, remaining)
        mean, margin = self._mean()
        expected = self._cut.size / max(mean, 1.0) * (1 + margin)
        return min(math.ceil(expected) + SPARE_SLOTS, SLOTS_MAX, remaining)

    def _mean(self) -> tuple[float, float]:
        """(mean size of a sample so far, how far it may be off as a fraction)."""
        if self.placed:
            return self._bytes / self.placed, MARGIN
        probes = self._cut.probes if isinstance(self._cut, ByBytes) else ()
        return sum(probes) / max(len(probes), 1), FIRST_MARGIN

    def _fitting(self, ends: Sizes) -> int:
        """How many of the samples that end at `ends`, in bytes from here, the open shard still takes."""
        count = min(self._slots - self._shard_samples, len(ends))
        if isinstance(self._cut, ByBytes):
            room = self._cut.size - self._shard_bytes
            count = min(count, int(np.searchsorted(ends, room, side="right")))
            if self._shard_samples == 0:
                count = max(count, 1)
        return count

    def _add(self, count: int, size: int) -> None:
        self._shard_samples += count
        self._shard_bytes += size
        self.placed += count
        self._bytes += size
        if self._shard_samples == self._slots or self.placed == self._total:
            self.closed += 1

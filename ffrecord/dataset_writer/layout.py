"""How a dataset is cut into shards: which sample lies in which file, and where. Arithmetic on sizes in index order.

Two ways to cut. By count the tables of a shard have their exact size beforehand. By bytes the number of samples is not
known when the first one is written, so table space is reserved from the mean size of the samples before; what stays
unused becomes zeros in the extension block. The last shard always has exact tables: where they were not foreseen, its
samples are moved in the end.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.format import ffr_layout

Sizes = npt.NDArray[np.int64]

SLOTS_MAX = 1_000_000  # samples for which one shard reserves table space; 12 bytes each
FIRST_MARGIN = 0.25  # the first shard has only a few samples to go by
MARGIN = 0.0625
SPARE_SLOTS = 16
FIRST_SAMPLES = 8  # whose sizes the first shard goes by
FIRST_BYTES = 16 << 20  # or fewer, if they are as large as this together; workers hold more than that
STEM = "PART"


def shard_name(number: int, stem: str = STEM) -> str:
    """The file name of shard `number`, with this stem as the original's `dump` gives it."""
    return f"{stem}_{number:05d}{ffr_layout.SUFFIX}"


class Start(NamedTuple):
    """Where a layout begins: after what an earlier write, or another one, has finished.

    Attributes:
        shard: number of the first shard.
        samples: of the dataset that lie in shards before it.
        bytes: of these samples.
        skipped: samples left out before it.
    """

    shard: int = 0
    samples: int = 0
    bytes: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class ByCount:
    """Every shard but the last holds `samples` samples, > 0."""

    samples: int


@dataclass(frozen=True)
class ByBytes:
    """A shard's samples are at most `size` bytes together, > 0; a larger sample has a shard to itself.

    Attributes:
        size: bytes.
    """

    size: int


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


class ShardLayout:
    """Gives every sample its place, in index order.

    Where samples end up depends on their sizes alone, never on how these are divided into calls, nor on `total`.

    Args:
        cut: by count or by bytes.
        payload_size: bytes of the extension block's payload; None for shards without a block (by count only).
        total: how many samples there will be, None if unknown. Where it is wrong, the last shard has to be moved.
        start: what there is already.

    Attributes:
        placed: samples placed so far.
        closed: shards 0 .. closed - 1 get no further samples.
        data_starts: offset of the first sample of each shard opened so far while it is filled, bytes.
        final_starts: the same for each closed shard in the end.
    """

    def __init__(
        self, cut: ByCount | ByBytes, payload_size: int | None, total: int | None = None, start: Start = BEGINNING
    ) -> None:
        self._cut, self._expected = cut, total
        self._block = 0 if payload_size is None else ffr_layout.BLOCK.size + payload_size
        self.placed, self.closed = start.samples, start.shard
        self.data_starts: list[int] = [0] * start.shard
        self.final_starts: list[int] = [0] * start.shard
        self._bytes = start.bytes  # of all samples placed
        self._first: list[int] = []  # sizes of the first few
        self._ready = isinstance(cut, ByCount) or start.samples > 0

    def learn(self, sizes: Sizes) -> bool:
        """Look at the next sizes; whether enough is known for `place`. Once it is, it stays so."""
        for size in sizes[:FIRST_SAMPLES].tolist():
            if not self._ready:
                self._first.append(size)
                self._ready = len(self._first) == FIRST_SAMPLES or sum(self._first) >= FIRST_BYTES
        return self._ready

    def place(self, sizes: Sizes) -> list[Segment]:
        """Places of the next samples, whose sizes in bytes are `sizes` [k]. Only after `learn` or `end` allowed it."""
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
                self._close(self._slots)
        return segments

    def skip(self, count: int) -> None:
        """Expect that many samples less."""
        if self._expected is not None:
            self._expected -= count

    def end(self) -> None:
        """There are no more samples than were placed. Without any there is one empty shard."""
        if not self.data_starts:
            self._open()
        if self.closed < len(self.data_starts):
            self._close(self._shard_samples)

    def _open(self) -> None:
        self._slots = self._reserve()
        self._shard_samples = self._shard_bytes = 0
        self.data_starts.append(self._start(self._foreseen()))

    def _start(self, slots: int) -> int:
        return ffr_layout.tables_end(slots) + self._block

    def _reserve(self) -> int:
        """Samples that the next shard takes at most."""
        if isinstance(self._cut, ByCount):
            return self._cut.samples
        mean, margin = self._mean()
        return min(math.ceil(self._cut.size / max(mean, 1.0) * (1 + margin)) + SPARE_SLOTS, SLOTS_MAX)

    def _foreseen(self) -> int:
        """Samples for which the next shard will have table space, as far as one can tell."""
        remaining = self._slots if self._expected is None else max(0, self._expected - self.placed)
        all_fit = isinstance(self._cut, ByCount) or remaining * self._mean()[0] <= self._cut.size
        return min(self._slots, remaining) if all_fit else self._slots

    def _mean(self) -> tuple[float, float]:
        """(mean size of a sample so far, how far it may be off as a fraction)."""
        if self.placed:
            return self._bytes / self.placed, MARGIN
        return sum(self._first) / max(len(self._first), 1), FIRST_MARGIN

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
        if self._shard_samples == self._slots:
            self._close(self._slots)

    def _close(self, slots: int) -> None:
        """The open shard gets no more samples, and table space for `slots`."""
        self.final_starts.append(self._start(slots))
        self.closed += 1

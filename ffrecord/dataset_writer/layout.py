"""Divide a dataset into shards: compute shard and offset of every sample from the sizes, in index order.

There are two ways to cut. By count, the tables of a shard have their exact size beforehand. By bytes, the number of
samples is unknown when the first one is written. Then table space is reserved from the mean size of the samples before,
and unused space becomes zeros in the extension block. The last shard always has exact tables: if they were not
foreseen, its samples are moved in the end.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.format import ffr_layout

Sizes = npt.NDArray[np.int64]

SLOTS_MAX = 1_000_000  # largest table of a shard reserved by bytes, samples of 12 bytes each
FIRST_MARGIN = 0.25  # the first shard has only a few samples to go by
MARGIN = 0.0625  # later shards know the mean of all samples before
SPARE_SLOTS = 16  # for shards of few samples, where a percentage is less than one slot
FIRST_SAMPLES = 8  # number of samples whose sizes decide the first shard's table space
FIRST_BYTES = 16 << 20  # or fewer samples if they have this size together; workers can hold more than that
STEM = "PART"


def shard_name(number: int, stem: str = STEM) -> str:
    """Return the file name of shard `number`, with a stem as the original's `dump` uses it."""
    return f"{stem}_{number:05d}{ffr_layout.SUFFIX}"


class Start(NamedTuple):
    """The position where a layout begins: after the shards of an earlier write, or of the dataset appended to.

    Attributes:
        shard: number of the first shard.
        samples: number of samples of the dataset that lie in shards before it.
        bytes: size of these samples.
        skipped: number of samples skipped before it.
    """

    shard: int = 0
    samples: int = 0
    bytes: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class ByCount:
    """A cut where every shard but the last holds `samples` samples, > 0."""

    samples: int


@dataclass(frozen=True)
class ByBytes:
    """A cut where a shard's samples have at most `size` bytes together, > 0; a larger sample has a shard to itself.

    Attributes:
        size: bytes.
    """

    size: int


BEGINNING = Start()


def split_evenly(total: int, shards: int) -> ByCount:
    """Return the cut into `shards` files of ceil(total / shards) samples, or into fewer files if that is enough."""
    return ByCount(max(1, -(-total // shards)))


def shard_count(total: int, cut: ByCount) -> int:
    """Return the number of files of a cut; an empty dataset has one."""
    return max(1, -(-total // cut.samples))


class Segment(NamedTuple):
    """Consecutive samples that lie together in one shard.

    Attributes:
        shard: number of the shard.
        offset: offset of the first sample in the file, bytes.
        samples: number of samples.
    """

    shard: int
    offset: int
    samples: int


class ShardLayout:
    """The arithmetic that gives every sample its place, in index order.

    Places depend on the sizes of samples alone, never on `total` or on how the sizes are divided into calls.

    Args:
        cut: cut by count or by bytes.
        payload_size: size of the extension block's payload, bytes; None for shards without a block (by count only).
        total: expected number of samples, None if unknown. If it is wrong, the last shard has to be moved.
        start: position after the existing shards.

    Attributes:
        placed: number of samples placed so far.
        closed: number of closed shards; they get no more samples.
        data_starts: offset of the first sample of each shard while it is filled, bytes.
        final_starts: offset of the first sample of each closed shard in the end, bytes.
    """

    def __init__(
        self, cut: ByCount | ByBytes, payload_size: int | None, total: int | None = None, start: Start = BEGINNING
    ) -> None:
        self._cut, self._expected = cut, total
        self._block = 0 if payload_size is None else ffr_layout.BLOCK.size + payload_size
        self.placed, self.closed = start.samples, start.shard
        # Zeros for existing shards, so that a shard's number is its place in the lists.
        self.data_starts: list[int] = [0] * start.shard
        self.final_starts: list[int] = [0] * start.shard
        self._bytes = start.bytes  # of all samples placed
        self._first: list[int] = []  # sizes of the first few
        # Tables cut by count have a known size, and an existing dataset shows its mean size.
        self._ready = isinstance(cut, ByCount) or start.samples > 0

    def learn(self, sizes: Sizes) -> bool:
        """Record the next sizes; return whether enough is known for `place`. Once True, it stays so."""
        # `_first` is full before more of them could matter.
        for size in sizes[:FIRST_SAMPLES].tolist():
            if not self._ready:
                self._first.append(size)
                self._ready = len(self._first) == FIRST_SAMPLES or sum(self._first) >= FIRST_BYTES
        return self._ready

    def place(self, sizes: Sizes) -> list[Segment]:
        """Return the places of the next samples, whose sizes in bytes are `sizes` [k]. Call it only after `learn` or
        `end` allows it.
        """
        ends = np.cumsum(sizes)
        segments, first = [], 0
        while first < len(sizes):
            # Open a shard only for a sample that needs it: no empty one follows the last.
            if self.closed == len(self.data_starts):
                self._open()
            before = int(ends[first - 1]) if first else 0
            count = self._fitting(ends[first:] - before)
            if count:
                segments.append(Segment(self.closed, self.data_starts[self.closed] + self._shard_bytes, count))
                self._add(count, int(ends[first + count - 1]) - before)
                first += count
            else:
                # The next sample does not fit. Table space that is left becomes padding.
                self._close(self._slots)
        return segments

    def skip(self, count: int) -> None:
        """Expect `count` samples less."""
        if self._expected is not None:
            self._expected -= count

    def end(self) -> None:
        """Close the last shard, because there are no more samples. Without any sample there is one empty shard."""
        if not self.data_starts:
            self._open()
        if self.closed < len(self.data_starts):
            self._close(self._shard_samples)

    def _open(self) -> None:
        self._slots = self._reserve()
        self._shard_samples = self._shard_bytes = 0
        self.data_starts.append(self._start(self._slots_to_reserve()))

    def _start(self, slots: int) -> int:
        return ffr_layout.tables_end(slots) + self._block

    def _reserve(self) -> int:
        """Return the largest number of samples of the next shard."""
        if isinstance(self._cut, ByCount):
            return self._cut.samples
        mean, margin = self._mean()
        # Samples may have 0 bytes.
        return min(math.ceil(self._cut.size / max(mean, 1.0) * (1 + margin)) + SPARE_SLOTS, SLOTS_MAX)

    def _slots_to_reserve(self) -> int:
        """Return the number of samples to reserve table space for in the next shard."""
        remaining = self._slots if self._expected is None else max(0, self._expected - self.placed)
        # If the rest fits this shard, it is the last one: exact tables now save moving its samples at the end.
        all_fit = isinstance(self._cut, ByCount) or remaining * self._mean()[0] <= self._cut.size
        return min(self._slots, remaining) if all_fit else self._slots

    def _mean(self) -> tuple[float, float]:
        """Return (mean size of a sample so far, possible error as a fraction)."""
        if self.placed:
            return self._bytes / self.placed, MARGIN
        return sum(self._first) / max(len(self._first), 1), FIRST_MARGIN

    def _fitting(self, ends: Sizes) -> int:
        """Return how many of the samples that end at `ends`, in bytes from here, still fit the open shard."""
        count = min(self._slots - self._shard_samples, len(ends))
        if isinstance(self._cut, ByBytes):
            room = self._cut.size - self._shard_bytes
            # "right": a sample that ends exactly at the limit still fits.
            count = min(count, int(np.searchsorted(ends, room, side="right")))
            if self._shard_samples == 0:
                # A sample larger than any shard would fit nowhere.
                count = max(count, 1)
        return count

    def _add(self, count: int, size: int) -> None:
        self._shard_samples += count
        self._shard_bytes += size
        self.placed += count
        self._bytes += size
        # Close a full shard at once, so that it can be finished while others are filled.
        if self._shard_samples == self._slots:
            self._close(self._slots)

    def _close(self, slots: int) -> None:
        """Close the open shard, with table space for `slots` samples."""
        self.final_starts.append(self._start(slots))
        self.closed += 1

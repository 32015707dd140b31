"""The parent's books: where every piece goes, in index order, and which shards are complete."""

from functools import partial

import numpy as np

from ffrecord import format
from ffrecord.errors import FFRecordError
from ffrecord.manifest import Shard
from ffrecord.sharding import shard_file
from ffrecord.sharding.finisher import Finisher
from ffrecord.sharding.job import Job
from ffrecord.sharding.layout import BEGINNING, Layout, Segment, Start
from ffrecord.sharding.messages import Place, Sized


class _OpenShard:
    """A shard's tables so far, 12 bytes a sample, in the order of placing."""

    def __init__(self) -> None:
        self.sizes, self.checksums = bytearray(), bytearray()
        self.placed = self.written = 0
        self.next = BEGINNING  # known once the shard is closed

    def add(self, piece: Sized, first: int, last: int) -> None:
        """Add samples first .. last - 1 of a piece."""
        self.sizes += piece.sizes[first * format.OFFSET.itemsize : last * format.OFFSET.itemsize]
        self.checksums += piece.checksums[first * format.CRC.itemsize : last * format.CRC.itemsize]
        self.placed += last - first


class Assembly:
    """Places pieces and has complete shards finished.

    Args:
        total: samples of the dataset.
        layout: gives the places.
        job: of which it needs payload, files, keep and start.
        finisher: completes shards.
    """

    def __init__(self, total: int, layout: Layout, job: Job, finisher: Finisher) -> None:
        self._total, self._layout, self._job, self._finisher = total, layout, job, finisher
        self._early: dict[int, Sized] = {}  # pieces that wait for one before them
        self._placed: dict[int, tuple[list[Segment], int]] = {}  # pieces not yet written, with their size
        self._open: dict[int, _OpenShard] = {}
        self._end = job.start  # of the shards that have been seen to be closed
        self._made = job.start.shard  # files
        self.written, self.bytes = job.start.samples, job.start.bytes
        self._open_new()
        self._settle()

    @property
    def complete(self) -> bool:
        """Whether every sample is in its place."""
        return self.written == self._total

    def sized(self, message: Sized) -> list[Place]:
        """Take note of a serialized piece.

        Returns:
            the pieces that now have their place, in order.

        Raises:
            OSError (also a RuntimeError): a new shard cannot be made.
        """
        self._early[message.start] = message
        places = []
        while (piece := self._early.pop(self._layout.placed, None)) is not None:
            places.append(self._place(piece))
        return places

    def _place(self, piece: Sized) -> Place:
        sizes = np.frombuffer(piece.sizes, format.OFFSET)
        segments = self._layout.place(sizes)
        self._open_new()
        first = 0
        for segment in segments:
            self._open[segment.shard].add(piece, first, first + segment.samples)
            first += segment.samples
        self._placed[piece.start] = segments, int(sizes.sum())
        self._settle()
        return Place(piece.start, segments)

    def wrote(self, start: int) -> tuple[int, int]:
        """Take note that the piece at `start` is in its place.

        Returns:
            (samples, bytes) of it.
        """
        segments, size = self._placed.pop(start)
        samples = sum(segment.samples for segment in segments)
        self.written += samples
        self.bytes += size
        for segment in segments:
            self._open[segment.shard].written += segment.samples
            if segment.shard < self._end.shard:
                self._finish_if_complete(segment.shard)
        return samples, size

    def _open_new(self) -> None:
        """Make the files of the shards that the layout has begun."""
        starts = self._layout.data_starts
        for number in range(self._made, len(starts)):
            shard_file.create(self._job.files.path(number), self._job.files.final(number), starts[number])
            self._open[number] = _OpenShard()
        self._made = len(starts)

    def _settle(self) -> None:
        """Look at the shards that got their last sample just now."""
        for number in range(self._end.shard, self._layout.closed):
            shard, before = self._open[number], self._end
            size = int(np.frombuffer(shard.sizes, format.OFFSET).sum())
            self._end = shard.next = Start(number + 1, before.samples + shard.placed, before.bytes + size)
            self._finish_if_complete(number)

    def _finish_if_complete(self, number: int) -> None:
        shard = self._open[number]
        if shard.written < shard.placed:
            return
        del self._open[number]
        self._finisher.add(partial(self._finish, number, shard))

    def _finish(self, number: int, shard: _OpenShard) -> Shard:
        """Complete a shard; runs in the finisher's thread."""
        finished = shard_file.finish(
            self._job.files.path(number),
            self._job.files.final(number),
            self._layout.data_starts[number],
            np.frombuffer(shard.sizes, format.OFFSET),
            np.frombuffer(shard.checksums, format.CRC),
            self._job.payload,
        )
        self._job.keep(finished, shard.next)
        return finished

    def check(self) -> None:
        """Raise FFRecordError unless everything was accounted for."""
        if not self.complete or self._early or self._placed or self._open:
            raise FFRecordError(f"{self._job.files.label}: {self.written} samples written, expected {self._total}")

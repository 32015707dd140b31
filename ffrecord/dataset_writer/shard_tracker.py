"""Track the shards of a write: give every chunk its place, in index order, and notice complete shards."""

import logging
from functools import partial

import numpy as np

from ffrecord.dataset_writer import shards
from ffrecord.dataset_writer.encoding import Encoding, Shape, encoding_from_arguments, encoding_from_schema
from ffrecord.dataset_writer.job import ShardJob
from ffrecord.dataset_writer.layout import BEGINNING, FIRST_SAMPLES, ByCount, Segment, ShardLayout, Start
from ffrecord.dataset_writer.messages import (
    Assignment,
    ChunkEncoded,
    ChunkPlacement,
    ChunkWritten,
    Preassigned,
    StreamTask,
    TaskDone,
)
from ffrecord.dataset_writer.sample_sources import Source
from ffrecord.dataset_writer.shards import ShardFinisher
from ffrecord.errors import FFRecordError, SampleError, plural
from ffrecord.format import ffr_layout
from ffrecord.format.manifest import Shard
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Beat

TOLD = 5  # of them are logged one by one

log = logging.getLogger("ffrecord")


class Skipping:
    """Keeps count.

    Args:
        source: has names for its samples.
        most: how many may be left out.
        before: how many were, by the write that this one goes on with.
    """

    def __init__(self, source: Source, most: int | None, before: int = 0) -> None:
        self._source, self._most, self._count = source, most or 0, before
        self._told = 0

    def add(self, piece: ChunkEncoded) -> None:
        """Take note of what was left out of a piece.

        Raises:
            SampleError: too many now.
        """
        for skipped in piece.skipped:
            self._count += 1
            name = self._source.name(Beat(heartbeats.SAMPLE, skipped.index, 0, piece.task))
            if self._count > self._most:
                raise SampleError(
                    f"{plural(self._count, 'sample')} could not be written, max_skipped is {self._most}; the "
                    f"latest, {name}: "
                    f"{skipped.reason}",
                    index=skipped.index,
                )
            if self._told < TOLD:
                self._told += 1
                log.warning("%s skipped: %s", name, skipped.reason)

    def close(self) -> None:
        """Tell how many there were, if not all were told."""
        if self._count > self._told:
            log.warning("%d samples skipped in all", self._count)


Key = tuple[int, int]  # (task, piece)


class _OpenShard:
    """A shard's tables so far, 12 bytes a sample, in the order of placing."""

    def __init__(self) -> None:
        self.sizes, self.checksums = bytearray(), bytearray()
        self.placed = self.written = self.skipped = 0
        self.next = BEGINNING  # known once the shard is closed

    def add(self, piece: ChunkEncoded, first: int, last: int) -> None:
        """Add samples first .. last - 1 of a piece."""
        self.sizes += piece.sizes[first * ffr_layout.OFFSET.itemsize : last * ffr_layout.OFFSET.itemsize]
        self.checksums += piece.checksums[first * ffr_layout.CRC.itemsize : last * ffr_layout.CRC.itemsize]
        self.placed += last - first
        # What was left out after the last sample of a shard belongs to the next one, or is left out once more.
        self.skipped += sum(first <= skipped.before < last for skipped in piece.skipped)

    def foresee(self, samples: int, size: int) -> None:
        """Add samples of `size` bytes each, whose checksums will be known later."""
        self.sizes += np.full(samples, size, ffr_layout.OFFSET).tobytes()
        self.checksums += bytes(samples * ffr_layout.CRC.itemsize)
        self.placed += samples

    def check_in(self, first: int, checksums: bytes) -> None:
        """The checksums of samples first, first + 1, … that were foreseen."""
        start = first * ffr_layout.CRC.itemsize
        self.checksums[start : start + len(checksums)] = checksums


class PlacedShards:
    """Places pieces and has complete shards finished.

    Args:
        layout: gives the places.
        job: of which it needs files, keep and start.
        payload: of every shard's extension block; None for no block.
        finisher: completes shards.
        record_size: of every sample, if the places of all are to be foreseen, > 0; None if they are to be sized.
    """

    def __init__(
        self,
        layout: ShardLayout,
        job: ShardJob,
        payload: bytes | None,
        finisher: ShardFinisher,
        record_size: int | None = None,
    ) -> None:
        self._layout, self._job, self._payload, self._finisher = layout, job, payload, finisher
        self._record_size = record_size
        if record_size is not None:
            layout.learn(np.full(FIRST_SAMPLES, record_size))
        self._early: dict[Key, ChunkEncoded] = {}  # pieces that wait for one before them
        self._next: Key = 0, 0
        self._unplaced: list[ChunkEncoded] = []  # pieces in order, while the layout does not know enough
        self._placed: dict[Key, tuple[list[Segment], int]] = {}  # pieces not yet written, with their size
        self._open: dict[int, _OpenShard] = {}
        self._end = job.start  # of the shards that have been seen to be closed
        self._made = job.start.shard  # files
        self._tasks: int | None = None  # of the whole source
        self._skipped = 0  # before the next sample, since the last that was placed
        self.samples, self.bytes, self.skipped = job.start.samples, job.start.bytes, job.start.skipped

    @property
    def first_unfinished(self) -> int:
        """The first task of which not all is sized."""
        return self._next[0]

    @property
    def complete(self) -> bool:
        """Whether every sample is in its place."""
        return self._next[0] == self._tasks and not self._unplaced and not self._placed

    def end(self, tasks: int) -> list[ChunkPlacement]:
        """There are that many tasks, and no more.

        Returns:
            as `sized`.

        Raises:
            OSError (also a RuntimeError): a new shard cannot be made.
        """
        self._tasks = tasks
        return self._end_if_sized()

    def sized(self, message: ChunkEncoded) -> list[ChunkPlacement]:
        """Take note of a serialized piece.

        Returns:
            the pieces that now have their place, in order.

        Raises:
            OSError (also a RuntimeError): a new shard cannot be made.
        """
        self._early[message.task, message.piece] = message
        places = []
        while (piece := self._early.pop(self._next, None)) is not None:
            self._next = (piece.task + 1, 0) if piece.last else (piece.task, piece.piece + 1)
            self._layout.skip(len(piece.skipped))
            self.skipped += len(piece.skipped)
            self._unplaced.append(piece)
            if self._layout.learn(np.frombuffer(piece.sizes, ffr_layout.OFFSET)):
                places += self._place_all()
        return places + self._end_if_sized()

    def foresee(self, task: int, samples: int) -> Preassigned | None:
        """Give the samples of the next task their places, if those are to be foreseen.

        Raises:
            OSError (also a RuntimeError): a new shard cannot be made.
        """
        size = self._record_size
        if size is None:
            return None
        segments = self._layout.place(np.full(samples, size))
        self._open_new()
        for segment in segments:
            self._open[segment.shard].foresee(segment.samples, size)
        self._placed[task, 0], self._next = (segments, samples * size), (task + 1, 0)
        self._note_closed()
        return Preassigned(size, segments)

    def filled(self, message: TaskDone) -> tuple[int, int]:
        """Take note that the samples of a task are in the places that were foreseen.

        Returns:
            (samples, bytes) of it.

        Raises:
            FFRecordError: they are not as many.
        """
        segments, expected = self._placed[message.task, 0]
        size = self._record_size or 0
        if message.samples * size != expected:
            what = f"task {message.task} has {message.samples} samples of {size} bytes"
            raise FFRecordError(f"{self._job.files.label}: {what}, expected {plural(expected, 'byte')}")
        start = 0
        for segment in segments:
            first = (segment.offset - self._layout.data_starts[segment.shard]) // size
            stop = start + segment.samples * ffr_layout.CRC.itemsize
            self._open[segment.shard].check_in(first, message.checksums[start:stop])
            start = stop
        return self.wrote((message.task, 0))

    def _end_if_sized(self) -> list[ChunkPlacement]:
        if self._next[0] != self._tasks:
            return []
        places = self._place_all()
        self._layout.end()
        self._open_new()
        self._note_closed()
        return places

    def _place_all(self) -> list[ChunkPlacement]:
        pieces, self._unplaced = self._unplaced, []
        return [place for piece in pieces if (place := self._place(piece)).segments]

    def _place(self, piece: ChunkEncoded) -> ChunkPlacement:
        sizes = np.frombuffer(piece.sizes, ffr_layout.OFFSET)
        segments = self._layout.place(sizes)
        self._open_new()
        first = 0
        for segment in segments:
            self._open[segment.shard].add(piece, first, first + segment.samples)
            first += segment.samples
        if segments:
            self._open[segments[0].shard].skipped += self._skipped
            self._placed[piece.task, piece.piece] = segments, int(sizes.sum())
            self._skipped = 0
        self._skipped += sum(skipped.before == len(sizes) for skipped in piece.skipped)
        self._note_closed()
        return ChunkPlacement(piece.task, piece.piece, segments)

    def wrote(self, key: Key) -> tuple[int, int]:
        """Take note that a piece is in its place.

        Returns:
            (samples, bytes) of it.
        """
        segments, size = self._placed.pop(key)
        samples = sum(segment.samples for segment in segments)
        self.samples += samples
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
            shards.create(self._job.files.path(number), self._job.files.final(number), starts[number])
            self._open[number] = _OpenShard()
        self._made = len(starts)

    def _note_closed(self) -> None:
        """Look at the shards that got their last sample just now."""
        for number in range(self._end.shard, self._layout.closed):
            shard, before = self._open[number], self._end
            size = int(np.frombuffer(shard.sizes, ffr_layout.OFFSET).sum())
            self._end = shard.next = Start(
                number + 1, before.samples + shard.placed, before.bytes + size, before.skipped + shard.skipped
            )
            self._finish_if_complete(number)

    def _finish_if_complete(self, number: int) -> None:
        shard = self._open[number]
        if shard.written < shard.placed:
            return
        del self._open[number]
        self._finisher.add(partial(self._finish, number, shard))

    def _finish(self, number: int, shard: _OpenShard) -> Shard:
        """Complete a shard; runs in the finisher's thread."""
        path, final = self._job.files.path(number), self._job.files.final(number)
        start, wanted = self._layout.data_starts[number], self._layout.final_starts[number]
        if start != wanted:
            shards.move_samples(path, final, start, wanted)
        sizes, checksums = np.frombuffer(shard.sizes, ffr_layout.OFFSET), np.frombuffer(shard.checksums, ffr_layout.CRC)
        finished = shards.finish(path, final, wanted, sizes, checksums, self._payload)
        self._job.keep(finished, shard.next)
        return finished

    def check(self) -> None:
        """Raise FFRecordError unless everything was accounted for."""
        if not self.complete or self._early or self._open or self.samples != self._end.samples:
            raise FFRecordError(
                f"{self._job.files.label}: {plural(self.samples, 'sample')} written, expected {self._end.samples}"
            )


class ShardTracker:
    """See above.

    Args:
        job: to be done.
        finisher: completes shards.
    """

    def __init__(self, job: ShardJob, finisher: ShardFinisher) -> None:
        self._job, self._finisher = job, finisher
        self._skipping = Skipping(job.source, job.max_skipped, job.start.skipped)
        self._before: list[ChunkEncoded] = []  # pieces without samples, while nobody knows the encoding
        self._assembly: PlacedShards | None = None
        self._record_size = _foreseen_size(job)
        if job.encoding is not None:
            self.choose(job.encoding)

    def choose(self, encoding: Encoding) -> None:
        """The encoding is known now.

        Raises:
            OSError (also a RuntimeError): a shard cannot be made.
        """
        self._begin(encoding, encoding.payload(self._job.cut))

    def _begin(self, encoding: Encoding, payload: bytes | None) -> None:
        job, self.encoding = self._job, encoding
        cut = job.cut if payload is not None else self._without_block()
        size = None if payload is None else len(payload)
        self._assembly = PlacedShards(
            ShardLayout(cut, size, job.source.total, job.start), job, payload, self._finisher, self._record_size
        )
        for piece in self._before:
            self._assembly.sized(piece)

    def _without_block(self) -> ByCount:
        return self._job.cut if isinstance(self._job.cut, ByCount) else ByCount(1)

    @property
    def foresees(self) -> bool:
        """Whether tasks get their places before they are given out."""
        return self._record_size is not None

    @property
    def mean_size(self) -> int:
        """Bytes of a record, as far as is known; 0 if nothing is."""
        if self._record_size is not None:
            return self._record_size
        return 0 if self._assembly is None else self._assembly.bytes // max(self._assembly.samples, 1)

    def foresee(self, task: Assignment) -> None:
        """Give the samples of the next task their places, if those can be told before they are made.

        Raises:
            OSError (also a RuntimeError): a shard cannot be made.
        """
        if self._record_size is not None and not isinstance(task, StreamTask):
            task.foreseen = self._known.foresee(task.task, task.samples)

    def sized(self, piece: ChunkEncoded) -> list[ChunkPlacement]:
        """Take note of a serialized piece; the pieces that now have their place, in order.

        Raises:
            WorkerError: too many samples were left out.
            OSError (also a RuntimeError): a shard cannot be made.
        """
        self._skipping.add(piece)
        if self._assembly is None:
            self._before.append(piece)
            return []
        return self._assembly.sized(piece)

    def end(self, tasks: int) -> list[ChunkPlacement]:
        """There are that many tasks and no more; the pieces that now have their place, in order.

        Raises:
            OSError (also a RuntimeError): a shard cannot be made.
        """
        if self._assembly is None:
            known = encoding_from_arguments(self._job.declared, None)
            if known is not None:
                self.choose(known)
            else:
                # Not one sample: the file is an empty one of ffrecord 1.x, whatever the cut.
                self._begin(encoding_from_schema(Shape(None)), None)
        return self._known.end(tasks)

    def wrote(self, message: ChunkWritten | TaskDone) -> tuple[int, int]:
        """Take note of what is in its place; (samples, bytes) of it.

        Raises:
            FFRecordError: it has not as many samples as places were foreseen for.
        """
        if isinstance(message, TaskDone):
            return self._known.filled(message)
        return self._known.wrote((message.task, message.piece))

    @property
    def first_unfinished(self) -> int:
        """The first task of which not all is sized."""
        return len(self._before) if self._assembly is None else self._assembly.first_unfinished

    @property
    def complete(self) -> bool:
        """Whether every sample is in its place."""
        return self._assembly is not None and self._assembly.complete

    @property
    def samples(self) -> int:
        """Written, those before the start among them."""
        return self._known.samples

    @property
    def bytes(self) -> int:
        """Of all samples written."""
        return self._known.bytes

    @property
    def skipped(self) -> int:
        """Samples left out."""
        return self._known.skipped

    @property
    def _known(self) -> PlacedShards:
        if self._assembly is None:
            raise FFRecordError(f"{self._job.files.label}: the encoding is not known")
        return self._assembly

    def check(self) -> None:
        """Raise FFRecordError unless everything was accounted for; tell how many samples were left out."""
        self._known.check()
        self._skipping.close()


def _foreseen_size(job: ShardJob) -> int | None:
    """Bytes of each record, if that is all one has to know to give every sample its place; else None."""
    if job.encoding is None or job.max_skipped is not None or not job.source.counts:
        return None
    return job.encoding.record_size or None

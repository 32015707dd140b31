"""The job of a write, and its shards: give every chunk its place, in index order, and notice complete shards."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ffrecord.dataset_writer import shards
from ffrecord.dataset_writer.encoding import Encoding, Shape, encoding_from_arguments, encoding_from_schema
from ffrecord.dataset_writer.layout import BEGINNING, FIRST_SAMPLES, ByBytes, ByCount, Segment, ShardLayout, Start
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
from ffrecord.dataset_writer.shards import ShardFiles, ShardFinisher
from ffrecord.errors import FFRecordError, SampleError, plural
from ffrecord.fields import Schema
from ffrecord.format import ffr_layout
from ffrecord.format.manifest import Shard
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Beat

BACKLOG = 64  # complete shards, with their tables in memory
LOGGED_MAX = 5  # skipped samples that are logged one by one; the rest only as a number
log = logging.getLogger("ffrecord")
Key = tuple[int, int]  # (task, chunk)


@dataclass(frozen=True)
class ShardJob:
    """The samples to write and the place for their shards.

    Attributes:
        source: source of the samples.
        encoding: encoding of the samples; None if the first of them show it.
        declared: fields of some columns, if the first samples show the others.
        cut: division into shards.
        files: directory and names of the shards.
        keep: called from a thread with every finished, durable shard and the start of the next one.
        start: position after the shards that exist already; the source begins there too.
        max_skipped: largest number of samples that may be skipped because reading or encoding them fails; None if the
            first failure is an error.
        backlog: number of complete shards that may wait to be finished; with more, no tasks are handed out.
    """

    source: Source
    encoding: Encoding | None
    cut: ByCount | ByBytes
    files: ShardFiles
    keep: Callable[[Shard, Start], None]
    start: Start = BEGINNING
    max_skipped: int | None = None
    backlog: int = BACKLOG
    declared: Schema | None = None  # they count for the encoding only while it is unknown


class SkippedSamples:
    """A counter of skipped samples that stops the write at a limit.

    Args:
        source: source of the samples; it names them in messages.
        most: largest number of samples that may be skipped; None for none.
        before: number of samples that the resumed write had skipped.
    """

    def __init__(self, source: Source, most: int | None, before: int = 0) -> None:
        self._source, self._most, self._count = source, most or 0, before
        self._logged = 0

    def add(self, chunk: ChunkEncoded) -> None:
        """Count the skipped samples of a chunk, and log the first few.

        Raises:
            SampleError: more samples are skipped now than may be.
        """
        for skipped in chunk.skipped:
            self._count += 1
            # A source names samples by a worker's state; this one stands for the skipped sample.
            name = self._source.name(Beat(heartbeats.SAMPLE, skipped.index, 0, chunk.task))
            if self._count > self._most:
                raise SampleError(
                    f"{plural(self._count, 'sample')} could not be written, max_skipped is {self._most}; the latest, "
                    f"{name}: {skipped.reason}",
                    index=skipped.index,
                )
            if self._logged < LOGGED_MAX:
                self._logged += 1
                log.warning("%s skipped: %s", name, skipped.reason)

    def close(self) -> None:
        """Log the total, unless every skipped sample was logged."""
        if self._count > self._logged:
            log.warning("%d samples skipped in all", self._count)


class _OpenShard:
    """The tables of a shard so far, 12 bytes a sample, in the order of placing."""

    def __init__(self) -> None:
        self.sizes, self.checksums = bytearray(), bytearray()
        self.placed = self.written = self.skipped = 0
        self.next = BEGINNING  # set once the shard is closed

    def add(self, chunk: ChunkEncoded, first: int, last: int) -> None:
        """Add samples first .. last - 1 of a chunk."""
        # Tables grow as bytes, because an array would be copied for every chunk.
        self.sizes += chunk.sizes[first * ffr_layout.OFFSET.itemsize : last * ffr_layout.OFFSET.itemsize]
        self.checksums += chunk.checksums[first * ffr_layout.CRC.itemsize : last * ffr_layout.CRC.itemsize]
        self.placed += last - first
        # A sample skipped after the last one of a shard counts for the next shard: a write that resumes there meets it.
        self.skipped += sum(first <= skipped.before < last for skipped in chunk.skipped)

    def reserve(self, samples: int, size: int) -> None:
        """Add samples of `size` bytes each; `set_checksums` fills in their checksums later."""
        self.sizes += np.full(samples, size, ffr_layout.OFFSET).tobytes()
        self.checksums += bytes(samples * ffr_layout.CRC.itemsize)  # unknown until the task is done
        self.placed += samples

    def set_checksums(self, first: int, checksums: bytes) -> None:
        """Store the checksums of reserved samples, from number `first` of the shard on."""
        start = first * ffr_layout.CRC.itemsize
        self.checksums[start : start + len(checksums)] = checksums


class ShardTracker:
    """The state of all shards of a write: it places chunks in index order, and finishes shards as they fill.

    Samples get their places in one of two ways. In general workers encode chunks, report the sizes (`add_chunk`),
    and write the chunks to the places that this returns. Where all records have the same size, `preassign` gives a
    task its places before any sample is read. Both ways end with `note_written`.

    Args:
        job: job of the write.
        finisher: thread that finishes complete shards.

    Attributes:
        encoding: encoding of the samples; set once it is known.
        samples, bytes: number and total size of the samples written, including those before the start.
        skipped: number of samples skipped, including those before the start.
    """

    encoding: Encoding

    def __init__(self, job: ShardJob, finisher: ShardFinisher) -> None:
        self._job, self._finisher = job, finisher
        self._skipped_samples = SkippedSamples(job.source, job.max_skipped, job.start.skipped)
        self._record_size = _common_record_size(job)
        self._layout: ShardLayout | None = None  # None until the encoding is known: the extension block takes room
        self._payload: bytes | None = None  # of every shard's extension block; None for no block
        self._early: dict[Key, ChunkEncoded] = {}  # chunks that wait for an earlier one, or for the encoding
        self._next: Key = 0, 0
        self._unplaced: list[ChunkEncoded] = []  # chunks in order, while the layout has seen too few sizes
        self._placed: dict[Key, tuple[list[Segment], int]] = {}  # chunks not yet written, with their size
        self._open: dict[int, _OpenShard] = {}
        self._end = job.start  # of the shards known to be closed
        self._created = job.start.shard  # number of files
        self._tasks: int | None = None  # of the whole source
        self._skipped_last = 0  # samples skipped since the last sample that was placed
        self.samples, self.bytes, self.skipped = job.start.samples, job.start.bytes, job.start.skipped
        if job.encoding is not None:
            self.choose(job.encoding)

    def choose(self, encoding: Encoding) -> None:
        """Set the encoding, and begin to place chunks.

        Raises:
            OSError (also a RuntimeError): a shard cannot be created.
        """
        self._begin(encoding, encoding.payload(self._job.cut))

    def _begin(self, encoding: Encoding, payload: bytes | None) -> None:
        job, self.encoding, self._payload = self._job, encoding, payload
        # A cut by bytes without a block occurs only without samples, see `end`: then any cut gives one empty shard.
        cut = job.cut if payload is not None or isinstance(job.cut, ByCount) else ByCount(1)
        size = None if payload is None else len(payload)
        self._layout = ShardLayout(cut, size, job.source.total, job.start)
        if self._record_size is not None:
            # All sizes are known beforehand, so nothing has to be looked at first.
            self._layout.learn(np.full(FIRST_SAMPLES, self._record_size))
        self._place_early()  # chunks that came before the encoding hold no samples, so none of them gets a place

    @property
    def _known_layout(self) -> ShardLayout:
        if self._layout is None:
            raise FFRecordError(f"{self._job.files.label}: the encoding is not known")
        return self._layout

    @property
    def preassigns(self) -> bool:
        """True if tasks get their places before they are handed out."""
        return self._record_size is not None

    @property
    def mean_size(self) -> int:
        """Mean size of a record so far, in bytes; 0 if unknown."""
        if self._record_size is not None:
            return self._record_size
        return self.bytes // max(self.samples, 1)

    @property
    def first_unfinished(self) -> int:
        """Number of the first task whose sizes are not all known."""
        return self._next[0]

    @property
    def complete(self) -> bool:
        """True if every sample is written to its place."""
        return self._next[0] == self._tasks and not self._unplaced and not self._placed

    def add_chunk(self, chunk: ChunkEncoded) -> list[ChunkPlacement]:
        """Record an encoded chunk.

        Returns:
            placements of the chunks that can be written now, in order.

        Raises:
            SampleError: too many samples were skipped.
            OSError (also a RuntimeError): a shard cannot be created.
        """
        # Before it is placed: too many failures end the write while nothing depends on the chunk.
        self._skipped_samples.add(chunk)
        self._early[chunk.task, chunk.number] = chunk
        return self._place_early()

    def _place_early(self) -> list[ChunkPlacement]:
        """Place every chunk that has no gap before it, once enough is known."""
        layout = self._layout
        if layout is None:
            return []
        places = []
        # Chunks arrive in any order, but get their places in the order of samples only.
        while (chunk := self._early.pop(self._next, None)) is not None:
            self._next = (chunk.task + 1, 0) if chunk.last else (chunk.task, chunk.number + 1)
            layout.skip(len(chunk.skipped))
            self.skipped += len(chunk.skipped)
            self._unplaced.append(chunk)
            if layout.learn(np.frombuffer(chunk.sizes, ffr_layout.OFFSET)):
                places += self._place_all()
        return places + self._end_if_sized()

    def end(self, tasks: int) -> list[ChunkPlacement]:
        """Record that the source has no more than `tasks` tasks.

        Returns:
            placements of the chunks that can be written now, in order.

        Raises:
            OSError (also a RuntimeError): a shard cannot be created.
        """
        # No sample came that could show an encoding.
        if self._layout is None:
            known = encoding_from_arguments(self._job.declared, None)
            if known is not None:
                self.choose(known)
            else:
                # Without any sample the file is an empty one of ffrecord 1.x, whatever the cut.
                self._begin(encoding_from_schema(Shape(None)), None)
        self._tasks = tasks
        return self._end_if_sized()

    def _end_if_sized(self) -> list[ChunkPlacement]:
        if self._next[0] != self._tasks:
            return []
        # At the end even fewer sizes than `learn` wants must do.
        places = self._place_all()
        self._known_layout.end()
        self._create_new()
        self._note_closed()
        return places

    def _place_all(self) -> list[ChunkPlacement]:
        chunks, self._unplaced = self._unplaced, []
        # A chunk of skipped samples alone has no segments, and nothing to write.
        return [place for chunk in chunks if (place := self._place(chunk)).segments]

    def _place(self, chunk: ChunkEncoded) -> ChunkPlacement:
        sizes = np.frombuffer(chunk.sizes, ffr_layout.OFFSET)
        segments = self._known_layout.place(sizes)
        # Before places are sent: workers open shards, and never create them.
        self._create_new()
        first = 0
        for segment in segments:
            self._open[segment.shard].add(chunk, first, first + segment.samples)
            first += segment.samples
        if segments:
            # Samples skipped at the end of earlier chunks count for the shard of the next sample.
            self._open[segments[0].shard].skipped += self._skipped_last
            self._placed[chunk.task, chunk.number] = segments, int(sizes.sum())
            self._skipped_last = 0
        self._skipped_last += sum(skipped.before == len(sizes) for skipped in chunk.skipped)
        self._note_closed()
        return ChunkPlacement(chunk.task, chunk.number, segments)

    def preassign(self, task: Assignment) -> None:
        """Give the samples of the next task their places, if all records have one known size.

        Raises:
            OSError (also a RuntimeError): a shard cannot be created.
        """
        size = self._record_size
        if size is None or isinstance(task, StreamTask):
            return
        segments = self._known_layout.place(np.full(task.samples, size))
        self._create_new()
        for segment in segments:
            self._open[segment.shard].reserve(segment.samples, size)
        self._placed[task.task, 0] = segments, task.samples * size  # a preassigned task is one chunk
        self._next = task.task + 1, 0
        self._note_closed()
        task.preassigned = Preassigned(size, segments)

    def note_written(self, message: ChunkWritten | TaskDone) -> tuple[int, int]:
        """Record that a chunk, or a task with preassigned places, is written.

        Returns:
            (samples, bytes) of it.

        Raises:
            FFRecordError: the task has another number of samples than places.
        """
        if isinstance(message, ChunkWritten):
            return self._note_placed((message.task, message.number))
        self._store_checksums(message)
        return self._note_placed((message.task, 0))

    def _store_checksums(self, message: TaskDone) -> None:
        segments, expected = self._placed[message.task, 0]
        size = self._record_size or 0
        if message.samples * size != expected:
            what = f"task {message.task} has {message.samples} samples of {size} bytes"
            raise FFRecordError(f"{self._job.files.label}: {what}, expected {plural(expected, 'byte')}")
        start = 0
        for segment in segments:
            # Records of one size: the offset tells the number in the shard.
            first = (segment.offset - self._known_layout.data_starts[segment.shard]) // size
            stop = start + segment.samples * ffr_layout.CRC.itemsize
            self._open[segment.shard].set_checksums(first, message.checksums[start:stop])
            start = stop

    def _note_placed(self, key: Key) -> tuple[int, int]:
        """Record that a chunk is in its place; return its (samples, bytes)."""
        segments, size = self._placed.pop(key)
        samples = sum(segment.samples for segment in segments)
        self.samples += samples
        self.bytes += size
        for segment in segments:
            self._open[segment.shard].written += segment.samples
            # An open shard may still get samples, even if all of its chunks are written.
            if segment.shard < self._end.shard:
                self._finish_if_complete(segment.shard)
        return samples, size

    def _create_new(self) -> None:
        """Create the files of the shards that the layout has begun."""
        starts = self._known_layout.data_starts
        for number in range(self._created, len(starts)):
            shards.create(self._job.files.path(number), self._job.files.final(number), starts[number])
            self._open[number] = _OpenShard()
        self._created = len(starts)

    def _note_closed(self) -> None:
        """Record where each shard ends that has just got its last sample."""
        for number in range(self._end.shard, self._known_layout.closed):
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
        # No lock: from here on only the finisher's thread uses these tables.
        del self._open[number]
        self._finisher.add(partial(self._finish, number, shard))

    def _finish(self, number: int, shard: _OpenShard) -> Shard:
        """Write the tables of a complete shard; runs in the finisher's thread."""
        layout = self._known_layout
        path, final = self._job.files.path(number), self._job.files.final(number)
        start, wanted = layout.data_starts[number], layout.final_starts[number]
        if start != wanted:
            # Its number of samples was not foreseen, so the tables have another size than reserved.
            shards.move_samples(path, final, start, wanted)
        sizes, checksums = np.frombuffer(shard.sizes, ffr_layout.OFFSET), np.frombuffer(shard.checksums, ffr_layout.CRC)
        finished = shards.finish(path, final, wanted, sizes, checksums, self._payload)
        self._job.keep(finished, shard.next)  # only now: a kept shard must be durable
        return finished

    def check(self) -> None:
        """Log the number of skipped samples.

        Raises:
            FFRecordError: the samples written do not add up.
        """
        # Only a mistake of ours comes here; readers must not meet it in the files.
        if not self.complete or self._early or self._open or self.samples != self._end.samples:
            raise FFRecordError(
                f"{self._job.files.label}: {plural(self.samples, 'sample')} written, expected {self._end.samples}"
            )
        self._skipped_samples.close()


def _common_record_size(job: ShardJob) -> int | None:
    """Return the size of every record in bytes if it alone decides every sample's place, else None."""
    # A skipped sample would leave a hole at a preassigned place; the samples of streams cannot be counted.
    if job.encoding is None or job.max_skipped is not None or not job.source.counts:
        return None
    # Size 0 does not preassign: offsets would not tell positions apart.
    return job.encoding.record_size or None

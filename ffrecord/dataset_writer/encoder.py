"""Encode samples into records with checksums, and hold the records until their place is known."""

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from ffrecord.dataset_writer.encoding import Encode, for_records
from ffrecord.dataset_writer.layout import Segment
from ffrecord.dataset_writer.messages import ChunkEncoded, ChunkWritten, Preassigned, Skipped, TaskDone
from ffrecord.dataset_writer.output import RecordOutput, SpillFile
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.dataset_writer.tasks import ReplayedSamples, StreamEnd, TaskSamples
from ffrecord.errors import FFRecordError
from ffrecord.format import ffr_layout
from ffrecord.kernels._records import Records
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.process import sentence


class Chunk:
    """Consecutive encoded samples of a task.

    Args:
        task, number: number of the task, and of the chunk in it.
        records: buffer for their records, back to back.
        sample_name: function index → name of the sample, for messages.

    Attributes:
        sizes: bytes of each record.
        indices: index of each sample in the dataset.
        size: bytes of all records.
        skipped: samples left out.
        last_index: index of the last sample, skipped or not.
        last: whether it is the last chunk of its task.
        spilled: position of the records in the spill file; None if they are in memory.
    """

    def __init__(self, task: int, number: int, records: Records, sample_name: Callable[[int], str]) -> None:
        self.task, self.number, self.records, self.sample_name = task, number, records, sample_name
        self.sizes = np.empty(0, ffr_layout.OFFSET)
        self.indices = np.empty(0, np.int64)
        self.skipped: list[Skipped] = []
        self.size, self.last_index, self.last = 0, -1, False
        self.spilled: int | None = None
        self._checksums = b""

    @property
    def memory(self) -> int:
        """Approximate memory use, bytes."""
        return self.sizes.nbytes + self.indices.nbytes + (self.size if self.spilled is None else 0)

    def seal(self, last_index: int) -> None:
        """Take sizes and checksums from the records, once all of them are there.

        Args:
            last_index: index of the last sample, skipped or not.
        """
        records = self.records
        self.sizes, self.indices = records.sizes(), records.indices()
        self._checksums, self.size, self.last_index = records.checksums().tobytes(), records.size, last_index

    def to_message(self, seconds: float = 0.0) -> ChunkEncoded:
        """Return the report for the coordinator; may be called once, since it gives up the checksums.

        Args:
            seconds: time since the task was begun.
        """
        # The tracker keeps them from now on; a chunk may wait long for its place.
        checksums, self._checksums = self._checksums, b""
        return ChunkEncoded(self.task, self.number, self.sizes.tobytes(), checksums, self.last, self.skipped, seconds)


CHUNK_SAMPLES = 1024  # 12 KB of sizes and checksums, so that its report fits one packet of a channel
CHUNK_BYTES = 8 << 20
PART_BYTES = 512 << 10  # bytes per write to preassigned places: fits the second-level cache of most CPUs
SLOW_SECONDS = 0.1  # after a chunk that took longer, a worker waits until it is written and reports it
KEPT_BYTES = 128 << 20  # total capacity of the buffers that are kept; most of it is never touched
KEPT_CAPACITY = 32 << 20  # bytes; a buffer that grew larger, for one huge sample, is not kept
REASON_MAX = 500  # longest text of an exception in the report of a skipped sample, characters


class Encoder:
    """Encoder of samples and writer of their chunks; in a worker, or in the main process if there are no workers.

    Args:
        files: directory and names of the shards, which the coordinator creates.
        heart: heartbeat; it learns which sample is at work.
        skips: whether to leave out samples that cannot be read or encoded.

    Attributes:
        ready: whether the encoding is known.
    """

    def __init__(self, files: ShardFiles, heart: Heart, *, skips: bool = False) -> None:
        self._files, self._heart, self._skips = files, heart, skips
        self._output = RecordOutput(files)
        self._begun: Chunk | TaskDone | None = None  # the write in progress
        self._arrived: deque[ChunkWritten | TaskDone] = deque()  # written, not yet reported
        self._idle: list[Records] = []  # the last one was used last: its pages are in the CPU's cache
        self._spill: SpillFile | None = None
        self._encode = for_records(_unknown)
        self.ready = False

    def encode_by(self, encode: Encode) -> None:
        """Set the encoding. It must be known before `chunks` reads the first sample."""
        self._encode, self.ready = for_records(encode), True

    def read_first(self, task_samples: TaskSamples, count: int) -> tuple[list[object], TaskSamples]:
        """Read the first `count` samples of a task.

        Returns:
            (those that could be read, the task from its first sample on).
        """
        self._heart.begin(task_samples.task)
        first: list[tuple[int, object, Exception | None]] = []
        for index in task_samples.indices:
            self._heart.mark(heartbeats.SAMPLE, index)
            try:
                first.append((index, task_samples.get(index), None))
            # A stream may have fewer samples than are wanted.
            except StreamEnd:
                break
            except Exception as error:
                self._check_skippable(task_samples, error)
                # Failures are kept in their place: they count as skipped when the task is encoded.
                first.append((index, None, error))
            if len(first) == count:
                break
        # From here on an error is of the schema, not of the sample read last.
        self._heart.mark(heartbeats.OURS, first[-1][0] if first else -1)
        return [sample for _, sample, error in first if error is None], ReplayedSamples(task_samples, first)

    def chunks(self, task_samples: TaskSamples) -> Iterator[Chunk]:
        """Encode the samples of a task in one or more chunks of bounded size."""
        self._heart.begin(task_samples.task)
        number, last = 0, False
        while not last:
            chunk = Chunk(task_samples.task, number, self._free_records(), task_samples.sample_name)
            self._fill(chunk, task_samples)
            number, last = number + 1, chunk.last
            if not len(chunk.sizes):
                # A chunk without a place is never written, so nothing else would free its buffer.
                self._release(chunk.records)
            yield chunk

    def _fill(self, chunk: Chunk, task_samples: TaskSamples) -> None:
        records, words, most = chunk.records, self._heart.words, CHUNK_SAMPLES
        self._heart.work()
        full = False
        # `indices` is an iterator: after a failure, the next call goes on behind the failed sample.
        while not (full or chunk.last):
            try:
                full = not records.fill(
                    task_samples.indices, task_samples.get, self._encode, words, heartbeats.INDEX, CHUNK_BYTES, most
                )
                chunk.last = not full
            except StreamEnd:
                chunk.last = True
            except Exception as error:
                self._check_skippable(task_samples, error)
                # At most so much text, since reports of many failures travel in one message.
                chunk.skipped.append(Skipped(records.count, words[heartbeats.INDEX], sentence(error)[:REASON_MAX]))
                # Failures count too, else a chunk of nothing but failures would never be full.
                most -= 1
                full = records.count >= most
        # A failure from here on is not the sample's.
        words[heartbeats.PHASE] = heartbeats.OURS
        chunk.seal(words[heartbeats.INDEX])

    def _check_skippable(self, task_samples: TaskSamples, error: Exception) -> None:
        """Raise `error` unless the write goes on without this sample."""
        # A lack of memory is not the sample's fault, and an iterable that has raised gives no more samples.
        if not self._skips or task_samples.ended or isinstance(error, MemoryError):
            raise error

    def spill(self, chunk: Chunk) -> None:
        """Move the records of a chunk to the disk.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        self._heart.mark(heartbeats.OURS, chunk.last_index)
        if self._spill is None:
            self._spill = SpillFile(self._files.directory, self._files.label)
        chunk.spilled = self._spill.put(chunk.records.view(0, chunk.size))
        # Its records are read back from the file.
        self._release(chunk.records)

    def write(self, chunk: Chunk, segments: list[Segment]) -> None:
        """Start to write a chunk to its place, one segment at a time; `take_written` reports when it is there.

        Args:
            segments: one or more segments.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        self._heart.mark(heartbeats.OURS, chunk.last_index)
        first = start = 0
        for segment in segments:
            stop = start + int(chunk.sizes[first : first + segment.samples].sum())
            # One write at a time: this also reports the chunk before, and frees its buffer.
            self._settle()
            last = chunk.sample_name(int(chunk.indices[first + segment.samples - 1]))
            self._put(chunk, start, stop, segment, last)
            first, start = first + segment.samples, stop
        # Waiting has finished all segments but the last one.
        self._begun = chunk

    def _put(self, chunk: Chunk, start: int, stop: int, segment: Segment, last: str) -> None:
        self._output.turn_to(segment, last)
        if chunk.spilled is None:
            self._output.begin(stop - start, chunk.records.view(start, stop))
        elif self._spill is not None:
            self._output.copy(self._spill, chunk.spilled + start, stop - start)
            # The bytes are in the shard already; the thread only sends them to the disk.
            self._output.begin(stop - start)

    def fill(self, task_samples: TaskSamples, preassigned: Preassigned) -> None:
        """Encode the samples of a task and write them to their preassigned places; `take_written` reports when they are
        there.

        Each write is small, so that the kernel copies from the CPU's cache.

        Raises:
            OSError (also a RuntimeError): refused.
            FFRecordError: a record has another size than planned.
        """
        begun, records = time.monotonic(), self._free_records()
        self._heart.begin(task_samples.task)
        for segment in preassigned.segments:
            self._fill_segment(segment, records, task_samples, preassigned.size)
        seconds = time.monotonic() - begun
        # Before the buffer is cleared, and the checksums with it.
        self._begun = TaskDone(task_samples.task, records.checksums().tobytes(), seconds)
        self._release(records)
        if seconds >= SLOW_SECONDS:
            self._settle()  # else it is reported only after the next task, which may be as slow or fail

    def _fill_segment(self, segment: Segment, records: Records, task_samples: TaskSamples, size: int) -> None:
        words, offset = self._heart.words, segment.offset
        first, stop = records.count, records.count + segment.samples
        self._output.turn_to(segment)
        while first < stop:
            # `mark` below has left the sample, so a failure must be blamed on the next one again.
            self._heart.work()
            records.fill(
                task_samples.indices, task_samples.get, self._encode, words, heartbeats.INDEX, PART_BYTES, stop
            )
            self._heart.mark(heartbeats.OURS, words[heartbeats.INDEX])
            # Before they are written: a record of another size would lie on its neighbour.
            _check_sizes(records, first, size)
            part = Segment(segment.shard, offset, records.count - first)
            self._output.write(part, records.view(0, records.size), task_samples.sample_name(words[heartbeats.INDEX]))
            first, offset = records.count, offset + records.size
            # The bytes are written; sizes and checksums stay for the report of the task.
            records.rewind()
        self._settle()
        # All bytes are written: the thread only sends them to the disk.
        self._output.begin(offset - segment.offset)

    def take_written(self, *, wait: bool) -> ChunkWritten | TaskDone | None:
        """Return the next report of written samples, each once; None if nothing is written yet, or nothing is on its
        way.

        Args:
            wait: whether to wait for what is on its way.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        # Do not wait without need: this is asked after every chunk.
        if not self._arrived and (wait or self._output.done):
            self._settle()
        return self._arrived.popleft() if self._arrived else None

    def _settle(self) -> None:
        """Wait until the write in progress is done."""
        # Taken away first: a write that failed must not be waited for again.
        begun, self._begun = self._begun, None
        self._output.wait()  # if this raises, nothing is reported as written
        if isinstance(begun, TaskDone):
            self._arrived.append(begun)
        elif begun is not None:
            if begun.spilled is None:
                self._release(begun.records)
            elif self._spill is not None:
                # The bytes in the spill file have been copied to the shard.
                self._spill.forget(begun.size)
            self._arrived.append(ChunkWritten(begun.task, begun.number))

    def _free_records(self) -> Records:
        return self._idle.pop() if self._idle else Records(CHUNK_BYTES)

    def _release(self, records: Records) -> None:
        """Make a buffer available for the next chunk."""
        # Clearing keeps the memory: the next chunk needs no fresh, zeroed pages.
        records.clear()
        capacity = records.capacity
        if capacity <= KEPT_CAPACITY and capacity + sum(each.capacity for each in self._idle) <= KEPT_BYTES:
            self._idle.append(records)

    def close(self) -> None:
        """Close the last shard; may be repeated."""
        self._output.close()
        if self._spill is not None:
            self._spill.close()


def _check_sizes(records: Records, first: int, size: int) -> None:
    """Raise FFRecordError unless records from `first` on exist and all have `size` bytes, as their places require."""
    found = records.sizes()[first:]
    # Iterating on would never end: samples that are missing do not come later.
    if not len(found):
        raise FFRecordError(f"there are no records, expected some of {size} bytes each")
    if (wrong := found != size).any():
        which = int(wrong.argmax())
        sample = int(records.indices()[first + which])
        raise FFRecordError(f"sample {sample} has a record of {found[which]} bytes, expected {size}")


def _unknown(sample: object) -> bytes:
    raise TypeError(f"the encoding of a sample of type {type(sample).__name__} is not known yet")

"""Encode samples into records with checksums, hold the records until their place is known, and write them there."""

import errno
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from ffrecord.dataset_writer.encoding import Encode, for_records
from ffrecord.dataset_writer.layout import Segment
from ffrecord.dataset_writer.messages import ChunkEncoded, ChunkWritten, Preassigned, Skipped, TaskDone
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.dataset_writer.tasks import ReplayedSamples, StreamEnd, TaskSamples
from ffrecord.engine._engine import filesystem_type
from ffrecord.errors import REFUSED, FFRecordError, file_error, plural
from ffrecord.format import ffr_layout
from ffrecord.kernels._records import Records
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.process import sentence
from ffrecord.system import filesystems, named_calls
from ffrecord.system.atomic_file import write_all
from ffrecord.writing._buffers import WriteBehind

STEP = 4 << 20  # bytes that are copied from the spill file at once
_NamedSegment = tuple[Segment, str | None]  # segment, and the name of its last sample if known
CHUNK_SAMPLES = 1024  # 12 KB of sizes and checksums, so that its report fits one packet of a channel
CHUNK_BYTES = 8 << 20
PART_BYTES = 512 << 10  # bytes per write to preassigned places: fits the second-level cache of most CPUs
SLOW_SECONDS = 0.1  # after a chunk that took longer, a worker waits until it is written and reports it
KEPT_BYTES = 128 << 20  # total capacity of the buffers that are kept; most of it is never touched
KEPT_CAPACITY = 32 << 20  # bytes; a buffer that grew larger, for one huge sample, is not kept
REASON_MAX = 500  # longest text of an exception in the report of a skipped sample, characters


class SpillFile:
    """A file without a name for runs of bytes: each is put in, copied out once, and forgotten.

    Args:
        directory: directory on the file system to use.
        label: name of that directory for messages.

    Raises:
        OSError (also a RuntimeError): it cannot be made.
    """

    def __init__(self, directory: str, label: str) -> None:
        self._label = label
        try:
            self._fd = _unnamed_file(directory)
        except OSError as error:
            raise self._error(error, "a spill file could not be created") from None
        self._end = self._live = 0  # bytes

    def put(self, data: memoryview) -> int:
        """Append bytes.

        Returns:
            their position, for `copy`.

        Raises:
            OSError (also a RuntimeError): refused; ENOSPC if there is no room.
        """
        start = self._end
        try:
            write_all(self._fd, data, start)
        except OSError as error:
            raise self._error(error, f"{len(data)} bytes could not be written to a spill file") from None
        self._end += len(data)
        self._live += len(data)
        return start

    def copy(self, start: int, size: int, fd: int, offset: int) -> None:
        """Copy bytes to another file.

        Raises:
            OSError: of the failed call.
        """
        while size:
            count = _copy(self._fd, start, size, fd, offset)
            start, offset, size = start + count, offset + count, size - count

    def forget(self, size: int) -> None:
        """Count `size` bytes as no longer needed; once no byte is needed, free the disk space."""
        self._live -= size
        if not self._live:
            named_calls.ftruncate(self._fd, 0)
            self._end = 0

    def close(self) -> None:
        """Close the file. May be repeated."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _error(self, error: OSError, what: str) -> OSError:
        return file_error(error.errno or errno.EIO, f"{self._label}: {what}", self._label)


def _unnamed_file(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # open(2): kernels and file systems without O_TMPFILE say one of these.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    # A kill before the `unlink` leaves a file in the directory of this write, which the next one removes.
    fd, path = tempfile.mkstemp(prefix=".", suffix=".part", dir=directory)
    os.unlink(path)
    return fd


def _copy(source: int, start: int, size: int, target: int, offset: int) -> int:
    """Copy some of `size` bytes, in the kernel if possible, since some file systems then share them; return how many, >
    0.
    """
    try:
        # Below the 2 GiB that one call can copy.
        count = os.copy_file_range(source, target, min(size, 1 << 30), start, offset)
    except OSError as error:
        # Older kernels copy only within a file system, and some file systems not at all.
        if error.errno not in (errno.EXDEV, *REFUSED):
            raise
        count = 0
    # 0 may also come from a file system that cannot copy so; then `pread` tells if the bytes are there.
    if count:
        return count
    data = named_calls.pread(source, min(size, STEP), start)
    if not data:
        raise OSError(errno.EIO, f"the spill file ends at {start}, {size} bytes early")
    write_all(target, memoryview(data), offset)
    return len(data)


class RecordOutput:
    """A writer of segments of shards, one at a time; a thread sends them on to the disk.

    Every method but `close` raises OSError (also a RuntimeError) if a write was refused: of an earlier segment, or of
    this one. A refused write is reported again by every later call, because the kernel reports it only once.

    Args:
        files: directory and names of the shards, which the coordinator creates.
    """

    def __init__(self, files: ShardFiles) -> None:
        self._files, self._behind = files, WriteBehind()  # another shard is never open while the thread writes
        self._fd, self._shard = -1, -1
        self._at: _NamedSegment | None = None  # the segment at work
        self._begun: _NamedSegment | None = None  # the segment on its way
        self._holds = False  # whether the thread still has to write it
        self._refusal: OSError | None = None

    def turn_to(self, segment: Segment, last: str | None = None) -> None:
        """Select the segment to write next.

        Args:
            last: name of its last sample, for messages.
        """
        # The thread uses the open descriptor, and holds one buffer at a time.
        if segment.shard != self._shard or self._holds:
            self.wait()
        self._at = segment, last
        try:
            self._open(segment.shard)
        except OSError as error:
            raise self._error_of(error, self._at) from None

    def write(self, part: Segment, data: memoryview, last: str) -> None:
        """Write a part of the segment now, in this thread.

        Args:
            part: place of the part.
            last: name of its last sample, for messages.
        """
        try:
            self._behind.write(part.offset, data)
        except OSError as error:
            raise self._error_of(error, (part, last)) from None

    def copy(self, spill: SpillFile, start: int, size: int) -> None:
        """Copy the bytes of the segment from a spill file."""
        try:
            spill.copy(start, size, self._fd, self._segment.offset)
        except OSError as error:
            raise self._error_of(error, self._at) from None

    def begin(self, size: int, data: memoryview | None = None) -> None:
        """Start to send the whole segment to the disk, in the thread.

        Args:
            size: size of the segment, bytes.
            data: bytes that the thread writes first; None if they are written.
        """
        self.wait()
        self._begun, self._holds = self._at, data is not None
        self._behind.begin(self._segment.offset, size, data)

    @property
    def done(self) -> bool:
        """True if `wait` would return at once."""
        return self._behind.done

    def wait(self) -> None:
        """Wait until the kernel has everything that was begun."""
        # A refusal is final; the kernel would not report it again.
        if self._refusal is None:
            try:
                self._behind.wait()
            except OSError as error:
                self._refusal = self._error_of(error, self._begun)
        if self._refusal is not None:
            raise self._refusal
        self._holds = False

    @property
    def _segment(self) -> Segment:
        if self._at is None:
            raise FFRecordError(f"{self._files.label}: there is no segment to write to")
        return self._at[0]

    def _error_of(self, error: OSError, at: _NamedSegment | None) -> OSError:
        if at is None:
            return error
        segment, last = at
        path = self._files.final(segment.shard)
        known = "" if last is None else f", the last of them {last},"
        what = f"{plural(segment.samples, 'sample')}{known} could not be written at byte {segment.offset}"
        return file_error(error.errno or errno.EIO, f"{path}: {what}", path)

    def _open(self, shard: int) -> None:
        """Open a shard for writing; only the latest one stays open."""
        if shard == self._shard:
            return
        self.close()
        # The coordinator has created it; a missing file is an error, and a link is not followed.
        self._fd = os.open(self._files.path(shard), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._shard = shard
        kind = filesystems.from_type(filesystem_type(self._fd))
        # Early write-back is for disks: tmpfs has none, and a network file system would wait for its server.
        self._behind.open(self._fd, not (kind.network or kind.memory))

    def close(self) -> None:
        """Close the shard; a write in progress may be given up. May be repeated."""
        self._behind.close()
        if self._fd >= 0:
            # Forgotten before closing: a failed close must not be repeated, as the number may be another file's by
            # then.
            fd, self._fd, self._shard = self._fd, -1, -1
            os.close(fd)


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

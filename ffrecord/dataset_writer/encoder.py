"""Encode samples into records with checksums, and hold the records until their place is known."""

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from ffrecord.dataset_writer.encoding import Encode, for_records
from ffrecord.dataset_writer.layout import Segment
from ffrecord.dataset_writer.messages import ChunkEncoded, ChunkWritten, Preassigned, Skipped, TaskDone
from ffrecord.dataset_writer.output import RecordOutput, Spool
from ffrecord.dataset_writer.shards import Files
from ffrecord.dataset_writer.tasks import Looked, StreamEnd, TaskSamples
from ffrecord.errors import FFRecordError
from ffrecord.format import ffr_layout
from ffrecord.kernels._records import Records
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.process import sentence


class Chunk:
    """Consecutive samples of a task, serialized.

    Args:
        task, piece: its numbers.
        records: for their bytes, back to back.
        named: what the sample of an index is called, for messages.

    Attributes:
        sizes: bytes of each.
        indices: of each, in the dataset.
        size: bytes of all.
        skipped: what was left out.
        upto: index of the last one.
        last: whether it is the last piece of its task.
        spooled: where in the spool the records are; None if they are in memory.
    """

    def __init__(self, task: int, piece: int, records: Records, named: Callable[[int], str]) -> None:
        self.task, self.piece, self.records, self.named = task, piece, records, named
        self.sizes = np.empty(0, ffr_layout.OFFSET)
        self.indices = np.empty(0, np.int64)
        self.skipped: list[Skipped] = []
        self.size, self.upto, self.last = 0, -1, False
        self.spooled: int | None = None
        self._checksums = b""

    @property
    def weight(self) -> int:
        """Memory it takes, bytes, roughly."""
        return self.sizes.nbytes + self.indices.nbytes + (self.size if self.spooled is None else 0)

    def seal(self, upto: int) -> None:
        """All records are there; `upto`: index of the last sample, skipped or not."""
        records = self.records
        self.sizes, self.indices = records.sizes(), records.indices()
        self._checksums, self.size, self.upto = records.checksums().tobytes(), records.size, upto

    def sized(self, seconds: float = 0.0) -> ChunkEncoded:
        """What the parent needs to know of it, `seconds` after its task was begun; once."""
        checksums, self._checksums = self._checksums, b""
        return ChunkEncoded(self.task, self.piece, self.sizes.tobytes(), checksums, self.last, self.skipped, seconds)


PIECE_SAMPLES = 1024
PIECE_BYTES = 8 << 20
PART_BYTES = 512 << 10  # written at a time where places are foreseen: what is in the second cache of most CPUs
SLOW_SECONDS = 0.1  # of what is waited for until it is there before more is made
KEPT_BYTES = 128 << 20  # capacity of all buffers that are kept, most of it never touched
KEPT_CAPACITY = 32 << 20  # bytes; a buffer grown larger, for one huge sample, is not kept
REASON_MAX = 500  # characters of an exception that are passed on for a sample that is skipped


class Encoder:
    """Serializes samples and writes them to their places; in a worker, or in the parent when there are none.

    Args:
        files: where the shards are, made by the parent.
        heart: told where this is.
        skips: whether samples that cannot be had or encoded are left out.

    Attributes:
        ready: whether it was told how to encode samples.
    """

    def __init__(self, files: Files, heart: Heart, *, skips: bool = False) -> None:
        self._files, self._heart, self._skips = files, heart, skips
        self._output = RecordOutput(files)
        self._begun: Chunk | TaskDone | None = None  # what is on its way
        self._there: deque[ChunkWritten | TaskDone] = deque()  # what came there, and was not told
        self._idle: list[Records] = []  # the one used last at the end: its pages are in the cache
        self._spool: Spool | None = None
        self._encode = for_records(_unknown)
        self.ready = False

    def encode_by(self, encode: Encode) -> None:
        """How samples become records: to be told before `pieces` comes upon one that can be had."""
        self._encode, self.ready = for_records(encode), True

    def look(self, run: TaskSamples, count: int) -> tuple[list[object], TaskSamples]:
        """The first `count` samples of a run, as far as they can be had, and the run as it was before."""
        self._heart.begin(run.task)
        first: list[tuple[int, object, Exception | None]] = []
        for index in run.indices:
            self._heart.at(heartbeats.SAMPLE, index)
            try:
                first.append((index, run.get(index), None))
            except StreamEnd:
                break
            except Exception as error:
                self._check_skippable(run, error)
                first.append((index, None, error))
            if len(first) == count:
                break
        self._heart.at(heartbeats.OURS, first[-1][0] if first else -1)
        return [sample for _, sample, error in first if error is None], Looked(run, first)

    def pieces(self, run: TaskSamples) -> Iterator[Chunk]:
        """The samples of a run in pieces of bounded size, one or more."""
        self._heart.begin(run.task)
        number, last = 0, False
        while not last:
            piece = Chunk(run.task, number, self._free_records(), run.named)
            self._fill(piece, run)
            number, last = number + 1, piece.last
            if not len(piece.sizes):
                self._release(piece.records)
            yield piece

    def _fill(self, piece: Chunk, run: TaskSamples) -> None:
        records, words, most = piece.records, self._heart.words, PIECE_SAMPLES
        self._heart.work()
        full = False
        while not (full or piece.last):
            try:
                full = not records.fill(run.indices, run.get, self._encode, words, heartbeats.INDEX, PIECE_BYTES, most)
                piece.last = not full
            except StreamEnd:
                piece.last = True
            except Exception as error:
                self._check_skippable(run, error)
                piece.skipped.append(Skipped(records.count, words[heartbeats.INDEX], sentence(error)[:REASON_MAX]))
                most -= 1
                full = records.count >= most
        words[heartbeats.PHASE] = heartbeats.OURS
        piece.seal(words[heartbeats.INDEX])

    def _check_skippable(self, run: TaskSamples, error: Exception) -> None:
        """Raise `error` unless the write goes on without this sample."""
        if not self._skips or run.ended or isinstance(error, MemoryError):
            raise error

    def spool(self, piece: Chunk) -> None:
        """Put a piece aside on the disk.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        self._heart.at(heartbeats.OURS, piece.upto)
        if self._spool is None:
            self._spool = Spool(self._files.directory, self._files.label)
        piece.spooled = self._spool.put(piece.records.view(0, piece.size))
        self._release(piece.records)

    def write(self, piece: Chunk, segments: list[Segment]) -> None:
        """Begin to write a piece to its place, one at a time: `written` tells when it is there.

        Args:
            segments: one or more.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        self._heart.at(heartbeats.OURS, piece.upto)
        first = start = 0
        for segment in segments:
            stop = start + int(piece.sizes[first : first + segment.samples].sum())
            self._settle()
            last = piece.named(int(piece.indices[first + segment.samples - 1]))
            self._put(piece, start, stop, segment, last)
            first, start = first + segment.samples, stop
        self._begun = piece

    def _put(self, piece: Chunk, start: int, stop: int, segment: Segment, last: str) -> None:
        self._output.turn_to(segment, last)
        if piece.spooled is None:
            self._output.begin(stop - start, piece.records.view(start, stop))
        elif self._spool is not None:
            self._output.copy(self._spool, piece.spooled + start, stop - start)
            self._output.begin(stop - start)

    def fill(self, run: TaskSamples, foreseen: Preassigned) -> None:
        """Serialize the samples of a run, and write them to the places that were foreseen, a little at a time, so that
        the kernel copies from the CPU's cache: `written` tells when they are there.

        Raises:
            OSError (also a RuntimeError): refused.
            FFRecordError: a record of another size than was foreseen.
        """
        begun, records = time.monotonic(), self._free_records()
        self._heart.begin(run.task)
        for segment in foreseen.segments:
            self._fill_segment(segment, records, run, foreseen.size)
        seconds = time.monotonic() - begun
        self._begun = TaskDone(run.task, records.checksums().tobytes(), seconds)
        self._release(records)
        if seconds >= SLOW_SECONDS:
            self._settle()  # or it would be told of only after the next one, which may be as slow, and be its last

    def _fill_segment(self, segment: Segment, records: Records, run: TaskSamples, size: int) -> None:
        words, offset = self._heart.words, segment.offset
        first, stop = records.count, records.count + segment.samples
        self._output.turn_to(segment)
        while first < stop:
            self._heart.work()
            records.fill(run.indices, run.get, self._encode, words, heartbeats.INDEX, PART_BYTES, stop)
            self._heart.at(heartbeats.OURS, words[heartbeats.INDEX])
            _check_sizes(records, first, size)
            part = Segment(segment.shard, offset, records.count - first)
            self._output.write(part, records.view(0, records.size), run.named(words[heartbeats.INDEX]))
            first, offset = records.count, offset + records.size
            records.rewind()
        self._settle()
        self._output.begin(offset - segment.offset)

    def written(self, *, wait: bool) -> ChunkWritten | TaskDone | None:
        """That something is in its place, once it is, each once; None: it is not yet, or there is nothing.

        Args:
            wait: until it is there.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        if not self._there and (wait or self._output.done):
            self._settle()
        return self._there.popleft() if self._there else None

    def _settle(self) -> None:
        """Wait until what was begun is in its place."""
        begun, self._begun = self._begun, None
        self._output.wait()  # if that raises, nobody takes what was begun for written
        if isinstance(begun, TaskDone):
            self._there.append(begun)
        elif begun is not None:
            if begun.spooled is None:
                self._release(begun.records)
            elif self._spool is not None:
                self._spool.forget(begun.size)
            self._there.append(ChunkWritten(begun.task, begun.piece))

    def _free_records(self) -> Records:
        return self._idle.pop() if self._idle else Records(PIECE_BYTES)

    def _release(self, records: Records) -> None:
        """The memory is free for others."""
        records.clear()
        capacity = records.capacity
        if capacity <= KEPT_CAPACITY and capacity + sum(each.capacity for each in self._idle) <= KEPT_BYTES:
            self._idle.append(records)

    def close(self) -> None:
        """Close the last shard; may be repeated."""
        self._output.close()
        if self._spool is not None:
            self._spool.close()


def _check_sizes(records: Records, first: int, size: int) -> None:
    """Raise unless there are records from the first on, of `size` bytes each: their places were foreseen."""
    found = records.sizes()[first:]
    if not len(found):
        raise FFRecordError(f"no record, expected some of {size} bytes each")
    if (wrong := found != size).any():
        which = int(wrong.argmax())
        sample = int(records.indices()[first + which])
        raise FFRecordError(f"sample {sample} has a record of {found[which]} bytes, expected {size}")


def _unknown(sample: object) -> bytes:
    raise TypeError(f"a sample of {type(sample).__name__} before anybody knows how to encode it")

"""What a worker does: samples → records with checksums, kept until the parent says where in which shard they go.

Records are serialized into shared memory of the worker, piece by piece, and written from there by a thread of its own.
"""

import errno
import os
from collections.abc import Iterator

import numpy as np

from ffrecord import filesystems, format
from ffrecord._engine import filesystem_type
from ffrecord._records import Records
from ffrecord._write_behind import WriteBehind
from ffrecord.errors import file_error
from ffrecord.sharding.encoding import Encode, for_records
from ffrecord.sharding.layout import Segment
from ffrecord.sharding.messages import Sized, Skipped
from ffrecord.sharding.runs import End, Looked, Run
from ffrecord.sharding.shard_file import Files
from ffrecord.sharding.spool import Spool
from ffrecord.workers import heartbeats
from ffrecord.workers.heartbeats import Heart
from ffrecord.workers.process import sentence

PIECE_SAMPLES = 1024
PIECE_BYTES = 8 << 20
KEPT_BYTES = 128 << 20  # capacity of all buffers that are kept, most of it never touched
KEPT_CAPACITY = 32 << 20  # bytes; a buffer grown larger, for one huge sample, is not kept
REASON_MAX = 500  # characters of an exception that are passed on for a sample that is skipped


class Piece:
    """Consecutive samples of a task, serialized.

    Args:
        task, piece: its numbers.
        records: for their bytes, back to back.

    Attributes:
        sizes: bytes of each.
        indices: of each, in the dataset.
        size: bytes of all.
        skipped: what was left out.
        upto: index of the last one.
        last: whether it is the last piece of its task.
        spooled: where in the spool the records are; None if they are in memory.
    """

    def __init__(self, task: int, piece: int, records: Records) -> None:
        self.task, self.piece, self.records = task, piece, records
        self.sizes = np.empty(0, format.OFFSET)
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

    def sized(self, seconds: float = 0.0) -> Sized:
        """What the parent needs to know of it, `seconds` after its task was begun; once."""
        checksums, self._checksums = self._checksums, b""
        return Sized(self.task, self.piece, self.sizes.tobytes(), checksums, self.last, self.skipped, seconds)


class Packer:
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
        self._open: tuple[int, int] | None = None  # (shard, descriptor)
        self._behind = WriteBehind()
        self._begun: tuple[Piece, Segment, int] | None = None  # what is being written, and its last sample
        self._idle: list[Records] = []  # the one used last at the end: its pages are in the cache
        self._spool: Spool | None = None
        self._encode = for_records(_unknown)
        self.ready = False

    def encode_by(self, encode: Encode) -> None:
        """How samples become records: to be told before `pieces` comes upon one that can be had."""
        self._encode, self.ready = for_records(encode), True

    def look(self, run: Run, count: int) -> tuple[list[object], Run]:
        """The first `count` samples of a run, as far as they can be had, and the run as it was before."""
        self._heart.begin(run.task)
        first: list[tuple[int, object, Exception | None]] = []
        for index in run.indices:
            self._heart.at(heartbeats.SAMPLE, index)
            try:
                first.append((index, run.get(index), None))
            except End:
                break
            except Exception as error:
                self._check_skippable(run, error)
                first.append((index, None, error))
            if len(first) == count:
                break
        self._heart.at(heartbeats.OURS, first[-1][0] if first else -1)
        return [sample for _, sample, error in first if error is None], Looked(run, first)

    def pieces(self, run: Run) -> Iterator[Piece]:
        """The samples of a run in pieces of bounded size, one or more."""
        self._heart.begin(run.task)
        number, last = 0, False
        while not last:
            piece = Piece(run.task, number, self._idle.pop() if self._idle else Records(PIECE_BYTES))
            self._fill(piece, run)
            number, last = number + 1, piece.last
            if not len(piece.sizes):
                self._release(piece)
            yield piece

    def _fill(self, piece: Piece, run: Run) -> None:
        records, words, most = piece.records, self._heart.words, PIECE_SAMPLES
        self._heart.work()
        full = False
        while not (full or piece.last):
            try:
                full = not records.fill(run.indices, run.get, self._encode, words, heartbeats.INDEX, PIECE_BYTES, most)
                piece.last = not full
            except End:
                piece.last = True
            except Exception as error:
                self._check_skippable(run, error)
                piece.skipped.append(Skipped(records.count, words[heartbeats.INDEX], sentence(error)[:REASON_MAX]))
                most -= 1
                full = records.count >= most
        words[heartbeats.PHASE] = heartbeats.OURS
        piece.seal(words[heartbeats.INDEX])

    def _check_skippable(self, run: Run, error: Exception) -> None:
        """Raise `error` unless the write goes on without this sample."""
        if not self._skips or run.ended or isinstance(error, MemoryError):
            raise error

    def spool(self, piece: Piece) -> None:
        """Put a piece aside on the disk.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        self._heart.at(heartbeats.OURS, piece.upto)
        if self._spool is None:
            self._spool = Spool(self._files.directory, self._files.label)
        piece.spooled = self._spool.put(piece.records.view(0, piece.size))
        self._release(piece)

    def write(self, piece: Piece, segments: list[Segment]) -> None:
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
            self._wait()
            self._begun = piece, segment, int(piece.indices[first + segment.samples - 1])
            try:
                self._put(piece, start, stop, segment)
            except OSError as error:
                raise self._refused(error) from None
            first, start = first + segment.samples, stop

    def _put(self, piece: Piece, start: int, stop: int, segment: Segment) -> None:
        fd = self._shard(segment.shard)
        if piece.spooled is None:
            self._behind.begin(segment.offset, stop - start, piece.records.view(start, stop))
        elif self._spool is not None:
            self._spool.copy(piece.spooled + start, stop - start, fd, segment.offset)
            self._behind.begin(segment.offset, stop - start)

    def written(self, *, wait: bool) -> Piece | None:
        """The piece that was begun, once it is in its place; its memory is then used again. None: it is not yet, or
        there is none.

        Args:
            wait: until it is there.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        if self._begun is None or not (wait or self._behind.done):
            return None
        self._wait()
        piece, self._begun = self._begun[0], None
        if piece.spooled is None:
            self._release(piece)
        elif self._spool is not None:
            self._spool.forget(piece.size)
        return piece

    def _wait(self) -> None:
        try:
            self._behind.wait()
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> OSError:
        """What to say; the piece that was begun is no longer, or somebody would take it for written."""
        if self._begun is None:
            return error
        (_, segment, last), self._begun = self._begun, None
        path = self._files.final(segment.shard)
        what = f"{segment.samples} samples, the last of them sample {last}, could not be written"
        return file_error(error.errno or errno.EIO, f"{path}: {what} at byte {segment.offset}", path)

    def _release(self, piece: Piece) -> None:
        """The memory of a piece is free for others."""
        piece.records.clear()
        capacity = piece.records.capacity
        if capacity <= KEPT_CAPACITY and capacity + sum(each.capacity for each in self._idle) <= KEPT_BYTES:
            self._idle.append(piece.records)

    def _shard(self, shard: int) -> int:
        """The descriptor, open for writing, of the shard; only the latest one is kept."""
        if self._open is None or self._open[0] != shard:
            self._close_shard()
            fd = os.open(self._files.path(shard), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            self._open = shard, fd
            kind = filesystems.of_type(filesystem_type(fd))
            self._behind.open(fd, not (kind.network or kind.memory))
        return self._open[1]

    def _close_shard(self) -> None:
        self._behind.close()
        if self._open is not None:
            descriptor, self._open = self._open[1], None
            os.close(descriptor)

    def close(self) -> None:
        """Close the last shard; may be repeated."""
        self._close_shard()
        if self._spool is not None:
            self._spool.close()


def _unknown(sample: object) -> bytes:
    raise TypeError(f"a sample of {type(sample).__name__} before anybody knows how to encode it")

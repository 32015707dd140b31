"""What a worker does: samples → records with checksums, kept until the parent says where in which shard they go.

Records are serialized into shared memory of the worker, piece by piece, and written from there by the worker itself.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np

from ffrecord import format
from ffrecord._crc import crc32
from ffrecord.buffers import as_bytes
from ffrecord.durable import write_all
from ffrecord.errors import file_error
from ffrecord.sharding.layout import Segment
from ffrecord.sharding.messages import Place, Sized, Task, Written
from ffrecord.sharding.shard_file import Files
from ffrecord.sharding.shared_buffer import SharedBuffer
from ffrecord.workers import heartbeats
from ffrecord.workers.heartbeats import Heart
from ffrecord.workers.process import Link

PIECE_SAMPLES = 1024
PIECE_BYTES = 8 << 20
HELD_BYTES = 32 << 20  # of records that a worker keeps while it waits for their places
KEPT_BUFFERS = 8
KEPT_CAPACITY = 32 << 20  # bytes; a buffer grown larger, for one huge sample, is not kept
ENTRY_BYTES = 80  # what a record costs beside its bytes

Encode = Callable[[Any], Any]


@dataclass
class Piece:
    """Consecutive samples, serialized.

    Attributes:
        start: position of the first one.
        last: index of the last one in the dataset.
        records: their bytes, back to back.
        sizes: bytes of each.
        checksums: CRC-32 of each.
    """

    start: int
    last: int
    records: SharedBuffer
    sizes: list[int]
    checksums: list[int]

    @property
    def weight(self) -> int:
        """Memory it takes, bytes, roughly."""
        return self.records.size + ENTRY_BYTES * len(self.sizes)

    def sized(self) -> Sized:
        """What the parent needs to know of it."""
        sizes, checksums = np.array(self.sizes, format.OFFSET), np.array(self.checksums, format.CRC)
        return Sized(self.start, sizes.tobytes(), checksums.tobytes())


class Packer:
    """Serializes samples and writes them to their places; in a worker, or in the parent when there are none.

    Args:
        dataset: of which dataset[i] are the samples.
        encode: sample → buffer.
        files: where the shards are, made by the parent.
        heart: told where this is.
    """

    def __init__(self, dataset: Any, encode: Encode, files: Files, heart: Heart) -> None:
        self._dataset, self._encode, self._heart, self._files = dataset, encode, heart, files
        self._open: tuple[int, int] | None = None  # (shard, descriptor)
        self._idle: list[SharedBuffer] = []  # the one used last at the end: its pages are in the cache

    def pieces(self, start: int, indices: list[int]) -> Iterator[Piece]:
        """The samples at `indices`, whose positions begin at `start`, in pieces of bounded size."""
        first = 0
        while first < len(indices):
            piece = self._piece(start + first, indices[first : first + PIECE_SAMPLES])
            first += len(piece.sizes)
            yield piece

    def _piece(self, start: int, indices: list[int]) -> Piece:
        dataset, encode, at = self._dataset, self._encode, self._heart.at
        records = self._idle.pop() if self._idle else SharedBuffer(PIECE_BYTES)
        piece = Piece(start, -1, records, [], [])
        for piece.last in indices:
            at(heartbeats.SAMPLE, piece.last)
            record = encode(dataset[piece.last])
            # The checksum is of the copy: some datasets hand out the same buffer again and again.
            copy = records.append(record if type(record) is bytes else as_bytes(record))
            piece.sizes.append(len(copy))
            piece.checksums.append(crc32(copy))
            if records.size >= PIECE_BYTES:
                break
        return piece

    def write(self, piece: Piece, segments: list[Segment]) -> None:
        """Write a piece to its place; its memory is then used again.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        self._heart.at(heartbeats.OURS, piece.last)
        first = start = 0
        for segment in segments:
            stop = start + sum(piece.sizes[first : first + segment.samples])
            try:
                write_all(self._descriptor(segment.shard), piece.records.view(start, stop), segment.offset)
            except OSError as error:
                path = self._files.final(segment.shard)
                what = f"{segment.samples} samples up to {piece.last} could not be written at {segment.offset}"
                raise file_error(error.errno or errno.EIO, f"{path}: {what}", path) from None
            first, start = first + segment.samples, stop
        piece.records.clear()
        if piece.records.capacity <= KEPT_CAPACITY and len(self._idle) < KEPT_BUFFERS:
            self._idle.append(piece.records)

    def _descriptor(self, shard: int) -> int:
        """Of the shard, open for writing; only the latest one is kept."""
        if self._open is None or self._open[0] != shard:
            self.close()
            flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            self._open = shard, os.open(self._files.path(shard), flags)
        return self._open[1]

    def close(self) -> None:
        """Close the last shard; may be repeated."""
        if self._open is not None:
            descriptor, self._open = self._open[1], None
            os.close(descriptor)


def pack(
    link: Link,
    heart: Heart,
    *,
    dataset: Any,
    files: Files,
    serializer: Encode | None = None,
    fields: Encode | None = None,
) -> None:
    """The work of a worker, until the link ends; see `Packer`. One of `serializer` and `fields` encodes the samples."""
    encode = serializer or fields
    if encode is None:
        raise TypeError("pack needs serializer or fields")
    _Desk(link, heart, Packer(dataset, encode, files, heart)).work()


class _Desk:
    """A worker's tasks not begun and pieces not placed."""

    def __init__(self, link: Link, heart: Heart, packer: Packer) -> None:
        self._link, self._heart, self._packer = link, heart, packer
        self._tasks: deque[Task] = deque()
        self._held: dict[int, Piece] = {}
        self._weight = 0
        self._decoder = msgspec.msgpack.Decoder(Task | Place)

    def work(self) -> NoReturn:
        """Do tasks until the link raises that it has ended."""
        while True:
            self._read_mail(wait=not self._tasks)
            if self._tasks:
                self._do(self._tasks.popleft())

    def _do(self, task: Task) -> None:
        indices = np.frombuffer(task.indices, np.int64).tolist()
        for piece in self._packer.pieces(task.start, indices):
            self._held[piece.start] = piece
            self._weight += piece.weight
            self._link.send(msgspec.msgpack.encode(piece.sized()))
            # Never without an end: once all before are sized, places for what is held here are on their way.
            self._read_mail(wait=self._weight > HELD_BYTES)

    def _read_mail(self, *, wait: bool) -> None:
        """Take what the parent sent; with `wait`, until something came and not too much is held."""
        while True:
            if wait:
                self._heart.idle()
            message = self._link.receive(wait=wait)
            if message is None:
                return
            self._take(self._decoder.decode(message))
            wait = self._weight > HELD_BYTES

    def _take(self, message: Task | Place) -> None:
        if isinstance(message, Task):
            self._tasks.append(message)
            return
        piece = self._held.pop(message.start)
        self._weight -= piece.weight
        self._packer.write(piece, message.segments)
        self._link.send(msgspec.msgpack.encode(Written(message.start)))

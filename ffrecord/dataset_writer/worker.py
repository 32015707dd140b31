"""A worker's tasks not begun and pieces not placed."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from ffrecord.dataset_writer.encoder import SLOW_SECONDS, Chunk, Encoder
from ffrecord.dataset_writer.encoding import Encode, Shape, encoding_from_schema, shape_of
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.messages import (
    Assignment,
    ChunkPlacement,
    IndexTask,
    ItemTask,
    SchemaChosen,
    SchemaProposed,
    StreamTask,
)
from ffrecord.dataset_writer.shards import Files
from ffrecord.dataset_writer.tasks import TaskOpener, TaskSamples
from ffrecord.dataset_writer.transport import Carrier
from ffrecord.fields import Schema
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.process import Link

HELD_BYTES = 32 << 20  # of records that a worker keeps in memory while it waits for their places
# Pieces written after one was made. A worker that writes all it holds keeps others waiting for its next piece, and they
# hold more: memory that is neither in a cache nor used before.
WRITTEN_AT_ONCE = 2


def work(
    link: Link,
    heart: Heart,
    *,
    files: Files,
    skips: bool,
    dataset: Any = None,
    function: Callable[[Any], Any] | None = None,
    pipeline: Callable[[str], Iterable[Any]] | None = None,
    carrier: Carrier | None = None,
    serializer: Encode | None = None,
    fields: Encode | None = None,
    declared: Schema | None = None,
) -> None:
    """The work of a worker, until the link ends; see `Encoder` and `TaskOpener`.

    At most one of `serializer` and `fields` encodes the samples; with neither, the first samples show how, but for the
    columns that are declared.
    """
    packer = Encoder(files, heart, skips=skips)
    if (encode := serializer or fields) is not None:
        packer.encode_by(encode)
    Worker(link, heart, packer, TaskOpener(dataset, function, pipeline, carrier, heart), declared).work()


class Worker:
    """See above.

    Args:
        link: to the parent.
        heart: told when this waits.
        packer: makes pieces and writes them.
        opener: of tasks.
        declared: fields of some columns, where samples are to show the others.
    """

    def __init__(
        self, link: Link, heart: Heart, packer: Encoder, opener: TaskOpener, declared: Schema | None = None
    ) -> None:
        self._link, self._heart, self._packer, self._opener = link, heart, packer, opener
        self._declared = declared
        self._runs: deque[TaskSamples] = deque()  # tasks, opened when they come, so that what can be is read ahead
        self._places: deque[ChunkPlacement] = deque()  # of pieces that can be written
        self._held: dict[tuple[int, int], Chunk] = {}
        self._weight = 0
        self._decoder = msgspec.msgpack.Decoder(IndexTask | ItemTask | StreamTask | SchemaChosen | ChunkPlacement)

    def work(self) -> NoReturn:
        """Do tasks until the link raises that it has ended."""
        try:
            while True:
                self._read_mail(wait=not (self._runs or self._places))
                if self._runs:
                    self._do(self._runs.popleft())
                else:
                    self._write(1)
        except BaseException:
            # A shard may be complete by it, and stays then.
            with suppress(Exception):
                self._tell(wait=True)
            raise

    def _do(self, run: TaskSamples) -> None:
        if not self._packer.ready:
            run = self._show(run)
        if run.foreseen is not None:
            self._packer.fill(run, run.foreseen)
            return
        begun = last = time.monotonic()
        for piece in self._packer.pieces(run):
            if len(piece.sizes):
                self._hold(piece, run)
            now = time.monotonic()
            self._link.send(msgspec.msgpack.encode(piece.sized(now - begun)))
            self._read_mail(wait=False)
            slow = now - last >= SLOW_SECONDS
            self._write(len(self._places) if slow else WRITTEN_AT_ONCE)
            self._tell(wait=slow)
            last = now
            # Never without an end: once all before are sized, places for what is held here are on their way.
            while self._weight > HELD_BYTES:
                self._read_mail(wait=not self._places)
                self._write(1)

    def _show(self, run: TaskSamples) -> TaskSamples:
        """Tell the parent what the first samples are like, and wait until it says how to encode them."""
        samples, run = self._packer.look(run, FIRST_SAMPLES)
        shape = shape_of(samples, self._declared) if samples else Shape(None)
        self._link.send(msgspec.msgpack.encode(SchemaProposed(run.task, bool(samples), shape.schema)))
        while samples and not self._packer.ready:
            self._read_mail(wait=True)
        return run

    def _hold(self, piece: Chunk, run: TaskSamples) -> None:
        """Keep a piece, on the disk if it may be long until the streams before it have ended."""
        if run.streams and self._weight + piece.weight > HELD_BYTES:
            self._packer.spool(piece)
        self._held[piece.task, piece.piece] = piece
        self._weight += piece.weight

    def _read_mail(self, *, wait: bool) -> None:
        """Take what the parent sent; with `wait`, once there is something. It is told what was written by then."""
        self._tell(wait=wait)
        if wait:
            self._heart.idle()
        while (message := self._link.receive(wait=wait)) is not None:
            self._take(self._decoder.decode(message))
            wait = False

    def _take(self, message: Assignment | SchemaChosen | ChunkPlacement) -> None:
        if isinstance(message, SchemaChosen):
            self._packer.encode_by(encoding_from_schema(Shape(message.schema), self._declared).encode)
        elif isinstance(message, ChunkPlacement):
            self._places.append(message)
        else:
            self._runs.append(self._opener.open(message))

    def _write(self, most: int) -> None:
        """Begin to write pieces that have their places, at most so many, each when the one before is written."""
        for _ in range(min(most, len(self._places))):
            place = self._places.popleft()
            piece = self._held.pop((place.task, place.piece))
            self._weight -= piece.weight
            self._packer.write(piece, place.segments)
            self._tell(wait=False)

    def _tell(self, *, wait: bool) -> None:
        """Tell the parent what is in its place, if something is; with `wait`, once it is."""
        while (message := self._packer.written(wait=wait)) is not None:
            self._link.send(msgspec.msgpack.encode(message))

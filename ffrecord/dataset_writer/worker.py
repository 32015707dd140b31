"""The main loop of a writing worker: it receives tasks, encodes samples, and writes chunks to their assigned places."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from ffrecord.dataset_writer.encoder import SLOW_SECONDS, Chunk, Encoder
from ffrecord.dataset_writer.encoding import Encode, Shape, encoding_from_schema, infer_shape
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.messages import (
    Assignment,
    Carrier,
    ChunkPlacement,
    IndexTask,
    ItemTask,
    SchemaChosen,
    SchemaProposed,
    StreamTask,
)
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.dataset_writer.tasks import TaskOpener, TaskSamples
from ffrecord.fields import Schema
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.process import Link

HELD_BYTES = 32 << 20  # limit of the records that a worker keeps in memory until they have a place
# Chunks written after each encoded one. A worker that wrote all it holds would keep others waiting for its next chunk.
# They would then hold more, in memory that is new and in no cache.
WRITTEN_AT_ONCE = 2


def work(
    link: Link,
    heart: Heart,
    *,
    files: ShardFiles,
    skips: bool,
    dataset: Any = None,
    function: Callable[[Any], Any] | None = None,
    pipeline: Callable[[str], Iterable[Any]] | None = None,
    carrier: Carrier | None = None,
    serializer: Encode | None = None,
    fields: Encode | None = None,
    declared: Schema | None = None,
) -> None:
    """Run a worker until its link ends; see `Encoder` and `TaskOpener` for the arguments.

    At most one of `serializer` and `fields` encodes the samples. With neither, the first samples show the columns,
    except those that are declared.
    """
    encoder = Encoder(files, heart, skips=skips)
    if (encode := serializer or fields) is not None:
        # Known from the start, unless samples have to show the columns.
        encoder.encode_by(encode)
    Worker(link, heart, encoder, TaskOpener(dataset, function, pipeline, carrier, heart), declared).work()


class Worker:
    """The state of a writing worker: tasks not yet begun, and chunks without a place.

    Args:
        link: link to the coordinator.
        heart: heartbeat of this worker; it learns when the worker waits.
        encoder: encoder that makes and writes chunks.
        opener: opener of tasks.
        declared: fields of some columns, if samples show the others.
    """

    def __init__(
        self, link: Link, heart: Heart, encoder: Encoder, opener: TaskOpener, declared: Schema | None = None
    ) -> None:
        self._link, self._heart, self._encoder, self._opener = link, heart, encoder, opener
        self._declared = declared
        self._opened: deque[TaskSamples] = deque()  # tasks; opened at arrival, so that reading ahead starts
        self._places: deque[ChunkPlacement] = deque()  # of chunks that can be written
        self._held: dict[tuple[int, int], Chunk] = {}
        self._held_bytes = 0
        self._decoder = msgspec.msgpack.Decoder(IndexTask | ItemTask | StreamTask | SchemaChosen | ChunkPlacement)

    def work(self) -> NoReturn:
        """Do tasks until the link raises that it has ended."""
        try:
            while True:
                # Only wait if there is nothing to encode and nothing to write.
                self._receive(wait=not (self._opened or self._places))
                if self._opened:
                    self._encode_task(self._opened.popleft())
                else:
                    # One chunk only: a task may arrive meanwhile, and others wait for its sizes.
                    self._write(1)
        except BaseException:
            # A chunk on its way may complete a shard; the next write can then keep that shard.
            with suppress(Exception):
                self._report_written(wait=True)
            raise

    def _encode_task(self, task_samples: TaskSamples) -> None:
        # Only the first task of a write is looked at; later ones come with a known encoding.
        if not self._encoder.ready:
            task_samples = self._infer_encoding(task_samples)
        if task_samples.preassigned is not None:
            # Its report goes out with the next `_receive`.
            self._encoder.fill(task_samples, task_samples.preassigned)
            return
        begun = last = time.monotonic()
        for chunk in self._encoder.chunks(task_samples):
            if len(chunk.sizes):
                # Before it is reported: its place may come with the next message.
                self._hold(chunk, task_samples)
            now = time.monotonic()
            # Report before writing: other workers wait for these sizes to get their places.
            self._link.send(msgspec.msgpack.encode(chunk.to_message(now - begun)))
            self._receive(wait=False)
            slow = now - last >= SLOW_SECONDS
            # After a slow chunk, write and report all: the next one may take as long.
            self._write(len(self._places) if slow else WRITTEN_AT_ONCE)
            self._report_written(wait=slow)
            last = now
            # This ends: once all earlier chunks are encoded, the coordinator sends places for the chunks held here.
            while self._held_bytes > HELD_BYTES:
                # Only wait for a message if no chunk can be written.
                self._receive(wait=not self._places)
                self._write(1)

    def _infer_encoding(self, task_samples: TaskSamples) -> TaskSamples:
        """Send the columns of the first samples to the coordinator, and wait for its choice of an encoding."""
        samples, task_samples = self._encoder.read_first(task_samples, FIRST_SAMPLES)
        shape = infer_shape(samples, self._declared) if samples else Shape(None)
        self._link.send(msgspec.msgpack.encode(SchemaProposed(task_samples.task, bool(samples), shape.schema)))
        # A task without samples is not answered: the coordinator gives the next one.
        while samples and not self._encoder.ready:
            self._receive(wait=True)
        return task_samples

    def _hold(self, chunk: Chunk, task_samples: TaskSamples) -> None:
        """Keep a chunk; put it on disk if earlier streams may take long to end."""
        # Other sources need no file: earlier tasks are short, and their sizes come soon.
        if task_samples.streams and self._held_bytes + chunk.memory > HELD_BYTES:
            self._encoder.spill(chunk)
        self._held[chunk.task, chunk.number] = chunk
        self._held_bytes += chunk.memory

    def _receive(self, *, wait: bool) -> None:
        """Handle the messages of the coordinator; with `wait`, wait for the first one. Report written chunks before."""
        # Before this worker sleeps: the last shard may be complete with these reports.
        self._report_written(wait=wait)
        if wait:
            # A worker that waits is not stuck.
            self._heart.idle()
        while (message := self._link.receive(wait=wait)) is not None:
            self._handle(self._decoder.decode(message))
            # Only the first message is waited for; then take what is there.
            wait = False

    def _handle(self, message: Assignment | SchemaChosen | ChunkPlacement) -> None:
        if isinstance(message, SchemaChosen):
            self._encoder.encode_by(encoding_from_schema(Shape(message.schema), self._declared).encode)
        elif isinstance(message, ChunkPlacement):
            self._places.append(message)
        else:
            self._opened.append(self._opener.open(message))

    def _write(self, most: int) -> None:
        """Start to write at most `most` chunks that have a place; each one starts when the one before is written."""
        for _ in range(min(most, len(self._places))):
            place = self._places.popleft()
            chunk = self._held.pop((place.task, place.number))
            self._held_bytes -= chunk.memory
            self._encoder.write(chunk, place.segments)
            self._report_written(wait=False)

    def _report_written(self, *, wait: bool) -> None:
        """Report written chunks to the coordinator; with `wait`, wait until they are written."""
        while (message := self._encoder.take_written(wait=wait)) is not None:
            self._link.send(msgspec.msgpack.encode(message))

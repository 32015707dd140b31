"""Messages between the coordinator of a write and its workers.

    coordinator                     worker
    IndexTask, ItemTask,
    StreamTask                 ──▶  encodes samples, in chunks of bounded size
                               ◀──  SchemaProposed(task, schema)    only while the encoding is unknown
    SchemaChosen(schema)       ──▶
                               ◀──  ChunkEncoded(task, number, sizes, checksums)
    ChunkPlacement(task, …)    ──▶  writes the chunk to its place
                               ◀──  ChunkWritten(task, number)

If all records have one size, their places are assigned beforehand, and come with the task:

    IndexTask, ItemTask        ──▶  encodes samples, and writes them to their places
                               ◀──  TaskDone(task, checksums)

Tasks are numbered in the order of writing, and so are the chunks of a task.
"""

from typing import Any

import msgspec

from ffrecord.dataset_writer.layout import Segment
from ffrecord.format import ffr_layout

INDEX_BYTES = 8


# `array_like`: messages carry values without names, which would be longer than most of them.
class Preassigned(msgspec.Struct, array_like=True):
    """The places of a task's samples.

    Attributes:
        size: size of each record, bytes.
        segments: one or more segments, in order.
    """

    size: int
    segments: list[Segment]


class IndexTask(msgspec.Struct, tag="indices", array_like=True):
    """A task of samples that are read by index.

    Attributes:
        task: number of the task.
        indices: int64.
        preassigned: places of the samples; None if not known yet.
    """

    task: int
    indices: bytes
    preassigned: Preassigned | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.indices) // INDEX_BYTES


class ItemTask(msgspec.Struct, tag="items", array_like=True):
    """A task of samples from the coordinator, or of the items they are made from.

    Attributes:
        task: number of the task.
        indices: int64, number of each sample for messages.
        ends: int64, end of each pickle.
        slot: slot of shared memory that has the pickles; -1 for `data`.
        data: the pickles, if they are not in shared memory.
        preassigned: places of the samples; None if not known yet.
    """

    task: int
    indices: bytes
    ends: bytes
    slot: int
    data: bytes = b""
    preassigned: Preassigned | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.indices) // INDEX_BYTES


class StreamTask(msgspec.Struct, tag="stream", array_like=True):
    """A task of an unknown number of samples.

    Attributes:
        name: name that the pipeline opens, in UTF-8 with surrogates: a file's name need not be UTF-8.
    """

    task: int
    name: bytes


Assignment = IndexTask | ItemTask | StreamTask  # tasks of a worker


class SchemaProposed(msgspec.Struct, tag="shown", array_like=True):
    """The columns that the first samples of a task show.

    Attributes:
        task: number of the task.
        found: whether there were any samples.
        schema: their schema; None if they are plain bytes.
    """

    task: int
    found: bool
    schema: dict[str, Any] | None


class SchemaChosen(msgspec.Struct, tag="chosen", array_like=True):
    """The encoding to use; `schema` is None for plain bytes."""

    schema: dict[str, Any] | None


class Skipped(msgspec.Struct, array_like=True):
    """A sample that was left out.

    Attributes:
        before: number of samples before it in the chunk.
        index: index of the sample.
        reason: type and message of the exception.
    """

    before: int
    index: int
    reason: str


class ChunkEncoded(msgspec.Struct, tag="sized", array_like=True):
    """A report that a chunk is encoded.

    Attributes:
        task, number: number of the task, and of the chunk in it.
        sizes: int64, sizes of the records.
        checksums: uint32, checksums of the records.
        last: whether it is the last chunk of the task.
        skipped: samples left out.
        seconds: time since the task was begun.
    """

    task: int
    number: int
    sizes: bytes
    checksums: bytes
    last: bool
    skipped: list[Skipped] = []
    seconds: float = 0.0

    @property
    def samples(self) -> int:
        """Number of samples; a chunk without any gets no place."""
        return len(self.sizes) // ffr_layout.OFFSET.itemsize


class ChunkPlacement(msgspec.Struct, tag="place", array_like=True):
    """The places of a chunk's samples."""

    task: int
    number: int
    segments: list[Segment]


class TaskDone(msgspec.Struct, tag="filled", array_like=True):
    """A report that all samples of a task are in their preassigned places.

    Attributes:
        task: number of the task.
        checksums: uint32, checksums of the records.
        seconds: time that the task took.
    """

    task: int
    checksums: bytes
    seconds: float

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.checksums) // ffr_layout.CRC.itemsize


class ChunkWritten(msgspec.Struct, tag="written", array_like=True):
    """A report that a chunk is in its place."""

    task: int
    number: int

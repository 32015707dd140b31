"""What the parent of a write and its workers tell each other.

    parent                      worker
    Indices, Items, Stream ──▶  make samples, in pieces of bounded size
                           ◀──  Shown(task, schema)            only where nobody knows the encoding yet
    Chosen(schema)         ──▶
                           ◀──  Sized(task, piece, sizes, checksums)
    Place(task, piece)     ──▶  write the piece's own bytes to their place
                           ◀──  Written(task, piece)

Where all records have one size, their places are foreseen, and come with the task:

    Indices, Items         ──▶  make samples, and write them to their places
                           ◀──  Filled(task, checksums)

Tasks are numbered in the order of writing, and so are the pieces of a task.
"""

from typing import Any

import msgspec

from ffrecord.dataset_writer.layout import Segment
from ffrecord.format import ffr_layout

INDEX_BYTES = 8


class Preassigned(msgspec.Struct, array_like=True):
    """Where the samples of a task go.

    Attributes:
        size: of each record, bytes.
        segments: one or more, in order.
    """

    size: int
    segments: list[Segment]


class IndexTask(msgspec.Struct, tag="indices", array_like=True):
    """Samples to be had by index.

    Attributes:
        task: its number.
        indices: int64.
        foreseen: their places, if they are known.
    """

    task: int
    indices: bytes
    foreseen: Preassigned | None = None

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.indices) // INDEX_BYTES


class ItemTask(msgspec.Struct, tag="items", array_like=True):
    """Samples that the parent has, or what they are made of.

    Attributes:
        task: its number.
        indices: int64, how each is called.
        ends: int64, where each pickle ends.
        slot: of shared memory where the pickles are; -1 for `data`.
        data: the pickles, if they are not in shared memory.
        foreseen: the places of the samples, if they are known.
    """

    task: int
    indices: bytes
    ends: bytes
    slot: int
    data: bytes = b""
    foreseen: Preassigned | None = None

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.indices) // INDEX_BYTES


class StreamTask(msgspec.Struct, tag="stream", array_like=True):
    """Samples of which nobody knows how many there are; `name` is what the pipeline opens."""

    task: int
    name: str


Assignment = IndexTask | ItemTask | StreamTask  # what a worker is given to do


class SchemaProposed(msgspec.Struct, tag="shown", array_like=True):
    """What the first samples of a task are like.

    Attributes:
        task: its number.
        found: whether there were any.
        schema: theirs; None if they are plain bytes.
    """

    task: int
    found: bool
    schema: dict[str, Any] | None


class SchemaChosen(msgspec.Struct, tag="chosen", array_like=True):
    """How to encode; `schema` is None for plain bytes."""

    schema: dict[str, Any] | None


class Skipped(msgspec.Struct, array_like=True):
    """A sample that was left out.

    Attributes:
        before: samples of the piece before it.
        index: of the sample.
        reason: type and message of the exception.
    """

    before: int
    index: int
    reason: str


class ChunkEncoded(msgspec.Struct, tag="sized", array_like=True):
    """A piece is serialized.

    Attributes:
        task, piece: their numbers.
        sizes: int64 of its samples.
        checksums: uint32 of its samples.
        last: whether it is the last one of the task.
        skipped: what was left out.
        seconds: since the task was begun.
    """

    task: int
    piece: int
    sizes: bytes
    checksums: bytes
    last: bool
    skipped: list[Skipped] = []
    seconds: float = 0.0

    @property
    def samples(self) -> int:
        """How many; a piece without any gets no place."""
        return len(self.sizes) // ffr_layout.OFFSET.itemsize


class ChunkPlacement(msgspec.Struct, tag="place", array_like=True):
    """Where the samples of a piece go."""

    task: int
    piece: int
    segments: list[Segment]


class TaskDone(msgspec.Struct, tag="filled", array_like=True):
    """All samples of a task are in the places that were foreseen.

    Attributes:
        task: its number.
        checksums: uint32 of its samples.
        seconds: that this took.
    """

    task: int
    checksums: bytes
    seconds: float

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.checksums) // ffr_layout.CRC.itemsize


class ChunkWritten(msgspec.Struct, tag="written", array_like=True):
    """A piece is in its place."""

    task: int
    piece: int

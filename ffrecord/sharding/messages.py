"""What the parent of a write and its workers tell each other.

    parent                      worker
    Task(start, indices)   ──▶  serialize, in pieces of bounded size
                           ◀──  Sized(start, sizes, checksums)
    Place(start, segments) ──▶  write the piece's own bytes to their place
                           ◀──  Written(start)

`start` counts positions in the order of writing, and names a piece.
"""

import msgspec

from ffrecord import format
from ffrecord.sharding.layout import Segment


class Task(msgspec.Struct, tag="task", array_like=True):
    """Samples to serialize; `indices` are int64."""

    start: int
    indices: bytes


class Place(msgspec.Struct, tag="place", array_like=True):
    """Where the samples of a piece go."""

    start: int
    segments: list[Segment]


class Sized(msgspec.Struct, tag="sized", array_like=True):
    """A piece is serialized; `sizes` are int64 and `checksums` uint32."""

    start: int
    sizes: bytes
    checksums: bytes

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.sizes) // format.OFFSET.itemsize


class Written(msgspec.Struct, tag="written", array_like=True):
    """A piece is in its place."""

    start: int

"""A part of a task, serialized: what is kept until the parent says where it goes."""

from collections.abc import Callable

import numpy as np

from ffrecord.dataset_writer.messages import Sized, Skipped
from ffrecord.format import ffr_layout
from ffrecord.kernels._records import Records


class Piece:
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

    def sized(self, seconds: float = 0.0) -> Sized:
        """What the parent needs to know of it, `seconds` after its task was begun; once."""
        checksums, self._checksums = self._checksums, b""
        return Sized(self.task, self.piece, self.sizes.tobytes(), checksums, self.last, self.skipped, seconds)

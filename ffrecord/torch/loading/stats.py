"""Where the time of a training loop goes."""

from dataclasses import dataclass, fields
from typing import Any

from ffrecord.reading.stats import ReadStats

__all__ = ["LoaderStats", "Reading", "Seconds"]

WAITING_LEAST = 0.05  # of the time; less is not worth anybody's work


@dataclass
class Seconds:
    """Time that Python stages took, summed over threads and processes."""

    decode: float = 0.0
    transform: float = 0.0
    collate: float = 0.0
    batch_transform: float = 0.0

    def add(self, other: "Seconds") -> None:
        """Add `other` to this."""
        self.decode += other.decode
        self.transform += other.transform
        self.collate += other.collate
        self.batch_transform += other.batch_transform


@dataclass(frozen=True)
class Reading:
    """What a reader has done: bytes, seconds of input and output, seconds of CRC-32."""

    bytes: int = 0
    io: float = 0.0
    crc: float = 0.0

    @classmethod
    def of(cls, stats: ReadStats) -> "Reading":
        return cls(stats.bytes, stats.io_seconds, stats.crc_seconds)

    def __sub__(self, other: "Reading") -> "Reading":
        return Reading(self.bytes - other.bytes, self.io - other.io, self.crc - other.crc)

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(self.bytes + other.bytes, self.io + other.io, self.crc + other.crc)


NOTHING = Reading()

STAGES = {
    "io": "reading",
    "crc": "checking CRC-32",
    "decode": "decoding",
    "transform": "transform",
    "collate": "collating",
    "batch_transform": "batch_transform",
}


@dataclass(frozen=True)
class LoaderStats:
    """What a `Loader` did since it was made. `str` of it is a small table, its last line the verdict.

    Attributes:
        batches, samples: yielded.
        skipped: samples left out or replaced by `on_error`.
        bytes: read.
        waiting: seconds that the training loop waited for batches.
        computing: seconds that it did not: what passed between getting a batch and asking for the next.
        io, crc: seconds spent reading, and computing CRC-32 apart from that; see `FileReader.stats`. If the reader was
            given, also those of others who use it.
        decode, transform, collate, batch_transform: seconds spent so.
            The six are summed over threads and processes, so together they may exceed the time that passed.
    """

    batches: int = 0
    samples: int = 0
    skipped: int = 0
    bytes: int = 0
    waiting: float = 0.0
    computing: float = 0.0
    io: float = 0.0
    crc: float = 0.0
    decode: float = 0.0
    transform: float = 0.0
    collate: float = 0.0
    batch_transform: float = 0.0

    @property
    def waiting_share(self) -> float:
        """The part of the time that the training loop waited, 0 to 1; nan before the first batch."""
        whole = self.waiting + self.computing
        return self.waiting / whole if whole else float("nan")

    @property
    def verdict(self) -> str:
        """One line: is the training loop waiting for data, and on what?"""
        if not self.batches:
            return "nothing was loaded yet"
        share = self.waiting_share
        if share < WAITING_LEAST:
            return f"the training loop waits for data {share:.0%} of its time: the loader is fast enough"
        spent = {name: float(getattr(self, name)) for name in STAGES}
        whole = sum(spent.values()) or 1.0
        parts = sorted(((seconds / whole, STAGES[name]) for name, seconds in spent.items()), reverse=True)
        said = ", ".join(f"{name} ({part:.0%})" for part, name in parts if part >= 0.1)
        return f"the training loop waits for data {share:.0%} of its time, on {said}"

    def __str__(self) -> str:
        rows = [(each.name, getattr(self, each.name)) for each in fields(self)]
        lines = [f"{name:16} {_shown(name, value)}" for name, value in rows]
        return "\n".join([*lines, self.verdict])


def _shown(name: str, value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f} s"

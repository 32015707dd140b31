"""Statistics of the time of a training loop."""

from dataclasses import dataclass, fields
from typing import Any

from ffrecord.reading.stats import ReadStats

__all__ = ["LoaderStats", "Reading", "Seconds"]

WAITING_LEAST = 0.05  # share of the time; less is not worth any work


@dataclass
class Seconds:
    """Time of the Python stages, summed over threads and processes."""

    decode: float = 0.0
    transform: float = 0.0
    collate: float = 0.0
    batch_transform: float = 0.0
    fetch: float = 0.0

    def add(self, other: "Seconds") -> None:
        """Add `other` to this."""
        self.decode += other.decode
        self.transform += other.transform
        self.collate += other.collate
        self.batch_transform += other.batch_transform
        self.fetch += other.fetch


@dataclass(frozen=True)
class Reading:
    """The work of a reader: bytes, seconds of input and output, seconds of CRC-32."""

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
    "fetch": "the dataset's Python code",
}


@dataclass(frozen=True)
class LoaderStats:
    """The work of a `Loader` since it was made. `str` gives a small table, whose last line is the verdict.

    Attributes:
        batches, samples: numbers of yielded batches and samples.
        skipped: samples that `on_error` left out or replaced.
        bytes: bytes read.
        waiting: seconds that the training loop waited for batches.
        computing: seconds between getting a batch and asking for the next one.
        io, crc: seconds of reading, and of CRC-32 apart from that; see `FileReader.stats`. If you passed the reader,
            its other users are included.
        decode, transform, collate, batch_transform: seconds of these stages.
        fetch: seconds of getting samples from a dataset in Python, with the decoding of their images.
            These seven are summed over threads and processes, so together they may exceed the time that passed.
        source: words for the samples, and for the work on them that Python does.
        decoded_on_cpu: images that the library of `decode_with` left to the decoder of the CPU.
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
    fetch: float = 0.0
    source: str = ""
    decoded_on_cpu: int = 0

    @property
    def waiting_share(self) -> float:
        """The share of the time that the training loop waited, 0 to 1; nan before the first batch."""
        whole = self.waiting + self.computing
        return self.waiting / whole if whole else float("nan")

    @property
    def verdict(self) -> str:
        """One line that says whether the training loop waits for data, and for which stage."""
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
        lines = [f"{name:16} {_format_value(name, value)}" for name, value in rows]
        return "\n".join([*lines, self.verdict])


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f} s"

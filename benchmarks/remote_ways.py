"""A served dataset, and our readers that read an epoch of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import workloads
from harness import Contestant, WrongAnswerError, timed
from waits import Waits

from ffrecord import FileReader

AHEAD = 4  # batches


class Data(NamedTuple):
    """A dataset and the records to read of it.

    Attributes:
        name: name of its directory below the served root.
        local: the same directory on this machine.
        records: all records, in order.
        spans: (name of the file, first byte, last byte) of each.
        order: order of an epoch.
    """

    name: str
    local: Path
    records: Sequence[bytes]
    spans: list[tuple[str, int, int]]
    order: np.ndarray

    @property
    def size(self) -> int:
        """Size of all records, bytes."""
        return sum(map(len, self.records))

    def batches(self, size: int) -> list[np.ndarray]:
        """Return an epoch, in batches."""
        return [self.order[start : start + size] for start in range(0, len(self.order), size)]


def epoch(reader: FileReader, data: Data, batch: int, waits: Waits | None = None) -> None:
    """Read an epoch, and count the bytes."""
    batches, sizes = data.batches(batch), []
    waits = waits or Waits(len(batches))
    begun = time.perf_counter_ns()
    waits.record(reader.iter_batches(batches, AHEAD), lambda arrays: sizes.append(sum(map(len, arrays))), begun)
    if sum(sizes) != data.size:
        raise WrongAnswerError(f"an epoch of {data.name} has {sum(sizes)} bytes, expected {data.size}")


def check_epoch(name: str, reader: FileReader, data: Data, batch: int) -> None:
    """Compare every byte of an epoch."""
    batches = data.batches(batch)
    for indices, arrays in zip(batches, reader.iter_batches(batches, AHEAD), strict=True):
        for index, array in zip(indices, arrays, strict=True):
            if array.tobytes() != data.records[index]:
                raise WrongAnswerError(f"{name}: record {index} is another")


@dataclass(frozen=True)
class CountedContestant(Contestant):
    """A contestant whose runs count their requests.

    Attributes:
        asked: the requests of each run.
    """

    asked: list[int] = field(default_factory=list)

    @property
    def details(self) -> dict[str, Any]:
        return {**super().details, "requests": self.asked}


def looping(name: str, url: str, data: Data, work: workloads.RemoteBlocks, ahead: int | None) -> Contestant:
    """Return an epoch of a `Loader` in blocks, which opens the URL. Its details are the requests of each run.

    Args:
        ahead: `ahead_memory`.
    """
    from ffrecord.order import Block
    from ffrecord.torch import Loader

    order, options = Block(work.block, work.window), {"ahead_memory": ahead}
    asked: list[int] = []

    def run() -> None:
        with Loader(url, work.batch, order, seed=work.seed, storage_options=options) as loader:
            size = sum(len(record) for batch in loader for record in batch)
            asked.append(loader.reader.stats().requests)
        if size != data.size:
            raise WrongAnswerError(f"an epoch of {data.name} has {size} bytes, expected {data.size}")

    def check() -> None:
        with Loader(url, work.batch, order, seed=work.seed, storage_options=options) as loader:
            for batch in loader:
                for index, record in zip(loader.batch_indices.tolist(), batch, strict=True):
                    if record.numpy().tobytes() != data.records[index]:
                        raise WrongAnswerError(f"{name}: record {index} is another")

    return CountedContestant(name, timed(run), check, asked=asked)


def reading(name: str, reader: FileReader, data: Data, work: workloads.RemoteReads) -> Contestant:
    """Return an epoch by one of our readers."""
    waits = Waits(len(data.batches(work.batch)))
    return Contestant(
        name,
        timed(lambda: epoch(reader, data, work.batch, waits)),
        lambda: check_epoch(name, reader, data, work.batch),
        waits,
    )

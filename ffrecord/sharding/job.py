"""What a write is to do, and with what."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ffrecord.manifest import Shard
from ffrecord.sharding.layout import BEGINNING, ByBytes, ByCount, Start
from ffrecord.sharding.packing import Encode
from ffrecord.sharding.shard_file import Files

TASK_SAMPLES = 1024  # at most, so that the indices of a task are one packet

Indices = range | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Job:
    """What to write, and where.

    Attributes:
        dataset: of which dataset[i] are the samples.
        indices: of the samples, in order, within the dataset.
        role: what `encode` is to the user.
        encode: sample → buffer.
        cut: into shards.
        payload: of every shard's extension block; None for no block.
        files: where the shards are made, and what they will be called.
        keep: called with every finished, durable shard, and the start of the next one, from a thread.
        start: after the shards that are there already.
    """

    dataset: Any
    indices: Indices
    role: Literal["serializer", "fields"]
    encode: Encode
    cut: ByCount | ByBytes
    payload: bytes | None
    files: Files
    keep: Callable[[Shard, Start], None]
    start: Start = BEGINNING


@dataclass(frozen=True)
class Means:
    """With what to write; nothing here changes a byte of the result.

    Attributes:
        workers: processes, >= 0; 0 for none but this one.
        chunksize: samples a worker is given at a time, > 0; large ones are divided.
        start_method: of the processes, as `workers.start_method_of` takes it.
        stuck_after: seconds without a sign of life after which a busy worker is given up, or None.
        progress: True for a bar, False for none, None for one if stderr is a terminal.
    """

    workers: int
    chunksize: int = 100
    start_method: str | None = None
    stuck_after: float | None = None
    progress: bool | None = None

    @property
    def task_samples(self) -> int:
        """Samples of a task."""
        return min(self.chunksize, TASK_SAMPLES)


def tasks(indices: Indices, samples: int, first: int = 0) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """(position of the first, indices) of every `samples` samples, beginning at position `first`."""
    for start in range(first, len(indices), samples):
        yield start, np.asarray(indices[start : start + samples], np.int64)

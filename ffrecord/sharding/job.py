"""What a write is to do, and with what."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ffrecord.sharding.layout import ByBytes, ByCount
from ffrecord.sharding.packing import Encode

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
        directory: an existing, empty one.
        label: the directory's final path, for messages and the progress bar.
    """

    dataset: Any
    indices: Indices
    role: Literal["serializer", "fields"]
    encode: Encode
    cut: ByCount | ByBytes
    payload: bytes | None
    directory: str
    label: str


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


def tasks(indices: Indices, samples: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """(position of the first, indices) of every `samples` samples."""
    for start in range(0, len(indices), samples):
        yield start, np.asarray(indices[start : start + samples], np.int64)

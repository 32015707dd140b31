"""A dataset as tasks for many processes or machines: each is a range of samples of one file."""

import operator
import os
from typing import NamedTuple, SupportsIndex

from ffrecord.format import ffr_layout
from ffrecord.reading import paths
from ffrecord.reading.ffr_file import naming
from ffrecord.reading.paths import Source


class Task(NamedTuple):
    """Consecutive samples of one file.

    Attributes:
        path: of the file; `FileReader(path).read_range(start, stop)` gives them.
        start, stop: of the samples in the file, [start, stop).
    """

    path: str
    start: int
    stop: int


def tasks(fname: Source, samples: SupportsIndex) -> list[Task]:
    """Divide what `FileReader(fname)` would read into tasks, in its order: every sample is in exactly one.

    Nothing but the header of each file is read, and not even that where a dataset.json lists them. What is appended to
    a directory afterwards is in none of the tasks, which stay as they are: shards are never changed.

    Args:
        fname: a file, a directory, a glob pattern, or a list or tuple of such, as `FileReader` takes it.
        samples: of a task at most, > 0; each file ends with a task of what is left.

    Raises:
        ValueError: `samples` is not positive, or there are no files.
        FileNotFoundError, IsADirectoryError, TypeError: as from `FileReader`.
        FormatError: a file is none of ours.
    """
    size = operator.index(samples)
    if size <= 0:
        raise ValueError(f"samples is {size}, expected > 0")
    files, shards = paths.expand(fname)
    counts = [shard.samples if shard else _count(path) for path, shard in zip(files, shards, strict=True)]
    return [
        Task(path, start, min(start + size, count))
        for path, count in zip(files, counts, strict=True)
        for start in range(0, count, size)
    ]


def _count(path: str) -> int:
    """Samples of a file, as its header says."""
    with naming(path), open(path, "rb") as file:
        return ffr_layout.unpack_prefix(file.read(ffr_layout.PREFIX.size), os.fstat(file.fileno()).st_size)[1]

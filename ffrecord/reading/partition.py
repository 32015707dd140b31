"""Partition of a dataset into tasks for many processes or machines; a task is a range of samples of one file."""

import os
from typing import NamedTuple, SupportsIndex

from ffrecord.format import ffr_layout
from ffrecord.reading import paths
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.reading.paths import Source
from ffrecord.system.values import whole_number


class Task(NamedTuple):
    """Consecutive samples of one file.

    Attributes:
        path: path of the file; `FileReader(path).read_range(start, stop)` reads the samples.
        start, stop: range of the samples in the file, [start, stop).
    """

    path: str
    start: int
    stop: int


def tasks(fname: Source, samples: SupportsIndex) -> list[Task]:
    """Divide the samples of `FileReader(fname)` into tasks, in order: every sample is in exactly one task.

    Only the header of each file is read, and not even that if a dataset.json lists the files. Shards are never changed,
    so the tasks stay valid when somebody appends to a directory; they do not contain the new samples.

    Args:
        fname: a file, a directory, a glob pattern, or a list or tuple of these, as for `FileReader`.
        samples: maximum number of samples of a task, > 0; the last task of a file may have fewer.

    Raises:
        ValueError, TypeError: `samples` is not a positive int, or there are no files.
        FileNotFoundError, IsADirectoryError, TypeError: the same as for `FileReader`.
        FormatError: a file is not an FFRecord file.
    """
    size = whole_number("samples", samples)
    if size <= 0:
        raise ValueError(f"samples is {size}, expected > 0")
    files, shards = paths.expand(fname)
    # The manifest has the counts; without one each header is read, and only that.
    counts = [shard.samples if shard else _count(path) for path, shard in zip(files, shards, strict=True)]
    return [
        Task(path, start, min(start + size, count))
        for path, count in zip(files, counts, strict=True)
        for start in range(0, count, size)
    ]


def _count(path: str) -> int:
    """Return the number of samples in a file's header."""
    with add_path_to_errors(path), open(path, "rb") as file:
        return ffr_layout.unpack_prefix(file.read(ffr_layout.HEAD_SIZE), os.fstat(file.fileno()).st_size)[1]

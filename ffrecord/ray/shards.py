"""Shards of a writing task, with names that no other task has, nor another try of the same task."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ffrecord.dataset_writer.layout import ByBytes, ByCount
from ffrecord.format import ffr_layout
from ffrecord.format.extension import Extension
from ffrecord.format.manifest import Shard
from ffrecord.ray.target import ShardPlace
from ffrecord.reading.batch_forms import Packed
from ffrecord.writing.file_writer import FileWriter


@dataclass(frozen=True)
class WrittenShard:
    """The complete and durable shards of one try of a task.

    Attributes:
        task: number of the task.
        shards: shards in order.
        bytes: size of all samples in them.
    """

    task: int
    shards: list[Shard]
    bytes: int


class ShardWriter:
    """A writer that cuts records into shards.

    Args:
        place: place of the shards.
        task: number of the task.
        cut: largest number of samples or bytes of a shard; a larger sample has a shard to itself.
        extension: extension block of each shard.
    """

    def __init__(self, place: ShardPlace, task: int, cut: ByBytes | ByCount, extension: Extension | None) -> None:
        self._place, self._task, self._cut, self._extension = place, task, cut, extension
        self._try = secrets.token_hex(8)
        self._file: FileWriter | None = None
        self._done: list[Shard] = []
        self._samples = self._bytes = 0  # in the open shard
        self._total = 0  # bytes in the shards before it

    def add(self, records: Packed) -> None:
        """Write records.

        Raises:
            OSError (also a RuntimeError): it failed.
        """
        data, offsets = records
        ends = offsets[1:] - offsets[0]
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            count = self._fitting(ends[first:] - before)
            if count:
                self._open().write_packed(data, offsets[first : first + count + 1])
                self._samples += count
                self._bytes += int(ends[first + count - 1]) - before
                first += count
            else:
                self._close()

    def _fitting(self, ends: Any) -> int:
        """Return how many of the records that end at `ends`, in bytes from here, still fit the open shard."""
        if isinstance(self._cut, ByCount):
            return min(self._cut.samples - self._samples, len(ends))
        count = int(np.searchsorted(ends, self._cut.size - self._bytes, side="right"))
        return count if self._samples else max(count, 1)

    def _open(self) -> FileWriter:
        if self._file is None:
            name = f"{self._task:08d}-{self._try}-{len(self._done):05d}{ffr_layout.SUFFIX}"
            self._file = FileWriter(self._place.path(name), extension=self._extension)
            self._name = name
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            self._done.append(self._place.finish(self._name))
            self._total += self._bytes
            self._samples = self._bytes = 0

    def end(self) -> WrittenShard:
        """Complete the last shard; return the shards of the task."""
        self._close()
        return WrittenShard(self._task, self._done, self._total)

    def discard(self) -> None:
        """Remove the unfinished shard. Finished ones may stay: no manifest will list them."""
        if self._file is not None:
            self._file._discard()
        self._place.close()


def ordered_shards(written: list[WrittenShard]) -> Iterator[Shard]:
    """Yield the shards of all tasks, in the order of their numbers."""
    for each in sorted(written, key=lambda each: each.task):
        yield from each.shards

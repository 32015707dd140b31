"""Datasets to be written, and what is there of them afterwards."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import children

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter, Summary

METHODS = ["fork", "spawn", "forkserver"]
SOURCES = ["dataset", "iterable", "length", "lines", "shards"]


def grown(n: int) -> list[bytes]:
    """Samples of 0 to n - 1 bytes."""
    return [bytes([i % 256]) * i for i in range(n)]


class Samples:
    """Plain samples by index, by line and by shard; importable, so that spawned workers can have it."""

    def __init__(self, samples: list[Any], shards: list[int] | None = None) -> None:
        self.samples = samples
        self.bounds = [0, *(shards or []), len(samples)]

    @classmethod
    def of_sizes(cls, sizes: list[int], shards: list[int] | None = None) -> "Samples":
        """Samples of these sizes, in shards that begin at 0 and at the numbers given."""
        return cls([bytes([i % 251]) * size for i, size in enumerate(sizes)], shards)

    @property
    def lines(self) -> list[str]:
        return [f"{i}\n" for i in range(len(self.samples))]

    @property
    def shards(self) -> list[str]:
        return [str(number) for number in range(len(self.bounds) - 1)]

    def of_line(self, line: str) -> Any:
        return self.samples[int(line)]

    def of_shard(self, shard: str) -> Iterator[Any]:
        yield from self.samples[self.bounds[int(shard)] : self.bounds[int(shard) + 1]]


def write_from(source: str, path: Path, given: Samples, chunksize: int = 100, **options: Any) -> Summary:
    """Write the same samples by way of one of SOURCES."""
    writer = DatasetWriter(path, **options)
    if source == "dataset":
        return writer.from_indexed_dataset(given.samples, chunksize=chunksize)
    if source == "iterable":
        return writer.from_iterable(iter(given.samples), chunksize=chunksize)
    if source == "length":
        return writer.from_iterable(iter(given.samples), len(given.samples), chunksize)
    if source == "lines":
        return writer.from_list(given.lines, given.of_line, chunksize)
    return writer.from_webdataset(given.shards, given.of_shard)


def files_in(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, by name."""
    return {name: (directory / name).read_bytes() for name in sorted(os.listdir(directory))}


def read_all(directory: Path) -> list[bytes]:
    """The samples of a dataset."""
    with FileReader(directory) as reader:
        return [bytes(sample) for sample in reader]


def left_behind(directory: Path) -> list[str]:
    """Names in a directory, but for that of a part directory with nothing in it but finished, whole shards.

    An end just before the dataset appears leaves the manifest there, too.
    """
    names = sorted(os.listdir(directory))
    if ".set.part" in names and os.listdir(directory / ".set.part" / "finished"):
        part = directory / ".set.part"
        assert sorted(os.listdir(part)) == ["finished", "ledger"]
        for path in (part / "finished").glob("*.ffr"):
            read_all(path)
        names.remove(".set.part")
    return names


def open_files() -> list[str]:
    """What every descriptor leads to."""
    gc.collect()
    return sorted(path for path in children.descriptors().values() if not path.startswith("/proc/"))

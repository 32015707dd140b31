"""Shards as they are at a source, and copies of them in a cache."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import builders
import numpy as np

from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.remote.cache.cache import Cache, CachedFile
from ffrecord.remote.tables import ShardFacts

URL = "https://host/set/shard-0.ffr"
PATIENCE = 30.0  # seconds for a copy to be made complete


class Source(NamedTuple):
    """A shard: its bytes, its samples, and what its manifest says of it."""

    data: bytes
    samples: list[bytes]
    size: int
    crc: int
    n: int
    data_start: int

    @property
    def tables(self) -> bytes:
        return self.data[: self.data_start]

    def in_cache(self, cache: Cache, url: str = URL) -> CachedFile:
        return cache.file(url, ShardFacts(self.n, self.size, self.crc))

    def give(self, file: CachedFile, local: Sequence[int] | None = None) -> None:
        """Store records as who fetched them does, all by default."""
        local = range(self.n) if local is None else local
        if file.needs_tables:
            file.store_tables(self.tables)
        file.store(np.array(local, np.int64), [np.frombuffer(self.samples[i], np.uint8) for i in local])

    def found(self, file: CachedFile) -> list[int]:
        """Which records the copy has; those must be right."""
        records = file.read(np.arange(self.n))
        for record, sample in zip(records, self.samples, strict=True):
            assert record is None or record.tobytes() == sample
        return [i for i, record in enumerate(records) if record is not None]


def source(place: Path, sizes: Sequence[int] = (100, 10, 5000, 33, 70_000, 1, 4096, 300), seed: int = 0) -> Source:
    """A shard of samples of these sizes; `place` is a file that is made for it."""
    samples = builders.records(sizes, seed)
    return of_file(builders.write_samples(place, samples), samples)


def of_file(path: str, samples: list[bytes]) -> Source:
    opened = OpenedFile(path, check=True)
    opened.close()
    return Source(Path(path).read_bytes(), samples, opened.size, opened.crc, opened.n, opened.data_start)


def whole(cache: Cache, file: CachedFile) -> str:
    """The path of the complete copy, waited for."""
    assert settled(cache, PATIENCE)
    path = file.path()
    assert path is not None
    return path


def names(directory: object) -> list[str]:
    """What is in a directory, by suffixes."""
    return sorted(Path(name).suffix for name in os.listdir(str(directory)))


def some(source: Source, cache: Cache, expected: list[int]) -> None:
    """The copy of the shard has these records."""
    assert source.found(source.in_cache(cache)) == expected


def nothing(source: Source, cache: Cache) -> None:
    some(source, cache, [])


def settled(cache: Cache, seconds: float) -> bool:
    """Wait until no copy is being made complete; whether that came about in time."""
    deadline = time.monotonic() + seconds
    while any(file.sealing for file in cache._files):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True

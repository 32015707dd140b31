"""Ways to write with and without safety: the same bytes by the same code, except for waiting for the disk."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from harness import Contestant
from write_data import Source, check_ffr, check_records, to_disk
from write_timing import settled
from write_ways import BUFFER, Way, check_plain, many

from ffrecord import DatasetWriter, FileReader, FileWriter

Write = Callable[[Path, Source], None]
WORKERS = 2
SHARD_SIZE = 32 << 20  # bytes: smaller than usual, since each shard is synced
FLUSH_SIZE = 64 << 20  # bytes between two flushes


@contextlib.contextmanager
def not_durable() -> Iterator[None]:
    """Return a context in which fsync does nothing, in forked processes too."""
    with mock.patch.object(os, "fsync", lambda fd: None):
        yield


def without(write: Write) -> Write:
    """Return the same way, not durable."""

    def unsafely(path: Path, source: Source) -> None:
        with not_durable():
            write(path, source)

    return unsafely


def flushing(path: Path, source: Source) -> None:
    """Write so that a kill loses at most FLUSH_SIZE bytes."""
    with FileWriter(path, source.n) as writer:
        since = 0
        for batch in source.batches:
            writer.write_many(batch)
            since += sum(map(len, batch))
            if since >= FLUSH_SIZE:
                writer.flush()
                since = 0


def plain(path: Path, source: Source, *, durable: bool) -> None:
    """Write the bytes of the records and nothing else."""
    with path.open("wb", buffering=BUFFER) as file:
        for record in source.records:
            file.write(record)
    if durable:
        to_disk(path)


def file_ways() -> list[Way]:
    """Return the ways to write one file with one thread."""
    return [
        Way("FileWriter", "ours", many, check_ffr),
        Way("FileWriter, flushed every 64 MiB", "ours", flushing, check_ffr),
        Way("FileWriter without fsync", "ours", without(many), check_ffr),
        Way("plain writes, fsync", "plain", partial(plain, durable=True), check_plain),
        Way("plain writes", "plain", partial(plain, durable=False), check_plain),
    ]


def dataset(path: Path, source: Source) -> None:
    DatasetWriter(path, num_workers=WORKERS, shard_size=SHARD_SIZE, start_method="fork").from_indexed_dataset(
        source.records
    )


def check_dataset(name: str, path: Path, source: Source) -> None:
    with FileReader(path) as reader:
        check_records(name, (np.asarray(record) for record in reader), source)


def dataset_ways() -> list[Way]:
    """Return the ways to write a dataset of shards with two workers."""
    return [
        Way("DatasetWriter", "ours", dataset, check_dataset),
        Way("DatasetWriter without fsync", "ours", without(dataset), check_dataset),
    ]


def dataset_contestant(way: Way, source: Source, directory: Path) -> Contestant:
    """Return a contestant; its output is compared in every round, and deleted."""
    path = directory / "dataset"

    def run() -> float:
        settled()
        start = time.perf_counter()
        way.write(path, source)
        seconds = time.perf_counter() - start
        try:
            way.check(way.name, path, source)
        finally:
            shutil.rmtree(path)
        return seconds

    def check() -> None:
        run()

    return Contestant(way.name, run, check)

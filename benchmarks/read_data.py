"""The same records in every contestant's format."""

import importlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import workloads

Ints = np.ndarray[Any, np.dtype[np.int64]]
Checksums = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True)
class Batch:
    """Indices, in both forms that contestants take: nobody pays for a conversion."""

    array: Ints
    listed: list[int]


@dataclass(frozen=True)
class Records:
    """The true records of a workload, whatever a file says.

    Attributes:
        payload: bytes of the records, back to back.
        starts: int64 [n + 1], start of each record in `payload`, and the end.
    """

    work: workloads.Reads
    payload: bytes
    starts: Ints

    @property
    def n(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[bytes]:
        return (self.payload[low:high] for low, high in pairwise(self.starts.tolist()))

    @cached_property
    def checksums(self) -> Checksums:
        return np.fromiter(map(zlib.crc32, self), np.uint32, self.n)

    def batches(self) -> list[Batch]:
        """Return batches that have every record once, in the workload's order."""
        order = np.arange(self.n)
        if self.work.order == "random":
            order = np.random.default_rng(self.work.seed + 1).permutation(self.n)
        parts = [order[at : at + self.work.batch] for at in range(0, self.n, self.work.batch)]
        return [Batch(part, part.tolist()) for part in parts]

    def size(self, batches: Sequence[Batch]) -> int:
        """Return the bytes of the records in these batches."""
        sizes = np.diff(self.starts)
        return int(sum(sizes[batch.array].sum() for batch in batches))


def make_records(work: workloads.Reads) -> Records:
    random = np.random.default_rng(work.seed)
    middle = np.log(work.mean) - workloads.SPREAD**2 / 2
    sizes = np.maximum(random.lognormal(middle, workloads.SPREAD, max(1, work.total // work.mean)), 1).astype(np.int64)
    return Records(work, random.bytes(int(sizes.sum())), np.concatenate([[0], np.cumsum(sizes)]))


@dataclass(frozen=True)
class Files:
    """The files of the records.

    Attributes:
        directory: directory with one file for each format whose package is installed.
        starts, checksums: of each record in `ffr`, for contestants that have no index; `starts` has the end too.
    """

    directory: Path
    starts: Ints
    checksums: Checksums

    @classmethod
    def of(cls, directory: Path, records: Records) -> "Files":
        return cls(directory, records.starts + 12 + 12 * records.n, records.checksums)

    def path(self, kind: str) -> Path:
        return self.directory / f"records.{kind}"

    @property
    def ffr(self) -> Path:
        return self.path("ffr")

    @property
    def largest(self) -> int:
        return int(np.diff(self.starts).max())

    @property
    def n(self) -> int:
        return len(self.checksums)

    def delete(self) -> None:
        for path in self.directory.glob("records.*"):
            path.unlink()


def write_file(path: Path, checksums: Checksums, starts: Ints, payload: bytes) -> None:
    """Write a file by docs/format.md, not by the measured package. starts: int64 [n + 1], counted from the first
    record.
    """
    n = len(checksums)
    offsets = starts[:-1] + 12 + 12 * n
    tables = np.int64(n).tobytes() + checksums.tobytes() + offsets.tobytes()
    with path.open("wb") as file:
        file.write(np.uint32(zlib.crc32(tables)).tobytes() + tables)
        file.write(payload)
    settle(path)


def settle(path: Path) -> None:
    """Write files back to disk: later writes would disturb measurements, and unwritten pages count as private
    memory.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_ffr(path: Path, records: Records) -> None:
    write_file(path, records.checksums, records.starts, records.payload)


def write_bytes(path: Path, samples: int, seed: int) -> None:
    """Write a file of samples of one byte each."""
    payload = np.random.default_rng(seed).integers(0, 256, samples, np.uint8)
    of_byte = np.array([zlib.crc32(bytes([value])) for value in range(256)], np.uint32)
    write_file(path, of_byte[payload], np.arange(samples + 1), payload.tobytes())


def key(index: int) -> bytes:
    return index.to_bytes(8, "big")


def write_lmdb(path: Path, records: Records) -> None:
    lmdb = importlib.import_module("lmdb")
    room = 2 * len(records.payload) + 100 * records.n + (16 << 20)
    with (
        lmdb.open(str(path), subdir=False, map_size=room, lock=False, sync=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for index, record in enumerate(records):
            transaction.put(key(index), record, append=True)


def write_array_record(path: Path, records: Records) -> None:
    module = importlib.import_module("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for record in records:
        writer.write(record)
    writer.close()


def write_bagz(path: Path, records: Records) -> None:
    bagz = importlib.import_module("bagz")
    with bagz.Writer(str(path), bagz.Writer.Options(compression=bagz.CompressionNone())) as writer:
        for record in records:
            writer.write(record)


WRITERS: dict[str, Callable[[Path, Records], None]] = {
    "lmdb": write_lmdb,
    "array_record": write_array_record,
    "bagz": write_bagz,
}


def make_files(directory: Path, records: Records) -> Files:
    """Write the files of all formats whose packages are installed."""
    files = Files.of(directory, records)
    write_ffr(files.ffr, records)
    for kind, write in WRITERS.items():
        with suppress(ModuleNotFoundError):
            write(files.path(kind), records)
            settle(files.path(kind))
    return files

"""The records for measuring writing, in every form that contestants take, and the expected contents of our file."""

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from harness import WrongAnswerError
from read_data import Records, make_records

PIECE = 8 << 20  # bytes compared at a time


@dataclass(frozen=True)
class Source:
    """The same records in all forms: nobody pays for a conversion.

    Attributes:
        work: workload that they are made from.
        truth: bytes back to back, and the start of each record.
        records: single records.
        batches: lists of `work.batch` records.
        packed: the same batches, each as uint8 [bytes] and int64 offsets [records + 1].
    """

    work: workloads.Writes
    truth: Records
    records: list[bytes]
    batches: list[list[bytes]]
    packed: list[tuple[Any, Any]]

    @property
    def n(self) -> int:
        return len(self.records)

    @property
    def size(self) -> int:
        return len(self.truth.payload)


def make_source(work: workloads.Writes) -> Source:
    truth = make_records(workloads.Reads(work.mean, work.batch, work.total, "sequential", seed=work.seed))
    records = list(truth)
    payload = np.frombuffer(truth.payload, np.uint8)
    batches, packed = [], []
    for at in range(0, truth.n, work.batch):
        bounds = truth.starts[at : at + work.batch + 1]
        batches.append(records[at : at + work.batch])
        packed.append((payload[bounds[0] : bounds[-1]], bounds - bounds[0]))
    return Source(work, truth, records, batches, packed)


def to_disk(path: Path) -> None:
    """Sync a file that a library leaves in the page cache, and its name."""
    for each in (path, path.parent):
        fd = os.open(each, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def require(right: bool, name: str, what: str) -> None:
    if not right:
        raise WrongAnswerError(f"{name}: {what}")


def check_ffr(name: str, path: Path, source: Source) -> None:
    """Check a file by docs/format.md, not by the measured package: header, tables, every byte of every record."""
    data = np.memmap(path, np.uint8, "r")
    n = int(data[4:12].view("<i8")[0])
    require(n == source.n, name, f"{n} records, expected {source.n}")
    tables = np.asarray(data[4 : 12 + 12 * n])
    require(zlib.crc32(tables.data) == int(data[:4].view("<u4")[0]), name, "the header's CRC-32 does not match")
    require(np.array_equal(tables[8 : 8 + 4 * n].view("<u4"), source.truth.checksums), name, "a wrong CRC-32")
    offsets = tables[8 + 4 * n :].view("<i8")
    require(bool(np.all(offsets == source.truth.starts[:-1] + offsets[0])), name, "wrong offsets")
    check_bytes(name, data[offsets[0] :], source)


def check_bytes(name: str, data: Any, source: Source) -> None:
    """Check uint8 [bytes]: the records back to back, and nothing else."""
    payload = np.frombuffer(source.truth.payload, np.uint8)
    require(len(data) == len(payload), name, f"{len(data)} bytes, expected {len(payload)}")
    for at in range(0, len(payload), PIECE):
        equal = data[at : at + PIECE] == payload[at : at + PIECE]
        require(bool(equal.all()), name, f"wrong bytes, the first at {at + int(np.argmin(equal))} of the records")


def check_records(name: str, found: Iterable[Any], source: Source) -> None:
    """Check one buffer after the other."""
    count = 0
    for record in found:
        require(count < source.n and bytes(record) == source.records[count], name, f"record {count} has other bytes")
        count += 1
    require(count == source.n, name, f"{count} records, expected {source.n}")

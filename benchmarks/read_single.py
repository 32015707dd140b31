"""One record at a time from a file in the page cache, checked: the cost of a call."""

import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import coldness
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, measure
from read_data import Files, Records, make_records, write_ffr

from ffrecord import FileReader

PYTHON = "os.pread, zlib.crc32"


@contextmanager
def made(directory: Path, work: workloads.Singles) -> Iterator[tuple[Files, Records]]:
    records = make_records(workloads.Reads(work.mean, 1, work.total, seed=work.seed))
    files = Files.of(directory, records)
    write_ffr(files.ffr, records)
    try:
        yield files, records
    finally:
        files.ffr.unlink()


def by_python(files: Files, stack: ExitStack) -> Callable[[int], Any]:
    """Return a function that reads and checks a record with two calls of Python, into new bytes."""
    starts, checksums = files.starts.tolist(), files.checksums.tolist()
    sizes = np.diff(files.starts).tolist()
    fd, pread, crc32 = stack.enter_context(files.ffr.open("rb")).fileno(), os.pread, zlib.crc32

    def read(index: int) -> bytes:
        data = pread(fd, sizes[index], starts[index])
        if crc32(data) != checksums[index]:
            raise WrongAnswerError(f"record {index} is damaged")
        return data

    return read


def by_reader(name: str, io: str, files: Files, stack: ExitStack) -> Callable[[int], Any]:
    reader = stack.enter_context(FileReader(files.ffr, io=io))
    return reader.read_one if name == "read_one" else reader.__getitem__


def measure_single(directory: Path, work: workloads.Singles, rounds: int) -> list[Measurement]:
    """Compare all answers, then measure the ways in turns, each over the same random records."""
    with made(directory, work) as (files, records), ExitStack() as stack:
        ways = {
            f"{name} {io}": by_reader(name, io, files, stack) for io in ("auto", "mmap") for name in ("read_one", "[i]")
        }
        ways[PYTHON] = by_python(files, stack)
        indices = np.random.default_rng(work.seed).integers(0, records.n, work.count)

        def contestant(name: str, read: Callable[[int], Any]) -> Contestant:
            def check() -> None:
                coldness.warm(files.ffr)
                starts = records.starts.tolist()
                for index in range(records.n):
                    if bytes(read(index)) != records.payload[starts[index] : starts[index + 1]]:
                        raise WrongAnswerError(f"{name}: record {index} of {work} has other bytes")

            def run() -> float:
                if coldness.resident(files.ffr) < 1:
                    coldness.warm(files.ffr)
                listed = indices.tolist()
                start = time.perf_counter()
                for index in listed:
                    read(index)
                return time.perf_counter() - start

            return Contestant(name, run, check)

        taken = measure([contestant(name, read) for name, read in ways.items()], rounds)
        size = int(np.diff(records.starts)[indices].sum())
        return [
            Measurement(
                name, work, taken[name], size, work.count, "hot", {"role": "original" if name == PYTHON else "ours"}
            )
            for name in ways
        ]

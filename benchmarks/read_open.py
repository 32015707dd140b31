"""Opening millions of samples: seconds, and private memory in separate processes."""

import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import read_memory
import workloads
from harness import Contestant, Measurement, WrongAnswerError, measure
from read_data import write_bytes

from ffrecord import FileReader

PROCESSES = 8
FORKED_ROUNDS = 3  # for memory, which varies less than time


@contextmanager
def made(directory: Path, work: workloads.Opens) -> Iterator[Path]:
    path = directory / "opened.ffr"
    write_bytes(path, work.samples, work.seed)
    try:
        yield path
    finally:
        path.unlink()


def opening(path: Path, check: bool) -> Contestant:
    def run() -> float:
        start = time.perf_counter()
        reader = FileReader(path, check)
        seconds = time.perf_counter() - start
        reader.close()
        return seconds

    def compare() -> None:
        data = np.memmap(path, np.uint8, "r")
        with FileReader(path, check) as reader:
            indices = np.random.default_rng(1).integers(0, reader.n, 1000)
            if reader.read_packed(indices)[0].tobytes() != data[12 + 12 * reader.n + indices].tobytes():
                raise WrongAnswerError(f"{path.name}: wrong bytes")

    return Contestant("open" if check else "open unchecked", run, compare)


def original(path: Path) -> Contestant:
    """Open as ffrecord 1.x does: read the tables into memory, and run zlib over them."""

    def run() -> float:
        start = time.perf_counter()
        with path.open("rb") as file:
            crc, n = struct.unpack("<I8s", file.read(12))
            tables = np.fromfile(file, np.uint8, 12 * int.from_bytes(n, "little"))
        if zlib.crc32(tables.data, zlib.crc32(n)) != crc:
            raise WrongAnswerError(f"{path.name}: the tables are damaged")
        return time.perf_counter() - start

    return Contestant("original, Python", run, lambda: None)


def measure_open(path: Path, work: workloads.Opens, rounds: int, with_memory: bool) -> list[Measurement]:
    contestants = [opening(path, True), opening(path, False), original(path)]
    found = []
    for name, taken in measure(contestants, rounds).items():
        details: dict[str, object] = {"role": "original" if name.startswith("original") else "ours"}
        if with_memory and details["role"] == "ours":
            details["memory"] = read_memory.ask("open", path, int(name == "open"))
        found.append(Measurement(name, work, taken, path.stat().st_size, work.samples, "hot", details))
    return found


def measure_forked(path: Path, work: workloads.Opens, rounds: int) -> Measurement:
    forked = workloads.Opens(work.samples, PROCESSES, work.seed)
    taken, memory = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        memory.append(read_memory.ask("forked", path, PROCESSES))
        taken.append(time.perf_counter() - start)
    details = {"role": "ours", "memory_of_each": memory}
    return Measurement("forked", forked, taken, path.stat().st_size, work.samples, "hot", details)

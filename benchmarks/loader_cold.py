"""A shuffled epoch from storage: the loader, beside the engine below it."""

import importlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import coldness
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, measure
from loader_ways import Sums
from waits import Waits

from ffrecord import DatasetWriter, FileReader
from ffrecord.order import Random

PAYLOAD = 16 << 20  # random bytes; each sample is a window of them
INDEX = 8  # bytes of the sample's number


class Windows:
    """Samples of random bytes, each with its number; they take little memory."""

    def __init__(self, work: workloads.ColdEpochs) -> None:
        self.size = work.mean - INDEX
        self.count = work.total // work.mean
        random = np.random.default_rng(work.seed)
        self.bytes = random.integers(0, 256, PAYLOAD + self.size, np.uint8)
        self.starts = random.integers(0, PAYLOAD, self.count)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        start = self.starts[index]
        return {"index": index, "data": self.bytes[start : start + self.size]}


@contextmanager
def made(directory: Path, work: workloads.ColdEpochs) -> Iterator[Path]:
    path = directory / "cold"
    DatasetWriter(path, num_workers=2, progress=False).from_indexed_dataset(Windows(work))
    try:
        yield path
    finally:
        shutil.rmtree(path)


Record = Callable[[Iterable[Any], Callable[[Any], object]], object]  # `Waits.record`, without its further arguments
Found = tuple[int, int]  # samples, and the sum of their numbers


def by_loader(path: Path, work: workloads.ColdEpochs, record: Record) -> Found:
    sums = Sums(lambda batch: batch["index"])
    loader = importlib.import_module("ffrecord.torch").Loader(path, work.batch, "random", seed=work.seed)
    record(loader, sums.add)
    return sums.found


def batches(reader: FileReader, work: workloads.ColdEpochs) -> Iterator[Any]:
    """Return the order of the loader, batch by batch."""
    for first in range(0, reader.n, work.batch):
        positions = np.arange(first, min(first + work.batch, reader.n))
        yield Random().indices(positions, reader.n, work.seed, 0)


def by_engine(path: Path, work: workloads.ColdEpochs, record: Record) -> Found:
    sums = Sums(lambda batch: batch[0].reshape(len(batch[1]) - 1, work.mean)[:, :INDEX].copy().view(np.int64))
    with FileReader(path) as reader:
        record(reader.iter_batches(batches(reader, work), packed=True), sums.add)
    return sums.found


def by_columns(path: Path, work: workloads.ColdEpochs, record: Record) -> Found:
    sums = Sums(lambda batch: batch[0].view(np.int64))
    slots = [(0, INDEX), (INDEX, work.mean - INDEX)]
    with FileReader(path) as reader:
        record(reader.iter_columns(batches(reader, work), work.mean, slots), sums.add)
    return sums.found


ENGINE = ("iter_batches", "iter_columns")
WAYS: dict[str, Callable[[Path, workloads.ColdEpochs, Record], Found]] = {
    "Loader": by_loader,
    "iter_batches": by_engine,
    "iter_columns": by_columns,
}


def cold(name: str, path: Path, work: workloads.ColdEpochs, waits: Waits) -> float:
    """Return the seconds of an epoch from an empty page cache, with opening and closing."""
    coldness.evict(sorted(path.glob("*.ffr")))
    coldness.have_memory(2 * work.total)
    return epoch(name, path, work, waits)


def epoch(name: str, path: Path, work: workloads.ColdEpochs, waits: Waits) -> float:
    """Return the seconds of an epoch, after checking that all samples were there."""
    begun = time.perf_counter_ns()
    count, total = WAYS[name](path, work, partial(waits.record, begun=begun))
    seconds = (time.perf_counter_ns() - begun) / 1e9
    expected = work.total // work.mean
    if (count, total) != (expected, expected * (expected - 1) // 2):
        raise WrongAnswerError(f"{name}: {count} samples, sum of their numbers {total}, expected {expected} samples")
    return seconds


def measure_cold(path: Path, work: workloads.ColdEpochs, rounds: int) -> list[Measurement]:
    """Measure in turns; each has run before, so that its imports are done."""
    contestants = [contestant(name, path, work) for name in WAYS]
    count = work.total // work.mean
    taken = measure(contestants, rounds)
    found = []
    for each in contestants:
        details = {"role": "limit" if each.name in ENGINE else "ours", **each.details}
        found.append(Measurement(each.name, work, taken[each.name], count * work.mean, count, "cold", details))
    return found


def contestant(name: str, path: Path, work: workloads.ColdEpochs) -> Contestant:
    most = -(-(work.total // work.mean) // work.batch)
    waits = Waits(most)

    def check() -> None:
        epoch(name, path, work, Waits(most))

    return Contestant(name, partial(cold, name, path, work, waits), check, waits)

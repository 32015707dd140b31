"""Measurements of ways to read, and the state of the page cache for each."""

import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import coldness
import fio
import numpy as np
from harness import Contestant, Measurement, WrongAnswerError, measure, take_turns
from read_data import Batch, Files, Records
from read_ways import Results, Way
from waits import Waits, consume

# One repetition, cached: long enough to time well, short enough that the contestants take turns often.
HOT_BYTES, HOT_RECORDS = 400_000_000, 100_000
FIO_SECONDS = 1.0


class Sizes:
    """A conversion of the time for some batches into that of a batch of mean size, so that rates compare byte for
    byte.
    """

    def __init__(self, records: Records, batches: Sequence[Batch]) -> None:
        self.upto = np.cumsum([records.size([batch]) for batch in batches])
        self.mean = float(self.upto[-1] / len(batches))
        self.count = records.n / len(batches)

    def of_mean(self, seconds: float, first: int, stop: int) -> float:
        return seconds * self.mean / float(self.upto[stop - 1] - (self.upto[first - 1] if first else 0))


def usable(ways: Iterable[Way], files: Files) -> list[Way]:
    """Return the ways whose files could be made."""
    found = []
    for way in ways:
        if files.path(way.kind).exists():
            found.append(way)
        else:
            print(f"{way.name}: {way.kind} is not installed, not measured", flush=True)
    return found


def hot_contestant(
    way: Way, results: Results, files: Files, records: Records, batches: Sequence[Batch], sizes: Sizes
) -> Contestant:
    """Return a contestant that reads the next part of the epoch in each turn; all have the same parts in the same
    turns.
    """
    at_once = len(batches)
    if records.work.order == "random":
        most = min(HOT_BYTES // round(sizes.mean), HOT_RECORDS // round(sizes.count))
        at_once = min(at_once, max(1, most))
    firsts = itertools.cycle(range(0, len(batches) - at_once + 1, at_once))
    waits = Waits(at_once)

    def check() -> None:
        if way.open_to_check:
            way.check_opened(files, records, batches)
            consume(results(batches))  # fills the page tables of a mapping
        else:
            way.check(results, records, batches)

    def run() -> float:
        # Some machines reclaim pages that were unused for a while, even with free memory.
        if coldness.resident(files.path(way.kind)) < 1:
            coldness.warm(files.path(way.kind))
        first = next(firsts)
        part = batches[first : first + at_once]
        return sizes.of_mean(waits.timed(lambda: results(part)), first, first + at_once)

    return Contestant(way.name, run, check, waits)


def measure_hot(ways: Sequence[Way], files: Files, records: Records, rounds: int) -> list[Measurement]:
    batches = records.batches()
    sizes = Sizes(records, batches)
    with ExitStack() as stack:
        opened = [(way, stack.enter_context(way.open(files))) for way in ways]
        contestants = [hot_contestant(way, results, files, records, batches, sizes) for way, results in opened]
        taken = measure(contestants, rounds)
        # Each file was warmed before its rounds; this checks that there is memory for it at all.
        require_hot({files.path(way.kind) for way in ways})
    return measurements(ways, contestants, records, sizes, taken, "hot")


def require_hot(paths: Iterable[Path]) -> None:
    for path in paths:
        if (share := coldness.resident(path)) < 0.9:
            raise WrongAnswerError(f"{path.name}: only {share:.1%} of it is in the page cache, this was not hot")


@dataclass(frozen=True)
class Cold:
    """Ways to read a file that is not in the page cache, and the storage itself.

    Attributes:
        limit: seconds after which a contestant is stopped in its epoch.
        jobs: jobs of fio.
    """

    ways: Sequence[Way]
    files: Files
    records: Records
    limit: float
    jobs: Sequence[fio.Job] = ()

    def check(self) -> None:
        """Compare all answers, cached or not."""
        batches = self.records.batches()
        for way in self.ways:
            way.check_opened(self.files, self.records, batches)

    def take_turns(self, rounds: int) -> list[Measurement]:
        """Measure contestants whose answers were compared."""
        batches = self.records.batches()
        sizes = Sizes(self.records, batches)
        readers = [cold_contestant(self, way, batches, sizes) for way in self.ways]
        limits = [fio_contestant(job, self.files.ffr, min(FIO_SECONDS, self.limit)) for job in self.jobs]
        taken = take_turns([*readers, *limits], rounds)
        found = measurements(self.ways, readers, self.records, sizes, taken, "cold")
        return [*found, *(fio_measurement(job, self.records, taken[job.name]) for job in self.jobs)]

    def measure(self, rounds: int) -> list[Measurement]:
        self.check()
        return self.take_turns(rounds)


def cold_contestant(cold: Cold, way: Way, batches: Sequence[Batch], sizes: Sizes) -> Contestant:
    """Return a contestant that opens and reads to the end of the epoch, or for `cold.limit` seconds, each time
    uncached.

    Opening counts: some packages read then what others read with the records.
    """
    path, waits = cold.files.path(way.kind), Waits(len(batches))

    def run() -> float:
        coldness.evict([path])
        if cold.records.work.memory is None:
            coldness.have_memory(2 * path.stat().st_size)
        begun = time.perf_counter_ns()
        with way.open(cold.files) as results:
            seconds = waits.record(results(batches), begun=begun, limit=cold.limit)
        return sizes.of_mean(seconds, 0, len(waits.rounds[-1]))

    return Contestant(way.name, run, lambda: None, waits)


def fio_contestant(job: fio.Job, path: Path, seconds: float) -> Contestant:
    return Contestant(job.name, lambda: job.run(path, seconds), lambda: None)


def measurements(
    ways: Sequence[Way],
    contestants: Sequence[Contestant],
    records: Records,
    sizes: Sizes,
    taken: dict[str, list[float]],
    cache: str,
) -> list[Measurement]:
    """Return the measurements of ways, which are the contestants in the same order."""
    size, count = round(sizes.mean), round(sizes.count)
    return [
        Measurement(
            way.name, records.work, taken[way.name], size, count, cache, {"role": way.role, **contestant.details}
        )
        for way, contestant in zip(ways, contestants, strict=True)
    ]


def fio_measurement(job: fio.Job, records: Records, taken: list[float]) -> Measurement:
    return Measurement(job.name, records.work, taken, job.size, 1, "cold", {"role": "limit"})

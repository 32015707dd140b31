"""Positions of an epoch → samples, by each order; beside numpy's shuffle of everything, where it fits into memory."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import environment
import numpy as np
import workloads
from harness import Contestant, Measurement, Report, WrongAnswerError, arguments, measure, table
from human import three

from ffrecord.order import Block, Order, Random, Sequential

ORDERS: dict[str, Order] = {
    "random-1": Random(),
    "block-1": Block(),
    "block-1, 8 lanes": Block(lanes=8),
    "sequential-1": Sequential(),
}
NUMPY = "numpy: permutation"
SMALL = 10_001

Indices = np.ndarray[Any, np.dtype[np.int64]]


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a timed run by the thread's own CPU clock: nothing here waits for anything but the CPU."""

    def run() -> float:
        start = time.thread_time()
        work()
        return time.thread_time() - start

    return run


def walk(order: Order, work: workloads.Positions) -> None:
    """Return the timed work: consecutive batches from the middle of an epoch on."""
    first = (work.n - work.count) // 2
    for start in range(first, first + work.count, work.batch):
        order.indices(np.arange(start, start + work.batch), work.n, work.seed, 0)


def expect_every_sample(name: str, found: Indices) -> None:
    if not np.array_equal(np.sort(found), np.arange(len(found))):
        raise WrongAnswerError(f"{name}: not every one of {len(found)} samples once")


def check(name: str, order: Order, work: workloads.Positions) -> None:
    """Check that a small epoch has every sample, and that a large one has none twice, whether requested together or
    alone.
    """
    expect_every_sample(name, order.indices(np.arange(SMALL), SMALL, work.seed, 0))
    positions = np.arange(work.n - 1000, work.n)
    together = order.indices(positions, work.n, work.seed, 0)
    alone = [int(order.indices([position], work.n, work.seed, 0)[0]) for position in positions.tolist()]
    if together.tolist() != alone or len(set(alone)) != len(alone) or not 0 <= min(alone) <= max(alone) < work.n:
        raise WrongAnswerError(f"{name}: other samples together than one by one, or some twice")


def contestants(work: workloads.Positions) -> list[Contestant]:
    ours = [
        Contestant(name, timed(partial(walk, order, work)), partial(check, name, order, work))
        for name, order in ORDERS.items()
    ]
    if work.n > work.count:
        return ours
    shuffle: Callable[[], Indices] = partial(np.random.default_rng(work.seed).permutation, work.n)
    return [*ours, Contestant(NUMPY, timed(shuffle), lambda: expect_every_sample(NUMPY, shuffle()))]


def cell(measurement: Measurement | None) -> str:
    """Return median and spread, in million samples/s."""
    if measurement is None:
        return ""
    low, high = (measurement.count / seconds / 1e6 for seconds in (max(measurement.seconds), min(measurement.seconds)))
    return f"{three(measurement.count / measurement.median / 1e6)} ({three(low)}..{three(high)})"


def main() -> None:
    options = arguments(__doc__)
    report = Report("order", {"versions": environment.versions(), "fs": None}, options.out)
    works = workloads.SMOKE_POSITIONS if options.smoke else workloads.POSITIONS
    rows = []
    for work in works:
        found: dict[str, Measurement] = {}
        for name, taken in measure(contestants(work), options.rounds).items():
            count = work.n if name == NUMPY else work.count
            found[name] = Measurement(name, work, taken, 8 * count, count)
            report.add(found[name])
        rows.append([f"{work.n:,} by {work.batch:,}", *(cell(found.get(name)) for name in [*ORDERS, NUMPY])])
    print(report.heading(), table(["million/s, median (min..max)", *ORDERS, NUMPY], rows), sep="\n")


if __name__ == "__main__":
    main()

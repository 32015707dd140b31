"""Figures of reading with their targets, from the measurements of one run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import workloads
from harness import Measurement, table

MEANS = [work.mean for work in workloads.READS]
MIB = workloads.MIB


@dataclass(frozen=True)
class Figure:
    """One comparison.

    Attributes:
        about: description of both sides.
        values: one value for each round.
        target: value that the median must reach.
        at_most: whether the target is an upper bound.
    """

    about: str
    values: Sequence[float]
    target: float | None
    at_most: bool = False
    unit: str = ""

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "reached" if (self.value <= self.target if self.at_most else self.value >= self.target) else "MISSED"

    def row(self) -> list[str]:
        low, high = min(self.values), max(self.values)
        target = "" if self.target is None else f"{'<=' if self.at_most else '>='} {self.target:g}{self.unit}"
        return [self.about, f"{self.value:.2f}{self.unit} ({low:.2f}..{high:.2f})", target, self.verdict]


class Group:
    """All contestants of one workload and state of the page cache."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self.of = {m.contestant: m for m in measurements}

    def best(self, role: str, names: Sequence[str] = ()) -> Measurement | None:
        """Return the fastest of a role, or of some names, in bytes per second."""
        found = [m for m in self.of.values() if (m.contestant in names if names else m.details.get("role") == role)]
        return max(found, key=lambda m: m.gigabytes_per_second, default=None)

    def named(self, *names: str) -> Measurement | None:
        return self.best("", names)


def groups(measurements: Iterable[Measurement]) -> dict[tuple[str, workloads.Reads], Group]:
    found: dict[tuple[str, workloads.Reads], list[Measurement]] = {}
    for m in measurements:
        if isinstance(m.workload, workloads.Reads):
            found.setdefault((m.cache, m.workload), []).append(m)
    return {where: Group(of) for where, of in found.items()}


def size_name(mean: int) -> str:
    return {256: "256 B", 4096: "4 KiB", 3_000: "3 kB", 30_000: "30 kB", 110_000: "110 kB", 4_000_000: "4 MB"}.get(
        mean, f"{mean} B"
    )


def ratio(
    where: str,
    ours: Measurement | None,
    other: Measurement | None,
    target: float | None,
    by: Callable[[Measurement], int] = lambda m: m.size,
) -> list[Figure]:
    """Return how many times as fast, by bytes or by reads, in each round; nothing unless both were measured."""
    if ours is None or other is None or ours is other:
        return []
    factor = by(ours) / by(other)
    values = [factor * theirs / own for own, theirs in zip(ours.seconds, other.seconds, strict=True)]
    return [Figure(f"{where}: {ours.contestant} / {other.contestant}", values, target)]


def of_size(targets: Sequence[float | None], mean: int) -> float | None:
    return dict(zip(MEANS, targets, strict=True)).get(mean)


def hot_figures(group: Group, mean: int) -> list[Figure]:
    where, peer, original = f"cached {size_name(mean)}", group.best("peer"), group.best("original")
    mapped = group.named("read mmap", "read_packed mmap")
    unchecked = group.named("read auto unchecked", "read mmap unchecked")
    return [
        *ratio(where, group.named("read auto"), original, of_size([2, 2, 4, 3], mean)),
        *ratio(where, group.named("read auto"), peer, of_size([1.5, 1.3, 0.9, None], mean)),
        *ratio(where, group.named("read mmap"), peer, of_size([None, None, None, 1.3], mean)),
        *ratio(where, group.named("read auto unchecked"), peer, None),
        *ratio(f"{where} (mmap unchecked: views that nobody touched)", unchecked, peer, 1),
        *ratio(where, group.named("read_packed auto"), group.named("C loop, pread"), 0.85),
        *ratio(where, group.named("read_packed out auto"), group.named("C loop, pread"), None),
        *ratio(where, mapped, group.named("C loop, mapping"), 0.85),
        *ratio(where, group.named("read_packed auto, 2 threads"), group.named("read_packed auto, 1 thread"), None),
        *ratio(where, group.named("read auto"), group.named("read pread", "read direct"), 0.95),
    ]


def fio_of(group: Group, start: str = "fio ") -> Measurement | None:
    return next((m for name, m in group.of.items() if name.startswith(start)), None)


def cold_figures(group: Group, work: workloads.Reads) -> list[Figure]:
    where = f"cold {size_name(work.mean)}" + (f", {work.memory // MIB} MiB of memory" if work.memory else "")
    by = (lambda m: m.count) if work.mean <= 4096 else (lambda m: m.size)
    target = None if work.mean < 4096 else 0.9
    pinned = group.named("read pread", "read direct")
    return [
        *ratio(where, group.named("read auto"), fio_of(group), target, by),
        *ratio(where, group.named("read auto"), fio_of(group, "fio, "), target, by),
        *ratio(where, group.named("iter_batches auto", "iter_batches direct"), fio_of(group), target, by),
        *ratio(where, group.named("read auto"), group.best("peer"), 1),
        *ratio(where, group.named("read auto"), pinned, 0.95 if work.memory else None),
    ]


def sequential_figures(group: Group, cache: str, mean: int) -> list[Figure]:
    where, ours = (
        f"sequential, {'cold' if cache == 'cold' else 'cached'} {size_name(mean)}",
        group.named("iteration auto"),
    )
    if cache == "cold":
        against = [*ratio(where, ours, fio_of(group), 0.9)]
    else:
        floor = 0.5 if mean < 1024 else None
        against = [
            *ratio(where, ours, group.named("C loop, pread"), 0.8),
            *ratio(where, ours, group.named("C loop, ranges"), None),
            *ratio(where, group.named("iteration auto, dropped"), group.named("C loop, ranges"), floor),
        ]
    return [*against, *ratio(where, ours, group.best("peer"), None)]


def settling_figures(measurements: Iterable[Measurement]) -> list[Figure]:
    found = []
    for m in measurements:
        if isinstance(m.workload, workloads.Settling):
            where = f"auto after the file was {m.workload.change}, {size_name(m.workload.reads.mean)}"
            level = [theirs / own for own, theirs in zip(m.seconds, m.details["level_seconds"], strict=True)]
            found.append(Figure(f"{where}: batches to settle", m.details["batches_to_settle"], 20, at_most=True))
            found.append(Figure(f"{where}: settled / better pinned mode", level, 0.95))
    return found


def start_figures(measurements: Iterable[Measurement]) -> list[Figure]:
    """Return the rate of auto over the better pinned mode of the same round, and the longest waits for a batch."""
    starts: dict[workloads.Start, dict[str, Measurement]] = {}
    for m in measurements:
        if isinstance(m.workload, workloads.Start):
            starts.setdefault(m.workload, {})[m.contestant] = m
    found = []
    for work, of in starts.items():
        where = f"first {work.batches} batches, cold {size_name(work.reads.mean)}"
        auto, pread, direct = (of[f"read {io}"] for io in ("auto", "pread", "direct"))
        rounds = zip(auto.seconds, pread.seconds, direct.seconds, strict=True)
        found.append(Figure(f"{where}: auto / better pinned mode", [min(b, c) / a for a, b, c in rounds], 0.9))
        waits = [1000 * seconds for seconds in auto.details["longest_wait"]]
        found.append(Figure(f"{where}: longest wait of auto", waits, None, at_most=True, unit=" ms"))
    return found


def single_figures(measurements: Iterable[Measurement]) -> list[Figure]:
    """Return the time of a record read alone, over that of two calls of Python."""
    of: dict[workloads.Singles, list[Measurement]] = {}
    for m in measurements:
        if isinstance(m.workload, workloads.Singles):
            of.setdefault(m.workload, []).append(m)
    found = []
    for work, found_of in of.items():
        python = next(m for m in found_of if m.details["role"] == "original")
        for m in found_of:
            if m is not python:
                about = f"one record of {size_name(work.mean)}, cached: time of {m.contestant} / {python.contestant}"
                values = [own / theirs for own, theirs in zip(m.seconds, python.seconds, strict=True)]
                found.append(Figure(about, values, 0.6, at_most=True))
    return found


def open_figures(measurements: Iterable[Measurement]) -> list[Figure]:
    """Return the figures of the largest number of samples."""
    opens = [m for m in measurements if isinstance(m.workload, workloads.Opens)]
    largest = max((m.workload.samples for m in opens), default=0)
    of = {m.contestant: m for m in opens if m.workload.samples == largest and not m.workload.processes}
    found = []
    for name, most in (("open", 40.0), ("open unchecked", 1.0), ("original, Python", None)):
        if name in of:
            taken = [1000 * seconds for seconds in of[name].seconds]
            found.append(Figure(f"{name}, {largest:,} samples", taken, most, at_most=True, unit=" ms"))
        if name in of and "memory" in of[name].details:
            memory = of[name].details["memory"]
            about = f"{name}, {largest:,} samples: private memory"
            found.append(Figure(about, [memory["private"] / 1e6], 10, at_most=True, unit=" MB"))
            found.append(Figure(f"{about} that is dirty", [memory["dirty"] / 1e6], None, unit=" MB"))
    return found + forked_figures(opens)


def forked_figures(opens: Iterable[Measurement]) -> list[Figure]:
    """Return the additional memory of a forked reader for many samples over few."""
    forked = sorted((m for m in opens if m.workload.processes), key=lambda m: m.workload.samples)
    if len(forked) < 2:
        return []
    few, many = forked[0], forked[-1]
    about = f"{many.workload.processes} forked readers, {many.workload.samples:,} samples less {few.workload.samples:,}"
    found = []
    for what, target in (("dirty", 1.0), ("private", None)):
        pairs = zip(few.details["memory_of_each"], many.details["memory_of_each"], strict=True)
        values = [(larger[what] - smaller[what]) / 1e6 for smaller, larger in pairs]
        found.append(Figure(f"{about}: {what} memory of each", values, target, at_most=True, unit=" MB"))
    return found


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    found = []
    for (cache, work), group in groups(measurements).items():
        if work.order == "sequential":
            found += sequential_figures(group, cache, work.mean)
        elif cache == "cold":
            found += cold_figures(group, work)
        else:
            found += hot_figures(group, work.mean)
    found += single_figures(measurements)
    return found + settling_figures(measurements) + start_figures(measurements) + open_figures(measurements)


def figure_table(found: Sequence[Figure]) -> str:
    return table(["figure", "median (min..max)", "target", ""], [figure.row() for figure in found])

"""Figures of writing with their targets, from the measurements of one run."""

from collections.abc import Sequence
from dataclasses import replace

import workloads
from harness import Measurement
from read_figures import Figure, Group, figure_table, ratio, size_name

MB = 1e6
BESIDE = "reading the files while fio writes as much"
MORE = 8  # workers; most of them wait for a file
READING, PACKING, PACKING_MORE, CONVERTING = (
    "reading the files",
    "DatasetWriter",
    f"DatasetWriter, {MORE} workers",
    "convert",
)
SCRIPT = ", whole script"  # suffix of names of ways timed from the start of their process
MEMORY_SLACK = 1.0  # MB: difference between two equal runs
TABLES = 12  # bytes of the parent's memory for each sample of an open shard
WAITING = 2  # shards: one being finished and one waiting; the smallest run has only two shards, so it lacks them

__all__ = ["figure_table", "figures", "groups", "size_name"]


def groups(measurements: Sequence[Measurement]) -> dict[tuple[str, object], Group]:
    """Return measurements made together, by state of the page cache and workload."""
    found: dict[tuple[str, object], list[Measurement]] = {}
    for m in measurements:
        found.setdefault((m.cache, m.workload), []).append(m)
    return {where: Group(of) for where, of in found.items()}


def fastest(*measured: Measurement | None) -> Measurement | None:
    return max((m for m in measured if m), key=lambda m: m.gigabytes_per_second, default=None)


def file_figures(group: Group, mean: int) -> list[Figure]:
    """Return the figures of one file, written by one thread."""
    where, one, many = f"{size_name(mean)}", group.named("write_one"), group.named("write_many")
    store, plain, fio = group.best("peer"), group.named("plain writes"), group.best("limit")
    others = fastest(group.best("original"), store, plain)
    if mean <= 256:
        return [
            *ratio(where, one, group.named("original, Python loop"), 4),
            *ratio(where, one, group.named("original, C loop"), None),
            *ratio(where, one, store, 1),
            *ratio(where, one, plain, 0.8),
            *ratio(where, many, store, 1),
            *ratio(where, many, plain, 1),
            *ratio(where, group.named("write_packed"), plain, None),
        ]
    if mean <= 4096:
        return [*ratio(where, one, others, 1.3), *ratio(where, many, others, None), *ratio(where, one, fio, None)]
    return [
        *ratio(where, one, others, 2),
        *ratio(f"{where}, what direct writes allow", fio, others, None),
        *ratio(where, one, fio, 0.8),
        *ratio(where, many, fio, None),
    ]


def returned(measurement: Measurement) -> Measurement:
    """Return the same, timed until the package returned, which may be before the data is on the disk."""
    name = f"{measurement.contestant} until it returns"
    return replace(measurement, contestant=name, seconds=measurement.details["returned_seconds"])


def pack_figures(group: Group, work: workloads.Packs) -> list[Figure]:
    """Return figures against the fastest way of each package: as a script, and without its imports."""
    where, found = f"{work.samples:,} images, {work.workers} workers", []
    scripts = [m for m in group.of.values() if m.contestant.endswith(SCRIPT)]
    others = [m for m in group.of.values() if m not in scripts]
    for package, target in (("ffcv", 10), ("mosaicml-streaming", 6), ("litdata", 6)):
        found += ratio(where, group.named(f"DatasetWriter{SCRIPT}"), fastest(*of_package(scripts, package)), target)
    for package, target in (("ffcv", 10), ("mosaicml-streaming", 6), ("litdata", 6)):
        ours, best = group.named("DatasetWriter"), fastest(*of_package(others, package))
        found += ratio(where, ours, best, target)
        found += ratio(f"{where}, what the disk allows", group.best("limit"), best, None)
        if ours and best:
            found += ratio(where, returned(ours), returned(best), None)
    return found + ratio(where, group.named("DatasetWriter"), group.best("limit"), None)


def of_package(measurements: Sequence[Measurement], package: str) -> list[Measurement]:
    return [m for m in measurements if m.details.get("package") == package]


def picture_figures(group: Group, cache: str, work: workloads.Pictures) -> list[Figure]:
    """Return figures of seconds: how much longer than reading alone."""
    reading = group.named(READING)
    state = "cold" if cache == "cold" else "cached"
    about = f"{work.files:,} JPEG files, {state}: time of %s / time that {work.workers} processes take to read them"
    found = []
    # The last one is the limit of the disk.
    for name, most in ((PACKING, 1.1), (PACKING_MORE, None), (CONVERTING, 1.1), (BESIDE, None)):
        way = group.named(name)
        if reading is not None and way is not None:
            values = [own / theirs for own, theirs in zip(way.seconds, reading.seconds, strict=True)]
            found.append(Figure(about % name, values, most, at_most=True))
    return found


def growth_figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return the additional memory of each number of samples over the smallest, with shards of the same size.

    The parent has tables of the open shards.
    """
    measured = [m for m in measurements if isinstance(m.workload, workloads.Growth)]
    found = []
    for few, more in zip(measured[:1] * len(measured), measured[1:], strict=False):
        tables = TABLES * WAITING * more.workload.per_shard / MB
        for who, slack in (("parent", MEMORY_SLACK + tables), ("worker", MEMORY_SLACK)):
            pairs = zip(few.details[f"{who}_peak"], more.details[f"{who}_peak"], strict=True)
            about = f"{more.workload.samples:,} samples less {few.workload.samples:,}: private memory of "
            about += "the parent" if who == "parent" else "a worker"
            values = [(larger - smaller) / MB for smaller, larger in pairs]
            found.append(Figure(about, values, slack, at_most=True, unit=" MB"))
    return found


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    found = []
    for (cache, work), group in groups(measurements).items():
        if isinstance(work, workloads.Writes):
            found += file_figures(group, work.mean)
        elif isinstance(work, workloads.Packs):
            found += pack_figures(group, work)
        elif isinstance(work, workloads.Pictures):
            found += picture_figures(group, cache, work)
    return found + growth_figures(measurements)

"""Figures of the command with their targets, from the measurements of one run."""

from collections.abc import Sequence

import workloads
from harness import Measurement
from read_figures import Figure, Group, ratio, size_name
from write_figures import groups

MOST_MS = {"import ffrecord": 60.0, "ffrecord info": 300.0, "ffrecord view": 500.0, "ffrecord view, in Chromium": 500.0}
CACHED_LEAST, CACHED_MEAN = 10.0, 100_000  # GB/s of one CPU, for records of so many bytes and more
COLD_LEAST = 0.9

__all__ = ["describe", "figures", "groups"]


def describe(work: object) -> str:
    if isinstance(work, workloads.Verified):
        return f"{size_name(work.mean)}, {work.total / 1e9:.3g} GB"
    assert isinstance(work, workloads.Commands)
    if work.does == "import":
        return "importing the package"
    return f"{work.does} of {work.samples:,} samples in {work.shards:,} file{'s' if work.shards != 1 else ''}"


def start_figures(group: Group, work: workloads.Commands) -> list[Figure]:
    """Return the figures of whole processes, including Python's own start."""
    where = "" if work.does == "import" else f", {work.samples:,} samples, {work.shards:,} shards"
    if work.does == "view":
        where = f", {work.samples:,} samples: first page"
    return [
        Figure(f"{name}{where}", [1000 * each for each in m.seconds], MOST_MS[name], at_most=True, unit=" ms")
        for name, m in group.of.items()
        if name in MOST_MS
    ]


def cached_figures(group: Group, mean: int) -> list[Figure]:
    ours, where = group.named("verify, 1 CPU"), f"verify, cached {size_name(mean)}"
    if ours is None:
        return []
    rates = [ours.size / seconds / 1e9 for seconds in ours.seconds]
    return [
        Figure(f"{where}, 1 CPU", rates, CACHED_LEAST if mean >= CACHED_MEAN else None, unit=" GB/s"),
        *ratio(where, ours, group.named("CRC-32 of memory"), None),
        *ratio(where, ours, group.named("CRC-32 of a mapping"), None),
    ]


def cold_figures(group: Group, mean: int) -> list[Figure]:
    where = f"cold {size_name(mean)}"
    return [
        *ratio(where, group.named("verify"), group.best("limit"), COLD_LEAST),
        *ratio(where, group.named("verify, the whole process"), group.best("limit"), None),
        *ratio(where, group.named("verify"), group.named("plain reads"), None),
    ]


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    found: list[Figure] = []
    for (cache, work), group in groups(measurements).items():
        if isinstance(work, workloads.Commands):
            found += start_figures(group, work)
        elif isinstance(work, workloads.Verified):
            found += (cold_figures if cache == "cold" else cached_figures)(group, work.mean)
    return found

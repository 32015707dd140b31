"""Figures of the DLIO part, from the measurements of one run."""

from collections.abc import Sequence
from statistics import median

import workloads
from harness import Measurement
from human import three
from read_figures import Figure, ratio
from write_figures import groups

OURS = "ffrecord"
HEADER = ["", "utilization", "of the whole epoch", "samples/s", "GB/s"]


def describe(work: workloads.Emulated) -> str:
    size = f"{three(work.mean / 1e6)} MB" if work.mean >= 1e6 else f"{three(work.mean / 1e3)} kB"
    return (
        f"{work.definition}, {work.files:,} files of {work.samples:,} x {size}, "
        f"batches of {work.batch} in {1000 * work.compute:.3g} ms"
    )


def whole(m: Measurement) -> list[float]:
    """Return the share of each epoch in which the accelerator was busy, percent, the first batch included."""
    return [100 * m.details["steps"] * m.workload.compute / seconds for seconds in m.seconds]


def rows(measured: Sequence[Measurement]) -> list[list[str]]:
    """Return the header of a table, and a row for each contestant, the busiest accelerator first."""
    found = [HEADER]
    for m in sorted(measured, key=lambda m: m.median):
        low, high = (m.count / seconds for seconds in (max(m.seconds), min(m.seconds)))
        rate = f"{m.count / m.median:,.1f} ({low:,.1f}–{high:,.1f})"
        busy = [percent(m.details["utilization"]), percent(whole(m))]
        found.append([m.contestant, *busy, rate, three(m.gigabytes_per_second)])
    return found


def percent(values: Sequence[float]) -> str:
    return f"{median(values):.1f} % ({min(values):.1f}–{max(values):.1f})"


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return how many times as fast our epochs are."""
    found: list[Figure] = []
    for (_, work), group in groups(measurements).items():
        if isinstance(work, workloads.Emulated):
            for name, other in group.of.items():
                if name != OURS:
                    found += ratio(describe(work), group.named(OURS), other, None)
    return found

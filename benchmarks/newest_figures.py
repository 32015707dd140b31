"""Figures of the newest packages, from the measurements of one run: of each, the faster setting."""

from collections.abc import Iterable, Sequence
from typing import Any

import workloads
from harness import Measurement
from human import duration, three
from read_figures import Figure, ratio
from write_figures import groups

KINDS = (workloads.Gathers, workloads.Shuffles, workloads.CropsBeside, workloads.Resumes)


def describe(work: Any) -> str:
    """Describe a workload in a few words."""
    if isinstance(work, workloads.Resumes):
        return f"{work.samples:,} images, first batch of {work.batch} after half an epoch"
    if isinstance(work, workloads.CropsBeside):
        return f"{work.files:,} photographs, random crops of {work.side}, batches of {work.batch}"
    by = "by index" if isinstance(work, workloads.Gathers) else "shuffled epochs"
    return f"{work.samples:,} images of 32 x 32 x 3, batches of {work.batch}, {by}"


def label_of(m: Measurement) -> str:
    """Return the name of a contestant without its number of workers."""
    return m.contestant.removesuffix(", no workers").removesuffix(", 2 workers")


def best_settings(measured: Iterable[Measurement]) -> list[Measurement]:
    """Return of each contestant the setting that was faster, the fastest first."""
    best: dict[str, Measurement] = {}
    for m in measured:
        label = label_of(m)
        if label not in best or m.median < best[label].median:
            best[label] = m
    return sorted(best.values(), key=lambda m: m.median)


def other_settings(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return the settings that were slower."""
    best = best_settings(measured)
    return sorted((m for m in measured if m not in best), key=lambda m: m.median)


def ours(measured: Iterable[Measurement]) -> Measurement | None:
    """Return the fastest of our ways."""
    return next((m for m in best_settings(measured) if m.details["role"] == "ours"), None)


def rows(measured: Sequence[Measurement]) -> list[list[str]]:
    """Return the header of a table, and a row for the faster setting of each, the fastest first."""
    if isinstance(measured[0].workload, workloads.Resumes):
        return resume_rows(measured)
    found, own = [["", "samples/s", "GB/s", "ffrecord / it"]], ours(measured)
    for m in best_settings(measured):
        low, high = (m.count / seconds for seconds in (max(m.seconds), min(m.seconds)))
        times = "" if own is None or m.details["role"] == "ours" else three(m.median / own.median)
        rate = f"{m.count / m.median:,.0f} ({low:,.0f}–{high:,.0f})"
        found.append([m.contestant, rate, three(m.gigabytes_per_second), times])
    return found


def resume_rows(measured: Sequence[Measurement]) -> list[list[str]]:
    found = [["", "first batch", "the right one", "samples of the epoch twice", "never"]]
    for m in best_settings(measured):
        taken = f"{duration(m.median)} ({duration(min(m.seconds))}–{duration(max(m.seconds))})"
        right = "yes" if all(m.details["right"]) else f"{sum(m.details['right'])} of {len(m.details['right'])}"
        found.append([m.contestant, taken, right, f"{m.details['twice']:,}", f"{m.details['never']:,}"])
    return found


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """Return how many times as fast our fastest way is, against each other package."""
    found: list[Figure] = []
    for (_, work), group in groups(measurements).items():
        if isinstance(work, KINDS):
            own = ours(group.of.values())
            for m in best_settings(group.of.values()):
                if m.details["role"] == "peer":
                    found += ratio(short(work), own, m, None)
    return found


def short(work: Any) -> str:
    names = ("images by index", "images beside the newest", "photographs beside the newest", "resumed")
    return dict(zip(KINDS, names, strict=True))[type(work)]

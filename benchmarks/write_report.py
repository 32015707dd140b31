"""Make benchmarks/tables/writing.md: `report.py` calls it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import workloads
from harness import Measurement
from human import three
from read_figures import Group
from report_tables import GRAY, LIMIT, OURS, PEER, Style, about, figure_rows, markdown, plot, throughput
from write_figures import SCRIPT, figures, groups

TITLE, FILE = "One file, one thread, until it is on the disk", "write_files.svg"
LINES: dict[str, tuple[str, Style]] = {
    "fio": ("limit: fio, O_DIRECT, 1 MiB, 4 in flight", LIMIT),
    "write_many": ("ours, write_many", OURS),
    "write_one": ("ours, write_one", OURS),
    "plain writes": ("plain writes, no checksums", {**LIMIT, "linestyle": "-."}),
    "lmdb": ("LMDB", PEER),
    "array_record, groups": ("ArrayRecord, groups", PEER),
    "bagz": ("Bagz", PEER),
    "original, Python loop": ("the original's way", {"linestyle": "--", "color": GRAY}),
}


def of_files(measured: Sequence[Measurement]) -> Mapping[int, Group]:
    return {work.mean: group for (_, work), group in groups(measured).items() if isinstance(work, workloads.Writes)}


def of_packing(measured: Sequence[Measurement]) -> str:
    """Return samples per second until all is on the disk, until the package returned, and of a whole script; and the
    CPU time of a sample.
    """
    scripts = {m.contestant.removesuffix(SCRIPT): m for m in measured if m.contestant.endswith(SCRIPT)}
    rows = []
    for m in measured:
        if m.details["role"] == "limit":
            rows.append([m.contestant, f"{three(m.gigabytes_per_second)} GB/s", "", "", ""])
        elif not m.contestant.endswith(SCRIPT):
            returned = f"{m.count / median(m.details['returned_seconds']):,.0f}"
            script = per_second(scripts[m.contestant]) if m.contestant in scripts else ""
            used = f"{1e6 * median(m.details['cpu_seconds']) / m.count:.1f} µs" if "cpu_seconds" in m.details else ""
            rows.append([m.contestant, per_second(m), returned, script, used])
    return markdown(["samples/s", "until it is on the disk", "until it returns", "whole script", "CPU, a sample"], rows)


def per_second(m: Measurement) -> str:
    low, high = (m.count / seconds for seconds in (max(m.seconds), min(m.seconds)))
    return f"{m.count / m.median:,.0f} ({low:,.0f}–{high:,.0f})"


def of_pictures(measured: Sequence[Measurement]) -> str:
    rows = [
        [
            f"{m.contestant}, {'cold' if m.cache == 'cold' else 'cached'}",
            f"{m.median:.3f} ({min(m.seconds):.3f}–{max(m.seconds):.3f}) s",
            f"{three(m.gigabytes_per_second)} GB/s",
            f"{m.count / m.median:,.0f} files/s",
        ]
        for m in measured
    ]
    return markdown(["", "", "", ""], rows)


def of_growth(measured: Sequence[Measurement]) -> str:
    rows = [
        [f"{m.count:,}", *(f"{max(m.details[f'{who}_peak']) / 1e6:.1f} MB" for who in ("parent", "worker"))]
        for m in measured
    ]
    return markdown(["samples", "parent", "largest worker"], rows)


PARTS = {
    workloads.Packs: ("Images packed by two workers", of_packing),
    workloads.Pictures: ("A folder of JPEG files packed by two workers", of_pictures),
    workloads.Growth: ("Private memory while tiny samples are packed, at most", of_growth),
}


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        *(f"- not measured: {name}, {why}" for name, why in lines[-1]["not_measured"].items()),
        "### Figures of writing and their targets",
        figure_rows(figures(measured)),
    ]
    if by_size := of_files(measured):
        image = f"![{TITLE}: throughput against size of record](../../docs/plots/{FILE})"
        parts += [f"### {TITLE}", image, throughput(by_size)]
    for kind, (title, table) in PARTS.items():
        if found := [m for m in measured if isinstance(m.workload, kind)]:
            parts += [f"### {title}", table(found)]
    return "\n\n".join(parts)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    if by_size := of_files(measured):
        plot(by_size, LINES, TITLE, directory / FILE)

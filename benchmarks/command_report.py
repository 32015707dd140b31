"""Make benchmarks/tables/command.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from command_figures import describe, figures, groups
from harness import Measurement
from human import three
from report_tables import about, figure_rows, markdown


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        "### Figures of the command and their targets",
        figure_rows(figures(measured)),
    ]
    for title, kind in (("How soon it answers", workloads.Commands), ("How fast it verifies", workloads.Verified)):
        rows = [
            [place_of(cache, work) if place == 0 else "", m.contestant, taken(m)]
            for (cache, work), group in groups(measured).items()
            if isinstance(work, kind)
            for place, m in enumerate(group.of.values())
        ]
        if rows:
            parts += [f"### {title}", markdown(["", "", "median (fastest–slowest round)"], rows)]
    return "\n\n".join(parts)


def place_of(cache: str, work: object) -> str:
    state = "cold" if cache == "cold" else "cached"
    return f"{state}, {describe(work)}" if isinstance(work, workloads.Verified) else describe(work)


def taken(m: Measurement) -> str:
    """Return times of commands that only answer, and rates of those that read."""
    values = [seconds * 1000 for seconds in m.seconds]
    if m.size:
        values = [m.size / seconds / 1e9 for seconds in m.seconds]
        return f"{three(m.gigabytes_per_second)} ({three(max(values))}–{three(min(values))}) GB/s"
    return f"{1000 * m.median:.0f} ({min(values):.0f}–{max(values):.0f}) ms"


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    """Return None: there are few numbers each."""

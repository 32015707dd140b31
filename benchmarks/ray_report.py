"""Make benchmarks/tables/ray.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import Measurement
from loader_report import of_rates
from ray_figures import figures
from report_tables import about, figure_rows

PARTS = {"writing": "written", "reading": "read"}


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        "### Figures of Ray and their targets",
        figure_rows(figures(measured)),
    ]
    for work in dict.fromkeys(m.workload for m in measured):
        for part, done in PARTS.items():
            if found := [m for m in measured if (m.workload, m.details["part"]) == (work, part)]:
                title = f"{work.samples:,} {work.content} of {work.mean:,} bytes {done} by {work.workers} workers"
                parts += [f"### {title}, from the page cache", of_rates(found)]
    return "\n\n".join(parts)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    """Return None: there are few numbers each."""

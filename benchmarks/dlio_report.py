"""Make benchmarks/tables/dlio.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlio_figures import describe, figures, rows
from harness import Measurement
from report_tables import about, figure_rows, markdown


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [about(lines, measured), "### Whole epochs, ratios of speeds", figure_rows(figures(measured))]
    for work in dict.fromkeys(m.workload for m in measured):
        header, *found = rows([m for m in measured if m.workload == work])
        reading = "process reads" if work.threads == 1 else "read"
        parts += [f"### {describe(work)}, {work.framework}, {work.threads} {reading}", markdown(header, found)]
    return "\n\n".join(parts)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    """Return None: there are few numbers each."""

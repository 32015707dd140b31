"""Make benchmarks/tables/formats.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from formats_figures import describe, figures, groups
from harness import Measurement
from loader_report import of_batches, sentence
from report_tables import about, figure_rows


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        "### Figures of other formats and their targets",
        figure_rows(figures(measured)),
    ]
    for (_, work), group in groups(measured).items():
        title = sentence(describe(work))
        parts += [f"### {title}", *of_batches(title, list(group.of.values()))]
    return "\n\n".join(parts)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    """Return None: there are few bars each."""

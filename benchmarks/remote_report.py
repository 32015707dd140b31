"""Make benchmarks/tables/remote.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from harness import Measurement
from loader_report import of_rates, sentence
from remote_figures import describe, figures, groups
from report_tables import about, figure_rows, markdown


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        *(f"- not measured: {name}, {why}" for name, why in lines[-1]["not_measured"].items()),
        "### Figures of reading by URL and their targets",
        figure_rows(figures(measured)),
    ]
    for (part, work), group in groups(measured).items():
        table = of_opens if isinstance(work, workloads.RemoteOpens) else of_rates
        parts += [f"### {sentence(describe(part, work))}", table(list(group.of.values()))]
    return "\n\n".join(parts)


def of_opens(measured: Sequence[Measurement]) -> str:
    """Return the table of times, with all latency, and of requests."""
    rows = []
    for m in measured:
        taken = f"{1000 * m.median:.0f} ({1000 * min(m.seconds):.0f}–{1000 * max(m.seconds):.0f}) ms"
        asked = m.details["requests"]
        rows.append(
            [m.contestant, taken, f"{min(asked)}" if min(asked) == max(asked) else f"{min(asked)}–{max(asked)}"]
        )
    return markdown(["", "median (fastest–slowest round)", "requests"], rows)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    """Return None: there are few numbers each."""

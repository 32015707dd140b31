"""Make benchmarks/tables/remote.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from harness import Measurement
from loader_report import of_batches, sentence
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
        title, found = sentence(describe(part, work)), list(group.of.values())
        opens = isinstance(work, workloads.RemoteOpens)
        parts += [f"### {title}", *([of_opens(found)] if opens else of_batches(title, found))]
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

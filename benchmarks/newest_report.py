"""Make benchmarks/tables/newest.md and its plots: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from harness import Measurement
from human import duration, per_second
from newest_figures import best_settings, describe, figures, other_settings, rows
from report_tables import about, bars, figure_rows, markdown, tails

PARTS: dict[type, tuple[str, str]] = {
    workloads.Gathers: ("Random batches by index", "newest_index.svg"),
    workloads.Shuffles: ("Shuffled epochs of small images, the newest packages", "newest_images.svg"),
    workloads.CropsBeside: ("Photographs decoded and cropped, the newest packages", "newest_photographs.svg"),
    workloads.Resumes: ("The first batch after a resume", ""),
}


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    """Return the tables of all parts that were measured."""
    missing = [f"- not measured: {name}: {why}" for name, why in lines[-1]["not_measured"].items()]
    missing += [f"- not measured: {title}" for kind, (title, _) in PARTS.items() if not of_kind(measured, kind)]
    parts = [
        "\n".join([about(lines, measured), *missing]),
        "### Ratios of speeds: ffrecord / the package at its faster setting",
        figure_rows(figures(measured)),
    ]
    for kind, (title, file) in PARTS.items():
        if found := of_kind(measured, kind):
            header, *table = rows(found)
            image = [f"![{title}: samples for each second](../../docs/plots/{file})"] if file else []
            parts += [f"### {title}", f"{describe(found[0].workload)}.", *image, markdown(header, table)]
            parts += [others(found)] if others(found) else []
            if waits := tails(best_settings(found)):
                parts += [f"#### {title}: waits for a batch", waits]
    return "\n\n".join(parts)


def of_kind(measured: Sequence[Measurement], kind: type) -> list[Measurement]:
    return [m for m in measured if type(m.workload) is kind]


def others(measured: Sequence[Measurement]) -> str:
    """Return a line with the settings that were slower; "" if there are none."""
    found = [f"{m.contestant} {speed(m)}" for m in other_settings(measured)]
    return f"Slower settings: {'; '.join(found)}." if found else ""


def speed(m: Measurement) -> str:
    return duration(m.median) if isinstance(m.workload, workloads.Resumes) else per_second(m.count / m.median)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    """Make the plots of rates."""
    for kind, (title, file) in PARTS.items():
        if file and (found := of_kind(measured, kind)):
            bars(best_settings(found), title, directory / file)

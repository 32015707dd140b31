"""Make benchmarks/tables/loading.md: `report.py` calls it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from harness import Measurement
from human import three
from loader_figures import added, describe, figures, groups, largest_worker, source_figures
from report_tables import about, bars, figure_rows, markdown, tails

Chosen = tuple[type, str]  # kind of workload; its `through` or `form`
PARTS: dict[str, tuple[str, Chosen]] = {
    "Shuffled epochs of small images": ("load_images.svg", (workloads.Epochs, "a loader")),
    "The same images through torch's DataLoader": ("load_dataloader.svg", (workloads.Epochs, "DataLoader")),
    "Photographs decoded and cropped at random": ("load_photographs.svg", (workloads.Crops, "bytes")),
    "Photographs cropped, flipped and normalised": ("load_normalised.svg", (workloads.Crops, "normalised")),
    "PNG files cropped at random": ("load_png.svg", (workloads.Crops, "PNG")),
    "Small images drawn by weights": ("load_weights.svg", (workloads.Epochs, "weights")),
    "Small images made by Python": ("load_python.svg", (workloads.Epochs, "Python")),
}


def is_chosen(work: Any, chosen: Chosen) -> bool:
    kind, way = chosen
    return isinstance(work, kind) and way == (work.through if kind is workloads.Epochs else work.form)


def of_rates(measured: Sequence[Measurement]) -> str:
    """Return the table of rates, fastest first."""
    rows = []
    for m in sorted(measured, key=lambda m: m.median):
        low, high = (m.count / seconds for seconds in (max(m.seconds), min(m.seconds)))
        rate = f"{m.count / m.median:,.0f} ({low:,.0f}–{high:,.0f})"
        rows.append([m.contestant, rate, three(m.gigabytes_per_second)])
    return markdown(["", "samples/s", "GB/s"], rows)


def of_batches(title: str, measured: Sequence[Measurement]) -> list[str]:
    """Return the table of rates, and that of waits if there are any."""
    waits = tails(measured)
    return [of_rates(measured), *([f"#### {title}: waits for a batch", waits] if waits else [])]


def of_sources(measured: Sequence[Measurement]) -> str:
    """Return the table of rates for each kind of source."""
    rows = []
    for (_, work), group in groups(measured).items():
        rates = [f"{m.count / m.median:,.0f}" for m in group.of.values()]
        rows += [[describe(work), *rates, *figure.row()[1:]] for figure in source_figures(group, work)]
    return markdown(["", "Loader, samples/s", "DataLoader, samples/s", "ratio (min..max)", "target", ""], rows)


def of_starts(measured: Sequence[Measurement]) -> str:
    """Return the table of times to the first batch, and of memory without cached files."""
    rows = []
    for m in measured:
        taken = f"{1000 * m.median:.1f} ({1000 * min(m.seconds):.1f}–{1000 * max(m.seconds):.1f}) ms"
        worker = f"{max(largest_worker(m)):.1f} MB" if m.workload.processes else ""
        rows.append([describe(m.workload), taken, f"{max(added(m)):.1f} MB", worker])
    return markdown(["", "first batch", "memory added, all processes", "private, of the largest worker"], rows)


def sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def text_of_sources(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    """Return the page of every kind of source, which is measured alone."""
    return "\n\n".join([about(lines, measured), f"Batches of {measured[0].workload.batch}.", of_sources(measured)])


def text_of_gpus(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    """Return the page of photographs decoded on a GPU, which is measured on another machine."""
    parts = [about(lines, measured), f"- {', '.join(lines[-1]['gpus'])}", "### Figures", figure_rows(figures(measured))]
    for (_, work), group in groups(measured).items():
        title = sentence(describe(work))
        parts += [f"### {title}", *of_batches(title, list(group.of.values()))]
    return "\n\n".join(parts)


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        *(f"- not measured: {name}, {why}" for name, why in lines[-1]["not_measured"].items()),
        "### Figures of loading and their targets",
        figure_rows(figures(measured)),
    ]
    for title, (file, chosen) in PARTS.items():
        if found := [m for m in measured if is_chosen(m.workload, chosen)]:
            image = f"![{title}: samples for each second](../../docs/plots/{file})"
            parts += [f"### {title}", f"{sentence(describe(found[0].workload))}.", image, *of_batches(title, found)]
    for (_, work), group in groups(measured).items():
        if isinstance(work, workloads.ColdEpochs):
            title = sentence(describe(work))
            parts += [f"### {title}", *of_batches(title, list(group.of.values()))]
    if starts := [m for m in measured if isinstance(m.workload, workloads.Starts)]:
        parts += ["### The first batch of very many samples", of_starts(starts)]
    return "\n\n".join(parts)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    for title, (file, chosen) in PARTS.items():
        if found := [m for m in measured if is_chosen(m.workload, chosen)]:
            bars(found, title, directory / file)

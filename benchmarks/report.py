"""Make the tables in benchmarks/tables and their plots in docs/plots: `python report.py RESULTS.jsonl ...`.

The results are of bench_read.py, bench_write.py, bench_loader.py, bench_formats.py, bench_remote.py, bench_ray.py,
bench_dlio.py, bench_newest.py and bench_command.py.

Of several files, each part is taken from the last that has it: a part that was measured again replaces its older self.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import command_report
import dlio_report
import formats_report
import loader_report
import newest_report
import ray_report
import remote_report
import workloads
import write_report
from harness import Measurement
from read_figures import Group, figures, groups, size_name
from report_tables import GRAY, LIMIT, OURS, PEER, Style, about, figure_rows, plot, reproducible, tails, throughput

DOCS = Path(__file__).resolve().parents[1] / "docs"
TABLES_OF = Path(__file__).resolve().parent / "tables"
BEGIN, END = "<!-- made by benchmarks/report.py -->", "<!-- end of what it made -->"
HOT: dict[str, tuple[str, Style]] = {
    "C loop, mapping": ("limit: C loop over a mapping", LIMIT),
    "C loop, pread": ("limit: C loop of pread", {**LIMIT, "linestyle": "-."}),
    "read mmap": ('ours, io="mmap"', OURS),
    "read auto": ("ours", OURS),
    "bagz": ("Bagz", PEER),
    "numpy.memmap": ("numpy.memmap", PEER),
    "lmdb": ("LMDB", PEER),
    "array_record": ("ArrayRecord", PEER),
    "original, C loop": ("the original's way", {"linestyle": "--", "color": GRAY}),
}
COLD: dict[str, tuple[str, Style]] = {
    "fio": ("limit: fio, O_DIRECT, depth 32", LIMIT),
    "read auto": ("ours", OURS),
    "iter_batches auto": ("ours, iter_batches", OURS),
    "bagz": ("Bagz", PEER),
    "numpy.memmap": ("numpy.memmap", PEER),
    "lmdb": ("LMDB", PEER),
    "array_record, threads": ("ArrayRecord", PEER),
}
PLOTS = {"Cached, random batches": (HOT, "read_cached.svg"), "Cold, random batches": (COLD, "read_cold.svg")}
Chosen = Callable[[str, workloads.Reads], bool]
TABLES: dict[str, Chosen] = {
    "Cached, random batches": lambda cache, work: cache == "hot" and work.order == "random",
    "Cold, random batches": lambda cache, work: cache == "cold" and work.order == "random" and not work.memory,
    "Cold, random batches, little memory": lambda cache, work: bool(work.memory),
    "Cached, from front to back": lambda cache, work: cache == "hot" and work.order == "sequential",
    "Cold, from front to back": lambda cache, work: cache == "cold" and work.order == "sequential",
}


def load(paths: Sequence[Path], bench: str) -> tuple[list[Measurement], list[dict[str, Any]]]:
    """Return the measurements of a benchmark, and a line about the environment of each file that has any."""
    parts: dict[tuple[Any, ...], list[Measurement]] = {}
    about = []
    for path in paths:
        lines = [line for line in map(json.loads, path.read_text().splitlines()) if line["bench"] == bench]
        measured = [Measurement.from_record(line) for line in lines]
        parts.update({part_of(each): [] for each in measured})
        for each in measured:
            parts[part_of(each)].append(each)
        about += [together(lines)] if lines else []
    return [each for part in parts.values() for each in part], about


def together(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the last line of a file, with the other packages that any line names: not every part needs them all."""
    united: dict[str, dict[str, str]] = {"versions": {}, "not_measured": {}}
    for line in lines:
        for name, of in united.items():
            of.update(line.get(name, {}))
    return {**lines[-1], **united}


def part_of(measurement: Measurement) -> tuple[Any, ...]:
    """Return measurements made together, by contestant."""
    work, part = measurement.workload, measurement.details.get("part")  # some parts do several things with one workload
    return type(work).__name__, work, measurement.cache, part


def of_kind(measured: Sequence[Measurement], chosen: Chosen) -> dict[int, Group]:
    """Return measurements by mean size."""
    return {work.mean: group for (cache, work), group in groups(measured).items() if chosen(cache, work)}


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, measured),
        "### Figures and their targets",
        figure_rows(figures(measured)),
    ]
    for title, chosen in TABLES.items():
        if of_kind(measured, chosen):
            image = (
                [f"![{title}: throughput against size of record](../../docs/plots/{PLOTS[title][1]})"]
                if title in PLOTS
                else []
            )
            parts += [f"### {title}", *image, throughput(of_kind(measured, chosen))]
            parts += waits(title, of_kind(measured, chosen))
    return "\n\n".join(parts)


def waits(title: str, by_size: Mapping[int, Group]) -> list[str]:
    """Return a table of waits for each mean size that has any."""
    made = {mean: tails(list(group.of.values())) for mean, group in by_size.items()}
    return [
        part
        for mean, table in made.items()
        if table
        for part in (f"#### {title}: waits for a batch, {size_name(mean)}", table)
    ]


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    for title, (lines, file) in PLOTS.items():
        if by_size := of_kind(measured, TABLES[title]):
            plot(by_size, lines, title, directory / file)


def replaced(page: str, made: str) -> str:
    """Return the page with new text between the marks."""
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.split(END, 1)[1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--tables", type=Path, default=TABLES_OF, help="directory of reading.md and the others")
    parser.add_argument("--plots", type=Path, default=DOCS / "plots", help="directory of the plots")
    given = parser.parse_args(arguments)
    reproducible()
    reports = {
        "read": ("reading.md", text, plots),
        "write": ("writing.md", write_report.text, write_report.plots),
        "loader": ("loading.md", loader_report.text, loader_report.plots),
        "formats": ("formats.md", formats_report.text, formats_report.plots),
        "remote": ("remote.md", remote_report.text, remote_report.plots),
        "ray": ("ray.md", ray_report.text, ray_report.plots),
        "dlio": ("dlio.md", dlio_report.text, dlio_report.plots),
        "newest": ("newest.md", newest_report.text, newest_report.plots),
        "command": ("command.md", command_report.text, command_report.plots),
    }
    for bench, (name, make_text, make_plots) in reports.items():
        measured, lines = load(given.results, bench)
        sources = [m for m in measured if isinstance(m.workload, workloads.Sources)]
        on_gpu = [m for m in measured if isinstance(m.workload, workloads.Crops) and m.workload.form == "GPU"]
        measured = [m for m in measured if m not in sources and m not in on_gpu]
        if measured:
            page = given.tables / name
            page.write_text(replaced(page.read_text(), make_text(measured, lines)))
            make_plots(measured, given.plots)
        if sources:
            page = given.tables / "sources.md"
            page.write_text(replaced(page.read_text(), loader_report.text_of_sources(sources, lines)))
        if on_gpu:
            page = given.tables / "gpu.md"
            page.write_text(replaced(page.read_text(), loader_report.text_of_gpus(on_gpu, lines)))


if __name__ == "__main__":
    main()

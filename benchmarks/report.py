"""The tables and plots of docs/benchmarks.md: `python report.py RESULTS.jsonl ...`, of runs of bench_read.py.

Of several files, each part is taken from the last that has it: a part that was measured again replaces its older self.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import workloads
from harness import Measurement
from read_figures import Figure, Group, figures, groups, size_name

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- made by benchmarks/report.py -->", "<!-- end of what it made -->"
Style = dict[str, Any]
LIMIT: Style = {"color": "black", "linestyle": ":"}
OURS: Style = {"linewidth": 2.2, "marker": "o"}
PEER: Style = {"linestyle": "--"}
HOT: dict[str, tuple[str, Style]] = {
    "C loop, mapping": ("limit: C loop over a mapping", LIMIT),
    "C loop, pread": ("limit: C loop of pread", {**LIMIT, "linestyle": "-."}),
    "read mmap": ('ours, io="mmap"', OURS),
    "read auto": ("ours", OURS),
    "bagz": ("Bagz", PEER),
    "numpy.memmap": ("numpy.memmap", PEER),
    "lmdb": ("LMDB", PEER),
    "array_record": ("ArrayRecord", PEER),
    "original, C loop": ("the original's way", {"linestyle": "--", "color": "gray"}),
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


def load(paths: Sequence[Path]) -> tuple[list[Measurement], list[dict[str, Any]]]:
    """The measurements of reading, and a line of each file, which says what they were made on."""
    parts: dict[tuple[Any, ...], list[Measurement]] = {}
    about = []
    for path in paths:
        lines = [line for line in map(json.loads, path.read_text().splitlines()) if line["bench"] == "read"]
        measured = [Measurement.from_record(line) for line in lines]
        parts.update({part_of(each): [] for each in measured})
        for each in measured:
            parts[part_of(each)].append(each)
        about.append(lines[-1])
    return [each for part in parts.values() for each in part], about


def part_of(measurement: Measurement) -> tuple[Any, ...]:
    """What is measured together, contestant by contestant."""
    return type(measurement.workload).__name__, measurement.workload, measurement.cache


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def of_kind(measured: Sequence[Measurement], chosen: Chosen) -> dict[int, Group]:
    """By mean size."""
    return {work.mean: group for (cache, work), group in groups(measured).items() if chosen(cache, work)}


def rate(measurement: Measurement | None) -> str:
    """Bytes and reads, both: for small records the one says something, for large ones the other."""
    if measurement is None:
        return ""
    low, high = (measurement.size / seconds / 1e9 for seconds in (max(measurement.seconds), min(measurement.seconds)))
    reads = measurement.count / measurement.median
    return f"{measurement.gigabytes_per_second:.3g} ({low:.3g}–{high:.3g}) GB/s, {reads / 1000:.3g} k/s"


def throughput(measured: Sequence[Measurement], chosen: Chosen) -> str:
    by_size = of_kind(measured, chosen)
    names = list(dict.fromkeys(name for group in by_size.values() for name in group.of))
    rows = [[name, *(rate(group.of.get(name)) for group in by_size.values())] for name in names]
    return markdown(["", *map(size_name, by_size)], rows)


def figure_rows(found: Sequence[Figure]) -> str:
    return markdown(["", "median (min..max)", "target", ""], [figure.row() for figure in found])


def about(lines: Sequence[dict[str, Any]], rounds: int) -> str:
    """What was measured on: the same machine with the same versions, at one commit or several."""
    line = lines[-1]
    again = ", of the later what was measured again" if len(lines) > 1 else ""
    commits = " and ".join(f"{each['commit']}{' with changes' if each['dirty'] else ''}" for each in lines)
    machine, versions = line["machine"], line["versions"]
    ahead = ", ".join(
        f"{disk} {size} KiB" for disk, size in line["read_ahead_kb"].items() if not disk.startswith("zram")
    )
    return "\n".join(
        [
            f"- {machine['cpu']}, {machine['cpus']} CPUs{', virtual' if machine['virtual'] else ''},"
            f" {machine['memory_bytes'] / 2**30:.0f} GiB of memory, {machine['os']}, {line['fs']}; read-ahead: {ahead}",
            f"- commit {commits}{again}, CRC-32 kernel {line['crc_kernel']}, {line['time'][:10]}; {rounds} rounds",
            f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
        ]
    )


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    parts = [
        about(lines, max(len(m.seconds) for m in measured)),
        "### Figures and their targets",
        figure_rows(figures(measured)),
    ]
    for title, chosen in TABLES.items():
        if of_kind(measured, chosen):
            image = (
                [f"![{title}: throughput against size of record](plots/{PLOTS[title][1]})"] if title in PLOTS else []
            )
            parts += [f"### {title}", *image, throughput(measured, chosen)]
    return "\n\n".join(parts)


def plot(by_size: dict[int, Group], lines: dict[str, tuple[str, Style]], title: str, path: Path) -> None:
    """Throughput against size of record."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, (label, style) in lines.items():
        found = [(mean, m) for mean, group in by_size.items() if (m := named(group, name))]
        axes.plot([mean for mean, _ in found], [m.gigabytes_per_second for _, m in found], label=label, **style)
    axes.set(xscale="log", yscale="log", xlabel="mean size of a record", ylabel="GB/s", title=title)
    axes.set_xticks(list(by_size), list(map(size_name, by_size)))
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def named(group: Group, name: str) -> Measurement | None:
    """fio's name has the size of its reads in it."""
    return next((m for contestant, m in group.of.items() if contestant == name or contestant.split()[0] == name), None)


def plots(measured: Sequence[Measurement], directory: Path) -> None:
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ffrecord"})
    directory.mkdir(exist_ok=True)
    for title, (lines, file) in PLOTS.items():
        if by_size := of_kind(measured, TABLES[title]):
            plot(by_size, lines, title, directory / file)


def replaced(page: str, made: str) -> str:
    """The page with what lies between the marks made anew."""
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.split(END, 1)[1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, default=DOCS, help="directory of benchmarks.md")
    given = parser.parse_args(arguments)
    measured, lines = load(given.results)
    page = given.docs / "benchmarks.md"
    page.write_text(replaced(page.read_text(), text(measured, lines)))
    plots(measured, given.docs / "plots")


if __name__ == "__main__":
    main()

"""Parts of all benchmark reports: tables, lines of plots, and the environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from harness import Measurement
from human import per_second, three
from matplotlib.ticker import EngFormatter
from read_figures import Figure, Group, size_name
from tails import tail_rows

Style = dict[str, Any]
INK, LIGHT_INK = "#24292f", "#d0d7de"  # of text and axes: on a light page, on a dark one
BLUE, GRAY = "#2f81d6", "#8b949e"  # these and the others can be seen on both
CYCLE = [BLUE, "#e07b1a", "#2ca05a", "#d9534f", "#9a6fd0", "#17a2b8", "#d667a8", "#a8a020"]
LIMIT: Style = {"color": INK, "linestyle": ":"}
OURS: Style = {"linewidth": 2.2, "marker": "o"}
PEER: Style = {"linestyle": "--"}
ERROR: Style = {"linewidth": 0.8, "ecolor": INK}
COLORS = {"ours": BLUE, "limit": INK}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def rate(measurement: Measurement | None) -> str:
    """Format bytes and samples per second: the latter matters for small records, the former for large ones."""
    if measurement is None:
        return ""
    low, high = (measurement.size / seconds / 1e9 for seconds in (max(measurement.seconds), min(measurement.seconds)))
    samples = per_second(measurement.count / measurement.median)
    return f"{three(measurement.gigabytes_per_second)} ({three(low)}–{three(high)}) GB/s, {samples}"


def throughput(by_size: Mapping[int, Group]) -> str:
    """Return a row for each contestant, with a column for each mean size."""
    names = list(dict.fromkeys(name for group in by_size.values() for name in group.of))
    rows = [[name, *(rate(group.of.get(name)) for group in by_size.values())] for name in names]
    return markdown(["", *map(size_name, by_size)], rows)


def tails(measured: Sequence[Measurement]) -> str:
    """Return the table of waits for batches; "" if nothing recorded them."""
    rows = tail_rows(measured)
    return markdown(rows[0], rows[1:]) if rows else ""


def figure_rows(found: Sequence[Figure]) -> str:
    return markdown(["", "median (min..max)", "target", ""], [figure.row() for figure in found])


def about(lines: Sequence[dict[str, Any]], measured: Sequence[Measurement]) -> str:
    """Describe the environment: the same machine with the same versions, at one commit or several."""
    line = lines[-1]
    again = ", of the later what was measured again" if len(lines) > 1 else ""
    commits = " and ".join(f"{each['commit']}{' with changes' if each['dirty'] else ''}" for each in lines)
    counts = sorted({len(each.seconds) for each in measured})
    rounds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    machine, versions = line["machine"], line["versions"]
    ahead = ", ".join(
        f"{disk} {size} KiB" for disk, size in line.get("read_ahead_kb", {}).items() if not disk.startswith("zram")
    )
    return "\n".join(
        [
            f"- {machine['cpu']}, {machine['cpus']} CPUs{', virtual' if machine['virtual'] else ''},"
            f" {machine['memory_bytes'] / 2**30:.0f} GiB of memory, {machine['os']}, {line['fs']}"
            + (f"; read-ahead: {ahead}" if ahead else ""),
            f"- commit {commits}{again}, CRC-32 kernel {line['crc_kernel']}, {line['time'][:10]}; {rounds} rounds",
            f"- {', '.join(f'{name} {version}' for name, version in versions.items())}",
        ]
    )


def named(group: Group, name: str) -> Measurement | None:
    """Return a contestant's name without the size of its requests, which fio's name contains."""
    return next((m for contestant, m in group.of.items() if contestant == name or contestant.split()[0] == name), None)


def plot(by_size: Mapping[int, Group], lines: dict[str, tuple[str, Style]], title: str, path: Path) -> None:
    """Plot throughput against the size of records."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, (label, style) in lines.items():
        found = [(mean, m) for mean, group in by_size.items() if (m := named(group, name))]
        axes.plot([mean for mean, _ in found], [m.gigabytes_per_second for _, m in found], label=label, **style)
    axes.set(xscale="log", yscale="log", xlabel="mean size of a record", ylabel="GB/s", title=title)
    axes.set_xticks(list(by_size), list(map(size_name, by_size)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save(figure, path)


def bars(measured: Sequence[Measurement], title: str, path: Path) -> None:
    """Plot samples per second, the fastest on top, from the slowest to the fastest round."""
    ordered = sorted(measured, key=lambda m: m.count / m.median)
    rates = [m.count / m.median for m in ordered]
    spread = [
        [rate - m.count / max(m.seconds) for m, rate in zip(ordered, rates, strict=True)],
        [m.count / min(m.seconds) - rate for m, rate in zip(ordered, rates, strict=True)],
    ]
    colors = [COLORS.get(m.details["role"], GRAY) for m in ordered]
    figure, axes = plt.subplots(figsize=(8, 0.8 + 0.34 * len(ordered)), layout="constrained")
    axes.barh([m.contestant for m in ordered], rates, xerr=spread, color=colors, error_kw=ERROR)
    axes.set(xlabel="samples/s", title=title)
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3, axis="x")
    save(figure, path)


def reproducible() -> None:
    """Return a context in which equal results give equal plot files."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ffrecord", "legend.framealpha": 0})
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
    mpl.rcParams.update({**dict.fromkeys(inked, INK), "axes.prop_cycle": mpl.cycler(color=CYCLE)})


def save(figure: Any, path: Path) -> None:
    """Save a figure as SVG without a background, for light pages and dark ones."""
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
    path.write_text(themed(path.read_text()))


def themed(svg: str) -> str:
    """Add a rule to an SVG for dark pages: text and axes become light."""
    rules = "".join(f'[style*="{what}: {INK}"]{{{what}: {LIGHT_INK} !important}}' for what in ("fill", "stroke"))
    return svg.replace("</style>", f"\n@media (prefers-color-scheme: dark){{{rules}}}</style>", 1)

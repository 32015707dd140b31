"""Figures for papers and slides: made by matplotlib, without a screen."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ffrecord.cli.output import in_bytes
from ffrecord.cli.sizes import Sizes
from ffrecord.errors import ArgumentError
from ffrecord.fields.optional import require

SUFFIXES = (".png", ".svg", ".pdf")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "svg.fonttype": "none",
    "svg.hashsalt": "ffrecord",
}
OURS, LIMIT = "#2a6f97", "#c1121f"


def check_suffix(path: str) -> None:
    """Raise ArgumentError unless the path ends as a figure does."""
    if not path.endswith(SUFFIXES):
        raise ArgumentError(f"{path}: a figure ends in {', '.join(SUFFIXES)}")


def figure(width: float = 5.5, height: float = 3.2) -> tuple[Any, Any]:
    """A figure of inches by inches, and its axes.

    Raises:
        ImportError: no matplotlib; names the extra.
    """
    require("matplotlib", "plot", "a figure").rcParams.update(STYLE)
    made = require("matplotlib.figure", "plot", "a figure").Figure(figsize=(width, height), layout="constrained")
    return made, made.add_subplot()


def save(made: Any, path: str) -> None:
    """Write a figure; a file that is there is replaced when all is written."""
    check_suffix(path)
    root, suffix = os.path.splitext(path)
    part = f"{root}.{os.getpid()}.part{suffix}"
    try:
        made.savefig(part, dpi=200, metadata={"Date": None} if suffix == ".svg" else None)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def plot_sizes(sizes: Sizes, source: str, path: str) -> None:
    """The histogram of sizes of records."""
    check_suffix(path)
    made, axes = figure()
    places = range(len(sizes.histogram))
    axes.bar(places, sizes.histogram, width=0.92, color=OURS)
    axes.set_xticks(
        [place - 0.5 for place in range(len(sizes.edges))],
        [in_bytes(each) for each in sizes.edges],
        rotation=45,
        ha="right",
    )
    axes.set_xlabel("size of a record")
    axes.set_ylabel("records")
    axes.grid(axis="x", visible=False)
    axes.set_title(
        f"{os.path.basename(os.path.normpath(source))}: {sizes.count:,} records, {in_bytes(sizes.total)}", fontsize=9
    )
    save(made, path)


def plot_throughput(points: Mapping[str, Sequence[tuple[float, float]]], limit: float | None, path: str) -> None:
    """Bytes per second against the size of a batch in bytes, a line for each way, and the limit of the machine."""
    check_suffix(path)
    made, axes = figure()
    for name, line in points.items():
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3.5, linewidth=1.4, label=name)
    if limit is not None:
        axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1, label=f"limit here, {in_bytes(limit)}/s")
    axes.set_xscale("log")
    axes.set_xlabel("bytes in a batch")
    axes.set_ylabel("bytes per second")
    axes.xaxis.set_major_formatter(lambda value, _: in_bytes(value))
    axes.yaxis.set_major_formatter(lambda value, _: in_bytes(value))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    save(made, path)

"""Figures for papers and slides: made by matplotlib, without a screen."""

import io
import os
from collections.abc import Sequence
from typing import Any

from ffrecord.cli import saving
from ffrecord.cli.measuring import Measured
from ffrecord.cli.output import in_bytes
from ffrecord.cli.sizes import Sizes, labels_of
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
    kind, data = path.rpartition(".")[2], io.BytesIO()
    made.savefig(data, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
    saving.save(data.getvalue(), path)


def plot_sizes(sizes: Sizes, source: str, path: str) -> None:
    """The histogram of sizes of records."""
    check_suffix(path)
    made, axes = figure()
    places = range(len(sizes.histogram))
    axes.bar(places, sizes.histogram, width=0.92, color=OURS)
    axes.set_xticks(
        [place - 0.5 for place in range(len(sizes.edges))],
        labels_of(sizes.edges),
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


def plot_measured(measured: Sequence[Measured], source: str, path: str) -> None:
    """Bytes per second of each way of reading beside the limit of the machine, and how long batches took."""
    found = [each for each in measured if not each.missing]
    made, axes = figure(5.5, 0.9 + 0.75 * max(len(found), 1))
    for place, each in enumerate(found):
        axes.barh(place, each.bytes_per_second, height=0.55, color=OURS)
        if each.limit is not None:
            axes.plot(
                [each.limit] * 2, [place - 0.28, place + 0.28], color=LIMIT, linewidth=2, label="limit of this machine"
            )
        took = f", batches of {each.latencies['50 %'] * 1e3:.3g} ms, 99 % within {each.latencies['99 %'] * 1e3:.3g} ms"
        axes.text(0, place + 0.32, f" {each.samples_per_second:,.0f} samples/s{took}", fontsize=7, va="bottom")
    axes.set_yticks(range(len(found)), [each.way for each in found])
    axes.set_ylim(-0.6, max(len(found), 1) - 0.2)
    axes.set_xlim(left=0)
    axes.set_xlabel("bytes per second")
    axes.xaxis.set_major_formatter(lambda value, _: in_bytes(value))
    axes.grid(axis="y", visible=False)
    axes.set_title(os.path.basename(os.path.normpath(source)), fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles[:1], labels[:1], frameon=False, fontsize=7, loc="lower right")
    save(made, path)

"""Figures for papers and slides, as wide as one of two columns. matplotlib draws them without a screen."""

import io
import os
from collections.abc import Sequence
from errno import ENOENT
from typing import Any

import numpy as np

from ffrecord.cli.measure import Measurement
from ffrecord.cli.record_sizes import Sizes, choose_bin_width
from ffrecord.cli.terminal.output import format_count, format_size, truncate
from ffrecord.errors import ArgumentError
from ffrecord.system.atomic_file import save_file
from ffrecord.system.requirements import require

SUFFIXES = (".png", ".svg", ".pdf")
WIDTH = 3.4  # inches
DPI = 300
TITLE_MOST = 48  # characters of a title that fit
INK, LIGHT_INK, GRID = "#24292f", "#d0d7de", "#8b949e"  # text and axes on light pages, on dark pages; lines behind
STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.alpha": 0.3,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "ffrecord",
}
LIMIT = "#c1121f"
COLOURS = {"cached": "#2a6f97", "cold": "#e07a1f", "loader": "#5b8c5a"}  # LINES tells them apart in grey print
LINES = {"cached": "-", "cold": "--", "loader": ":"}
OURS, SHARE = "#2a6f97", "#6e7781"
BINS_LEAST, BINS, BINS_MOST = 12, 40, 120
ROOM_LEAST = 5  # room for at least so many bars, so that a single bar does not fill the figure
TEXT = 0.33  # share of an axis that the text beside a bar takes
RATIO = 50  # of the largest to the smallest size; above it the axis is logarithmic


def check(path: str) -> None:
    """Check that a figure can be saved at `path`, before anything is measured for it.

    Raises:
        ArgumentError: the path does not end as a figure does.
        FileNotFoundError: its directory does not exist.
        ImportError: matplotlib is missing; names the extra.
    """
    if not path.endswith(SUFFIXES):
        raise ArgumentError(f"--plot is {path}, expected a file name that ends in {', '.join(SUFFIXES)}")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), path)
    require("matplotlib", "plot", "a figure")


def make_figure(heights: Sequence[float]) -> tuple[Any, list[Any]]:
    """Make a figure with axes one below the other.

    Args:
        heights: height of each, in inches.

    Returns:
        The figure and its axes.

    Raises:
        ImportError: matplotlib is missing; names the extra.
    """
    require("matplotlib", "plot", "a figure").rcParams.update(STYLE)
    kind = require("matplotlib.figure", "plot", "a figure").Figure
    made = kind(figsize=(WIDTH, sum(heights)), layout="constrained")
    return made, list(made.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])


def save(made: Any, path: str) -> None:
    """Write a figure. It replaces an older file once it is complete.

    An SVG has no background, and its text and axes are light on dark pages. Others are white, for slides and paper.
    """
    kind, data = path.rpartition(".")[2], io.BytesIO()
    if kind != "svg":
        made.savefig(data, format=kind, dpi=DPI)
        save_file(data.getvalue(), path)
        return
    made.savefig(data, format=kind, dpi=DPI, metadata={"Date": None}, transparent=True)
    save_file(with_dark_theme(data.getvalue().decode()).encode(), path)


def with_dark_theme(svg: str) -> str:
    """Add a rule to an SVG: where the page around it is dark, text and axes are light."""
    rules = "".join(f'[style*="{what}: {INK}"]{{{what}: {LIGHT_INK} !important}}' for what in ("fill", "stroke"))
    return svg.replace("</style>", f"\n@media (prefers-color-scheme: dark){{{rules}}}</style>", 1)


def plot_sizes(sizes: Sizes, source: str, path: str) -> None:
    """Draw the number of records of each size, and the share of records up to each size.

    Args:
        sizes: sizes of the records.
        source: name of the dataset.
        path: file to write.
    """
    made, (above, below) = make_figure([1.6, 1.3])
    _set_title(made, f"{_short_name(source, 24)}: {format_count(sizes.count, 'record')}, {format_size(sizes.total)}")
    above.set_ylabel("records")
    below.set_ylabel("share")
    below.set_xlabel(f"size of a record, of one in {sizes.step:,}" if sizes.estimated else "size of a record")
    if sizes.count:
        edges, logarithmic = choose_bins(sizes)
        _draw_histogram(above, sizes, edges)
        _draw_shares(below, sizes, edges, logarithmic)
        for axes in (above, below):
            axes.set_xscale("log" if logarithmic else "linear")
            axes.set_xlim(edges[0] * (0.8 if logarithmic else 1), edges[-1] * (1.25 if logarithmic else 1))
            _set_byte_ticks(axes)
        above.tick_params(axis="x", labelbottom=False)
    save(made, path)


def choose_bins(sizes: Sizes) -> tuple[Any, bool]:
    """Return the edges of the bars, and whether the axis should be logarithmic.

    Sizes are whole numbers. Bars of whole widths therefore hold equally many possible sizes.
    """
    low, high = int(sizes.kept[0]), int(sizes.kept[-1])
    if high > RATIO * max(low, 1):
        return np.unique(np.ceil(np.geomspace(max(low, 1), high + 1, BINS + 1))) - 0.5, True
    width, count = choose_bin_width(high - low + 1, BINS_LEAST, BINS, BINS_MOST)
    before = min(low, max(0, ROOM_LEAST - count) // 2)  # puts a single size in the middle
    return low - before - 0.5 + width * np.arange(max(count, ROOM_LEAST) + 1), False


def _draw_histogram(axes: Any, sizes: Sizes, edges: Any) -> None:
    # Records of 0 bytes have no place on a logarithmic axis: the first bar counts them.
    counts = sizes.counts([min(edges[0], sizes.kept[0]), *edges[1:]])
    axes.stairs(counts, edges, fill=True, color=OURS)
    axes.set_ylim(0, counts.max() * 1.05)
    axes.yaxis.set_major_locator(require("matplotlib.ticker", "plot", "a figure").MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: _shorten_number(value))
    axes.grid(axis="x", visible=False)


def _set_byte_ticks(axes: Any) -> None:
    """Set a few ticks whose labels differ and do not overlap."""
    ticker = require("matplotlib.ticker", "plot", "a figure")
    logarithmic, (low, high) = axes.get_xscale() == "log", axes.get_xlim()
    found = ticker.LogLocator(10, numticks=6) if logarithmic else ticker.MaxNLocator(4, integer=True, min_n_ticks=1)
    ticks = [int(tick) for tick in found.tick_values(low, high) if low <= tick <= high and tick == int(tick)]
    exact = all(float(f"{tick:.3g}") == tick for tick in ticks)
    axes.set_xticks(ticks, [format_size(tick) if exact else f"{tick:,} B" for tick in ticks])
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def _format_exact_size(value: float, edges: Any) -> str:
    """Format a size as exactly as the range of the axis needs."""
    return format_size(value) if edges[-1] > 1.1 * max(edges[0], 1) else f"{value:,.0f} B"


def _draw_shares(axes: Any, sizes: Sizes, edges: Any, logarithmic: bool) -> None:
    """Draw the cumulative distribution. Percentiles are written where the curve leaves room."""
    chosen = np.unique(np.linspace(0, len(sizes.kept) - 1, 1000).astype(int))
    values = np.concatenate([[edges[0]], sizes.kept[chosen], [edges[-1]]])
    axes.step(values, [0, *(chosen + 1) / len(sizes.kept), 1], where="post", color=OURS)
    middle = np.sqrt(edges[0] * edges[-1]) if logarithmic else (edges[0] + edges[-1]) / 2
    for at, words in ((50, "median"), (99, "99 %")):
        value = float(np.percentile(sizes.kept, at))
        axes.plot(value, at / 100, "o", color=OURS)
        text, left = f"{words}: {_format_exact_size(value, edges)}", value >= middle
        sides = ("right", "bottom") if left else ("left", "top")
        style = {"textcoords": "offset points", "fontsize": 7, "ha": sides[0], "va": sides[1]}
        axes.annotate(text, (value, at / 100), xytext=(-3, 2) if left else (5, -3), **style)
    axes.set_ylim(0, 1.22)
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])


def plot_measured(measured: Sequence[Measurement], source: str, path: str, swept: Sequence[Measurement] = ()) -> None:
    """Draw the bytes per second of each way of reading and of each size, and the times of batches, beside the limit.

    Args:
        measured: measurement of each way of reading.
        source: name of the dataset.
        path: file to write.
        swept: measurements of samples of several sizes, by `measure.sizes`.
    """
    found = [each for each in measured if not each.missing]
    parts = [(_draw_ways, found, 0.8 + 0.27 * len(found)), (_draw_by_size, swept, 2.0), (_draw_latencies, found, 1.9)]
    parts = [part for part in parts if part[1]] or parts[:1]
    made, panels = make_figure([height for *_, height in parts])
    for axes, (draw, each, _) in zip(panels, parts, strict=True):
        draw(axes, each)
        if draw is _draw_by_size and found:
            _mark_size(axes, found[0].bytes_per_second / found[0].samples_per_second)
    _set_title(made, _short_name(source, TITLE_MOST))
    save(made, path)


def _draw_ways(axes: Any, found: Sequence[Measurement]) -> None:
    most = max((max(each.bytes_per_second, each.limit or 0) for each in found), default=1)
    for place, each in enumerate(found):
        axes.barh(place, each.bytes_per_second, height=0.6, color=COLOURS[each.way])
        if each.limit is not None:
            axes.plot([each.limit] * 2, [place - 0.38, place + 0.38], color=LIMIT, linewidth=2)
        start, inside = _place_text(each.bytes_per_second / most, (each.limit or 0) / most)
        axes.annotate(
            f"{_shorten_number(each.samples_per_second)} samples/s",
            (start * most, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color="white" if inside else INK,
        )
    axes.set_yticks(range(len(found)), [each.way for each in found])
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.06)
    axes.set_xlabel("bytes per second")
    _set_rate_ticks(axes.xaxis, 4)
    axes.grid(axis="y", visible=False)
    if any(each.limit for each in found):
        axes.plot([], [], color=LIMIT, linewidth=2, label="limit of this machine")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, borderpad=0)


def _place_text(bar: float, limit: float) -> tuple[float, bool]:
    """Return the begin of the text of a bar, and whether the text is inside the bar. The text keeps clear of the limit.

    All lengths are fractions of the axis.
    """
    if bar >= TEXT and not 0 < limit < TEXT:
        return 0, True
    if limit and bar - TEXT >= limit:
        return limit, True
    return max(bar, limit if limit < bar + TEXT else 0), False


def _draw_by_size(axes: Any, swept: Sequence[Measurement]) -> None:
    sizes = [each.bytes_per_second / each.samples_per_second for each in swept]
    axes.plot(sizes, [each.bytes_per_second for each in swept], "o-", color=OURS, label="ffrecord, cached")
    limits = [each.limit for each in swept if each.limit is not None]
    if limits:
        axes.axhline(max(limits), color=LIMIT, label="limit of this machine")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    axes.set_ylim(bottom=min(each.bytes_per_second for each in swept) / 2)
    axes.set_xlabel("size of a sample")
    axes.set_ylabel("bytes per second")
    _set_byte_ticks(axes)
    axes.yaxis.set_major_formatter(lambda value, _: format_size(value))
    axes.yaxis.set_minor_formatter(lambda *_: "")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2, borderpad=0)


def _mark_size(axes: Any, size: float) -> None:
    """Mark the size of the dataset's samples."""
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, size / 1.5), max(high, size * 1.5))
    axes.axvline(size, color=SHARE, linestyle=":", linewidth=1)
    left = size > np.sqrt(low * high)
    style = {"textcoords": "offset points", "fontsize": 7, "ha": "right" if left else "left"}
    axes.annotate("this dataset", (size, axes.get_ylim()[0]), xytext=(-3 if left else 3, 3), **style)
    _set_byte_ticks(axes)


def _draw_latencies(axes: Any, found: Sequence[Measurement]) -> None:
    for each in found:
        milliseconds = np.array(each.quantiles) * 1e3
        shares = np.linspace(0, 1, len(milliseconds))
        axes.plot(milliseconds, shares, LINES[each.way], color=COLOURS[each.way], label=each.way)
        axes.plot([each.latencies[name] * 1e3 for name in ("50 %", "99 %")], [0.5, 0.99], "o", color=COLOURS[each.way])
    low = min(each.quantiles[1] for each in found) * 1e3 / 1.2
    high = max(each.latencies["99 %"] for each in found) * 1e3 * 1.5
    ticker = require("matplotlib.ticker", "plot", "a figure")
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("time of a batch, ms")
    axes.set_ylabel("share of batches")
    axes.set_yticks([0, 0.5, 0.75, 0.99], ["0", "50 %", "75 %", "99 %"])
    axes.xaxis.set_major_locator(ticker.LogLocator(10, (1, 2, 5) if high / low < 100 else (1,), numticks=8))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_ylim(0, 1.04)
    # The legend stands outside: the lines may run anywhere inside.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(found), borderaxespad=0.2, borderpad=0)


def _set_rate_ticks(axis: Any, most: int) -> None:
    axis.set_major_formatter(lambda value, _: format_size(value))
    axis.set_major_locator(require("matplotlib.ticker", "plot", "a figure").MaxNLocator(most))


def _shorten_number(number: float) -> str:
    """Shorten a number: 12,300 becomes "12.3k"."""
    if number < 1000:
        return f"{number:.3g}"
    return f"{number / 1e6:.3g}M" if number >= 999_500 else f"{number / 1e3:.3g}k"


def _set_title(made: Any, text: str) -> None:
    made.suptitle(text, x=0.01, ha="left", fontsize=STYLE["axes.labelsize"])


def _short_name(source: str, most: int) -> str:
    return truncate(os.path.basename(os.path.normpath(source)), most)

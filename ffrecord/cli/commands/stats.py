"""`ffrecord stats`: sizes of the records, and facts about each column."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from ffrecord.cli import column_facts
from ffrecord.cli.format_values import classes_of
from ffrecord.cli.partial import PartialDataset, open_partial
from ffrecord.cli.record_sizes import Sizes, collect_sizes, format_edges
from ffrecord.cli.sources import add_source, local_path_of, whole_number
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, format_count, format_fact, format_size, truncate
from ffrecord.errors import FFRecordError
from ffrecord.reading.indices import spread_indices

BAR = 40  # characters of the longest bar
BLOCKS, PLAIN = ("█", "▏"), ("#", "|")  # characters of a bar, and of a bar that is too short for one
DAMAGED_SHOWN = 5
VALUE_MOST = 40  # characters of a frequent value

EXAMPLES = """\
examples:
  ffrecord stats data/train
  ffrecord stats data/train --samples 100000 --json
  ffrecord stats data/train --plot sizes.svg

Of more than 16.7 million records, percentiles and bars are estimated from one in "histogram_of_every" (of --json).
Figures are 3.4 inches wide, as one of two columns of a paper."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the options for samples and figure."""
    parser.epilog = EXAMPLES
    add_source(parser)
    help = "samples to decode for the facts of columns, spread over the dataset (default: %(default)s; 0 for none)"
    parser.add_argument("--samples", type=_count, default=1000, metavar="N", help=help)
    parser.add_argument(
        "--plot",
        type=local_path_of,
        metavar="FILE",
        help="save a histogram of sizes as .png, .svg or .pdf (needs the extra 'plot'); an existing file is replaced",
    )


def _count(text: str) -> int:
    return whole_number(text, 0)


def run(given: argparse.Namespace, out: Output) -> int:
    """Print the facts."""
    if given.plot:
        from ffrecord.cli.plots import check

        check(given.plot)
    with open_partial(given, out) as partial:
        sizes = collect_sizes(partial.store, out)
        without_size = partial.store.n - sizes.count
        samples, damaged = _read_spread_samples(partial, given.samples)
        columns = column_facts.describe_columns(samples, classes_of(partial.store))
    if given.plot:
        from ffrecord.cli.plots import plot_sizes

        plot_sizes(sizes, given.source, given.plot)
    if out.json:
        facts = {"path": given.source, "sizes": {**sizes.facts(), "without_size": without_size}, "columns": columns}
        out.data({**facts, "looked_at": len(samples) + len(damaged), "damaged": damaged, "wrong": partial.wrong})
    else:
        _print(sizes, without_size, columns, out)
        _print_damaged(len(samples), damaged, out)
    return exit_codes.BAD_NEWS if damaged or without_size or partial.wrong else exit_codes.DONE


def _read_spread_samples(partial: PartialDataset, count: int) -> tuple[list[Any], list[dict[str, Any]]]:
    """Read up to `count` samples, evenly spread.

    Returns:
        The samples; and "index" and "error" of those that cannot be read.
    """
    chosen = spread_indices(partial.store.n, count)
    if not chosen:
        return [], []
    try:
        return partial.store.samples(chosen), []
    except (FFRecordError, OSError):  # some cannot be read: read one by one to find them
        samples: list[Any] = []
        damaged: list[dict[str, Any]] = []
        for place in chosen:
            try:
                samples.append(partial.store.sample(place))
            except (FFRecordError, OSError) as error:
                damaged.append({"index": partial.index(place), "error": partial.describe_error(error, place)})
        return samples, damaged


def _print_damaged(good: int, damaged: list[dict[str, Any]], out: Output) -> None:
    if damaged:
        out.line()
        out.line(
            f"{len(damaged):,} of {format_count(good + len(damaged), 'sample')} that were looked at cannot be read:"
        )
        for each in damaged[:DAMAGED_SHOWN]:
            out.line(f"  {each['error']}")
        if len(damaged) > DAMAGED_SHOWN:
            out.line("  … run `ffrecord verify` to see all")


def _print(sizes: Sizes, without_size: int, columns: dict[str, dict[str, Any]], out: Output) -> None:
    out.line(f"{format_count(sizes.count, 'record')}, {format_size(sizes.total)}")
    if without_size:
        out.line(f"{format_count(without_size, 'more record')} cannot be read, or their file was cut before them")
    if sizes.count:
        told = {name: format_size(value) for name, value in sizes.facts()["percentiles"].items()}
        out.wrap("", ", ".join(f"{name} {value}" for name, value in told.items()))
        if sizes.estimated:
            out.line(f"bars and percentiles are {sizes.estimated}")
        out.line()
        _print_bars(sizes, out)
    left = max((len(fact) for facts in columns.values() for fact in facts), default=0)
    for name, facts in columns.items():
        out.line()
        out.line(f"{name}: {facts['kind']}")
        for fact, value in facts.items():
            if fact != "kind":
                total = facts.get("distinct", 0) if fact == "frequent" else 0
                out.wrap(f"  {fact:{left}}  ", _format_stat(value, total))


def _format_stat(value: Any, total: int) -> str:
    """Format a fact. For values with counts, add how many of the `total` distinct values are not shown."""
    if isinstance(value, Mapping):
        more = total - len(value)
        told = ", ".join(f"{truncate(name, VALUE_MOST)}: {count:,}" for name, count in value.items())
        return f"{told}, and {more:,} more" if more > 0 else told
    return f"{value:.6g}" if isinstance(value, float) else format_fact(value)


def _print_bars(sizes: Sizes, out: Output) -> None:
    histogram = sizes.histogram
    most = max(histogram)
    labels = [f"from {edge}" for edge in format_edges(sizes.edges)[:-1]]
    left = max(map(len, labels))
    room = max(5, min(BAR, out.width - left - 14))
    full, thin = BLOCKS if _can_print("".join(BLOCKS)) else PLAIN
    for label, count in zip(labels, histogram, strict=True):
        bar = full * round(room * count / most) if count else ""
        out.line(f"{label:>{left}}  {count:>10,}  {bar or (thin if count else '')}")


def _can_print(text: str) -> bool:
    """Tell whether standard output can encode these characters. Without a locale it cannot."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True

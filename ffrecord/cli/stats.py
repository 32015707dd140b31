"""`ffrecord stats`: how large the records are, and what is in each column."""

import argparse
from typing import Any

import numpy as np

from ffrecord.cli import column_facts, exits
from ffrecord.cli.output import Output, in_bytes
from ffrecord.cli.sizes import Sizes, labels_of, sizes_of
from ffrecord.cli.sources import add_source, open_source, whole_number
from ffrecord.store import Store

BAR = 40  # characters of the longest

EXAMPLES = """\
examples:
  ffrecord stats data/train
  ffrecord stats data/train --samples 100000 --json
  ffrecord stats data/train --plot sizes.svg"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, and of how many samples."""
    parser.epilog = EXAMPLES
    add_source(parser)
    help = "decode so many, spread over the dataset, for the facts of columns (default: %(default)s; 0 for none)"
    parser.add_argument("--samples", type=_count, default=1000, metavar="N", help=help)
    parser.add_argument(
        "--plot", metavar="FILE", help="save the histogram of sizes as .png, .svg or .pdf (needs the extra 'plot')"
    )


def _count(text: str) -> int:
    return whole_number(text, 0)


def run(given: argparse.Namespace, out: Output) -> int:
    """Print the facts."""
    with open_source(given) as store:
        sizes = sizes_of(store, out)
        columns = column_facts.of_samples(_spread(store, given.samples))
    if given.plot:
        from ffrecord.cli.plots import plot_sizes

        plot_sizes(sizes, given.source, given.plot)
    if out.json:
        out.data({"path": given.source, "sizes": sizes.facts(), "columns": columns})
        return exits.DONE
    _print(sizes, columns, out)
    return exits.DONE


def _spread(store: Store, count: int) -> list[Any]:
    """Up to so many samples, evenly spread."""
    count = min(count, store.n)
    if count < 1:
        return []
    return store.samples(np.unique(np.linspace(0, store.n - 1, count).astype(np.int64)))


def _print(sizes: Sizes, columns: dict[str, dict[str, Any]], out: Output) -> None:
    out.line(f"{sizes.count:,} records, {in_bytes(sizes.total)}")
    if sizes.count:
        told = {name: in_bytes(value) for name, value in sizes.facts()["percentiles"].items()}
        out.line(", ".join(f"{name} {value}" for name, value in told.items()))
        out.line()
        _bars(sizes, out)
    for name, facts in columns.items():
        out.line()
        out.line(f"{name}: {facts['kind']}")
        for fact, value in facts.items():
            if fact != "kind":
                out.line(f"  {fact:10}  {value if not isinstance(value, float) else f'{value:.6g}'}")


def _bars(sizes: Sizes, out: Output) -> None:
    most = max(sizes.histogram)
    labels = [f"from {edge}" for edge in labels_of(sizes.edges)[:-1]]
    left = max(map(len, labels))
    room = max(5, min(BAR, out.width - left - 14))
    for label, count in zip(labels, sizes.histogram, strict=True):
        bar = "█" * round(room * count / most) if count else ""
        out.line(f"{label:>{left}}  {count:>10,}  {bar or ('▏' if count else '')}")

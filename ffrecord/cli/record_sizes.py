"""Sizes of the records of a store."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.cli.terminal.output import Output, format_size
from ffrecord.reading.store import Store

CHUNK = 1 << 20  # records whose sizes are asked for together
KEPT_MOST = 16 << 20  # sizes kept; of more records only every nth is kept, for percentiles
BINS_LEAST, BINS, BINS_MOST = 6, 12, 16
EMPTY = 0.05  # share of the last bin that may lie beyond the largest size
PERCENTILES = {"min": 0, "1 %": 1, "25 %": 25, "median": 50, "75 %": 75, "99 %": 99, "max": 100}


@dataclass(frozen=True)
class Sizes:
    """The sizes of all records of a store.

    Attributes:
        count, total: number of readable records, and their bytes in all.
        kept: sizes in ascending order: of all records, or of every `step`th and of the smallest and the largest one.
        step: 1, or the distance of the records in `kept`.
        edges: edges of the histogram, [k + 1], bytes.
    """

    count: int
    total: int
    kept: npt.NDArray[np.int64]
    step: int
    edges: list[int]

    @property
    def histogram(self) -> list[int]:
        """The number of records between each two `edges`."""
        return [int(count) for count in self.counts(self.edges)]

    @property
    def estimated(self) -> str:
        """The basis of an estimate, in words; "" if every record was counted."""
        return f"estimated from one in {self.step:,} records" if self.step > 1 else ""

    def counts(self, edges: Sequence[float]) -> npt.NDArray[np.int64]:
        """Count the records with edges[i] <= size < edges[i + 1].

        If only every `step`th record was kept, the counts are estimates. The smallest and the largest one count once.

        Args:
            edges: edges of the bins, ascending.

        Returns:
            Counts, [len(edges) - 1]; they add up to `count` if the edges hold every size.
        """
        if self.step == 1 or not self.count:
            return _count_between(self.kept, edges)
        sampled, others = _count_between(self.kept[1:-1], edges), max(self.count - 2, 0)
        ends = np.cumsum(sampled) * (others / max(len(self.kept) - 2, 1))
        return np.diff(np.round(ends), prepend=0).astype(np.int64) + _count_between(
            self.kept[[0, -1][: self.count]], edges
        )

    def facts(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        told: dict[str, Any] = {"records": self.count, "bytes": self.total}
        if self.count:
            told["mean"] = self.total / self.count
            told["percentiles"] = {name: float(np.percentile(self.kept, at)) for name, at in PERCENTILES.items()}
        of_every = {"percentiles_of_every": self.step, "histogram_of_every": self.step}
        return {**told, **of_every, "edges": self.edges, "histogram": self.histogram}


def collect_sizes(store: Store, out: Output) -> Sizes:
    """Collect the sizes of all records of a store."""
    step = max(1, -(-store.n // KEPT_MOST))
    parts, total, count, bounds = [np.zeros(0, np.int64)], 0, 0, []
    with out.progress(store.n, " records", "sizes") as bar:
        for start in range(0, store.n, CHUNK):
            found = store.record_sizes(np.arange(start, min(start + CHUNK, store.n)))
            bar.update(len(found))
            found = found[found >= 0]
            total, count = total + int(found.sum()), count + len(found)
            bounds += [found.min(), found.max()] if len(found) else []
            parts.append(found[-start % step :: step])
    kept = np.concatenate([*parts, np.array([min(bounds), max(bounds)] if bounds and step > 1 else [], np.int64)])
    return Sizes(count, total, np.sort(kept), step, choose_edges(kept))


def _count_between(sizes: npt.NDArray[np.int64], edges: Sequence[float]) -> npt.NDArray[np.int64]:
    return np.histogram(sizes, edges)[0].astype(np.int64) if len(edges) else np.zeros(0, np.int64)


def choose_edges(sizes: npt.NDArray[np.int64]) -> list[int]:
    """Choose about BINS bins, at most BINS_MOST, for some sizes.

    The bins have the same width or, if the largest size is much larger than the smallest, the same ratio.
    """
    if not len(sizes):
        return []
    low, high = int(sizes.min()), int(sizes.max()) + 1
    if high - low > BINS and high / max(low, 1) > 100:
        edges = np.geomspace(max(low, 1), high, BINS + 1)
        edges[0] = low
        return [int(each) for each in np.unique(np.ceil(edges))]
    width, count = choose_bin_width(high - low, BINS_LEAST, BINS, BINS_MOST)
    return [low + width * place for place in range(count + 1)]


def choose_bin_width(values: int, least: int, wanted: int, most: int) -> tuple[int, int]:
    """Choose the width and the number of bins for a range of whole numbers.

    Bins of different widths would look like steps where sizes are spread evenly.
    So would a last bin that is half empty.

    Args:
        values: number of different values.
        least, wanted, most: least, preferred and greatest number of bins.

    Returns:
        (width, count).
    """

    def unlike(width: int) -> tuple[float, float]:
        count, empty = -(-values // width), -values % width / width
        return (empty if empty > EMPTY else 0), abs(math.log(count / wanted))

    width = min((-(-values // count) for count in range(least, most + 1)), key=unlike)
    return width, -(-values // width)


def format_edges(edges: list[int]) -> list[str]:
    """Format the edges so that all labels differ."""
    short = [format_size(each) for each in edges]
    return short if len(set(short)) == len(short) else [f"{each:,} B" for each in edges]

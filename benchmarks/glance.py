"""The picture of the README, docs/plots/glance.svg: `python glance.py RESULTS.jsonl ...`.

The results are those that `report.py` makes the tables of writing and of loading from.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import workloads
from harness import Measurement
from human import per_second
from report import DOCS, load
from report_tables import BLUE, GRAY, reproducible, save

# Title, kind of workload, and the contestants, each with its name in the picture.
PARTS: list[tuple[str, str, type, dict[str, str]]] = [
    (
        "Pack 200,000 small images",
        "write",
        workloads.Packs,
        {
            "DatasetWriter, whole script": "ffrecord",
            "mds, whole script": "MDS",
            "litdata, whole script": "LitData",
            "ffcv, whole script": "FFCV",
        },
    ),
    (
        "Load them shuffled",
        "loader",
        workloads.Epochs,
        {"Loader": "ffrecord", "ffcv": "FFCV", "litdata, no workers": "LitData", "mds": "MDS"},
    ),
    (
        "Decode and crop photographs",
        "loader",
        workloads.Crops,
        {"Loader, RandomResizedCrop": "ffrecord", "ffcv": "FFCV", "DataLoader, Pillow": "torch, Pillow"},
    ),
]


def draw(results: Sequence[Path], path: Path) -> None:
    """Draw a panel for each part: bars of samples per second."""
    figure, panels = plt.subplots(1, len(PARTS), figsize=(9.6, 2.1), layout="constrained")
    for axes, (title, bench, kind, names) in zip(panels, PARTS, strict=True):
        found = {m.contestant: m for m in load(results, bench)[0] if isinstance(m.workload, kind)}
        panel(axes, title, {label: found[name] for name, label in names.items()})
    figure.supxlabel("samples per second: more is better", size=9)
    save(figure, path)


def panel(axes: plt.Axes, title: str, measured: dict[str, Measurement]) -> None:
    """Draw bars from the first to the last, each with its number."""
    rates = [m.count / m.median for m in measured.values()]
    colors = [BLUE if label == "ffrecord" else GRAY for label in measured]
    bars = axes.barh(list(measured), rates, color=colors)
    axes.bar_label(bars, [per_second(rate) for rate in rates], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.set(title=title, xticks=[], xlim=(0, 1.45 * max(rates)))
    axes.title.set(size=10, weight="bold")
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture from the results that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, default=DOCS, help="directory of plots/")
    given = parser.parse_args(arguments)
    reproducible()
    draw(given.results, given.docs / "plots" / "glance.svg")


if __name__ == "__main__":
    main()

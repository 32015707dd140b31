"""Make the tables of the cost of safety: `python safety_report.py RESULTS.jsonl ...`, of runs of bench_safety.py.

They are printed as Markdown; with --page they go between two marks on that page, such as tables/safety.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import workloads
from harness import Measurement
from read_figures import size_name
from report import load
from report_tables import about, markdown, rate
from safety_figures import figures
from write_figures import groups

BEGIN, END = "<!-- made by benchmarks/safety_report.py -->", "<!-- end of what it made -->"


def text(measured: Sequence[Measurement], lines: Sequence[dict[str, Any]]) -> str:
    """Return the report: ratios first, then the times behind them."""
    ratios = [figure.row()[:2] for figure in figures(measured)]
    rates = [
        [described(cache, work) if place == 0 else "", m.contestant, rate(m)]
        for (cache, work), group in groups(measured).items()
        for place, m in enumerate(group.of.values())
    ]
    return "\n\n".join(
        [
            about(lines, measured),
            "How many times as fast the first is as the second: 1 would be safety for nothing.",
            markdown(["", "median (min..max)"], ratios),
            markdown(["", "", "median (slowest–fastest round)"], rates),
        ]
    )


def described(cache: str, work: Any) -> str:
    """Describe the work and the size of the records."""
    if isinstance(work, workloads.Writes):
        return f"written, {size_name(work.mean)}"
    return f"read, {'cached' if cache == 'hot' else cache}, {size_name(work.mean)}"


def replaced(page: str, made: str) -> str:
    """Return the page with new text between the marks."""
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.split(END, 1)[1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, help="page with the marks; without, it is printed")
    given = parser.parse_args(arguments)
    measured, lines = load(given.results, "safety")
    if not measured:
        raise SystemExit("no results of bench_safety.py there")
    made = text(measured, lines)
    if given.page is None:
        print(made)
    else:
        given.page.write_text(replaced(given.page.read_text(), made))


if __name__ == "__main__":
    main()

"""Put the counts of a run of the tests into docs/guarantees.md and TESTS.md.

    python3 run.py test tests/reliability -m "long or not long" --figures out/figures.jsonl
    python tests/reliability/guarantees.py out/figures.jsonl

The first makes the file, the second keeps it as results.jsonl, headed by the machine, and writes the tables between the
marks of the two pages. The first line of each file of tests says what it guards: "T3 (guarantees G1, G2): ...".
"""

import argparse
import json
import os
import platform
import re
import subprocess
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
TESTS = HERE / "TESTS.md"
SANITIZED = " under sanitizers"
RESULTS = HERE / "results.jsonl"
HEADING = re.compile(
    r'"""(?P<number>T\d+(?:, T\d+)*|Load|Cases|Surface) '
    r'\((?:guarantees? (?P<guards>G\d+(?:, G\d+)*)|all guarantees)\): (?P<does>.*?[.:])(?:\s|"""|$)'
)
ALL = tuple(f"G{i}" for i in range(1, 11))


class Guard(NamedTuple):
    """A file of tests."""

    name: str
    number: str
    guards: tuple[str, ...]
    does: str


def guards() -> list[Guard]:
    """All files of tests here, in the order of their numbers.

    Raises:
        SystemExit: one that does not say what it guards.
    """
    found = [_guard(path) for path in HERE.rglob("test_*.py")]
    return sorted(found, key=lambda guard: (len(guard.number), guard.number, guard.name))


def _guard(path: Path) -> Guard:
    heading = HEADING.match(" ".join(path.read_text().split("\n\n")[0].split()))
    if heading is None:
        raise SystemExit(f"{path}: the first line does not say what it guards: T1 (guarantees G1, G2): What it does.")
    name = path.relative_to(HERE).as_posix()
    guarded = tuple(heading["guards"].split(", ")) if heading["guards"] else ALL
    return Guard(name, heading["number"], guarded, heading["does"])


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of figures; the head of results.jsonl, which has a "date", is the first."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def sanitized(line: dict[str, Any]) -> dict[str, Any]:
    """A line whose figures say that they were counted under AddressSanitizer and UndefinedBehaviorSanitizer."""
    sums = {name if name.endswith(SANITIZED) else name + SANITIZED: number for name, number in line["sums"].items()}
    return {**line, "sums": sums, "most": {}}


def head() -> dict[str, Any]:
    """Of this run: when and where."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "machine": processor[1] if processor else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def test_file(line: dict[str, Any]) -> str:
    """The file of the test of a line, below this directory."""
    return str(line["test"]).split("::")[0].removeprefix("tests/reliability/")


def rendered(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Return the blocks of both pages, by the names of their marks: TESTS.md has "tests", PAGE the others."""
    run, lines = lines[0], lines[1:]
    where = "{machine}, {cpus} CPUs, Linux {kernel}, Python {python}".format(**run)
    seconds = sum(line["seconds"] for line in lines)
    skipped = sum("skipped" in line for line in lines)
    ran = f"{len(lines) - skipped:,} tests, {seconds / 60:.0f} minutes"
    said = f"Of {run['date']}, at commit {run['commit']}, on {where}: {ran}"
    said += f"; {skipped:,} more were skipped, for the reasons in the table of tests." if skipped else "."
    return {"run": said, "figures": _figures(lines), "tests": _tests(lines)}


def _figures(lines: list[dict[str, Any]]) -> str:
    by_file = {guard.name: guard for guard in guards()}
    totals: dict[str, float] = defaultdict(float)
    largest: dict[str, float] = {}
    files: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        for name, number in line["sums"].items():
            totals[name] += number
            files[name].add(test_file(line))
        for name, value in line["most"].items():
            largest[name] = max(value, largest.get(name, value))
            files[name].add(test_file(line))
    shown = {name: f"{number:,.0f}" for name, number in totals.items()}
    shown |= {f"{name}, at most": f"{value:.3g}" for name, value in largest.items()}
    rows = ["| Counted | Number | Guards |", "|---|---:|---|"]
    for name, number in sorted(shown.items()):
        guarded = {
            guard for file in files[name.removesuffix(", at most")] if file in by_file for guard in by_file[file].guards
        }
        rows.append(f"| {name} | {number} | {_in_order(guarded)} |")
    return "\n".join(rows)


def _tests(lines: list[dict[str, Any]]) -> str:
    seconds: dict[str, float] = defaultdict(float)
    passed: dict[str, int] = defaultdict(int)
    skipped: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        seconds[test_file(line)] += line["seconds"]
        passed[test_file(line)] += "skipped" not in line
        skipped[test_file(line)] += Counter({line["skipped"]: 1} if "skipped" in line else {})
    rows = ["| Test | Guards | Does | Passed | Skipped | Seconds |", "|---|---|---|---:|---|---:|"]
    for guard in guards():
        link = f"[{guard.number}]({guard.name})"
        reasons = "; ".join(f"{count:,}: {_cell(reason)}" for reason, count in sorted(skipped[guard.name].items()))
        ran = f"{passed[guard.name]:,} | {reasons} | {seconds[guard.name]:.0f}"
        rows.append(f"| {link} | {_in_order(set(guard.guards))} | {guard.does} | {ran} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """In one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _in_order(guarded: set[str]) -> str:
    if guarded == set(ALL):
        return "all"
    return ", ".join(sorted(guarded, key=lambda name: int(name[1:])))


def pages(blocks: dict[str, str]) -> dict[Path, str]:
    """Return the text of both pages with these blocks between their marks."""
    texts = {PAGE: PAGE.read_text(), TESTS: TESTS.read_text()}
    for name, block in blocks.items():
        page = TESTS if name == "tests" else PAGE
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        texts[page], count = marks.subn(lambda found, block=block: f"{found[1]}{block}\n{found[2]}", texts[page])
        if count != 1:
            raise SystemExit(f"{page}: {count} places for {name}")
    return texts


def main() -> None:
    """Keep the figures, fill the page."""
    parser = argparse.ArgumentParser(description="Put the counts of a run into docs/guarantees.md and TESTS.md.")
    parser.add_argument("figures", nargs="*", type=Path, help="what --figures wrote; without: fill the page again")
    parser.add_argument("--sanitized", nargs="*", type=Path, default=[], help="what it wrote for `run.py sanitize`")
    given = parser.parse_args()
    if given.figures:
        # Of a test that ran twice, the last time counts.
        last = {line["test"]: line for path in given.figures for line in read(path)}
        lines = [head(), *last.values()]
        lines += [sanitized(line) for path in given.sanitized for line in read(path) if "skipped" not in line]
        RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for page, text in pages(rendered(read(RESULTS))).items():
        page.write_text(text)


if __name__ == "__main__":
    main()

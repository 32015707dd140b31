"""What the tests of the benchmarks share: their programs run in a second's worth, and the page made of the results."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CONTEXT = {"bench", "time", "workload", "cache", "checked", "seconds", "commit", "dirty", "machine", "versions", "fs"}
MAKE_TWICE = """
import pathlib, report, sys
page, *arguments = sys.argv[1:]
def made():
    report.main(arguments)
    return pathlib.Path(page).read_text()
raise SystemExit(made() != made())
"""


def smoke(bench: str, directory: Path, *options: str) -> tuple[str, Path]:
    """What bench_BENCH.py prints, and the file of its results, which is all that it leaves.

    Args:
        bench: its name.
        directory: an empty one.
        options: more than those that keep it short.
    """
    out = directory / "smoke.jsonl"
    command = [sys.executable, str(BENCHMARKS / f"bench_{bench}.py"), "--smoke", "--rounds", "5", "--out", str(out)]
    done = subprocess.run([*command, "--data", str(directory), *options], capture_output=True, text=True)
    if "is not installed: there is nothing to read from" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(directory.iterdir()) == [out]  # what it wrote is deleted
    return done.stdout, out


def results(out: Path, *more: str) -> list[dict]:
    """Those of a file. Each has its context, what else is named, and no path of this machine."""
    lines = out.read_text().splitlines()
    assert not [line for line in lines if str(Path.home()) in line]
    found = [json.loads(line) for line in lines]
    for result in found:
        assert set(result) >= CONTEXT | set(more)
        assert result["checked"] is True and min(result["seconds"]) > 0
    return found


def check_tails(result: dict) -> None:
    """Compare the waits for batches with one another: a percentile is none below an earlier one."""
    tails = result["details"]["tails"]
    percentiles = [tails[name] for name in ("p50", "p99", "p99.9") if name in tails]
    assert 0 < percentiles[0] <= percentiles[-1] <= max(tails["longest"])
    assert percentiles == sorted(percentiles)
    assert tails["count"] > 0 and len(tails["first"]) == len(result["seconds"]) >= len(tails["longest"]) > 0


def program(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The end of one that finds the modules of the benchmarks."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True)


def reported(directory: Path, page: str, *found: Path) -> str:
    """Return the tables that report.py makes of results; made again they are the same.

    Args:
        directory: where its pages and its `plots` are made.
        page: the page to return, such as "reading.md".
        found: files of results.
    """
    pytest.importorskip("matplotlib")
    tables = directory / "tables"
    shutil.copytree(BENCHMARKS / "tables", tables, dirs_exist_ok=True)
    done = program(MAKE_TWICE, tables / page, *found, "--tables", tables, "--plots", directory / "plots")
    assert done.returncode == 0, done.stderr
    return (tables / page).read_text().split("<!-- made by benchmarks/report.py -->")[1]

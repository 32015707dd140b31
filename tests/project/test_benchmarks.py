"""The benchmarks run, check their answers, and record what they measured on. Their numbers are not looked at."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import benchmark_runs
import children
import pytest
from benchmark_runs import BENCHMARKS, CONTEXT

from ffrecord import _crc

TABLES = sorted((BENCHMARKS / "tables").glob("*.md"))
RATIO = r"^\| .* / .* \| (\d+\.\d+ \(\d+\.\d+\.\.\d+\.\d+\)) \|"


@pytest.fixture(scope="module")
def crc_smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict]]:
    """What bench_crc.py --smoke prints, and the results it writes."""
    if shutil.which("cc") is None:
        pytest.skip("bench_crc.py needs a C compiler")
    out = tmp_path_factory.mktemp("results") / "smoke.jsonl"
    command = [sys.executable, str(BENCHMARKS / "bench_crc.py"), "--smoke", "--out", str(out)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout, [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.long
def test_crc_measures_every_kernel(crc_smoke: tuple[str, list[dict]]) -> None:
    printed, results = crc_smoke
    workloads = {json.dumps(result["workload"]) for result in results}
    measured = {(result["contestant"], json.dumps(result["workload"])) for result in results}
    assert len(measured) == len(results)
    for kernel in (*_crc.kernels(), "memcpy"):
        assert {(kernel, workload) for workload in workloads} <= measured
        assert kernel in printed


@pytest.mark.long
def test_crc_results_have_context_and_rounds(crc_smoke: tuple[str, list[dict]]) -> None:
    for result in crc_smoke[1]:
        assert set(result) >= CONTEXT
        assert result["checked"] is True
        assert len(result["seconds"]) >= 5
        assert 0 < result["min_seconds"] <= result["median_seconds"] <= result["max_seconds"]
        assert result["crc_kernel"] == _crc.kernel()
        assert result["machine"]["cpu"]
        assert str(Path.home()) not in json.dumps(result)


@pytest.mark.long
@pytest.mark.parametrize(("rival", "figure"), [("isa-l", r"isa-l at 16 KiB"), ("libdeflate", r"libdeflate at 64 B")])
def test_crc_prints_its_figures_of_merit(crc_smoke: tuple[str, list[dict]], rival: str, figure: str) -> None:
    printed, _ = crc_smoke
    if f"{rival}: not installed" in printed:
        pytest.skip(f"{rival} is not installed")
    assert re.search(rf"^{_crc.kernel()} / {figure} independent: \d+\.\d\d$", printed, re.MULTILINE)


def test_order_measures_every_order(tmp_path: Path) -> None:
    out = tmp_path / "smoke.jsonl"
    command = [sys.executable, str(BENCHMARKS / "bench_order.py"), "--smoke", "--rounds", "5", "--out", str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert {result["contestant"] for result in results} >= {"random-1", "block-1", "sequential-1", "numpy: permutation"}
    for result in results:
        assert set(result) >= CONTEXT
        assert result["contestant"] in printed
        assert result["samples_per_second"] > 0


@pytest.mark.long
def test_threads_measures_each_number_of_threads(tmp_path: Path) -> None:
    out = tmp_path / "smoke.jsonl"
    command = [sys.executable, str(BENCHMARKS / "bench_threads.py"), "--smoke", "--rounds", "5", "--out", str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    results = [json.loads(line) for line in out.read_text().splitlines()]
    names = {f"with the GIL, {threads}" for threads in (1, 2)}
    assert {(each["details"]["part"], each["contestant"]) for each in results} == {
        (part, name) for part in ("reader", "loader") for name in names
    }
    for result in results:
        assert set(result) >= CONTEXT
        assert f"{result['contestant']} thread" in printed


def test_numbers_are_as_people_write_them() -> None:
    program = """
from human import duration, per_second, three
print([three(x) for x in (0, 5, 12.34, 353.4, 999.7, 29_300.0, 0.0219, 0.0000834)])
print([per_second(x) for x in (0.5, 252, 999.6, 1_230, 113_900, 999_600, 4_410_000, 29_300_000)])
print([duration(x) for x in (85e-9, 95.23e-6, 999.6e-6, 0.0012, 3.416, 75)])
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        "['0', '5.00', '12.3', '353', '1,000', '29,300', '0.0219', '0.0000834']",
        "['0.500/s', '252/s', '1.00 k/s', '1.23 k/s', '114 k/s', '1.00 M/s', '4.41 M/s', '29.3 M/s']",
        "['85 ns', '95.2 µs', '1.00 ms', '1.20 ms', '3.42 s', '75.0 s']",
    ]


def test_tables_have_no_powers_of_ten() -> None:
    docs = BENCHMARKS.parent / "docs"
    pages = [docs / "benchmarks.md", docs / "guarantees.md", *TABLES]
    assert [line for page in pages for line in re.findall(r"^\|.*\de[+-]\d.*$", page.read_text(), re.MULTILINE)] == []


def test_the_page_shows_figures_of_the_tables() -> None:
    """Its figures and its losses are rows of the tables, and it leads to each of these."""
    page = (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
    shown = re.findall(r"\| (\d+\.\d+ \(\d+\.\d+\.\.\d+\.\d+\)) \|$", page, re.MULTILINE)
    measured = {ratio for table in TABLES for ratio in re.findall(RATIO, table.read_text(), re.MULTILINE)}
    assert len(shown) >= 15
    assert [ratio for ratio in shown if ratio not in measured] == []
    assert sum(float(ratio.split()[0]) < 1 for ratio in shown) >= 5
    assert [table.name for table in TABLES if f"](../benchmarks/tables/{table.name})" not in page] == []


def test_plots_are_for_light_and_dark_pages() -> None:
    plots = BENCHMARKS.parent / "docs" / "plots"
    made = {path.name for path in plots.glob("*.svg")} - {"sizes.svg", "bench.svg"}  # those of the command
    assert made >= {"glance.svg", "read_cached.svg"}
    for name in made:
        text = (plots / name).read_text()
        assert "prefers-color-scheme: dark" in text and "#ffffff" not in text and "#000000" not in text, name


def test_rounds_have_a_minimum() -> None:
    command = [sys.executable, str(BENCHMARKS / "bench_crc.py"), "--smoke", "--rounds", "4"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert "--rounds is 4, expected >= 5" in result.stderr


def test_a_wrong_answer_is_not_measured() -> None:
    program = """
import harness
def check(): raise harness.WrongAnswerError("liar: 1, expected 2")
liar = harness.Contestant("liar", lambda: print("timed"), check)
harness.measure([liar], 5)
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "WrongAnswerError: liar: 1, expected 2" in result.stderr


@pytest.fixture(scope="module")
def read_smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What bench_read.py --smoke prints, and the file of its results."""
    if shutil.which("cc") is None:
        pytest.skip("bench_read.py needs a C compiler")
    if children.SANITIZER:
        pytest.skip("bench_read.py measures with little memory, of which the sanitizer needs more")
    return benchmark_runs.smoke("read", tmp_path_factory.mktemp("read"))


def test_read_results_have_context_and_rounds(read_smoke: tuple[str, Path]) -> None:
    for result in benchmark_runs.results(read_smoke[1], "read_ahead_kb", "details"):
        assert result["cache"] in ("hot", "cold")
        assert result["contestant"] == "forked" or len(result["seconds"]) >= 5
        assert result["details"]["role"] in ("ours", "peer", "original", "limit")
        if result["workload"]["kind"] == "Reads" and not result["contestant"].startswith("fio"):
            benchmark_runs.check_tails(result)


def test_read_prints_its_figures(read_smoke: tuple[str, Path]) -> None:
    printed, _ = read_smoke
    for figure in (
        r"cached 4 KiB: read auto / original, \w+ loop +\S+ \(\S+\) +>= 2 ",
        r"cached 4 KiB: read_packed auto / C loop, pread +\S+ \(\S+\) +>= 0.85 ",
        r"sequential, cached 110 kB: iteration auto / C loop, pread ",
        r"one record of 3 kB, cached: time of \[i\] mmap / os.pread, zlib.crc32 +\S+ \(\S+\) +<= 0.6 ",
        r"open, 20,000 samples +\S+ ms \(\S+\) +<= 40 ms ",
    ):
        assert re.search(figure, printed), figure


def test_read_says_what_it_does_not_measure(read_smoke: tuple[str, Path]) -> None:
    printed, _ = read_smoke
    for package in ("lmdb", "array_record", "bagz"):
        there = importlib.util.find_spec(package) is not None
        assert there != (f"{package} is not installed, not measured" in printed)
    assert (shutil.which("fio") is None) == ("NOT MEASURED: fio" in printed)


def test_read_refuses_a_contestant_with_other_bytes(tmp_path: Path) -> None:
    program = f"""
import contextlib, pathlib, read_data, read_ways, workloads
records = read_data.make_records(workloads.Reads(100, 4, 1000))
files = read_data.make_files(pathlib.Path({str(tmp_path)!r}), records)
data = bytearray(files.ffr.read_bytes())
data[-1] ^= 1
files.ffr.write_bytes(data)
read_ways.ours("read", "pread", False).check_opened(files, records, records.batches())
"""
    result = benchmark_runs.program(program)
    assert result.returncode == 1
    assert re.search(r"WrongAnswerError: read pread unchecked: record 9 of .* has other bytes", result.stderr)


def test_cold_is_cold(tmp_path: Path) -> None:
    program = f"""
import pathlib, coldness
path = pathlib.Path({str(tmp_path)!r}, "file")
path.write_bytes(bytes(1 << 20))
if not coldness.on_disk(path.parent):
    raise SystemExit(77)
coldness.warm(path)
print(coldness.resident(path))
coldness.evict([path])
print(coldness.resident(path))
"""
    result = benchmark_runs.program(program)
    if result.returncode == 77:
        pytest.skip("no storage behind the temporary directory")
    assert result.stdout.split() == ["1.0", "0.0"], result.stderr


def compare(before: Path, after: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "compare.py"), str(before), str(after)]
    return subprocess.run(command, capture_output=True, text=True)


def test_compare(read_smoke: tuple[str, Path], tmp_path: Path) -> None:
    lines = read_smoke[1].read_text().splitlines()
    result = json.loads(lines[0])
    for name in ("median_seconds", "min_seconds", "max_seconds"):
        result[name] /= 1000
    faster = tmp_path / "faster.jsonl"
    faster.write_text("\n".join([json.dumps(result), *lines[1:]]))
    same, other = compare(read_smoke[1], read_smoke[1]), compare(read_smoke[1], faster)
    assert "faster" not in same.stdout and "slower" not in same.stdout
    assert re.search(rf"hot: {result['contestant']} .* 1000.00 +faster$", other.stdout, re.MULTILINE)


def test_compare_refuses_other_workloads(read_smoke: tuple[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(read_smoke[1].read_text().replace('"mean": 110000', '"mean": 110001'))
    result = compare(read_smoke[1], other)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "in one file only" in result.stderr and "110001" in result.stderr


def test_report(read_smoke: tuple[str, Path], tmp_path: Path) -> None:
    made = benchmark_runs.reported(tmp_path, "reading.md", read_smoke[1])
    assert made.count("\n### Cached, random batches\n") == 1
    assert made.count("\n#### Cached, random batches: waits for a batch, 4 KiB\n") == 1
    assert (tmp_path / "plots" / "read_cached.svg").read_text().count("limit: C loop of pread") >= 1


def test_report_of_results_without_waits(read_smoke: tuple[str, Path], tmp_path: Path) -> None:
    """Those of before 2026-11-26: the same tables, except for waits."""
    old = tmp_path / "old.jsonl"
    lines = [json.loads(line) for line in read_smoke[1].read_text().splitlines()]
    for line in lines:
        line["details"].pop("tails", None)
    old.write_text("\n".join(map(json.dumps, lines)))
    made, without = (benchmark_runs.reported(tmp_path, "reading.md", found) for found in (read_smoke[1], old))
    parts = [part for part in made.split("\n\n") if ": waits for a batch" not in part and "| p50 |" not in part]
    assert without == "\n\n".join(parts) != made


@pytest.mark.long
def test_safety_measures_each_with_and_without(tmp_path: Path) -> None:
    _, out = benchmark_runs.smoke("safety", tmp_path)
    results = benchmark_runs.results(out)
    assert all(result["bench"] == "safety" and len(result["seconds"]) == 5 for result in results)
    contestants = {result["contestant"] for result in results}
    assert contestants >= {"read auto", "read auto unchecked", "FileWriter", "FileWriter without fsync"}
    assert contestants >= {"plain writes", "plain writes, fsync", "DatasetWriter", "DatasetWriter without fsync"}
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- made by benchmarks/safety_report.py -->\nold\n<!-- end of what it made -->\nafter\n")
    report = [sys.executable, str(BENCHMARKS / "safety_report.py"), str(out)]
    subprocess.run([*report, "--page", str(page)], check=True)
    printed = subprocess.run(report, capture_output=True, text=True, check=True).stdout
    assert page.read_text().splitlines()[0] == "before" and page.read_text().splitlines()[-1] == "after"
    assert printed.strip() in page.read_text() and "old" not in page.read_text()
    assert "| cached 4 KiB: read auto / read auto unchecked | " in printed
    assert "| written 110 kB: FileWriter / FileWriter without fsync | " in printed

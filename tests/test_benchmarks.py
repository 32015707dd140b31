"""The benchmarks run, check their answers, and record what they measured on. Their numbers are not looked at."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ffrecord import _crc

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CONTEXT = {"bench", "time", "workload", "cache", "checked", "seconds", "commit", "dirty", "machine", "versions", "fs"}


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


def test_crc_measures_every_kernel(crc_smoke: tuple[str, list[dict]]) -> None:
    printed, results = crc_smoke
    workloads = {json.dumps(result["workload"]) for result in results}
    measured = {(result["contestant"], json.dumps(result["workload"])) for result in results}
    assert len(measured) == len(results)
    for kernel in (*_crc.kernels(), "memcpy"):
        assert {(kernel, workload) for workload in workloads} <= measured
        assert kernel in printed


def test_crc_results_have_context_and_rounds(crc_smoke: tuple[str, list[dict]]) -> None:
    for result in crc_smoke[1]:
        assert set(result) >= CONTEXT
        assert result["checked"] is True
        assert len(result["seconds"]) >= 5
        assert 0 < result["min_seconds"] <= result["median_seconds"] <= result["max_seconds"]
        assert result["crc_kernel"] == _crc.kernel()
        assert result["machine"]["cpu"]
        assert str(Path.home()) not in json.dumps(result)


@pytest.mark.parametrize(("rival", "figure"), [("isa-l", r"isa-l at 16 KiB"), ("libdeflate", r"libdeflate at 64 B")])
def test_crc_prints_its_figures_of_merit(crc_smoke: tuple[str, list[dict]], rival: str, figure: str) -> None:
    printed, _ = crc_smoke
    if f"{rival}: not installed" in printed:
        pytest.skip(f"{rival} is not installed")
    assert re.search(rf"^{_crc.kernel()} / {figure} independent: \d+\.\d\d$", printed, re.MULTILINE)


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

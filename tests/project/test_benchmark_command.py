"""bench_command.py runs, checks answers, records what it measured on, and its report is made."""

import json
import re
import subprocess
import sys
from pathlib import Path

import benchmark_runs
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CONTEXT = {"bench", "time", "workload", "cache", "checked", "seconds", "commit", "dirty", "machine", "versions", "fs"}


def smoke(directory: Path, *options: str) -> tuple[str, Path]:
    """What it prints, and the file of its results."""
    out = directory / "smoke.jsonl"
    command = [sys.executable, str(BENCHMARKS / "bench_command.py"), "--smoke", "--rounds", "5", "--out", str(out)]
    done = subprocess.run([*command, "--data", str(directory), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(directory.iterdir()) == [out]  # what it wrote is deleted
    return done.stdout, out


def check(out: Path, contestants: set[str]) -> None:
    results = [json.loads(line) for line in out.read_text().splitlines()]
    for result in results:
        assert set(result) >= CONTEXT and result["bench"] == "command" and len(result["seconds"]) == 5
        assert str(Path.home()) not in json.dumps(result)
    assert {result["contestant"] for result in results} >= contestants


@pytest.mark.long
def test_quick_parts_and_the_report(tmp_path: Path) -> None:
    printed, out = smoke(tmp_path, "--part", "import,cached")
    check(out, {"import ffrecord", "Python alone", "verify, 1 CPU", "CRC-32 of memory", "CRC-32 of a mapping"})
    assert re.search(r"import ffrecord +\S+ ms \(\S+\) +<= 60 ms ", printed)
    assert re.search(r"verify, cached 110 kB, 1 CPU +\S+ GB/s \(\S+\) +>= 10 GB/s ", printed)
    made = benchmark_runs.reported(tmp_path, "command.md", out)
    assert "### Figures of the command and their targets" in made
    assert "| cached, 110 kB, 0.0024 GB | verify, 1 CPU | " in made


@pytest.mark.long
def test_all_parts(tmp_path: Path) -> None:
    printed, out = smoke(tmp_path)
    wanted = {"ffrecord info", "ffrecord view", "Python and numpy", "verify, the whole process", "direct reads"}
    check(out, wanted)
    assert re.search(r"ffrecord info, 500 samples, 50 shards +\S+ ms \(\S+\) +<= 300 ms ", printed)
    assert re.search(r"ffrecord view, 10,000 samples: first page +\S+ ms \(\S+\) +<= 500 ms ", printed)
    assert re.search(r"cold 110 kB: verify / .* >= 0.9 ", printed)


def test_a_wrong_answer_ends_it(tmp_path: Path) -> None:
    """A file with other records than those that were to be verified."""
    program = f"""
import pathlib, command_verify, read_data, workloads
path = pathlib.Path({str(tmp_path)!r}, "a.ffr")
read_data.write_ffr(path, read_data.make_records(workloads.Reads(1000, 1, 10_000)))
command_verify.verify(path, read_data.make_records(workloads.Reads(1000, 1, 11_000)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True)
    assert done.returncode == 1
    assert "WrongAnswerError: records is 10, expected 11" in done.stderr

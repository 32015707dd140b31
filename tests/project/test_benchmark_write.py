"""bench_write.py runs, refuses wrong answers, records what it measured on, and its report is made."""

import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import benchmark_runs
import pytest
from benchmark_runs import BENCHMARKS


@pytest.fixture(scope="module")
def write_smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What bench_write.py --smoke prints, and the file of its results."""
    if shutil.which("cc") is None:
        pytest.skip("bench_write.py needs a C compiler")
    return benchmark_runs.smoke("write", tmp_path_factory.mktemp("write"), "--writers", sys.executable)


@pytest.mark.long
def test_write_results_have_context_and_rounds(write_smoke: tuple[str, Path]) -> None:
    kinds = set()
    for result in benchmark_runs.results(write_smoke[1], "details", "not_measured"):
        kinds.add(result["workload"]["kind"])
        assert len(result["seconds"]) >= (1 if result["workload"]["kind"] == "Growth" else 5)
        assert result["details"]["role"] in ("ours", "peer", "original", "plain", "limit")
    pictures = set() if "NOT MEASURED: folders of pictures" in write_smoke[0] else {"Pictures"}
    assert kinds == {"Writes", "Packs", "Growth"} | pictures


@pytest.mark.long
def test_write_prints_its_figures(write_smoke: tuple[str, Path]) -> None:
    printed, _ = write_smoke
    for figure in (
        r"256 B: write_one / original, Python loop +\S+ \(\S+\) +>= 4 ",
        r"256 B: write_one / plain writes +\S+ \(\S+\) +>= 0.8 ",
        r"256 B: write_many / plain writes +\S+ \(\S+\) +>= 1 ",
        r"110 kB: write_one / .* >= 2 ",
        r"10,000 samples less 1,000: private memory of the parent +\S+ MB \(\S+\) +<= 1.012 MB ",
    ):
        assert re.search(figure, printed), figure


@pytest.mark.long
def test_write_says_what_it_does_not_measure(write_smoke: tuple[str, Path]) -> None:
    printed, out = write_smoke
    for package in ("lmdb", "array_record", "bagz"):
        there = importlib.util.find_spec(package) is not None
        assert there != (f"{package} is not installed, not measured" in printed)
    missing = json.loads(out.read_text().splitlines()[-1])["not_measured"]
    for name, module in {"ffcv": "ffcv", "mds": "streaming", "litdata": "litdata"}.items():
        # One that is there without what it needs is not measured, either.
        done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True)
        assert (done.returncode == 0) == (name not in missing) == (f"{name}: not measured, " not in printed)
        assert done.returncode == 0 or done.stderr.splitlines()[-1].split(": ")[-1] in missing[name]


def test_write_refuses_a_file_with_other_bytes(tmp_path: Path) -> None:
    program = f"""
import pathlib, write_data, write_timing, write_ways, workloads
def damaged(path, source):
    write_ways.one_by_one(path, source)
    data = bytearray(path.read_bytes())
    data[{{}}] ^= 1
    path.write_bytes(data)
source = write_data.make_source(workloads.Writes(100, 4, 1000))
way = write_ways.Way("liar", "ours", damaged, write_data.check_ffr)
write_timing.contestant(way, source, pathlib.Path({str(tmp_path)!r})).check()
"""
    for where, error in ((-1, r"wrong bytes, the first at \d+ of the records"), (20, "CRC-32")):
        result = benchmark_runs.program(program.replace("{}", str(where)))
        assert result.returncode == 1
        assert re.search(f"WrongAnswerError: liar: .*{error}", result.stderr), result.stderr
    assert not list(tmp_path.iterdir())


def test_packing_that_loses_or_changes_a_sample_is_refused(tmp_path: Path) -> None:
    program = f"""
import pathlib, workloads, write_cifar
directory = pathlib.Path({str(tmp_path)!r})
write_cifar.make(directory, workloads.Packs(10))
data = write_cifar.Cifar(directory, 10)
samples = [data[index] for index in reversed(range(10))]
data.check("all", samples)
other = [(1 - samples[0][0], samples[0][1])]
for name, found in (("lost", samples[1:]), ("twice", samples + samples[:1]), ("other", other)):
    try:
        data.check(name, found)
    except write_cifar.WrongAnswerError as error:
        print(error)
"""
    lines = benchmark_runs.program(program).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["lost", "twice", "other"]


@pytest.mark.long
def test_report_of_writing(write_smoke: tuple[str, Path], tmp_path: Path) -> None:
    made = benchmark_runs.reported(tmp_path, "writing.md", write_smoke[1])
    assert made.count("### Images packed by two workers") == 1
    assert (tmp_path / "plots" / "write_files.svg").read_text().count("ours, write_one") >= 1


def test_peers_of_writing_have_an_environment_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent / "tests" / "project"))
    monkeypatch.chdir(BENCHMARKS.parent)
    run = importlib.import_module("run_tasks")
    environment, bench = run.commands("bench", ["write", "--smoke"])
    assert all("bench" in run.parts("bench", [name]) for name in ("read", "write", "loader"))
    assert environment == [str(run.PYTHON), str(BENCHMARKS / "write_environment.py")]
    assert bench == [str(run.PYTHON), str(BENCHMARKS / "bench_write.py"), "--smoke"]
    assert run.commands("bench", ["loader"])[0] == environment

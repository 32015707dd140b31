"""bench_newest.py runs, refuses wrong answers, names who is left out, and its report is made."""

import json
import re
import subprocess
import sys
from pathlib import Path

import benchmark_runs
import pytest

NEWEST = Path(sys.prefix, "newest", "bin", "python")  # `python3 run.py bench newest` makes it
PACKAGES = "lance, webdataset, grain, spdl.pipeline, litdata, datasets, torchdata, megatron.energon"
OURS = "import pathlib, sys, workloads, write_cifar\ndirectory = pathlib.Path(sys.argv[1])\n"
OURS += "write_cifar.make(directory, workloads.Packs(300))\n"


@pytest.fixture
def peers() -> Path:
    """A Python that has the packages."""
    found = subprocess.run([str(NEWEST), "-c", f"import {PACKAGES}"], capture_output=True) if NEWEST.exists() else None
    if found is None or found.returncode:
        pytest.skip("the newest packages are not installed in newest/: `python3 run.py bench newest` does it")
    return NEWEST


@pytest.mark.long
def test_a_peer_that_cannot_be_run_is_named_and_left_out(tmp_path):
    pytest.importorskip("torch")
    program = """
import loader_hosts
hosts = loader_hosts.Hosts(directory, pathlib.Path(sys.executable), lenient=True)
found = hosts.measure(workloads.Gathers(300, 64), 300 * 3080, 300, 5)
print("measured", [each.contestant for each in found if each.details["role"] == "ours"])
print("left out", hosts.missing["LitData"])
"""
    if subprocess.run([sys.executable, "-c", "import litdata"], capture_output=True).returncode == 0:
        pytest.skip("litdata is installed here")
    result = benchmark_runs.program(OURS + program, tmp_path)
    assert "measured ['FileReader.read_columns', 'Dataset']" in result.stdout, result.stderr
    assert "left out ModuleNotFoundError: No module named 'litdata'" in result.stdout
    assert "LitData: not measured, litdata: ModuleNotFoundError" in result.stdout


@pytest.mark.long
def test_our_own_loaders_resume_at_the_right_sample(tmp_path):
    pytest.importorskip("torch")
    program = """
import newest_resuming
work = workloads.Resumes(300, 32)
for name in ("Loader", "Dataset in DataLoader, no workers"):
    stop = newest_resuming.Stop(name, newest_resuming.RESUMED[name], sys.executable, directory, work)
    stop.ask("save")
    found = stop.ask("rest")
    print(found.pop("seconds") > 0, found)
"""
    result = benchmark_runs.program(OURS + program, tmp_path)
    assert result.stdout == 2 * "True {'right': True, 'twice': 0, 'never': 0}\n", result.stderr


@pytest.mark.long
def test_a_wrong_sample_after_a_resume_is_said(tmp_path):
    pytest.importorskip("torch")
    program = """
import newest_resuming, pickle
work, name = workloads.Resumes(300, 32), "Loader"
stop = newest_resuming.Stop(name, newest_resuming.RESUMED[name], sys.executable, directory, work)
stop.ask("save")
path = directory / "Loader.state"
saved = pickle.loads(path.read_bytes())
saved["state"]["position"] -= 32
path.write_bytes(pickle.dumps(saved))
found = stop.ask("rest")
print({name: found[name] for name in ("right", "twice", "never")})
"""
    result = benchmark_runs.program(OURS + program, tmp_path)
    assert result.stdout == "{'right': False, 'twice': 32, 'never': 0}\n", result.stderr


def test_the_faster_setting_is_shown(tmp_path):
    program = """
import workloads
from harness import Measurement
from newest_figures import best_settings, figures, other_settings
def made(name, role, *seconds):
    return Measurement(name, workloads.Shuffles(100, 10), list(seconds), 1000, 100, "hot", {"role": role})
of = [made("A, no workers", "peer", 2.0, 4.0), made("A, 2 workers", "peer", 1.0, 2.0), made("Loader", "ours", 0.5, 0.5)]
print([m.contestant for m in best_settings(of)], [m.contestant for m in other_settings(of)])
print([figure.row()[:2] for figure in figures(of)])
"""
    assert benchmark_runs.program(program).stdout.splitlines() == [
        "['Loader', 'A, 2 workers'] ['A, no workers']",
        "[['images beside the newest: Loader / A, 2 workers', '3.00 (2.00..4.00)']]",
    ]


def test_machines_stand_side_by_side():
    """The table is that of all results. A machine that lacks a ratio has a dash; one that lacks all has no column."""
    pytest.importorskip("matplotlib")
    program = """
import machines_report
paths = sorted(machines_report.RESULTS.glob("*.jsonl"))
print(machines_report.text(paths))
"""
    made = benchmark_runs.program(program)
    assert made.returncode == 0, made.stderr
    page = (benchmark_runs.BENCHMARKS / "tables" / "machines.md").read_text()
    assert made.stdout.strip() in page
    header, _, *rows = made.stdout.splitlines()
    files = (benchmark_runs.BENCHMARKS / "results").glob("*.jsonl")
    measured = {json.loads(text.partition("\n")[0])["machine"]["cpu"] for file in files if (text := file.read_text())}
    shown = header.strip("| ").split(" | ")[1:]
    assert len(shown) > 1 and measured.issuperset(shown)
    assert all({row.strip("| ").split(" | ")[at] for row in rows} != {"-"} for at in range(1, len(shown) + 1))
    assert all(len(row.split(" | ")) == len(header.split(" | ")) for row in rows)
    assert any(row.endswith("| - |") for row in rows)
    docs = (benchmark_runs.BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
    ten = re.findall(r"\| (\d+\.\d+ \(\d+\.\d+\.\.\d+\.\d+\)) \|$", docs, re.MULTILINE)[:10]
    assert len(ten) == 10 and all(any(ratio in row for row in rows[:10]) for ratio in ten)


@pytest.mark.long
@pytest.mark.unsanitized("another Python, with torch, reads")
@pytest.mark.parametrize("part", ["index", "epochs", "photographs", "resume"])
def test_each_part(tmp_path, peers, part):
    pytest.importorskip("torch")
    _, out = benchmark_runs.smoke("newest", tmp_path, "--peers", str(peers), "--part", part)
    results = benchmark_runs.results(out, "details", "not_measured")
    assert {result["bench"] for result in results} == {"newest"}
    assert {result["details"]["role"] for result in results} == {"ours", "peer"}
    if part == "resume":
        assert all(len(result["details"]["right"]) == 1 for result in results)
        assert {result["details"]["never"] for result in results if result["details"]["role"] == "ours"} == {0}
    else:
        for result in results:
            benchmark_runs.check_tails(result)
    measured = {result["details"]["package"] for result in results}
    assert measured >= {"ffrecord", "pylance", "grain", "litdata", "mosaicml-streaming", "datasets"}
    made = benchmark_runs.reported(tmp_path, "newest.md", out)
    assert re.search(r"^\| [^|]*: [^|]+ / LitData[^|]* \| \d+\.\d\d \(", made, re.MULTILINE)
    assert "Not measured yet" not in made

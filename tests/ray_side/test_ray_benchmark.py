"""The benchmark of Ray runs, checks its answers and says what it found. Its numbers are not looked at."""

import json
import subprocess
import sys

import pytest
from documents import ROOT

pytest.importorskip("ray.data", reason="measures Ray")


@pytest.mark.long
@pytest.mark.unsanitized("Ray does not run under it")
def test_bench_ray(tmp_path):
    out = tmp_path / "smoke.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_ray.py"), "--smoke", "--rounds", "5"]
    command += ["--out", str(out), "--data", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {(line["contestant"], line["workload"]["kind"]) for line in map(json.loads, out.read_text().splitlines())}
    names = ("ffrecord.ray.write", "DatasetWriter", "ffrecord.ray.read", "ffrecord.ray.read, blocks kept", "FileReader")
    assert {name for name, _ in found} == set(names)
    assert "2,000 images, 2 workers: ffrecord.ray.write / DatasetWriter" in printed
    assert "100 files, 2 workers: ffrecord.ray.read / FileReader" in printed
    assert list(tmp_path.iterdir()) == [out]

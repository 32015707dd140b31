"""The benchmark of Ray runs, checks its answers and says what it found. Its numbers are not looked at."""

import json
import subprocess
import sys

import benchmark_runs
import numpy as np
import pytest
from documents import ROOT

from ffrecord import DatasetWriter

pytest.importorskip("ray.data", reason="measures Ray")


@pytest.mark.parametrize("content", ["images", "files"])
def test_other_samples_than_there_are_are_a_wrong_answer(tmp_path, monkeypatch, content):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import ray_data
    from harness import WrongAnswerError
    from workloads import Blocks

    work = Blocks(content, 20, 3072)
    ray_data.make(tmp_path, work)
    samples = ray_data.Samples(str(tmp_path), work)
    name = "image" if content == "images" else "data"

    def columns(indices: list[int]) -> dict[str, object]:
        found = [samples[i] for i in indices]
        return {name: [each[name] for each in found], "label": np.array([each["label"] for each in found])}

    whole = sum(ray_data.digest_of(columns(each)) for each in ([*range(5, 20)], [*range(5)]))
    samples.check_read("all", whole)
    swapped = {name: columns([*range(20)])[name], "label": np.roll(np.arange(20), 1)}
    for wrong in (columns([*range(19)]), columns([*range(19), 3]), swapped):
        with pytest.raises(WrongAnswerError, match="some: the samples that were read are not those that there are"):
            samples.check_read("some", ray_data.digest_of(wrong))


@pytest.mark.parametrize("content", ["images", "files"])
def test_other_samples_than_were_given_are_a_wrong_answer(tmp_path, monkeypatch, content):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import ray_data
    from harness import WrongAnswerError
    from workloads import Blocks

    ray_data.make(tmp_path, Blocks(content, 250, 3072))
    samples = ray_data.Samples(str(tmp_path), Blocks(content, 250, 3072))
    given = [samples[i] for i in range(250)]
    with_another = [*given[:120], {**given[120], "label": 7}, *given[121:]]
    for name, made in {
        "shuffled": given[::-1],
        "fewer": given[1:],
        "twice": [*given[1:], given[5]],
        "other": with_another,
    }.items():
        path = tmp_path / name
        DatasetWriter(path, samples.schema, num_workers=0, progress=False).from_indexed_dataset(made)
        if name == "shuffled":
            samples.check_written(name, str(path))
            continue
        with pytest.raises(WrongAnswerError, match=f"{name}: "):
            samples.check_written(name, str(path))


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
    made = benchmark_runs.reported(tmp_path, "ray.md", out)
    assert "| 2,000 images, 2 workers: ffrecord.ray.write / DatasetWriter | " in made
    assert "### 100 files of 10,000 bytes read by 2 workers, from the page cache" in made

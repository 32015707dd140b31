"""bench_dlio.py runs, refuses wrong answers, records what it measured on, and its report is made."""

import re
import subprocess
import sys
from pathlib import Path

import benchmark_runs
import pytest

DLIO = Path(sys.prefix, "dlio", "bin", "python")  # `python3 run.py bench dlio` makes it
EPOCH = """
import pathlib, sys, dlio_ways, workloads
directory, python, damaged = *map(pathlib.Path, sys.argv[1:3]), sys.argv[3]
work = workloads.Emulated("unet3d_h100", "pytorch", 4, 1, 5_000, 500, 1_000, 2, 1, 0.001)
with dlio_ways.hosted(python, work.framework) as host:
    way = dlio_ways.Way(host, directory, work, "ffr")
    way.generate()
    way.check()
    print("read", flush=True)
    if damaged == "byte":
        data = bytearray(way.files[2].read_bytes())
        data[-100] ^= 1
        way.files[2].write_bytes(data)
    else:
        way.files[2].unlink()
    way.check()
"""


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(benchmark_runs.BENCHMARKS))
    import dlio_ways

    return dlio_ways


@pytest.fixture
def dlio() -> Path:
    """A Python that has DLIO."""
    found = subprocess.run([str(DLIO), "-c", "import dlio_benchmark"], capture_output=True) if DLIO.exists() else None
    if found is None or found.returncode:
        pytest.skip("dlio_benchmark is not installed in dlio/: `python3 run.py bench dlio` does it")
    return DLIO


def test_samples_and_bytes_must_be_those_that_were_generated(ways):
    from harness import WrongAnswerError
    from workloads import Emulated

    equal = Emulated("resnet50_tf", "tensorflow", 3, 10, 100, 0, 100, 8, 1, 0.1)
    assert ways.sizes(equal) == [100, 100, 100]
    ways.check_counts("some", equal, 24, 2400)  # three batches of 8
    ways.check_counts("some", equal, 30, 3000)  # and the rest, which no batch needs
    for samples, size in ((23, 2300), (31, 3100), (24, 2399), (30, 2999)):
        with pytest.raises(WrongAnswerError, match=f"some: .*{samples}"):
            ways.check_counts("some", equal, samples, size)
    varying = Emulated("unet3d_h100", "pytorch", 4, 1, 5_000, 500, 1_000, 2, 1, 0.1)
    sizes = ways.sizes(varying)
    assert len(set(sizes)) > 1 and 3_000 < min(sizes) < max(sizes) < 8_000
    ways.check_counts("some", varying, 4, sum(sizes))
    with pytest.raises(WrongAnswerError, match=f"some: {sum(sizes) - 1} bytes read for 4 samples, generated were"):
        ways.check_counts("some", varying, 4, sum(sizes) - 1)


def test_the_records_of_a_file_are_counted(tmp_path, ways):
    import numpy as np

    from ffrecord import FileWriter

    np.savez(tmp_path / "x.npz", x=np.zeros((7, 5, 3), np.uint8), y=[0] * 3)
    assert list(ways.npz_records(tmp_path / "x.npz")) == [35, 35, 35]
    record = (35).to_bytes(8, "little") + bytes(4 + 35 + 4)
    (tmp_path / "x.tfrecord").write_bytes(2 * record)
    assert list(ways.tfrecord_records(tmp_path / "x.tfrecord")) == [35, 35]
    with FileWriter(tmp_path / "x.ffr") as writer:
        writer.write_many([b"1", b"22", b""])
    assert list(ways.ffr_records(tmp_path / "x.ffr")) == [1, 2, 0]


@pytest.mark.unsanitized("another Python, with torch, reads")
def test_files_of_one_sample(tmp_path, dlio):
    printed, out = benchmark_runs.smoke("dlio", tmp_path, "--dlio", str(dlio), "--part", "unet3d")
    results = benchmark_runs.results(out, "details", "read_ahead_kb")
    assert {result["contestant"] for result in results} == {"DLIO's npz", "ffrecord"}
    for result in results:
        assert (result["bench"], result["cache"], result["count"]) == ("dlio", "cold", 14)
        assert result["details"]["steps"] == 2
        assert 0 < result["details"]["utilization"][0] <= 100
        assert result["versions"]["dlio_benchmark"] == "2.0.0"
    assert len({result["size"] for result in results}) == 1
    figure = "unet3d_h100, 14 files of 1 x 40.0 kB, batches of 7 in 2 ms: ffrecord / DLIO's npz"
    assert figure in printed
    made = benchmark_runs.reported(tmp_path, "dlio.md", out)
    assert f"| {figure} | " in made
    assert re.search(r"\| ffrecord \| \S+ % \(\S+\) \| \S+ % \(\S+\) \| \S+ \(\S+\) \| \S+ \|", made)


@pytest.mark.long
@pytest.mark.unsanitized("another Python, with TensorFlow, reads")
def test_files_of_many_samples(tmp_path, dlio):
    _, out = benchmark_runs.smoke("dlio", tmp_path, "--dlio", str(dlio), "--part", "resnet50")
    results = benchmark_runs.results(out, "details")
    assert {result["contestant"] for result in results} == {"DLIO's npz", "DLIO's TFRecord", "ffrecord"}
    assert {(result["count"], result["details"]["steps"]) for result in results} == {(192, 12)}


@pytest.mark.long
@pytest.mark.unsanitized("another Python, with torch, reads")
@pytest.mark.parametrize("damaged", ["byte", "file"])
def test_a_damaged_file_ends_the_benchmark(tmp_path, dlio, damaged):
    result = benchmark_runs.program(EPOCH, tmp_path, dlio, damaged)
    assert (result.stdout, result.returncode) == ("read\n", 1)
    assert re.search("ChecksumError" if damaged == "byte" else "Not enough training dataset", result.stderr)

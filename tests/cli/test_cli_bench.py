"""`ffrecord bench`: real measurements of real files, and what is said of them."""

import contextlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import builders
import numpy as np
import pytest
from cli_runs import COMMAND, run

from ffrecord import DatasetWriter
from ffrecord import open as open_store
from ffrecord.cli import measure
from ffrecord.cli.commands.bench import judge
from ffrecord.cli.measure import Measurement
from ffrecord.reading.store import Store


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """20 MB."""
    path = tmp_path_factory.mktemp("bench") / "train"
    samples = [{"x": np.full(5000, i, np.float32), "label": i} for i in range(1000)]
    DatasetWriter(path, samples_per_shard=400, num_workers=1, progress=False).from_indexed_dataset(samples)
    return path


def bench(*arguments):
    ran = run("bench", *arguments, "--seconds", "0.2", "--json")
    assert (ran.code, ran.err) == (0, "")
    return {each["way"]: each for each in json.loads(ran.out)["measured"]}


def test_what_is_measured(dataset):
    found = bench(dataset)
    assert [*found] == ["cached", "cold", "loader"]
    cached = found["cached"]
    assert cached["samples_per_second"] > 1000
    assert cached["bytes_per_batch"] == pytest.approx(64 * 20008, rel=0.2)
    assert cached["bytes_per_second"] == pytest.approx(cached["samples_per_second"] * 20008)
    assert cached["limit"] > 1e8
    assert 0 < cached["latencies"]["50 %"] <= cached["latencies"]["99 %"]
    assert found["loader"]["samples_per_second"] > 100 or find_spec("torch") is None
    assert bool(found["loader"]["missing"]) == (find_spec("torch") is None)


def test_a_last_batch_counts_as_many_samples_as_it_has(tmp_path):
    loader = pytest.importorskip("ffrecord.torch").Loader
    DatasetWriter(tmp_path / "a", num_workers=0, progress=False).from_indexed_dataset([{"x": i} for i in range(10)])
    with open_store(str(tmp_path / "a")) as store:
        epochs = measure._loader_batches(loader(store, 4, rank=0, world_size=1), 8.0)
        assert list(itertools.islice(epochs, 6)) == [(4, 32), (4, 32), (2, 16)] * 2
        measured = measure.measure_loader(store, 64, 0.05)
    assert measured.bytes_per_batch == 80


def test_only_one_of_them(dataset):
    assert [*bench(dataset, "--only", "cached", "--batch-size", "2000")] == ["cached"]


def test_files_in_memory_are_never_cold():
    directory = f"/dev/shm/ffrecord-test-{os.getpid()}"
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("/dev/shm cannot be written")
    os.mkdir(directory)
    try:
        path = builders.write_samples(Path(directory, "a.ffr"), [bytes(1000)] * 100)
        found = bench(path, "--only", "cold", "--only", "cached")
        assert "the page cache does not drop these files" in found["cold"]["missing"]
    finally:
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        os.rmdir(directory)


def test_every_epoch_begins_cold(dataset):
    with open_store(str(dataset)) as store:
        paths = list(store.fnames)
        found = list(itertools.islice(measure._read_cold_batches(store, paths, 300), 10))
    assert [each and each[0] for each in found] == [None, 300, 300, 300, 100] * 2


def test_no_record_is_read_for_its_size_while_it_is_timed(tmp_path):
    """As records of compressed files would be."""

    class Counting(Store):
        format = "counting"
        loaded = 0

        def _load(self, positions):
            self.loaded += len(positions)
            return [np.zeros(4, np.uint8) for _ in positions]

    with Counting([str(builders.write_samples(tmp_path / "a", [b"x"]))], 9) as store:
        reads = list(itertools.islice(measure._read_batches(store, 9, 3, range(2)), 7))
        assert (reads, store.loaded) == ([None, *[(3, 12)] * 6], 18)


def test_files_of_every_size_have_as_many_bytes(monkeypatch):
    made = []

    def write(path, size, count):
        made.append(size * count)
        Path(path).touch()

    monkeypatch.setattr(measure, "_write_random", write)
    monkeypatch.setattr(measure, "_warm", lambda path: None)
    monkeypatch.setattr(measure, "FileReader", lambda path: contextlib.nullcontext())
    monkeypatch.setattr(measure, "_time_batches", lambda *_: Measurement("sizes", latencies={"50 %": 1.0}))
    measure._sweep(64, 1, 1e9)
    assert len(made) == len(measure.SWEPT)
    assert all(130e6 < size < 135e6 for size in made)


def test_sizes_are_left_out_where_there_is_no_room_for_them(dataset, tmp_path):
    limited = f"ulimit -f 4000; exec {shlex.join(COMMAND)} bench {dataset} --seconds 0.05 --only sizes"
    for more, code, said in (("", 3, 0), (f"--only cached --plot {tmp_path}/a.svg", 0, 4)):
        ran = subprocess.run(["bash", "-c", f"{limited} {more}"], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr.count("\n"), len(ran.stdout.splitlines())) == (code, 1, said), ran
        assert "sizes: not measured: no room for files of 134 MB" in ran.stderr
    assert (tmp_path / "a.svg").stat().st_size


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_what_ends_it_leaves_no_files(dataset, tmp_path, number, code):
    program = ["env", "--default-signal=HUP", *COMMAND, "bench"]  # nohup ignores it
    command = [*program, dataset, "--only", "sizes", "--seconds", "40"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as child:
        deadline = time.monotonic() + 30
        while not [*tmp_path.glob("ffrecord-*/*.ffr")] and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(number)
        said = child.stderr.read()
    assert (child.returncode, said) == (code, f"ffrecord bench: ended by {number.name}\n")
    assert [*tmp_path.iterdir()] == []


DROPPED = """
import signal, sys, time
from ffrecord.cli import main
from ffrecord.cli.commands import bench

class Dying:
    def __del__(self):
        signal.raise_signal({number})

def measure(*_):
    Dying()
    for _ in range(400):
        time.sleep(0.1)

bench.measure = measure
sys.exit(main(["bench", {path!r}]))
"""


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGINT, 130, "interrupted")],
)
def test_what_ends_it_counts_where_python_drops_exceptions(dataset, number, code, told):
    program = [sys.executable, "-c", DROPPED.format(number=int(number), path=str(dataset))]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=50)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", f"ffrecord bench: {told}\n")


def test_in_words(dataset):
    ran = run("bench", dataset, "--only", "cached", "--seconds", "0.1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split() == ["samples/s", "read", "limit", "here", "batch,", "median", "99", "%"]
    assert ran.out.splitlines()[-1].startswith("cached: ")


@pytest.mark.parametrize(
    "arguments", [["--seconds", "0"], ["--seconds", "nan"], ["--batch-size", "0"], ["--plot", "a.txt"]]
)
def test_wrong_arguments(dataset, arguments):
    assert run("bench", dataset, *arguments).code == 2


def test_what_is_not_on_this_machine():
    ran = run("bench", "https://user:secret@host/train")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "https://host/train: bench measures the disk and the memory of this machine" in ran.err


def test_nothing_to_measure(tmp_path):
    ran = run("bench", builders.write_samples(tmp_path / "a.ffr", []))
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_verdicts():
    assert judge(Measurement("cold", missing="because")) == "not measured: because"
    assert judge(Measurement("cached", 10, 9e9, 1e6, 1e10)) == "as fast as memory allows here (90% of it)"
    assert "a cache below them keeps" in judge(Measurement("cold", 10, 3e9, 1e6, 1e9))
    assert judge(Measurement("cold", 10, 3e8, 1e6, 1e9)) == "30% of what the storage allows here"
    assert "larger batches" in judge(Measurement("cached", 10, 1e9, 1e4, 1e10))
    assert "too small to say more" in judge(Measurement("cached", 10, 1e9, 1e4, 1e10), whole=True)
    assert "caches of the CPU" in judge(Measurement("cached", 10, 3e10, 1e6, 1e10))
    assert "1,000 samples/s" in judge(Measurement("loader", 1000, 1e9, 1e6))
    assert judge(Measurement("cold", 10, 3e8, 1e6, unlimited="because")).endswith("(limit: because)")


def test_a_batch_that_is_all_there_is(dataset):
    told = bench(dataset, "--only", "cached", "--batch-size", "99999999")["cached"]["verdict"]
    assert "larger batches" not in told


def test_no_direct_reads_of_small_files(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(1000)] * 100)
    with pytest.raises(measure.NotMeasurable, match="no file has 1 MiB"):
        measure._measure_storage([str(path)], 0.1)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nothing_that_was_asked_for_can_be_measured(dataset, tmp_path, more):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError\n")
    command = [*COMMAND, "bench", dataset, "--seconds", "0.1", "--only", "loader", *more]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    for asked, code in ([], 3), (["--only", "cached"], 0):
        ran = subprocess.run([*command, *asked], capture_output=True, text=True, env=environment)
        assert (ran.returncode, bool(ran.stdout)) == (code, code == 0), ran
        said = ran.stdout + ran.stderr
        assert "not measured: torch is not installed: pip install torch" in said

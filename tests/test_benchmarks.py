"""The benchmarks run, check their answers, and record what they measured on. Their numbers are not looked at."""

import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import children
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
    directory = tmp_path_factory.mktemp("read")
    out = directory / "smoke.jsonl"
    command = [
        sys.executable,
        str(BENCHMARKS / "bench_read.py"),
        "--smoke",
        "--out",
        str(out),
        "--data",
        str(directory),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(directory.iterdir()) == [out]  # what it read is deleted
    return result.stdout, out


def test_read_results_have_context_and_rounds(read_smoke: tuple[str, Path]) -> None:
    for line in read_smoke[1].read_text().splitlines():
        result = json.loads(line)
        assert set(result) >= CONTEXT | {"read_ahead_kb", "details"}
        assert result["cache"] in ("hot", "cold")
        assert result["contestant"] == "forked" or len(result["seconds"]) >= 5
        assert min(result["seconds"]) > 0
        assert result["details"]["role"] in ("ours", "peer", "original", "limit")
        assert str(Path.home()) not in line


def test_read_prints_its_figures(read_smoke: tuple[str, Path]) -> None:
    printed, _ = read_smoke
    for figure in (
        r"cached 4 KiB: read auto / original, \w+ loop +\S+ \(\S+\) +>= 2 ",
        r"cached 4 KiB: read_packed auto / C loop, pread +\S+ \(\S+\) +>= 0.85 ",
        r"sequential, cached 110 kB: iteration auto / C loop, pread ",
        r"open, 20,000 samples +\S+ ms \(\S+\) +<= 40 ms ",
    ):
        assert re.search(figure, printed), figure


def test_read_says_what_it_does_not_measure(read_smoke: tuple[str, Path]) -> None:
    printed, _ = read_smoke
    for package in ("lmdb", "array_record", "bagz"):
        there = importlib.util.find_spec(package) is not None
        assert there != (f"{package} is not installed, not measured" in printed)
    assert (shutil.which("fio") is None) == ("NOT MEASURED: fio" in printed)


def benchmark_program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], cwd=BENCHMARKS, capture_output=True, text=True)


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
    result = benchmark_program(program)
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
    result = benchmark_program(program)
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
    pytest.importorskip("matplotlib")
    page = tmp_path / "benchmarks.md"
    page.write_text((BENCHMARKS.parent / "docs" / "benchmarks.md").read_text())
    command = [sys.executable, str(BENCHMARKS / "report.py"), str(read_smoke[1]), "--docs", str(tmp_path)]
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert page.read_text().count("### Cached, random batches") == 1
    assert (tmp_path / "plots" / "read_cached.svg").read_text().count("limit: C loop of pread") >= 1


@pytest.fixture(scope="module")
def write_smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What bench_write.py --smoke prints, and the file of its results."""
    if shutil.which("cc") is None:
        pytest.skip("bench_write.py needs a C compiler")
    directory = tmp_path_factory.mktemp("write")
    out = directory / "smoke.jsonl"
    options = ["--smoke", "--out", str(out), "--data", str(directory), "--writers", sys.executable]
    command = [sys.executable, str(BENCHMARKS / "bench_write.py"), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(directory.iterdir()) == [out]  # what it wrote is deleted
    return result.stdout, out


def test_write_results_have_context_and_rounds(write_smoke: tuple[str, Path]) -> None:
    kinds = set()
    for line in write_smoke[1].read_text().splitlines():
        result = json.loads(line)
        kinds.add(result["workload"]["kind"])
        assert set(result) >= CONTEXT | {"details", "not_measured"}
        assert result["checked"] is True
        assert len(result["seconds"]) >= (1 if result["workload"]["kind"] == "Growth" else 5)
        assert min(result["seconds"]) > 0
        assert result["details"]["role"] in ("ours", "peer", "original", "plain", "limit")
        assert str(Path.home()) not in line
    pictures = set() if "NOT MEASURED: folders of pictures" in write_smoke[0] else {"Pictures"}
    assert kinds == {"Writes", "Packs", "Growth"} | pictures


def test_write_prints_its_figures(write_smoke: tuple[str, Path]) -> None:
    printed, _ = write_smoke
    for figure in (
        r"256 B: write_one / original, Python loop +\S+ \(\S+\) +>= 4 ",
        r"256 B: write_one / plain writes +\S+ \(\S+\) +>= 0.8 ",
        r"256 B: write_many / plain writes +\S+ \(\S+\) +>= 1 ",
        r"110 kB: write_one / .* >= 2 ",
        r"10,000 samples less 1,000: private memory of the parent +\S+ MB \(\S+\) +<= 1 MB ",
    ):
        assert re.search(figure, printed), figure


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
        result = benchmark_program(program.replace("{}", str(where)))
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
    lines = benchmark_program(program).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["lost", "twice", "other"]


def test_report_of_writing(write_smoke: tuple[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "benchmarks.md"
    page.write_text((BENCHMARKS.parent / "docs" / "benchmarks.md").read_text())
    command = [sys.executable, str(BENCHMARKS / "report.py"), str(write_smoke[1]), "--docs", str(tmp_path)]
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert page.read_text().count("### Images packed by two workers") == 1
    assert (tmp_path / "plots" / "write_files.svg").read_text().count("ours, write_one") >= 1


LOADER_DATA = """
import pathlib, sys, numpy as np, workloads, write_cifar
directory, work = pathlib.Path(sys.argv[1]), workloads.Epochs(300, 64)
write_cifar.make(directory, workloads.Packs(300))
"""


def loader_program(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOADER_DATA + text, str(directory)]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True)


def test_a_loader_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("the C loop needs a C compiler")
    program = """
import loader_hosts
with loader_hosts.hosted("C loop, CRC-32", sys.executable, directory, work) as host:
    found = [host.run() for _ in range(2)]
print([(each["count"], each["sum"]) for each in found], host.process.returncode)
contestant = loader_hosts.contestant(host, 299)
host.run = lambda: found[0]
contestant.run()
"""
    result = loader_program(program, tmp_path)
    assert result.stdout == f"{[(300, 44850)] * 2} 0\n", result.stderr
    assert "WrongAnswerError: C loop, CRC-32: 300 samples, sum 44850, expected (299, 44551)" in result.stderr


def test_a_loader_that_fails_or_lies_ends_the_benchmark(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("the C loop needs a C compiler")
    program = """
import loader_hosts, loader_peers
path = pathlib.Path(loader_peers.packed("DatasetWriter", directory, work), "PART_00000.ffr")
data = bytearray(path.read_bytes())
data[-3080] ^= 1
path.write_bytes(data)
for name in ("C loop, CRC-32", "nobody"):
    try:
        loader_hosts.Host(name, sys.executable, directory, work)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[-1])
"""
    result = loader_program(program, tmp_path)
    assert re.fullmatch(
        "WrongAnswerError .*: C loop: 1 records are not what their CRC-32 says\n"
        "ContestantFailedError KeyError: 'nobody'\n",
        result.stdout,
    ), result.stderr


def test_loaders_that_lose_repeat_or_do_not_shuffle_are_refused(tmp_path: Path) -> None:
    program = """
import loader_checks
data = write_cifar.Cifar(directory, 300)
labels = np.array(data.labels)
def give(order):
    yield from ((data.images[order[at : at + 64]], labels[order[at : at + 64]]) for at in range(0, len(order), 64))
order = np.random.default_rng(1).permutation(300)
loader_checks.cifar("good", give(order), directory, work)
other = order.copy()
other[0] = other[1]
mixed = [(images[::-1], labels) for images, labels in give(order)]
given = {"lost": give(order[:-1]), "twice": give(other), "sorted": give(np.arange(300)), "mixed": mixed}
for name, batches in given.items():
    try:
        loader_checks.cifar(name, batches, directory, work)
    except loader_checks.WrongAnswerError as error:
        print(error)
"""
    result = loader_program(program, tmp_path)
    assert result.stdout.splitlines() == [
        "lost: 299 samples, 299 of them different, of 300",
        "twice: 300 samples, 299 of them different, of 300",
        "sorted: 100% of the samples follow their neighbour of the file",
        "mixed: other pixels in batch 0",
    ], result.stderr


def run_loader(directory: Path, *options: str) -> tuple[str, Path]:
    """What bench_loader.py --smoke prints, and the file of its results."""
    out = directory / "smoke.jsonl"
    options = ("--smoke", "--out", str(out), "--data", str(directory), "--writers", sys.executable, *options)
    command = [sys.executable, str(BENCHMARKS / "bench_loader.py"), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(directory.iterdir()) == [out]  # what it read is deleted
    return result.stdout, out


def check_loader_results(out: Path) -> set[str]:
    """The kinds of workloads, each measured with its context."""
    kinds = set()
    for line in out.read_text().splitlines():
        result = json.loads(line)
        kinds.add(result["workload"]["kind"])
        assert set(result) >= CONTEXT | {"details", "not_measured", "crc_kernel"}
        assert len(result["seconds"]) >= (1 if result["workload"]["kind"] == "Starts" else 5)
        assert min(result["seconds"]) > 0
        assert result["details"]["role"] in ("ours", "peer", "plain", "original", "limit")
        assert str(Path.home()) not in line
    return kinds


def report(out: Path, docs: Path, title: str) -> None:
    """Makes the page of `out` twice."""
    page = docs / "benchmarks.md"
    page.write_text((BENCHMARKS.parent / "docs" / "benchmarks.md").read_text())
    command = [sys.executable, str(BENCHMARKS / "report.py"), str(out), "--docs", str(docs)]
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert page.read_text().count(title) == 1


def test_loading_from_disk(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    printed, out = run_loader(tmp_path / "data", "--part", "cold")
    if "nothing can be cold" in printed:
        pytest.skip("no storage behind the temporary directory")
    assert check_loader_results(out) == {"ColdEpochs"}
    assert re.search(r"cold 4 KiB: Loader / iter_\w+ +\S+ \(\S+\) +>= 0.9 ", printed)
    if importlib.util.find_spec("matplotlib"):
        report(out, tmp_path, "### Cold, samples of 4 KiB, batches of 16")


@pytest.mark.long
def test_loading(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    printed, out = run_loader(tmp_path / "data")
    kinds = {"Epochs", "Crops", "ColdEpochs", "Starts"}
    kinds -= {"ColdEpochs"} if "nothing can be cold" in printed else set()
    assert check_loader_results(out) == kinds - ({"Crops"} if "NOT MEASURED" in printed else set())
    for figure in (
        r"images: Loader / C loop +\S+ \(\S+\) +>= 0.8 ",
        r"images, DataLoader: Dataset, BatchSampler / numpy.memmap +\S+ \(\S+\) +>= 3 ",
        r"100,000 samples: first batch at 50% of the epoch +\S+ ms \(\S+\) +<= 100 ms ",
        r"100,000 samples, 8 workers: memory of all +\S+ MB \(\S+\) +<= 100 MB ",
    ):
        assert re.search(figure, printed), figure
    missing = json.loads(out.read_text().splitlines()[-1])["not_measured"]
    for name, module in {"ffcv": "ffcv", "mds": "streaming", "litdata": "litdata"}.items():
        there = importlib.util.find_spec(module) is not None
        assert there != (f"No module named '{module}'" in missing.get(name, ""))
    if importlib.util.find_spec("matplotlib"):
        report(out, tmp_path, "### Shuffled epochs of small images")
        assert (tmp_path / "plots" / "load_images.svg").read_text().count("C loop, CRC-32") >= 1


def test_peers_of_writing_have_an_environment_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent))
    monkeypatch.chdir(BENCHMARKS.parent)
    run = importlib.import_module("run")
    group, environment, bench = run.commands("bench", ["write", "--smoke"])
    assert group == run.commands("bench", ["read"])[0]
    assert environment == [str(run.PYTHON), str(BENCHMARKS / "write_environment.py")]
    assert bench == [str(run.PYTHON), str(BENCHMARKS / "bench_write.py"), "--smoke"]
    assert run.commands("bench", ["loader"])[:2] == [group, environment]


@pytest.fixture(scope="module")
def formats_smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What bench_formats.py --smoke prints, and the file of its results."""
    directory = tmp_path_factory.mktemp("formats")
    options = ["--smoke", "--rounds", "5", "--out", str(directory / "smoke.jsonl"), "--data", str(directory)]
    command = [sys.executable, str(BENCHMARKS / "bench_formats.py"), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, directory / "smoke.jsonl"


def test_formats_results_have_context_and_rounds(formats_smoke: tuple[str, Path]) -> None:
    printed, out = formats_smoke
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert {result["workload"]["kind"] for result in results} >= {"Members", "Stream", "Examples", "Conversions"}
    for result in results:
        assert set(result) >= CONTEXT and len(result["seconds"]) == 5
        assert result["contestant"] in printed


def test_formats_print_their_figures(formats_smoke: tuple[str, Path]) -> None:
    printed, _ = formats_smoke
    for figure in (
        r"zip: ZipReader.read / zipfile.read +\S+ \(\S+\) +>= 9 ",
        r"TFRecord, 4 KiB: TFRecordReader, opened and iterated / tfrecord +\S+ \(\S+\) +>= 2 ",
        r"Examples, 16 floats: ExampleParser.parse_batch / google.protobuf, to arrays +\S+ \(\S+\) +>= 3 ",
        r"lmdb: convert / DatasetWriter, from memory +\S+ \(\S+\) +>= 0.7 ",
    ):
        assert re.search(figure, printed), figure


def test_report_of_formats(formats_smoke: tuple[str, Path], tmp_path: Path) -> None:
    shutil.copy(BENCHMARKS.parent / "docs" / "benchmarks.md", tmp_path)
    command = [sys.executable, str(BENCHMARKS / "report.py"), str(formats_smoke[1]), "--docs", str(tmp_path)]
    subprocess.run(command, check=True)
    made = (tmp_path / "benchmarks.md").read_text().split("of other formats -->")[1]
    assert "### Figures of other formats and their targets" in made and "ZipReader.read" in made


def test_safety_measures_each_with_and_without(tmp_path: Path) -> None:
    out, program = tmp_path / "smoke.jsonl", str(BENCHMARKS / "bench_safety.py")
    command = [sys.executable, program, "--smoke", "--rounds", "5", "--out", str(out), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [out]  # what it wrote is deleted
    results = [json.loads(line) for line in out.read_text().splitlines()]
    for result in results:
        assert set(result) >= CONTEXT and result["bench"] == "safety" and len(result["seconds"]) == 5
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

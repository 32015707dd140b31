"""bench_loader.py runs, refuses wrong answers, records what it measured on, and its report is made."""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import benchmark_runs
import pytest

WRITERS = ("--writers", sys.executable)
WITHOUT_BATCHES = {"C loop", "C loop, CRC-32", "simplejpeg alone", "our decoder alone", "Pillow alone, PNG"}
WITHOUT_BATCHES |= {"nvImageCodec alone, GPU", "nvImageCodec alone, CPU"}
LOADER_DATA = """
import pathlib, sys, numpy as np, workloads, write_cifar
directory, work = pathlib.Path(sys.argv[1]), workloads.Epochs(300, 64)
write_cifar.make(directory, workloads.Packs(300))
"""


def test_a_loader_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("the C loop needs a C compiler")
    program = """
import loader_hosts
with loader_hosts.hosted("C loop, CRC-32", sys.executable, directory, work) as host:
    found = [host.run() for _ in range(2)]
print([(each["count"], each["sum"], each["waits"]) for each in found], host.process.returncode)
contestant = loader_hosts.contestant(host, 299)
host.run = lambda: found[0]
contestant.run()
"""
    result = benchmark_runs.program(LOADER_DATA + program, tmp_path)
    assert result.stdout == f"{[(300, 44850, [])] * 2} 0\n", result.stderr
    assert "WrongAnswerError: C loop, CRC-32: 300 samples, sum 44850, expected (299, 44551)" in result.stderr


@pytest.mark.long
def test_a_loader_says_how_long_it_was_waited_for(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import loader_hosts
with loader_hosts.hosted("Loader", sys.executable, directory, work) as host:
    contestant = loader_hosts.contestant(host, 300)
    seconds = [contestant.run() for _ in range(3)]
waits, count = contestant.waits.rounds, contestant.details["tails"]["count"]
shares = [each.sum() / 1e9 / whole for each, whole in zip(waits, seconds, strict=True)]
print(list(map(len, waits)), all(0 < share <= 1 for share in shares), count)
"""
    result = benchmark_runs.program(LOADER_DATA + program, tmp_path)
    assert result.stdout == "[5, 5, 5] True 12\n", result.stdout + result.stderr


@pytest.mark.long
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
    result = benchmark_runs.program(LOADER_DATA + program, tmp_path)
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
    result = benchmark_runs.program(LOADER_DATA + program, tmp_path)
    assert result.stdout.splitlines() == [
        "lost: 299 samples, 299 of them different, of 300",
        "twice: 300 samples, 299 of them different, of 300",
        "sorted: 100% of the samples follow their neighbour of the file",
        "mixed: other pixels in batch 0",
    ], result.stderr


def check_loader_results(out: Path) -> set[str]:
    """The kinds of workloads, each measured with its context."""
    kinds = set()
    for result in benchmark_runs.results(out, "details", "not_measured", "crc_kernel"):
        kinds.add(result["workload"]["kind"])
        assert len(result["seconds"]) >= (1 if result["workload"]["kind"] == "Starts" else 5)
        assert result["details"]["role"] in ("ours", "peer", "plain", "original", "limit")
        if result["workload"]["kind"] != "Starts" and result["contestant"] not in WITHOUT_BATCHES:
            benchmark_runs.check_tails(result)
    return kinds


@pytest.mark.long
def test_loading_from_disk(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    printed, out = benchmark_runs.smoke("loader", tmp_path / "data", *WRITERS, "--part", "cold")
    if "nothing can be cold" in printed:
        pytest.skip("no storage behind the temporary directory")
    assert check_loader_results(out) == {"ColdEpochs"}
    assert re.search(r"cold 4 KiB: Loader / iter_\w+ +\S+ \(\S+\) +>= 0.9 ", printed)
    if importlib.util.find_spec("matplotlib"):
        made = benchmark_runs.reported(tmp_path, "loading.md", out)
        assert made.count("\n### Cold, samples of 4 KiB, batches of 16\n") == 1
        assert made.count("\n#### Cold, samples of 4 KiB, batches of 16: waits for a batch\n") == 1


def test_photographs_decoded_on_a_gpu(tmp_path: Path) -> None:
    """And by the same library on the CPU; the GPU that this machine lacks is named."""
    pytest.importorskip("torch")
    pytest.importorskip("nvidia.nvimgcodec", reason="nvImageCodec is not installed: there is one way to decode")
    (tmp_path / "data").mkdir()
    printed, out = benchmark_runs.smoke("loader", tmp_path / "data", *WRITERS, "--part", "gpu")
    if "NOT MEASURED" in printed:
        pytest.skip("scikit-image's photographs are not here")
    assert check_loader_results(out) == {"Crops"}
    missing = json.loads(out.read_text().splitlines()[-1])["not_measured"]
    assert not {"Loader, nvImageCodec, CPU", "nvImageCodec alone, CPU"} & set(missing)
    copied = missing.get("Loader, CPU, copied", "")
    assert not copied or "finds no CUDA device" in copied


@pytest.mark.long
def test_every_kind_of_source(tmp_path: Path) -> None:
    """A pair for each; those whose package is missing are named."""
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    printed, out = benchmark_runs.smoke("loader", tmp_path / "data", *WRITERS, "--part", "ways")
    assert check_loader_results(out) == {"Sources"}
    found = benchmark_runs.results(out)
    pairs = {(each["workload"]["way"], each["workload"]["workers"], each["contestant"]) for each in found}
    ways = {way for way, _, _ in pairs}
    assert pairs == {(way, workers, who) for way, workers, _ in pairs for who in ("Loader", "DataLoader")}
    missing = found[-1]["not_measured"]
    assert len(ways | set(missing)) >= 40
    for package, of in {"datasets": "Hugging Face", "pandas": "DataFrame", "pyarrow": "Arrow table"}.items():
        assert (importlib.util.find_spec(package) is None) == (of in missing) == (of not in ways)
    for figure in (r"directory: Loader / DataLoader", r"list of dicts, no workers: Loader / DataLoader"):
        assert re.search(rf"^{figure} +\S+ \(\S+\) +>= 1 ", printed, re.MULTILINE), figure
    if importlib.util.find_spec("matplotlib"):
        made = benchmark_runs.reported(tmp_path, "sources.md", out)
        (rows,) = re.findall(r"\nBatches of 64\.\n\n((?:\|.*\n)+)", made)
        assert [line.split(" | ")[0] for line in rows.splitlines()[2:4]] == ["| directory", "| directory, no workers"]
        assert len(rows.splitlines()) == 2 + len(pairs) // 2


def test_sources_that_lose_repeat_or_do_not_shuffle_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import pathlib, sys, numpy as np, loader_host, loader_sources, workloads
work = workloads.Sources("list of numbers", 100, workers=0)
def give(order):
    yield from ((None, order[at : at + 64]) for at in range(0, len(order), 64))
order = np.random.default_rng(1).permutation(100)
loader_sources.check("good", give(order), pathlib.Path(), work)
twice = np.concatenate([order[1:], order[1:2]])
for name, order in {"lost": order[1:], "twice": twice, "sorted": np.arange(100)}.items():
    try:
        loader_sources.check(name, give(order), pathlib.Path(), work)
    except loader_sources.WrongAnswerError as error:
        print(error)
class Said:
    def say(self, **answer):
        print(answer)
sys.modules["datasets"] = None
work = workloads.Sources("Hugging Face", 100, workers=0)
print(loader_host.open_way("Loader", pathlib.Path(sys.argv[1]), work, Said()))
"""
    result = benchmark_runs.program(program, tmp_path)
    assert result.stdout.splitlines() == [
        "list of numbers, lost: 99 samples, 99 of them different, of 100",
        "list of numbers, twice: 100 samples, 99 of them different, of 100",
        "list of numbers, sorted: 100% of the samples follow their neighbour of the source",
        "{'missing': 'ModuleNotFoundError: import of datasets halted; None in sys.modules'}",
        "None",
    ], result.stderr


@pytest.mark.long
def test_loading(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "data").mkdir()
    printed, out = benchmark_runs.smoke("loader", tmp_path / "data", *WRITERS)
    kinds = {"Epochs", "Crops", "Sources", "ColdEpochs", "Starts"}
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
        made = benchmark_runs.reported(tmp_path, "loading.md", out)
        assert made.count("\n### Shuffled epochs of small images\n") == 1
        assert made.count("\n#### Shuffled epochs of small images: waits for a batch\n") == 1
        assert (tmp_path / "plots" / "load_images.svg").read_text().count("C loop, CRC-32") >= 1

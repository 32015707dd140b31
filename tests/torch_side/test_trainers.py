"""Lightning and Accelerate themselves: each epoch, and each resumed run, has exactly the samples that are promised."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ffrecord

HERE = Path(__file__).parent
SAMPLES, BATCHES, EPOCHS = 24, 8, 3
SECONDS = 600  # machines may be busy

lightning = pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning (group trainers)")
accelerate = pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate (group trainers)")
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * SECONDS)]

Steps = list[list[Any]]  # (epoch, samples)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    samples = [{"i": i} for i in range(SAMPLES)]
    ffrecord.DatasetWriter(tmp_path / "data", num_workers=0).from_indexed_dataset(samples)
    return tmp_path


def run(program: str, directory: Path, cases: Sequence[dict[str, Any]], launcher: Sequence[str] = ()) -> None:
    """Run cases in one process, and what it starts."""
    command = [sys.executable, *launcher, str(HERE / program), str(directory), *map(json.dumps, cases)]
    found = os.pathsep.join([str(Path(ffrecord.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if "RANK" not in name and "WORLD_SIZE" not in name}
    environment = {**kept, "PYTHONPATH": found, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]


def seen(directory: Path, ranks: int = 1) -> list[dict[str, Any]]:
    return [json.loads((directory / f"seen-{rank}.json").read_text()) for rank in range(ranks)]


def check_whole(shares: list[Steps], batches: int = BATCHES) -> None:
    """Each epoch has each sample once, over all ranks, and epochs have orders of their own."""
    orders = []
    for epoch in range(EPOCHS):
        share = [[samples for number, samples in steps if number == epoch] for steps in shares]
        assert sum(map(len, share)) == batches
        orders.append([i for batch in zip(*share, strict=True) for samples in batch for i in samples])
    if batches == BATCHES:
        assert all(sorted(order) == list(range(SAMPLES)) for order in orders)
    assert len({str(order) for order in orders}) == EPOCHS


def checkpoint(directory: Path, step: int) -> str:
    (found,) = directory.glob(f"epoch=*-step={step}.ckpt")
    return str(found)


# Where a run is stopped: (what the case has, the step of the checkpoint)
END, WITHIN, LAST = ({}, 8), ({"every": 3}, 6), ({"every": 8}, 8)
LIMITED, LIMITED_WITHIN = ({"limit": 5}, 5), ({"limit": 5, "every": 3}, 3)
VALIDATED = ({"validate": True}, 8)
ALL = [END, WITHIN, LAST, LIMITED, LIMITED_WITHIN, VALIDATED]
LOADERS = ["sampler", "batches", "shuffle", "stateful", "iterable", "Loader"]


@lightning
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", LOADERS)
def test_lightning(directory: Path, loader: str, workers: int):
    """One rank, stopped at each kind of place; in two processes, as importing Lightning takes long."""
    cases = []
    for number, (more, _) in enumerate(ALL):
        (directory / str(number)).mkdir()
        (directory / str(number) / "data").symlink_to(directory / "data")
        cases.append({"loader": loader, "workers": workers, "directory": str(number), **more})
    run("lightning_runs.py", directory, cases)
    whole = [seen(directory / str(number))[0] for number in range(len(ALL))]
    resumed = [
        {**case, "resume": checkpoint(directory / case["directory"], step)}
        for case, (_, step) in zip(cases, ALL, strict=True)
    ]
    run("lightning_runs.py", directory, resumed)
    for number, (more, step) in enumerate(ALL):
        check_whole([whole[number]["steps"]], more.get("limit", BATCHES))
        found = seen(directory / str(number))[0]
        assert found["steps"] == whole[number]["steps"][step:], more
        for validation in [*whole[number]["validations"][1:], *found["validations"]]:  # the first one is for sanity
            assert sorted(validation) == list(range(SAMPLES))


@lightning
@pytest.mark.parametrize("place", [END, WITHIN], ids=["end", "within"])
@pytest.mark.parametrize(
    ("strategy", "loader", "workers"),
    [
        ("ddp", "Loader", 0),
        ("ddp", "sampler", 2),
        ("ddp", "batches", 0),
        ("ddp", "shuffle", 2),
        ("ddp", "stateful", 2),
        ("ddp", "iterable", 0),
        ("ddp_fork", "Loader", 2),
        ("ddp_fork", "sampler", 0),
        ("ddp_fork", "stateful", 0),
        ("ddp_fork", "iterable", 2),
        ("ddp_spawn", "Loader", 0),
        ("ddp_spawn", "sampler", 0),
        ("ddp_spawn", "stateful", 2),
        ("ddp_spawn", "iterable", 0),
    ],
)
def test_lightning_on_two_ranks(directory: Path, strategy: str, loader: str, workers: int, place: Any):
    case = {"loader": loader, "workers": workers, "devices": 2, "strategy": strategy, **place[0]}
    run("lightning_runs.py", directory, [case])
    whole = [each["steps"] for each in seen(directory, 2)]
    check_whole(whole)
    step = 3 if place is WITHIN else 4
    run("lightning_runs.py", directory, [{**case, "resume": checkpoint(directory, step)}])
    assert [each["steps"] for each in seen(directory, 2)] == [steps[step:] for steps in whole]


@lightning
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", LOADERS)
def test_lightning_stopped_anywhere(directory: Path, loader: str, workers: int):
    """On each of the first batches of an epoch, and the last ones; not only in the first epoch."""
    case = {"loader": loader, "workers": workers}
    run("lightning_runs.py", directory, [{**case, "every": 1}])
    whole = seen(directory)[0]["steps"]
    check_whole([whole])
    steps = [1, 7, 8, 9, 10, 15, 16, 17, 23]
    for step in steps:
        (directory / str(step)).mkdir()
        (directory / str(step) / "data").symlink_to(directory / "data")
    resumed = [{**case, "directory": str(step), "resume": checkpoint(directory, step)} for step in steps]
    run("lightning_runs.py", directory, resumed)
    for step in steps:
        assert seen(directory / str(step))[0]["steps"] == whole[step:], step


@lightning
def test_torchs_loader_in_lightning(directory: Path):
    """At the end of an epoch it is exact, too, though workers read ahead before the sampler is told the epoch."""
    run("lightning_runs.py", directory, [{"loader": "torch", "workers": 2}])
    whole = seen(directory)[0]["steps"]
    check_whole([whole])
    run("lightning_runs.py", directory, [{"loader": "torch", "workers": 2, "resume": checkpoint(directory, 8)}])
    assert seen(directory)[0]["steps"] == whole[8:]


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@accelerate
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", ["Loader", "sampler", "batches", "stateful"])
def test_accelerate(directory: Path, loader: str, workers: int, ranks: int):
    launcher = TORCHRUN if ranks == 2 else []
    case = {"loader": loader, "workers": workers}
    run("accelerate_runs.py", directory, [case], launcher)
    whole = [each["steps"] for each in seen(directory, ranks)]
    check_whole(whole)
    for stop in (3, BATCHES // ranks, BATCHES // ranks + 2):
        run("accelerate_runs.py", directory, [{**case, "stop": stop}], launcher)
        before = [each["steps"] for each in seen(directory, ranks)]
        run("accelerate_runs.py", directory, [{**case, "resume": True}], launcher)
        after = [each["steps"] for each in seen(directory, ranks)]
        assert [one + two for one, two in zip(before, after, strict=True)] == whole, stop

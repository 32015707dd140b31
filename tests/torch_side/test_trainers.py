"""Trainers of others themselves: each epoch, and each resumed run, has exactly the samples that are promised."""

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
transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers (group trainers)")
grain = pytest.mark.skipif(
    find_spec("grain") is None or find_spec("jax") is None, reason="needs grain and jax (group trainers)"
)
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
@pytest.mark.parametrize("place", [END, WITHIN], ids=["end", "within"])
def test_a_loader_in_lightning_on_other_ranks(directory: Path, place: Any):
    """With as many samples in a step: on two ranks, then on one."""
    run("lightning_runs.py", directory, [{"loader": "Loader", "devices": 2, "strategy": "ddp", **place[0]}])
    before = [each["steps"] for each in seen(directory, 2)]
    step = 3 if place is WITHIN else 4
    run("lightning_runs.py", directory, [{"loader": "Loader", "batch": 6, "resume": checkpoint(directory, step)}])
    check_rest(before, step, [seen(directory)[0]["steps"]])


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


@accelerate
def test_a_loader_in_accelerate_on_other_ranks(directory: Path):
    """With as many samples in a step: on two ranks, then on one."""
    run("accelerate_runs.py", directory, [{"loader": "Loader", "workers": 0}], TORCHRUN)
    whole = [each["steps"] for each in seen(directory, 2)]
    for stop in (3, BATCHES // 2, BATCHES // 2 + 2):
        run("accelerate_runs.py", directory, [{"loader": "Loader", "workers": 0, "stop": stop}], TORCHRUN)
        run("accelerate_runs.py", directory, [{"loader": "Loader", "workers": 0, "batch": 6, "resume": True}])
        check_rest(whole, stop, [seen(directory)[0]["steps"]])


@transformers
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("loader", "workers"), [("trainer", 0), ("sampler", 2), ("batches", 0), ("batches", 2), ("Loader", 0)]
)
def test_hugging_face(directory: Path, loader: str, workers: int, ranks: int):
    """Stopped within the first and second epoch, at the end of an epoch, and again after a resume."""
    launcher = TORCHRUN if ranks == 2 else []
    case = {"loader": loader, "workers": workers}
    run("huggingface_runs.py", directory, [case], launcher)
    whole = [each["steps"] for each in seen(directory, ranks)]
    check_whole(whole)
    of_epoch = BATCHES // ranks
    for step in (3, of_epoch, of_epoch + 2):  # each run saves the checkpoints of its later steps again
        run("huggingface_runs.py", directory, [{**case, "resume": step}], launcher)
        assert [each["steps"] for each in seen(directory, ranks)] == [steps[step:] for steps in whole], step


@transformers
def test_a_loader_in_hugging_face_on_other_ranks(directory: Path):
    """With as many samples in a step. Of two batches in a step, none is lost."""
    run("huggingface_runs.py", directory, [{"loader": "Loader"}], TORCHRUN)
    before = [each["steps"] for each in seen(directory, 2)]
    for step in (3, 4, 6):
        run("huggingface_runs.py", directory, [{"loader": "Loader", "batch": 6, "resume": step}])
        check_rest(before, step, [seen(directory)[0]["steps"]])
    run("huggingface_runs.py", directory, [{"loader": "Loader", "accumulate": 2, "resume": 3}])
    check_rest(before, 3, [seen(directory)[0]["steps"]])


@transformers
def test_hugging_face_leaves_a_sampler_in_the_wrong_epoch_on_several_ranks(directory: Path):
    """Within a later epoch, unless the program sets it: the documents say so. If this fails, they may say less."""
    case = {"loader": "sampler", "tells": False}
    run("huggingface_runs.py", directory, [case], TORCHRUN)
    whole = [each["steps"] for each in seen(directory, 2)]
    run("huggingface_runs.py", directory, [{**case, "resume": 6}], TORCHRUN)
    resumed = [each["steps"] for each in seen(directory, 2)]
    assert [steps[0][1] for steps in resumed] == [steps[2][1] for steps in whole]
    assert [steps[2:] for steps in resumed] == [steps[8:] for steps in whole]


def samples_of(shares: list[Steps], epoch: int) -> list[int]:
    """Return the samples of an epoch, of all ranks, as the order has them."""
    of_rank = [[i for number, samples in steps if number == epoch for i in samples] for steps in shares]
    return [i for dealt in zip(*of_rank, strict=True) for i in dealt]


def check_rest(before: list[Steps], stop: int, after: list[Steps]) -> None:
    """Check that a run on other ranks goes on exactly where a run was stopped after `stop` steps."""
    stopped, rest = [steps[:stop] for steps in before], [steps[stop:] for steps in before]
    for epoch in range(EPOCHS):
        assert samples_of(after, epoch) == samples_of(rest, epoch), (stop, epoch)
        assert sorted(samples_of(stopped, epoch) + samples_of(after, epoch)) == list(range(SAMPLES))


@pytest.mark.parametrize("workers", [0, 2])
def test_fsdp(directory: Path, workers: int):
    """With checkpoints of torch.distributed that hold the loader; on two ranks, then on two, one and three."""
    case = {"batch": 3, "workers": workers}
    run("fsdp_runs.py", directory, [case], TORCHRUN)
    whole = [each["steps"] for each in seen(directory, 2)]
    weights = seen(directory)[0]["weights"]
    check_whole(whole)
    for stop in (3, BATCHES // 2, BATCHES // 2 + 2):
        run("fsdp_runs.py", directory, [{**case, "stop": stop}], TORCHRUN)
        assert [each["steps"] for each in seen(directory, 2)] == [steps[:stop] for steps in whole]
        for ranks in (2, 1, 3) if workers == 0 else (3,):
            launcher = [*TORCHRUN[:-1], f"--nproc-per-node={ranks}"]
            run("fsdp_runs.py", directory, [{**case, "batch": 6 // ranks, "resume": True}], launcher)
            check_rest(whole, stop, [each["steps"] for each in seen(directory, ranks)])
            assert seen(directory)[0]["weights"] == pytest.approx(weights), "the model goes on too"


@grain
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["store", "Dataset"])
def test_jax_through_grain(directory: Path, source: str, workers: int):
    """On two ranks, then on one and three."""

    def run_ranks(ranks: int, **more: Any) -> list[Steps]:
        case = {"source": source, "workers": workers, "batch": 6, "ranks": ranks, **more}
        run("jax_runs.py", directory, [{**case, "rank": rank} for rank in range(ranks)])  # one after the other
        return [each["steps"] for each in seen(directory, ranks)]

    whole = run_ranks(2)
    check_whole(whole)
    stops = (3, BATCHES // 2, BATCHES // 2 + 2)
    for stop in stops if workers == 0 else stops[-1:]:  # Grain's workers begin slowly
        assert run_ranks(2, stop=stop) == [steps[:stop] for steps in whole]
        for ranks in (1, 3) if workers == 0 else (3,):
            check_rest(whole, stop, run_ranks(ranks, resume=True))

"""torchdata's StatefulDataLoader with our samplers and datasets: exact, without replay, twice over."""

import json
from typing import Any

import pytest
from torch_builders import WORKERS_ANYWHERE, Ints

from ffrecord.torch import BatchSampler, IterableDataset, Sampler

loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

# torchdata 0.11 calls what torch 2.13 warns of.
pytestmark = [*WORKERS_ANYWHERE, pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")]

KINDS = ["batches", "indices"]


def make(path: str, kind: str, workers: int, *, persistent: bool = False, every: int = 1) -> Any:
    dataset = Ints(path)
    options: dict[str, Any] = {"num_workers": workers, "snapshot_every_n_steps": every}
    if workers:
        options.update(persistent_workers=persistent, multiprocessing_context="fork", prefetch_factor=3)
    if kind == "batches":
        return loaders.StatefulDataLoader(dataset, batch_sampler=BatchSampler(dataset, 4, seed=3), **options)
    return loaders.StatefulDataLoader(dataset, 4, sampler=Sampler(dataset, seed=3), **options)


def batches(loader: Any, count: int | None = None) -> list[list[int]]:
    """Of one epoch, or its first so many."""
    got = []
    for batch in loader:
        got.append(batch.tolist())
        if len(got) == count:
            break
    return got


@pytest.fixture(scope="module")
def epochs(path: str) -> list[list[list[int]]]:
    """The batches of three epochs: 6 in each."""
    sampler = BatchSampler(Ints(path), 4, seed=3)
    return [[Ints(path)[indices] for indices in sampler] for _ in range(3)]


def check(epochs: Any, path: str, kind: str, workers: int, stop: int, **options: Any) -> None:
    loader = make(path, kind, workers, **options)
    assert batches(loader, stop) == epochs[0][:stop]
    state = json.loads(json.dumps(loader.state_dict()))
    loader = make(path, kind, workers, **options)
    loader.load_state_dict(state)
    again = min(2, 6 - stop)
    assert batches(loader, again) == epochs[0][stop : stop + again]
    state = loader.state_dict()
    loader = make(path, kind, workers, **options)
    loader.load_state_dict(state)
    # At the end of an epoch the next loop is the next epoch.
    rest = [epochs[0][stop + again :], *epochs[1:]] if stop + again < 6 else epochs[1:]
    assert [batches(loader) for _ in rest] == rest


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", range(1, 6))
def test_in_process(epochs: Any, path: str, kind: str, stop: int):
    check(epochs, path, kind, 0, stop)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stop", "options"), [(1, {}), (4, {"persistent": True}), (5, {"every": 3})])
def test_with_workers(epochs: Any, path: str, kind: str, stop: int, options: dict[str, Any]):
    check(epochs, path, kind, 2, stop, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_at_the_last_batch(epochs: Any, path: str, kind: str, workers: int):
    loader = make(path, kind, workers)
    assert batches(loader, 6) == epochs[0]
    state = loader.state_dict()
    loader = make(path, kind, workers)
    loader.load_state_dict(state)
    assert [batches(loader), batches(loader)] == epochs[1:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_between_epochs(epochs: Any, path: str, kind: str, workers: int):
    loader = make(path, kind, workers)
    before = loader.state_dict()
    assert batches(loader) == epochs[0]
    after = loader.state_dict()
    assert batches(loader) == epochs[1]
    for state, expected in ((before, epochs), (after, epochs[1:])):
        loader = make(path, kind, workers)
        loader.load_state_dict(state)
        assert [batches(loader) for _ in expected] == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_iterable(epochs: Any, path: str, workers: int, stop: int):
    def make_loader() -> Any:
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        return loaders.StatefulDataLoader(IterableDataset(Ints(path), 4, seed=3), 4, num_workers=workers, **options)

    loader = make_loader()
    assert batches(loader, stop) == epochs[0][:stop]
    for place in range(stop, 6):
        state = loader.state_dict()
        loader = make_loader()
        loader.load_state_dict(state)
        assert batches(loader, 1) == epochs[0][place : place + 1]
    assert loader.dataset.epoch == 0
    loader.dataset.set_epoch(1)
    batches(loader)
    assert batches(loader) == epochs[1]

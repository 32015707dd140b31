"""Loaders and samplers that are made before anybody knows the rank, as scripts do that hand them to a trainer."""

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from textwrap import dedent
from typing import Any

import children
import pytest
from loader_builders import fixed, flat, write
from torch.utils.data import DataLoader as TorchLoader

from ffrecord.order.environment import LAUNCHERS
from ffrecord.torch import BatchSampler, DataLoader, Dataset, IterableDataset, Loader, Sampler

COUNT = 24


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("ranks") / "fixed.ffr", map(fixed, range(COUNT)))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size, launcher.on_node):
            monkeypatch.delenv(name, raising=False)


def drawn(sampler: Any) -> list[int]:
    return [i for each in sampler for i in (each if isinstance(each, list) else [each])]


MAKERS: dict[str, Callable[..., Any]] = {
    "Loader": lambda path, **more: Loader(path, 4, "sequential", **more),
    "Sampler": lambda path, **more: Sampler(Dataset(path), order="sequential", **more),
    "BatchSampler": lambda path, **more: BatchSampler(Dataset(path), 4, order="sequential", **more),
    "IterableDataset": lambda path, **more: IterableDataset(Dataset(path), 4, order="sequential", **more),
}


def samples(made: Any) -> list[int]:
    if isinstance(made, Loader):
        return flat(made)
    if isinstance(made, IterableDataset):
        return flat(TorchLoader(made, 4))
    return drawn(made)


@pytest.mark.parametrize("kind", MAKERS)
def test_made_before_and_iterated_after(path: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    made = MAKERS[kind](path)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    whole = len(made)
    assert whole == {"Loader": 3, "BatchSampler": 3}.get(kind, 12)
    assert samples(made) == list(range(1, COUNT, 2))


@pytest.mark.parametrize("kind", MAKERS)
def test_iterated_before_and_after(path: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    made = MAKERS[kind](path)
    assert samples(made) == list(range(COUNT))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert samples(made) == list(range(1, COUNT, 2))
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert samples(made) == list(range(1, COUNT, 3))
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert samples(made) == list(range(COUNT))


@pytest.mark.parametrize("kind", MAKERS)
def test_the_number_of_ranks_is_known_before_the_rank(path: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    """As in a script that Lightning starts again for its other ranks."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    made = MAKERS[kind](path)
    assert len(made) == {"Loader": 3, "BatchSampler": 3}.get(kind, 12)
    with pytest.raises(ValueError, match=r"world_size is 2, and no rank is given.*after init_process_group"):
        samples(made)
    monkeypatch.setenv("RANK", "1")
    assert samples(made) == list(range(1, COUNT, 2))


def test_an_unknown_rank_has_no_length_if_lengths_differ(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "5")
    for kind in ("Loader", "Sampler"):
        with pytest.raises(ValueError, match="no rank is given"):
            len(MAKERS[kind](path, policy="uneven"))
    with pytest.raises(ValueError, match="no rank is given"):
        _ = Sampler(COUNT).rank
    assert Sampler(COUNT).num_replicas == 5
    with pytest.raises(ValueError, match="no rank is given"):
        Sampler(COUNT, num_replicas=2)  # said here, and not what rank it is


def test_a_rank_without_a_batch_is_refused_when_it_is_known(path: str, monkeypatch: pytest.MonkeyPatch):
    loader = Loader(path, 4, "sequential")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "30")
    with pytest.raises(ValueError, match="each of 30 ranks gets 0 of 24 samples"):
        next(iter(loader))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert flat(loader) == list(range(1, COUNT, 2))


def test_what_is_given_counts(path: str, monkeypatch: pytest.MonkeyPatch):
    for kind, make in MAKERS.items():
        made = make(path, **{"world_size" if kind == "Loader" else "num_replicas": 2, "rank": 0})
        monkeypatch.setenv("RANK", "3")
        monkeypatch.setenv("WORLD_SIZE", "4")
        assert samples(made) == list(range(0, COUNT, 2))


def test_a_state_of_one_world_in_another(path: str, monkeypatch: pytest.MonkeyPatch):
    alone = Loader(path, 4, seed=1)
    iterator = iter(alone)
    before = flat([next(iterator), next(iterator)])
    state = alone.state_dict()
    shares = []
    for rank in range(2):
        loader = Loader(path, 4, seed=1)
        monkeypatch.setenv("WORLD_SIZE", "2")
        loader.load_state_dict(state)  # nobody knows the rank yet
        monkeypatch.setenv("RANK", str(rank))
        shares.append(flat(loader))
        monkeypatch.delenv("RANK")
    rest = list(chain(*zip(*shares, strict=True)))
    assert [*before, *rest] == flat(Loader(path, 4, seed=1, rank=0, world_size=1))


@pytest.mark.parametrize("kind", MAKERS)
def test_pickled_in_between(path: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    """As what is given to spawned processes is."""
    pickled = pickle.dumps(MAKERS[kind](path))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert samples(pickle.loads(pickled)) == list(range(1, COUNT, 2))


RANK = """
    import json, os, pickle, sys
    import torch.distributed as dist
    sys.path.append(sys.argv[4])
    import test_late_ranks as tests
    rank, directory, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    made = {kind: make(path) for kind, make in tests.MAKERS.items()}
    before = {kind: len(tests.samples(each)) for kind, each in made.items()}
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    after = {kind: tests.samples(each) for kind, each in made.items()}
    dataset = tests.IterableDataset(tests.Dataset(path), 4, order="sequential")
    for method in ("fork", "spawn"):
        loader = tests.TorchLoader(dataset, 4, num_workers=2, multiprocessing_context=method)
        after[method] = tests.flat(loader)
    print(json.dumps([before, after]))
    dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_process_group_that_begins_later(path: str, tmp_path: Path):
    """Two processes, each with a group of its own since it has made and used everything alone."""

    def rank(number: int) -> Any:
        here, options = Path(__file__).parent, {"GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore", "check": False}
        return json.loads(children.run(dedent(RANK), number, tmp_path, path, here, timeout=240, **options))

    with ThreadPoolExecutor(2) as pool:
        for number, (before, after) in enumerate(pool.map(rank, range(2))):
            assert set(before.values()) == {COUNT}
            assert after == {kind: list(range(number, COUNT, 2)) for kind in (*MAKERS, "fork", "spawn")}


def test_our_loader_with_workers(path: str, monkeypatch: pytest.MonkeyPatch):
    sampler = Sampler(Dataset(path), order="sequential")
    loader: Any = DataLoader(Dataset(path), 4, sampler=sampler)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (len(loader), flat(loader)) == (3, list(range(0, COUNT, 2)))
    assert loader.state_dict()["epoch"] == 1

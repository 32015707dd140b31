"""States of a loader with a sampler: the same samples go on, and whatever would lose some is refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import ffrecord
from ffrecord.errors import StateError
from ffrecord.order import Block
from ffrecord.torch import BatchSampler, DataLoader, Dataset, Loader, Sampler

COUNT = 100


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset[Any]:
    path: Path = tmp_path_factory.mktemp("states") / "data"
    ffrecord.DatasetWriter(path, num_workers=0).from_indexed_dataset([{"id": i} for i in range(COUNT)])
    return Dataset(path)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ids_of(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch["id"].tolist()]


SAME = {
    "range": lambda d, rank, ranks: {"sampler": range(rank, COUNT, ranks)},
    "ours": lambda d, rank, ranks: {"sampler": Sampler(d, seed=5, num_replicas=ranks, rank=rank)},
    "our batches": lambda d, rank, ranks: {"batch_sampler": BatchSampler(d, 8, seed=5, num_replicas=ranks, rank=rank)},
    "DistributedSampler": lambda d, rank, ranks: {"sampler": DistributedSampler(d, num_replicas=ranks, rank=rank)},
    "generator": lambda d, rank, ranks: {"sampler": RandomSampler(d, generator=seeded(rank))},
    "weighted": lambda d, rank, ranks: {"sampler": WeightedRandomSampler([1.0] * COUNT, 50, generator=seeded(rank))},
}
OTHER = {
    "RandomSampler": lambda d: {"sampler": RandomSampler(d)},
    "its batches": lambda d: {"batch_sampler": TorchBatchSampler(RandomSampler(d), 8, False)},
    "randperm": lambda d: {"sampler": torch.randperm(COUNT)},
}


def make(dataset: Dataset[Any], given: dict[str, Any]) -> Any:
    return Loader(dataset, *([] if "batch_sampler" in given else [8]), **given)


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_same_sampler_goes_on(dataset: Dataset[Any], name: str, ranks: int) -> None:
    for rank in range(ranks):
        whole = ids_of(make(dataset, SAME[name](dataset, rank, ranks)))
        loader = make(dataset, SAME[name](dataset, rank, ranks))
        batches = iter(loader)
        seen = ids_of(next(batches) for _ in range(3))
        later = make(dataset, SAME[name](dataset, rank, ranks))
        later.load_state_dict(loader.state_dict())
        assert seen + ids_of(later) == whole


@pytest.mark.parametrize("name", ["range", "DistributedSampler"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4)])
def test_other_ranks_are_refused(dataset: Dataset[Any], name: str, before: int, after: int) -> None:
    """They lost samples, or gave them twice, without a word. At least one rank tells, which ends the run."""
    states = []
    for rank in range(before):
        loader = make(dataset, SAME[name](dataset, rank, before))
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        states.append(loader.state_dict())
    for state in states:
        for rank in range(after):
            later = make(dataset, SAME[name](dataset, rank, after))
            later.load_state_dict(state)
            with pytest.raises(StateError, match=r"gives other samples in epoch 0 than before the state"):
                list(later)


@pytest.mark.parametrize("name", OTHER)
def test_a_sampler_without_a_seed_is_refused(dataset: Dataset[Any], name: str) -> None:
    loader = make(dataset, OTHER[name](dataset))
    next(iter(loader))
    later = make(dataset, OTHER[name](dataset))
    later.load_state_dict(loader.state_dict())
    with pytest.raises(
        StateError, match=r"sampler gives other samples .* the same 8 samples again, as one with a seed"
    ):
        list(later)


def test_a_generator_that_went_on_is_refused(dataset: Dataset[Any]) -> None:
    """In a later epoch, which a new generator does not begin with."""
    loader = make(dataset, SAME["generator"](dataset, 0, 1))
    list(loader)
    next(iter(loader))
    later = make(dataset, SAME["generator"](dataset, 0, 1))
    later.load_state_dict(loader.state_dict())
    with pytest.raises(StateError, match="in epoch 1 than before the state"):
        list(later)


OURS = {
    "sampler": lambda d, **how: {"batch_size": 8, "sampler": Sampler(d, **how)},
    "batch_sampler": lambda d, **how: {"batch_sampler": BatchSampler(d, 8, **how)},
    "torch's BatchSampler": lambda d, **how: {"batch_sampler": TorchBatchSampler(Sampler(d, **how), 8, False)},
}
HOW: dict[str, dict[str, Any]] = {
    "random": {"seed": 5, "policy": "uneven"},
    "block": {"order": Block(16), "seed": 2, "policy": "uneven", "epoch": 3},
    "sequential": {"shuffle": False, "policy": "pad"},
    "some": {"indices": np.arange(99, 3, -1), "seed": 1, "policy": "drop"},
    "nodes": {"seed": 4, "policy": "pad", "placement": 1},
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4), (3, 3)])
def test_our_samplers_go_on_on_any_ranks(dataset: Dataset[Any], name: str, how: str, before: int, after: int) -> None:
    """The state is that of a loader without a sampler, and so is the rest of the epoch, and the next one."""

    def ours(rank: int, ranks: int) -> Loader:
        return Loader(dataset, **OURS[name](dataset, **HOW[how], num_replicas=ranks, rank=rank))

    def without(rank: int, ranks: int) -> Loader:
        return Loader(dataset, 8, **HOW[how], rank=rank, world_size=ranks)

    for rank in range(before):
        loader, same = ours(rank, before), without(rank, before)
        found, expected = iter(loader), iter(same)
        for _ in range(2):
            assert next(found)["id"].tolist() == next(expected)["id"].tolist()
            assert loader.state_dict() == same.state_dict()
    for rank in range(after):
        later, same = ours(rank, after), without(rank, after)
        for each in (later, same):
            each.load_state_dict(loader.state_dict())
        assert later.position == 16 * before
        for _ in range(2):
            assert ids_of(later) == ids_of(same)
        assert later.epoch == same.epoch and len(later) == len(same)


@pytest.mark.parametrize("name", OURS)
def test_our_sampler_and_its_loader_are_in_one_place(dataset: Dataset[Any], name: str) -> None:
    given = OURS[name](dataset, seed=5)
    sampler = next(each for each in given.values() if not isinstance(each, int))
    sampler = sampler.sampler if isinstance(sampler, TorchBatchSampler) else sampler
    loader = Loader(dataset, **given)
    epochs = [ids_of(Loader(dataset, 8, seed=5, epoch=epoch)) for epoch in range(6)]
    assert ids_of(loader) == epochs[0] and sampler.epoch == 1
    batches = iter(loader)
    next(batches), next(batches)
    assert sampler.state_dict() == loader.state_dict() and sampler.position == loader.position == 16
    sampler.set_epoch(1)  # once more, as it is with torch's loader
    assert ids_of(loader) == epochs[1]
    sampler.set_epoch(4)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (4, 0)
    assert ids_of(loader) == epochs[4]
    sampler.load_state_dict({**state, "position": 24})
    sampler.set_epoch(4)  # the epoch of the state, which goes on
    assert ids_of(loader) == epochs[4][24:]
    sampler.set_epoch(2)
    sampler.set_position(40)
    assert ids_of(loader) == epochs[2][40:]


def test_our_sampler_that_has_begun(dataset: Dataset[Any]) -> None:
    """The loader goes on where it is; iterations of it by the program count as before."""
    sampler = Sampler(dataset, seed=5)
    sampler.set_epoch(3)
    sampler.set_position(24)
    loader = Loader(dataset, 64, sampler=sampler, drop_last=True)
    whole = [ids_of(Loader(dataset, 8, seed=5, epoch=epoch)) for epoch in range(8)]
    assert ids_of(loader) == whole[3][24:88]
    assert ids_of(loader) == whole[4][:64]
    assert list(pickle.loads(pickle.dumps(sampler))) == whole[5]
    assert list(sampler) == whole[5] and len(sampler) == COUNT  # without the loader's drop_last
    assert ids_of(loader) == whole[6][:64] and sampler.epoch == loader.epoch == 7
    assert ids_of(DataLoader(dataset, 10, sampler=sampler)) == whole[7]


def test_two_loaders_with_one_of_our_samplers(dataset: Dataset[Any]) -> None:
    """Of two datasets side by side: both follow it."""
    sampler = Sampler(COUNT, seed=5)
    pair = Loader(dataset, 8, sampler=sampler), Loader([{"id": i} for i in range(COUNT)], 8, sampler=sampler)
    for epoch in (0, 4, 2):
        sampler.set_epoch(epoch)
        first, second = map(ids_of, pair)
        assert first == second == ids_of(Loader(dataset, 8, seed=5, epoch=epoch))


def test_our_sampler_of_some_of_the_samples(dataset: Dataset[Any]) -> None:
    assert sorted(ids_of(Loader(dataset, 8, sampler=Sampler(30)))) == list(range(30))
    subset = dataset[10:60]
    assert sorted(ids_of(Loader(subset, 8, sampler=Sampler(subset)))) == list(range(10, 60))
    some = Sampler(subset, shuffle=False, indices=[3, -1])
    assert ids_of(Loader(subset, 8, sampler=some)) == [13, 59]
    with pytest.raises(ValueError, match="the sampler is of a dataset of 100 samples, but the loader's has 50"):
        Loader(subset, 8, sampler=Sampler(dataset))


def test_arguments_beside_our_sampler(dataset: Dataset[Any]) -> None:
    sampler = Sampler(dataset, seed=5, num_replicas=2, rank=1)
    assert ids_of(Loader(dataset, 8, sampler=sampler, seed=5, rank=1, world_size=2, on_error="replace"))
    with pytest.raises(ValueError, match="seed is 4, but the sampler has 5: leave it out"):
        Loader(dataset, 8, sampler=sampler, seed=4)
    for other in (DistributedSampler(dataset, 2, 1), sampler):
        with pytest.raises(ValueError, match="rank is 0, but the sampler has 1: leave it out"):
            Loader(dataset, 8, sampler=other, rank=0, world_size=2)
        with pytest.raises(ValueError, match="world_size is 4, but the sampler has 2: leave it out"):
            Loader(dataset, batch_sampler=TorchBatchSampler(other, 8, False), rank=1, world_size=4)


def test_a_subclass_of_our_sampler_is_read(dataset: Dataset[Any]) -> None:
    """It may yield whatever it likes."""

    class Odd(Sampler):
        def __iter__(self) -> Any:
            return (i for i in super().__iter__() if i % 2)

    assert sorted(ids_of(Loader(dataset, 8, sampler=Odd(dataset)))) == list(range(1, COUNT, 2))

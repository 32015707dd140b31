"""States of a loader with a sampler: the same samples go on, and whatever would lose some is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import ffrecord
from ffrecord.errors import StateError
from ffrecord.torch import BatchSampler, Dataset, Loader, Sampler

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


@pytest.mark.parametrize("name", ["range", "ours", "our batches", "DistributedSampler"])
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

"""Seeds of samples below torch's subsets and joins: the same as those of `Loader`, and the same after a stop."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as torch_data
from torch.utils.data import ConcatDataset, random_split
from torch_builders import WORKERS_ANYWHERE

import ffrecord
from ffrecord.torch import BatchSampler, DataLoader, Dataset, Loader, Sampler

pytestmark = WORKERS_ANYWHERE


def transform(sample: dict[str, Any], seed: int) -> dict[str, Any]:
    return {**sample, "seed": seed % 2**62}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("seeds") / "data"
    ffrecord.DatasetWriter(directory, num_workers=0).from_indexed_dataset([{"id": i} for i in range(30)])
    return directory


def split_of(dataset: Any) -> Any:
    return random_split(dataset, [0.7, 0.3], torch.Generator().manual_seed(0))[0]


KINDS = {
    "whole": lambda make: make(),
    "random_split": lambda make: split_of(make()),
    "split of a split": lambda make: torch_data.Subset(split_of(make()), [3, 1, 4, 15, 9]),
    "joined": lambda make: ConcatDataset([make(), make()]),
    "split of joined": lambda make: split_of(ConcatDataset([make(), make()])),
    "joined splits": lambda make: ConcatDataset([split_of(make()), make()]),
    "joined with others": lambda make: ConcatDataset([[{"id": 77, "seed": 0}], make()]),
}


def pairs(batches: Any) -> list[tuple[int, int]]:
    return [pair for batch in batches for pair in zip(batch["id"].tolist(), batch["seed"].tolist(), strict=True)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_seeds_are_those_of_the_loader(path: Path, kind: str, workers: int) -> None:
    dataset = KINDS[kind](lambda: Dataset(path, transform=transform))
    expected = pairs(Loader(dataset, 4, seed=2))
    loader = torch_data.DataLoader(dataset, 4, sampler=Sampler(dataset, seed=2), num_workers=workers)
    assert pairs(loader) == expected
    sampler = BatchSampler(dataset, 4, seed=2)
    assert pairs(torch_data.DataLoader(dataset, batch_sampler=sampler, num_workers=workers)) == expected


def test_seeds_of_stacks(path: Path) -> None:
    dataset = torch_data.StackDataset(a=Dataset(path, transform=transform), b=Dataset(path))
    batches = list(torch_data.DataLoader(dataset, 4, sampler=Sampler(dataset, seed=2)))
    expected = list(Loader(dataset, 4, seed=2))
    assert [pairs([batch["a"]]) for batch in batches] == [pairs([batch["a"]]) for batch in expected]


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_come_again_after_a_stop(path: Path, kind: str) -> None:
    def make() -> Any:
        dataset = KINDS[kind](lambda: Dataset(path, transform=transform))
        return DataLoader(dataset, 4, sampler=Sampler(dataset, seed=2))

    whole, loader = pairs(make()), make()
    first = pairs([next(iter(loader))])
    later = make()
    later.load_state_dict(loader.state_dict())
    assert first + pairs(later) == whole


def test_indices_of_a_subset_stay_a_list(path: Path) -> None:
    dataset = split_of(Dataset(path, transform=transform))
    before = list(dataset.indices)
    Sampler(dataset)
    assert dataset.indices == before and isinstance(dataset.indices, list)
    plain = split_of(Dataset(path))
    Sampler(plain)
    assert type(plain.indices) is list

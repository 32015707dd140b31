"""Skipping batches."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.utils import data
from torch_builders import WORKERS_ANYWHERE, Ints, Plain, as_lists, seeded

from ffrecord.torch import DataLoader
from ffrecord.torch.dataloader import SkipableSampler

pytestmark = WORKERS_ANYWHERE


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_rest_of_torchs_epoch(path: str, values: list[int], shuffle: bool, workers: int, batch_size: int):
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "num_workers": workers}
    expected = as_lists(data.DataLoader(Plain(values), **options, generator=seeded(12345)))
    total = len(expected)
    for step in sorted({0, 1, 5, total - 1, total}):
        whole = Ints(path)
        loader = DataLoader(whole, **options, generator=seeded(12345))
        loader.set_step(step)
        assert len(loader) == total - step
        assert as_lists(loader) == expected[step:]
        assert len(whole.asked) in (0, total - step)  # what is skipped is not read
        loader.set_step(0)
        assert len(loader) == total


def test_it_stays_until_it_is_called_again(path: str, values: list[int]):
    loader = DataLoader(Ints(path), 10)
    loader.set_step(torch.tensor(1))
    assert as_lists(loader) == as_lists(loader) == [values[10:20], values[20:]]
    iterator = iter(loader)
    loader.set_step(0)
    assert len(as_lists(iterator)) == 2
    assert len(as_lists(loader)) == 3


@pytest.mark.parametrize("persistent", [True, False])
def test_later_epochs_draw_as_torchs_do(path: str, values: list[int], persistent: bool):
    options: dict[str, Any] = {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 1,
        "persistent_workers": persistent,
    }
    theirs = data.DataLoader(Plain(values), **options, generator=seeded(3))
    ours = DataLoader(Ints(path), **options, generator=seeded(3))
    for step in (2, 0, 6, 5):
        ours.set_step(step)
        assert as_lists(ours) == as_lists(theirs)[step:]


@pytest.mark.parametrize("step", [-1, 4, 99])
def test_out_of_range(path: str, step: int):
    loader = DataLoader(Ints(path), 10)
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match=rf"step is {step}, expected 0 <= step <= 3"):
            loader.set_step(step)
    assert len(loader) == 3


@pytest.mark.parametrize("step", [1.0, "1", None])
def test_wrong_type(path: str, step: Any):
    with pytest.raises(TypeError):
        DataLoader(Ints(path), 10).set_step(step)


def test_not_skippable(path: str):
    for error in (RuntimeError, AssertionError):
        with pytest.raises(error, match="This dataloader is not skippable"):
            DataLoader(Ints(path), 10, skippable=False).set_step(0)


class Endless:
    def __iter__(self) -> Any:
        return (i % 5 for i in range(10**9))


def test_samplers_without_length(path: str, values: list[int]):
    loader = DataLoader(Ints(path), 2, sampler=Endless())
    loader.set_step(7)
    assert next(iter(loader)).tolist() == [values[4], values[0]]
    with pytest.raises(TypeError):
        len(loader)
    with pytest.raises(ValueError, match=r"step is -1, expected 0 <= step$"):
        loader.set_step(-1)


def test_the_sampler_by_itself():
    inner = data.BatchSampler(range(7), 2, False)
    sampler = SkipableSampler(inner)
    assert (sampler.sampler, sampler.step, len(sampler), sampler.batch_size) == (inner, 0, 4, 2)
    sampler.set_step(3)
    assert (list(sampler), len(sampler), sampler.step) == ([[6]], 1, 3)
    sampler.set_step(4)
    assert (list(sampler), len(sampler)) == ([], 0)
    for clone in (copy.copy(sampler), copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert (clone.step, clone.batch_size) == (4, 2)
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = sampler.nothing_such


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_loader_skips_too(path: str, values: list[int], clone: Any):
    loader = clone(DataLoader(Ints(path), 10))
    loader.set_step(2)
    assert as_lists(loader) == [values[20:]]


def test_an_eager_sampler_draws_when_torch_would(path: str, values: list[int]):
    class Eager(data.Sampler[list[int]]):
        """Draws in iter() itself, so before the base seed, and twice if there are workers."""

        def __init__(self, generator: torch.Generator) -> None:
            self.generator = generator

        def __iter__(self) -> Any:
            return iter(torch.randperm(20, generator=self.generator).view(4, 5).tolist())

    for workers in (0, 2):
        loaders = []
        for make, dataset in ((data.DataLoader, Plain(values)), (DataLoader, Ints(path))):
            generator = seeded(8)
            loaders.append(
                make(dataset, batch_sampler=Eager(generator), num_workers=workers, generator=generator)  # type: ignore[operator]
            )
        assert as_lists(loaders[0]) == as_lists(loaders[1])
        assert as_lists(loaders[0]) == as_lists(loaders[1])

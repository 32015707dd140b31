"""The iterable twin: the batches of a batch sampler, whatever ranks and workers there are."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch_builders import WORKERS_ANYWHERE, Ints, Plain, as_lists, write_file

from ffrecord.torch import BatchSampler, IterableDataset

pytestmark = WORKERS_ANYWHERE


def expected(path: str, batch: int, **options: Any) -> list[list[int]]:
    whole = Ints(path)
    return [whole[indices] for indices in BatchSampler(whole, batch, **options)]


@given(st.integers(1, 25), st.integers(1, 3), st.sampled_from(["drop", "pad", "uneven"]), st.integers(0, 4))
def test_batches_are_those_of_the_sampler(path: str, batch: int, world: int, policy: str, epoch: int):
    for rank in range(world):
        options: dict[str, Any] = {"num_replicas": world, "rank": rank, "policy": policy, "epoch": epoch}
        dataset = IterableDataset(Ints(path), batch, **options)
        loader = DataLoader(dataset, batch)
        batches = as_lists(loader)
        assert batches == as_lists(loader) == expected(path, batch, **options)
        assert (len(loader), len(dataset)) == (len(batches), sum(map(len, batches)))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_take_batches_in_turn(path: str, workers: int, context: str):
    if context == "spawn" and workers != 2:
        pytest.skip("slow to start")
    dataset = IterableDataset(Ints(path), 4, seed=2)
    for drop_last in (False, True) if context == "fork" else (False,):
        loader = DataLoader(dataset, 4, num_workers=workers, multiprocessing_context=context, drop_last=drop_last)
        assert as_lists(loader) == expected(path, 4, seed=2)[: 5 if drop_last else 6]


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_and_positions_reach_the_workers(path: str, persistent: bool):
    dataset = IterableDataset(Ints(path), 4)
    loader = DataLoader(dataset, 4, num_workers=2, persistent_workers=persistent, multiprocessing_context="fork")
    assert as_lists(loader) == expected(path, 4)
    dataset.set_epoch(1)
    assert as_lists(loader) == expected(path, 4, epoch=1)
    dataset.set_position(8)
    assert (len(dataset), len(loader), dataset.epoch, dataset.position) == (15, 4, 1, 8)
    assert as_lists(loader) == expected(path, 4, epoch=1)[2:]
    dataset.set_epoch(1)
    assert dataset.position == 8
    state = json.loads(json.dumps(dataset.state_dict()))
    dataset.set_epoch(0)
    assert as_lists(loader) == expected(path, 4)
    dataset.load_state_dict(state)
    assert as_lists(loader) == expected(path, 4, epoch=1)[2:]


def test_all_of_a_state_reaches_workers_that_persist(tmp_path: Any):
    shards = [write_file(tmp_path / f"{i}.ffr", list(range(12 * i, 12 * i + 12))) for i in range(3)]
    before, now = Ints(shards[:2]), Ints(shards)
    dataset = IterableDataset(now, 4)
    loader = DataLoader(dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    assert sorted(i for batch in loader for i in batch.tolist()) == list(range(36))
    seed = 2**64 - 7
    sampler = BatchSampler(now, 4, seed=seed, epoch=3)
    dataset.load_state_dict(sampler.state_dict())
    assert as_lists(loader) == [now[indices] for indices in sampler]
    sampler = BatchSampler(before, 4, seed=seed)
    sampler.set_position(8)
    dataset.load_state_dict(sampler.state_dict(), appended="finish")
    assert (len(dataset), dataset.position) == (16, 8)
    assert as_lists(loader) == [before[indices] for indices in sampler]
    assert dataset.state_dict() == {**sampler.state_dict(), "position": 8, "epoch": 0}
    dataset.set_epoch(1)
    assert as_lists(loader) == [now[indices] for indices in BatchSampler(now, 4, seed=seed, epoch=1)]


def test_state_is_that_of_a_sampler(path: str):
    dataset = IterableDataset(Ints(path), 4, seed=3)
    sampler = BatchSampler(Ints(path), 2, seed=3)
    sampler.set_position(10)
    dataset.load_state_dict(sampler.state_dict())
    assert dataset.state_dict() == sampler.state_dict()
    assert as_lists(DataLoader(dataset, 4)) == [
        a + b for a, b in zip(*[iter([*(Ints(path)[i] for i in sampler), []])] * 2, strict=True)
    ]
    with pytest.raises(ValueError, match="another dataset"):
        IterableDataset(Ints(path)[:20]).load_state_dict(sampler.state_dict())


def test_iterators_have_a_state(path: str):
    dataset = IterableDataset(Ints(path), 4)
    whole = list(dataset)
    for stop in range(24):
        iterator = iter(dataset)
        assert [next(iterator) for _ in range(stop)] == whole[:stop]
        state = json.loads(json.dumps(iterator.state_dict()))
        again = iter(dataset)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert list(again) == whole[stop:]


def test_pickled(path: str):
    dataset = IterableDataset(Ints(path), 4)
    dataset.set_epoch(3)
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


def test_refused(path: str):
    with pytest.raises(TypeError, match=r"dataset is .*Plain.*, expected an ffrecord\.torch\.Dataset"):
        IterableDataset(Plain([1]))
    with pytest.raises(ValueError, match="batch_size is 0"):
        IterableDataset(Ints(path), 0)
    with pytest.raises(ValueError, match="position is 24"):
        IterableDataset(Ints(path)).set_position(24)

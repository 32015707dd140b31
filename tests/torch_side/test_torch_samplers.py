"""Samplers: the order, who gets what, and the place they are in."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler
from torch_builders import WORKERS_ANYWHERE, Ints, Plain, as_lists, write_file

from ffrecord import FileReader
from ffrecord.order import Cursor, Identity, Random
from ffrecord.torch import BatchSampler, DataLoader, Sampler, Subset
from ffrecord.torch.dataset import CHUNK

pytestmark = WORKERS_ANYWHERE


def promised(n: int, epoch: int = 0, seed: int = 0, order: str = "random") -> list[int]:
    """The whole order of an epoch."""
    (step,) = Cursor(Identity(n), order=order, seed=seed, epoch=epoch, batch_size=n).steps()
    return step.indices.tolist()


numbers = st.fixed_dictionaries({"n": st.integers(1, 60), "batch": st.integers(1, 9), "world": st.integers(1, 4)})
policies = st.sampled_from(["drop", "pad", "uneven"])


def ranks(n: int, world: int, **options: Any) -> list[Sampler]:
    return [Sampler(n, world, rank, **options) for rank in range(world)]


def interleaved(shares: list[list[int]]) -> list[int]:
    return [share[k] for k in range(max(map(len, shares))) for share in shares if k < len(share)]


@given(numbers=numbers, policy=policies, epoch=st.integers(0, 5), order=st.sampled_from(["random", "sequential"]))
def test_ranks_share_the_order(numbers: dict[str, int], policy: str, epoch: int, order: str):
    n, batch, world = numbers["n"], numbers["batch"], numbers["world"]
    if policy == "drop" and n < world:
        with pytest.raises(ValueError, match="no batch"):
            Sampler(n, world, 0, policy=policy)
        return
    whole = promised(n, epoch, order=order)
    least, most = n // world * world, -(-n // world) * world
    expected = {"drop": whole[:least], "uneven": whole, "pad": [whole[i % n] for i in range(most)]}[policy]
    shares = []
    for sampler in ranks(n, world, policy=policy, order=order, epoch=epoch):
        shares.append(list(sampler))
        sampler.set_epoch(epoch)
        assert len(sampler) == len(shares[-1]) == sampler.num_samples
        batches = BatchSampler(n, batch, num_replicas=world, rank=sampler.rank, policy=policy, order=order, epoch=epoch)
        drawn = list(batches)
        batches.set_epoch(epoch)
        assert len(batches) == len(drawn)
        assert [index for each in drawn for index in each] == shares[-1]
        assert all(len(each) == batch for each in drawn[:-1])
    assert interleaved(shares) == expected


def test_epochs_follow_each_other():
    sampler = Sampler(50)
    assert [list(sampler) for _ in range(3)] == [promised(50, epoch) for epoch in range(3)]
    assert sampler.epoch == 3
    sampler.set_epoch(1)
    assert list(sampler) == promised(50, 1)


def test_an_iteration_that_is_left_gives_up_its_epoch():
    for sampler in (Sampler(50), BatchSampler(50, 50)):
        assert first(iter(sampler)) == promised(50, 0)[0]
        iter(sampler)  # torch begins some that draw nothing
        assert first(iter(sampler)) == promised(50, 1)[0]


def first(iterator: Iterator[Any]) -> int:
    item = next(iterator)
    return item if isinstance(item, int) else item[0]


def test_set_epoch_begins_at_the_start_but_where_a_state_waits():
    for sampler in (Sampler(50), BatchSampler(50, 1)):
        iterator = iter(sampler)
        for _ in range(7):
            next(iterator)
        state = sampler.state_dict()
        assert (state["epoch"], state["position"]) == (0, 7)
        sampler.set_epoch(0)
        sampler.set_epoch(0)
        assert first(iter(sampler)) == promised(50, 0)[0]
        sampler.load_state_dict(state)
        sampler.set_epoch(0)
        assert first(iter(sampler)) == promised(50, 0)[7]
        sampler.load_state_dict(state)
        sampler.set_epoch(1)
        assert first(iter(sampler)) == promised(50, 1)[0]
        sampler.set_position(30)
        assert (sampler.epoch, sampler.position) == (1, 30)
        assert first(iter(sampler)) == promised(50, 1)[30]


@given(st.data(), numbers, st.sampled_from(["drop", "uneven"]))
def test_going_on_anywhere_with_other_ranks(data: st.DataObject, numbers: dict[str, int], policy: str):
    """Stopped twice, on other numbers of ranks: nothing is repeated or lost but what is dropped at the end."""
    n, seed = numbers["n"], data.draw(st.integers(0, 2**64 - 1))
    whole, position, state, seen = promised(n, seed=seed), 0, None, []
    for _ in range(3):
        world = data.draw(st.integers(1, 3))
        if policy == "drop" and n < world:
            return
        samplers = ranks(n, world, policy=policy, seed=seed)
        shares, states = [], []
        most = (n - position) // world
        steps = data.draw(st.integers(0, most))
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(json.loads(json.dumps(state)))
            iterator = iter(sampler)
            shares.append([next(iterator) for _ in range(steps)])
            states.append(sampler.state_dict())
            assert iterator.state_dict() == states[-1]
        seen += interleaved(shares) if steps else []
        assert all(each == states[0] for each in states)
        state, position = states[0], states[0]["position"]
        assert seen == whole[: len(seen)]
    assert position in (len(seen), n)


def test_the_end_of_an_epoch():
    sampler = Sampler(10, 3, 0)  # one sample is nobody's
    iterator = iter(sampler)
    assert [next(iterator) for _ in range(3)] == promised(10)[:9:3]
    end = sampler.state_dict()
    assert (end["epoch"], end["position"]) == (0, 10)
    again = Sampler(10, 3, 1)
    again.load_state_dict(end)
    assert (again.epoch, len(again), list(again)) == (1, 3, promised(10, 1)[1:9:3])
    again.load_state_dict(end)
    again.set_epoch(0)
    assert (list(again), list(again)) == ([], promised(10, 1)[1:9:3])
    assert list(iterator) == []
    assert (sampler.epoch, sampler.position) == (1, 0)


def test_an_epoch_again():
    for sampler in (Sampler(10), BatchSampler(10, 10)):
        whole = list(sampler)
        for _ in range(2):
            sampler.set_epoch(0)
            assert (sampler.epoch, sampler.position) == (0, 0)
            assert list(sampler) == whole
        assert list(sampler) != whole


def test_many_indices_at_once():
    sampler = Sampler(10_000)
    iterator = iter(sampler)
    assert [next(iterator) for _ in range(5_000)] == promised(10_000)[:5_000]
    assert sampler.position == 5_000
    assert len(list(iterator)) == 5_000


def test_indices_filter():
    odd = np.arange(1, 40, 2)
    sampler = Sampler(40, indices=odd, order="sequential")
    assert list(sampler) == odd.tolist()
    assert sorted(Sampler(40, indices=odd)) == odd.tolist()
    with pytest.raises(IndexError):
        Sampler(40, indices=[40])


# Compatible


def test_like_torchs_distributed_sampler():
    sampler = Sampler(Plain(list(range(20))), num_replicas=3, rank=1, shuffle=False, seed=7, drop_last=False)
    theirs = DistributedSampler(Plain(list(range(20))), num_replicas=3, rank=1, shuffle=False, seed=7, drop_last=False)
    assert isinstance(sampler, DistributedSampler)
    names = ["num_replicas", "rank", "epoch", "drop_last", "num_samples", "total_size", "shuffle", "seed"]
    assert {name: getattr(sampler, name) for name in names} == {name: getattr(theirs, name) for name in names}
    assert list(sampler) == list(theirs)
    assert len(Sampler(20, 3, 1, drop_last=True)) == 6
    assert Sampler(20, 3, 1, True).shuffle
    assert Sampler(20).policy == "drop"


def test_the_rank_is_looked_up_when_iteration_begins(monkeypatch: pytest.MonkeyPatch):
    sampler, fixed = Sampler(12, order="sequential"), Sampler(12, 1, 0, order="sequential")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(sampler) == [1, 4, 7, 10]
    assert (sampler.rank, sampler.num_replicas, len(fixed), len(list(fixed))) == (1, 3, 12, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "sequential", "shuffle": True}, "order is 'sequential', but shuffle=True asks for 'random'"),
        ({"policy": "all"}, "policy is 'all'"),
        ({"order": "best"}, "best"),
        ({"rank": 2, "num_replicas": 2}, "rank is 2, expected 0 <= rank < 2"),
        ({"seed": -1}, "seed is -1"),
        ({"dataset": 0}, "0 samples"),
    ],
)
def test_refused(options: dict[str, Any], message: str):
    for make in (Sampler, lambda dataset, **options: BatchSampler(dataset, 2, **options)):
        with pytest.raises(ValueError, match=message):
            make(**{"dataset": 10, **options})


def test_refused_types():
    with pytest.raises(ValueError, match="policy is 'uneven', but drop_last=True asks for 'drop'"):
        Sampler(10, policy="uneven", drop_last=True)
    with pytest.raises(TypeError, match=r"dataset is None, expected .*"):
        Sampler(None)
    with pytest.raises(TypeError, match=r"dataset is .*RandomSampler, expected a dataset"):
        BatchSampler(RandomSampler(range(3)), 2)
    with pytest.raises(ValueError, match="batch_size is 0"):
        BatchSampler(10, 0)
    with pytest.raises(ValueError, match="no batch: each of 1 ranks gets 10 of 10 samples"):
        BatchSampler(10, 11, drop_last=True)


def test_what_batch_samplers_have():
    sampler = BatchSampler(10, 4, drop_last=True, seed=3)
    assert isinstance(sampler, TorchBatchSampler)
    assert (sampler.batch_size, sampler.drop_last, len(sampler)) == (4, True, 2)
    sampler.sampler.set_epoch(5)
    assert (sampler.epoch, sampler.position) == (5, 0)
    assert [len(each) for each in sampler] == [4, 4]
    assert list(BatchSampler(10, 10, order=Random())) == [promised(10)]


# States of something else


def test_states_know_their_dataset(path: str, tmp_path: Path):
    other = write_file(tmp_path / "other.ffr", list(range(23)))
    same, cut = Sampler(Ints(path)), Sampler(Ints(path)[:22])
    state = Sampler(FileReader(path)).state_dict()
    same.load_state_dict(state)
    with pytest.raises(ValueError, match="another dataset: as many samples"):
        Sampler(Ints(other)).load_state_dict(state)
    with pytest.raises(ValueError, match="another dataset: 23 samples then, 22 now"):
        cut.load_state_dict(state)
    with pytest.raises(ValueError, match="other contents"):
        Sampler(Subset(Ints(path), np.arange(1, 23))).load_state_dict(cut.state_dict())
    with pytest.raises(ValueError, match="another order"):
        Sampler(Ints(path), order="sequential").load_state_dict(state)
    with pytest.raises(ValueError, match="other contents"):
        Sampler(Ints(path) + Ints(other)).load_state_dict(Sampler(Ints(other) + Ints(path)).state_dict())
    for again in (Ints(path)[:22], Ints(path).subset(range(22))):
        Sampler(again).load_state_dict(cut.state_dict())


bounds = st.none() | st.integers(-30, 30)
pieces = st.builds(slice, bounds, bounds, st.none() | st.integers(-5, 5).filter(bool))


@given(pieces, st.sampled_from([list, np.array, lambda held: np.array(held, np.int16)]))
def test_states_do_not_know_how_a_subset_was_written(path: str, piece: slice, write: Any):
    dataset = Ints(path)
    held = range(23)[piece]
    if not held:
        return
    state = Sampler(dataset[piece]).state_dict()
    Sampler(dataset.subset(write(held))).load_state_dict(state)
    other = list(held)
    other[len(held) // 2] += 1
    with pytest.raises(ValueError, match="other contents"):
        Sampler(dataset.subset(write(other))).load_state_dict(state)


def test_a_subset_that_departs_late_from_a_progression(path: str):
    long = np.arange(3 * CHUNK + 5)
    state = Sampler(Ints(path).subset(range(len(long)))).state_dict()
    Sampler(Ints(path).subset(long)).load_state_dict(state)
    for place in (CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, len(long) - 2):
        other = long.copy()
        other[place] += 1
        with pytest.raises(ValueError, match="other contents"):
            Sampler(Ints(path).subset(other)).load_state_dict(state)


# In loaders


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_and_a_position_of_the_users(path: str, values: list[int], workers: int):
    def loader(position: int) -> Any:
        sampler = Sampler(Ints(path), seed=4)
        sampler.set_position(position)
        return TorchLoader(Ints(path), 4, sampler=sampler, num_workers=workers)

    whole = as_lists(loader(0))
    assert [value for batch in whole for value in batch] == [values[i] for i in promised(23, seed=4)]
    assert as_lists(loader(3 * 4)) == whole[3:]


def make(kind: str, dataset: Any, workers: int, batch: int = 4, **options: Any) -> tuple[Any, DataLoader[int]]:
    """A sampler of a kind, and a loader with it."""
    more: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 1}
    if kind == "batches":
        batches = BatchSampler(dataset, batch, seed=9, **options)
        return batches, DataLoader(dataset, batch_sampler=batches, **more)
    sampler = Sampler(dataset, seed=9, **options)
    return sampler, DataLoader(dataset, batch, sampler=sampler, skippable=kind == "skippable", **more)


@pytest.mark.parametrize("kind", ["batches", "plain", "skippable"])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_exact_in_our_loader(path: str, kind: str, workers: int):
    _, uninterrupted = make(kind, Ints(path), 0)
    expected = as_lists(uninterrupted) + as_lists(uninterrupted)
    stops = range(10) if workers == 0 else (1, 5, 6)
    for stop in stops:
        _, loader = make(kind, Ints(path), workers)
        got = take(loader, stop)
        state = json.loads(json.dumps(loader.state_dict()))
        _, loader = make(kind, Ints(path), workers)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        got += take(loader, 2)  # and once more
        state = loader.state_dict()
        sampler, loader = make(kind, Ints(path), 2 - workers)
        loader.load_state_dict(state)
        while len(got) < 12:
            got += as_lists(loader)
        assert got[:12] == expected
        assert (sampler.epoch, sampler.position) == (2, 0)


def take(loader: DataLoader[Any], count: int) -> list[list[int]]:
    """So many batches, over as many epochs as it takes."""
    got: list[list[int]] = []
    while len(got) < count:
        for batch in loader:
            got.append(batch.tolist())
            if len(got) == count:
                break
    return got


def test_another_batch_size_and_another_number_of_ranks(path: str, values: list[int]):
    seen = []
    state = None
    for world, batch, steps in ((2, 3, 2), (3, 1, 2), (1, 5, 1)):
        shares, states = [], []
        for rank in range(world):
            _, loader = make("batches", Ints(path), 0, batch, num_replicas=world, rank=rank)
            if state is not None:
                loader.load_state_dict(state)
            shares.append([value for each in take(loader, steps) for value in each])
            states.append(loader.state_dict())
        seen += interleaved(shares)
        assert all(each == states[0] for each in states)
        state = states[0]
    assert seen == [values[i] for i in promised(23, seed=9)]
    assert state is not None
    assert state["position"] == 23


def test_length_within_and_between_epochs(path: str):
    for kind in ("batches", "plain"):
        for workers in (0, 2):
            sampler, loader = make(kind, Ints(path), workers)
            sampler.set_position(12)
            lengths = [len(loader), *(len(loader) for _ in loader), len(loader)]
            assert lengths == 5 * [6]


def test_the_sampler_can_be_told_where_to_go_in_a_loader(path: str, values: list[int]):
    sampler, loader = make("batches", Ints(path), 0)
    take(loader, 2)
    sampler.set_epoch(4)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (4, 0)
    assert as_lists(loader)[0] == [values[i] for i in promised(23, 4, seed=9)[:4]]
    assert loader.state_dict()["epoch"] == 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["batches", "plain"])
def test_the_epoch_set_after_iteration_has_begun(path: str, kind: str, workers: int):
    """As Lightning does: load a state, begin, then say the epoch."""
    sampler, loader = make(kind, Ints(path), workers)
    whole = as_lists(loader)
    sampler.set_epoch(0)
    take(loader, 2)
    state = loader.state_dict()
    sampler, loader = make(kind, Ints(path), workers)
    loader.load_state_dict(state)
    iterator = iter(loader)
    sampler.set_epoch(0)
    assert next(iterator).tolist() == whole[2]
    assert loader.state_dict()["position"] == 12
    assert as_lists(iterator) == whole[3:]


def test_a_batch_that_failed_is_tried_again(path: str):
    class Failing(Ints):
        fails = True

        def process(self, indices: list[int], data: list[Any]) -> list[int]:
            if self.fails and promised(23, seed=9)[8] in indices:
                raise OSError("gone")
            return super().process(indices, data)

    for workers in (0, 2):
        dataset = Failing(path)
        _, loader = make("batches", dataset, workers)
        with pytest.raises(OSError, match="gone"):
            as_lists(loader)
        state = loader.state_dict()
        assert (state["epoch"], state["position"]) == (0, 8)


def test_set_step_and_states_exclude_each_other(path: str):
    _, loader = make("batches", Ints(path), 0)
    whole = as_lists(loader)
    _, loader = make("batches", Ints(path), 0)
    loader.set_step(2)
    assert as_lists(loader) == whole[2:]
    with pytest.raises(RuntimeError, match=r"set_step\(2\) and a state"):
        loader.state_dict()


def test_samplers_inside_samplers_of_others_are_replayed(path: str):
    class Pairs(TorchBatchSampler):
        """Of somebody else, who may do anything."""

    def make_loader() -> DataLoader[int]:
        return DataLoader(Ints(path), batch_sampler=Pairs(Sampler(Ints(path)), 2, False))

    whole = as_lists(make_loader())
    loader = make_loader()
    take(loader, 3)
    state = loader.state_dict()
    loader = make_loader()
    loader.load_state_dict(state)
    assert as_lists(loader) == whole[3:]


def test_single_samples(path: str, values: list[int]):
    loader = DataLoader(Ints(path), None, sampler=Sampler(Ints(path)), skippable=False)
    got = [next(iter(loader))]
    state = loader.state_dict()
    assert (state["position"], got) == (1, [[values[promised(23)[0]]]])
    batches = DataLoader(Ints(path), None, sampler=BatchSampler(Ints(path), 5), skippable=False)
    next(iter(batches))
    assert batches.state_dict()["position"] == 5


def test_nothing_is_replayed(tmp_path: Path):
    """The last batch of an epoch of 2**40 samples, of a dataset that says it has them."""

    class Endless(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 2**40

        def __getitem__(self, index: int) -> int:
            return index

    sampler = BatchSampler(Endless(), 16)
    loader = DataLoader(Endless(), batch_sampler=sampler)
    sampler.set_position(2**40 - 16)
    ((batch),) = loader
    assert len(set(batch.tolist())) == 16
    assert loader.state_dict()["epoch"] == 1


def test_paths_are_no_datasets(tmp_path):
    with pytest.raises(TypeError, match=r"dataset is str .*, expected a dataset with a length, or that length"):
        Sampler(str(tmp_path))


@pytest.mark.parametrize("kind", ["batches", "plain", "skippable"])
def test_pickled_within_an_epoch(path: str, kind: str):
    """As loaders are that a trainer sends to the processes it spawns."""
    sampler, loader = make(kind, Ints(path), 0)
    take(loader, 2)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    expected = as_lists(loader)
    assert as_lists(copy) == expected
    iterator = iter(TorchLoader(Ints(path), 4, sampler=sampler, num_workers=1, multiprocessing_context="fork"))
    assert pickle.loads(pickle.dumps(sampler)).epoch == sampler.epoch == 2
    del iterator

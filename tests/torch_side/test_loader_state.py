"""Where a loader stands: epochs, states, ranks. The arithmetic is the Cursor's, to which a loader keeps."""

import json
import pickle
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_builders import fixed, flat, ids, mixed, write
from torch.distributed.checkpoint.stateful import Stateful
from torch_builders import WORKERS_ANYWHERE

from ffrecord import FileReader
from ffrecord.order import Cursor, Mixture, identity_of
from ffrecord.torch import Loader
from ffrecord.torch.loading.batch_builder import Activity, BatchBuilder

pytestmark = WORKERS_ANYWHERE
COUNT = 23


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "fixed.ffr", map(fixed, range(COUNT)))


@pytest.fixture(scope="module")
def mixed_path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "mixed.ffr", map(mixed, range(COUNT)))


# Epochs


def test_each_loop_is_the_next_epoch(path):
    loader = Loader(path, 4, seed=1)
    epochs = [ids(loader) for _ in range(3)]
    assert [flat(epoch_of(path, e)) for e in range(3)] == [[i for batch in epoch for i in batch] for epoch in epochs]
    assert loader.epoch == 3 and len({str(epoch) for epoch in epochs}) == 3


def epoch_of(path, epoch):
    return Loader(path, 4, seed=1, epoch=epoch)


@pytest.mark.parametrize("how", [{}, {"num_workers": 2}])
def test_a_loop_that_was_left_gives_up_its_epoch(path, how):
    loader = Loader(path, 4, seed=1, **how)
    for _ in loader:
        break
    assert ids(loader) == ids(epoch_of(path, 1))


def test_an_iterator_that_was_not_used_begins_nothing(path):
    loader = Loader(path, 4, seed=1)
    iter(loader)
    assert ids(loader) == ids(epoch_of(path, 0))


def test_set_epoch(path):
    loader = Loader(path, 4, seed=1)
    loader.set_epoch(7)
    assert ids(loader) == ids(epoch_of(path, 7))
    loader.set_epoch(7)
    assert ids(loader) == ids(epoch_of(path, 7))
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.set_epoch(-1)


def test_length(path):
    loader = Loader(path, 4)
    assert len(loader) == 6 and len(Loader(path, 4, drop_last=True)) == 5
    iterator = iter(loader)
    next(iterator)
    assert len(loader) == 6 and loader.position == 4
    list(iterator)
    assert len(loader) == 6


def test_two_iterators(path):
    """The second gives up the epoch of the first, which goes on nevertheless, and counts for nothing."""
    loader = Loader(path, 4, seed=1)
    first, second = iter(loader), iter(loader)
    found = [next(first)]
    other = [next(second)]
    for _ in range(5):
        found.append(next(first))
        other.append(next(second))
        assert (loader.epoch, loader.position) == (1, min(COUNT, 4 * len(other)))
    assert ids(found) == ids(epoch_of(path, 0)) and ids(other) == ids(epoch_of(path, 1))
    assert list(first) == []
    assert loader.epoch == 1
    assert list(second) == []
    assert loader.epoch == 2


# States


@pytest.mark.parametrize("how", [{}, {"num_threads": 2, "transform": lambda sample: sample}, {"num_workers": 2}])
def test_resume_at_every_step(path, how):
    whole = ids(Loader(path, 4, seed=1, epoch=2, **how)) + ids(Loader(path, 4, seed=1, epoch=3))
    for stop in range(6 if not how.get("num_workers") else 2):
        loader = Loader(path, 4, seed=1, epoch=2, prefetch=3, **how)
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        again = Loader(path, 4, seed=9, **how)
        again.load_state_dict(state)
        assert len(again) == 6
        assert ids(again) + ids(again) == whole[stop:]


def test_state_at_the_end(path):
    loader = Loader(path, 4, seed=1)
    states = []
    for _ in loader:
        states.append(loader.state_dict())
    again = Loader(path, 4, seed=1)
    again.load_state_dict(states[-1])
    assert again.epoch == 1
    assert ids(again) == ids(epoch_of(path, 1))
    again.load_state_dict(states[-1])
    again.set_epoch(0)
    assert (list(again), ids(again)) == ([], ids(epoch_of(path, 1)))
    again.load_state_dict(loader.state_dict())
    assert ids(again) == ids(epoch_of(path, 1))


def test_load_after_iter(path):
    """A framework may make the iterator first, and load then."""
    loader = Loader(path, 4, seed=1)
    next(iter(loader))
    state = loader.state_dict()
    other = Loader(path, 4, seed=1)
    iterator = iter(other)
    other.load_state_dict(state)
    assert ids(iterator) == ids(epoch_of(path, 0))[1:]


def test_load_within_a_loop_is_for_the_next(path):
    loader = Loader(path, 4, seed=1)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    next(iterator)
    loader.load_state_dict(state)
    assert ids(iterator) == ids(epoch_of(path, 0))[2:]
    assert ids(loader) == ids(epoch_of(path, 0))[1:]


def test_an_error_leaves_the_state_before_its_batch(path):
    loader = Loader(path, 4, seed=1, transform=fails_once())
    seen = []
    with pytest.raises(RuntimeError, match="transform failed"):
        for batch in loader:
            seen += ids([batch])
    loader.load_state_dict(loader.state_dict())
    assert seen + ids(loader) == ids(epoch_of(path, 0))


def fails_once():
    left = [10]

    def transform(sample):
        left[0] -= 1
        if left[0] == 0:
            raise ValueError("once")
        return sample

    return transform


def test_state_of_another_dataset(path, tmp_path):
    state = Loader(path, 4).state_dict()
    other = Loader(write(tmp_path / "other.ffr", map(fixed, range(COUNT + 1))), 4)
    with pytest.raises(ValueError, match="23 samples then, 24 now"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="order"):
        Loader(path, 4, "sequential").load_state_dict(state)
    with pytest.raises(ValueError, match="not the state"):
        other.load_state_dict({"version": 1})


def test_state_of_frameworks(path):
    assert isinstance(Loader(path, 4), Stateful)


def test_state_is_small(path):
    assert len(json.dumps(Loader(path, 4, seed=2**64 - 1).state_dict())) < 1000


# Ranks


@settings(max_examples=40)
@given(st.data())
def test_loaders_of_all_ranks_follow_their_cursors(path, data):
    """Any ranks, batch sizes, policies and stops: batch for batch what the cursors say, mask included."""
    identity = identity_of(FileReader(path))
    seed, state = data.draw(st.integers(0, 2**64 - 1)), None
    indices = data.draw(st.none() | st.just(np.arange(0, COUNT, 2)))
    for _ in range(data.draw(st.integers(1, 3))):
        world_size = data.draw(st.integers(1, 4))
        options = {
            "batch_size": data.draw(st.integers(1, 5)),
            "policy": data.draw(st.sampled_from(["drop", "pad", "uneven"])),
            "seed": seed,
            "world_size": world_size,
            "indices": indices,
        }
        stop = data.draw(st.integers(0, 6))
        threads = data.draw(st.integers(0, 2))
        transform = data.draw(st.sampled_from([None, lambda sample: sample]))
        states = []
        for rank in range(world_size):
            loader = Loader(path, rank=rank, transform=transform, num_threads=threads, **options)
            cursor = Cursor(identity, rank=rank, **options)
            if state is not None:
                loader.load_state_dict(state)
                cursor.load_state_dict(state)
            assert len(loader) == cursor.whole >= len(cursor)
            for (_, labels), step in zip(islice(loader, stop), islice(cursor.begin(), stop), strict=True):
                assert labels.tolist() == loader.batch_indices.tolist() == step.indices.tolist()
                assert loader.batch_mask.sum() == len(labels) - step.padding
                cursor.yielded(step)
                assert loader.state_dict() == cursor.state_dict()
            states.append(loader.state_dict())
        state = states[0]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_not_show(mixed_path, workers):
    def made(**how):
        loader = Loader(mixed_path, 4, seed=3, rank=1, world_size=2, policy="pad", transform=note, **how)
        return [(batch["id"].tolist(), batch["seed"].tolist(), loader.batch_mask.tolist()) for batch in loader]

    assert made(num_workers=workers) == made(num_threads=2) == made(num_threads=0)


def note(sample, seed):
    return {"id": sample["id"], "seed": seed >> 1}


@pytest.mark.long
def test_spawned_workers(mixed_path):
    loader = Loader(mixed_path, 8, seed=3, num_workers=1, transform=note, multiprocessing_context="spawn")
    expected = [batch["seed"].tolist() for batch in Loader(mixed_path, 8, seed=3, transform=note)]
    assert [batch["seed"].tolist() for batch in loader] == expected


def test_workers_leave_random_generators_alone(mixed_path):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    list(Loader(mixed_path, 8, num_workers=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_rank_of_the_environment(path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert flat(Loader(path, 4, "sequential")) == list(range(1, COUNT - 2, 3))


def test_mixture(path):
    order = Mixture([8, COUNT - 8], weights=[1, 1])
    found = flat(Loader(path, 4, order, seed=2))
    cursor = Cursor(identity_of(FileReader(path)), order=order, seed=2, batch_size=4)
    assert found == [int(i) for step in cursor.steps() for i in step.indices]


def test_what_workers_need_pickles(mixed_path):
    """As it must for spawned ones, which take seconds to start."""
    loader = Loader(mixed_path, 4, "sequential", fields=["id", "tokens"], transform=note, ragged="padded")
    run = Cursor(identity_of(loader.reader), order="sequential", batch_size=4).begin()
    finisher = pickle.loads(pickle.dumps(BatchBuilder(loader.reader, loader._work, run.epoch)))
    batch = finisher.finish(finisher.begin(run[0])(), Activity()).batch
    assert batch["id"].tolist() == [0, 1, 2, 3]

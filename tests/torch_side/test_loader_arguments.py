"""Arguments as torch's DataLoader has them, and draws by weight."""

import inspect
import json
import os
import pickle
import random
import sys
import time
import typing
from typing import Any

import numpy as np
import pytest
import torch
from loader_builders import child_processes, fixed, flat, mixed, write
from torch.utils import data as torch_data
from torch_builders import WORKERS_ANYWHERE

import ffrecord.torch
from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    SampleIndexError,
    StateError,
    UserFunctionError,
    WorkerError,
)
from ffrecord.order import Cursor, Weighted
from ffrecord.torch import BatchSampler, DataLoader, Dataset, IterableDataset, Loader, Sampler

pytestmark = WORKERS_ANYWHERE
COUNT = 30
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]
in_every_way = pytest.mark.parametrize("how", MAKERS, ids=str)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("arguments") / "a.ffr", map(mixed, range(COUNT)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("arguments") / "b.ffr", map(fixed, range(COUNT)))


def seeded(**more: Any) -> Any:
    return torch_data.RandomSampler(range(COUNT), generator=torch.Generator().manual_seed(4), **more)


class Epochs(torch_data.Sampler):
    """A sampler as people write it: another order in each epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter(np.random.default_rng(self.epoch).permutation(COUNT))

    def __len__(self) -> int:
        return COUNT


class Endless:
    def __iter__(self) -> Any:
        i = 0
        while True:
            yield i % COUNT
            i += 1


# Shuffling


def test_shuffle(path):
    assert flat(Loader(path, 4, shuffle=False)) == list(range(COUNT)) == flat(Loader(path, 4, "sequential"))
    assert flat(Loader(path, 4, shuffle=True)) == flat(Loader(path, 4)) == flat(Loader(path, 4, "random"))
    assert flat(Loader(path, 4, "random", shuffle=True)) == flat(Loader(path, 4))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"order": "block", "shuffle": True}, ArgumentError, "order is 'block', but shuffle=True asks for 'random'"),
        ({"order": "random", "shuffle": False}, ArgumentError, "but shuffle=False asks for 'sequential'"),
        ({"order": "block", "shuffle": False}, ArgumentError, "asks for 'sequential': leave one of them out"),
        (
            {"shuffle": "block"},
            ArgumentTypeError,
            "shuffle is str 'block', expected True or False; orders are for order=",
        ),
        ({"order": True}, ArgumentTypeError, "write shuffle=True"),
        ({"class_balanced": True}, ArgumentTypeError, "class_balanced is True, expected a column"),
        (
            {"indices": np.ones(COUNT, bool)},
            TypeError,
            "bool array of shape .*, expected ints; np.flatnonzero makes ints of a mask",
        ),
        (
            {"indices": [True] * COUNT},
            TypeError,
            "indices is a list of bools, expected ints; np.flatnonzero makes ints of a mask",
        ),
        ({"indices": [2, True]}, TypeError, "a bool is not an index; np.flatnonzero makes ints of a mask"),
        ({"weights": [1], "shuffle": False}, ArgumentError, "weights draw the samples: leave one of them out"),
        ({"weights": [1], "order": "random"}, ArgumentError, "order is 'random', but weights draw the samples"),
        ({"weights": [1], "class_balanced": "id"}, ArgumentError, "weights and class_balanced both say"),
        ({"sampler": [1], "batch_sampler": [[1]]}, ArgumentError, "sampler and batch_sampler both say"),
        ({"sampler": [1], "shuffle": True}, ArgumentError, "shuffle is True, but sampler decides that"),
        ({"sampler": [1], "order": "block"}, ArgumentError, "order is 'block', but sampler decides that"),
        ({"sampler": [1], "policy": "pad"}, ArgumentError, "policy is 'pad', but sampler decides that"),
        ({"sampler": [1], "on_error": "replace"}, ArgumentError, "pass 'skip'"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ArgumentError, "batch_size is 2, but batch_sampler decides that"),
        ({"batch_sampler": [[1]], "drop_last": True}, ArgumentError, "drop_last is True, but batch_sampler"),
        ({"sampler": 3}, ArgumentTypeError, "sampler is int 3, expected an iterable of ints"),
        (
            {"batch_sampler": "ab"},
            ArgumentTypeError,
            "batch_sampler is str 'ab', expected an iterable of lists of ints",
        ),
        ({"sampler": iter([1])}, ArgumentTypeError, "list_iterator, which can be read once"),
        ({"collate_fn": 3}, ArgumentTypeError, "collate_fn is int 3, expected a callable"),
        ({"worker_init_fn": 3}, ArgumentTypeError, "worker_init_fn is int 3, expected a callable"),
        ({"device": True}, ArgumentTypeError, "device is True, expected None or a torch device"),
        ({"multiprocessing_context": "frok"}, ArgumentError, "is 'frok', expected one of \\w+, \\w+, \\w+$"),
        (
            {"multiprocessing_context": 3},
            ArgumentTypeError,
            "is int 3, expected a start method such as 'spawn', a context or None",
        ),
        ({"batch_size": None}, ArgumentTypeError, "batch_size is None, expected an int; 1 makes batches of one sample"),
        ({"check_data": "no"}, ArgumentTypeError, "check_data is str 'no', expected True or False"),
        ({"pin_memory": "yes"}, ArgumentTypeError, "pin_memory is str 'yes', expected True or False"),
        ({"persistent_workers": 1}, ArgumentTypeError, "persistent_workers is int 1, expected True or False"),
        ({"io": "fast"}, ArgumentError, "io is 'fast', expected one of auto"),
        ({"indices": 3}, ArgumentTypeError, "indices is int 3, expected a collection of ints"),
        ({"weights": [1, 2]}, ArgumentError, f"2 weights for {COUNT} samples, expected one for each"),
        ({"class_balanced": [1, 2]}, ArgumentError, f"2 labels, expected {COUNT}"),
        ({"class_balanced": 5}, ArgumentTypeError, "class_balanced is int 5, expected a column, or an int"),
        (
            {"class_balanced": torch.ones(COUNT, requires_grad=True)},
            ArgumentTypeError,
            "class_balanced is .*, expected a column",
        ),
        (
            {"class_balanced": torch.ones(COUNT, dtype=torch.bfloat16)},
            ArgumentTypeError,
            "class_balanced is .*, expected a col",
        ),
        ({"class_balanced": "name"}, ArgumentTypeError, "'name': the column does not hold an int for each sample"),
        (
            {"class_balanced": "nothing"},
            ArgumentError,
            "class_balanced is 'nothing', expected some of the columns id, ",
        ),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, dict) else "",
)
def test_refused(path, given, error, message):
    with pytest.raises(error, match=message):
        Loader(path, **given)


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("prefetch_factor", "take prefetch"),
        ("generator", "take seed"),
        ("num_replicas", "take world_size"),
        ("target_transform", "take transform, which gets the whole sample"),
        ("label", "take class_balanced"),
        ("pin_memory_device", "take device"),
        ("shufle", "do you mean shuffle?"),
        ("colate_fn", "do you mean collate_fn?"),
        ("prefetch_facter", "take prefetch"),
        ("xyz", "it has dataset, batch_size"),
    ],
)
def test_wrong_words(path, word, right):
    with pytest.raises(TypeError, match=f"Loader has no argument '{word}'.*{right}"):
        Loader(path, **{word: 1})


@pytest.mark.parametrize(
    ("kind", "word", "right"),
    [
        (Dataset, "path", "take fnames, the first argument"),
        (Dataset, "transfrom", "do you mean transform?"),
        (Dataset, "colums", "take fields"),
        (Sampler, "world_size", "take num_replicas"),
        (Sampler, "data_source", "take dataset, the first argument"),
        (BatchSampler, "weights", r"take order=ffrecord.order.Weighted\(weights\)"),
        (BatchSampler, "batchsize", "do you mean batch_size?"),
        (IterableDataset, "generator", "take seed, an int"),
        (DataLoader, "workers", "do you mean num_workers?"),
        (DataLoader, "xyz", "it has dataset, batch_size"),
    ],
)
def test_wrong_words_of_other_classes(kind, word, right):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no argument '{word}'.*{right}"):
        kind(**{word: 1})


def test_wrong_words_of_a_subclass_name_the_class_that_has_no_such_word(path):
    class Own(Dataset):
        def __init__(self, fnames: str, own: int, **more: Any) -> None:
            super().__init__(fnames, **more)

    with pytest.raises(TypeError, match=r"^Dataset has no argument 'transfrom'"):
        Own(path, own=1, transfrom=len)


def public_functions() -> list[Any]:
    """Return the public functions and methods of `ffrecord.torch`, and of the cursor that it uses."""
    public = [getattr(ffrecord.torch, name) for name in dir(ffrecord.torch) if name[0] not in "_."]
    found: list[Any] = []
    for each in [*public, Cursor]:
        if inspect.isclass(each):
            named = {name: made for name, made in vars(each).items() if name[0] != "_" or name[:2] == "__"}
            found += [made for name, made in named.items() if inspect.isfunction(made)]
        elif inspect.isfunction(each):
            found.append(each)
    return found


def test_help_says_int():
    """Not SupportsIndex, which says nothing to most. Ints of numpy work nevertheless."""
    parameters = inspect.signature(Loader).parameters
    assert parameters["batch_size"].annotation is int and parameters["seed"].annotation is int
    functions = public_functions()
    assert {Loader.__init__, DataLoader.set_step, Dataset.__getitem__} <= set(functions)
    for function in functions:
        overloads = typing.get_overloads(function) if sys.version_info >= (3, 11) else []
        assert not any("SupportsIndex" in str(inspect.signature(each)) for each in [function, *overloads]), function


def test_ints_of_numpy(path):
    loader = Loader(path, np.int64(4), seed=np.uint8(3), epoch=np.int32(1), num_threads=np.int64(1))
    assert flat(loader) == flat(Loader(path, 4, seed=3, epoch=1))
    assert Dataset(path)[np.int64(2)]["id"] == Dataset(path)[2]["id"]
    theirs = DataLoader(Dataset(path, fields=["id"]), 4)
    theirs.set_step(np.int64(2))
    assert flat(theirs) == list(range(8, COUNT))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_pinning_without_cuda_warns(path):
    with pytest.warns(UserWarning, match="finds no CUDA device: memory is not pinned") as caught:
        loader = Loader(path, 4, pin_memory=True)
    assert caught[0].filename == __file__
    assert not next(iter(loader))["id"].is_pinned()


# Functions


@in_every_way
def test_collate_fn(path, plain, how):
    theirs = list(torch_data.DataLoader(Dataset(path), 8, collate_fn=first_names))
    assert list(Loader(path, 8, shuffle=False, collate_fn=first_names, **how)) == theirs
    found = list(Loader(plain, 8, shuffle=False, collate_fn=len, transform=len, batch_transform=str, **how))
    assert found == ["8", "8", "8", "6"]


@in_every_way
@pytest.mark.parametrize("name", ["transform", "batch_transform"])
def test_functions_that_forget_to_return(path, name, how):
    with pytest.raises(UserFunctionError, match=f"{name} returned None for .*sample.*: return the "):
        list(Loader(path, 8, shuffle=False, **{name: lambda found: None}, **how))


def test_transform_may_return_none_for_collate_fn(path):
    loader = Loader(
        path,
        8,
        shuffle=False,
        transform=lambda sample: sample if sample["id"] % 2 else None,
        collate_fn=lambda samples: [sample["id"] for sample in samples if sample],
    )
    assert next(iter(loader)) == [1, 3, 5, 7]


def test_what_it_was_given(path):
    dataset = Dataset(path)
    loader = Loader(dataset, 8, num_workers=1)
    assert (loader.dataset, loader.batch_size, loader.num_workers) == (dataset, 8, 1)
    assert len(Loader(path).dataset) == COUNT  # of a path, its reader
    assert Loader(path, batch_sampler=[[1, 2]]).batch_size is None


def first_names(samples: list[Any]) -> Any:
    assert isinstance(samples, list)
    return [sample["name"] for sample in samples], torch.tensor([sample["id"] for sample in samples]).tolist()


@in_every_way
def test_collate_fn_that_fails(path, how):
    with pytest.raises(UserFunctionError, match=r"collate_fn returned None for the batch of samples 0, 1, .*, 7:"):
        list(Loader(path, 8, shuffle=False, collate_fn=lambda samples: None, **how))
    with pytest.raises(
        UserFunctionError, match=r"collate_fn failed on the batch of samples 8, 9, .*, 15: ZeroDivision"
    ):
        list(Loader(path, 8, shuffle=False, collate_fn=lambda samples: 1 // (samples[0]["id"] - 8), **how))


def test_worker_init_fn(path):
    def note(number: int) -> None:
        global started
        started = number

    loader = Loader(path, 5, num_workers=2, worker_init_fn=note, batch_transform=lambda batch: started)
    assert set(loader) == {0, 1}


def draw(batch: Any) -> list[float]:
    return [torch.rand(()).item(), np.random.rand(), random.random()]


def test_random_numbers_without_a_seed_differ_between_ranks(path):
    """Those that functions draw in workers; each rank had the same ones. They depend on the loader's seed only."""

    def drawn(rank: int, **how: Any) -> set[float]:
        how = {"batch_transform": draw, "num_workers": 2, "rank": rank, "world_size": 2, **how}
        return {number for batch in Loader(path, 4, seed=3, **how) for number in batch}

    first, second = drawn(0), drawn(1)
    assert len(first | second) == len(first) + len(second) and drawn(0) == first
    assert not drawn(0, sampler=range(COUNT)) & drawn(1, sampler=range(COUNT))


started = -1


def process(batch: Any) -> Any:
    return os.getpid(), batch["id"].tolist()


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_persistent_workers(path, method):
    """Later loops have the same processes, and give the same as any: in other epochs, after states and left loops."""
    made = {"batch_transform": process, "num_workers": 2, "seed": 3, "multiprocessing_context": method}
    loader = Loader(path, 4, persistent_workers=True, **made)
    plain = Loader(path, 4, seed=3)
    workers = set()
    for _ in range(3):
        found = list(loader)
        assert [samples for _, samples in found] == [batch["id"].tolist() for batch in plain]
        workers |= {pid for pid, _ in found}
    iterator = iter(loader)
    first = next(iterator)
    state = loader.state_dict()
    assert first[1] == next(iter(plain))["id"].tolist()
    with loader:
        rest = list(loader)  # the loop before was left
        assert [samples for _, samples in rest] == [batch["id"].tolist() for batch in plain]
        with pytest.raises(StateError, match="a later loop of this loader has taken its persistent workers"):
            next(iterator)
        loader.load_state_dict(state)
        plain.load_state_dict(state)
        again = list(loader)
        assert [samples for _, samples in again] == [batch["id"].tolist() for batch in plain]
        workers |= {pid for pid, _ in [first, *rest, *again]}
        assert len(workers) == 2 and workers <= child_processes()
    assert gone(workers)


def gone(workers: set[int]) -> bool:
    deadline = time.monotonic() + 5
    while workers & child_processes():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_persistent_workers_of_samplers(path):
    loader = Loader(path, 4, sampler=Epochs(), batch_transform=process, num_workers=2, persistent_workers=True)
    epochs = [list(loader) for _ in range(3)]
    for epoch, found in enumerate(epochs):
        assert [i for _, batch in found for i in batch] == np.random.default_rng(epoch).permutation(COUNT).tolist()
    workers = {pid for found in epochs for pid, _ in found}
    assert len(workers) == 2
    del loader
    assert gone(workers)


def test_persistent_workers_start_again_after_an_error(path):
    def fails(batch: Any) -> Any:
        if batch["id"][0] == 8 and get_epoch() == 0:
            os._exit(3)
        return process(batch)

    def get_epoch() -> int:
        return int(os.path.exists(path + ".again"))

    loader = Loader(path, 4, shuffle=False, batch_transform=fails, num_workers=1, persistent_workers=True)
    with pytest.raises(WorkerError, match=r"exited with code 3 .*does your code call exit"):
        list(loader)
    open(path + ".again", "w").close()
    assert next(iter(loader))[1] == [0, 1, 2, 3]
    loader.close()


def test_copies_of_a_loader_have_their_own_workers(path):
    loader = Loader(path, 4, sampler=Epochs(), num_workers=1, persistent_workers=True)
    assert len(flat(loader)) == COUNT
    copy = pickle.loads(pickle.dumps(loader))
    assert flat(copy) == np.random.default_rng(1).permutation(COUNT).tolist() == flat(loader)
    copy.close()
    loader.close()


def test_persistent_workers_need_workers(path):
    with pytest.raises(ArgumentError, match="persistent_workers=True needs num_workers > 0"):
        Loader(path, persistent_workers=True)


# Samplers


SAMPLERS = {
    "list": lambda: [5, 3, -1, 2, 2],
    "array": lambda: np.arange(COUNT)[::-2],
    "tensor": lambda: torch.arange(7),
    "range": lambda: range(3, 9),
    "SequentialSampler": lambda: torch_data.SequentialSampler(range(COUNT)),
    "RandomSampler": seeded,
    "RandomSampler with replacement": lambda: seeded(replacement=True, num_samples=44),
    "SubsetRandomSampler": lambda: torch_data.SubsetRandomSampler([4, 9, 2], torch.Generator().manual_seed(2)),
    "WeightedRandomSampler": lambda: torch_data.WeightedRandomSampler(
        np.arange(COUNT).tolist(), 21, generator=torch.Generator().manual_seed(2)
    ),
    "DistributedSampler": lambda: torch_data.DistributedSampler(range(COUNT), 2, 1, seed=4),
    "ours": lambda: Sampler(COUNT, num_replicas=2, rank=1, seed=9),
    "own": Epochs,
}


@in_every_way
@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler(path, name, how):
    theirs = torch_data.DataLoader(list(range(COUNT)), 4, sampler=SAMPLERS[name]())
    loader = Loader(path, 4, sampler=SAMPLERS[name](), **how)
    found = [batch["id"].tolist() for batch in loader]
    assert found == [batch.tolist() for batch in theirs]
    assert len(loader) == len(theirs)


BATCHES = {
    "lists": lambda: [[5, 3], [-1], [2, 2, 7]],
    "BatchSampler": lambda: torch_data.BatchSampler(seeded(), 7, drop_last=True),
    "ours": lambda: BatchSampler(COUNT, 7, seed=1),
}


@in_every_way
@pytest.mark.parametrize("name", BATCHES)
def test_batch_sampler(path, name, how):
    theirs = torch_data.DataLoader(list(range(COUNT)), batch_sampler=BATCHES[name]())
    loader = Loader(path, batch_sampler=BATCHES[name](), **how)
    assert [batch["id"].tolist() for batch in loader] == [batch.tolist() for batch in theirs]
    assert len(loader) == len(theirs)


@in_every_way
def test_state_of_a_sampler(path, how):
    """It skips what was yielded, in any batch size, and knows the epoch."""
    whole = [flat([batch]) for batch in Loader(path, 4, sampler=Epochs(), epoch=2, **how)]
    loader = Loader(path, 4, sampler=Epochs(), epoch=2, **how)
    iterator = iter(loader)
    found = [flat([next(iterator)]) for _ in range(3)]
    state = json.loads(json.dumps(loader.state_dict()))
    iterator.close()
    assert found == whole[:3] and (loader.epoch, loader.position) == (2, 12)
    resumed = Loader(path, 3, sampler=Epochs(), **how)
    resumed.load_state_dict(state)
    assert flat(resumed) == [i for batch in whole[3:] for i in batch] and resumed.epoch == 3
    assert flat(resumed) == np.random.default_rng(3).permutation(COUNT).tolist()


@pytest.mark.parametrize("rank", [0, 1])
def test_state_of_a_batch_sampler_of_a_rank(path, rank):
    def make(**more: Any) -> Loader:
        sampler = torch_data.DistributedSampler(range(COUNT), 2, rank, seed=4)
        return Loader(path, batch_sampler=torch_data.BatchSampler(sampler, 4, False), rank=rank, world_size=2, **more)

    loader = make()
    epochs = [[flat([batch]) for batch in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]
    iterator = iter(loader := make(epoch=1))
    assert [flat([next(iterator)]) for _ in range(2)] == epochs[1][:2]
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert [flat([batch]) for batch in resumed] == epochs[1][2:]


def test_state_at_the_end_of_an_epoch(path):
    """The next loop is the next epoch, whether the state is of the last batch or from after it."""
    loader = Loader(path, 4, sampler=Epochs())
    for _ in loader:
        last = loader.state_dict()
    for state in (last, loader.state_dict()):
        resumed = Loader(path, 4, sampler=Epochs())
        resumed.load_state_dict(state)
        assert (resumed.epoch, resumed.position) == (1, 0)
        assert flat(resumed) == np.random.default_rng(1).permutation(COUNT).tolist()


def test_epochs_of_a_sampler(path):
    """They are set by the loader, by trainers, or directly."""

    def order(epoch: int) -> list[int]:
        return np.random.default_rng(epoch).permutation(COUNT).tolist()

    sampler = Epochs()
    loader = Loader(path, 4, sampler=sampler)
    assert [flat(loader), flat(loader)] == [order(0), order(1)]
    loader.set_epoch(7)
    assert flat(loader) == order(7) and loader.epoch == 8
    loader.sampler.set_epoch(3)
    assert flat(loader) == order(3)
    sampler.set_epoch(5)
    assert flat(loader) == order(5) and loader.epoch == 6
    next(iter(loader))
    assert flat(loader) == order(7)
    next(iter(loader))
    loader.sampler.set_epoch(8)  # once more, as trainers do it that validate twice in an epoch
    assert flat(loader) == order(8)
    sampler.epoch = 4
    assert Loader(path, 4, sampler=sampler).epoch == 4


def test_epoch_before_the_first(path):
    """Some samplers begin with epoch -1; that is no epoch of ours."""
    sampler = Epochs()
    sampler.epoch = -1
    loader = Loader(path, 4, sampler=sampler)
    assert loader.epoch == 0 and flat(loader) == np.random.default_rng(0).permutation(COUNT).tolist()
    assert loader.state_dict()["epoch"] == 1


class Failing(Epochs):
    """A sampler that fails after some samples, or batches."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__()
        self.items = items

    def __iter__(self) -> Any:
        yield from self.items
        raise ZeroDivisionError("planned")


@pytest.mark.parametrize(
    ("name", "items", "error", "message"),
    [
        ("sampler", [3], UserFunctionError, "sampler failed in epoch 0: ZeroDivisionError: planned"),
        ("batch_sampler", [[3]], UserFunctionError, "batch_sampler failed in epoch 0: ZeroDivisionError: planned"),
        ("batch_sampler", [3], ArgumentTypeError, "batch_sampler gave 3 after 0 samples"),
        ("batch_sampler", [None, [1]], ArgumentTypeError, "batch_sampler gave None after 0 samples"),
    ],
)
def test_failures_before_the_position_of_a_state(path, name, items, error, message):
    size = {"batch_size": 2} if name == "sampler" else {}
    good = [0, 1, 2, 3] if name == "sampler" else [[0, 1], [2, 3]]
    loader = Loader(path, **size, **{name: Failing(good)})
    next(iter(loader))
    resumed = Loader(path, **size, **{name: Failing(items)})
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(error, match=message):
        next(iter(resumed))


@in_every_way
def test_endless_sampler(path, how):
    loader = Loader(path, 4, sampler=Endless(), **how)
    iterator = iter(loader)
    found = [i for _ in range(20) for i in flat([next(iterator)])]
    assert found == [i % COUNT for i in range(80)]
    iterator.close()
    resumed = Loader(path, 5, sampler=Endless(), **how)
    resumed.load_state_dict(loader.state_dict())
    assert flat([next(iter(resumed))]) == [i % COUNT for i in range(80, 85)]
    with pytest.raises(TypeError, match="has no len"):
        len(loader)


@in_every_way
@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([0, 1, 2, 3, 4, COUNT], SampleIndexError, f"sampler gave {COUNT} after 5 samples, expected -{COUNT} <= index"),
        ([0, 1, 2, 3, "a"], ArgumentTypeError, r"sampler gave \['a'\] after 4 samples: indices is .*, expected"),
    ],
)
def test_samplers_that_are_wrong(path, how, samples, error, message):
    """The batches before come first."""
    iterator = iter(Loader(path, 4, sampler=samples, **how))
    assert flat([next(iterator)]) == [0, 1, 2, 3]
    with pytest.raises(error, match=message):
        next(iterator)


def test_samplers_that_raise_or_are_empty(path):
    class Failing:
        def __iter__(self) -> Any:
            yield 1
            raise LookupError("no more")

    with pytest.raises(UserFunctionError, match="sampler failed in epoch 0: LookupError: no more"):
        list(Loader(path, 1, sampler=Failing()))
    with pytest.raises(ArgumentError, match="batch_sampler gave a batch of 0 samples after 1 sample"):
        list(Loader(path, batch_sampler=[[1], []]))
    with pytest.raises(ArgumentTypeError, match="batch_sampler gave None after 1 sample"):
        list(Loader(path, batch_sampler=[[1], None, [2]]))
    assert list(Loader(path, sampler=[])) == []


MASK = [i % 2 == 0 for i in range(COUNT)]
MASKS: dict[str, Any] = {
    "list": MASK,
    "tuple": tuple(MASK),
    "array": np.array(MASK),
    "tensor": torch.tensor(MASK),
    "bools of numpy": list(np.array(MASK)),
    "tensors": list(torch.tensor(MASK)),
    "objects": np.array(MASK, object),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_no_sampler(path, name):
    """It was taken for the samples 0 and 1, many times."""
    mask = MASKS[name]
    with pytest.raises(ArgumentTypeError, match=r"sampler is a mask of \d+ bools|list of bools.*np\.flatnonzero"):
        list(Loader(path, 4, sampler=mask))
    with pytest.raises(ArgumentTypeError, match=r"(?s)batch_sampler gave .*(bool|object)"):
        list(Loader(path, batch_sampler=[mask]))
    with pytest.raises(ArgumentTypeError, match=r"indices is .*(bools?|object)"):
        Loader(path, indices=mask)
    with pytest.raises(ArgumentTypeError, match=r"np\.flatnonzero makes ints of a mask"):
        Loader(path, indices=iter(mask))


def test_a_sampler_has_ended_when_it_says_so(path):
    """Also if its iterator would go on after that, as one of a queue that is filled again."""

    class Again:
        def __iter__(self):
            return Numbers()

    class Numbers:
        def __init__(self):
            self.left = [0, 1, 2, None, 3, 4, 5]

        def __iter__(self):
            return self

        def __next__(self):
            number = self.left.pop(0)
            if number is None:
                raise StopIteration
            return number

    assert [batch["id"].tolist() for batch in Loader(path, 2, sampler=Again())] == [[0, 1], [2]]


def test_states_of_samplers_that_differ(path):
    state = Loader(path, 4, sampler=Epochs()).state_dict()
    with pytest.raises(ArgumentError, match="the state belongs to another sampler: Epochs in the state, list here"):
        Loader(path, 4, sampler=[1]).load_state_dict(state)
    one, several = Loader(path, 2, sampler=[1, 2]), Loader(path, batch_sampler=[[1, 2]])
    with pytest.raises(ArgumentError, match="that of a loader with a sampler, but this one has a batch_sampler"):
        several.load_state_dict(one.state_dict())
    with pytest.raises(ArgumentError, match="that of a loader with a batch_sampler, but this one has a sampler"):
        one.load_state_dict(several.state_dict())
    with pytest.raises(ArgumentError, match=r"of a loader with a sampler: it has no .*, and it has 'order'"):
        Loader(path, 4, sampler=[1]).load_state_dict(Loader(path, 4).state_dict())
    with pytest.raises(ArgumentError, match=r"this is not the state of an order: it has no .*, and it has 'sampler'"):
        Loader(path, 4).load_state_dict(state)
    with pytest.raises(ArgumentError, match="the state belongs to another dataset: 30 samples then, 5 now"):
        Loader([{"id": 1}] * 5, sampler=Epochs()).load_state_dict(state | {"dataset": state["dataset"] | {"shards": 1}})
    loader = Loader(path, 4, sampler=[1, 2])
    loader.load_state_dict(loader.state_dict() | {"position": 5})
    with pytest.raises(StateError, match="sampler gave 2 samples in epoch 0, but the state is after 5"):
        list(loader)


def test_sampler_of_a_subset(path):
    """Its numbers are those of the subset."""
    subset = torch_data.Subset(Dataset(path), [7, 8, 9])
    assert flat(Loader(subset, 2, sampler=[0, -1])) == [7, 9]
    with pytest.raises(SampleIndexError, match="sampler gave 3 after 0 samples, expected -3 <= index < 3"):
        list(Loader(subset, 2, sampler=[3]))


def test_seeds_of_a_sampler(path):
    """They depend on position, epoch and rank, not on threads or batch size."""

    def seeds(size: int, rank: int = 0, **more: Any) -> list[int]:
        made = Loader(
            path, size, sampler=Epochs(), rank=rank, world_size=2, transform=lambda _, seed: seed >> 1, **more
        )
        return [seed for batch in made for seed in batch.tolist()]

    assert seeds(4) == seeds(7, num_threads=0) == seeds(5, num_workers=2)
    assert not set(seeds(4)) & (set(seeds(4, 1)) | set(seeds(4, epoch=1)))


# Weights


@in_every_way
def test_weights(path, how):
    weights = np.arange(COUNT)
    order = Weighted(weights).indices(np.arange(COUNT), COUNT, 3, 0).tolist()
    assert flat(Loader(path, 4, weights=weights, seed=3, **how)) == order
    assert flat(Loader(path, 4, weights=torch.tensor(weights), seed=3, shuffle=True, **how)) == order
    assert flat(Loader(path, 4, Weighted(weights), seed=3, **how)) == order


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_weights_go_on_on_any_ranks(path, ranks):
    def make(rank: int, size: int) -> Loader:
        return Loader(path, 2, weights=np.arange(COUNT) % 7, seed=3, rank=rank, world_size=size, policy="uneven")

    whole = flat(make(0, 1))
    loader = make(0, 1)
    iterator = iter(loader)
    before = [i for _ in range(3) for i in flat([next(iterator)])]
    state = loader.state_dict()
    parts = []
    for rank in range(ranks):
        part = make(rank, ranks)
        part.load_state_dict(state)
        parts.append(flat(part))
    assert before == whole[:6]
    assert [parts[i % ranks][i // ranks] for i in range(COUNT - 6)] == whole[6:]


def test_weights_are_drawn_as_often_as_they_say(path):
    loader = Loader(path, 30, Weighted([1] * 15 + [4] * 15, epoch_length=30_000), fields=["id"])
    share = np.mean(np.array(flat(loader)) >= 15)
    assert abs(share - 0.8) < 0.01


@in_every_way
def test_class_balanced(path, how):
    """By a column, or by classes."""
    by_column = flat(Loader(path, 4, class_balanced="even", seed=1, **how))
    assert by_column == flat(Loader(path, 4, class_balanced=[i % 2 == 0 for i in range(COUNT)], seed=1, **how))
    rare = [int(i >= 27) for i in range(COUNT)]
    found = [flat(Loader(path, 30, class_balanced=rare, epoch=epoch, **how)) for epoch in range(40)]
    assert 0.4 < np.mean(np.array(found) >= 27) < 0.6


def test_class_balanced_of_other_sources(path, plain):
    samples = [{"id": i, "label": int(i > 25)} for i in range(COUNT)]
    labels = [sample["label"] for sample in samples]
    by_column = flat(Loader(samples, 4, class_balanced="label", seed=2))
    assert by_column == flat(Loader(samples, 4, class_balanced=torch.tensor(labels), seed=2))
    subset = torch_data.Subset(Dataset(path), list(range(20, 30)))
    found = flat(Loader(subset, 4, class_balanced="even", seed=2))
    assert set(found) <= set(range(20, 30)) and len(found) == 10
    assert len(flat(Loader(plain, 4, class_balanced="[1]"))) == COUNT

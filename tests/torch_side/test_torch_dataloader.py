"""The loader against torch's own, and what it takes and passes on."""

import gc
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data
from torch_builders import WORKERS_ANYWHERE, Ints, NewStyle, Plain, as_lists, seeded, write_file

from ffrecord.errors import ChecksumError, SampleIndexError
from ffrecord.torch import ConcatDataset, DataLoader, Dataset, Subset

pytestmark = WORKERS_ANYWHERE

COUNT = 23


def evens_first(_dataset: Any, _generator: Any) -> dict[str, Any]:
    return {"batch_sampler": [[0, 2, 4], [6], [8, 10], [1, 3, 5, 7]]}


def shuffled_batches(dataset: Any, generator: Any) -> dict[str, Any]:
    return {"batch_sampler": data.BatchSampler(data.RandomSampler(dataset, generator=generator), 5, True)}


ORDERS = {
    "in order": lambda d, g: {"batch_size": 4},
    "shuffled": lambda d, g: {"batch_size": 4, "shuffle": True},
    "shuffled, whole batches": lambda d, g: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "one by one": lambda d, g: {"shuffle": True},
    "all at once": lambda d, g: {"batch_size": 99, "shuffle": True},
    "with replacement": lambda d, g: {"batch_size": 7, "sampler": data.RandomSampler(d, True, 50, generator=g)},
    "weighted": lambda d, g: {"batch_size": 5, "sampler": data.WeightedRandomSampler(range(1, 24), 30, generator=g)},
    "some": lambda d, g: {"batch_size": 2, "sampler": data.SubsetRandomSampler(range(3, 9), generator=g)},
    "a list": lambda d, g: {"batch_size": 2, "sampler": [5, 5, -1, 0], "drop_last": True},
    "an array": lambda d, g: {"batch_size": 2, "sampler": np.array([5, 5, 2])},
    "a tensor": lambda d, g: {"batch_size": 2, "sampler": torch.tensor([5, 5, 2])},
    "rank 1 of 3": lambda d, g: {"batch_size": 3, "sampler": data.DistributedSampler(d, 3, 1)},
    "batches in a list": evens_first,
    "batches of batches": shuffled_batches,
}


@pytest.fixture(scope="module", params=["Dataset", "new style", "Subset", "ConcatDataset"])
def dataset(request: pytest.FixtureRequest, path: str) -> Dataset[int]:
    if request.param == "new style":
        return NewStyle(path)
    whole = Ints(path)
    if request.param == "Subset":
        return Subset(whole, range(COUNT))
    if request.param == "ConcatDataset":
        return ConcatDataset([Subset(whole, range(5)), Subset(whole, np.arange(5, COUNT))])
    return whole


def epochs_of(make: Any, dataset: Any, order: str, seed: int, own_generator: bool, **options: Any) -> Any:
    """Two epochs, and what the generators give next."""
    torch.manual_seed(seed)
    generator = seeded(seed + 1) if own_generator else None
    loader = make(dataset, **ORDERS[order](dataset, generator), generator=generator, **options)
    batches = [as_lists(loader), as_lists(loader)]
    assert len(loader) == len(batches[0])
    drawn = torch.rand((), generator=generator), torch.rand(())
    return batches, drawn


@pytest.mark.parametrize("own_generator", [True, False], ids=["own generator", "default generator"])
@pytest.mark.parametrize("order", ORDERS)
def test_as_torch(dataset: Dataset[int], values: list[int], order: str, own_generator: bool):
    for seed in range(3):
        ours = epochs_of(DataLoader, dataset, order, seed, own_generator)
        assert ours == epochs_of(data.DataLoader, Plain(values), order, seed, own_generator)


@pytest.mark.parametrize("own_generator", [True, False], ids=["own generator", "default generator"])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "new each epoch"])
@pytest.mark.parametrize("order", ["shuffled", "with replacement", "weighted", "batches of batches"])
def test_as_torch_with_workers(path: str, values: list[int], order: str, persistent: bool, own_generator: bool):
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": persistent, "prefetch_factor": 3}
    ours = epochs_of(DataLoader, Ints(path), order, 0, own_generator, **options)
    assert ours == epochs_of(data.DataLoader, Plain(values), order, 0, own_generator, **options)


def test_one_read_per_batch(path: str):
    whole = Ints(path)
    as_lists(DataLoader(whole, 10))
    assert whole.asked == [list(range(10)), list(range(10, 20)), [20, 21, 22]]


def test_eight_workers(path: str, values: list[int]):
    assert list(chain(*as_lists(DataLoader(Ints(path), 3, num_workers=8)))) == values


# Arguments


def test_the_arguments():
    """Those of ffrecord 1.4 by position, and all that torch has."""
    ours = inspect.signature(DataLoader.__init__).parameters
    assert " ".join(name for name, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD) == (
        "self dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last timeout "
        "worker_init_fn generator"
    )
    assert set(inspect.signature(data.DataLoader.__init__).parameters) <= set(ours)
    assert (ours["prefetch_factor"].default, ours["skippable"].default) == (2, True)


def test_the_attributes(path: str):
    sampler = data.RandomSampler(range(9))
    loader = DataLoader(Ints(path), 4, sampler=sampler, drop_last=True)
    assert (loader.batch_size, loader.drop_last, loader.sampler) == (4, True, sampler)
    assert (loader.num_workers, loader.prefetch_factor, loader.skippable) == (0, None, True)
    # Others take a batch sampler apart: what ours lacks, the one inside has.
    assert (loader.batch_sampler.batch_size, loader.batch_sampler.sampler.sampler) == (4, sampler)
    with pytest.raises(AttributeError):
        _ = loader.batch_sampler.set_epoch
    unwrapped = DataLoader(Ints(path), 4, skippable=False).batch_sampler
    assert type(unwrapped) is data.BatchSampler


@pytest.mark.parametrize("given", [{}, {"prefetch_factor": 5}, {"prefetch_factor": None}, {"prefetch_factor": 2}])
@pytest.mark.parametrize("workers", [0, 1])
def test_prefetch_factor(path: str, values: list[int], given: dict[str, Any], workers: int):
    loader = DataLoader(Ints(path), 20, num_workers=workers, **given)
    assert as_lists(loader) == [values[:20], values[20:]]
    assert loader.prefetch_factor == ((given.get("prefetch_factor", 2) or 2) if workers else None)


def test_context(path: str, values: list[int]):
    start_method = DataLoader(Ints(path), num_workers=1).multiprocessing_context.get_start_method()
    assert start_method == "fork"
    assert DataLoader(Ints(path)).multiprocessing_context is None
    loader = DataLoader(Ints(path), 23, num_workers=1, multiprocessing_context="spawn")
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert as_lists(loader) == [values]
    with pytest.raises(ValueError, match="multiprocessing_context"):
        DataLoader(Ints(path), num_workers=1, multiprocessing_context="thread")
    with pytest.raises(ValueError, match="num_workers=0"):
        DataLoader(Ints(path), multiprocessing_context="fork")


def test_fork_needs_no_pickling(path: str, values: list[int]):
    whole = Ints(path)
    whole.lock = lambda: None
    assert as_lists(DataLoader(whole, 23, num_workers=1, collate_fn=lambda batch: torch.tensor(batch))) == [values]


@pytest.mark.parametrize("order", ["shuffled", "in order"])
def test_in_order_false(path: str, values: list[int], order: str):
    loader = DataLoader(Ints(path), 4, shuffle=order == "shuffled", num_workers=2, in_order=False)
    assert sorted(chain(*as_lists(loader))) == values
    with pytest.raises(RuntimeError, match="in_order=False"):
        loader.state_dict()
    assert DataLoader(Ints(path), in_order=False).state_dict()["yielded"] == 0


def test_without_batches(path: str, values: list[int]):
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match="skippable=False"):
            DataLoader(Ints(path), None)
    for made in (Ints(path), NewStyle(path)):
        loader = DataLoader(made, None, sampler=[3, -1], skippable=False, collate_fn=tuple)
        assert (list(loader), len(loader)) == ([(values[3],), (values[-1],)], 2)
    assert next(iter(DataLoader(Ints(path), None, skippable=False))) == [values[0]]
    whole = Ints(path)
    batches = DataLoader(whole, None, sampler=[[3, -1], [0]], skippable=False)
    assert list(batches) == [[values[3], values[-1]], [values[0]]]
    assert whole.asked == [[3, 22], [0]]


def test_what_torch_refuses(path: str):
    for wrong in ({"batch_size": 0}, {"num_workers": -1}, {"timeout": -1}, {"shuffle": True, "sampler": [1]}):
        with pytest.raises(ValueError):
            DataLoader(Ints(path), **wrong)


# Other datasets


class Stream(data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, 10, step))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("skippable", [True, False])
def test_iterable_datasets_are_torchs_business(workers: int, skippable: bool):
    ours = DataLoader(Stream(), 3, num_workers=workers, skippable=skippable)
    assert as_lists(ours) == as_lists(data.DataLoader(Stream(), 3, num_workers=workers))
    with pytest.raises(TypeError):
        len(ours)
    for call in (lambda: ours.set_step(1), ours.state_dict, lambda: ours.load_state_dict({})):
        with pytest.raises(RuntimeError, match="IterableDataset"):
            call()


def test_iterable_without_batches():
    assert list(DataLoader(Stream(), None, skippable=False)) == list(range(10))


@pytest.mark.parametrize("workers", [0, 2])
def test_map_style_datasets_of_torch(values: list[int], workers: int):
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "num_workers": workers}
    ours = DataLoader(Plain(values), **options, generator=seeded(1))
    assert as_lists(ours) == as_lists(data.DataLoader(Plain(values), **options, generator=seeded(1)))
    singles = DataLoader(Plain(values), None, skippable=False)
    assert list(singles) == list(data.DataLoader(Plain(values), None)) == values


def test_torchs_subset_of_ours(path: str, values: list[int]):
    whole = Ints(path)
    part, _ = data.random_split(whole, [13, 10], generator=seeded(0))
    assert as_lists(DataLoader(part, 13)) == [[values[i] for i in part.indices]]
    assert len(whole.asked) == 1


# Workers


class Where(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        return [os.getpid() for _ in data]


def note_worker(worker: int) -> None:
    info = data.get_worker_info()
    assert isinstance(info.dataset, Ints)
    info.dataset.asked.append([worker, info.num_workers])


class Noted(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        return [tuple(self.asked[0])] * len(data)


def test_worker_init_fn(path: str):
    loader = DataLoader(Noted(path), 6, num_workers=2, worker_init_fn=note_worker, collate_fn=set)
    assert list(loader) == [{(0, 2)}, {(1, 2)}] * 2


def test_persistent_workers_stay(path: str):
    pids = []
    for persistent in (True, False):
        loader = DataLoader(Where(path), 4, num_workers=2, persistent_workers=persistent, collate_fn=set)
        pids.append([set().union(*loader) for _ in range(2)])
    assert pids[0][0] == pids[0][1]
    assert pids[1][0].isdisjoint(pids[1][1])


def test_persistent_workers_end_with_their_loader(path: str):
    loader = DataLoader(Where(path), 4, num_workers=1, persistent_workers=True, collate_fn=set)
    (pid,) = set().union(*loader)
    del loader
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class SelfMadeError(Exception):
    """As users make them: more than a message, so torch cannot rebuild it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)


class Failing(Ints):
    error: Any = KeyError("no such label")

    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        if 8 in indices:
            raise self.error
        return super().process(indices, data)


def failure(loader: Any) -> Exception:
    """What iteration raises, less its traceback: that would keep the iterator, and its workers."""
    try:
        as_lists(loader)
    except Exception as error:
        return error.with_traceback(None)
    pytest.fail("did not raise")


def test_errors_without_workers(path: str, values: list[int]):
    iterator = iter(DataLoader(Failing(path), 4))
    assert [next(iterator).tolist() for _ in range(2)] == [values[:4], values[4:8]]
    with pytest.raises(KeyError, match="no such label") as caught:
        next(iterator)
    assert caught.traceback[-1].name == "process"
    assert next(iterator).tolist() == values[12:16]


def test_errors_reach_the_parent(path: str, values: list[int]):
    loader = DataLoader(Failing(path), 4, num_workers=2)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(2)] == [values[:4], values[4:8]]
    error = failure(iterator)
    assert type(error) is KeyError
    for text in ("no such label", "in DataLoader worker process 0", "Traceback", "in process\n", "raise self.error"):
        assert text in str(error)
    assert list(chain(*as_lists(iterator))) == values[12:]


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), SelfMadeError(7, "x")], ids=repr)
def test_workers_end_at_once_after_an_error(path: str, error: Exception):
    """Not when the garbage collector comes, and then 5 s for each."""
    failing = Failing(path)
    failing.error = error
    iterator = iter(DataLoader(failing, 4, num_workers=2))
    pids = [worker.pid for worker in iterator._workers]
    failure(iterator)
    gc.disable()
    try:
        del iterator
    finally:
        gc.enable()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_errors_torch_cannot_rebuild_still_say_all(path: str):
    failing = Failing(path)
    failing.error = SelfMadeError(7, "shelf is empty")
    error = failure(DataLoader(failing, 9, num_workers=1))
    assert type(error) is RuntimeError
    assert "SelfMadeError: (7, 'shelf is empty')" in str(error)
    assert "in process\n" in str(error)


def test_our_errors_cross_with_their_type(path: str, tmp_path: Path):
    error = failure(DataLoader(Ints(path), 2, sampler=[1, 23], num_workers=1))
    assert type(error) is SampleIndexError
    assert "index >= number of samples (23 >= 23)" in str(error)
    damaged = Path(write_file(tmp_path / "x.ffr", [1, 2, 3]))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    error = failure(DataLoader(Ints(damaged), 3, num_workers=1))
    assert type(error) is ChecksumError
    assert f"Sample 2: checksum mismatch: {damaged}" in str(error)


class Slow(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        time.sleep(3 if 2 in indices else 0)
        return super().process(indices, data)


def test_timeout(path: str, values: list[int]):
    iterator = iter(DataLoader(Slow(path), 2, num_workers=1, timeout=1))
    assert next(iterator).tolist() == values[:2]
    error = failure(iterator)
    assert (type(error), "timed out after 1" in str(error)) == (RuntimeError, True)


class Deadly(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return data


def test_a_killed_worker_is_noticed(path: str):
    error = failure(DataLoader(Deadly(path), 2, num_workers=1))
    assert isinstance(error, RuntimeError)
    assert re.search("DataLoader worker .* (killed|exited)", str(error))


def test_forking_after_reading_and_reading_after_forking(path: str, values: list[int]):
    """Parent and workers share files, never the machinery that reads them."""
    whole = Ints(path)
    for _ in range(3):
        assert whole[list(range(COUNT))] == values
        for ours, again in product(DataLoader(whole, 12, num_workers=2), range(2)):
            assert whole[[again]] == [values[again]]
            assert len(ours) in (12, 11)


def test_a_forked_child_leaves_the_parents_iterators_alone(path: str, values: list[int]):
    iterator = iter(DataLoader(Ints(path), 4, num_workers=1))
    child = os.fork()
    if child == 0:
        sys.unraisablehook = lambda _: os._exit(1)
        del iterator
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert list(chain(*as_lists(iterator))) == values


SPAWN_SCRIPT = """
import sys
import torch
from ffrecord.torch import DataLoader, Dataset

class Lengths(Dataset):
    def process(self, indices, data):
        return [len(record) for record in data]

class Unpicklable(Lengths):
    pass

if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    dataset = Unpicklable(sys.argv[1])
    dataset.hook = lambda: None
    print([batch.tolist() for batch in DataLoader(dataset, 12, num_workers=2)])
    loader = DataLoader(Lengths(sys.argv[1]), 12, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
"""


@pytest.mark.long
def test_start_method_spawn(path: str, tmp_path: Path):
    """Fork stays our default; where spawn is asked for, the dataset has to pickle."""
    script = tmp_path / "script.py"
    script.write_text(SPAWN_SCRIPT)
    run = subprocess.run([sys.executable, script, path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{[[8] * 12, [8] * 11]}\n" * 2

"""Parts of several contestants of bench_newest.py: batches asked for by indices, through torch's DataLoader."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import newest_samples
import numpy as np
from loader_ways import Batches, Opened

Resumed = tuple[Iterator[Any], Callable[[], Any]]  # the batches from a state on, and a function that returns the state


def whole_batches(rows: Any, work: Any) -> Opened:
    """Return random batches, asked for one by one; `rows` gives a batch for indices int64 [n]."""
    random = np.random.default_rng(work.seed)

    def batches() -> Batches:
        return map(rows.__getitem__, newest_samples.permuted(len(rows), work.batch, random))

    return Opened(batches)


class Permuted:
    """Indices of shuffled batches, another order in each epoch."""

    def __init__(self, count: int, work: Any) -> None:
        self.count, self.work, self.epoch = count, work, 0

    def __len__(self) -> int:
        return -(-self.count // self.work.batch)

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        random = np.random.default_rng((self.work.seed, self.epoch))
        yield from newest_samples.permuted(self.count, self.work.batch, random)


def workers_options(workers: int, start: str) -> dict[str, Any]:
    """Return options for processes that stay from epoch to epoch."""
    if not workers:
        return {"num_workers": 0}
    return {"num_workers": workers, "persistent_workers": True, "multiprocessing_context": start}


def through_torch(rows: Any, work: Any, workers: int, start: str = "fork") -> Opened:
    """Return torch's DataLoader, whose workers get the indices of a batch at once and give it whole."""
    if not workers:
        return whole_batches(rows, work)
    data = importlib.import_module("torch.utils.data")
    options = workers_options(workers, start)
    loader = data.DataLoader(rows, batch_size=None, sampler=Permuted(len(rows), work), **options)
    return Opened(lambda: loader)


def stateful(rows: Any, work: Any, workers: int, state: Any, start: str = "fork") -> Resumed:
    """Return torchdata's StatefulDataLoader, for packages that have no state of their own."""
    data = importlib.import_module("torchdata.stateful_dataloader")
    options = workers_options(workers, start)
    sampler = Permuted(len(rows), work)
    loader = data.StatefulDataLoader(rows, batch_size=None, sampler=sampler, **options)
    if state is not None:
        loader.load_state_dict(state)
    return iter(loader), loader.state_dict

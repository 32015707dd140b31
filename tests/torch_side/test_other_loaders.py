"""Loaders of torch and torchdata with our samplers: they read ahead, and are told then which epoch comes."""

from typing import Any

import pytest
from torch.utils.data import DataLoader as TorchLoader
from torch_builders import WORKERS_ANYWHERE, Plain

from ffrecord.torch import BatchSampler, Sampler

loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

# torchdata 0.11 calls what torch 2.13 warns of.
pytestmark = [*WORKERS_ANYWHERE, pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")]

COUNT, BATCH = 24, 3


def order(epoch: int) -> list[int]:
    return list(Sampler(COUNT, seed=1, epoch=epoch))


def samples(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch.tolist()]


@pytest.fixture(params=["torch", "torch, batches", "torchdata", "torchdata, batches"])
def made(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A sampler, and a loader with it and two workers that persist."""
    make: Any = TorchLoader if request.param.startswith("torch,") or request.param == "torch" else None
    make = make or loaders.StatefulDataLoader
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True}
    dataset = Plain(list(range(COUNT)))
    if "batches" in request.param:
        batches = BatchSampler(COUNT, BATCH, seed=1)
        return batches, make(dataset, batch_sampler=batches, **options)
    sampler = Sampler(COUNT, seed=1)
    return sampler, make(dataset, BATCH, sampler=sampler, **options)


def test_told_late(made: Any):
    """As Lightning does: the iterator is made, then the epoch is said. It begins again."""
    sampler, loader = made
    iterator = iter(loader)
    sampler.set_epoch(3)
    assert samples(iterator) == order(3)
    assert samples(loader) == order(4)


def test_told_late_with_all_read_ahead(made: Any):
    sampler, loader = made
    sampler.set_position(18)
    iterator = iter(loader)
    sampler.set_epoch(2)
    assert samples(iterator) == order(2)


def test_a_short_rest(made: Any):
    """All of it is read ahead while the loader is made. It counts once it was used."""
    sampler, loader = made
    sampler.set_position(18)
    iterator = iter(loader)
    assert (sampler.epoch, samples(iterator), sampler.epoch) == (0, order(0)[18:], 1)
    assert samples(loader) == order(1)

"""torch's own DataLoader with worker processes, over several datasets of the same images."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import workloads
from loader_peers import packed, pairs
from loader_ways import Opened
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from write_cifar import SHAPE, Cifar

import ffrecord.torch

PIXELS = int(np.prod(SHAPE))


def workers(work: workloads.Epochs) -> dict[str, Any]:
    """Return options for processes that stay from epoch to epoch, which is fastest for everybody."""
    return {"num_workers": work.workers, "persistent_workers": True, "multiprocessing_context": "fork"}


def with_sampler(directory: Path, work: workloads.Epochs) -> Opened:
    dataset = ffrecord.torch.Dataset(packed("DatasetWriter", directory, work))
    sampler = ffrecord.torch.BatchSampler(dataset, work.batch, seed=work.seed)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=ffrecord.torch.collate, **workers(work))
    return Opened(lambda: pairs(loader))


def shuffled(directory: Path, work: workloads.Epochs) -> Opened:
    """Return a shuffled DataLoader, as a user has who exchanges only the dataset."""
    dataset = ffrecord.torch.Dataset(packed("DatasetWriter", directory, work))
    loader = DataLoader(dataset, work.batch, shuffle=True, **workers(work))
    return Opened(lambda: pairs(loader))


class Original(ffrecord.torch.Dataset):
    """A dataset as in programs for ffrecord 1.x: one read for a batch, and samples made from bytes in Python."""

    def process(self, indices: list[int], data: list[Any]) -> list[tuple[Any, int]]:
        return [(record[:PIXELS].reshape(SHAPE), int(record[PIXELS:].view(np.int64)[0])) for record in data]


def original(directory: Path, work: workloads.Epochs) -> Opened:
    """Open it with today's reader, which is faster than that of ffrecord 1.x."""
    dataset = Original(packed("DatasetWriter", directory, work))
    loader = DataLoader(dataset, work.batch, shuffle=True, **workers(work))
    return Opened(lambda: loader)


class Mapped(Dataset[tuple[Any, Any]]):
    """Arrays mapped from their files: a sample for an int, a batch for a list of ints."""

    def __init__(self, directory: Path, work: workloads.Epochs) -> None:
        self.images = Cifar(directory, work.samples).images
        self.labels = np.load(directory / "labels.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], self.labels[index]


def memmap(directory: Path, work: workloads.Epochs, processes: bool = True) -> Opened:
    loader = DataLoader(Mapped(directory, work), work.batch, shuffle=True, **(workers(work) if processes else {}))
    return Opened(lambda: loader)


class MappedBatches(Mapped):
    """Batches gathered by NumPy, for lists of indices."""

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return torch.from_numpy(self.images[index]), torch.from_numpy(self.labels[index])


def memmap_batches(directory: Path, work: workloads.Epochs) -> Opened:
    """Open a rarely used form: batches of indices take the place of indices, and nothing is collated."""
    dataset = MappedBatches(directory, work)
    batches = BatchSampler(RandomSampler(dataset), work.batch, False)
    loader = DataLoader(dataset, batch_size=None, sampler=batches, **workers(work))
    return Opened(lambda: loader)

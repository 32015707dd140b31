"""This package: its loader, and its dataset in torch's DataLoader."""

from pathlib import Path
from typing import Any

import newest_samples
import numpy as np
from loader_ways import Batches, Opened
from newest_torch import Resumed

import ffrecord.torch
from ffrecord import DatasetWriter, FileReader
from ffrecord.fields import IntField, JPEGField
from ffrecord.torch.images import RandomResizedCrop


class Named:
    """Samples as dicts: images as arrays, photographs as the bytes of their files."""

    def __init__(self, samples: newest_samples.Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if isinstance(self.samples, newest_samples.Images):
            image, label = self.samples.data[index]
        else:
            image, label = self.samples[index]
        return {"image": image, "label": label}


def packed(directory: Path, work: Any) -> tuple[Path, dict[str, Any]]:
    """Return the dataset, which is written if it is not there, and options to read it."""
    out, samples = directory / "ffrecord", newest_samples.of_work(directory, work)
    pictures = isinstance(samples, newest_samples.Photographs)
    if not out.exists():
        columns = {"image": JPEGField(), "label": IntField()} if pictures else None
        DatasetWriter(out, columns, num_workers=2, progress=False).from_indexed_dataset(Named(samples))
    return out, {"decode": {"image": RandomResizedCrop(work.side)}} if pictures else {}


def pairs(batches: Any) -> Batches:
    return ((batch["image"], batch["label"]) for batch in batches)


def by_index(directory: Path, work: Any) -> Opened:
    """Open random batches: the dataset gives samples for indices, and its function makes a batch of them."""
    path, options = packed(directory, work)
    dataset = ffrecord.torch.Dataset(path, **options)
    random = np.random.default_rng(work.seed)

    def batches() -> Batches:
        order = newest_samples.permuted(len(dataset), work.batch, random)
        return pairs(ffrecord.torch.collate(dataset.__getitems__(indices)) for indices in order)

    return Opened(batches)


def columns(directory: Path, work: Any) -> Opened:
    """Open random batches whose columns are gathered from records of one size."""
    reader = FileReader(packed(directory, work)[0])
    pixels, random = newest_samples.PIXELS, np.random.default_rng(work.seed)

    def batch(indices: Any) -> Any:
        images, labels = reader.read_columns(indices, pixels + 8, [(0, pixels), (pixels, 8)])
        return newest_samples.tensors(images, labels.view(np.int64)[:, 0])

    def batches() -> Batches:
        return map(batch, newest_samples.permuted(reader.n, work.batch, random))

    return Opened(batches)


def loader(directory: Path, work: Any) -> Any:
    path, options = packed(directory, work)
    return ffrecord.torch.Loader(path, work.batch, "random", seed=work.seed, num_threads=work.workers, **options)


def epochs(directory: Path, work: Any) -> Opened:
    made = loader(directory, work)
    return Opened(lambda: pairs(made))


def through_torch(directory: Path, work: Any, workers: int) -> Any:
    """Return a DataLoader over our dataset and sampler, with processes that stay from epoch to epoch."""
    path, options = packed(directory, work)
    dataset = ffrecord.torch.Dataset(path, **options)
    sampler = ffrecord.torch.BatchSampler(dataset, work.batch, seed=work.seed)
    staying = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    return ffrecord.torch.DataLoader(
        dataset, batch_sampler=sampler, collate_fn=ffrecord.torch.collate, num_workers=workers, **staying
    )


def dataset_epochs(directory: Path, work: Any, workers: int) -> Opened:
    made = through_torch(directory, work, workers)
    return Opened(lambda: pairs(made))


def resumed(directory: Path, work: Any, workers: int, state: Any, through: bool = False) -> Resumed:
    """Resume a loader, or a DataLoader if `through`."""
    made = through_torch(directory, work, workers) if through else loader(directory, work)
    if state is not None:
        made.load_state_dict(state)
    return iter(pairs(made)), made.state_dict

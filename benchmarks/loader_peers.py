"""Other packages' loaders over a dataset like CIFAR, each at the best settings found. Imported when called."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import workloads
from loader_ways import Opened
from write_cifar import Cifar
from write_packers import PACKERS, mosaicml


def packed(kind: str, directory: Path, work: workloads.Epochs) -> str:
    """Return the path of a package's dataset, as bench_write.py packs it."""
    out = directory / kind
    if not out.exists():
        PACKERS[kind].pack(Cifar(directory, work.samples), str(out), work.workers)
    return str(out)


def pairs(loader: Any) -> Iterator[tuple[Any, Any]]:
    return ((batch["image"], batch["label"]) for batch in loader)


def ffcv(directory: Path, work: workloads.Epochs) -> Opened:
    """Open FFCV's loader from the page cache, as its documentation recommends for data that fits into memory.

    Its batches are its own buffers, which it overwrites.
    """
    path = f"{packed('ffcv', directory, work)}/data.beton"
    loader, decoders = importlib.import_module("ffcv.loader"), importlib.import_module("ffcv.fields.decoders")
    transforms = importlib.import_module("ffcv.transforms")
    pipelines = {
        "image": [decoders.NDArrayDecoder(), transforms.ToTensor()],
        "label": [decoders.IntDecoder(), transforms.ToTensor(), transforms.Squeeze(1)],
    }
    options = {"num_workers": work.workers, "os_cache": True, "drop_last": False}
    made = loader.Loader(path, work.batch, order=loader.OrderOption.RANDOM, pipelines=pipelines, **options)
    return Opened(lambda: made)


def through_torch(loader: type, dataset: Any, work: workloads.Epochs, workers: int) -> Opened:
    made = loader(dataset, batch_size=work.batch, num_workers=workers, persistent_workers=workers > 0)
    return Opened(lambda: pairs(made))


def mds(directory: Path, work: workloads.Epochs) -> Opened:
    out = packed("mds", directory, work)
    dataset = mosaicml("base.dataset").StreamingDataset(local=out, shuffle=True, batch_size=work.batch)
    return through_torch(importlib.import_module("torch.utils.data").DataLoader, dataset, work, work.workers)


def litdata(directory: Path, work: workloads.Epochs, workers: bool) -> Opened:
    out = packed("litdata", directory, work)
    package = importlib.import_module("litdata")
    dataset = package.StreamingDataset(out, shuffle=True, drop_last=False)
    return through_torch(package.StreamingDataLoader, dataset, work, work.workers if workers else 0)

"""MosaicML Streaming and LitData: datasets in shards, with a loader and a state of their own."""

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import newest_samples
import numpy as np
from loader_ways import Batches, Opened
from newest_torch import Resumed
from write_packers import mosaicml, optimize

AT_ONCE = 1000  # samples of one call of LitData's function

Open = Callable[[Path, Any, int], tuple[Any, Any]]  # the dataset and its loader


class Collate:
    """A step that makes a batch of samples, which come as dicts."""

    def __init__(self, samples: newest_samples.Samples) -> None:
        self.samples = samples

    def __call__(self, rows: Any) -> tuple[Any, Any]:
        return self.samples.collate([(row["image"], row["label"]) for row in rows])


def mds_packed(directory: Path, work: Any) -> Path:
    """Return a directory for this process alone, of links to the same files: two may not read one directory."""
    out, samples = directory / "mds", newest_samples.of_work(directory, work)
    if not out.exists():
        writer = mosaicml("base.format.mds.writer").MDSWriter
        with writer(out=str(out), columns={"image": "bytes", "label": "int"}) as file:
            for data, label in newest_samples.numbered(samples):
                file.write({"image": bytes(data), "label": label})
    own = directory / f"mds-{os.getpid()}"
    own.mkdir(exist_ok=True)
    for path in out.iterdir():
        if not (own / path.name).exists():
            os.link(path, own / path.name)
    return own


def mds(directory: Path, work: Any, workers: int) -> tuple[Any, Any]:
    own = mds_packed(directory, work)
    dataset = mosaicml("base.dataset").StreamingDataset(
        local=str(own), shuffle=True, shuffle_seed=work.seed, batch_size=work.batch
    )
    loader = mosaicml("base.dataloader").StreamingDataLoader
    return dataset, loader(dataset, batch_size=work.batch, **options(directory, work, workers))


def options(directory: Path, work: Any, workers: int) -> dict[str, Any]:
    found: dict[str, Any] = {"num_workers": workers, "collate_fn": Collate(newest_samples.of_work(directory, work))}
    return found | ({"persistent_workers": True} if workers else {})


class Several:
    """Some samples for each call, which saves LitData's queues."""

    def __init__(self, samples: newest_samples.Samples) -> None:
        self.samples = samples

    def __call__(self, bounds: tuple[int, int]) -> Iterator[dict[str, Any]]:
        for index in range(*bounds):
            data, label = self.samples[index]
            yield {"image": bytes(data), "label": label}


def litdata(directory: Path, work: Any, workers: int) -> tuple[Any, Any]:
    package, out = importlib.import_module("litdata"), directory / "litdata"
    samples = newest_samples.of_work(directory, work)
    if not out.exists():
        bounds = [(first, min(first + AT_ONCE, len(samples))) for first in range(0, len(samples), AT_ONCE)]
        optimize(Several(samples), bounds, str(out), 1)
    dataset = package.StreamingDataset(str(out), shuffle=True, drop_last=False, seed=work.seed)
    loader = package.StreamingDataLoader(dataset, batch_size=work.batch, **options(directory, work, workers))
    return dataset, loader


OPEN: dict[str, Open] = {"mds": mds, "litdata": litdata}


def by_index(directory: Path, work: Any, kind: str) -> Opened:
    """Open random batches: both give samples one by one."""
    dataset, collate = OPEN[kind](directory, work, 0)[0], Collate(newest_samples.of_work(directory, work))
    random = np.random.default_rng(work.seed)
    count = len(newest_samples.of_work(directory, work))

    def batch(indices: Any) -> Any:
        return collate([dataset[index] for index in indices.tolist()])

    def batches() -> Batches:
        return map(batch, newest_samples.permuted(count, work.batch, random))

    return Opened(batches)


def epochs(directory: Path, work: Any, kind: str, workers: int) -> Opened:
    loader = OPEN[kind](directory, work, workers)[1]
    return Opened(lambda: loader)


def resumed(directory: Path, work: Any, workers: int, state: Any, kind: str) -> Resumed:
    loader = OPEN[kind](directory, work, workers)[1]
    if state is not None:
        loader.load_state_dict(state)
    return iter(loader), partial(state_of, loader)


def state_of(loader: Any) -> Any:
    return loader.state_dict()

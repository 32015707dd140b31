"""WebDataset: tar files read from front to back, samples mixed in a buffer."""

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import newest_samples
import numpy as np
import webdataset
from loader_ways import Opened
from newest_torch import Resumed

BUFFER = 2000  # samples of each process that are mixed


def packed(directory: Path, work: Any) -> list[str]:
    """Return the tar files of all samples, which are written if they are not there."""
    out = directory / "webdataset"
    samples = newest_samples.of_work(directory, work)
    if not out.exists():
        out.mkdir()
        bounds = np.linspace(0, len(samples), newest_samples.SHARDS + 1).astype(int).tolist()
        for shard, (first, stop) in enumerate(pairwise(bounds)):
            with webdataset.TarWriter(str(out / f"{shard:06}.tar")) as writer:
                for index in range(first, stop):
                    data, label = samples[index]
                    writer.write({"__key__": f"{index:08}", "bin": data, "cls": str(label).encode()})
    return [str(path) for path in sorted(out.glob("*.tar"))]


def pipeline(directory: Path, work: Any, workers: int, seed: int | None) -> Any:
    """Return a loader. With a seed the order is the same in every process that begins anew."""
    samples, shards = newest_samples.of_work(directory, work), packed(directory, work)
    chosen = random.Random(seed) if seed is not None else None
    dataset = webdataset.DataPipeline(
        webdataset.SimpleShardList(shards),
        webdataset.split_by_worker,
        webdataset.shuffle(len(shards), **({"rng": chosen} if chosen else {})),
        webdataset.tarfile_to_samples(),
        webdataset.shuffle(BUFFER, initial=BUFFER, **({"rng": chosen} if chosen else {})),
        webdataset.to_tuple("bin", "cls"),
        webdataset.batched(work.batch, collation_fn=Collate(samples), partial=True),
    )
    options = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=workers, **options)


class Collate:
    """The last step: bytes and labels as they stand in the tar files become a batch."""

    def __init__(self, samples: newest_samples.Samples) -> None:
        self.samples = samples

    def __call__(self, rows: Any) -> Any:
        return self.samples.collate([(data, int(label)) for data, label in rows])


def epochs(directory: Path, work: Any, workers: int) -> Opened:
    loader = pipeline(directory, work, workers, None)
    return Opened(lambda: loader)


def resumed(directory: Path, work: Any, workers: int, state: Any) -> Resumed:
    """Skip the batches that came before: WebDataset has no state."""
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for batch in pipeline(directory, work, workers, work.seed):
            count += 1
            if state is None or count > state:
                yield batch

    return counted(), lambda: count

"""Packages that have loaders and no format: SPDL and torchdata's nodes. They read what people have without a format:
images from a mapped array, photographs from their files.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import newest_samples
import numpy as np
from loader_ways import Batches, Opened
from newest_torch import Permuted, Resumed

THREADS = 2
AHEAD = 4  # batches


class Rows:
    """The samples of a directory, for indices int64 [n]."""

    def __init__(self, directory: Path, work: Any) -> None:
        self.samples = newest_samples.of_work(directory, work)
        if isinstance(self.samples, newest_samples.Images):
            self.images = self.samples.data.images
            self.labels = np.array(self.samples.data.labels, np.int64)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, indices: Any) -> tuple[Any, Any]:
        if self.samples.equal:
            return newest_samples.tensors(self.images[indices], self.labels[indices])
        return self.samples.collate([self.samples[index] for index in indices])


class Decoded(Rows):
    """Photographs decoded and cropped by SPDL."""

    def __getitem__(self, indices: Any) -> tuple[Any, Any]:
        torch, files = importlib.import_module("torch"), self.samples
        io = importlib.import_module("spdl.io")
        assert isinstance(files, newest_samples.Photographs)
        random, frames = np.random.default_rng(), []
        for index in indices:
            packets = io.demux_image(files[index][0])
            left, top, wide, high = newest_samples.box(packets.width, packets.height, random)
            parts = f"crop={wide}:{high}:{left}:{top}:exact=1,scale={files.side}:{files.side}:flags=bilinear"
            frames.append(io.decode_packets(packets, filter_desc=f"{parts},format=pix_fmts=rgb24"))
        return torch.from_numpy(io.to_numpy(io.convert_frames(frames))), torch.from_numpy(indices)


def spdl(directory: Path, work: Any, own: bool = False) -> Opened:
    """Open SPDL's pipeline with as many threads as CPUs.

    Args:
        own: decode by SPDL.
    """
    pipeline = importlib.import_module("spdl.pipeline")
    rows = Decoded(directory, work) if own else Rows(directory, work)
    rows[np.arange(1)]  # what fails in a pipeline is only logged
    order = Permuted(len(rows), work)

    def batches() -> Batches:
        builder = pipeline.PipelineBuilder().add_source(order)
        builder.pipe(rows.__getitem__, concurrency=THREADS, output_order="completion").add_sink(AHEAD)
        built = builder.build(num_threads=THREADS)
        with built.auto_stop():
            yield from built.get_iterator()

    return Opened(batches)


def nodes(directory: Path, work: Any, workers: int) -> Any:
    """Return torchdata's loader, with workers that are threads, which are faster here than processes."""
    package, rows = importlib.import_module("torchdata.nodes"), Rows(directory, work)
    order = package.SamplerWrapper(Permuted(len(rows), work))
    if workers:
        mapped = package.ParallelMapper(order, rows.__getitem__, num_workers=workers, in_order=True, method="thread")
    else:
        mapped = package.Mapper(order, rows.__getitem__)
    return package.Loader(mapped)


def epochs(directory: Path, work: Any, workers: int) -> Opened:
    loader = nodes(directory, work, workers)
    return Opened(lambda: loader)


def resumed(directory: Path, work: Any, workers: int, state: Any) -> Resumed:
    loader = nodes(directory, work, workers)
    if state is not None:
        loader.load_state_dict(state)
    iterator: Iterator[Any] = iter(loader)
    return iterator, loader.state_dict

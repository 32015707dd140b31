"""This package's own loader over a dataset like CIFAR."""

from pathlib import Path
from typing import Any

import workloads
from loader_peers import packed, pairs
from loader_ways import Opened

import ffrecord.torch


def loader(directory: Path, work: workloads.Epochs, **options: Any) -> Opened:
    path = packed("DatasetWriter", directory, work)
    made = ffrecord.torch.Loader(path, work.batch, "random", seed=work.seed, num_threads=work.workers, **options)
    return Opened(lambda: pairs(made))

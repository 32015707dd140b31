"""This package's own loader over a dataset like CIFAR."""

from pathlib import Path
from typing import Any

import numpy as np
import workloads
from harness import WrongAnswerError
from loader_peers import packed, pairs
from loader_ways import Opened
from waits import Waits
from write_cifar import Cifar

import ffrecord.torch
from ffrecord import order


def loader(directory: Path, work: workloads.Epochs, **options: Any) -> Opened:
    path = packed("DatasetWriter", directory, work)
    made = ffrecord.torch.Loader(path, work.batch, "random", seed=work.seed, num_threads=work.workers, **options)
    return Opened(lambda: pairs(made))


def of_split(directory: Path, work: workloads.Epochs) -> Opened:
    """Open the same over the only part of torch's `random_split` of the dataset: all samples, in a list of indices."""
    from torch.utils.data import random_split

    (part,) = random_split(ffrecord.torch.Dataset(packed("DatasetWriter", directory, work)), [work.samples])
    made = ffrecord.torch.Loader(part, work.batch, "random", seed=work.seed, num_threads=work.workers)
    return Opened(lambda: pairs(made))


class Weighted(Opened):
    """A loader that draws as many samples with replacement, each as likely as its number; the draws are compared."""

    def __init__(self, directory: Path, work: workloads.Epochs) -> None:
        path, self.work = packed("DatasetWriter", directory, work), work
        self.labels = np.array(Cifar(directory, work.samples).labels)
        weights = np.arange(1, work.samples + 1)
        self.order = order.Weighted(weights)
        options = {"seed": work.seed, "num_threads": work.workers}
        self.made = ffrecord.torch.Loader(path, work.batch, weights=weights, **options)
        super().__init__(lambda: pairs(self.made))

    def epoch(self, waits: Waits) -> tuple[int, int]:
        number, n = self.made.epoch, self.work.samples
        found = super().epoch(waits)
        drawn = self.order.indices(np.arange(n), n, self.work.seed, number)
        expected = n, int(self.labels[drawn].sum())
        if found != expected:
            raise WrongAnswerError(f"weights: (samples, sum of labels) are {found}, expected {expected}")
        return n, n * (n - 1) // 2  # what loader_hosts expects of an epoch that is right


def of_python(directory: Path, work: workloads.Epochs, **options: Any) -> Opened:
    """Open it over samples that Python makes one by one."""
    from loader_torch import Mapped

    more = {"persistent_workers": True} if options.get("num_workers") else {}
    made = ffrecord.torch.Loader(Mapped(directory, work), work.batch, seed=work.seed, **options, **more)
    return Opened(lambda: made)

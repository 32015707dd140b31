"""A dataset like CIFAR, to be packed; it needs no package that some packing environment lacks."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import workloads
from harness import WrongAnswerError

SHAPE = (32, 32, 3)


class Cifar:
    """Arrays in the page cache, mapped, so that no start method has to copy them.

    Attributes:
        images: uint8 [samples, 32, 32, 3].
        labels: ints, all different, so that a sample is recognised in any order.
    """

    def __init__(self, directory: Path, samples: int) -> None:
        self.images = np.asarray(np.load(directory / "images.npy", mmap_mode="r"))[:samples]
        self.labels = np.load(directory / "labels.npy")[:samples].tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], self.labels[index]

    def check(self, name: str, found: Iterable[tuple[Any, int]]) -> None:
        """Check that every sample comes once, in any order, each image with its int."""
        where = {label: index for index, label in enumerate(self.labels)}
        for image, label in found:
            index = where.pop(int(label), None)
            if index is None or not np.array_equal(np.asarray(image).reshape(SHAPE), self.images[index]):
                raise WrongAnswerError(f"{name}: the sample with {label} is there twice, or not what was packed")
        if where:
            raise WrongAnswerError(f"{name}: {len(where)} of {len(self)} samples are missing")


def make(directory: Path, work: workloads.Packs) -> None:
    """Write the files that a `Cifar` maps; they are in the page cache and on the disk."""
    random = np.random.default_rng(work.seed)
    np.save(directory / "images.npy", random.integers(0, 256, (work.samples, *SHAPE), np.uint8))
    np.save(directory / "labels.npy", random.permutation(work.samples))
    os.sync()

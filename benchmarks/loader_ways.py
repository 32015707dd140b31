"""Contestants of bench_loader.py: a loader is opened once and then run for epoch after epoch."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waits import Waits

Batches = Iterable[tuple[Any, Any]]  # the images of a batch, and its labels: tensors or arrays


class Sums:
    """The number of samples of an epoch, and the sum of their labels.

    Args:
        labels: function from a batch to its labels, a tensor or an array.
    """

    def __init__(self, labels: Callable[[Any], Any]) -> None:
        self.labels, self.count, self.total = labels, 0, 0

    def add(self, batch: Any) -> None:
        labels = self.labels(batch)
        self.count += len(labels)
        self.total += int(labels.sum())

    @property
    def found(self) -> tuple[int, int]:
        return self.count, self.total


class Opened:
    """A loader over existing data.

    Attributes:
        batches: function that returns the batches of the next epoch.
    """

    def __init__(self, batches: Callable[[], Batches]) -> None:
        self.batches = batches

    def prepare(self) -> None:
        """Prepare each epoch that is timed."""

    def epoch(self, waits: Waits) -> tuple[int, int]:
        """Run one epoch, like a training loop that does nothing; return (samples, sum of the labels)."""
        sums = Sums(lambda batch: batch[1])
        waits.record(self.batches(), sums.add)
        return sums.found


@dataclass(frozen=True)
class Way:
    """One way to load. Its module is imported in the process that it runs in: no environment needs all of them.

    Attributes:
        role: "ours", "peer", "plain" (code that people write themselves), "limit".
        package: name of its distribution in package indexes.
        where: "module.function" of a function from the directory of the data and the workload to an `Opened`. It packs
            the data that it reads, if they are missing.
        options: further arguments of that function.
    """

    role: str
    package: str
    where: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def foreign(self) -> bool:
        """True if it runs in the environment of the other packages."""
        return self.role == "peer"

    def open(self, directory: Path, work: Any) -> Opened:
        module, name = self.where.split(".")
        opened: Opened = getattr(importlib.import_module(module), name)(directory, work, **self.options)
        return opened

"""Hugging Face datasets: rows by their numbers, from Arrow files that are mapped."""

from pathlib import Path
from typing import Any

import datasets
import newest_lance
from loader_ways import Opened
from newest_torch import Resumed, stateful, through_torch, whole_batches


class Rows(newest_lance.Rows):
    """The samples of a directory. A batch is taken as an Arrow table, which leaves out all conversion."""

    @property
    def path(self) -> Path:
        return self.directory / "datasets"

    def pack(self) -> None:
        datasets.disable_progress_bars()
        datasets.Dataset(newest_lance.table(self.samples)).save_to_disk(str(self.path))

    def open(self) -> Any:
        return datasets.load_from_disk(str(self.path)).with_format("arrow")

    def take(self, indices: Any) -> Any:
        return self._opened[indices]


def by_index(directory: Path, work: Any) -> Opened:
    return whole_batches(Rows(directory, work), work)


def epochs(directory: Path, work: Any, workers: int) -> Opened:
    return through_torch(Rows(directory, work), work, workers)


def resumed(directory: Path, work: Any, workers: int, state: Any) -> Resumed:
    return stateful(Rows(directory, work), work, workers, state)

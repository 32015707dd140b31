"""Lance: rows taken by their numbers, from columns of one table."""

from pathlib import Path
from typing import Any

import lance
import newest_samples
import numpy as np
import pyarrow as pa
from loader_ways import Batches, Opened
from newest_torch import stateful, through_torch, whole_batches


def table(samples: newest_samples.Samples) -> Any:
    """Return the samples as a table: pixels of equal size as fixed-size lists, which are copied as they are."""
    rows = list(newest_samples.numbered(samples))
    labels = pa.array([label for _, label in rows], pa.int64())
    if samples.equal:
        values = pa.array(np.frombuffer(b"".join([data for data, _ in rows]), np.uint8))
        return pa.table({"image": pa.FixedSizeListArray.from_arrays(values, samples.equal), "label": labels})
    return pa.table({"image": pa.array([data for data, _ in rows], pa.large_binary()), "label": labels})


def batch_of(samples: newest_samples.Samples, found: Any) -> tuple[Any, Any]:
    """Return a batch of the rows of a table."""
    image = found.column("image").combine_chunks()
    labels = found.column("label").to_numpy()
    if samples.equal:
        return newest_samples.tensors(image.flatten().to_numpy(), labels)
    data = (np.frombuffer(each.as_buffer(), np.uint8) for each in image)
    return samples.collate(list(zip(data, labels.tolist(), strict=True)))


class Rows:
    """The samples of a directory, for lists of indices. Each process opens them for itself, as Lance asks for."""

    def __init__(self, directory: Path, work: Any) -> None:
        self.directory, self.work = directory, work
        self.samples: newest_samples.Samples = newest_samples.of_work(directory, work)
        self.count = len(self.samples)
        self._opened: Any = None
        if not self.path.exists():
            self.pack()

    @property
    def path(self) -> Path:
        return self.directory / "lance"

    def pack(self) -> None:
        lance.write_dataset(table(self.samples), str(self.path))

    def open(self) -> Any:
        return lance.dataset(str(self.path))

    def take(self, indices: Any) -> Any:
        """Return a table of some rows."""
        return self._opened.take(indices)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, indices: Any) -> tuple[Any, Any]:
        if self._opened is None:
            self._opened = self.open()
        return batch_of(self.samples, self.take(indices))

    def __getstate__(self) -> tuple[Path, Any]:
        return self.directory, self.work

    def __setstate__(self, state: tuple[Path, Any]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def by_index(directory: Path, work: Any) -> Opened:
    return whole_batches(Rows(directory, work), work)


def epochs(directory: Path, work: Any, workers: int) -> Opened:
    """Open it for workers that are started anew: Lance's own threads do not outlive a fork."""
    return through_torch(Rows(directory, work), work, workers, "spawn")


def resumed(directory: Path, work: Any, workers: int, state: Any) -> tuple[Batches, Any]:
    return stateful(Rows(directory, work), work, workers, state, "spawn")

"""Grain over ArrayRecord files: batches of records read by one call, in a global random order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import newest_samples
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from loader_ways import Opened
from newest_torch import Resumed, whole_batches

THREADS = 2
LABEL = 8  # bytes at the end of a record


class Rows:
    """The samples of a directory, for lists of indices."""

    def __init__(self, directory: Path, work: Any) -> None:
        self.samples = newest_samples.of_work(directory, work)
        path = directory / "records.array_record"
        if not path.exists():
            pack(path, self.samples)
        self.source = grain.sources.ArrayRecordDataSource([str(path)])

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, indices: Any) -> tuple[Any, Any]:
        records = self.source.__getitems__([int(index) for index in indices])
        if self.samples.equal:
            together = np.frombuffer(bytearray().join(records), np.uint8).reshape(len(records), -1)
            labels = together[:, -LABEL:].copy().view(np.int64)[:, 0]
            return newest_samples.tensors(np.ascontiguousarray(together[:, :-LABEL]), labels)
        rows = [(record[:-LABEL], int.from_bytes(record[-LABEL:], "little")) for record in records]
        return self.samples.collate(rows)


def pack(path: Path, samples: newest_samples.Samples) -> None:
    """Write records that can be read alone, which is best for a random order."""
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for data, label in newest_samples.numbered(samples):
        writer.write(bytes(data) + label.to_bytes(LABEL, "little"))
    writer.close()


def by_index(directory: Path, work: Any) -> Opened:
    return whole_batches(Rows(directory, work), work)


def made(directory: Path, work: Any, workers: int) -> Any:
    rows = Rows(directory, work)
    order = grain.MapDataset.range(len(rows)).seed(work.seed).shuffle()
    batches = order.batch(work.batch, batch_fn=list).map(rows.__getitem__)
    dataset = batches.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * THREADS))
    return dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(workers)) if workers else dataset


def epochs(directory: Path, work: Any, workers: int) -> Opened:
    dataset = made(directory, work, workers)
    return Opened(lambda: iter(dataset))


def resumed(directory: Path, work: Any, workers: int, state: Any) -> Resumed:
    iterator: Iterator[Any] = iter(made(directory, work, workers))
    if state is not None:
        iterator.set_state(state)  # type: ignore[attr-defined]
    return iterator, iterator.get_state  # type: ignore[attr-defined]

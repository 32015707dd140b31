"""Samples for Ray tasks, and for processes without Ray: mapped from files, the same for all of them."""

import os
import zlib
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import workloads
from harness import WrongAnswerError

from ffrecord import FileReader
from ffrecord.fields import BytesField, IntField, NDArrayField, Schema

SHAPE = (32, 32, 3)
IMAGES = Schema.of({"image": NDArrayField("uint8", SHAPE), "label": IntField()})
FILES = Schema.of({"data": BytesField(), "label": IntField()})
CHECKED_AT_ONCE = 100  # samples
PIECE = 8 << 20  # bytes made at once


class Samples:
    """Dicts by index, of arrays or bytes that are mapped.

    Attributes:
        schema: schema of the samples.
        size: size of all, bytes.
    """

    def __init__(self, directory: str, work: workloads.Blocks) -> None:
        # Objects per sample cost time: so use no array subclass, and no NumPy int.
        self._data = np.asarray(np.memmap(Path(directory) / "bytes", np.uint8, "r"))
        self._ends = np.load(Path(directory) / "ends.npy")
        self._bounds: list[int] = self._ends.tolist()
        self._images = work.content == "images"
        self._pixels = self._data.reshape(-1, *SHAPE) if self._images else None
        self.schema = IMAGES if self._images else FILES
        self.size = len(self._data) + 8 * len(self)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self._pixels is not None:
            return {"image": self._pixels[index], "label": index}
        return {"data": self._data[self._bounds[index] : self._bounds[index + 1]].tobytes(), "label": index}

    def batch(self, indices: Any) -> Any:
        """Return a batch in Ray's form, by the quickest way. The indices are consecutive."""
        if self._pixels is None:
            ends = self._ends[indices[0] : indices[-1] + 2]
            buffers = [None, pyarrow.py_buffer(ends - ends[0]), pyarrow.py_buffer(self._data[ends[0] : ends[-1]])]
            data = pyarrow.Array.from_buffers(pyarrow.large_binary(), len(indices), buffers)
            return pyarrow.table({"data": data, "label": np.asarray(indices)})
        return {"image": self._pixels[indices[0] : indices[-1] + 1], "label": np.asarray(indices)}

    def check_read(self, who: str, found: int) -> None:
        """Compare samples that were read, by their `digest`: every sample once, in any order."""
        data = self._data.data
        wanted = digest((data[start:stop], i) for i, (start, stop) in enumerate(pairwise(self._bounds)))
        if found != wanted:
            raise WrongAnswerError(f"{who}: the samples that were read are not those that there are")

    def check_written(self, who: str, path: str) -> None:
        """Compare samples that were written: every sample once, in any order."""
        with FileReader(path) as reader:
            if len(reader) != len(self):
                raise WrongAnswerError(f"{who}: {len(reader)} samples, expected {len(self)}")
            batches = (range(i, min(i + CHECKED_AT_ONCE, len(reader))) for i in range(0, len(reader), CHECKED_AT_ONCE))
            packed = reader.iter_batches(batches, packed=True)
            self.check_read(who, sum(digest_of(self.schema.decode_columns(*each)) for each in packed))


def digest(samples: Iterable[tuple[Any, int]]) -> int:
    """Return a digest of bytes and labels that does not depend on their order; other samples have another one."""
    return sum(zlib.crc32(data, int(label)) for data, label in samples)


def digest_of(columns: Any) -> int:
    """Return the digest of columns that were read: pixels or bytes, and labels."""
    data = columns["image"] if "image" in columns else columns["data"]
    return digest(zip(map(np.ascontiguousarray, data) if "image" in columns else data, columns["label"], strict=True))


def bytes_of(columns: Any) -> int:
    """Return the bytes of the values alone."""
    data = columns["image"] if "image" in columns else columns["data"]
    return 8 * len(columns["label"]) + (int(data.nbytes) if hasattr(data, "nbytes") else sum(map(len, data)))


def make(directory: Path, work: workloads.Blocks) -> None:
    """Write the files that `Samples` maps; they are in the page cache and on the disk."""
    random = np.random.default_rng(work.seed)
    sizes = np.full(work.samples, work.mean)
    if work.content == "files":
        sizes = (work.mean * random.lognormal(-(workloads.SPREAD**2) / 2, workloads.SPREAD, work.samples)).astype(int)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    np.save(directory / "ends.npy", ends)
    with open(directory / "bytes", "wb") as file:
        for start in range(0, int(ends[-1]), PIECE):
            file.write(random.bytes(min(PIECE, int(ends[-1]) - start)))
    os.sync()


@cache
def samples(directory: str, work: workloads.Blocks) -> Samples:
    """Return the samples, opened once in each process."""
    return Samples(directory, work)

"""Datasets that take many indices at once: one batched read for a batch."""

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import TracebackType
from typing import Any, SupportsIndex, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset as TorchDataset

from ffrecord.errors import ArgumentError, ArgumentTypeError, ConcatIndexError
from ffrecord.fields import Schema, schema_of
from ffrecord.paths import Source
from ffrecord.reader import FileReader
from ffrecord.torch.indexing import Indices, as_positions, select
from ffrecord.torch.registry import ReaderRegistry
from ffrecord.torch.tensors import as_tensor

__all__ = ["ConcatDataset", "Dataset", "ReaderRegistry", "Subset"]

T_co = TypeVar("T_co", covariant=True)

FILES_SHOWN = 2

# Beside the reader, not in the dataset: a dataset is pickled for each worker, and its reader may be exchanged.
_schemas: "WeakKeyDictionary[FileReader, Schema | None]" = WeakKeyDictionary()


class Dataset(ReaderRegistry, TorchDataset[T_co]):
    """Samples of `.ffr` files for torch. `dataset[indices]` reads a batch at once.

    Use it as it is for files that carry a schema: samples come back as they were written, tensors as tensors. Otherwise
    subclass it, in one of two ways:

    * override `process`, which turns the bytes of a batch into samples;
    * override `__init__`, `__len__` and `__getitem__`, which every loader gives a list, and keep readers of your own.
      There is no need to call `super().__init__()`.

    What may stand in the brackets (the second kind of subclass decides for itself):

    * a list or tuple of ints, a range, a slice, a 1-D integer array or tensor: a list of samples in that order, repeats
      kept;
    * an int (numpy ints too): one sample.

    Negative indices count from the end. torch's own DataLoader, Subset and random_split read whole batches too, through
    `__getitems__`. A dataset can be forked, and pickled by the names of its files.

    Args:
        fnames: what `FileReader` takes: a file, a list of files, a directory or a glob pattern.
        check_data: compare CRC-32 of tables when opening and of every sample when reading.
        io: how to read, see `FileReader`.

    Attributes:
        fnames: as given.
        reader: the `FileReader`.

    Raises:
        As `FileReader`.
    """

    def __init__(self, fnames: Source, check_data: bool = True, *, io: str = "auto") -> None:
        self.fnames = fnames
        self.reader = FileReader(fnames, check_data, io=io)

    def process(self, indices: list[int], data: list[npt.NDArray[np.uint8]]) -> list[T_co]:
        """The samples of a batch; for you to override.

        Args:
            indices: [k] ints in [0, number of samples).
            data: k 1-D uint8 arrays, the bytes of each: writable, but with io="mmap".

        Returns:
            The samples. `data` decoded, if not overridden and the files carry a schema.

        Raises:
            NotImplementedError: not overridden, and the files carry no schema.
        """
        schema = _schema_of(self.reader)
        if schema is None:
            raise NotImplementedError(
                f"{type(self).__name__} does not override process(indices, data), and its files carry no schema"
            )
        return [schema.decode(record, tensor=as_tensor) for record in data]

    def __len__(self) -> int:
        return self.reader.n

    # torch's Dataset promises one sample whatever the index.
    @overload
    def __getitem__(self, indices: Indices) -> list[T_co]: ...
    @overload
    def __getitem__(self, indices: SupportsIndex) -> T_co: ...

    def __getitem__(self, indices: Any) -> Any:
        """A list of samples for several indices, one sample for an int.

        Raises:
            TypeError: not indices.
            IndexError: out of range; nothing was read.
            Whatever `FileReader.read` and `process` raise.
        """
        return select(self, indices, self.reader.n, lambda positions: _read(self, positions))

    def __getitems__(self, indices: Indices) -> list[T_co]:
        """The samples at `indices`; torch calls it with those of a batch."""
        # A subclass with a __getitem__ of its own expects a list.
        return self[indices if isinstance(indices, list) else as_positions(self, indices, len(self))]

    def __iter__(self) -> Iterator[T_co]:
        """All samples in order, read one by one; a DataLoader is the fast way."""
        for index in range(len(self)):
            yield self[[index]][0]

    def __add__(self, other: TorchDataset[T_co]) -> "ConcatDataset[T_co]":  # type: ignore[override]
        return ConcatDataset([self, other])

    def close(self) -> None:
        """Close all readers; may be repeated."""
        for reader in self.ffreaders():
            reader.close()

    def __enter__(self) -> "Dataset[T_co]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = [name for reader in self.ffreaders() for name in reader.fnames]
        shown = names if len(names) <= FILES_SHOWN else [names[0], "...", names[-1]]
        return f"<{type(self).__name__} of {len(self)} samples in {len(names)} files: {', '.join(shown)}>"


class Subset(Dataset[T_co]):
    """Some samples of a dataset, in an order of their own.

    Args:
        dataset: a dataset of ours.
        indices: [n] ints into `dataset`, a sequence or 1-D array; repeats allowed.

    Attributes:
        dataset, indices: as given.
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: Any) -> Any:
        def read(positions: list[int]) -> list[T_co]:
            return self.dataset[[operator.index(self.indices[i]) for i in positions]]

        return select(self, indices, len(self), read)


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other. A batch is read by one batched read for each member it touches.

    Args:
        datasets: one or more datasets of ours.

    Attributes:
        datasets: list of the members.
        cumulative_sizes: list of ints, how many samples there are up to the end of each member.

    Raises:
        ValueError (also AssertionError): no datasets.
        TypeError (also AssertionError): a member is no dataset of ours.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: list[Dataset[T_co]] = list(datasets)
        if not self.datasets:
            raise ArgumentError("datasets should not be an empty iterable")
        for i, member in enumerate(self.datasets):
            if not isinstance(member, Dataset):
                raise ArgumentTypeError(f"datasets[{i}] is {type(member).__name__}, expected an ffrecord.torch.Dataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Sized]) -> list[int]:
        """The running total of the lengths in `sequence`."""
        sizes: list[int] = []
        for member in sequence:
            sizes.append(len(member) + (sizes[-1] if sizes else 0))
        return sizes

    def ffreaders(self) -> list[FileReader]:
        """Its own readers, if any, then those of each member."""
        return super().ffreaders() + [reader for member in self.datasets for reader in member.ffreaders()]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, indices: Any) -> Any:
        return select(self, indices, len(self), self._gather, below=ConcatIndexError)

    def _gather(self, positions: list[int]) -> list[T_co]:
        samples: list[Any] = [None] * len(positions)
        for member, places in self._by_member(positions).items():
            start = self.cumulative_sizes[member - 1] if member else 0
            got = self.datasets[member][[positions[place] - start for place in places]]
            if len(got) != len(places):
                raise ArgumentError(f"datasets[{member}] gave {len(got)} samples for {len(places)} indices")
            for place, sample in zip(places, got, strict=True):
                samples[place] = sample
        return samples

    def _by_member(self, positions: list[int]) -> dict[int, list[int]]:
        """Member → places in `positions` that are its own, in order."""
        places: dict[int, list[int]] = {}
        for place, position in enumerate(positions):
            places.setdefault(bisect_right(self.cumulative_sizes, position), []).append(place)
        return places


def _read(dataset: Dataset[T_co], positions: list[int]) -> list[T_co]:
    """The samples at `positions`, by one batched read."""
    overridden = getattr(dataset.process, "__func__", None) is not Dataset.process
    schema = None if overridden else _schema_of(dataset.reader)
    if schema is None:
        return dataset.process(positions, dataset.reader.read(positions))
    data, offsets = dataset.reader.read_packed(positions)
    samples: list[T_co] = schema.decode_batch(data, offsets, tensor=as_tensor)
    return samples


def _schema_of(reader: FileReader) -> Schema | None:
    if reader not in _schemas:
        _schemas[reader] = schema_of(reader)
    return _schemas[reader]

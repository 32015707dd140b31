"""Files, datasets and loaders for the tests of ffrecord.torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ffrecord import FileWriter
from ffrecord.reader import FileReader
from ffrecord.torch import Dataset

# For tests with workers: machines may have fewer cores.
WORKERS_ANYWHERE = [pytest.mark.filterwarnings("ignore:This DataLoader will create")]


def write_file(path: Path, values: list[int]) -> str:
    """A file of those ints, eight bytes each."""
    with FileWriter(path, len(values)) as writer:
        for value in values:
            writer.write_one(value.to_bytes(8, "little", signed=True))
    return str(path)


def value_of(record: Any) -> int:
    return int.from_bytes(bytes(record), "little", signed=True)


class Ints(Dataset[int]):
    """Old style: `process` only. Notes what it was asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[list[int]] = []

    def process(self, indices: list[int], data: list[Any]) -> list[int]:
        self.asked.append(indices)
        return [value_of(record) for record in data]


class NewStyle(Dataset[int]):
    """New style: own readers, own `__getitem__` of a list, never calls `super().__init__()`."""

    def __init__(self, fname: str) -> None:
        self.records = FileReader(fname)

    def __len__(self) -> int:
        return self.records.n

    def __getitem__(self, indices: Any) -> Any:
        assert isinstance(indices, list)
        return [value_of(record) for record in self.records.read(indices)]


class Plain(torch.utils.data.Dataset[int]):
    """torch's own kind of dataset."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> int:
        return self.values[index]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def as_lists(batches: Iterator[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]

"""Samples that cannot be read: none is taken for another."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_torch_schema import write
from torch.utils.data import DataLoader
from torch_builders import WORKERS_ANYWHERE, Ints, value_of, write_file

from ffrecord.torch import BatchSampler, Dataset, Subset

pytestmark = WORKERS_ANYWHERE

BAD = (2, 5)


def damage(path: str) -> str:
    """Turn a bit in the last byte of each bad sample."""
    reader = Dataset[Any](path).reader
    ends = [sum(place) - 1 for index in BAD for place in zip(*reader.loc([index]), strict=True)]
    data = bytearray(Path(path).read_bytes())
    for end in ends:
        data[end] ^= 1
    Path(path).write_bytes(data)
    return path


@pytest.fixture
def path(tmp_path: Path) -> str:
    return damage(write_file(tmp_path / "ints.ffr", [10 * i for i in range(8)]))


@pytest.fixture
def typed(tmp_path: Path) -> str:
    return damage(write(tmp_path / "typed.ffr", [{"label": i, "data": torch.arange(i, i + 3)} for i in range(8)]))


class Pairs(Dataset[Any]):
    def process(self, indices: list[int], data: list[Any]) -> list[Any]:
        return [(index, value_of(record)) for index, record in zip(indices, data, strict=True)]


def test_raised(path: str, typed: str):
    for dataset in (Ints(path), Dataset[Any](typed)):
        for ask in (dataset.__getitem__, dataset.__getitems__):
            with pytest.raises(ValueError, match="sample 2"):
                ask([1, 2])


def test_skipped_samples_leave_indices_and_data_paired(path: str, caplog: pytest.LogCaptureFixture):
    dataset = Pairs(path, on_error="skip")
    with caplog.at_level(logging.WARNING, "ffrecord"):
        assert dataset[[1, 2, 3, 5, 1]] == [(1, 10), (3, 30), (1, 10)]
    assert "sample 2" in caplog.text
    assert dataset.reader.skipped == 2
    assert dataset[[2]] == []
    with pytest.raises(ValueError, match="sample 2"):
        dataset[2]
    with pytest.raises(ValueError, match="sample 5"):
        dataset.__getitems__([5, 2])
    assert dataset.__getitems__([]) == []


def test_arrays_of_a_skipping_dataset_are_its_own(path: str):
    class Raw(Dataset[Any]):
        def process(self, indices: list[int], data: list[Any]) -> list[Any]:
            return data

    dataset = Raw(path, on_error="skip")
    first, second = dataset[[1, 2, 1]]
    first[:] = 0
    assert value_of(second) == 10


def test_replaced(path: str):
    dataset = Pairs(path, on_error=lambda error: (-1).to_bytes(8, "little", signed=True))
    assert dataset[[1, 2]] == [(1, 10), (2, -1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_without_the_skipped(typed: str, workers: int):
    dataset = Dataset[Any](typed, on_error="skip")
    batches = list(DataLoader(dataset, 3, num_workers=workers))
    assert [batch["label"].tolist() for batch in batches] == [[0, 1], [3, 4], [6, 7]]
    assert [batch["data"].tolist()[0] for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    sampler = BatchSampler(dataset, 3, order="sequential")
    assert len(list(DataLoader(dataset, batch_sampler=sampler))) == 3


def test_inside_other_datasets(path: str, typed: str):
    skipping = Pairs(path, on_error="skip")
    both = skipping + skipping + Pairs(write_file(Path(path).with_name("good.ffr"), [1, 2, 3]))
    assert both[[2, 9, 0, 10, 16, 5, 3]] == [(1, 10), (0, 0), (0, 1), (3, 30)]
    assert Subset(both, np.array([10, 3]))[[0, 1]] == [(3, 30)]
    with pytest.raises(ValueError, match="sample 2"):
        both[10]
    columns = Dataset[Any](typed, on_error="skip")
    joined = columns + columns
    assert [each["label"] for each in joined.__getitems__([0, 2, 8, 13, 15])] == [0, 0, 7]
    assert [batch["label"].tolist() for batch in DataLoader(joined[6:10], 4)] == [[6, 7, 0, 1]]


def test_a_process_that_drops_samples_itself(path: str):
    class Positive(Dataset[Any]):
        def process(self, indices: list[int], data: list[Any]) -> list[Any]:
            return [index for index in indices if index]

    dataset = Positive(path, on_error="skip")
    assert dataset[[0, 1, 2]] == [1]
    with pytest.raises(ValueError, match=r"datasets\[0\] gave 1 sample for 3 indices"):
        (dataset + dataset)[[0, 1, 2]]


@pytest.mark.parametrize("wrong", ["ignore", None, 3])
def test_refused(path: str, wrong: Any):
    with pytest.raises(ValueError, match="on_error is"):
        Dataset(path, on_error=wrong)

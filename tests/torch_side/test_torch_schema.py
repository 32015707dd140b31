"""Datasets of files that carry a schema."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_builders import WORKERS_ANYWHERE, value_of

from ffrecord import FileWriter
from ffrecord.fields import Schema
from ffrecord.format.extension import Extension
from ffrecord.torch import DataLoader, Dataset, Subset

pytestmark = WORKERS_ANYWHERE

DTYPES = [
    "bool",
    *("uint8", "int8", "int16", "int32", "int64"),
    *("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
    *("complex64", "complex128"),
]


def sample(i: int) -> dict[str, Any]:
    return {
        "tensors": tuple(torch.arange(i, i + 6).view(2, 3).to(getattr(torch, name)) for name in DTYPES),
        "varying": [torch.full((i % 3,), i / 4, dtype=torch.bfloat16), np.arange(i, dtype=np.int16)],
        "scalar": torch.tensor(i, dtype=torch.bfloat16),
        "label": i,
        "name": f"sample {i}",
    }


SAMPLES = [sample(i) for i in range(9)]


def write(path: Path, samples: list[Any]) -> str:
    schema = Schema.infer(samples)
    with FileWriter(path, extension=Extension(schema=schema.to_builtins())) as writer:
        for each in samples:
            writer.write_one(schema.encode(each))
    return str(path)


def same(a: Any, b: Any) -> bool:
    """Equal in structure, types, dtypes, shapes and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        as_bytes = [bytes(x.flatten().clone().untyped_storage()) for x in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and as_bytes[0] == as_bytes[1]
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


@pytest.fixture(scope="module")
def schema_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("schema") / "x.ffr", SAMPLES)


def test_samples_come_back_as_written(schema_path: str):
    dataset = Dataset[Any](schema_path)
    for got in (dataset[range(9)], list(dataset), list(dataset[:]), list(dataset.__getitems__(list(range(9))))):
        assert same(got, SAMPLES)
    assert same(dataset[[8, 0, 8]], [SAMPLES[8], SAMPLES[0], SAMPLES[8]])
    assert same(dataset[-1], SAMPLES[-1])
    assert dataset[[]] == []
    assert same(Subset(dataset, [3, 3])[[0, 1]], [SAMPLES[3]] * 2)
    assert same((dataset + dataset)[[-1, 0]], [SAMPLES[8], SAMPLES[0]])
    assert same(pickle.loads(pickle.dumps(dataset))[2], SAMPLES[2])


def test_tensors_share_nothing(schema_path: str):
    dataset = Dataset[Any](schema_path)
    first, second = dataset[[4, 4]]
    for tensor in (*first["tensors"], *first["varying"], first["scalar"]):
        tensor[...] = 0
    assert same(second, SAMPLES[4])
    assert same(dataset[4], SAMPLES[4])


@pytest.mark.parametrize("workers", [0, 2])
def test_through_a_loader(schema_path: str, workers: int):
    loader = DataLoader(Dataset[Any](schema_path), 4, num_workers=workers, collate_fn=list)
    assert same([each for batch in loader for each in batch], SAMPLES)


def test_default_collate(tmp_path: Path):
    path = write(tmp_path / "x.ffr", [(torch.full((2,), i, dtype=torch.bfloat16), i) for i in range(4)])
    ((tensors, labels),) = DataLoader(Dataset[Any](path), 4)
    assert tensors.dtype == torch.bfloat16
    assert tensors.tolist() == [[i, i] for i in range(4)]
    assert labels.tolist() == [0, 1, 2, 3]


def test_process_of_a_subclass_decides(schema_path: str):
    class Sizes(Dataset[int]):
        def process(self, indices: list[int], data: list[Any]) -> list[Any]:
            return [record.nbytes for record in data]

    class Labels(Dataset[int]):
        def process(self, indices: list[int], data: list[Any]) -> list[Any]:
            return [(i, decoded["label"]) for i, decoded in zip(indices, super().process(indices, data), strict=True)]

    assert all(size > 100 for size in Sizes(schema_path)[:])
    assert Labels(schema_path)[[-1, 2]] == [(8, 8), (2, 2)]


def test_another_reader_brings_its_schema(schema_path: str, path: str, tmp_path: Path):
    dataset = Dataset[Any](schema_path)
    assert dataset[0]["label"] == 0
    dataset.reader = Dataset[Any](write(tmp_path / "other.ffr", ["a", "b"])).reader
    assert dataset[[1, 0]] == ["b", "a"]
    dataset.reader = Dataset[Any](path).reader
    with pytest.raises(NotImplementedError):
        dataset[0]
    assert value_of(dataset.reader[0]) == -30

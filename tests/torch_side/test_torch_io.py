"""Datasets in every io mode, and what torch makes of the arrays that readers give."""

import pickle
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
from test_torch_schema import SAMPLES, same, write
from torch_builders import WORKERS_ANYWHERE, Ints, write_file

from ffrecord.reader import FileReader
from ffrecord.torch import DataLoader, Dataset

pytestmark = WORKERS_ANYWHERE
in_every_mode = pytest.mark.parametrize("io", builders.IO_MODES)


@pytest.fixture(scope="module")
def schema_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("io") / "x.ffr", SAMPLES)


@in_every_mode
def test_samples_come_back_as_written(schema_path: str, io: str):
    dataset = Dataset[Any](schema_path, io=io)
    assert dataset.reader.io == io
    assert same(dataset[range(9)], SAMPLES)
    assert same(pickle.loads(pickle.dumps(dataset))[[3, 8]], [SAMPLES[3], SAMPLES[8]])
    dataset.close()


@in_every_mode
def test_decoded_tensors_may_be_written_to(schema_path: str, io: str):
    """Without a warning, without a change of the file, and without a change of the same sample's next reading."""
    before = Path(schema_path).read_bytes()
    with Dataset[Any](schema_path, io=io) as dataset:
        first, second = dataset[[4, 4]]
        for tensor in (*first["tensors"], *first["varying"], first["scalar"]):
            tensor[...] = 0
        assert same(second, SAMPLES[4])
        assert same(dataset[4], SAMPLES[4])
    assert Path(schema_path).read_bytes() == before


@in_every_mode
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders(tmp_path: Path, io: str, workers: int):
    values = list(range(100, 140))
    dataset = Ints(write_file(tmp_path / "a.ffr", values), io=io)
    loader = DataLoader(dataset, 7, num_workers=workers)
    for _ in range(2):
        assert [value for batch in loader for value in batch.tolist()] == values
    dataset.close()


class Bytes(Dataset[torch.Tensor]):
    """Samples as tensors of their bytes, without a copy where they may be written to."""

    def process(self, indices: list[int], data: list[np.ndarray]) -> list[torch.Tensor]:
        return [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in data]


@in_every_mode
def test_arrays_become_tensors(tmp_path: Path, io: str):
    samples = builders.records([0, 1, 100, 70_000])
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    with Bytes(path, io=io) as dataset:
        tensors = dataset[range(4)]
        for tensor, sample in zip(tensors, samples, strict=True):
            assert tensor.numpy().tobytes() == sample
            tensor.zero_()
        assert [tensor.numpy().tobytes() for tensor in dataset[:]] == samples


def test_torch_warns_of_views_of_the_file(tmp_path: Path):
    """They are read-only, and tensors never are; whoever writes to one anyway would be killed. So: copy."""
    code = """
import sys, warnings
import torch
from ffrecord import FileReader
with FileReader(sys.argv[1], io="mmap") as reader, warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tensor = torch.from_numpy(reader.read_one(0))
    assert bytes(tensor) == b"sample"
print("not writable" in str(caught[0].message))
"""
    import children

    path = builders.write_samples(tmp_path / "a.ffr", [b"sample"])
    assert children.run(code, path) == "True\n"


def test_packed_samples_become_one_tensor(tmp_path: Path):
    """Also in memory of torch's own, such as a pinned buffer."""
    samples = builders.records([100, 0, 5000])
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    for io in builders.IO_MODES:
        buffer = torch.zeros(6000, dtype=torch.uint8)
        with FileReader(path, io=io) as reader:
            data, offsets = reader.read_packed([2, 0, 1], out=buffer.numpy())
        assert data.ctypes.data == buffer.data_ptr()
        assert bytes(buffer[: offsets[-1]].numpy()) == samples[2] + samples[0]
        assert not buffer[offsets[-1] :].any()

"""tasks: every sample in exactly one, whatever the files and the size."""

from pathlib import Path

import builders
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ffrecord
from ffrecord import DatasetWriter, FileReader, FormatError, tasks
from ffrecord.reading.partition import Task


def read(found: list[Task]) -> list[bytes]:
    samples: list[bytes] = []
    for path, start, stop in found:
        with FileReader(path) as reader:
            samples += [bytes(sample) for sample in reader.read_range(start, stop)]
    return samples


@given(counts=st.lists(st.integers(0, 12), min_size=1, max_size=5), size=st.integers(1, 15))
def test_every_sample_once(tmp_path_factory: pytest.TempPathFactory, counts: list[int], size: int) -> None:
    directory = tmp_path_factory.mktemp("tasks")
    for number, count in enumerate(counts):
        samples = [f"{number}/{index}".encode() * index for index in range(count)]
        builders.write_samples(directory / f"{number}.ffr", samples)
    found = tasks(directory, size)
    assert all(0 < task.stop - task.start <= size for task in found)
    assert len(found) == sum(-(-count // size) for count in counts)
    with FileReader(directory) as reader:
        assert read(found) == builders.read_all(reader)


def test_a_dataset_with_a_manifest(tmp_path: Path) -> None:
    DatasetWriter(tmp_path / "set", samples_per_shard=7).from_indexed_dataset([bytes([i]) for i in range(20)])
    found = tasks(tmp_path / "set", 5)
    assert [(Path(task.path).name, task.start, task.stop) for task in found] == [
        ("PART_00000.ffr", 0, 5),
        ("PART_00000.ffr", 5, 7),
        ("PART_00001.ffr", 0, 5),
        ("PART_00001.ffr", 5, 7),
        ("PART_00002.ffr", 0, 5),
        ("PART_00002.ffr", 5, 6),
    ]
    DatasetWriter(tmp_path / "set", mode="append", samples_per_shard=9).from_indexed_dataset([b"more"] * 9)
    assert tasks(tmp_path / "set", 5)[: len(found)] == found
    assert read(found) == [bytes([i]) for i in range(20)]
    assert read(tasks(tmp_path / "set", 100)) == [bytes([i]) for i in range(20)] + [b"more"] * 9


def test_one_file_and_several(tmp_path: Path) -> None:
    one = builders.write_samples(tmp_path / "one.ffr", [b"a", b"b", b"c"])
    assert tasks(one, 2) == [(one, 0, 2), (one, 2, 3)]
    assert tasks([one, one], 5) == [(one, 0, 3), (one, 0, 3)]
    assert tasks(f"{tmp_path}/*.ffr", 3) == [(one, 0, 3)]


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="samples is 0, expected > 0"):
        tasks(tmp_path, 0)
    with pytest.raises(ValueError, match="At least one"):
        tasks(tmp_path, 1)
    with pytest.raises(FileNotFoundError):
        tasks(tmp_path / "missing.ffr", 1)
    builders.write(tmp_path / "bad.ffr", b"short")
    with pytest.raises(FormatError, match=r"bad\.ffr"):
        tasks(tmp_path, 1)
    assert ffrecord.tasks is tasks


@pytest.mark.parametrize("wrong", ["4", None, 1.5, True])
def test_numbers_that_are_no_ints(sample_file, wrong):
    with pytest.raises(TypeError, match=r"^samples is .*, expected an int$"):
        tasks(sample_file.path, wrong)
    with FileReader(sample_file.path) as reader:
        if wrong is not None:
            with pytest.raises(TypeError, match=r"^shards is .*, expected an int$"):
                reader.fingerprint(wrong)

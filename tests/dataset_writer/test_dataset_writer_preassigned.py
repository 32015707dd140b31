"""Datasets whose records have all one size: places are known before samples are made, and the bytes are the same."""

import errno
import json
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_datasets import METHODS, files_in, left_behind

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.dataset_writer.messages import ChunkEncoded, IndexTask, TaskDone
from ffrecord.dataset_writer.shard_tracker import ShardTracker
from ffrecord.errors import FFRecordError, WorkerError
from ffrecord.fields import Field, Fixed, IntField, NDArrayField, OptionalField, register
from ffrecord.writing._buffers import WriteBehind

CUTS = [{"samples_per_shard": 13}, {"num_shards": 3}, {"shard_size": 900}, {}]


class Alike:
    """Samples whose records have one size; importable, so that spawned workers can have it."""

    def __init__(self, n: int, length: int = 20, bad: int | None = None) -> None:
        self.n, self.length, self.bad = n, length, bad

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.bad:
            raise KeyError("no such picture")
        return {"image": np.full(self.length, index % 251, np.uint8), "label": index}


def write(path: Path, dataset: Any, chunksize: int = 100, fields: Any = None, **options: Any) -> Summary:
    return DatasetWriter(path, fields, progress=False, **options).from_indexed_dataset(dataset, chunksize=chunksize)


def labels(path: Path) -> list[int]:
    """What `Alike` numbered its samples by, after all of each was compared."""
    with FileReader(path) as reader:
        samples: list[Any] = reader.samples(range(len(reader)))
    for sample in samples:
        assert (sample["image"] == sample["label"] % 251).all()
    return [sample["label"] for sample in samples]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> set[type]:
    """What kinds of messages told of samples: which way they went."""
    kinds: set[type] = set()

    def noting(call: Callable[[ShardTracker, Any], Any]) -> Callable[[ShardTracker, Any], Any]:
        def note(tracker: ShardTracker, message: Any) -> Any:
            kinds.add(type(message))
            return call(tracker, message)

        return note

    monkeypatch.setattr(ShardTracker, "note_written", noting(ShardTracker.note_written))
    monkeypatch.setattr(ShardTracker, "add_chunk", noting(ShardTracker.add_chunk))
    return kinds


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_the_bytes_are_those_of_samples_that_are_sized(
    tmp_path: Path, workers: int, cut: dict[str, int], heard: set[type]
) -> None:
    """With leave to skip, places are not foreseen."""
    write(tmp_path / "sized", Alike(100), num_workers=workers, on_error="skip", **cut)
    assert ChunkEncoded in heard and TaskDone not in heard
    heard.clear()
    write(tmp_path / "foreseen", Alike(100), num_workers=workers, chunksize=9, **cut)
    assert heard == {TaskDone}
    assert files_in(tmp_path / "sized") == files_in(tmp_path / "foreseen")
    assert labels(tmp_path / "foreseen") == list(range(100))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(0, 120),
    length=st.integers(0, 40),
    workers=st.integers(1, 3),
    chunksize=st.integers(1, 50),
    cut=st.sampled_from(CUTS),
)
def test_any_workers_and_chunks_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, n: int, length: int, workers: int, chunksize: int, cut: dict[str, int]
) -> None:
    place = tmp_path_factory.mktemp("foreseen")
    write(place / "one", Alike(n, length), num_workers=0, **cut)
    write(place / "many", Alike(n, length), num_workers=workers, chunksize=chunksize, **cut)
    write(place / "sized", Alike(n, length), num_workers=workers, chunksize=chunksize, on_error="skip", **cut)
    assert files_in(place / "one") == files_in(place / "many") == files_in(place / "sized")
    assert not n or labels(place / "one") == list(range(n))


def test_any_start_method_gives_the_same_bytes(tmp_path: Path) -> None:
    for method in METHODS:
        write(tmp_path / method, Alike(200), num_workers=2, start_method=method, chunksize=7, shard_size=1500)
    assert len({str(files_in(tmp_path / method)) for method in METHODS}) == 1
    assert labels(tmp_path / "spawn") == list(range(200))


@pytest.mark.parametrize("workers", [0, 2])
def test_records_larger_and_smaller_than_what_is_written_at_a_time(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.PART_BYTES", 100)
    for length in (1, 92, 93, 500):
        write(tmp_path / str(length), Alike(60, length), num_workers=workers, samples_per_shard=25, chunksize=20)
        assert labels(tmp_path / str(length)) == list(range(60))


def test_records_of_many_megabytes(tmp_path: Path) -> None:
    write(tmp_path / "set", Alike(6, 12 << 20), num_workers=2, chunksize=1)
    assert labels(tmp_path / "set") == list(range(6))


@pytest.mark.parametrize("workers", [0, 2])
def test_large_records_are_few_in_a_task(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one on: what is complete is soon told, and little is dirty in the page cache."""
    counts = []

    def wrote(tracker: ShardTracker, message: Any, /, call: Any = ShardTracker.note_written) -> Any:
        counts.append(message.samples)
        return call(tracker, message)

    monkeypatch.setattr(ShardTracker, "note_written", wrote)
    write(tmp_path / "set", Alike(21, (1 << 20) - 8), num_workers=workers)
    assert sum(counts) == 21 and max(counts) == 4 << 20 >> 20
    with pytest.raises(WorkerError, match="failed at sample 19"):
        write(tmp_path / "other", Alike(21, 1 << 20, bad=19), num_workers=workers, samples_per_shard=5)
    assert write(tmp_path / "other", Alike(21, 1 << 20), samples_per_shard=5, num_workers=0).kept_shards >= 2 or workers


class Failing(WriteBehind):
    """Where the disk fails to take what was sent on to it first."""

    begun = 0

    def begin(self, offset: int, size: int, data: Any = None) -> None:
        super().begin(offset, size, data)
        self.begun += 1

    def wait(self) -> None:
        super().wait()
        if self.begun == 1:
            self.begun += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("chunksize", [10, 25], ids=["tasks that end with shards", "tasks that go over"])
def test_a_shard_of_which_the_disk_took_not_all_is_not_finished(
    tmp_path: Path, workers: int, chunksize: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next task begins another one, and it is there that the error is seen."""
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.WriteBehind", Failing)
    options: dict[str, Any] = {"num_workers": workers, "samples_per_shard": 10, "chunksize": chunksize}
    with pytest.raises(OSError, match=r"PART_00000\.ffr: 10 samples could not be written"):
        write(tmp_path / "set", Alike(50), start_method="fork", **options)
    assert sorted(os.listdir(tmp_path)) in ([], [".set.part"])
    assert not list(tmp_path.rglob("finished/*.ffr"))


def test_iterables_and_lines_with_fields(tmp_path: Path, heard: set[type]) -> None:
    fields = {"image": NDArrayField("uint8", (20,)), "label": IntField()}
    options: dict[str, Any] = {"num_workers": 2, "samples_per_shard": 30, "progress": False}
    dataset = Alike(100)
    DatasetWriter(tmp_path / "set", fields, **options).from_indexed_dataset(dataset)
    DatasetWriter(tmp_path / "iterable", fields, **options).from_iterable(map(dataset.__getitem__, range(100)))
    lines = list(map(str, range(100)))
    DatasetWriter(tmp_path / "lines", fields, **options).from_list(lines, lambda line: dataset[int(line)], chunksize=7)
    assert heard == {TaskDone}
    assert files_in(tmp_path / "set") == files_in(tmp_path / "iterable") == files_in(tmp_path / "lines")
    DatasetWriter(tmp_path / "streams", fields, **options).from_webdataset(
        ["0", "50"], lambda name: map(dataset.__getitem__, range(int(name), int(name) + 50))
    )
    assert heard > {TaskDone}
    assert files_in(tmp_path / "set") == files_in(tmp_path / "streams")


@pytest.mark.parametrize("samples", [[None] * 9, [{"a": None, "b": np.zeros((0, 4))}] * 9])
def test_records_without_bytes_are_sized(tmp_path: Path, samples: list[Any], heard: set[type]) -> None:
    write(tmp_path / "set", samples, num_workers=2, samples_per_shard=4, chunksize=2)
    assert TaskDone not in heard
    with FileReader(tmp_path / "set") as reader:
        assert [len(record) for record in reader] == [0] * 9


@pytest.mark.parametrize("samples", [["a", "bc"], [{"x": 1, "y": b""}, {"x": 2, "y": b"z"}]])
def test_records_of_several_sizes_are_sized(tmp_path: Path, samples: list[Any], heard: set[type]) -> None:
    write(tmp_path / "set", samples, num_workers=2)
    assert TaskDone not in heard


def test_optional_values_are_sized(tmp_path: Path, heard: set[type]) -> None:
    samples = [1, None, 3]
    write(tmp_path / "set", samples, fields=OptionalField(IntField()), num_workers=0)
    assert TaskDone not in heard
    with FileReader(tmp_path / "set") as reader:
        assert reader.samples([0, 1, 2]) == samples


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_sample_and_going_on(tmp_path: Path, workers: int) -> None:
    options: dict[str, Any] = {"num_workers": workers, "samples_per_shard": 40, "chunksize": 10}
    with pytest.raises(WorkerError, match=r"failed at sample 250: KeyError: 'no such picture'") as caught:
        write(tmp_path / "set", Alike(300, bad=250), **options)
    assert caught.value.index == 250
    assert left_behind(tmp_path) == []
    summary = write(tmp_path / "set", Alike(300), **options)
    assert summary.kept_shards > 0 or workers
    assert summary.shards == 8
    write(tmp_path / "whole", Alike(300), **options)
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


def test_shards_before_a_failing_sample_stay(tmp_path: Path) -> None:
    """As of samples that are sized: all that were complete before the task of the failing one."""
    with pytest.raises(WorkerError):
        write(tmp_path / "set", Alike(300, bad=250), num_workers=0, samples_per_shard=40, chunksize=10)
    assert write(tmp_path / "set", Alike(300), num_workers=0, samples_per_shard=40).kept_shards == 6


def test_appending(tmp_path: Path, heard: set[type]) -> None:
    write(tmp_path / "set", Alike(50), num_workers=2, samples_per_shard=20)
    write(tmp_path / "set", Alike(70), num_workers=2, samples_per_shard=30, mode="append")
    assert heard == {TaskDone}
    assert labels(tmp_path / "set") == [*range(50), *range(70)]


@register
@dataclass(frozen=True)
class LyingField(Field):
    """Of four bytes, it says."""

    kind = "test.lying"

    @property
    def expects(self) -> str:
        return "bytes"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("u1"), (4,))

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def decode(self, data: Any) -> bytes:
        return bytes(data)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_field_that_does_not_keep_to_its_size(tmp_path: Path, workers: int) -> None:
    samples = [b"1234"] * 20 + [b"12345", b"1234", b"1234"]
    with pytest.raises(WorkerError, match=r"sample 20: .*encoded 5 bytes, expected its fixed size, 4"):
        write(tmp_path / "set", samples, fields=LyingField(), num_workers=workers)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_record_of_another_size_is_noticed_whatever_made_it(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours would be overwritten."""
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.for_records", lambda encode: lambda sample: b"12345")
    with pytest.raises(FFRecordError, match=r"sample 0 has a record of 5 bytes, expected 28"):
        write(tmp_path / "set", Alike(100), num_workers=workers)
    assert left_behind(tmp_path) == []


def test_a_task_of_another_number_of_samples_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shortened(tracker: ShardTracker, message: Any, /, wrote: Any = ShardTracker.note_written) -> Any:
        return wrote(tracker, TaskDone(message.task, message.checksums[4:], message.seconds))

    monkeypatch.setattr(ShardTracker, "note_written", shortened)
    with pytest.raises(FFRecordError, match=r"set: task 0 has 99 samples of 28 bytes, expected 2800 bytes"):
        write(tmp_path / "set", Alike(100), num_workers=0)


LIMIT = 100_000  # bytes: room for the tables, and for a third of the records


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_cannot_grow(tmp_path: Path, workers: int) -> None:
    """The error names the shard, the last sample that was meant, and the place; then nothing is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write(tmp_path / "set", Alike(5000), num_workers=workers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    found = re.search(
        r"PART_00000.ffr: (\d+) samples, the last of them sample (\d+), could not .* at byte (\d+)", str(caught.value)
    )
    assert found is not None, caught.value
    samples, last, start = map(int, found.groups())
    assert start + samples * 28 > LIMIT and last < 5000
    assert caught.value.filename == str(tmp_path / "set" / "PART_00000.ffr")
    assert left_behind(tmp_path) == []


def test_tasks_tell_how_many_samples_they_have() -> None:
    assert IndexTask(0, np.arange(5).tobytes()).samples == 5
    assert TaskDone(0, np.zeros(5, np.uint32).tobytes(), 0.0).samples == 5


def test_what_the_manifest_says(tmp_path: Path) -> None:
    write(tmp_path / "set", Alike(100), num_workers=2, samples_per_shard=30)
    listing = json.loads((tmp_path / "set" / "dataset.json").read_text())
    assert [shard["samples"] for shard in listing["shards"]] == [30, 30, 30, 10]
    assert sorted(os.listdir(tmp_path)) == ["set"]

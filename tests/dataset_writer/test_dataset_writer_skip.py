"""Samples that cannot be had or encoded are left out, as if they had not been there; and are told, and not too many."""

import json
import logging
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_datasets import files_in, left_behind, read_all

from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.errors import MismatchError, WorkerError
from ffrecord.fields import IntField
from ffrecord.format import manifest


class Holey:
    """Plain samples of varying size, of which some cannot be had."""

    def __init__(self, n: int, bad: set[int]) -> None:
        self.n, self.bad = n, bad

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> bytes:
        if index in self.bad:
            raise KeyError(f"no picture {index}")
        return bytes([index % 251]) * (index * 37 % 90)

    def of_line(self, line: str) -> bytes:
        return self[int(line)]

    @property
    def good(self) -> list[bytes]:
        return [self[index] for index in range(self.n) if index not in self.bad]


def write_from(source: str, path: Path, dataset: Holey, chunksize: int = 100, **options: Any) -> Summary:
    writer = DatasetWriter(path, on_error="skip", **options)
    if source == "lines":
        return writer.from_list([str(number) for number in range(dataset.n)], dataset.of_line, chunksize)
    return writer.from_indexed_dataset(dataset, chunksize=chunksize)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 150),
    bad=st.sets(st.integers(0, 149), max_size=60),
    cut=strategies.cuts(50, 900),
    workers=st.integers(0, 3),
    chunksize=st.integers(1, 50),
    source=st.sampled_from(["dataset", "lines"]),
)
def test_the_same_bytes_as_if_they_had_not_been_there(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    bad: set[int],
    cut: dict[str, int],
    workers: int,
    chunksize: int,
    source: str,
) -> None:
    directory = tmp_path_factory.mktemp("same")
    dataset = Holey(n, {index for index in bad if index < n})
    # Given, since nothing shows it if all of the few samples that are looked at are missing.
    how = {"serializer": bytes, "num_workers": workers, **cut}
    summary = write_from(source, directory / "holes", dataset, chunksize, **how)
    DatasetWriter(directory / "good", serializer=bytes, num_workers=0, **cut).from_indexed_dataset(dataset.good)
    assert files_in(directory / "holes") == files_in(directory / "good")
    assert (summary.samples, summary.skipped) == (len(dataset.good), len(dataset.bad))


@pytest.mark.parametrize(
    "source, method", [("dataset", "fork"), ("lines", "fork"), ("dataset", "spawn"), ("lines", "forkserver")]
)
def test_any_start_method_gives_the_same_bytes(tmp_path: Path, source: str, method: str) -> None:
    dataset = Holey(200, {0, 1, 50, 99, 199})
    write_from(source, tmp_path / "holes", dataset, 7, num_workers=2, start_method=method, shard_size=1000)
    DatasetWriter(tmp_path / "good", num_workers=0, shard_size=1000).from_indexed_dataset(dataset.good)
    assert files_in(tmp_path / "holes") == files_in(tmp_path / "good")


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_cannot_be_encoded(tmp_path: Path, workers: int) -> None:
    samples: list[Any] = [{"x": number} for number in range(100)]
    samples[17], samples[30] = {"x": 2**70}, {"y": 3}
    for number, source in enumerate(("dataset", "iterable", "shards")):
        path = tmp_path / str(number)
        writer = DatasetWriter(path, {"x": IntField()}, num_workers=workers, on_error="skip")
        if source == "dataset":
            summary = writer.from_indexed_dataset(samples, chunksize=9)
        elif source == "iterable":
            summary = writer.from_iterable(iter(samples), 100, chunksize=9)
        else:
            summary = writer.from_webdataset(["a", "b"], lambda name: samples[:20] if name == "a" else samples[20:])
        assert (summary.samples, summary.skipped) == (98, 2)
        assert [int.from_bytes(record, "little") for record in read_all(path)] == [
            number for number in range(100) if number not in (17, 30)
        ]
    assert files_in(tmp_path / "0") == files_in(tmp_path / "1") == files_in(tmp_path / "2")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_number_of_shards_is_of_the_samples_before_some_are_left_out(tmp_path: Path, workers: int) -> None:
    write_from("dataset", tmp_path / "set", Holey(40, set(range(25))), num_workers=workers, num_shards=4)
    loaded = manifest.load(str(tmp_path / "set"))
    assert loaded is not None and [shard.samples for shard in loaded.shards] == [10, 5]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source, name", [("dataset", "sample 3"), ("lines", "line 4")])
def test_the_first_few_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, name: str, workers: int
) -> None:
    with caplog.at_level(logging.WARNING, "ffrecord"):
        write_from(source, tmp_path / "set", Holey(300, set(range(3, 203))), 10, num_workers=workers, serializer=bytes)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 6 and told[-1] == "200 samples skipped in all"
    if not workers:
        assert told[0] == f"{name} skipped: KeyError: 'no picture 3'"
    assert all("skipped: KeyError: 'no picture" in message for message in told[:5])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["dataset", "lines"])
def test_too_many(tmp_path: Path, workers: int, source: str) -> None:
    dataset = Holey(300, set(range(100, 150)))
    how = {"num_workers": workers, "chunksize": 10, "serializer": bytes}
    assert write_from(source, tmp_path / "enough", dataset, max_skipped=50, **how).skipped == 50
    with pytest.raises(WorkerError, match=r"50 samples could not be written, max_skipped is 49; the latest, .*no pict"):
        write_from(source, tmp_path / "set", dataset, max_skipped=49, **how)
    with pytest.raises(WorkerError, match="1 sample could not be written, max_skipped is 0"):
        write_from(source, tmp_path / "set", dataset, max_skipped=0, **how)
    assert left_behind(tmp_path) == ["enough"]


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_but_samples_that_cannot_be_had(tmp_path: Path, workers: int) -> None:
    dataset = Holey(30, set(range(30)))
    with pytest.raises(WorkerError, match=r"none of the samples \[0, 4, .*, 29\] could be read.*`fields`") as caught:
        write_from("dataset", tmp_path / "set", dataset, num_workers=workers)
    assert "failed at" not in str(caught.value)
    assert left_behind(tmp_path) == []
    summary = write_from("dataset", tmp_path / "given", dataset, num_workers=workers, serializer=bytes)
    assert (summary.samples, summary.skipped, summary.shards) == (0, 30, 1)
    write_from("lines", tmp_path / "shown", dataset, num_workers=workers)
    DatasetWriter(tmp_path / "none").from_indexed_dataset([])
    assert files_in(tmp_path / "shown") == files_in(tmp_path / "none")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_schema_from_the_samples_that_can_be_had(tmp_path: Path, workers: int) -> None:
    """The first and the last sample are among those that are looked at."""
    samples = [{"x": number} for number in range(50)]

    class Some(Holey):
        def __getitem__(self, index: int) -> Any:
            super().__getitem__(index)
            return samples[index]

    for source in ("dataset", "lines"):
        write_from(source, tmp_path / source, Some(50, {0, 3, *range(5, 20), 49}), num_workers=workers)
    assert files_in(tmp_path / "dataset") == files_in(tmp_path / "lines")


def test_a_pipeline_that_fails_cannot_be_skipped(tmp_path: Path) -> None:
    def pipeline(name: str) -> Iterator[bytes]:
        yield b"one"
        raise KeyError("broken tar")

    for workers in (0, 1):
        writer = DatasetWriter(tmp_path / "set", num_workers=workers, on_error="skip")
        with pytest.raises(WorkerError, match="failed at sample 1 of a: KeyError: 'broken tar'"):
            writer.from_webdataset(["a"], pipeline)
    assert left_behind(tmp_path) == []


class Interrupted(Holey):
    """Memory is short at one sample, once."""

    at: int | None = None

    def __getitem__(self, index: int) -> bytes:
        if index == self.at:
            raise MemoryError
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_going_on_with_an_interrupted_write_skips_the_same(tmp_path: Path, seed: int, workers: int) -> None:
    chance = random.Random(seed)
    dataset = Interrupted(400, {index for index in range(400) if chance.random() < 0.2})
    how = {"num_workers": workers, "serializer": bytes, "samples_per_shard": 30}
    dataset.at = next(index for index in range(250, 400) if index not in dataset.bad)
    with pytest.raises(WorkerError, match="MemoryError"):
        write_from("dataset", tmp_path / "set", dataset, 10, **how)
    kept = len(list(tmp_path.glob(".set.part/finished/*")))
    dataset.at = None
    if kept:
        with pytest.raises(MismatchError, match=r"left out \d+ samples?, but this one may leave out 0"):
            DatasetWriter(tmp_path / "set", **how).from_indexed_dataset(dataset)
    summary = write_from("dataset", tmp_path / "set", dataset, 7, **how)
    assert (summary.kept_shards, summary.skipped) == (kept, len(dataset.bad)) and (kept or workers)
    DatasetWriter(tmp_path / "good", **how).from_indexed_dataset(dataset.good)
    assert files_in(tmp_path / "set") == files_in(tmp_path / "good")


def test_who_goes_on_may_skip_no_more_in_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = Interrupted(400, {10, 20, 310})
    dataset.at = 300
    how: dict[str, Any] = {"num_workers": 0, "serializer": bytes, "samples_per_shard": 30}
    with pytest.raises(WorkerError, match="MemoryError"):
        write_from("dataset", tmp_path / "set", dataset, max_skipped=2, **how)
    dataset.at = None
    with pytest.raises(WorkerError, match="3 samples could not be written, max_skipped is 2; the latest, sample 310"):
        write_from("dataset", tmp_path / "set", dataset, max_skipped=2, **how)
    with pytest.raises(MismatchError, match="left out 2 samples, but this one may leave out 1"):
        write_from("dataset", tmp_path / "set", dataset, max_skipped=1, **how)
    caplog.clear()
    assert write_from("dataset", tmp_path / "set", dataset, max_skipped=3, **how).skipped == 3
    assert [record.getMessage() for record in caplog.records][-2:] == [
        "sample 310 skipped: KeyError: 'no picture 310'",
        "3 samples skipped in all",
    ]


@pytest.mark.parametrize("per_shard", [10, 37])
def test_what_was_left_out_at_the_end_counts_though_nothing_is_written_again(tmp_path: Path, per_shard: int) -> None:
    dataset = Holey(40, {3, 38, 39})
    how: dict[str, Any] = {"num_workers": 0, "serializer": bytes, "samples_per_shard": per_shard}
    pid = os.fork()
    if pid == 0:
        PartDirectory.discard = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        write_from("dataset", tmp_path / "set", dataset, **how)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    summary = write_from("dataset", tmp_path / "set", dataset, **how)
    assert (summary.samples, summary.skipped, summary.kept_shards) == (37, 3, -(-37 // per_shard))


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"on_error": "ignore"}, ValueError, "on_error is 'ignore', expected 'raise' or 'skip'"),
        ({"max_skipped": -1}, ValueError, "max_skipped is -1, expected >= 0"),
        ({"max_skipped": 5}, ValueError, "max_skipped=5 needs on_error='skip'"),
        ({"max_skipped": 0.5}, TypeError, "max_skipped is float .*, expected an int"),
        ({"num_workers": "4"}, TypeError, "num_workers is str .*, expected an int"),
        ({"shard_size": "1XB"}, ValueError, "shard_size is '1XB', expected bytes or text such as '500M'"),
        ({"shard_size": 0}, ValueError, "shard_size is 0, expected 1 to 9223372036854775807 bytes"),
        ({"shard_size": 2.5}, TypeError, "shard_size is float .*, expected an int or a str"),
        ({"num_shards": 2, "shard_size": 9}, ValueError, "shard_size=9 and num_shards=2 exclude each other"),
        ({"samples_per_shard": 2, "shard_size": 9}, ValueError, "shard_size=9 and samples_per_shard=2 exclude"),
        ({"samples_per_shard": 2.5}, TypeError, "samples_per_shard is float .*, expected an int"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        DatasetWriter(tmp_path / "set", **options)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"seed": 3}, ValueError, "seed=3 needs shuffle_indices=True"),
        ({"seed": "a", "shuffle_indices": True}, TypeError, "seed is str .*, expected an int"),
        ({"chunksize": 1.5}, TypeError, "chunksize is float .*, expected an int"),
    ],
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset([b"a"], **options)
    assert os.listdir(tmp_path) == []


def test_a_reason_of_any_length_is_told_in_short(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Wordy(Holey):
        def __getitem__(self, index: int) -> bytes:
            if index == 5:
                raise ValueError(json.dumps(["word"] * 100_000))
            return super().__getitem__(index)

    assert write_from("dataset", tmp_path / "set", Wordy(50, set()), num_workers=1, serializer=bytes).skipped == 1
    assert len(caplog.text) < 1000


class Named(Holey):
    """Samples from files with names of any bytes, which errors tell."""

    def __getitem__(self, index: int) -> bytes:
        if index in self.bad:
            raise ValueError(f"no picture {os.fsdecode(bytes([0x63, 0xE9]))}")
        return b"x"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_reason_that_is_not_utf_8(tmp_path: Path, workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """It ended the worker, and the whole write."""
    writer = DatasetWriter(tmp_path / "set", on_error="skip", num_workers=workers)
    assert writer.from_indexed_dataset(Named(20, {3, 7})).skipped == 2
    assert caplog.text.count("no picture c\\udce9") == 2

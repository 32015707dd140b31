"""Iterables: the bytes that a dataset of the same samples gives, and every failure; what all sources have in common."""

import errno
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_datasets import SOURCES, Samples, files_in, grown, left_behind, read_all, write_from

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.fields import schema_of
from ffrecord.format import manifest

pytestmark = pytest.mark.usefixtures("nothing_leaks")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 60), max_size=120),
    split=st.lists(st.integers(0, 120), max_size=4).map(sorted),
    cut=strategies.cuts(50, 900),
    workers=st.integers(0, 3),
    chunksize=st.integers(1, 50),
    source=st.sampled_from(SOURCES[1:]),
)
def test_the_same_bytes_as_from_a_dataset(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    split: list[int],
    cut: dict[str, int],
    workers: int,
    chunksize: int,
    source: str,
) -> None:
    directory = tmp_path_factory.mktemp("same")
    given = Samples.of_sizes(sizes, [min(bound, len(sizes)) for bound in split])
    write_from("dataset", directory / "one", given, num_workers=0, **cut)
    summary = write_from(source, directory / "two", given, chunksize, num_workers=workers, **cut)
    assert files_in(directory / "one") == files_in(directory / "two")
    assert (summary.samples, summary.bytes, summary.skipped) == (len(sizes), sum(sizes), 0)


@pytest.mark.parametrize(
    "source, method",
    [*((source, method) for source in ("iterable", "lines", "shards") for method in ("fork", "spawn")),
     ("iterable", "forkserver")],
)  # fmt: skip
def test_any_start_method_gives_the_same_bytes(tmp_path: Path, source: str, method: str) -> None:
    given = Samples.of_sizes([i % 50 for i in range(200)], [70, 90])
    write_from("dataset", tmp_path / "one", given, num_workers=0, shard_size=900)
    write_from(source, tmp_path / "two", given, 9, num_workers=2, start_method=method, shard_size=900)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")


def typed(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {"image": np.full((4, 3), i, np.uint8), "label": i, "name": f"n{i}"}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("chunksize", [1, 40])
def test_typed_samples_of_a_generator(tmp_path: Path, workers: int, chunksize: int) -> None:
    write_from("dataset", tmp_path / "one", Samples(list(typed(100))), num_workers=0)
    summary = DatasetWriter(tmp_path / "two", num_workers=workers).from_iterable(typed(100), chunksize=chunksize)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    assert summary.samples == 100
    with FileReader(tmp_path / "two") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.decode(reader.read_one(77))["name"] == "n77"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", SOURCES[1:])
@pytest.mark.parametrize("options", [{}, {"serializer": pickle.dumps}], ids=str)
def test_no_samples(tmp_path: Path, source: str, workers: int, options: dict[str, Any]) -> None:
    write_from("dataset", tmp_path / "one", Samples([]), num_workers=0, **options)
    summary = write_from(source, tmp_path / "two", Samples.of_sizes([], [0, 0]), num_workers=workers, **options)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    assert (summary.samples, summary.shards) == (0, 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "length, words",
    [
        (10, "the iterable gives 7 samples, but length is 10"),
        (6, "the iterable gives at least 7 samples, but length is 6"),
        (0, "the iterable gives at least 1 sample, but length is 0"),
    ],
)
def test_length_that_is_not_true(tmp_path: Path, workers: int, length: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DatasetWriter(tmp_path / "set", num_workers=workers).from_iterable(iter(grown(7)), length)
    assert left_behind(tmp_path) == []


def test_a_number_of_shards_needs_a_length(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"num_shards=3 needs the number of samples: pass a length \(from_iterable\)"):
        DatasetWriter(tmp_path / "set", num_shards=3).from_iterable(iter(grown(7)))
    DatasetWriter(tmp_path / "set", num_shards=3).from_iterable(iter(grown(7)), 7)
    assert len(os.listdir(tmp_path / "set")) == 4 and read_all(tmp_path / "set") == grown(7)


class Failing(Exception):
    pass


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 3, 500])
def test_what_the_iterable_raises_is_raised(tmp_path: Path, workers: int, at: int) -> None:
    error = Failing("mine")

    def samples() -> Iterator[bytes]:
        yield from grown(at)
        raise error

    with pytest.raises(Failing) as caught:
        DatasetWriter(tmp_path / "set", num_workers=workers, samples_per_shard=7).from_iterable(samples())
    assert caught.value is error
    assert left_behind(tmp_path) == []


def test_an_iterable_may_be_cut_short_by_ctrl_c(tmp_path: Path) -> None:
    def samples() -> Iterator[bytes]:
        yield from grown(50)
        signal.raise_signal(signal.SIGINT)
        yield b"never"

    with pytest.raises(KeyboardInterrupt):
        DatasetWriter(tmp_path / "set", num_workers=2).from_iterable(samples())
    assert left_behind(tmp_path) == []


def test_samples_that_do_not_pickle(tmp_path: Path) -> None:
    samples = [*grown(20), lambda: None]
    with pytest.raises(TypeError, match=r"sample 20 \(function\) cannot be pickled.*num_workers=0"):
        DatasetWriter(tmp_path / "set", num_workers=2, serializer=repr).from_iterable(samples)
    assert left_behind(tmp_path) == []
    DatasetWriter(tmp_path / "set", num_workers=0, serializer=lambda each: b"x").from_iterable(samples)
    assert read_all(tmp_path / "set") == [b"x"] * 21


def test_samples_much_larger_than_shared_memory(tmp_path: Path) -> None:
    sizes = [0, 1 << 20, 9 << 20, 5, 4 << 20, (4 << 20) - 50, 3, 20 << 20]
    samples = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    DatasetWriter(tmp_path / "set", num_workers=2).from_iterable(samples)
    assert read_all(tmp_path / "set") == samples


def test_not_iterable(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"iterable is int .*, expected an iterable"):
        DatasetWriter(tmp_path / "set").from_iterable(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length is -1, expected >= 0"):
        DatasetWriter(tmp_path / "set").from_iterable([], -1)


def test_a_slow_iterable_is_written_meanwhile(tmp_path: Path) -> None:
    """Samples are not held back until a chunk of them is full."""

    def samples() -> Iterator[bytes]:
        yield from grown(10)
        for _ in range(3):
            time.sleep(0.3)
            yield b"slow"
        assert any((tmp_path / ".set.part" / "finished").iterdir())

    DatasetWriter(tmp_path / "set", num_workers=1, samples_per_shard=4).from_iterable(samples())
    assert read_all(tmp_path / "set") == [*grown(10), *[b"slow"] * 3]


def test_torch_loader(tmp_path: Path) -> None:
    pytest.importorskip("torch.utils.data")
    import torch

    data = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2)
    started = time.monotonic()
    summary = DatasetWriter(tmp_path / "set", num_workers=2).from_iterable(loader, length=20)
    # Torch starts its workers afresh from Python 3.14 on: of a busy machine that takes half a minute.
    assert summary.samples == 20 and time.monotonic() - started < 120
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None
        vector, label = schema.decode(reader.read_one(7))
        assert vector.tolist() == [14.0, 15.0] and label == 7


def test_in_a_thread(tmp_path: Path) -> None:
    thread = threading.Thread(target=DatasetWriter(tmp_path / "set", num_workers=2).from_iterable, args=(grown(300),))
    thread.start()
    thread.join(30)
    assert read_all(tmp_path / "set") == grown(300)


def test_appended_to(tmp_path: Path) -> None:
    given = Samples.of_sizes([5, 6, 7], [1])
    for source in SOURCES:
        mode = "create" if source == "dataset" else "append"
        write_from(source, tmp_path / "set", given, num_workers=1, mode=mode)
    assert read_all(tmp_path / "set") == given.samples * len(SOURCES)


def test_an_object_that_changes_arrives_as_it_was(tmp_path: Path) -> None:
    def samples() -> Iterator[dict[str, Any]]:
        sample = {"x": np.zeros(3, np.int64), "y": 0}
        for number in range(50):
            sample["x"][:] = number
            sample["y"] = number
            yield sample

    DatasetWriter(tmp_path / "set", num_workers=1).from_iterable(samples())
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None
        found = [schema.decode(record) for record in reader]
    assert [(sample["x"].tolist(), sample["y"]) for sample in found] == [([number] * 3, number) for number in range(50)]


def test_shared_memory_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for before the work starts, since touching what is not there would be a SIGBUS."""

    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no memory")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="bytes of shared memory could not be allocated: No space left") as caught:
        DatasetWriter(tmp_path / "set", num_workers=2).from_iterable(grown(5))
    assert caught.value.errno == errno.ENOSPC
    assert left_behind(tmp_path) == []


def test_a_wrong_guess_of_the_last_shard_is_mended(tmp_path: Path) -> None:
    """Samples grow, so those that seemed to fit into the last shard do not."""
    samples = [b"x"] * 100 + [b"y" * 80] * 100
    for number, source in enumerate(["dataset", "iterable"]):
        write_from(source, tmp_path / str(number), Samples(samples), num_workers=1, shard_size=1000)
    assert files_in(tmp_path / "0") == files_in(tmp_path / "1")
    assert read_all(tmp_path / "0") == samples
    assert manifest.load(str(tmp_path / "0")) is not None


def test_progress_of_an_unknown_total(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    DatasetWriter(tmp_path / "quiet").from_iterable(grown(30))
    assert capfd.readouterr().err == ""
    DatasetWriter(tmp_path / "shown", progress=True).from_iterable(grown(30))
    shown = capfd.readouterr().err
    assert "30.0 samples" in shown and "samples/s" in shown and "MB/s" in shown

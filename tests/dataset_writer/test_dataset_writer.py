"""DatasetWriter: the same bytes whatever wrote them, read back as they were, and every way to call it."""

import errno
import multiprocessing
import os
import pickle
import re
import sys
import threading
import time
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import ffr_twin
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written_datasets import METHODS, files_in, grown

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.errors import WorkerError
from ffrecord.fields import IntField, ScalarField, Schema, schema_of
from ffrecord.format import ffr_layout, manifest


class Pictures:
    """Typed samples; importable, so that spawned workers can have them."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = np.full((2, 3), index % 256, np.uint8)
        return {"image": image, "label": index, "name": f"picture {index}", "pair": (index / 4, bool(index % 2))}


def read_all(directory: Path) -> list[bytes]:
    with FileReader(directory) as reader:
        return [bytes(sample) for sample in reader.read(range(reader.n))]


def write(path: Path, dataset: Any, *args: Any, **options: Any) -> Summary:
    """Write with the options of the writer and of the call in one."""
    call = {name: options.pop(name) for name in ("indices", "chunksize", "shuffle_indices", "seed") if name in options}
    return DatasetWriter(path, *args, **options).from_indexed_dataset(dataset, **call)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_typed_samples_come_back(tmp_path: Path, workers: int) -> None:
    summary = write(tmp_path / "set", Pictures(250), num_workers=workers)
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.columns == ("image", "label", "name", "pair[0]", "pair[1]")
        for index in (0, 7, 249):
            sample = schema.decode(reader.read_one(index))
            expected = Pictures(250)[index]
            assert np.array_equal(sample.pop("image"), expected.pop("image"))
            assert sample == expected
    assert (summary.path, summary.samples, summary.shards) == (str(tmp_path / "set"), 250, 1)
    assert summary.bytes == sum(map(len, read_all(tmp_path / "set")))


@pytest.mark.parametrize("workers", [0, 2])
def test_plain_samples_are_written_as_they_are(tmp_path: Path, workers: int) -> None:
    samples = [b"", b"one", bytearray(b"two"), memoryview(b"three").cast("c"), *grown(300)]
    write(tmp_path / "set", samples, num_workers=workers)
    assert read_all(tmp_path / "set") == [bytes(sample) for sample in samples]
    with FileReader(tmp_path / "set") as reader:
        assert schema_of(reader) is None
    loaded = manifest.load(str(tmp_path / "set"))
    assert loaded is not None and loaded.schema is None and loaded.samples == 304


def test_plain_shards_of_exact_count_are_those_of_the_original(tmp_path: Path) -> None:
    samples = grown(10)
    write(tmp_path / "by", samples, samples_per_shard=4)
    write(tmp_path / "into", samples, num_shards=3)
    expected = {f"PART_{i:05d}.ffr": ffr_twin.build(samples[4 * i : 4 * i + 4]) for i in range(3)}
    for name in ("by", "into"):
        files = files_in(tmp_path / name)
        assert files.pop(manifest.NAME)
        assert files == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_serializer(tmp_path: Path, workers: int) -> None:
    write(tmp_path / "set", Pictures(30), num_workers=workers, serializer=pickle.dumps, num_shards=2)
    records = read_all(tmp_path / "set")
    assert records == [pickle.dumps(Pictures(30)[i]) for i in range(30)]
    with FileReader(tmp_path / "set") as reader:
        assert reader.extension is not None
        assert reader.extension.serializer == "_pickle.dumps" and reader.extension.writer.startswith("ffrecord ")


def test_explicit_fields(tmp_path: Path) -> None:
    fields = {"x": ScalarField("int8"), "y": ScalarField("uint16")}
    samples = [{"x": np.int8(i), "y": np.uint16(2 * i)} for i in range(20)]
    write(tmp_path / "a", samples, fields, num_workers=0)
    write(tmp_path / "b", samples, Schema.of(fields), num_workers=2)
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")
    assert {len(record) for record in read_all(tmp_path / "a")} == {3}


def test_field_that_does_not_hold_a_sample_names_it(tmp_path: Path) -> None:
    samples: list[dict[str, Any]] = [{"x": i} for i in range(200)]
    samples[123] = {"x": 2**70}
    for workers in (0, 2):
        with pytest.raises(WorkerError, match="at sample 123") as caught:
            write(tmp_path / "set", samples, {"x": IntField()}, num_workers=workers, num_shards=1)
        assert isinstance(caught.value.__cause__, ValueError)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_no_schema_describes(tmp_path: Path, workers: int) -> None:
    with pytest.raises(TypeError):
        write(tmp_path / "set", [object(), object()], num_workers=workers)
    assert os.listdir(tmp_path) == []


def test_plain_bytes_and_something_else(tmp_path: Path) -> None:
    samples: list[Any] = [b"plain"] * 100
    samples[50] = np.zeros(3)
    with pytest.raises(
        WorkerError, match=r"at sample 50: TypeError: a sample is a .*array.*, expected plain bytes, as those before it"
    ):
        write(tmp_path / "set", samples)


sizes = st.lists(st.integers(0, 60), min_size=0, max_size=120)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=sizes,
    cut=st.one_of(
        st.builds(lambda n: {"samples_per_shard": n}, st.integers(1, 50)),
        st.builds(lambda n: {"num_shards": n}, st.integers(1, 9)),
        st.builds(lambda n: {"shard_size": n}, st.integers(1, 900)),
    ),
    workers=st.integers(1, 4),
    chunksize=st.integers(1, 50),
)
def test_any_workers_and_chunks_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: dict[str, int], workers: int, chunksize: int
) -> None:
    directory = tmp_path_factory.mktemp("same")
    samples = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    write(directory / "one", samples, num_workers=0, **cut)
    write(directory / "many", samples, num_workers=workers, chunksize=chunksize, **cut)
    assert files_in(directory / "one") == files_in(directory / "many")
    assert read_all(directory / "one") == samples


@pytest.mark.parametrize(
    "cut",
    [{"shard_size": 2000}, *(pytest.param(cut, marks=pytest.mark.long) for cut in ({}, {"num_shards": 4}))],
    ids=str,
)
def test_any_start_method_gives_the_same_bytes(tmp_path: Path, cut: dict[str, int]) -> None:
    for method in METHODS:
        write(tmp_path / method, Pictures(300), num_workers=2, start_method=method, chunksize=7, **cut)
    write(tmp_path / "none", Pictures(300), num_workers=0, **cut)
    assert len({str(files_in(tmp_path / name)) for name in [*METHODS, "none"]}) == 1


@pytest.mark.parametrize("method", METHODS)
def test_numbers_of_a_foreign_byte_order_reach_a_worker_as_they_are(tmp_path: Path, method: str) -> None:
    foreign = np.dtype("i2").newbyteorder()
    samples = [np.full(3, i, foreign) for i in range(300)]
    write(tmp_path / "many", samples, num_workers=2, start_method=method)
    write(tmp_path / "none", samples, num_workers=0)
    assert files_in(tmp_path / "many") == files_in(tmp_path / "none")


class Slow(Pictures):
    """Where some samples take long, chunks are finished out of order."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index % 40 < 10:
            time.sleep(0.002)
        return super().__getitem__(index)


def test_order_does_not_depend_on_speed(tmp_path: Path) -> None:
    write(tmp_path / "slow", Slow(400), num_workers=4, chunksize=10, shard_size=3000)
    write(tmp_path / "fast", Pictures(400), num_workers=0, shard_size=3000)
    assert files_in(tmp_path / "slow") == files_in(tmp_path / "fast")


def test_shard_size_bounds_every_shard(tmp_path: Path) -> None:
    samples = [bytes(size) for size in [10, 10, 10, 500, 10, 100, 0, 90, *[1] * 150]]
    summary = write(tmp_path / "set", samples, shard_size=100, num_workers=2, chunksize=3)
    loaded = manifest.load(str(tmp_path / "set"))
    assert loaded is not None and summary.shards == len(loaded.shards)
    first = 0
    for shard in loaded.shards:
        inside = samples[first : first + shard.samples]
        first += shard.samples
        assert sum(map(len, inside)) <= 100 or len(inside) == 1
    assert read_all(tmp_path / "set") == samples


def test_reserved_table_space_is_a_valid_block(tmp_path: Path) -> None:
    samples = [bytes(10)] * 8 + [bytes(1000)] * 8
    write(tmp_path / "set", samples, shard_size=4000, num_workers=0)
    for name in sorted(files_in(tmp_path / "set")):
        if name.endswith(".ffr"):
            data = (tmp_path / "set" / name).read_bytes()
            n = ffr_layout.PREFIX.unpack_from(data)[1]
            start = int.from_bytes(data[ffr_layout.offsets_start(n) :][:8], "little")
            header = ffr_layout.unpack_block_header(
                data[ffr_layout.tables_end(n) :][:40], start - ffr_layout.tables_end(n), len(data)
            )
            assert header.payload_size == 0
            assert not any(data[ffr_layout.tables_end(n) + 40 : start])
            FileReader(tmp_path / "set" / name).close()


def test_samples_larger_than_a_piece_and_than_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.CHUNK_BYTES", 1000)
    monkeypatch.setattr("ffrecord.dataset_writer.worker.HELD_BYTES", 3000)
    samples = [bytes([i]) * (i * 37 % 5000) for i in range(200)]
    write(tmp_path / "set", samples, num_workers=3, chunksize=20, shard_size=20_000)
    assert read_all(tmp_path / "set") == samples
    write(tmp_path / "here", samples, num_workers=0, shard_size=20_000)
    assert files_in(tmp_path / "here") == files_in(tmp_path / "set")


def test_samples_of_many_megabytes(tmp_path: Path) -> None:
    samples = [os.urandom(12 << 20), b"small", os.urandom(20 << 20), b""]
    write(tmp_path / "set", samples, num_workers=2, chunksize=1)
    assert read_all(tmp_path / "set") == samples


def test_many_tiny_shards(tmp_path: Path) -> None:
    summary = write(tmp_path / "set", grown(250), samples_per_shard=1, num_workers=2)
    assert summary.shards == 250
    assert read_all(tmp_path / "set") == grown(250)


@pytest.mark.parametrize("options", [{}, {"num_shards": 3}, {"samples_per_shard": 5}, {"serializer": pickle.dumps}])
@pytest.mark.parametrize("workers", [0, 2])
def test_empty_dataset(tmp_path: Path, options: dict[str, Any], workers: int) -> None:
    summary = write(tmp_path / "set", [], num_workers=workers, **options)
    assert (summary.samples, summary.bytes, summary.shards) == (0, 0, 1)
    assert sorted(os.listdir(tmp_path / "set")) == ["PART_00000.ffr", "dataset.json"]
    with FileReader(tmp_path / "set") as reader:
        assert reader.n == 0 and schema_of(reader) is None
    assert options or (tmp_path / "set" / "PART_00000.ffr").read_bytes() == ffr_twin.build([])


def test_empty_dataset_keeps_explicit_fields(tmp_path: Path) -> None:
    write(tmp_path / "set", [], {"x": ScalarField("int32")})
    with FileReader(tmp_path / "set") as reader:
        assert schema_of(reader) == Schema.of({"x": ScalarField("int32")})
    loaded = manifest.load(str(tmp_path / "set"))
    assert loaded is not None and loaded.schema is not None


def test_indices(tmp_path: Path) -> None:
    samples = grown(10)
    for number, indices in enumerate([[3, -1, 3], np.array([3, 9, 3]), (i for i in (3, -1, 3))]):
        write(tmp_path / str(number), samples, indices=indices, num_workers=2)
        assert read_all(tmp_path / str(number)) == [samples[3], samples[9], samples[3]]
    write(tmp_path / "none", samples, indices=[])
    assert read_all(tmp_path / "none") == []


class Untouchable:
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("touched")


def test_indices_out_of_range_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(IndexError, match=r"indices\[1\] is 5, expected -5 <= index < 5"):
        write(tmp_path / "set", Untouchable(), indices=[0, 5])
    with pytest.raises(
        TypeError, match=r"indices is a list of bools, expected ints; np\.flatnonzero makes ints of a mask"
    ):
        write(tmp_path / "set", Untouchable(), indices=[True] * 5)
    with pytest.raises(TypeError, match=r"a bool is not an index; np\.flatnonzero makes ints of a mask"):
        write(tmp_path / "set", Untouchable(), indices=[2, True])
    assert os.listdir(tmp_path) == []


def test_shuffle(tmp_path: Path) -> None:
    samples = grown(10)
    summary = write(tmp_path / "a", samples, shuffle_indices=True, seed=0)
    assert read_all(tmp_path / "a") == [samples[i] for i in [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]]
    drawn = write(tmp_path / "b", samples, shuffle_indices=True)
    assert summary.seed == 0 and drawn.seed is not None
    loaded = manifest.load(str(tmp_path / "b"))
    assert loaded is not None and loaded.seed == drawn.seed
    write(tmp_path / "c", samples, shuffle_indices=True, seed=drawn.seed)
    assert files_in(tmp_path / "b") == files_in(tmp_path / "c")
    write(tmp_path / "d", samples, indices=[5, 6, 7], shuffle_indices=True, seed=1)
    assert sorted(read_all(tmp_path / "d")) == samples[5:8]


class Mapping(dict[str, list[int]]):
    """Like a Hugging Face dataset: columns inside, rows by index."""

    def __len__(self) -> int:
        return len(self["x"])

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) if isinstance(index, str) else {k: v[index] for k, v in self.items()}


def test_datasets_of_several_kinds(tmp_path: Path) -> None:
    array = np.arange(12).reshape(4, 3)
    for number, dataset in enumerate([array, list(array), tuple(array)]):
        write(tmp_path / str(number), dataset, num_workers=1)
        with FileReader(tmp_path / str(number)) as reader:
            schema = schema_of(reader)
            assert schema is not None
            assert np.array_equal(np.stack([schema.decode(record) for record in reader]), array)
    write(tmp_path / "mapping", Mapping(x=[1, 2, 3], y=[4, 5, 6]))
    with FileReader(tmp_path / "mapping") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.decode(reader.read_one(1)) == {"x": 2, "y": 5}


def test_torch_dataset(tmp_path: Path) -> None:
    pytest.importorskip("torch.utils.data")
    import torch

    data = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    write(tmp_path / "set", data, num_workers=2)
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None
        vector, label = schema.decode(reader.read_one(7))
        assert vector.tolist() == [14.0, 15.0] and label == 7


def test_dataset_without_length(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"list\(dataset\)"):
        write(tmp_path / "set", (i for i in range(3)))
    assert os.listdir(tmp_path) == []


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    """Are told of before any sample is asked for."""

    class Untouched(list[int]):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError(f"asked for {index}")

    with pytest.raises(OSError, match=r"/xxx.* could not be created") as caught:
        write(tmp_path / ("x" * 256), Untouched([1]), num_workers=0)
    assert (caught.value.errno, os.listdir(tmp_path)) == (errno.ENAMETOOLONG, [])
    with pytest.raises(ValueError, match=r"path is 'a\\x00b', expected a path without null characters"):
        DatasetWriter("a\0b")


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"is not empty, it holds notes\.txt"):
        DatasetWriter(tmp_path)
    with pytest.raises(FileExistsError, match="already exists and is not a directory"):
        DatasetWriter(tmp_path / "notes.txt")
    writer = DatasetWriter(tmp_path / "set")
    writer.from_indexed_dataset(grown(3))
    with pytest.raises(FileExistsError, match=r"PART_00000\.ffr, dataset\.json; delete it, or name another directory"):
        writer.from_indexed_dataset(grown(4))
    assert read_all(tmp_path / "set") == grown(3)


def test_a_target_that_comes_to_be_meanwhile_is_not_touched(tmp_path: Path) -> None:
    class Rival:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> bytes:
            (tmp_path / "set").mkdir(exist_ok=True)
            (tmp_path / "set" / "theirs").write_text("x")
            return b"x"

    with pytest.raises(FileExistsError, match="nothing was published"):
        write(tmp_path / "set", Rival())
    assert sorted(os.listdir(tmp_path)) == [".set.part", "set"] and os.listdir(tmp_path / "set") == ["theirs"]
    (tmp_path / "set" / "theirs").unlink()
    assert write(tmp_path / "set", [b"x"] * 10).kept_shards == 1
    assert os.listdir(tmp_path) == ["set"] and read_all(tmp_path / "set") == [b"x"] * 10


def test_target_of_several_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir(mode=0o700)
    Path("real").mkdir()
    Path("link").symlink_to("real")
    for target in ("new", "deep/er/new", "slash/", "empty", "link", Path("path"), str(tmp_path / "absolute")):
        write(target, grown(3))  # type: ignore[arg-type]
        assert read_all(Path(target)) == grown(3)
    assert Path("empty").stat().st_mode & 0o777 == 0o700
    assert Path("link").is_symlink()
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize(
    "options, error",
    [
        ({"num_workers": -2}, ValueError),
        ({"num_workers": 1.5}, TypeError),
        ({"resume": "no"}, TypeError),
        ({"progress": "no"}, TypeError),
        ({"shard_size": 0}, ValueError),
        ({"samples_per_shard": 0}, ValueError),
        ({"num_shards": -1}, ValueError),
        ({"num_shards": 2, "samples_per_shard": 2}, ValueError),
        ({"fields": {"x": IntField()}, "serializer": pickle.dumps}, ValueError),
        ({"start_method": "thread"}, ValueError),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        DatasetWriter(tmp_path / "set", **options)


def test_bad_arguments_of_the_call(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chunksize is 0, expected > 0"):
        write(tmp_path / "set", grown(3), chunksize=0)
    with pytest.raises(ValueError, match="seed is -1"):
        write(tmp_path / "set", grown(3), shuffle_indices=True, seed=-1)
    with pytest.raises(TypeError, match=r"shuffle_indices is str .*, expected True or False"):
        write(tmp_path / "set", grown(3), shuffle_indices="no")
    with pytest.raises(TypeError, match=r"fingerprint is int .*, expected str or None"):
        DatasetWriter(tmp_path / "set").from_indexed_dataset(grown(3), fingerprint=5)  # type: ignore[arg-type]
    for wrong in ([1.0], np.array([[1, 2]]), [[1], [2]], ["1"]):
        with pytest.raises(TypeError, match=r"indices is .*, expected"):
            write(tmp_path / "set", grown(3), indices=wrong)
    with pytest.raises(TypeError, match=r"path is .*, expected str"):
        DatasetWriter(3)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_what_does_not_pickle_is_named(tmp_path: Path, method: str) -> None:
    bad = [lambda: None]
    with pytest.raises(TypeError, match=rf"dataset \(list\) cannot be pickled, which start_method='{method}' needs"):
        write(tmp_path / "set", bad, serializer=repr, start_method=method, num_workers=1)
    with pytest.raises(TypeError, match=r"serializer \(function\) cannot be pickled"):
        write(tmp_path / "set", [1], serializer=lambda sample: b"", start_method=method, num_workers=1)
    assert os.listdir(tmp_path) == []


def test_summary(tmp_path: Path) -> None:
    summary = write(tmp_path / "set", [bytes(1000)] * 50)
    assert summary.seconds > 0 and summary.bytes == 50_000
    assert summary.mb_per_second == pytest.approx(0.05 / summary.seconds)
    assert "50 samples, 50 kB in 1 shard," in str(summary)
    with pytest.raises(FrozenInstanceError):
        summary.samples = 3  # type: ignore[misc]


def test_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    write(tmp_path / "quiet", grown(30))
    assert capfd.readouterr().err == ""
    write(tmp_path / "shown", grown(30), progress=True)
    shown = capfd.readouterr().err
    assert "30.0/30.0" in shown and "samples/s" in shown and "MB/s" in shown
    assert set(threading.enumerate()) <= before


def test_writing_again_makes_the_same_fingerprint(tmp_path: Path) -> None:
    write(tmp_path / "a", Pictures(20))
    write(tmp_path / "b", Pictures(20))
    write(tmp_path / "c", Pictures(21))
    prints = [loaded.fingerprint for name in "abc" if (loaded := manifest.load(str(tmp_path / name)))]
    assert prints[0] == prints[1] != prints[2]


def test_dataset_is_first_opened_in_a_worker(tmp_path: Path) -> None:
    """A handle opened here, to look at samples, could be broken in the workers forked afterwards."""
    here = os.getpid()

    class OpenedLazily(Pictures):
        def __getitem__(self, index: int) -> dict[str, Any]:
            assert os.getpid() != here
            return super().__getitem__(index)

    write(tmp_path / "set", OpenedLazily(20), num_workers=1)
    assert len(read_all(tmp_path / "set")) == 20


def test_in_a_thread(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            write(tmp_path / "set", grown(300), num_workers=2)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert errors == [] and read_all(tmp_path / "set") == grown(300)


def test_two_at_once(tmp_path: Path) -> None:
    threads = [threading.Thread(target=write, args=(tmp_path / str(n), grown(300))) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert files_in(tmp_path / "0") == files_in(tmp_path / "1")


def write_in_daemon(path: Path) -> None:
    write(path, grown(30))


def test_in_a_daemonic_process_there_are_no_workers(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=write_in_daemon, args=(tmp_path / "set",), daemon=True)
    process.start()
    process.join(30)
    assert process.exitcode == 0 and read_all(tmp_path / "set") == grown(30)


def write_with_two_workers(path: Path) -> None:
    try:
        DatasetWriter(path, num_workers=2).from_indexed_dataset(grown(30))
    except ValueError as error:
        sys.exit(0 if "daemonic" in str(error) and not path.exists() else 3)
    sys.exit(4)


def test_workers_asked_for_in_a_daemonic_process_are_refused(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=write_with_two_workers, args=(tmp_path / "set",), daemon=True)
    process.start()
    process.join(30)
    assert process.exitcode == 0


class Parental:
    """A dataset whose samples come from a process of its own."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> bytes:
        ours, theirs = multiprocessing.get_context("fork").Pipe()
        process = multiprocessing.get_context("fork").Process(target=theirs.send, args=(bytes([index]),))
        process.start()
        process.join(10)
        return ours.recv()


def test_a_dataset_may_have_processes_of_its_own(tmp_path: Path) -> None:
    DatasetWriter(tmp_path / "set", num_workers=2).from_indexed_dataset(Parental())
    assert read_all(tmp_path / "set") == [bytes([i]) for i in range(4)]


def test_importing_needs_no_torch() -> None:
    code = "import sys, ffrecord.dataset_writer, ffrecord.dataset_writer.dump; sys.exit('torch' in sys.modules)"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def test_misspelt_arguments(tmp_path: Path) -> None:
    for word, right in (("num_worker", "do you mean num_workers?"), ("workers", "take num_workers")):
        with pytest.raises(TypeError, match=rf"^DatasetWriter has no argument '{word}': {re.escape(right)}$"):
            DatasetWriter(tmp_path / "a", **{word: 2})  # type: ignore[arg-type]

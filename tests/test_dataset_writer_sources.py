"""Iterables, lists of lines and tar files: the bytes that a dataset of the same samples gives, and every failure."""

import copy
import errno
import io
import itertools
import multiprocessing
import os
import pickle
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_dataset_writer_failures import descriptors, left_behind, read_all
from test_dump import files_in, grown

from ffrecord import FileReader, manifest
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.errors import FormatError, WorkerError
from ffrecord.fields import schema_of
from ffrecord.sharding import relocation
from ffrecord.sharding.sources import expand, shard_names
from ffrecord.sharding.spool import Spool
from ffrecord.sharding.transport import PATIENCE, Slots, ToWorkers

METHODS = ["fork", "spawn", "forkserver"]
CUTS: list[dict[str, int]] = [{}, {"samples_per_shard": 7}, {"shard_size": 900}]


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    # Else the first use of spawn or forkserver starts them, and they stay.
    forkserver.ensure_running()
    resource_tracker.ensure_running()
    before = descriptors()
    yield
    assert descriptors() == before
    assert multiprocessing.active_children() == []


class Samples:
    """Plain samples by index, by line and by shard; importable, so that spawned workers can have it."""

    def __init__(self, sizes: list[int], shards: list[int] | None = None) -> None:
        self.samples = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
        self.bounds = [0, *(shards or []), len(sizes)]

    @property
    def lines(self) -> list[str]:
        return [f"{i}\n" for i in range(len(self.samples))]

    @property
    def shards(self) -> list[str]:
        return [str(number) for number in range(len(self.bounds) - 1)]

    def of_line(self, line: str) -> bytes:
        return self.samples[int(line)]

    def of_shard(self, shard: str) -> Iterator[bytes]:
        yield from self.samples[self.bounds[int(shard)] : self.bounds[int(shard) + 1]]


def write_from(source: str, path: Path, given: Samples, chunksize: int = 100, **options: Any) -> Summary:
    writer = DatasetWriter(path, **options)
    if source == "dataset":
        return writer.from_indexed_dataset(given.samples, chunksize=chunksize)
    if source == "iterable":
        return writer.from_iterable(iter(given.samples), chunksize=chunksize)
    if source == "length":
        return writer.from_iterable(iter(given.samples), len(given.samples), chunksize)
    if source == "lines":
        return writer.from_list(given.lines, given.of_line, chunksize)
    return writer.from_webdataset(given.shards, given.of_shard)


SOURCES = ["dataset", "iterable", "length", "lines", "shards"]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 60), max_size=120),
    split=st.lists(st.integers(0, 120), max_size=4).map(sorted),
    cut=st.one_of(
        st.just({}),
        st.builds(lambda n: {"samples_per_shard": n}, st.integers(1, 50)),
        st.builds(lambda n: {"shard_size": n}, st.integers(1, 900)),
    ),
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
    given = Samples(sizes, [min(bound, len(sizes)) for bound in split])
    write_from("dataset", directory / "one", given, num_workers=0, **cut)
    summary = write_from(source, directory / "two", given, chunksize, num_workers=workers, **cut)
    assert files_in(directory / "one") == files_in(directory / "two")
    assert (summary.samples, summary.bytes, summary.skipped) == (len(sizes), sum(sizes), 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", ["iterable", "lines", "shards"])
def test_any_start_method_gives_the_same_bytes(tmp_path: Path, source: str, method: str) -> None:
    given = Samples([i % 50 for i in range(200)], [70, 90])
    write_from("dataset", tmp_path / "one", given, num_workers=0, shard_size=900)
    write_from(source, tmp_path / "two", given, 9, num_workers=2, start_method=method, shard_size=900)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")


def typed(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {"image": np.full((4, 3), i, np.uint8), "label": i, "name": f"n{i}"}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("chunksize", [1, 40])
def test_typed_samples_of_a_generator(tmp_path: Path, workers: int, chunksize: int) -> None:
    write_from("dataset", tmp_path / "one", _holding(list(typed(100))), num_workers=0)
    summary = DatasetWriter(tmp_path / "two", num_workers=workers).from_iterable(typed(100), chunksize=chunksize)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    assert summary.samples == 100
    with FileReader(tmp_path / "two") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.decode(reader.read_one(77))["name"] == "n77"


def _holding(samples: list[Any]) -> Samples:
    given = Samples([])
    given.samples = samples
    return given


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", SOURCES[1:])
@pytest.mark.parametrize("options", [{}, {"serializer": pickle.dumps}], ids=str)
def test_no_samples(tmp_path: Path, source: str, workers: int, options: dict[str, Any]) -> None:
    write_from("dataset", tmp_path / "one", Samples([]), num_workers=0, **options)
    summary = write_from(source, tmp_path / "two", Samples([], [0, 0]), num_workers=workers, **options)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    assert (summary.samples, summary.shards) == (0, 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "length, words",
    [
        (10, "the iterable gives 7 samples, but length is 10"),
        (6, "the iterable gives at least 7 samples, but length is 6"),
        (0, "the iterable gives at least 1 samples, but length is 0"),
    ],
)
def test_length_that_is_not_true(tmp_path: Path, workers: int, length: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DatasetWriter(tmp_path / "set", num_workers=workers).from_iterable(iter(grown(7)), length)
    assert left_behind(tmp_path) == []


def test_a_number_of_shards_needs_a_length(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"num_shards=3 needs the number of samples: pass from_iterable a length"):
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
    with pytest.raises(TypeError, match=r"sample 20 \(function\) does not pickle.*num_workers=0"):
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
    with pytest.raises(TypeError, match="int is not iterable"):
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
    assert summary.samples == 20 and time.monotonic() - started < 20
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
    given = Samples([5, 6, 7], [1])
    for source in SOURCES:
        mode = "create" if source == "dataset" else "append"
        write_from(source, tmp_path / "set", given, num_workers=1, mode=mode)
    assert read_all(tmp_path / "set") == given.samples * len(SOURCES)


# Lists of lines


def test_list_in_a_file(tmp_path: Path) -> None:
    text = "\ufeffa.jpg 3\r\n\n\r\n b \u00e9.jpg 4\nlast 5"
    (tmp_path / "list.txt").write_bytes(text.encode())
    lines = []
    DatasetWriter(tmp_path / "set", num_workers=0, serializer=str.encode).from_list(
        tmp_path / "list.txt", lambda line: lines.append(line) or line
    )
    assert lines == ["a.jpg 3", " b \u00e9.jpg 4", "last 5"]
    assert read_all(tmp_path / "set") == [line.encode() for line in lines]
    DatasetWriter(tmp_path / "other", num_workers=2, serializer=str.encode).from_list(str(tmp_path / "list.txt"), str)
    assert files_in(tmp_path / "other") == files_in(tmp_path / "set")
    with open(tmp_path / "list.txt", encoding="utf-8-sig") as file:
        DatasetWriter(tmp_path / "open", num_workers=2, serializer=str.encode).from_list(file, str)
    assert read_all(tmp_path / "open") == read_all(tmp_path / "set")


@pytest.mark.parametrize("workers", [0, 2])
def test_list_that_is_no_text(tmp_path: Path, workers: int) -> None:
    (tmp_path / "list.txt").write_bytes(b"one\ntwo\n\xff\n")
    writer = DatasetWriter(tmp_path / "set", num_workers=workers, serializer=str.encode)
    with pytest.raises(FormatError, match=r"list\.txt: line 3 is not UTF-8"):
        writer.from_list(tmp_path / "list.txt", str)
    with pytest.raises(TypeError, match="line 2 is tuple, expected str"):
        writer.from_list(["a", ("b", 1)], str)  # type: ignore[list-item]
    with pytest.raises(FileNotFoundError):
        writer.from_list(tmp_path / "none.txt", str)
    with pytest.raises(TypeError, match="function must be callable, not str"):
        writer.from_list(["a"], "b")  # type: ignore[arg-type]
    assert left_behind(tmp_path) == ["list.txt"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_line_is_named_by_its_number(tmp_path: Path, workers: int) -> None:
    lines = [str(number) for number in range(60)]
    lines[10:10] = ["", "\n"]
    lines[41] = "x"
    with pytest.raises(WorkerError, match="failed at line 42: ValueError: invalid literal") as caught:
        DatasetWriter(tmp_path / "set", num_workers=workers).from_list(lines, int, chunksize=7)
    assert caught.value.index == 42 and isinstance(caught.value.__cause__, ValueError)
    assert left_behind(tmp_path) == []


def read_picture(line: str) -> dict[str, Any]:
    path, label = line.rsplit(" ", 1)
    return {"image": Path(path).read_bytes(), "label": int(label)}


def test_list_of_jpeg_files(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    fields = pytest.importorskip("ffrecord.fields")
    lines, pictures = [], []
    for number in range(12):
        picture = image.effect_noise((40 + number, 30), 50).convert("RGB")
        path = tmp_path / f"picture {number}.jpg"
        picture.save(path, quality=90)
        lines.append(f"{path} {number % 3}\n")
        pictures.append(path.read_bytes())
    (tmp_path / "list.txt").write_text("".join(lines))
    columns = {"image": fields.JPEGField(), "label": fields.IntField()}
    writer = DatasetWriter(tmp_path / "set", columns, num_workers=2)
    assert writer.from_list(tmp_path / "list.txt", read_picture, chunksize=2).samples == 12
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None
        as_bytes = schema.replace({"image": fields.JPEGField(as_bytes=True)})
        samples = [as_bytes.decode(record) for record in reader]
    assert [bytes(sample["image"]) for sample in samples] == pictures  # to the byte, not encoded again
    assert [sample["label"] for sample in samples] == [number % 3 for number in range(12)]


# Tar files


def make_tar(path: Path, keys: list[str]) -> None:
    with tarfile.open(path, "w") as tar:
        for key in keys:
            for extension, data in (("txt", f"text of {key}".encode()), ("cls", str(len(key)).encode())):
                member = tarfile.TarInfo(f"{key}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def grouped(path: str) -> Iterator[dict[str, Any]]:
    """Files of one name before the first dot, which are neighbours, make a sample."""
    with tarfile.open(path) as tar:
        files = ((*member.name.split(".", 1), tar.extractfile(member).read()) for member in tar)  # type: ignore[union-attr]
        for key, group in itertools.groupby(files, lambda file: file[0]):
            sample = {extension: data for _, extension, data in group}
            yield {"key": key, "text": sample["txt"].decode(), "label": int(sample["cls"])}


@pytest.fixture
def tars(tmp_path: Path) -> tuple[str, list[str]]:
    """(the pattern of some tar files, all keys in them)."""
    directory = tmp_path / "tars"
    directory.mkdir()
    names = [[f"{shard}-{number}" for number in range(count)] for shard, count in enumerate([30, 0, 1, 57, 12])]
    for number, keys in enumerate(names):
        make_tar(directory / f"train-{number:03d}.tar", keys)
    return str(directory / "train-{000..004}.tar"), [key for keys in names for key in keys]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_tar_files(tmp_path: Path, tars: tuple[str, list[str]], workers: int) -> None:
    pattern, keys = tars
    summary = DatasetWriter(tmp_path / "set", num_workers=workers, samples_per_shard=9).from_webdataset(
        pattern, grouped
    )
    assert (summary.samples, summary.shards) == (100, 12)
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.columns == ("key", "text", "label")
        samples = [schema.decode(record) for record in reader]
    assert samples == [{"key": key, "text": f"text of {key}", "label": len(key)} for key in keys]


def of_webdataset(path: str) -> Any:
    import webdataset  # type: ignore[import-not-found,import-untyped,unused-ignore]

    pipeline = webdataset.WebDataset(path, shardshuffle=False).decode()
    return ({"key": sample["__key__"], "text": sample["txt"], "label": sample["cls"]} for sample in pipeline)


@pytest.mark.filterwarnings("ignore")  # theirs
def test_tar_files_by_the_package_webdataset(tmp_path: Path, tars: tuple[str, list[str]]) -> None:
    pytest.importorskip("webdataset")
    shards = [name for name in shard_names(tars[0]) if "001" not in name]  # it does not like empty ones
    DatasetWriter(tmp_path / "one", num_workers=2).from_webdataset(shards, of_webdataset)
    DatasetWriter(tmp_path / "two", num_workers=2).from_webdataset(shards, grouped)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")


def test_each_shard_is_read_once(tmp_path: Path) -> None:
    given = Samples([3] * 60, [20, 20, 45])

    def pipeline(shard: str) -> Iterator[bytes]:
        with open(tmp_path / "log", "a") as log:
            log.write(shard + "\n")
        return given.of_shard(shard)

    for workers in (0, 1, 3):
        DatasetWriter(tmp_path / str(workers), num_workers=workers).from_webdataset(given.shards, pipeline)
        assert sorted((tmp_path / "log").read_text().split()) == ["0", "1", "2", "3"]
        (tmp_path / "log").unlink()


@pytest.mark.parametrize("slow", [0, 1, 3])
def test_shards_whose_turn_it_is_not_wait_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    monkeypatch.setattr("ffrecord.sharding.desk.HELD_BYTES", 10_000)
    monkeypatch.setattr("ffrecord.sharding.packing.PIECE_BYTES", 1000)
    put = Spool.put

    def counting(self: Any, data: memoryview) -> int:
        with open(tmp_path / "spooled", "ab") as log:
            log.write(b"x")
        return put(self, data)

    monkeypatch.setattr(Spool, "put", counting)
    given = Samples([100 + i % 700 for i in range(600)], [150, 300, 450])

    def pipeline(shard: str) -> Iterator[bytes]:
        time.sleep(0.3 if int(shard) == slow else 0)
        return given.of_shard(shard)

    write_from("dataset", tmp_path / "one", given, num_workers=0, shard_size=30_000)
    DatasetWriter(tmp_path / "two", num_workers=3, shard_size=30_000).from_webdataset(given.shards, pipeline)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    assert slow == 3 or (tmp_path / "spooled").stat().st_size > 10


def test_a_failing_pipeline_names_shard_and_sample(tmp_path: Path) -> None:
    def pipeline(shard: str) -> Iterator[bytes]:
        yield from grown(20)
        if shard == "c":
            raise KeyError("no such picture")

    for workers in (0, 2):
        writer = DatasetWriter(tmp_path / "set", num_workers=workers)
        with pytest.raises(WorkerError, match="failed at sample 20 of c: KeyError: 'no such picture'") as caught:
            writer.from_webdataset(["a", "b", "c", "d"], pipeline)
        assert caught.value.index == 20
    assert left_behind(tmp_path) == []


def test_a_missing_tar_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"sample 0 of .*none\.tar: FileNotFoundError"):
        DatasetWriter(tmp_path / "set", num_workers=1).from_webdataset([tmp_path / "none.tar"], grouped)


def test_patterns() -> None:
    assert list(expand("train-{008..011}.tar")) == [f"train-{n:03d}.tar" for n in (8, 9, 10, 11)]
    assert list(expand("{a,b}/{0..1}")) == ["a/0", "a/1", "b/0", "b/1"]
    assert list(expand("{8..11}")) == ["8", "9", "10", "11"]
    assert list(expand("plain{}.tar")) == ["plain{}.tar"]
    assert list(expand("x{1,}")) == ["x1", "x"]
    with pytest.raises(ValueError, match=r"3 \.\. 1, expected the smaller number first"):
        list(expand("{3..1}"))
    assert shard_names([Path("a"), "b{0..1}"]) == ["a", "b{0..1}"]
    with pytest.raises(TypeError, match=r"shards\[1\] must be str or os\.PathLike, not int"):
        shard_names(["a", 3])
    with pytest.raises(TypeError, match="list of paths or a pattern, not int"):
        shard_names(3)


# Workers that die


def killed(sample: Any) -> bytes:
    if sample == b"137":
        os.kill(os.getpid(), signal.SIGKILL)
    return bytes(sample)


def exits(sample: Any) -> bytes:
    if sample == b"137":
        os._exit(3)
    return bytes(sample)


def of_memory(sample: Any) -> bytes:
    if sample == b"137":
        raise MemoryError
    return bytes(sample)


NUMBERS = [str(i).encode() for i in range(300)]


@pytest.mark.parametrize(
    "act, words", [(killed, "was ended by SIGKILL at"), (exits, "exited with code 3 at"), (of_memory, "MemoryError")]
)
@pytest.mark.parametrize(
    "source, where, on_error",
    [("iterable", "sample 137", "skip"), ("lines", "line 138", "raise"), ("shards", "sample 37 of 1", "skip")],
)
def test_workers_that_die(
    tmp_path: Path, act: Callable[[Any], bytes], words: str, source: str, where: str, on_error: str
) -> None:
    given = _holding(NUMBERS)
    given.bounds = [0, 100, 200, 300]
    started = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        write_from(source, tmp_path / "set", given, 10, num_workers=2, serializer=act, on_error=on_error)
    assert words in str(caught.value) and where in str(caught.value)
    assert time.monotonic() - started < 2
    assert left_behind(tmp_path) == []


class KilledOnce:
    """A serializer that kills its process at one sample, when the parent is busy; the time is in a file then."""

    def __init__(self, busy: Path) -> None:
        self.busy = busy

    def __call__(self, sample: bytes) -> bytes:
        if sample == b"137":
            while not self.busy.exists():
                time.sleep(0.01)
            time.sleep(0.1)
            self.busy.write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


def numbers_sent() -> Iterator[bytes]:
    """All of them, and one that comes late, with which all before are sent to the workers."""
    yield from NUMBERS
    time.sleep(1.5 * PATIENCE)
    yield b"late"


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_death_while_the_iterable_takes_its_time(tmp_path: Path, method: str) -> None:
    def samples() -> Iterator[bytes]:
        yield from numbers_sent()
        (tmp_path / "busy").touch()
        time.sleep(20)
        yield b"too late"

    before = signal.getsignal(signal.SIGURG)
    serializer = KilledOnce(tmp_path / "busy")
    writer = DatasetWriter(tmp_path / "set", num_workers=2, serializer=serializer, start_method=method)
    with pytest.raises(WorkerError, match="was ended by SIGKILL at sample 137"):
        writer.from_iterable(samples(), chunksize=10)
    assert time.monotonic() - float((tmp_path / "busy").read_text()) < 1
    assert signal.getsignal(signal.SIGURG) is before
    assert left_behind(tmp_path) == ["busy"]


def test_an_iterable_that_swallows_the_alarm_ends_the_write_all_the_same(tmp_path: Path) -> None:
    def samples() -> Iterator[bytes]:
        yield from numbers_sent()
        (tmp_path / "busy").touch()
        try:
            time.sleep(20)
        except BaseException:
            yield b"as if nothing had happened"

    serializer = KilledOnce(tmp_path / "busy")
    with pytest.raises(WorkerError, match="was ended by SIGKILL at sample 137"):
        DatasetWriter(tmp_path / "set", num_workers=2, serializer=serializer).from_iterable(samples(), chunksize=10)
    assert time.monotonic() - float((tmp_path / "busy").read_text()) < 1
    assert left_behind(tmp_path) == ["busy"]


# Shards whose tables have another size than was foreseen


@pytest.mark.parametrize("size", [0, 1, 1000, 1024])
@pytest.mark.parametrize("start, target", [(100, 40), (40, 100), (0, 3000), (3000, 0), (7, 7)])
def test_relocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, start: int, target: int) -> None:
    monkeypatch.setattr(relocation, "STEP", 256)
    data = np.random.default_rng(0).bytes(size)
    path = str(tmp_path / "a.ffr")
    Path(path).write_bytes(bytes(start) + data)
    relocation.move(path, path, start, target)
    assert Path(path).read_bytes() == bytes(target) + data


def test_relocation_that_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"final/a\.ffr: its samples could not be moved"):
        relocation.move(str(tmp_path / "a.ffr"), "final/a.ffr", 10, 20)


def test_a_wrong_guess_of_the_last_shard_is_mended(tmp_path: Path) -> None:
    """Samples grow, so those that seemed to fit into the last shard do not."""
    samples = [b"x"] * 100 + [b"y" * 80] * 100
    for number, source in enumerate(["dataset", "iterable"]):
        write_from(source, tmp_path / str(number), _holding(samples), num_workers=1, shard_size=1000)
    assert files_in(tmp_path / "0") == files_in(tmp_path / "1")
    assert read_all(tmp_path / "0") == samples
    assert manifest.load(str(tmp_path / "0")) is not None


def test_progress_of_an_unknown_total(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    DatasetWriter(tmp_path / "quiet").from_iterable(grown(30))
    assert capfd.readouterr().err == ""
    DatasetWriter(tmp_path / "shown", progress=True).from_iterable(grown(30))
    shown = capfd.readouterr().err
    assert "30.0 samples" in shown and "samples/s" in shown and "MB/s" in shown


# The way of samples to a worker


@pytest.fixture
def carrier() -> Iterator[ToWorkers]:
    slots = Slots(2)
    yield ToWorkers(slots)
    slots.close()


def carried(carrier: ToWorkers, items: list[Any], most: int = 100) -> list[Any]:
    pairs, arrived = iter(list(enumerate(items))), []
    for task in itertools.count():
        packed = carrier.pack(task, task % 2, pairs, most)
        if packed is None:
            return arrived
        indices = np.frombuffer(packed.indices, np.int64).tolist()
        assert indices == list(range(len(arrived), len(arrived) + len(indices))) and 1 <= len(indices) <= most
        arrived += copy.deepcopy(list(carrier.unpack(packed)))
    raise AssertionError


ARRAYS = [
    *(np.zeros(3, kind) for kind in np.typecodes["All"]),
    *(np.array([1, 2, 3], kind) for kind in (">i4", ">f8", "<c16", "M8[s]", "m8[ms]", "U3", "S2", object)),
    np.zeros((0, 3), np.int8),
    np.array(5.0),
    np.arange(24).reshape(2, 3, 4),
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(24)[::-2],
    np.zeros(3, [("a", "<i4"), ("b", ">f8")]),
    np.ma.masked_array([1, 2], [True, False]),
    np.full((300, 1000), 7.5),
]


def test_arrays_of_every_kind_arrive(carrier: ToWorkers) -> None:
    for array, other in zip(ARRAYS, carried(carrier, ARRAYS), strict=True):
        assert type(other) is type(array) and other.dtype == array.dtype and other.shape == array.shape
        assert other.flags.writeable
        assert np.asarray(other).tobytes() == np.asarray(array).tobytes() or array.dtype == object
        assert np.ma.getmaskarray(other).tolist() == np.ma.getmaskarray(array).tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 1000, 3 << 20, (4 << 20) - 20, 5 << 20]), max_size=12), most=st.integers(1, 5)
)
def test_items_of_any_size_arrive(carrier: ToWorkers, sizes: list[int], most: int) -> None:
    items = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert carried(carrier, items, most) == items


class Unlucky:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOSPC, "no room")], ids=["memory", "disk"])
def test_a_machine_at_its_limits_is_no_fault_of_the_sample(carrier: ToWorkers, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        carrier.pack(0, 0, iter([(0, Unlucky(error))]), 1)
    assert caught.value is error


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
    with pytest.raises(OSError, match="bytes of shared memory: No space left") as caught:
        DatasetWriter(tmp_path / "set", num_workers=2).from_iterable(grown(5))
    assert caught.value.errno == errno.ENOSPC
    assert left_behind(tmp_path) == []


# Records that wait on the disk


@pytest.mark.parametrize("copies", [True, False], ids=["in the kernel", "by hand"])
@pytest.mark.parametrize("unnamed", [True, False])
def test_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, unnamed: bool) -> None:
    monkeypatch.setattr("ffrecord.sharding.spool.STEP", 1000)
    if not copies:
        monkeypatch.setattr(os, "copy_file_range", refusing(errno.EXDEV))
    if not unnamed:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # what kernels without it make of the flag
    data = np.random.default_rng(0).bytes(5000)
    spool = Spool(str(tmp_path), "set")
    assert os.listdir(tmp_path) == []
    assert [spool.put(memoryview(part)) for part in (data[:3000], data[3000:])] == [0, 3000]
    with open(tmp_path / "target", "wb") as target:
        spool.copy(3000, 2000, target.fileno(), 3000)
        spool.forget(2000)
        spool.copy(0, 3000, target.fileno(), 0)
        spool.forget(3000)
    assert (tmp_path / "target").read_bytes() == data
    assert spool.put(memoryview(b"again")) == 0
    spool.close()
    spool.close()


def refusing(code: int) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return refuse


def test_spool_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(str(tmp_path), "set")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refusing(errno.ENOSPC))
        with pytest.raises(OSError, match="set: 3 bytes that wait for their place could not be put aside") as caught:
            spool.put(memoryview(b"abc"))
    assert caught.value.errno == errno.ENOSPC
    with open(tmp_path / "target", "wb") as target, pytest.raises(OSError, match="the spool ends at 0, 5 bytes early"):
        spool.copy(0, 5, target.fileno(), 0)
    spool.close()
    with pytest.raises(FileNotFoundError, match="set: a spool could not be made"):
        Spool(str(tmp_path / "none"), "set")

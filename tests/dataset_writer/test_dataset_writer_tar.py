"""Tar files and other shards of which a pipeline makes samples."""

import io
import itertools
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from written_datasets import Samples, files_in, grown, left_behind, write_from

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.dataset_writer.encoder import SpillFile
from ffrecord.dataset_writer.sample_sources import shard_names
from ffrecord.errors import WorkerError
from ffrecord.fields import schema_of

pytestmark = pytest.mark.usefixtures("nothing_leaks")


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


def test_a_pipeline_that_gives_nothing(
    tmp_path: Path, tars: tuple[str, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one that looks for other names than the archives have."""
    writer = DatasetWriter(tmp_path / "set", num_workers=0, serializer=bytes)
    assert writer.from_webdataset(tars[0], lambda path: iter(())).samples == 0
    assert "set is empty: the pipeline gave no samples for 5 shards" in caplog.text


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


@pytest.mark.parametrize("workers", [0, 2])
def test_names_that_are_not_utf_8(tmp_path: Path, workers: int) -> None:
    name = os.fsdecode(b"caf\xe9.tar")
    make_tar(tmp_path / name, ["a", "b"])
    writer = DatasetWriter(tmp_path / "set", num_workers=workers)
    assert writer.from_webdataset([tmp_path / name], grouped).samples == 2


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
    given = Samples.of_sizes([3] * 60, [20, 20, 45])

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
    monkeypatch.setattr("ffrecord.dataset_writer.worker.HELD_BYTES", 10_000)
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.CHUNK_BYTES", 1000)
    put = SpillFile.put

    def counting(self: Any, data: memoryview) -> int:
        with open(tmp_path / "spooled", "ab") as log:
            log.write(b"x")
        return put(self, data)

    monkeypatch.setattr(SpillFile, "put", counting)
    given = Samples.of_sizes([100 + i % 700 for i in range(600)], [150, 300, 450])

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
    assert shard_names("train-{008..011}.tar") == [f"train-{n:03d}.tar" for n in (8, 9, 10, 11)]
    with pytest.raises(ValueError, match=r"a\{0\.\.99999999999\}: its braces stand for .* at most 1000000"):
        shard_names("a{0..99999999999}")
    assert shard_names("{a,b}/{0..1}") == ["a/0", "a/1", "b/0", "b/1"]
    assert shard_names("{8..11}") == ["8", "9", "10", "11"]
    assert shard_names("plain{}.tar") == ["plain{}.tar"]
    assert shard_names("x{1,}") == ["x1", "x"]
    assert shard_names("{3..1}") == ["3", "2", "1"]
    assert shard_names([Path("a"), "b{0..1}"]) == ["a", "b{0..1}"]
    with pytest.raises(TypeError, match=r"shards\[1\] is int .*, expected str or os\.PathLike"):
        shard_names(["a", 3])
    with pytest.raises(TypeError, match=r"shards is int \d+, expected a list of paths or a pattern"):
        shard_names(3)

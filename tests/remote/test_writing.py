"""A dataset written to object storage is that of a local writer, byte for byte; its manifest comes last."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty import Faulty
from servers import Storage, faulty
from written import Bucket, sent
from written_datasets import SOURCES, Samples, files_in, write_from

from ffrecord import DatasetWriter, FileReader, MismatchError
from ffrecord.dataset_writer import Summary
from ffrecord.dataset_writer.remote.staging import staging_path
from ffrecord.errors import WorkerError
from ffrecord.format import manifest

pytest.importorskip("obstore", reason="obstore is not installed")

MARKER = ".dataset.part"
GIVEN = Samples.of_sizes([(i * 7919) % 5000 for i in range(300)], [120, 121])
MORE = Samples.of_sizes([(i * 104729) % 3000 for i in range(70)])
Place = Callable[..., Bucket]


@pytest.fixture
def proxy(storage: Storage) -> Iterator[Faulty]:
    with faulty(storage.endpoint, kinds=()) as running:
        yield running


@pytest.fixture
def bucket(storage: Storage, request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    return Bucket(storage, f"of {abs(hash(request.node.name))}/set", tmp_path / "staging")


@pytest.fixture
def watched(storage: Storage, proxy: Faulty, request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    return Bucket(storage, f"of {abs(hash(request.node.name))}/set", tmp_path / "staging", proxy)


def write(bucket: Bucket, samples: list[Any], chunksize: int = 100, **options: Any) -> Summary:
    options = {"num_workers": 0, "samples_per_shard": 40, **bucket.options, **options}
    return DatasetWriter(bucket.url, **options).from_indexed_dataset(samples, chunksize=chunksize)


def locally(path: Path, samples: list[Any], **options: Any) -> dict[str, bytes]:
    DatasetWriter(path, **{"num_workers": 0, "samples_per_shard": 40, **options}).from_indexed_dataset(samples)
    return files_in(path)


LATER = {("iterable", 0), ("length", 0), ("length", 2), ("lines", 0), ("shards", 0), ("dataset", 0)}  # behind `long`


@pytest.mark.parametrize(
    "source, workers",
    [
        pytest.param(*each, marks=[pytest.mark.long] if each in LATER else [])
        for each in itertools.product(SOURCES, (0, 2))
    ],
)
def test_the_bytes_are_those_of_a_local_write(source: str, workers: int, bucket: Bucket, tmp_path: Path) -> None:
    summary = write_from(source, bucket.url, GIVEN, samples_per_shard=40, num_workers=workers, **bucket.options)
    assert (summary.path, summary.samples, summary.shards) == (bucket.url, 300, 8)
    assert bucket.files() == locally(tmp_path / "set", GIVEN.samples)
    assert bucket.staged() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_records_of_one_size(workers: int, bucket: Bucket, tmp_path: Path) -> None:
    """Whose places come with the tasks; interrupted, and gone on with."""
    samples: list[Any] = [{"x": i, "y": i / 4} for i in range(300)]
    with pytest.raises(WorkerError, match="failed at sample 250"):
        write(bucket, [*samples[:250], None, *samples[251:]], chunksize=10, num_workers=workers)
    summary = write(bucket, samples, chunksize=7, num_workers=workers)
    assert (summary.samples, summary.shards) == (300, 8)
    assert summary.kept_shards > 0 or workers
    assert bucket.files() == locally(tmp_path / "set", samples)
    assert bucket.staged() == []


def test_large_shards_go_up_in_parts_with_checksums(watched: Bucket, proxy: Faulty, tmp_path: Path) -> None:
    samples = [os.urandom(1 << 20) for _ in range(11)]
    write(watched, samples, samples_per_shard=10)
    assert watched.files() == locally(tmp_path / "set", samples, samples_per_shard=10)
    puts = [pair for pair in zip(proxy.requests, proxy.headers, strict=True) if pair[0].startswith("PUT ")]
    parts = [line for line, _ in puts if "PART_00000.ffr?" in line]
    assert sorted(line.partition("partNumber=")[2][0] for line in parts) == ["1", "2"]
    assert len(puts) == 2 + len(parts) + 1
    assert all(headers["x-amz-checksum-sha256"] for _, headers in puts)


def test_shards_go_up_while_others_are_written(watched: Bucket, proxy: Faulty, tmp_path: Path) -> None:
    """The last samples are not there before the first shard is."""

    class Waiting(list[bytes]):
        def __getitem__(self, index: Any) -> Any:
            end = time.monotonic() + 20
            while index >= 200 and "PART_00000.ffr" not in sent(proxy):
                assert time.monotonic() < end, "no shard came"
                time.sleep(0.01)
            return super().__getitem__(index)

    write(watched, Waiting(GIVEN.samples), serializer=bytes)
    assert watched.files() == locally(tmp_path / "set", GIVEN.samples, serializer=bytes)


def test_the_marker_is_first_and_the_manifest_last(watched: Bucket, proxy: Faulty) -> None:
    """Though the store takes its time for each shard."""
    proxy.watch = lambda when, request: time.sleep(0.2 if when == "before" and request.endswith(".ffr") else 0)
    write(watched, GIVEN.samples)
    names = sent(proxy)
    assert names[0] == MARKER
    assert sorted(names[1:-1]) == [f"PART_{number:05d}.ffr" for number in range(8)]
    assert names[-1] == "dataset.json"
    verified = [line for line in proxy.requests if line.startswith("HEAD ")]
    assert len(verified) == 8
    published = [line for line in proxy.requests if line.startswith("PUT ") and line.endswith("/dataset.json")]
    assert max(map(proxy.requests.index, verified)) < proxy.requests.index(*published)


@pytest.mark.long
def test_what_is_on_the_disk_of_this_machine_is_bounded(watched: Bucket, proxy: Faulty) -> None:
    """However slow the store is."""
    most = [0]

    def look(when: str, request: str) -> None:
        if request.startswith("PUT ") and when == "before":
            time.sleep(0.02)
            most[0] = max(most[0], len([name for name in watched.staged() if name.endswith(".ffr")]))

    proxy.watch = look
    write(watched, GIVEN.samples, samples_per_shard=4)
    # Sent at once, waiting for that, kept, backlog, and those that one task of 100 samples fills.
    assert 0 < most[0] <= 4 + 2 + 1 + 3 + 25 + 1
    assert len(watched.files()) == 76


def test_typed_samples_and_their_columns(bucket: Bucket, tmp_path: Path) -> None:
    samples = [{"a": i, "b": str(i)} for i in range(100)]
    write(bucket, samples)
    assert bucket.files() == locally(tmp_path / "set", samples)
    summary = write(bucket, [{"a": 100, "b": "100"}] * 5, mode="append")
    assert (summary.samples, summary.shards) == (5, 1)
    local = locally(tmp_path / "set", [{"a": 100, "b": "100"}] * 5, mode="append")
    assert bucket.files() == local
    with FileReader(bucket.url, storage_options=bucket.options["storage_options"]) as reader:
        assert [sample["a"] for sample in reader.samples(range(105))] == [*range(100), *[100] * 5]
    with pytest.raises(WorkerError, match="failed at sample 0"):
        write(bucket, [{"a": "no number", "b": 1}], mode="append")
    assert bucket.files() == local


def test_appending_as_locally(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no dataset to append to: dataset\.json"):
        write(bucket, MORE.samples, mode="append")
    write(bucket, GIVEN.samples, serializer=bytes)
    locally(tmp_path / "set", GIVEN.samples, serializer=bytes)
    write(bucket, MORE.samples, mode="append", serializer=bytes)
    write(bucket, MORE.samples[:3], mode="append", serializer=bytes)
    locally(tmp_path / "set", MORE.samples, mode="append", serializer=bytes)
    assert bucket.files() == locally(tmp_path / "set", MORE.samples[:3], mode="append", serializer=bytes)
    with pytest.raises(MismatchError, match=r"serializer was .*bytes', is .*bytearray'"):
        write(bucket, MORE.samples, mode="append", serializer=bytearray)


def test_what_is_there_is_refused(bucket: Bucket) -> None:
    write(bucket, GIVEN.samples)
    before = bucket.files()
    with pytest.raises(FileExistsError, match=r"set is not empty, it holds PART_00000\.ffr, "):
        write(bucket, MORE.samples)
    assert bucket.files() == before


@pytest.mark.long
def test_what_somebody_else_has_there_is_refused_and_stays(bucket: Bucket) -> None:
    bucket.put("notes/read me", b"mine")
    with pytest.raises(RuntimeError, match="set is not empty, it holds notes/read me"):
        write(bucket, GIVEN.samples)
    assert bucket.files() == {"notes/read me": b"mine"}


class Failing(list[bytes]):
    """One sample cannot be had."""

    def __getitem__(self, index: Any) -> Any:
        if index == 250:
            raise OSError("a bad day")
        return super().__getitem__(index)


def interrupted(bucket: Bucket) -> None:
    """A write that finishes six shards, all of which go up."""
    with pytest.raises(WorkerError, match="failed at sample 250") as raised:
        write(bucket, Failing(GIVEN.samples), chunksize=10)
    assert "shards stay in" in str(getattr(raised.value, "__notes__", "shards stay in"))


def test_the_same_call_sends_only_what_is_missing(watched: Bucket, proxy: Faulty, tmp_path: Path) -> None:
    interrupted(watched)
    kept = sorted(name for name in watched.files() if name.endswith(".ffr"))
    assert MARKER in watched.files()
    assert "dataset.json" not in watched.files()
    assert len(kept) >= 4
    with pytest.raises(FileNotFoundError, match="a write of it was interrupted, or is going on"):
        FileReader(watched.url, storage_options=watched.options["storage_options"])
    with pytest.raises(MismatchError, match="samples_per_shard was 40, is 30"):
        write(watched, GIVEN.samples, samples_per_shard=30)
    proxy.requests.clear()
    summary = write(watched, GIVEN.samples)
    assert summary.kept_shards == 6
    assert sorted(sent(proxy)[1:-1] if sent(proxy)[0] == MARKER else sent(proxy)[:-1]) == sorted(
        {f"PART_{number:05d}.ffr" for number in range(8)} - set(kept)
    )
    assert watched.files() == locally(tmp_path / "set", GIVEN.samples)
    assert watched.staged() == []


@pytest.mark.parametrize(
    "harm", ["same size", *(pytest.param(each, marks=pytest.mark.long) for each in ("replaced", "gone"))]
)
def test_what_is_not_as_it_was_sent_is_sent_again(harm: str, watched: Bucket, proxy: Faulty, tmp_path: Path) -> None:
    interrupted(watched)
    found = watched.files()["PART_00001.ffr"]
    if harm == "gone":
        watched.delete("PART_00001.ffr")
    else:
        watched.put("PART_00001.ffr", found[::-1] if harm == "same size" else b"other")
    if harm == "replaced":
        with pytest.raises(FileExistsError, match=r"it holds PART_00001\.ffr"):
            write(watched, GIVEN.samples)
        watched.delete("PART_00001.ffr")
    summary = write(watched, GIVEN.samples)
    assert summary.kept_shards == 1
    assert watched.files() == locally(tmp_path / "set", GIVEN.samples)


def test_resume_false_removes_what_is_there(bucket: Bucket, tmp_path: Path) -> None:
    interrupted(bucket)
    summary = write(bucket, MORE.samples, resume=False)
    assert summary.kept_shards == 0
    assert bucket.files() == locally(tmp_path / "set", MORE.samples)


def test_a_write_that_cannot_be_gone_on_with_leaves_nothing(bucket: Bucket) -> None:
    def gives() -> Iterator[bytes]:
        yield from GIVEN.samples
        raise KeyError("enough")

    writer = DatasetWriter(bucket.url, num_workers=0, samples_per_shard=10, **bucket.options)
    with pytest.raises(KeyError, match="enough"):
        writer.from_iterable(gives(), chunksize=10)
    assert bucket.files() == {}
    assert bucket.staged() == []


def test_an_interrupted_append_leaves_what_there_was(bucket: Bucket, tmp_path: Path) -> None:
    write(bucket, MORE.samples)
    before = bucket.files()
    with pytest.raises(WorkerError):
        write(bucket, Failing(GIVEN.samples), mode="append", chunksize=10)
    found = bucket.files()
    assert {name: found[name] for name in before} == before
    assert write(bucket, GIVEN.samples, mode="append").kept_shards == 6
    locally(tmp_path / "set", MORE.samples)
    assert bucket.files() == locally(tmp_path / "set", GIVEN.samples, mode="append")


@pytest.mark.long
def test_a_shuffle_goes_on_with_its_seed(bucket: Bucket) -> None:
    def shuffled(samples: list[bytes]) -> Summary:
        writer = DatasetWriter(bucket.url, num_workers=0, samples_per_shard=40, **bucket.options)
        return writer.from_indexed_dataset(samples, chunksize=10, shuffle_indices=True)

    ledgers: list[Path] = []
    while not ledgers:  # the sample that fails may be drawn into the first shard, of which nothing stays
        with pytest.raises(WorkerError):
            shuffled(Failing(GIVEN.samples))
        ledgers = list(bucket.staging.rglob("ledger"))
    seed = json.loads(ledgers[0].read_bytes().splitlines()[0])["request"]["seed"]
    assert shuffled(GIVEN.samples).seed == seed
    listing = manifest.parse(bucket.files()["dataset.json"], "here")
    assert listing is not None
    assert listing.seed == seed


@pytest.mark.long
def test_samples_left_out(bucket: Bucket, tmp_path: Path) -> None:
    summary = write(bucket, Failing(GIVEN.samples), on_error="skip")
    assert (summary.samples, summary.skipped) == (299, 1)
    assert bucket.files() == locally(tmp_path / "set", GIVEN.samples[:250] + GIVEN.samples[251:])


@pytest.mark.long
def test_no_samples(bucket: Bucket, tmp_path: Path) -> None:
    write(bucket, [])
    assert bucket.files() == locally(tmp_path / "set", [])


@pytest.mark.parametrize("url, said", [
    ("http://host/set", "datasets cannot be written by HTTP"),
    ("https://user:testing-secret@host/set?X-Signature=testing-secret", "datasets cannot be written by HTTP"),
    ("s3://bucket", "it names only a bucket; add a name"),
    ("s3://bucket/", "it names only a bucket; add a name"),
])  # fmt: skip
def test_where_nothing_can_be_written(url: str, said: str, storage: Storage) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        DatasetWriter(url, storage_options=storage.storage_options)
    assert "testing-secret" not in str(raised.value)


def test_staging_is_for_urls(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"staging=.* is only for URLs"):
        DatasetWriter(tmp_path / "set", staging=tmp_path)
    with pytest.raises(TypeError, match=r"staging is .*, expected str"):
        DatasetWriter("s3://bucket/set", staging=3)  # type: ignore[arg-type]


def test_places_of_the_same_path_have_staging_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one would go on with what the other has begun."""
    first = staging_path("abfss://one@account.dfs.core.windows.net/set", None, tmp_path)
    assert first != staging_path("abfss://two@account.dfs.core.windows.net/set", None, tmp_path)
    assert first == staging_path("abfss://one@account.dfs.core.windows.net/set", {"account_key": "other"}, tmp_path)
    google = staging_path("gs://bucket/set", None, tmp_path)
    assert google != staging_path("gs://bucket/set", {"base_url": "http://127.0.0.1:1"}, tmp_path)
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:1")
    assert google != staging_path("gs://bucket/set", None, tmp_path)


def test_options_of_readers_are_no_options_of_the_store(bucket: Bucket) -> None:
    """One dict does for both."""
    options = {**bucket.options["storage_options"], "tables_memory": 1 << 20}
    writer = DatasetWriter(bucket.url, num_workers=0, **{**bucket.options, "storage_options": options})
    writer.from_indexed_dataset([b"a"])
    with FileReader(bucket.url, storage_options=options) as reader:
        assert bytes(reader[0]) == b"a"


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert DatasetWriter(f"file://{tmp_path}/a%20set", num_workers=0).from_indexed_dataset([b"a"]).samples == 1
    assert sorted(os.listdir(tmp_path / "a set")) == ["PART_00000.ffr", "dataset.json"]


def test_by_any_file_system_of_fsspec(tmp_path: Path) -> None:
    """One that has no etags and compares nothing."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    options: dict[str, Any] = {"num_workers": 0, "samples_per_shard": 40, "staging": tmp_path / "staging"}
    DatasetWriter("memory://place/set", **options).from_indexed_dataset(GIVEN.samples)
    DatasetWriter("memory://place/set", mode="append", **options).from_indexed_dataset(MORE.samples)
    memory = fsspec.filesystem("memory")
    found = {path.rpartition("/")[2]: memory.cat_file(path) for path in memory.find("/place/set")}
    locally(tmp_path / "set", GIVEN.samples)
    assert found == locally(tmp_path / "set", MORE.samples, mode="append")
    with pytest.raises(FileExistsError, match="is not empty"):
        DatasetWriter("memory://place/set", **options)
    memory.rm("/place", recursive=True)

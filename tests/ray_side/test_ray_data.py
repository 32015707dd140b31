"""Datasets of shards through a Ray with two CPUs, and back. The one file of everyday tests that starts Ray."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import ray.data
from ray_builders import KINDS, flat, kinds, numbered, plain, records, same

import ffrecord.ray
from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import ChecksumError, FormatError, MismatchError
from ffrecord.fields import BytesField, Field, IntField, JPEGField, LabelField, NDArrayField, ScalarField, Schema
from ffrecord.ray.records import schema_of_arrays

pytestmark = [pytest.mark.usefixtures("started_ray"), pytest.mark.unsanitized("Ray does not run under it")]


def read(path: Any, columns: Any = None, *, blocks: int = 4, **options: Any) -> ray.data.Dataset:
    return ffrecord.ray.read(path, columns, override_num_blocks=blocks, **options)


@pytest.fixture(scope="module")
def of_all_kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds") / "dataset"
    writer = DatasetWriter(path, schema_of_arrays(KINDS), num_workers=0, samples_per_shard=25, progress=False)
    writer.from_iterable(map(kinds, range(60)))
    return path


def test_every_kind_of_field_comes_and_goes(of_all_kinds, tmp_path):
    rows = read(of_all_kinds).take_all()
    assert len(rows) == 60
    for i, row in enumerate(rows):
        wanted = flat(kinds(i), KINDS)
        assert list(row) == list(wanted)
        assert [name for name in wanted if not same(wanted[name], row[name])] == []
    summary = ffrecord.ray.write(read(of_all_kinds), tmp_path / "again", schema=schema_of_arrays(KINDS))
    assert records(tmp_path / "again") == records(of_all_kinds)
    assert (summary.samples, summary.bytes) == (60, sum(map(len, records(of_all_kinds))))
    assert sorted(os.listdir(tmp_path)) == ["again"]


def test_plain_bytes_through_a_map(tmp_path):
    plain(tmp_path / "plain", 1000, per_shard=300)
    ds = read(tmp_path / "plain", blocks=7)
    assert (ds.count(), ds.schema().names) == (1000, ["data"])
    turned = ds.map(lambda row: {"data": row["data"][::-1]})
    summary = ffrecord.ray.write(turned, tmp_path / "turned", shard_size=8000)
    assert records(tmp_path / "turned") == [numbered(i)[::-1] for i in range(1000)]
    with FileReader(tmp_path / "turned") as reader:
        assert summary.shards == len(reader.fnames) > 7
        assert max(map(os.path.getsize, reader.fnames)) < 8000 + 12 * 1000 + 4096


def test_columns_that_are_not_asked_for_are_not_decoded(tmp_path):
    """The JPEGs are none that anybody decodes."""
    schema = Schema.of(
        {"image": JPEGField(as_bytes=True), "label": LabelField(["a", "b"]), "x": NDArrayField("f4", (2,))}
    )
    samples = [{"image": b"\xff\xd8\xff?", "label": i % 2, "x": np.full(2, i, "f4")} for i in range(20)]
    DatasetWriter(tmp_path / "d", schema, num_workers=0, progress=False).from_iterable(samples)
    pixels = {"image": JPEGField()}
    found = read(tmp_path / "d", ["x", "label"], fields=pixels).take_batch(20)
    assert list(found) == ["x", "label"]
    assert found["x"].tolist() == [[i, i] for i in range(20)]
    with pytest.raises(FormatError, match=r"PART_00000\.ffr: samples from index 0 on: .* image \(JPEG"):
        read(tmp_path / "d", ["image"], fields=pixels).materialize()


@pytest.mark.skipif(not hasattr(ray.data.Datasource, "get_projection_map"), reason="this Ray cannot ask for it")
def test_selecting_columns_is_left_to_the_reader(tmp_path):
    schema = Schema.of({"image": JPEGField(as_bytes=True), "label": IntField()})
    samples = [{"image": b"\xff\xd8\xff?", "label": i} for i in range(20)]
    DatasetWriter(tmp_path / "d", schema, num_workers=0, progress=False).from_iterable(samples)
    ds = read(tmp_path / "d", fields={"image": JPEGField()}).select_columns(["label"])
    assert ds.take_all() == [{"label": i} for i in range(20)]


def test_types_say_the_fields(tmp_path):
    ds = ray.data.range(50, override_num_blocks=3).map_batches(
        lambda batch: {
            "id": batch["id"],
            "half": batch["id"].astype(np.float32) / 2,
            "box": np.stack([batch["id"]] * 4, axis=1).astype(np.int16),
            "name": [str(each) for each in batch["id"]],
        }
    )
    ffrecord.ray.write(ds, tmp_path / "d", samples_per_shard=20)
    with FileReader(tmp_path / "d") as reader:
        fields: dict[str, Field] = dict(ffrecord.fields.schema_of(reader).fields)
        assert fields["id"] == IntField()
        assert fields["half"] == ScalarField("float32")
        assert fields["box"] == NDArrayField("int16", (4,))
        found = sorted(reader.samples(range(50)), key=lambda sample: sample["id"])
        assert [(each["id"], each["half"], each["name"], each["box"].tolist()) for each in found] == [
            (i, i / 2, str(i), [i] * 4) for i in range(50)
        ]


def test_checksums_are_compared_unless_told(tmp_path):
    plain(tmp_path / "d", 20)
    shard = tmp_path / "d" / "PART_00000.ffr"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    rows = read(tmp_path / "d", check_data=False).take_all()
    assert [row["data"] for row in rows[:-1]] == [numbered(i) for i in range(19)]
    assert rows[-1]["data"] != numbered(19)
    with pytest.raises(ChecksumError, match=r"PART_00000\.ffr: sample 19"):
        read(tmp_path / "d").materialize()


def test_urls_with_options_and_a_cache(tmp_path):
    """A file system of fsspec that all processes see; the tasks read, and keep what they have read."""
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    url = f"local://{tmp_path}/d"
    options = {"auto_mkdir": True, "max_tries": 2}
    summary = ffrecord.ray.write(
        read(plain(tmp_path / "plain", 100)), url, samples_per_shard=30, storage_options=options, concurrency=1
    )
    assert (summary.path, summary.samples, summary.shards) == (url, 100, 4)
    given = {"storage_options": options, "cache_dir": str(tmp_path / "cache"), "cache_limit": "100 MB"}
    for _ in range(2):
        assert [row["data"] for row in read(url, **given).take_all()] == [numbered(i) for i in range(100)]
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    with pytest.raises(ValueError, match="cache_limit needs cache_dir"):
        read(url, cache_limit="100 MB")
    with pytest.raises(ValueError, match=r"max_tries is 0, expected 1 to 100"):
        read(url, storage_options={"max_tries": 0})


@pytest.mark.filterwarnings("ignore:`ray_remote_args` is deprecated")  # the only way to say all
@pytest.mark.parametrize("options", [{"num_cpus": 0.5}, {"scheduling_strategy": "SPREAD", "num_cpus": 1}])
def test_how_tasks_are_run(tmp_path, options):
    plain(tmp_path / "d", 50)
    ds = read(tmp_path / "d", concurrency=1, ray_remote_args=options)
    assert [row["data"] for row in ds.take_all()] == [numbered(i) for i in range(50)]
    said = str(ds._logical_plan.dag.__dict__)
    assert f"'num_cpus': {options['num_cpus']}" in said or f"num_cpus={options['num_cpus']}" in said
    copied = ffrecord.ray.write(read(tmp_path / "d"), tmp_path / "e", ray_remote_args={"num_cpus": 0.5}, concurrency=1)
    assert copied.samples == 50


def test_append_and_what_is_refused(tmp_path):
    plain(tmp_path / "d", 10, per_shard=6)
    ffrecord.ray.write(read(plain(tmp_path / "more", 5, start=10)), tmp_path / "d", mode="append")
    assert records(tmp_path / "d") == [numbered(i) for i in range(15)]
    with pytest.raises(MismatchError, match="schema was None"):
        ffrecord.ray.write(ray.data.range(3), tmp_path / "d", mode="append")
    with pytest.raises(FileExistsError, match="is not empty"):
        ffrecord.ray.write(ray.data.range(3), tmp_path / "d")
    with pytest.raises(FileNotFoundError, match="no dataset to append to"):
        ffrecord.ray.write(ray.data.range(3), tmp_path / "e", mode="append")
    assert records(tmp_path / "d") == [numbered(i) for i in range(15)]
    assert sorted(os.listdir(tmp_path)) == ["d", "more"]


def test_a_task_that_fails_leaves_nothing(tmp_path):
    def odd(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"] if row["id"] != 77 else None}

    with pytest.raises(TypeError, match=r"column 'id': 1 values are missing"):
        ffrecord.ray.write(ray.data.range(100).map(odd), tmp_path / "d", schema={"id": IntField()})
    with pytest.raises(
        ValueError, match="the schema has a column 'other', which is missing in the dataset; the dataset has id"
    ):
        ffrecord.ray.write(ray.data.range(100), tmp_path / "d", schema={"id": IntField(), "other": BytesField()})
    assert os.listdir(tmp_path) == []


def test_empty_datasets(tmp_path):
    summary = ffrecord.ray.write(ray.data.range(10).limit(0), tmp_path / "d", schema={"id": IntField()})
    assert summary.samples == 0
    assert read(tmp_path / "d").take_all() == []


def test_batches_for_torch(started_ray, tmp_path):
    """What Ray itself needs for them comes with the extra."""
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("pydantic", reason="pydantic is not installed, which iter_torch_batches of Ray needs")
    DatasetWriter(tmp_path / "a", num_workers=0).from_indexed_dataset([{"number": i} for i in range(10)])
    batches = ffrecord.ray.read(str(tmp_path / "a")).iter_torch_batches(batch_size=5)
    assert [batch["number"].tolist() for batch in batches] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

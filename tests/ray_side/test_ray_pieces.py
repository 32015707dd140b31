"""How datasets are divided into tasks, and what is known of each before it runs. No Ray is started."""

import os
from pathlib import Path

import numpy as np
import pytest
import ray.data
from hypothesis import example, given
from hypothesis import strategies as st
from ray_builders import plain

from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import FormatError
from ffrecord.fields import BytesField, IntField, JPEGField, NDArrayField, Schema
from ffrecord.ray import blocks
from ffrecord.ray.blocks import WantedColumns, read_blocks
from ffrecord.ray.pieces import Opening, ReadPiece, WholeShard, open_piece, plan_tasks, shards_of
from ffrecord.ray.reading import ShardDatasource, _select_columns

OPENING = Opening({})


def covered(found: list) -> list[tuple[str, int]]:
    return [(piece.shard.path, i) for task in found for piece in task for i in range(piece.start, piece.stop)]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), min_size=1, max_size=12),
    st.integers(1, 60),
)
@example([(3, 1)], 3)
def test_every_sample_is_in_one_task(sizes, count):
    """Of shards elsewhere, whose tables nobody looks at."""
    shards = [WholeShard(f"s3://b/{i}.ffr", n, 12 + 12 * n + (b if n else 0), 1) for i, (n, b) in enumerate(sizes)]
    found = plan_tasks(shards, count)
    assert covered(found) == [(shard.path, i) for shard in shards for i in range(shard.samples)]
    assert len(found) <= count
    assert all(task and all(piece.start < piece.stop for piece in task) for task in found)


def test_tasks_have_about_as_many_bytes(tmp_path):
    """Whatever the samples: the first tenth is as large as all others."""
    sizes = [900] * 100 + [100] * 900
    DatasetWriter(tmp_path / "d", num_workers=0, samples_per_shard=300, progress=False).from_iterable(map(bytes, sizes))
    shards = shards_of(tmp_path / "d", OPENING)
    found = plan_tasks(shards, 10)
    assert len(covered(found)) == 1000
    ends = np.cumsum(sizes)
    numbers = [300 * [s.path for s in shards].index(task[-1].shard.path) + task[-1].stop - 1 for task in found]
    of_task = np.diff([0, *(int(ends[number]) for number in numbers)])
    assert of_task.sum() == 180_000
    assert of_task.max() < 180_000 / 10 * 1.25


@pytest.mark.parametrize("count", [1, 3, 10, 47])
def test_bytes_of_cut_shards_are_those_of_their_samples(tmp_path, count):
    """However unlike the samples of a shard are."""
    sizes = [5000] * 20 + [1] * 180 + [0] * 30 + [300] * 70
    DatasetWriter(tmp_path / "d", num_workers=0, samples_per_shard=150, progress=False).from_iterable(map(bytes, sizes))
    shards = shards_of(tmp_path / "d", OPENING)
    starts = {shard.path: 150 * number for number, shard in enumerate(shards)}
    for piece in (piece for task in plan_tasks(shards, count) for piece in task):
        first = starts[piece.shard.path]
        wanted = sum(sizes[first + piece.start : first + piece.stop])
        assert 0 <= piece.bytes - wanted <= shards[0].size - 12 - 12 * 150 - sum(sizes[:150])


def test_sizes_of_cut_shards(tmp_path):
    """What tasks say of plain bytes is exact, though the first samples have nearly all bytes."""
    sizes = [9000] * 30 + [9] * 970
    DatasetWriter(tmp_path / "d", num_workers=0, progress=False).from_iterable(map(bytes, sizes))
    for task in source(tmp_path / "d").get_read_tasks(7):
        (found,) = list(task())
        assert task.metadata.size_bytes == pytest.approx(found.nbytes, rel=0.1, abs=2000)


def test_blocks_of_shards_elsewhere_are_no_larger_than_asked(tmp_path):
    """Their bytes are told from the number of their samples."""
    DatasetWriter(tmp_path / "d", num_workers=0, progress=False).from_iterable(map(bytes, [9000] * 30 + [9] * 970))
    (shard,) = shards_of(tmp_path / "d", OPENING)
    piece = ReadPiece(shard, 0, 100, shard.bytes // 10)
    sizes = [table.nbytes for table in read_blocks([piece], WantedColumns(None, None, ("data",)), OPENING, 50_000)]
    assert len(sizes) >= 6
    assert max(sizes) < 51_000


def test_a_manifest_is_all_that_is_read(tmp_path):
    plain(tmp_path / "d", 100, per_shard=10)
    for name in os.listdir(tmp_path / "d"):
        if name.endswith(".ffr") and "00000" not in name:
            os.truncate(tmp_path / "d" / name, 0)
    assert [shard.samples for shard in shards_of(tmp_path / "d", OPENING)] == [10] * 10


def test_a_shard_that_was_replaced_is_refused(tmp_path):
    plain(tmp_path / "a", 10)
    plain(tmp_path / "b", 10, start=1)
    ((piece,),) = plan_tasks(shards_of(tmp_path / "a", OPENING), 1)
    os.replace(tmp_path / "b" / "PART_00000.ffr", tmp_path / "a" / "PART_00000.ffr")
    with pytest.raises(FormatError, match=r"PART_00000\.ffr: the file was replaced after reading was planned"):
        open_piece(piece, OPENING)


def source(path: Path, **asked: object) -> ShardDatasource:
    shards = shards_of(path, OPENING)
    with FileReader(shards[0].path) as reader:
        return ShardDatasource(shards, _select_columns(reader, asked.get("columns"), None), OPENING)


def check_sizes(found: ShardDatasource, parallelism: int, slack: float) -> int:
    """Compare what tasks say of themselves with what they give; samples in all."""
    rows = 0
    total = told = 0
    for task in found.get_read_tasks(parallelism):
        given = list(task())
        assert task.metadata.num_rows == sum(block.num_rows for block in given)
        assert all(block.schema == task.schema for block in given)
        rows += task.metadata.num_rows
        told += task.metadata.size_bytes
        total += sum(block.nbytes for block in given)
        assert task.metadata.input_files
    assert told == pytest.approx(total, rel=slack)
    assert found.estimate_inmemory_data_size() == pytest.approx(total, rel=slack)
    return rows


def test_sizes_of_plain_bytes(tmp_path):
    assert check_sizes(source(plain(tmp_path / "d", 1000, per_shard=150)), 9, 0.01) == 1000


def test_sizes_of_columns(tmp_path):
    schema = Schema.of({"id": IntField(), "x": NDArrayField("float32", (4,)), "name": BytesField()})
    samples = [{"id": i, "x": np.full(4, i, "f4"), "name": b"?" * (i % 50)} for i in range(500)]
    DatasetWriter(tmp_path / "d", schema, num_workers=0, samples_per_shard=90, progress=False).from_iterable(samples)
    assert check_sizes(source(tmp_path / "d", columns=["x", "id"]), 7, 0.1) == 500
    assert check_sizes(source(tmp_path / "d"), 7, 0.3) == 500


@pytest.mark.parametrize("chosen", [None, {"x": "x"}])
def test_columns_are_looked_at_once(tmp_path, monkeypatch, chosen):
    """Not for every shard, of which there may be thousands."""
    schema = Schema.of({"id": IntField(), "x": NDArrayField("float32", (4,))})
    samples = [{"id": i, "x": np.full(4, i, "f4")} for i in range(200)]
    DatasetWriter(tmp_path / "d", schema, num_workers=0, samples_per_shard=2, progress=False).from_iterable(samples)
    asked: list[object] = []
    monkeypatch.setattr(blocks, "row_size", lambda field: asked.append(field) or 8)
    found = source(tmp_path / "d")
    found._projection_map = chosen
    assert len(found.get_read_tasks(50)) == 50
    found.estimate_inmemory_data_size()
    assert len(asked) == len(chosen or schema.columns)


def test_sizes_of_what_is_decoded(tmp_path):
    """A JPEG of one colour is a thousandth of its pixels."""
    pytest.importorskip("PIL", reason="JPEGs are made with Pillow")
    samples = [{"image": np.full((64, 64, 3), i, np.uint8)} for i in range(40)]
    DatasetWriter(tmp_path / "d", {"image": JPEGField()}, num_workers=0, progress=False).from_iterable(samples)
    assert check_sizes(source(tmp_path / "d"), 3, 0.2) == 40


def test_blocks_are_no_larger_than_ray_wants(tmp_path):
    found = source(plain(tmp_path / "d", 1000))
    context = ray.data.DataContext.get_current().copy()
    context.target_max_block_size = 20_000
    sizes = [block.nbytes for task in found.get_read_tasks(2, data_context=context) for block in task()]
    assert len(sizes) > 5
    assert max(sizes) < 25_000


def test_columns_for_which_nobody_asks(tmp_path):
    schema = Schema.of({"name": BytesField(), "id": IntField()})
    DatasetWriter(tmp_path / "d", schema, num_workers=0, progress=False).from_iterable([{"name": b"", "id": 1}] * 5)
    found = source(tmp_path / "d")
    found._projection_map = {}
    ((block,),) = [list(task()) for task in found.get_read_tasks(1)]
    assert (block.num_rows, block.column_names) == (5, ["id"])


@pytest.mark.parametrize(
    "columns, message",
    [(["x"], "'x', expected some of the columns data"), ([], "at least one name"), (["data"] * 2, "each once")],
)
def test_columns_that_are_refused(tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        source(plain(tmp_path / "d", 3), columns=columns)


def test_a_name_is_no_list_of_names(tmp_path):
    with pytest.raises(TypeError, match="columns is str 'data', expected a list of names"):
        source(plain(tmp_path / "d", 3), columns="data")

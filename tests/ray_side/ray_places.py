"""Writes by URL, task by task, as Ray calls them; objects in memory stand for a store."""

import os
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow as pa
from ray import cloudpickle
from ray_builders import numbered

from ffrecord import FileReader
from ffrecord.dataset_writer.layout import ByCount
from ffrecord.ray.writing import ShardDatasink, WrittenShard, target_of


def sink_at(url: str, *, appends: bool = False) -> ShardDatasink:
    target = target_of(url, None, appends=appends, resumes=True)
    return ShardDatasink(target, target.begin(), None, ByCount(10))


def run(sink: ShardDatasink, task: int, numbers: range) -> WrittenShard:
    """What a worker does with a task."""
    there = cloudpickle.loads(cloudpickle.dumps(sink))
    blocks = [pa.table({"data": [numbered(i) for i in numbers]})]
    return there.write(iter(blocks), SimpleNamespace(task_idx=task))


def result(*written: WrittenShard) -> Any:
    rows = sum(shard.samples for each in written for shard in each.shards)
    return SimpleNamespace(num_rows=rows, write_returns=list(written))


def complete(sink: ShardDatasink, *written: WrittenShard) -> None:
    """What the driver does at the end."""
    sink.on_write_complete(result(*written))
    sink._target.abandon()


def names(url: str) -> list[str]:
    store = fsspec.filesystem("memory")
    path = url.removeprefix("memory:/")
    return sorted(os.path.basename(each) for each in store.find(path))


def remove(url: str, name: str) -> None:
    fsspec.filesystem("memory").rm(f"{url.removeprefix('memory:/')}/{name}")


def records(url: str) -> list[bytes]:
    with FileReader(url) as reader:
        return [record.tobytes() for record in reader]

"""What tasks write and the driver publishes, task by task: tries that do not count, and an end at any point.

No Ray is started: the tests call what Ray calls, in its order.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from ray import cloudpickle
from ray_builders import numbered, plain, records

from ffrecord import DatasetWriter, FileReader, FileWriter
from ffrecord.dataset_writer.layout import ByBytes, ByCount
from ffrecord.errors import FFRecordError, MismatchError, WorkerError
from ffrecord.ray.target import LocalTarget
from ffrecord.ray.writing import ShardDatasink, WrittenShard


def target_at(path: Path, **given: Any) -> LocalTarget:
    return LocalTarget(str(path), **{"appends": False, "resumes": True, **given})


def sink_at(target: LocalTarget, cut: Any = None) -> ShardDatasink:
    return ShardDatasink(target, target.begin(), None, cut or ByCount(10))


def run(sink: ShardDatasink, task: int, numbers: range) -> WrittenShard:
    """What a worker does with a task."""
    there = cloudpickle.loads(cloudpickle.dumps(sink))
    blocks = [pa.table({"data": [numbered(i) for i in numbers[k : k + 7]]}) for k in range(0, len(numbers), 7)]
    return there.write(iter(blocks), SimpleNamespace(task_idx=task))


def result(*written: WrittenShard, rows: int | None = None) -> Any:
    count = sum(shard.samples for each in written for shard in each.shards)
    return SimpleNamespace(num_rows=count if rows is None else rows, write_returns=list(written))


def test_results_are_published_in_the_order_of_tasks(tmp_path):
    sink = sink_at(target_at(tmp_path / "d"))
    written = [run(sink, task, range(25 * task, 25 * task + 25)) for task in (2, 0, 1)]
    assert os.listdir(tmp_path) == [".d.part"]
    sink.on_write_complete(result(*written))
    assert records(tmp_path / "d") == [numbered(i) for i in range(75)]
    with FileReader(tmp_path / "d") as reader:
        assert [len(FileReader(name)) for name in reader.fnames] == [10, 10, 5] * 3
    sink._target.abandon()
    assert os.listdir(tmp_path) == ["d"]
    assert (sink.samples, sink.shards) == (75, 9)


def test_tries_that_do_not_count_leave_nothing(tmp_path):
    """Task 1 runs twice, at once with itself; task 3 is never heard of again."""
    target = target_at(tmp_path / "d")
    sink = sink_at(target, ByBytes(2000))
    first, lost, again = run(sink, 0, range(20)), run(sink, 1, range(20, 40)), run(sink, 1, range(20, 40))
    run(sink, 3, range(60, 80))
    assert {shard.name for shard in lost.shards}.isdisjoint(shard.name for shard in again.shards)
    sink.on_write_complete(result(again, first))
    target.abandon()
    assert records(tmp_path / "d") == [numbered(i) for i in range(40)]
    with FileReader(tmp_path / "d") as reader:
        assert len(os.listdir(tmp_path / "d")) == len(reader.fnames) + 1
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.parametrize("how", ["twice", "too few rows"])
def test_results_that_cannot_be_are_not_published(tmp_path, how):
    target = target_at(tmp_path / "d")
    sink = sink_at(target)
    once, again = run(sink, 0, range(20)), run(sink, 0, range(20))
    with pytest.raises(FFRecordError, match=r"results of 1 tasks .*; nothing was published"):
        sink.on_write_complete(result(once, again) if how == "twice" else result(once, rows=21))
    target.abandon()
    assert os.listdir(tmp_path) == []


def test_a_task_that_outlives_the_write_writes_nowhere(tmp_path):
    target = target_at(tmp_path / "d")
    sink = sink_at(target)
    late = FileWriter(sink._place.path("late.ffr"))
    late.write_one(b"late")
    target.abandon()
    with pytest.raises(OSError, match="nothing was published"):
        late.close()
    with pytest.raises(FileNotFoundError, match=r"does not exist on .*: the driver and the workers of Ray must share"):
        run(sink, 0, range(3))
    assert os.listdir(tmp_path) == []


def test_what_a_task_says_must_be_there(tmp_path):
    """As with nodes that have a file system each."""
    target = target_at(tmp_path / "d")
    sink = sink_at(target)
    written = run(sink, 0, range(20))
    os.unlink(sink._place.path(written.shards[1].name))
    with pytest.raises(FileNotFoundError, match="the shards of a task do not exist: the driver and the workers"):
        sink.on_write_complete(result(written))
    target.abandon()
    assert os.listdir(tmp_path) == []


def test_one_writes_at_a_time(tmp_path):
    target = target_at(tmp_path / "d")
    target.begin()
    with pytest.raises(BlockingIOError, match="another process or thread is writing to it"):
        target_at(tmp_path / "d").begin()
    target.abandon()


def test_finished_shards_of_a_dataset_writer_are_not_thrown_away(tmp_path):

    class Bad(list):
        def __getitem__(self, i: int) -> bytes:
            if i == 9:
                raise ValueError("the last one")
            return numbered(i)

    with pytest.raises(WorkerError, match="the last one"):
        writer = DatasetWriter(tmp_path / "d", num_workers=0, samples_per_shard=2, progress=False, serializer=bytes)
        writer.from_indexed_dataset(Bad([b""] * 10), chunksize=1)
    assert os.listdir(tmp_path) == [".d.part"]
    with pytest.raises(MismatchError, match="finished shards of an interrupted write"):
        target_at(tmp_path / "d").begin()
    target = target_at(tmp_path / "d", resumes=False)
    sink = sink_at(target)
    sink.on_write_complete(result(run(sink, 0, range(5))))
    target.abandon()
    assert records(tmp_path / "d") == [numbered(i) for i in range(5)]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
import test_ray_target as tests
from pathlib import Path
path, at = Path(sys.argv[1]), int(sys.argv[2])
target = tests.target_at(path, appends=path.is_dir())
sink = tests.sink_at(target)
written = [tests.run(sink, task, range(100 + 20 * task, 120 + 20 * task)) for task in range(2)]
left = [at]
def count(event, arguments):
    if event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir"):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
sink.on_write_complete(tests.result(*written))
target.abandon()
print("done")
"""


@pytest.mark.parametrize(
    "appends", [pytest.param(False, id="create", marks=pytest.mark.long), pytest.param(True, id="append")]
)
@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=() if at == 9 else pytest.mark.long) for at in (0, 3, 6, 7, 8, 9, 10, 11, 12, 13, 30)]
)
def test_a_driver_that_is_killed_leaves_all_or_nothing(tmp_path, at, appends):
    """At any rename or removal; and the next write goes on as if nothing had been."""
    path, before = tmp_path / "d", []
    if appends:
        before = [numbered(i) for i in range(5)]
        plain(path, 5)
    whole = before + [numbered(i) for i in range(100, 140)]
    command = [sys.executable, "-c", KILLED, str(path), str(at), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    found = records(path) if path.is_dir() else []
    assert found in (before, whole)
    if found == whole:
        return
    target = target_at(path, appends=appends)
    sink = sink_at(target)
    sink.on_write_complete(result(run(sink, 0, range(100, 140))))
    target.abandon()
    assert records(path) == whole
    assert [name for name in [*os.listdir(tmp_path), *os.listdir(path)] if name.startswith(".")] == []

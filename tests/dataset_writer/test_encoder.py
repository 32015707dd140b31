"""`dataset_writer.encoder`: the messages of a worker, and their order."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffrecord.dataset_writer.encoder import Encoder, RecordOutput
from ffrecord.dataset_writer.encoding import for_records
from ffrecord.dataset_writer.layout import Segment
from ffrecord.dataset_writer.messages import ChunkWritten, IndexTask, Preassigned, TaskDone
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.dataset_writer.tasks import TaskOpener, TaskSamples
from ffrecord.errors import FFRecordError
from ffrecord.fields import Schema
from ffrecord.processes.heartbeats import Heart
from ffrecord.writing._buffers import WriteBehind

SIZE = 1000
LIMIT = 1 << 20


class Rows:
    """Samples of SIZE bytes."""

    def __getitem__(self, index: int) -> Any:
        return np.full(SIZE, index % 251, np.uint8)


def rows(first: int, stop: int) -> bytes:
    return b"".join(bytes([index % 251]) * SIZE for index in range(first, stop))


@pytest.fixture
def encoder(files: ShardFiles) -> Iterator[Encoder]:
    encoder = Encoder(files, Heart())
    encoder.encode_by(Schema.infer([Rows()[0]]).encode)
    yield encoder
    encoder.close()


def run(task: int, first: int, stop: int, segments: list[Segment]) -> tuple[TaskSamples, Preassigned]:
    preassigned = Preassigned(SIZE, segments)
    return TaskOpener(Rows()).open(IndexTask(task, np.arange(first, stop).tobytes(), preassigned)), preassigned


def told(encoder: Encoder, *, wait: bool) -> list[ChunkWritten | TaskDone]:
    found = []
    while (message := encoder.take_written(wait=wait)) is not None:
        found.append(message)
    return found


def test_tasks_are_filled_one_after_the_other_and_each_is_told_of_once(files: ShardFiles, encoder: Encoder) -> None:
    messages: list[ChunkWritten | TaskDone] = []
    for task in range(5):
        encoder.fill(*run(task, 300 * task, 300 * (task + 1), [Segment(0, SIZE * 300 * task, 300)]))
        messages += told(encoder, wait=False)
    messages += told(encoder, wait=True)
    assert [message.task for message in messages] == list(range(5))
    assert told(encoder, wait=True) == []
    assert Path(files.path(0)).read_bytes() == rows(0, 1500)


def test_a_task_of_two_shards(files: ShardFiles, encoder: Encoder) -> None:
    encoder.fill(*run(0, 0, 700, [Segment(0, 50, 600), Segment(1, 20, 100)]))
    (message,) = told(encoder, wait=True)
    assert isinstance(message, TaskDone) and message.samples == 700
    assert Path(files.path(0)).read_bytes()[50:] == rows(0, 600)
    assert Path(files.path(1)).read_bytes()[20:] == rows(600, 700)


def test_pieces_and_foreseen_tasks_in_turn(files: ShardFiles, encoder: Encoder) -> None:
    (chunk,) = encoder.chunks(TaskOpener(Rows()).open(IndexTask(0, np.arange(10).tobytes())))
    encoder.write(chunk, [Segment(0, 0, 10)])
    encoder.fill(*run(1, 10, 20, [Segment(0, 10 * SIZE, 10)]))
    (other,) = encoder.chunks(TaskOpener(Rows()).open(IndexTask(2, np.arange(20, 30).tobytes())))
    encoder.write(other, [Segment(0, 20 * SIZE, 4), Segment(1, 0, 6)])
    assert [(type(message), message.task) for message in told(encoder, wait=True)] == [
        (ChunkWritten, 0),
        (TaskDone, 1),
        (ChunkWritten, 2),
    ]
    assert Path(files.path(0)).read_bytes() == rows(0, 24)
    assert Path(files.path(1)).read_bytes() == rows(24, 30)


def test_nothing_is_told_before_it_is_there(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread sends it on to the disk, and may find that this fails."""
    waited: list[int] = []

    def wait(output: RecordOutput, /, call: Any = RecordOutput.wait) -> None:
        waited.append(1)
        call(output)

    encoder.fill(*run(0, 0, 300, [Segment(0, 0, 300)]))
    monkeypatch.setattr(RecordOutput, "wait", wait)
    monkeypatch.setattr(RecordOutput, "done", False)
    assert told(encoder, wait=False) == [] and not waited
    encoder.fill(*run(1, 300, 600, [Segment(0, 300 * SIZE, 300)]))
    assert waited
    assert [message.task for message in told(encoder, wait=False)] == [0]
    waited.clear()
    assert encoder.take_written(wait=True) is not None and waited


@pytest.fixture
def limited() -> Iterator[None]:
    """No file grows beyond LIMIT."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_refused_is_never_told(encoder: Encoder, limited: None) -> None:
    """Not even by a worker that says at its end what is there."""
    (chunk,) = encoder.chunks(TaskOpener(Rows()).open(IndexTask(0, np.arange(10).tobytes())))
    encoder.write(chunk, [Segment(0, LIMIT - 5, 10)])
    for _ in range(2):
        with pytest.raises(OSError, match="File too large"):
            encoder.take_written(wait=True)


def test_a_part_that_is_refused_is_named(encoder: Encoder, limited: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.PART_BYTES", 4 * SIZE)
    start = LIMIT - 10 * SIZE
    with pytest.raises(
        OSError, match=f"4 samples, the last of them sample 11, could not .* at byte {start + 8 * SIZE}"
    ):
        encoder.fill(*run(1, 0, 18, [Segment(0, start, 18)]))
    assert told(encoder, wait=True) == []


class Failing(WriteBehind):
    """Of which one wait finds that the disk failed."""

    fails = False

    def wait(self) -> None:
        super().wait()
        if self.fails:
            self.fails = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("shard", [0, 1])
def test_what_the_disk_failed_to_take_is_never_told(
    files: ShardFiles, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the next task goes: it would be a shard that looks finished."""
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.WriteBehind", Failing)
    encoder = Encoder(files, Heart())
    encoder.encode_by(Schema.infer([Rows()[0]]).encode)
    encoder.fill(*run(0, 0, 10, [Segment(0, 0, 10)]))
    encoder._output._behind.fails = True  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="10 samples could not be written at byte 0"):
        encoder.fill(*run(1, 10, 20, [Segment(shard, 20 * SIZE, 10)]))
    assert not encoder._output._behind.fails  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(OSError, match="10 samples could not be written at byte 0"):
            encoder.take_written(wait=True)
    encoder.close()


@pytest.mark.parametrize("slow", [False, True])
def test_a_slow_task_is_told_of_at_once(encoder: Encoder, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the next one, of which each sample may take as long."""
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.SLOW_SECONDS", 0 if slow else 60)
    monkeypatch.setattr(RecordOutput, "done", False)
    encoder.fill(*run(0, 0, 300, [Segment(0, 0, 300)]))
    assert [message.task for message in told(encoder, wait=False)] == ([0] if slow else [])


def test_each_record_has_the_size_that_was_foreseen(encoder: Encoder) -> None:
    """Not only all together: the tables say so of each."""
    encoder._encode = for_records(lambda sample: bytes(SIZE + {3: 1, 7: -1}.get(sample[0], 0)))
    with pytest.raises(FFRecordError, match="sample 3 has a record of 1001 bytes, expected 1000"):
        encoder.fill(*run(0, 0, 10, [Segment(0, 0, 10)]))
    encoder._encode = for_records(bytes)
    with pytest.raises(FFRecordError, match="there are no records, expected some of 1000 bytes each"):
        encoder.fill(*run(0, 0, 10, [Segment(0, 0, 11)]))

"""`dataset_writer.encoder`: segments of shards, written at once or by a thread, and refused writes."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import children
import pytest

from ffrecord.dataset_writer.encoder import RecordOutput, SpillFile
from ffrecord.dataset_writer.layout import Segment
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.errors import FFRecordError

LIMIT = 1 << 20


@pytest.fixture
def output(files: ShardFiles) -> Iterator[RecordOutput]:
    output = RecordOutput(files)
    yield output
    output.close()


@pytest.fixture
def limited() -> Iterator[None]:
    """No file grows beyond LIMIT."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def content(files: ShardFiles, number: int) -> bytes:
    return Path(files.path(number)).read_bytes()


def test_every_way_to_write(files: ShardFiles, output: RecordOutput) -> None:
    spill = SpillFile(files.directory, files.label)
    where = spill.put(memoryview(b"spooled"))
    output.turn_to(Segment(0, 4, 2), "sample 1")
    output.begin(6, memoryview(b"thread"))
    output.turn_to(Segment(0, 10, 2))
    output.write(Segment(0, 10, 1), memoryview(b"at "), "sample 2")
    output.write(Segment(0, 13, 1), memoryview(b"once"), "sample 3")
    output.begin(7)
    output.turn_to(Segment(1, 0, 1), "sample 4")
    output.copy(spill, where, 7)
    output.begin(7)
    output.turn_to(Segment(0, 17, 1), "sample 5")  # back to the first
    output.begin(1, memoryview(b"!"))
    output.wait()
    assert output.done
    assert [content(files, number) for number in range(3)] == [b"\0\0\0\0threadat once!", b"spooled", b""]
    spill.close()


def test_one_shard_is_open_at_a_time(files: ShardFiles, output: RecordOutput) -> None:
    before = len(children.open_files(collect=True))
    for number in (0, 1, 2, 1):
        output.turn_to(Segment(number, 0, 1), "sample 0")
        output.begin(1, memoryview(b"x"))
        assert len(children.open_files()) == before + 1
    output.close()
    output.close()
    assert len(children.open_files()) == before


@pytest.mark.parametrize("step", ["wait", "begin", "another shard", "the same shard"])
def test_what_the_thread_was_refused_is_told_of_its_own_segment(output: RecordOutput, limited: None, step: str) -> None:
    """By whatever comes next, which is not to blame; and again by whatever comes then."""
    output.turn_to(Segment(0, LIMIT - 2, 7), "sample 5")
    output.begin(4, memoryview(b"data"))
    steps = {
        "wait": output.wait,
        "begin": lambda: output.begin(0),
        "another shard": lambda: output.turn_to(Segment(1, 0, 1), "sample 9"),
        "the same shard": lambda: output.turn_to(Segment(0, 0, 1), "sample 9"),
    }
    for each in (step, *steps):
        with pytest.raises(OSError, match="File too large") as caught:
            steps[each]()
        assert caught.value.errno == errno.EFBIG and caught.value.filename == "/final/PART_00000.ffr"
        what = "/final/PART_00000.ffr: 7 samples, the last of them sample 5, could not be written at byte"
        assert f"{what} {LIMIT - 2}" in str(caught.value)


def test_what_is_refused_at_once(output: RecordOutput, limited: None) -> None:
    """It is the part that is named, not all of the segment."""
    output.turn_to(Segment(2, LIMIT - 6, 7))
    output.write(Segment(2, LIMIT - 6, 4), memoryview(b"room"), "sample 3")
    with pytest.raises(OSError, match="File too large") as caught:
        output.write(Segment(2, LIMIT - 2, 1), memoryview(b"none"), "sample 4")
    what = "/final/PART_00002.ffr: 1 sample, the last of them sample 4, could not be written at byte"
    assert f"{what} {LIMIT - 2}" in str(caught.value)


def test_a_shard_that_cannot_be_opened(files: ShardFiles, output: RecordOutput) -> None:
    os.unlink(files.path(1))
    for last, said in (("sample 5", "7 samples, the last of them sample 5, could not"), (None, "7 samples could not")):
        with pytest.raises(FileNotFoundError) as caught:
            output.turn_to(Segment(1, 0, 7), last)
        assert f"/final/PART_00001.ffr: {said} be written at byte 0" in str(caught.value)


def test_a_spill_file_that_fails(files: ShardFiles, output: RecordOutput, limited: None) -> None:
    spill = SpillFile(files.directory, files.label)
    where = spill.put(memoryview(bytes(100)))
    output.turn_to(Segment(0, LIMIT, 1), "sample 3")
    with pytest.raises(OSError, match="the last of them sample 3"):
        output.copy(spill, where, 100)
    spill.close()


def test_before_anything_was_turned_to(output: RecordOutput) -> None:
    output.wait()
    assert output.done
    with pytest.raises(FFRecordError, match="/final: there is no segment to write to"):
        output.begin(0)

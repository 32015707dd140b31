"""T12 (guarantee G8): workers that die while they encode samples of the parent, a list or a pipeline."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import children
import pytest
from written_datasets import Samples, left_behind, write_from

from ffrecord.dataset_writer import DatasetWriter
from ffrecord.dataset_writer.messages import PATIENCE
from ffrecord.errors import WorkerError

pytestmark = pytest.mark.usefixtures("nothing_leaks")


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
    given = Samples(NUMBERS, [100, 200])
    started = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        write_from(source, tmp_path / "set", given, 10, num_workers=2, serializer=act, on_error=on_error)
    assert words in str(caught.value) and where in str(caught.value)
    assert time.monotonic() - started < 2 * children.PATIENCE
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

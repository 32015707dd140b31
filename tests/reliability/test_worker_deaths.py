"""T12 (guarantees G7, G8): a worker that dies, fails or stands still is noticed within a second, and named."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import children
import dying
import numpy as np
import pytest
from dying import ENDS, OPERATIONS, Fatal, child_processes
from figures import Counted, counts
from written_datasets import left_behind, read_all

from ffrecord.errors import WorkerError

pytestmark = pytest.mark.usefixtures("nothing_leaks")
SAID = {
    "killed": "was ended by SIGKILL",
    "crashed": f"was ended by {children.CRASH.name}",
    "left": "exited with code 0",
    "failed": "KeyError: 'no such picture'",
    "out of memory": "MemoryError",
}
KILLS, OTHER_DEATHS = "worker kills noticed", "worker deaths noticed"


def name_of(kind: str, at: int) -> str:
    """The sample, as the one who wrote it would look for it."""
    size = dying.N // dying.STREAMS
    return {"lines": f"line {at + 1}", "streams": f"sample {at % size} of {at // size}"}.get(kind, f"sample {at}")


def nothing_but(directory: Path, kind: str) -> None:
    """Nothing is left; what was whole before is whole."""
    left = left_behind(directory)
    if kind == "append":
        assert left == ["set"] and read_all(directory / "set")[:2] == [b"old 0", b"old 1"]
        return
    assert left == [] or (kind == "verify" and left == ["set"])


def noticed(kind: str, how: str, at: int, directory: Path) -> float:
    """Seconds after which the end of a worker was told, rightly."""
    given = Fatal(at, ENDS[how])
    with pytest.raises(WorkerError) as caught:
        OPERATIONS[kind](given, directory / "set")
    seconds = time.monotonic() - given.when
    assert given.when and SAID[how] in str(caught.value), caught.value
    assert f" at {name_of(kind, at)}" in str(caught.value).splitlines()[0], caught.value
    nothing_but(directory, kind)
    return seconds


@counts(1, 3)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_noticed_and_named(
    tmp_path: Path, random: np.random.Generator, kind: str, how: str, count: int, counted: Counted
) -> None:
    for turn in range(count):
        directory = tmp_path / str(turn)
        directory.mkdir()
        seconds = noticed(kind, how, int(random.integers(20, dying.N)), directory)
        assert seconds < children.PATIENCE
        counted.add(KILLS if how == "killed" else OTHER_DEATHS)
        counted.at_most("seconds to notice a dead worker", seconds)


@pytest.mark.long
@pytest.mark.parametrize("kind", OPERATIONS)
def test_killed_at_any_sample(tmp_path: Path, random: np.random.Generator, kind: str, counted: Counted) -> None:
    for turn in range(35):
        directory = tmp_path / str(turn)
        directory.mkdir()
        seconds = noticed(kind, "killed", int(random.integers(dying.N)), directory)
        assert seconds < children.PATIENCE
        counted.add(KILLS)
        counted.at_most("seconds to notice a dead worker", seconds)


class Killer(threading.Thread):
    """Kills one of the workers there are, some time after the first of them; `when`, or 0 if there was none left.

    Children that this process had before are no workers.
    """

    def __init__(self, seconds: float, number: int) -> None:
        super().__init__()
        self.seconds, self.number, self.when, self.over = seconds, number, 0.0, False
        self.others = child_processes()

    def workers(self) -> list[int]:
        return sorted(child_processes() - self.others)

    def run(self) -> None:
        while not self.workers() and not self.over:
            time.sleep(0.0005)
        time.sleep(self.seconds)
        workers = self.workers()
        if workers and not self.over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[self.number % len(workers)], signal.SIGKILL)
                self.when = time.monotonic()


@counts(2, 20)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_killed_at_any_time(
    tmp_path: Path, random: np.random.Generator, kind: str, count: int, counted: Counted
) -> None:
    """Waiting, writing or at a sample: told within a second, or too late to matter, which most are not."""
    told = 0
    for turn in range(5 * count):
        if told == count:
            break
        directory = tmp_path / str(turn)
        directory.mkdir()
        killer = Killer(float(random.random()) * 0.08 * children.PATIENCE, int(random.integers(100)))
        killer.start()
        try:
            OPERATIONS[kind](Fatal(pause=0.0005 * children.PATIENCE), directory / "set")
        except WorkerError as error:
            ended = time.monotonic()
            killer.join()
            assert "SIGKILL" in str(error)
            nothing_but(directory, kind)
            assert ended - killer.when < children.PATIENCE
            told += 1
            counted.add(KILLS)
            counted.at_most("seconds to notice a dead worker", ended - killer.when)
        else:
            killer.over = True
            killer.join()
            assert os.listdir(directory) == ["set"]
    assert told, "no worker was killed before it had done its work"


@pytest.mark.parametrize("kind", ["dataset", "iterable", "streams"])
def test_stuck(tmp_path: Path, kind: str, counted: Counted) -> None:
    """It is stopped, and not even SIGTERM ends it."""
    given = Fatal(137, dying.stop)
    with pytest.raises(WorkerError, match=rf"gave no sign of life for .* at {name_of(kind, 137)}\b") as caught:
        OPERATIONS[kind](given, tmp_path / "set", stuck_after=0.5)
    assert 0.5 < time.monotonic() - given.when < 0.5 + 1 + 0.5, caught.value  # the last is for it to be ended
    nothing_but(tmp_path, kind)

"""T12 (guarantees G7, G8): a worker of a torch `Loader` that dies is noticed within a second, and its sample named."""

import mmap
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
from children import wait_until
from dying import ENDS, child_processes
from figures import Counted, counts
from test_parent_ends import begin_other, end

from ffrecord import FFRecordError, FileWriter
from ffrecord.errors import WorkerError
from ffrecord.fields import Schema
from ffrecord.format.extension import Extension

pytest.importorskip("torch.utils.data")

from ffrecord.torch import Loader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # Torch's handler of SIGCHLD raises anywhere in the waiting for a batch, where a connection is let go, too.
    pytest.mark.filterwarnings("ignore:Exception ignored in.*_ConnectionBase:pytest.PytestUnraisableExceptionWarning"),
]
COUNT, BATCH = 120, 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of typed samples, that batches send by descriptors and by value."""
    samples = [{"id": i, "name": f"sample {i}", "data": np.full(300, i % 250, np.uint8)} for i in range(COUNT)]
    schema = Schema.infer(samples)
    found = tmp_path_factory.mktemp("loader") / "a.ffr"
    with FileWriter(found, extension=Extension(schema=schema.to_builtins())) as writer:
        for sample in samples:
            writer.write_one(schema.encode(sample))
    return str(found)


class Deadly:
    """A transform that ends its worker at one sample; `when`, by time.monotonic."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.at, self.act = at, act
        self._when = memoryview(mmap.mmap(-1, 4096)).cast("d")

    @property
    def when(self) -> float:
        return float(self._when[0])

    def __call__(self, sample: Any) -> Any:
        if sample["id"] == self.at:
            self._when[0] = time.monotonic()
            self.act()
        return sample


def error_of(path: str, transform: Deadly, **options: Any) -> BaseException:
    """What a loop over a loader with workers ends with; what came before must be right."""
    seen: list[int] = []
    try:
        for batch in Loader(path, BATCH, "sequential", num_workers=2, transform=transform, **options):
            seen += batch["id"].tolist()
    except FFRecordError as error:
        assert seen == list(range(len(seen))) and len(seen) <= transform.at
        return error
    raise AssertionError("no error")


def noticed(path: str, how: str, at: int, counted: Counted, **options: Any) -> None:
    before, transform = child_processes(), Deadly(at, ENDS[how])
    error = error_of(path, transform, **options)
    seconds = time.monotonic() - transform.when
    assert isinstance(error, WorkerError) and error.index == at
    samples = ", ".join(str(at // BATCH * BATCH + i) for i in range(BATCH))
    end = "was ended by SIGKILL" if how == "killed" else "exited with code [0-9]+"
    assert re.search(f"{end} at sample {at} of the batch of samples {samples} ", str(error))
    assert seconds < children.PATIENCE
    assert child_processes() <= before
    counted.add("worker kills noticed" if how == "killed" else "worker deaths noticed")
    counted.at_most("seconds to notice a dead worker", seconds)


@counts(1, 25)
@pytest.mark.parametrize("options", [{}, {"timeout": 20}], ids=["", "timeout"])
@pytest.mark.parametrize("how", ["killed", "left"])
def test_noticed_and_named(
    path: str, random: np.random.Generator, how: str, options: dict[str, Any], count: int, counted: Counted
) -> None:
    """Without an error code, too, where torch by itself looks every five seconds, or after the timeout."""
    for _ in range(count):
        noticed(path, how, int(random.integers(COUNT)), counted, **options)


@pytest.mark.parametrize("how", ["killed", "left"])
def test_in_the_first_batch_of_another_thread(path: str, how: str, counted: Counted) -> None:
    """No batch of the dead is waited for, and no signal handler runs."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            noticed(path, how, 0, counted)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert raised == [] and not thread.is_alive()


def test_workers_outlive_the_thread_that_started_them(path: str) -> None:
    """They end with the process."""
    loader = Loader(path, BATCH, "sequential", num_workers=2)
    made: list[Any] = []

    def work() -> None:
        made.append(iter(loader))
        made.append(next(made[0]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    time.sleep(0.6)  # longer than workers take to notice their parent's end
    assert [i for batch in made[0] for i in batch["id"].tolist()] == list(range(BATCH, COUNT))


@pytest.mark.parametrize("name", ["Ctrl-C", "SIGTERM", "SIGKILL"])
def test_the_parent_ends(path: str, tmp_path: Path, name: str) -> None:
    """Also while workers are busy with what takes long."""

    def slow(sample: Any) -> Any:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(30 if sample["id"] > 20 else 0.01)
        return sample

    def work() -> None:
        for _ in Loader(path, BATCH, "sequential", num_workers=2, transform=slow):
            pass

    pid = begin_other(work)
    assert wait_until(lambda: len(os.listdir(tmp_path)) == 2, 20)
    time.sleep(0.1)
    assert end(pid, name) in (130, -signal.SIGTERM, -signal.SIGKILL)

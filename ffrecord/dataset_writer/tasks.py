"""From a task to its samples, one after the other: where the code of users is called."""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ffrecord.dataset_writer.messages import Assignment, IndexTask, ItemTask, Preassigned, StreamTask
from ffrecord.dataset_writer.transport import Carrier
from ffrecord.kernels._records import Indexed
from ffrecord.processes.heartbeats import Heart

TASK_SAMPLES = 1024  # at most, so that the indices of a task are one packet
# Of records, but for a task of one: of a larger task others would only wait for the places, and a shard that it goes
# through stays unfinished as long.
TASK_BYTES = 4 << 20


@dataclass(frozen=True)
class WorkerSettings:
    """With what to write; nothing here changes a byte of the result.

    Attributes:
        workers: processes, >= 0; 0 for none but this one.
        chunksize: samples a worker is given at a time, > 0; fewer where they are large, more where they are quick.
        start_method: of the processes, as `workers.start_method_of` takes it.
        stuck_after: seconds without a sign of life after which a busy worker is given up, or None.
        progress: True for a bar, False for none, None for one if stderr is a terminal.
    """

    workers: int
    chunksize: int = 100
    start_method: str | None = None
    stuck_after: float | None = None
    progress: bool | None = None

    @property
    def task_samples(self) -> int:
        """Samples of a task, at most."""
        return min(self.chunksize, TASK_SAMPLES)


AT_ONCE = 80  # samples at most of a dataset that gives several
FEW = 8  # samples that are asked for one by one


class StreamEnd(Exception):
    """There are no more samples in a stream."""


class TaskSamples:
    """The samples of one task.

    Args:
        task: its number.
        indices: of the samples, in order.
        get: index → sample; called once for each, in order.

    Attributes:
        task: the number.
        streams: whether `get` raises `StreamEnd` when `indices` go on without samples. After another exception no
            more samples come.
        ended: whether that is so now.
        foreseen: where the samples go, if that is known.
    """

    streams = ended = False
    foreseen: Preassigned | None = None

    def __init__(self, task: int, indices: Iterable[int], get: Callable[[int], Any]) -> None:
        self.task, self.indices, self.get = task, iter(indices), get

    def named(self, index: int) -> str:
        """What a sample is called in messages, as by the `name` of its source."""
        return f"sample {index}"


class _BatchesRun(TaskSamples):
    """Samples of a dataset that gives several at once, by `__getitems__`.

    Args:
        asker: asks the dataset, and for the next ones while these are used; None for the caller's thread.
    """

    def __init__(self, task: IndexTask, dataset: Any, asker: "SampleFetcher | None") -> None:
        self._dataset, self._wanted, self._asker = dataset, _numbers(task.indices), asker
        self._had: list[Any] = []  # samples of the next indices, the first one at the end
        self._begun = self._done = 0  # indices tried together, and indices asked for
        self._coming: Future[tuple[int, list[Any]]] | None = None
        self._ask_ahead()
        super().__init__(task.task, self._wanted, self._next)

    def _next(self, index: int) -> Any:
        if self._done == self._begun:
            self._take_several()
        self._done += 1
        if self._had:
            return self._had.pop()
        if self._asker is not None:
            return self._asker.sample(self._dataset, index)
        return self._dataset[index]

    def _take_several(self) -> None:
        count, had = _several(self._dataset, self._following()) if self._coming is None else self._coming.result()
        self._had = had[::-1]
        self._begun += count
        self._ask_ahead()

    def _ask_ahead(self) -> None:
        if self._asker is not None:
            wanted = self._following()
            self._coming = self._asker.several(self._dataset, wanted) if wanted else None

    def _following(self) -> list[int]:
        """The next ones: of what is left an equal share, since each time costs something."""
        left = len(self._wanted) - self._begun
        times = max(1, -(-left // AT_ONCE))
        return self._wanted[self._begun : self._begun + -(-left // times)]


class SampleFetcher:
    """A thread that asks a dataset for samples: the only one that does.

    Args:
        heart: of this worker, told what is asked for.
    """

    def __init__(self, heart: Heart) -> None:
        self._heart, self._thread = heart, ThreadPoolExecutor(1, "ffrecord-asker")

    def several(self, dataset: Any, indices: list[int]) -> Future[tuple[int, list[Any]]]:
        """What will be the result of `_several`."""
        return self._thread.submit(self._ask, dataset, indices)

    def sample(self, dataset: Any, index: int) -> Any:
        """dataset[index]."""
        return self._thread.submit(operator.getitem, dataset, index).result()

    def _ask(self, dataset: Any, indices: list[int]) -> tuple[int, list[Any]]:
        self._heart.ask_ahead(indices[0])
        try:
            return _several(dataset, indices)
        finally:
            self._heart.ask_ahead(None)


def _several(dataset: Any, indices: list[int]) -> tuple[int, list[Any]]:
    """(how many of the first of these were asked for together, their samples); without samples, each is then asked for
    alone, to see which fails."""
    try:
        indices = together(dataset, indices)
        return len(indices), had_together(dataset, indices)
    except Exception:
        return len(indices), []


def may_be_asked_ahead(dataset: Any) -> bool:
    """Whether a dataset says that a thread may ask it for samples before they are needed."""
    return getattr(dataset, "may_be_asked_ahead", False) is True


def together(dataset: Any, indices: list[int]) -> list[int]:
    """The first of these indices, those that a dataset wants to be asked for at once; all if it does not say."""
    count = getattr(dataset, "samples_at_once", None)
    return indices if count is None else indices[: count(indices)]


def had_together(dataset: Any, indices: list[int]) -> list[Any]:
    """Samples by `__getitems__`; none where they come as something else, such as a batch that is collated already."""
    if len(indices) < FEW:
        return []  # a list of the columns of so few samples would look like that of the samples
    samples = dataset.__getitems__(indices)
    return list(samples) if isinstance(samples, list | tuple) and len(samples) == len(indices) else []


class _ItemsRun(TaskSamples):
    """The samples of what the parent has."""

    def __init__(self, task: ItemTask, items: Iterator[Any], function: Callable[[Any], Any] | None) -> None:
        super().__init__(task.task, _numbers(task.indices), self._next)
        self._items, self._function = items, function

    def _next(self, index: int) -> Any:
        try:
            item = next(self._items)
        except BaseException:
            self.ended = True
            raise
        return item if self._function is None else self._function(item)

    def named(self, index: int) -> str:
        return super().named(index) if self._function is None else f"line {index}"


class _StreamRun(TaskSamples):
    """The samples of what a pipeline makes of a name."""

    streams = True

    def __init__(self, task: int, pipeline: Callable[[str], Iterable[Any]], name: str) -> None:
        super().__init__(task, itertools.count(), self._next)
        self._pipeline, self._name = pipeline, name
        self._samples: Iterator[Any] | None = None

    def _next(self, index: int) -> Any:
        try:
            if self._samples is None:
                self._samples = iter(self._pipeline(self._name))
            return next(self._samples)
        except StopIteration:
            raise StreamEnd from None
        except BaseException:
            self.ended = True
            raise

    def named(self, index: int) -> str:
        return f"{super().named(index)} of {self._name}"


class Looked(TaskSamples):
    """A run whose first samples were had before.

    Args:
        run: the one they are of.
        first: its first indices, with what `get` gave, or raised.
    """

    def __init__(self, run: TaskSamples, first: list[tuple[int, Any, Exception | None]]) -> None:
        super().__init__(run.task, itertools.chain([index for index, _, _ in first], run.indices), self._get)
        self._run, self._first = run, first[::-1]
        self.streams = run.streams

    def _get(self, index: int) -> Any:
        if not self._first:
            return self._run.get(index)
        _, sample, error = self._first.pop()
        if error is not None:
            raise error
        return sample

    def named(self, index: int) -> str:
        return self._run.named(index)

    @property
    def ended(self) -> bool:  # type: ignore[override]
        return self._run.ended


class TaskOpener:
    """Opens the tasks of a source; one of these is given, or none for samples that the parent has.

    Args:
        dataset: of which dataset[i] are the samples.
        function: item → sample.
        pipeline: name → samples.
        carrier: where the items of `ItemTask` come from.
        heart: of the worker that this is in, where a thread may ask the dataset ahead; None: not here.
    """

    def __init__(
        self,
        dataset: Any = None,
        function: Callable[[Any], Any] | None = None,
        pipeline: Callable[[str], Iterable[Any]] | None = None,
        carrier: Carrier | None = None,
        heart: Heart | None = None,
    ) -> None:
        self._dataset, self._function, self._pipeline, self._carrier = dataset, function, pipeline, carrier
        self._asker = SampleFetcher(heart) if heart is not None and may_be_asked_ahead(dataset) else None

    def open(self, task: Assignment) -> TaskSamples:
        """Its samples. The first of a dataset that may be asked ahead are asked for now."""
        run = self._open(task)
        if not isinstance(task, StreamTask):
            run.foreseen = task.foreseen
        return run

    def _open(self, task: Assignment) -> TaskSamples:
        if isinstance(task, IndexTask):
            if hasattr(self._dataset, "__getitems__"):
                return _BatchesRun(task, self._dataset, self._asker)
            return TaskSamples(task.task, _numbers(task.indices), Indexed(self._dataset))
        if isinstance(task, ItemTask):
            if self._carrier is None:
                raise TypeError("items need a carrier")
            return _ItemsRun(task, self._carrier.unpack(task), self._function)
        if self._pipeline is None:
            raise TypeError("a stream needs a pipeline")
        return _StreamRun(task.task, self._pipeline, task.name)


def _numbers(data: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(data, np.int64).tolist()
    return numbers

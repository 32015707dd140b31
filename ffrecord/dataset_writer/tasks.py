"""Samples of a task, one after the other: the code of users is called here."""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ffrecord.dataset_writer.messages import Assignment, Carrier, IndexTask, ItemTask, Preassigned, StreamTask
from ffrecord.kernels._records import Indexed
from ffrecord.processes.heartbeats import Heart
from ffrecord.system.values import check_samples

TASK_SAMPLES = 1024  # at most, so that the indices of a task fit one packet
# Limit of the records of a task with several samples. A larger task would keep others waiting for their places, and
# its shards unfinished.
TASK_BYTES = 4 << 20


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a write that do not change a byte of its result.

    Attributes:
        workers: number of processes, >= 0; 0 to write in this process.
        chunksize: number of samples in a task, > 0; fewer if they are large, more if they are quick.
        start_method: start method of the processes, as `processes.pool.start_method_of` takes it.
        stuck_after: seconds without a sign of life after which a busy worker is given up, or None.
        progress: True for a progress bar, False for none, None for one if stderr is a terminal.
    """

    workers: int
    chunksize: int = 100
    start_method: str | None = None
    stuck_after: float | None = None
    progress: bool | None = None

    @property
    def task_samples(self) -> int:
        """Largest number of samples in a task."""
        return min(self.chunksize, TASK_SAMPLES)


AT_ONCE = 80  # largest number of samples per call of `__getitems__`
FEW = 8  # fewer samples than this are requested one by one


class StreamEnd(Exception):
    """The signal that a stream has no more samples."""


class TaskSamples:
    """The samples of one task.

    Args:
        task: number of the task.
        indices: indices of the samples, in order.
        get: function index → sample; called once for each, in order.

    Attributes:
        task: number of the task.
        streams: whether `get` raises `StreamEnd` if there are fewer samples than `indices`.
        ended: whether `get` has raised an exception after which no more samples come.
        preassigned: places of the samples, if known.
    """

    streams = ended = False
    preassigned: Preassigned | None = None

    def __init__(self, task: int, indices: Iterable[int], get: Callable[[int], Any]) -> None:
        self.task, self.indices, self.get = task, iter(indices), get

    def sample_name(self, index: int) -> str:
        """Return the name of a sample for messages, as the `name` of its source gives it."""
        return f"sample {index}"


class BatchedSamples(TaskSamples):
    """The samples of a dataset that returns several at once, by `__getitems__`.

    Args:
        fetcher: thread that asks the dataset, also ahead; None to ask in the caller's thread.
    """

    def __init__(self, task: IndexTask, dataset: Any, fetcher: "SampleFetcher | None") -> None:
        self._dataset, self._wanted, self._fetcher = dataset, _indices_of(task.indices), fetcher
        self._fetched: list[Any] = []  # samples of the next indices, in reverse order
        self._requested = self._delivered = 0  # numbers of indices requested, and handed out
        self._pending: Future[tuple[int, list[Any]]] | None = None
        self._fetch_ahead()
        super().__init__(task.task, self._wanted, self._next)

    def _next(self, index: int) -> Any:
        # All samples of the last request are handed out.
        if self._delivered == self._requested:
            self._fetch_next()
        self._delivered += 1
        if self._fetched:
            # In reverse order: `pop` takes the next one from the end, and drops the reference.
            return self._fetched.pop()
        # The request failed or gave nothing usable: ask for this sample alone, in the one thread that may ask.
        if self._fetcher is not None:
            return self._fetcher.fetch(self._dataset, index)
        return self._dataset[index]

    def _fetch_next(self) -> None:
        count, fetched = (
            _fetch_batch(self._dataset, self._next_indices()) if self._pending is None else self._pending.result()
        )
        self._fetched = fetched[::-1]
        self._requested += count
        # The next request runs while the samples of this one are encoded.
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        if self._fetcher is not None:
            wanted = self._next_indices()
            self._pending = self._fetcher.fetch_batch(self._dataset, wanted) if wanted else None

    def _next_indices(self) -> list[int]:
        """Return the next indices to request: an equal share of those left, because every request has a cost."""
        left = len(self._wanted) - self._requested
        times = max(1, -(-left // AT_ONCE))
        return self._wanted[self._requested : self._requested + -(-left // times)]


class SampleFetcher:
    """A thread that asks a dataset for samples; no other thread asks it.

    Args:
        heart: heartbeat of this worker; it learns which samples are fetched ahead.
    """

    def __init__(self, heart: Heart) -> None:
        # One, since datasets are seldom safe for several.
        self._heart, self._thread = heart, ThreadPoolExecutor(1, "ffrecord-fetcher")

    def fetch_batch(self, dataset: Any, indices: list[int]) -> Future[tuple[int, list[Any]]]:
        """Return a future of the result of `_fetch_batch`."""
        return self._thread.submit(self._fetch, dataset, indices)

    def fetch(self, dataset: Any, index: int) -> Any:
        """Return dataset[index]."""
        return self._thread.submit(operator.getitem, dataset, index).result()

    def _fetch(self, dataset: Any, indices: list[int]) -> tuple[int, list[Any]]:
        # A killed worker then still tells what it was reading.
        self._heart.note_fetch(indices[0])
        try:
            return _fetch_batch(dataset, indices)
        finally:
            self._heart.note_fetch(None)


def _fetch_batch(dataset: Any, indices: list[int]) -> tuple[int, list[Any]]:
    """Fetch the first few of these indices together.

    Returns:
        (number of indices requested, their samples). No samples on failure: the caller then asks for each alone, and
        so finds the one that fails.
    """
    try:
        indices = first_batch(dataset, indices)
        return len(indices), fetch_together(dataset, indices)
    # Not reported here: the same samples are asked for one by one, which names the bad one.
    except Exception:
        return len(indices), []


def allows_fetch_ahead(dataset: Any) -> bool:
    """Return whether a dataset declares that a thread may ask it for samples ahead."""
    return getattr(dataset, "may_be_asked_ahead", False) is True


def first_batch(dataset: Any, indices: list[int]) -> list[int]:
    """Return the first of these indices to request at once, as the dataset wants. Without a preference, return all."""
    count = getattr(dataset, "samples_at_once", None)
    return indices if count is None else indices[: count(indices)]


def fetch_together(dataset: Any, indices: list[int]) -> list[Any]:
    """Return the samples of these indices by `__getitems__`. Return an empty list if it does not give one per index."""
    if len(indices) < FEW:
        return []  # a collated batch has one item per column: with so few indices it looks like a list of samples
    samples = dataset.__getitems__(indices)
    # Some datasets return a batch of columns here: a dict, tensors or arrays.
    return list(samples) if isinstance(samples, list | tuple) and len(samples) == len(indices) else []


class ItemSamples(TaskSamples):
    """The samples of items that the coordinator sends."""

    def __init__(self, task: ItemTask, items: Iterator[Any], function: Callable[[Any], Any] | None) -> None:
        super().__init__(task.task, _indices_of(task.indices), self._next)
        self._items, self._function = items, function

    def _next(self, index: int) -> Any:
        try:
            item = next(self._items)
        # An iterator that has raised is at its end: going on would end the task too early without an error.
        except BaseException:
            self.ended = True
            raise
        return item if self._function is None else self._function(item)

    def sample_name(self, index: int) -> str:
        return super().sample_name(index) if self._function is None else f"line {index}"


class StreamSamples(TaskSamples):
    """The samples that a pipeline makes from a name."""

    streams = True

    def __init__(self, task: int, pipeline: Callable[[str], Iterable[Any]], name: str) -> None:
        super().__init__(task, itertools.count(), self._next)
        self._pipeline, self._name = pipeline, name
        self._samples: Iterator[Any] | None = None

    def _next(self, index: int) -> Any:
        try:
            if self._samples is None:
                # Here and not earlier, so that a failure counts as one of the first sample.
                samples = self._pipeline(self._name)
                check_samples("the result of pipeline", samples)
                self._samples = iter(samples)
            return next(self._samples)
        except StopIteration:
            # Else `StopIteration` would end loops of ours as if all were well.
            raise StreamEnd from None
        except BaseException:
            self.ended = True
            raise

    def sample_name(self, index: int) -> str:
        return f"{super().sample_name(index)} of {self._name}"


class ReplayedSamples(TaskSamples):
    """The samples of a task whose first ones were already read.

    Args:
        task_samples: the task.
        first: (index, sample, exception) of each of its first samples.
    """

    def __init__(self, task_samples: TaskSamples, first: list[tuple[int, Any, Exception | None]]) -> None:
        super().__init__(
            task_samples.task, itertools.chain([index for index, _, _ in first], task_samples.indices), self._get
        )
        self._rest, self._first = task_samples, first[::-1]
        self.streams = task_samples.streams

    def _get(self, index: int) -> Any:
        # Afterwards the task goes on where reading had stopped.
        if not self._first:
            return self._rest.get(index)
        _, sample, error = self._first.pop()
        if error is not None:
            raise error
        return sample

    def sample_name(self, index: int) -> str:
        return self._rest.sample_name(index)

    @property
    def ended(self) -> bool:  # type: ignore[override]
        return self._rest.ended


class TaskOpener:
    """Opener of the tasks of a source. At most one of dataset, function and pipeline is set; none for samples as items.

    Args:
        dataset: dataset whose dataset[i] are the samples.
        function: function item → sample.
        pipeline: function name → samples.
        carrier: carrier of the items of an `ItemTask`.
        heart: heartbeat of this worker, if a thread may ask the dataset ahead; None if it may not.
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
        # Only on request: the thread runs beside the user's encoding.
        self._fetcher = SampleFetcher(heart) if heart is not None and allows_fetch_ahead(dataset) else None

    def open(self, task: Assignment) -> TaskSamples:
        """Return the samples of a task. If the dataset may be asked ahead, start to fetch the first ones."""
        task_samples = self._open(task)
        if not isinstance(task, StreamTask):
            task_samples.preassigned = task.preassigned
        return task_samples

    def _open(self, task: Assignment) -> TaskSamples:
        if isinstance(task, IndexTask):
            if hasattr(self._dataset, "__getitems__"):
                return BatchedSamples(task, self._dataset, self._fetcher)
            # `Records.fill` knows this type, and saves a Python call for each sample.
            return TaskSamples(task.task, _indices_of(task.indices), Indexed(self._dataset))
        if isinstance(task, ItemTask):
            if self._carrier is None:
                raise TypeError("items need a carrier")
            return ItemSamples(task, self._carrier.unpack(task), self._function)
        if self._pipeline is None:
            raise TypeError("a stream needs a pipeline")
        return StreamSamples(task.task, self._pipeline, task.name.decode(errors="surrogatepass"))


def _indices_of(data: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(data, np.int64).tolist()
    return numbers

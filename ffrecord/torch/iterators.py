"""torch's own loader iterators, with a count of the batches that they have yielded."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from ffrecord.errors import UserFunctionError
from ffrecord.torch.sampler_wrappers import RestSampler
from ffrecord.torch.stop_iteration import StopIterationGuard, describe_batch
from ffrecord.torch.worker_queues import LoaderView

__all__ = ["LoaderEpoch", "MultiProcessIterator", "SingleProcessIterator", "WorkersIterator"]


@dataclass
class LoaderEpoch:
    """One pass over a loader.

    Attributes:
        step: batches that `set_step` skips at its start.
        seeded, generators, default: attributes of `LoaderState`, not encoded.
        resumed: batches yielded before, in a run whose state was loaded.
        passed: batches received since, up to the last one yielded.
        over: True if the end was reached.
        told: epoch that a trainer has set, see `trainer_epoch`; None if it has set none.
        loaded: `LoaderState` that the pass goes on from, or None.
    """

    step: int
    seeded: bool
    generators: list[Any] = field(default_factory=list)
    default: Any = None
    resumed: int = 0
    passed: int = 0
    over: bool = False
    told: int | None = None
    loaded: Any = None


class ProgressKeeper(Protocol):
    """The part of a loader that knows how far it has come: `LoaderProgress` or `SamplerProgress`."""

    def has_moved(self, loader: Any, epoch: LoaderEpoch) -> bool:  # pyright: ignore[reportReturnType]
        """Tell whether the loop of `epoch`, which has delivered nothing, must begin again elsewhere."""

    def iterate(self, loader: Any, build: Callable[[], Any]) -> Any:
        """Return the iterator that `build` makes."""

    def note_begin(self, loader: Any, epoch: LoaderEpoch) -> None:
        """Note that the loop of `epoch` has delivered its first batch, or its end."""


class _CountingMixin:
    """Mixin for an iterator of torch's that keeps `epoch` up to date.

    A batch that failed to load counts as passed once a later one is yielded. Until then the epoch stands before it, so
    a state taken after the failure tries it again.
    """

    epoch: LoaderEpoch
    _sampler_iter: RestSampler
    _find_loader: Callable[[], Any] | None  # None after the first batch

    def __init__(self, loader: Any) -> None:
        self._watch(loader)
        super().__init__(loader)  # type: ignore[call-arg]

    def _watch(self, loader: Any) -> None:
        # A loader with persistent workers holds this iterator. A strong reference back would make a cycle.
        self._find_loader = weakref.ref(loader) if loader.persistent_workers else lambda: loader

    def __next__(self) -> Any:
        loader = None if self._find_loader is None else self._find_loader()
        if loader is not None:
            self._begin(loader)
        try:
            batch = super().__next__()  # type: ignore[misc]
        except StopIteration:
            self.epoch.over = True
            self._note(loader)
            raise
        self.epoch.passed = self._count_passed()
        self._note(loader)
        return batch

    def _begin(self, loader: Any) -> None:
        """Begin again if the loader was moved elsewhere while its workers read ahead."""
        keeper: ProgressKeeper = loader._ffrecord_progress
        if not keeper.has_moved(loader, self.epoch):
            return
        held, loader._iterator = loader._iterator, None  # look like a loader without workers yet
        keeper.iterate(loader, lambda: self._rebuild(loader))
        loader._iterator = held

    def _note(self, loader: Any) -> None:
        self._find_loader = None
        if loader is not None:
            loader._ffrecord_progress.note_begin(loader, self.epoch)

    def _rebuild(self, loader: Any) -> Any:
        self._stop()
        type(self).__init__(self, loader)
        return self

    def _stop(self) -> None:
        """Stop the workers of the abandoned pass, if any."""

    def __len__(self) -> int:
        length: int = super().__len__()  # type: ignore[misc]
        return length - self.epoch.resumed

    def _count_passed(self) -> int:
        raise NotImplementedError

    def skip(self) -> None:
        """Take the skipped items from the sampler now, so that it has drawn as much as when they were yielded."""
        self._sampler_iter.skip()


class GuardedFetcher:
    """The fetcher of torch's iterator, guarded so that a StopIteration from user code ends no loop.

    Args:
        fetcher: makes a batch of the indices that the sampler yields.
    """

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher

    def fetch(self, indices: Any) -> Any:
        """Return the batch of `indices`."""
        with StopIterationGuard(lambda: f"the dataset or collate_fn, for {describe_batch(indices)},"):
            return self._fetcher.fetch(indices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


class SingleProcessIterator(_CountingMixin, _SingleProcessDataLoaderIter):
    """An iterator that loads in this process."""

    def __init__(self, loader: Any) -> None:
        self._taken = 0
        with torch.device("cpu"):  # the generators are on the CPU, whatever torch's default device is
            super().__init__(loader)
        self._dataset_fetcher = GuardedFetcher(self._dataset_fetcher)

    def _next_index(self) -> Any:
        index = super()._next_index()  # type: ignore[no-untyped-call]
        self._taken += 1
        return index

    def _count_passed(self) -> int:
        return self._taken


class WorkersIterator(_MultiProcessingDataLoaderIter):
    """An iterator that loads in workers. Every batch arrives, or an error in its place."""

    def __init__(self, loader: Any) -> None:
        self._owner = os.getpid()
        with torch.device("cpu"):  # the generators are on the CPU, whatever torch's default device is
            super().__init__(LoaderView(loader))  # pyright: ignore[reportArgumentType]

    def _shutdown_workers(self) -> None:
        # A worker of another iterator may inherit this one by a fork. It cannot wait for children of its parent.
        if self._owner == os.getpid():
            _end_unreachable(self)
            super()._shutdown_workers()


class MultiProcessIterator(_CountingMixin, WorkersIterator):
    """An iterator that loads in workers, and counts batches."""

    def __init__(self, loader: Any) -> None:
        self._sent: dict[int, Any] = {}  # number of a batch that is on its way → its indices
        super().__init__(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._watch(loader.loader if isinstance(loader, LoaderView) else loader)
        self._sent.clear()
        super()._reset(loader, first_iter)

    def _next_index(self) -> Any:
        index = super()._next_index()  # type: ignore[no-untyped-call]
        self._sent[self._send_idx] = index
        return index

    def __next__(self) -> Any:
        number = self._rcvd_idx
        try:
            return super().__next__()
        except StopIteration:
            raise
        except Exception as error:
            # The error and torch's frames, which hold this iterator, refer to each other. The garbage collector could
            # close the queues to the workers first; then torch would wait 5 s for each worker.
            _drop_frames(error)
            if type(error) is UserFunctionError and number in self._sent:
                raise UserFunctionError(f"{describe_batch(self._sent[number])}: {error}") from error.__cause__
            raise error from error.__cause__
        finally:
            self._sent.pop(number, None)

    def _stop(self) -> None:
        self._shutdown_workers()

    def _count_passed(self) -> int:
        # The number of the first task that has not come back; tasks are sent to workers in order.
        passed: int = self._rcvd_idx
        return passed


def _end_unreachable(iterator: Any) -> None:
    """End the workers that cannot be told to end: of an iterator in a cycle of garbage, whose queues are closed first.

    torch would wait 5 s for each of them.
    """
    # An iterator that could not be made lacks these.
    pairs = zip(getattr(iterator, "_workers", ()), getattr(iterator, "_index_queues", ()), strict=False)
    for worker, tasks in pairs:
        close = getattr(tasks, "_close", None)
        if close is not None and not close.still_active() and worker.is_alive():
            worker.terminate()


def _drop_frames(error: BaseException | None) -> None:
    """Drop the traceback of an error and of its causes. The traceback of a worker is in the message."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__

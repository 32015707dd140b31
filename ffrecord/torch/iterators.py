"""torch's own loader iterators, with a count of the batches that were handed out."""

import os
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from ffrecord.torch.skipping import Rest

__all__ = ["Epoch", "MultiProcessIterator", "SingleProcessIterator"]


@dataclass
class Epoch:
    """One pass over a loader.

    Attributes:
        step: what `set_step` skips at its start.
        seeded, generators, default: as in `LoaderState`; not encoded.
        resumed: batches yielded before, in a run whose state was loaded.
        passed: batches that came and went since, up to the last one yielded.
        over: whether the end was reached.
    """

    step: int
    seeded: bool
    generators: list[Any] = field(default_factory=list)
    default: Any = None
    resumed: int = 0
    passed: int = 0
    over: bool = False


class _Counting:
    """Mixin for an iterator of torch's: keeps `epoch` up to date.

    A batch that failed to load is passed once a later one is yielded. Until then the epoch stands before it, so that a
    state taken on failure tries it again.
    """

    epoch: Epoch
    _sampler_iter: Rest

    def __next__(self) -> Any:
        try:
            batch = super().__next__()  # type: ignore[misc]
        except StopIteration:
            self.epoch.over = True
            raise
        self.epoch.passed = self._passed()
        return batch

    def __len__(self) -> int:
        length: int = super().__len__()  # type: ignore[misc]
        return length - self.epoch.resumed

    def _passed(self) -> int:
        raise NotImplementedError

    def skip(self) -> None:
        """Take from the sampler what is skipped: then it has drawn what it had when that was yielded."""
        self._sampler_iter.skip()


class SingleProcessIterator(_Counting, _SingleProcessDataLoaderIter):
    """Loads in this process."""

    _taken = 0

    def _next_index(self) -> Any:
        index = super()._next_index()  # type: ignore[no-untyped-call]
        self._taken += 1
        return index

    def _passed(self) -> int:
        return self._taken


class MultiProcessIterator(_Counting, _MultiProcessingDataLoaderIter):
    """Loads in workers."""

    def __init__(self, loader: Any) -> None:
        self._owner = os.getpid()
        super().__init__(loader)

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            raise
        except Exception as error:
            # torch's frames, which hold this iterator, and the error refer to each other. The garbage collector would
            # close the queues to the workers first, and then each of them be waited for 5 s.
            _drop_frames(error)
            raise error from error.__cause__

    def _shutdown_workers(self) -> None:
        # The workers of another iterator may inherit this one; they cannot wait for what are not their children.
        if self._owner == os.getpid():
            super()._shutdown_workers()

    def _passed(self) -> int:
        # Of the tasks sent to workers in order, the first that has not come back.
        passed: int = self._rcvd_idx
        return passed


def _drop_frames(error: BaseException | None) -> None:
    """Take the traceback from an error and its causes; a worker's is in the message."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__

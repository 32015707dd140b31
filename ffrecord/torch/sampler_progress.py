"""Progress of a loader with a sampler of this package: its state is a position, which it reaches without replay."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch.utils.data import BatchSampler as TorchBatchSampler

from ffrecord.errors import StateError
from ffrecord.order import Run
from ffrecord.order.batch_plan import batches
from ffrecord.torch.iterators import LoaderEpoch
from ffrecord.torch.sampler_wrappers import SkipableSampler
from ffrecord.torch.samplers import BatchSampler, RunProgress, Sampler, place_in, position_after

__all__ = ["SamplerProgress", "index_source", "sampler_of"]

Loader: TypeAlias = "torch.utils.data.DataLoader[Any]"


def sampler_of(loader: Loader) -> Sampler | None:
    """Return our sampler that decides the order of `loader`, if its batches can be counted in samples; else None."""
    inside = index_source(loader)
    if isinstance(inside, BatchSampler):
        return inside.sampler
    if type(inside) is TorchBatchSampler:
        inside = inside.sampler
    return inside if isinstance(inside, Sampler) else None


def index_source(loader: Loader) -> Any:
    """Return the sampler that `loader` was made with: of batches, or of single samples."""
    inside: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    return inside.sampler if isinstance(inside, SkipableSampler) else inside


class WatchedSampler(Iterable[Any]):
    """The index sampler of a loader, which notes the iteration of our sampler that each of its iterators draws from.

    Args:
        indices: the index sampler.
        sampler: our sampler, which decides its order.

    Attributes:
        latest: the iterator that was begun last.
    """

    def __init__(self, indices: Iterable[Any], sampler: Sampler) -> None:
        self._indices, self._sampler = indices, sampler
        self.latest: WatchedIterator | None = None

    def __iter__(self) -> Iterator[Any]:
        self.latest = WatchedIterator(iter(self._indices), self._sampler)
        return self.latest

    def __len__(self) -> int:
        return len(self._indices)  # type: ignore[arg-type]


class WatchedIterator(Iterator[Any]):
    """One iterator of `WatchedSampler`.

    Attributes:
        drawn: the iteration that it draws from, or None before the first item.
    """

    def __init__(self, items: Iterator[Any], sampler: Sampler) -> None:
        self._items, self._sampler = items, sampler
        self.drawn: RunProgress | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_items": iter(())}  # a copy in another process draws nothing; generators do not pickle

    def __next__(self) -> Any:
        if self.drawn is not None:
            return next(self._items)
        sampler = self._sampler
        sampler.reports = True
        before = sampler._drawn
        try:
            return next(self._items)
        finally:
            sampler.reports = False
            self.drawn = None if sampler._drawn is before else sampler._drawn


class SamplerProgress:
    """The progress of one loader with a sampler of this package. It has the methods of `LoaderProgress`.

    Args:
        indices: the loader's index sampler.
        sampler: our sampler, which decides its order.

    Attributes:
        indices: the index sampler, watched.
        epoch: the last epoch that was begun, or None.
    """

    loaded = None  # a loaded state goes to the sampler at once

    def __init__(self, indices: Iterable[Any], sampler: Sampler) -> None:
        self.indices = WatchedSampler(indices, sampler)
        self.epoch: LoaderEpoch | None = None
        self._sampler = sampler
        self._iterator: WatchedIterator | None = None
        # The loop before the latest iterator; it counts until that iterator has drawn something.
        self._before: tuple[LoaderEpoch, RunProgress] | None = None

    def iterate(self, loader: Loader, build: Callable[[], Any]) -> Any:
        """Return the iterator that `build` makes, for an epoch that begins here."""
        self._give_up()
        if self.epoch is not None and self._drawn is not None:
            self._before = self.epoch, self._drawn
        iterator = build()
        self._iterator = self.indices.latest
        iterator.epoch = self.epoch = LoaderEpoch(0, seeded=False)
        return iterator

    def has_moved(self, loader: Loader, epoch: LoaderEpoch) -> bool:
        """Tell whether the sampler was set to another place after the iterator of `epoch` had begun to read ahead."""
        return self.epoch is epoch and self._drawn is not None and self._sampler._drawn is None

    def note_begin(self, loader: Loader, epoch: LoaderEpoch) -> None:
        """Note that the loop of `epoch` has delivered its first batch, or its end."""
        if self.epoch is epoch and self._drawn is not None and not self._drawn.counts:
            self._drawn.count()

    @property
    def _drawn(self) -> RunProgress | None:
        """The iteration that the latest iterator draws from; None before its first item."""
        return None if self._iterator is None else self._iterator.drawn

    def state(self, loader: Loader) -> dict[str, Any]:
        """Return the position of `loader`.

        Raises:
            RuntimeError: `set_step` was called, so not all batches are counted.
        """
        step = loader.batch_sampler.step if isinstance(loader.batch_sampler, SkipableSampler) else 0
        if step:
            raise StateError(f"set_step({step}) and a state would both say where to begin: set_step(0) first")
        sampler, epoch, drawn = self._sampler, self.epoch, self._drawn
        if drawn is None and self._before is not None:
            epoch, drawn = self._before
        sampler._ranks.follow(sampler._cursor, provisional=True)
        if sampler._again:
            return sampler.state_dict()
        if epoch is None or drawn is None or epoch.over or sampler._drawn is None:
            return sampler._cursor.state_dict()
        position = self._position_after(loader, drawn.run, epoch.passed) if epoch.passed else drawn.run.position
        return {**sampler._cursor.state_dict(), **place_in(drawn.run, position)}

    def load(self, loader: Loader, state: dict[str, Any]) -> None:
        """Let the next epoch go on from `state`.

        Raises:
            ValueError: it is not a state of such a sampler.
        """
        self._sampler.load_state_dict(state)

    def _give_up(self) -> None:
        """Forget an iteration that has delivered nothing: it does not count."""
        if self.epoch is not None and self._drawn is not None and not self.epoch.passed and not self.epoch.over:
            self._sampler.take_back(self._drawn)

    def _position_after(self, loader: Loader, run: Run, passed: int) -> int:
        """Return the position after `passed` batches, one or more."""
        inside = index_source(loader)
        if isinstance(inside, BatchSampler):
            return run[passed - 1].after
        size, drop_last = (1, False) if isinstance(inside, Sampler) else (inside.batch_size, inside.drop_last)
        if passed == batches(run.split.count(run.epoch.length, run.position), size, drop_last):
            return run.epoch.length
        return position_after(run, passed * size)

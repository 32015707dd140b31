"""How far a loader has come whose sampler is one of ours: its state is a place in an epoch, reached without replay."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch.utils.data import BatchSampler as TorchBatchSampler

from ffrecord.errors import StateError
from ffrecord.order import Run
from ffrecord.order.run import batches
from ffrecord.torch.iterators import Epoch
from ffrecord.torch.samplers import BatchSampler, Drawn, Sampler, place_in, position_after
from ffrecord.torch.skipping import SkipableSampler

__all__ = ["Following", "sampler_of"]

Loader: TypeAlias = "torch.utils.data.DataLoader[Any]"


def sampler_of(loader: Loader) -> Sampler | None:
    """The sampler of ours that decides the order of `loader`, as far as its batches can be counted in samples."""
    inside = _inside(loader)
    if isinstance(inside, BatchSampler):
        return inside.sampler
    if type(inside) is TorchBatchSampler:
        inside = inside.sampler
    return inside if isinstance(inside, Sampler) else None


def _inside(loader: Loader) -> Any:
    inside: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    return inside.sampler if isinstance(inside, SkipableSampler) else inside


class Following:
    """Of one loader; as `Progress`, whose place it takes.

    Args:
        indices: the loader's index sampler.
        sampler: of ours, that decides its order.

    Attributes:
        indices: as given.
        epoch: the one begun last, or None.
    """

    loaded = None  # a state is the sampler's as soon as it is loaded

    def __init__(self, indices: Iterable[Any], sampler: Sampler) -> None:
        self.indices = indices
        self.epoch: Epoch | None = None
        self._sampler = sampler
        self._drawn: Drawn | None = None

    def iterate(self, loader: Loader, build: Callable[[], Any]) -> Any:
        """The iterator that `build` makes, for an epoch that begins here."""
        # Iterations that draw nothing do not count, so those that the iterator begins begin here.
        self._drawn = self._sampler.begin()
        iterator = build()
        iterator.epoch = self.epoch = Epoch(0, seeded=False)
        return iterator

    def state(self, loader: Loader) -> dict[str, Any]:
        """Where `loader` stands.

        Raises:
            RuntimeError: `set_step` was called, so batches are not all counted.
        """
        step = loader.batch_sampler.step if isinstance(loader.batch_sampler, SkipableSampler) else 0
        if step:
            raise StateError(f"set_step({step}) and a state would both say where to begin: set_step(0) first")
        epoch, drawn = self.epoch, self._drawn
        if epoch is None or drawn is None or not self._is_within():
            return self._sampler._course.state_dict()
        run = drawn.run
        position = self._after(loader, run, epoch.passed) if epoch.passed else run.position
        return {**self._sampler._course.state_dict(), **place_in(run, position)}

    def load(self, loader: Loader, state: dict[str, Any]) -> None:
        """Let the next epoch go on from `state`.

        Raises:
            ValueError: it is not a state of such a sampler.
        """
        self._sampler.load_state_dict(state)

    def _is_within(self) -> bool:
        """Whether an epoch is in progress, and nobody has told the sampler to go elsewhere since."""
        if self.epoch is None or self.epoch.over or self._drawn is None:
            return False
        return self._sampler._drawn is not None

    def _after(self, loader: Loader, run: Run, passed: int) -> int:
        """The position after so many batches, one or more."""
        inside = _inside(loader)
        if isinstance(inside, BatchSampler):
            return run[passed - 1].after
        size, drop_last = (1, False) if isinstance(inside, Sampler) else (inside.batch_size, inside.drop_last)
        if passed == batches(run.split.count(run.epoch.length, run.position), size, drop_last):
            return run.epoch.length
        return position_after(run, passed * size)

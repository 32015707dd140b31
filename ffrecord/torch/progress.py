"""How far a loader has come: the epoch it is in, and the state that the next one begins from."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch

from ffrecord.errors import ArgumentError
from ffrecord.torch.iterators import Epoch
from ffrecord.torch.skipping import SkipableSampler, length_of
from ffrecord.torch.state import VERSION, Generators, LoaderState, decode, encode

__all__ = ["Progress"]

Loader: TypeAlias = "torch.utils.data.DataLoader[Any]"


class Progress:
    """Of one loader, which each method is given: a reference kept here would be a cycle, and keep its workers alive.

    Args:
        indices: the loader's index sampler.

    Attributes:
        indices: `indices`, less what a loaded state has behind it while iteration begins. Persistent workers keep the
            object they start with, so it stays the same.
        epoch: the one begun last, or None.
        loaded: the state that waits for the next one to begin, or None.
    """

    def __init__(self, indices: Iterable[Any]) -> None:
        self.indices = SkipableSampler(indices)
        self.epoch: Epoch | None = None
        self.loaded: LoaderState | None = None

    def iterate(self, loader: Loader, build: Callable[[], Any]) -> Any:
        """The iterator that `build` makes, for an epoch that begins here."""
        if self.loaded is None:
            epoch, iterator = _next_epoch(loader), build()
        else:
            epoch, iterator = self._resume(loader, self.loaded, build)
        iterator.epoch = self.epoch = epoch
        self.loaded = None
        return iterator

    def state(self, loader: Loader) -> dict[str, Any]:
        """Where `loader` stands."""
        return self._state(loader).to_builtins()

    def _state(self, loader: Loader) -> LoaderState:
        if self.loaded is not None:
            return self.loaded
        epoch = _next_epoch(loader) if self.epoch is None or self.epoch.over else self.epoch
        yielded = epoch.resumed + epoch.passed
        within = yielded > 0 and epoch.default is not None
        return LoaderState(
            version=VERSION,
            samples=length_of(loader.dataset),
            batches=self._batches(loader),
            step=epoch.step,
            yielded=yielded,
            seeded=epoch.seeded,
            generators=[encode(state) for state in epoch.generators],
            default=None if epoch.default is None else encode(epoch.default),
            default_now=encode(torch.default_generator.get_state()) if within else None,
        )

    def load(self, loader: Loader, state_dict: dict[str, Any]) -> None:
        """Let the next epoch go on from a state.

        Raises:
            ValueError (also AssertionError): it is not a state of such a loader.
        """
        state = LoaderState.from_builtins(state_dict)
        generators = Generators(loader)
        batches, own = self._batches(loader), len(generators.own)
        state.check(length_of(loader.dataset), batches, own, default=generators.default)
        if isinstance(loader.batch_sampler, SkipableSampler):
            loader.batch_sampler.set_step(state.step)
        elif state.step:
            raise ArgumentError(f"state of a loader with set_step({state.step}), this one is not skippable")
        self.loaded = state

    def _batches(self, loader: Loader) -> int | None:
        """Batches of an epoch without skipping; None if unknown."""
        length = length_of(self.indices)
        return None if length is None else length + _step(loader)

    def _resume(self, loader: Loader, state: LoaderState, build: Callable[[], Any]) -> tuple[Epoch, Any]:
        """The epoch of `state`, and an iterator that goes on in it."""
        before = torch.default_generator.get_state()
        generators = Generators(loader)
        generators.restore(state.generators, state.default)
        epoch = Epoch(state.step, state.seeded, *generators.capture(), resumed=state.yielded)
        self.indices.step = state.yielded
        try:
            with _base_seed(loader, wanted=state.seeded):
                iterator = build()
        finally:
            self.indices.step = 0
        if state.yielded:
            # The default generator goes on from where it was when the batches behind had been drawn, and yielded.
            iterator.skip()
            torch.default_generator.set_state(decode(state.default_now) if state.default_now else before)
        return epoch, iterator


def _step(loader: Loader) -> int:
    return loader.batch_sampler.step if isinstance(loader.batch_sampler, SkipableSampler) else 0


def _draws_base_seed(loader: Loader) -> bool:
    """Whether torch draws a base seed for the workers of the next epoch: not for workers that are there already."""
    return loader._iterator is None


def _next_epoch(loader: Loader) -> Epoch:
    return Epoch(_step(loader), _draws_base_seed(loader), *Generators(loader).capture())


@contextlib.contextmanager
def _base_seed(loader: Loader, *, wanted: bool) -> Iterator[None]:
    """Make the next epoch draw a base seed, or not, from the generators that decide the order."""
    generator = loader.generator
    if wanted and not _draws_base_seed(loader):
        torch.empty((), dtype=torch.int64).random_(generator=generator)
    if not wanted:
        loader.generator = torch.Generator()
    try:
        yield
    finally:
        loader.generator = generator

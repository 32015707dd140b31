"""Progress of a loader: the epoch it is in, and its position as plain data that goes through JSON and back.

The order of an epoch follows from the random generators at its start. So the state has these, and the number of batches
yielded since. It never has indices: its size does not depend on the dataset's.
"""

import base64
import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeAlias

import msgspec
import torch
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ffrecord.errors import ArgumentError
from ffrecord.order.state import convert_state
from ffrecord.torch.iterators import LoaderEpoch
from ffrecord.torch.sampler_wrappers import SkipableSampler, length_of
from ffrecord.torch.trainer_epoch import decides_order, set_trainer_epoch, trainer_epoch

__all__ = ["LoaderProgress"]

STATE_VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]

# Samplers that draw nothing from torch's default generator.
SILENT = (SequentialSampler, DistributedSampler)
Loader: TypeAlias = "torch.utils.data.DataLoader[Any]"


class LoaderState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A position between two batches.

    Attributes:
        version: version of this layout.
        samples: number of samples of the dataset, None if it has no length.
        batches: number of batches of an epoch without skipping, None if the sampler has no length.
        step: number that `set_step` set.
        yielded: batches yielded this epoch after the first `step`; 0 between epochs.
        seeded: True if the epoch begins by drawing the workers' base seed, as torch does unless workers persist.
        generators: state at the start of the epoch of each generator that takes part in the order.
        default: state of torch's default generator at the start of the epoch, None if it takes no part.
        default_now: state of torch's default generator when this state was taken within an epoch.
        told: epoch that a trainer has set, in states within an epoch; left out if none was set.
    """

    version: int
    samples: Count | None
    batches: Count | None
    step: Count
    yielded: Count
    seeded: bool
    generators: list[str]
    default: str | None
    default_now: str | None
    told: int | None = None

    @property
    def finished(self) -> bool:
        """True if all batches of the epoch were yielded."""
        return self.batches is not None and self.yielded > 0 and self.step + self.yielded == self.batches

    @classmethod
    def from_builtins(cls, state: Any) -> "LoaderState":
        """Return the state that `to_builtins` described.

        Raises:
            ValueError: the version is another one, or `state` is not a state.
        """
        converted = convert_state(state, cls, STATE_VERSION, "a DataLoader")
        for text in (*converted.generators, converted.default, converted.default_now):
            if text is not None:
                decode_generator(text)
        return converted

    def to_builtins(self) -> dict[str, Any]:
        """Return the state as a dict that JSON can hold."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins

    def check(self, samples: int | None, batches: int | None, generators: int, *, default: bool) -> None:
        """Check that a loader of these numbers can go on from here.

        Args:
            samples, batches: the numbers of the loader; see the attributes.
            generators: number of generators that take part in the loader's order.
            default: True if torch's default generator takes part.

        Raises:
            ValueError: the dataset, the batch size or the way to shuffle differs, or the position is outside the epoch.
        """
        for name, ours, theirs in (
            ("samples in the dataset", samples, self.samples),
            ("batches in an epoch", batches, self.batches),
            ("generators", generators, len(self.generators)),
            ("shuffling by torch's default generator", default, self.default is not None),
        ):
            if ours != theirs:
                raise ArgumentError(f"the state belongs to another loader: {name}: {theirs} in the state, {ours} here")
        if batches is not None and self.step + self.yielded > batches:
            raise ArgumentError(f"the state is at batch {self.step + self.yielded}, but an epoch has {batches}")


class Generators:
    """The random generators that decide a loader's order.

    Args:
        loader: the loader. Its attribute `generator` counts, and those of the samplers inside it.

    Attributes:
        own: generators of the user, in a fixed order.
        default: True if a sampler may draw from torch's default generator.
    """

    def __init__(self, loader: object) -> None:
        self.own: list[torch.Generator] = []
        self.default = False
        self._add(loader)

    def _add(self, node: object) -> None:
        generator = getattr(node, "generator", None)
        inside = [getattr(node, name, None) for name in ("sampler", "batch_sampler")]
        if generator is torch.default_generator:
            self.default = True
        elif isinstance(generator, torch.Generator):
            if not any(generator is known for known in self.own):
                self.own.append(generator)
        elif all(each is None for each in inside) and not isinstance(node, SILENT):
            self.default = True
        for sampler in inside:
            if sampler is not None:
                self._add(sampler)

    def capture(self) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """Return the states of `own`, and of torch's default generator if it takes part."""
        return [own.get_state() for own in self.own], torch.default_generator.get_state() if self.default else None

    def restore(self, generators: list[str], default: str | None) -> None:
        """Set these generators to encoded states."""
        self.put_back(list(map(decode_generator, generators)), None if default is None else decode_generator(default))

    def put_back(self, generators: list[torch.Tensor], default: torch.Tensor | None) -> None:
        """Set these generators to states that `capture` returned."""
        if default is not None:
            torch.default_generator.set_state(default)
        for own, state in zip(self.own, generators, strict=True):
            own.set_state(state)


def encode_generator(state: torch.Tensor) -> str:
    """Return a generator's state as text, about 4 KB."""
    return base64.b64encode(zlib.compress(bytes(state.numpy()))).decode("ascii")


def decode_generator(text: str) -> torch.Tensor:
    """Return the generator's state that `encode` converted to text.

    Raises:
        ValueError: the text is damaged.
    """
    try:
        return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text, validate=True))), dtype=torch.uint8)
    except (ValueError, zlib.error) as error:
        raise ArgumentError(f"this is not the state of a generator: {error}") from None


class LoaderProgress:
    """The progress of one loader, which each method takes. A reference kept here would be a cycle, and keep workers
    alive.

    Args:
        indices: the loader's index sampler.

    Attributes:
        indices: `indices` without the items before a loaded state, while iteration begins. Persistent workers keep the
            object that they start with, so it stays the same.
        epoch: the last epoch that was begun, or None.
        loaded: the state that the next epoch begins from, until it has yielded a batch, or None.
    """

    def __init__(self, indices: Iterable[Any]) -> None:
        self.indices = SkipableSampler(indices)
        self.epoch: LoaderEpoch | None = None
        self.loaded: LoaderState | None = None
        self._fresh = True  # nothing was delivered or loaded yet

    def iterate(self, loader: Loader, build: Callable[[], Any]) -> Any:
        """Return the iterator that `build` makes, for an epoch that begins here."""
        state, now = self.loaded, trainer_epoch(loader)
        if state is None and not self._is_behind(loader, now):
            epoch, iterator = _next_epoch(loader), build()
        elif state is None:
            self._catch_up(loader, now or 0)
            epoch, iterator = _later_epoch(loader, build)
        elif _is_next(state, now):
            self._replay(loader, state)
            epoch, iterator = _later_epoch(loader, build)
        else:
            epoch, iterator = self._resume(loader, state, build)
        epoch.told, epoch.loaded = now, state
        iterator.epoch = self.epoch = epoch
        return iterator

    def has_moved(self, loader: Loader, epoch: LoaderEpoch) -> bool:
        """Tell whether the batches that the iterator of `epoch` has read ahead are no longer wanted.

        A state may have been loaded since, or another epoch set.
        """
        if self.epoch is not epoch:
            return False
        now = trainer_epoch(loader)
        if self.loaded is not epoch.loaded:
            return True
        return now != epoch.told and (self.loaded is not None or decides_order(loader) or self._is_behind(loader, now))

    def note_begin(self, loader: Loader, epoch: LoaderEpoch) -> None:
        """Note that the loop of `epoch` has delivered its first batch, or its end."""
        self._fresh = False
        if self.epoch is epoch:
            self.loaded, epoch.told = None, trainer_epoch(loader)

    def _is_behind(self, loader: Loader, now: int | None) -> bool:
        """Tell whether a trainer has set a later epoch than the first, and this loader has not delivered anything yet.

        Lightning does not load the state of a loader if an epoch had ended: it only sets the next one.
        """
        return self._fresh and bool(now) and not decides_order(loader)

    def _catch_up(self, loader: Loader, now: int) -> None:
        """Draw the random numbers of the epochs before `now`, which this process has not run."""
        epoch = self.epoch or _next_epoch(loader)  # an epoch that was begun and has delivered nothing is undone
        Generators(loader).put_back(epoch.generators, epoch.default)
        for number in range(now):
            if number == 0 or not loader.persistent_workers:
                _draw_base_seed(loader)
            next(iter(self.indices.sampler), None)  # samplers draw all numbers of an epoch before the first index

    def state(self, loader: Loader) -> dict[str, Any]:
        """Return the position of `loader`."""
        return self._state(loader).to_builtins()

    def _state(self, loader: Loader) -> LoaderState:
        if self.loaded is not None:
            return self.loaded
        epoch = _next_epoch(loader) if self.epoch is None or self.epoch.over else self.epoch
        yielded = epoch.resumed + epoch.passed
        within = yielded > 0 and epoch.default is not None
        return LoaderState(
            version=STATE_VERSION,
            samples=length_of(loader.dataset),
            batches=self._batches(loader),
            step=epoch.step,
            yielded=yielded,
            seeded=epoch.seeded,
            generators=[encode_generator(state) for state in epoch.generators],
            default=None if epoch.default is None else encode_generator(epoch.default),
            default_now=encode_generator(torch.default_generator.get_state()) if within else None,
            told=epoch.told if yielded else None,
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
            raise ArgumentError(
                f"the state is that of a loader with set_step({state.step}), but this one is not skippable"
            )
        self.loaded, self._fresh = state, False
        if state.told is not None:
            set_trainer_epoch(loader, state.told + state.finished)

    def _batches(self, loader: Loader) -> int | None:
        """Return the number of batches of an epoch without skipping; None if unknown."""
        length = length_of(self.indices)
        return None if length is None else length + _step(loader)

    def _replay(self, loader: Loader, state: LoaderState) -> None:
        """Set the generators to their state after the epoch of `state`, or at the place where that epoch was left."""
        before = torch.default_generator.get_state()
        Generators(loader).restore(state.generators, state.default)
        if state.seeded:
            _draw_base_seed(loader)
        ahead = (loader.prefetch_factor or 0) * loader.num_workers
        drawn = None if state.finished else state.yielded + ahead
        for _ in itertools.islice(self.indices.sampler, drawn):
            pass
        torch.default_generator.set_state(decode_generator(state.default_now) if state.default_now else before)

    def _resume(self, loader: Loader, state: LoaderState, build: Callable[[], Any]) -> tuple[LoaderEpoch, Any]:
        """Return the epoch of `state`, and an iterator that goes on in it."""
        before = torch.default_generator.get_state()
        generators = Generators(loader)
        generators.restore(state.generators, state.default)
        epoch = LoaderEpoch(state.step, state.seeded, *generators.capture(), resumed=state.yielded)
        self.indices.step = state.yielded
        try:
            with _base_seed(loader, wanted=state.seeded):
                iterator = build()
        finally:
            self.indices.step = 0
        if state.yielded:
            # Draw the skipped batches now, then set the default generator to its state after they had been yielded.
            iterator.skip()
            torch.default_generator.set_state(decode_generator(state.default_now) if state.default_now else before)
        return epoch, iterator


def _is_next(state: LoaderState, now: int | None) -> bool:
    """Tell whether the loop after loading `state` is the next epoch, not the rest of that one.

    Args:
        state: the loaded state.
        now: the epoch that was set. Loading sets the state's epoch, or the one after it if that was finished.
    """
    if state.told is None:
        return state.finished
    return now != state.told


def _step(loader: Loader) -> int:
    return loader.batch_sampler.step if isinstance(loader.batch_sampler, SkipableSampler) else 0


def _draws_base_seed(loader: Loader) -> bool:
    """Tell whether torch draws a base seed for the workers of the next epoch; not if they persist from before."""
    return loader._iterator is None


def _draw_base_seed(loader: Loader) -> None:
    torch.empty((), dtype=torch.int64, device="cpu").random_(generator=loader.generator)


def _next_epoch(loader: Loader) -> LoaderEpoch:
    return LoaderEpoch(_step(loader), _draws_base_seed(loader), *Generators(loader).capture())


def _later_epoch(loader: Loader, build: Callable[[], Any]) -> tuple[LoaderEpoch, Any]:
    """Return an epoch that is not the first one of its run, and its iterator; the generators stay where they are."""
    # Persistent workers got their seed in the first epoch.
    seeded = not loader.persistent_workers
    epoch = LoaderEpoch(_step(loader), seeded, *Generators(loader).capture())
    with _base_seed(loader, wanted=seeded):
        return epoch, build()


@contextlib.contextmanager
def _base_seed(loader: Loader, *, wanted: bool) -> Iterator[None]:
    """Make the next epoch draw a base seed, or not, from the generators that decide the order."""
    generator = loader.generator
    if wanted and not _draws_base_seed(loader):
        _draw_base_seed(loader)
    if not wanted:
        loader.generator = torch.Generator()
    try:
        yield
    finally:
        loader.generator = generator

"""The position of a loader, as plain data that goes through JSON and back.

The order of an epoch follows from the random generators at its start. So the state has these, and the number of batches
yielded since. It never has indices: its size does not depend on the dataset's.
"""

import base64
import zlib
from typing import Annotated, Any

import msgspec
import torch
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ffrecord.errors import ArgumentError
from ffrecord.order.state import convert_state

__all__ = ["VERSION", "Generators", "LoaderState"]

VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]

# Samplers that draw nothing from torch's default generator.
SILENT = (SequentialSampler, DistributedSampler)


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
        converted = convert_state(state, cls, VERSION, "a DataLoader")
        for text in (*converted.generators, converted.default, converted.default_now):
            if text is not None:
                decode(text)
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
        self.put_back(list(map(decode, generators)), None if default is None else decode(default))

    def put_back(self, generators: list[torch.Tensor], default: torch.Tensor | None) -> None:
        """Set these generators to states that `capture` returned."""
        if default is not None:
            torch.default_generator.set_state(default)
        for own, state in zip(self.own, generators, strict=True):
            own.set_state(state)


def encode(state: torch.Tensor) -> str:
    """Return a generator's state as text, about 4 KB."""
    return base64.b64encode(zlib.compress(bytes(state.numpy()))).decode("ascii")


def decode(text: str) -> torch.Tensor:
    """Return the generator's state that `encode` converted to text.

    Raises:
        ValueError: the text is damaged.
    """
    try:
        return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text, validate=True))), dtype=torch.uint8)
    except (ValueError, zlib.error) as error:
        raise ArgumentError(f"this is not the state of a generator: {error}") from None

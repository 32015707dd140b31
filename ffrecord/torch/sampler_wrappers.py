"""Samplers around a sampler: one without its first items, and one that makes each item a list."""

import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import Sampler

from ffrecord.errors import ArgumentError

__all__ = ["RestSampler", "SingleIndexSampler", "SkipableSampler", "length_of"]


class SkipableSampler(Sampler[Any]):
    """A sampler without its first `step` items. Other attributes, such as `set_epoch`, come from the sampler inside.

    Args:
        sampler: any sampler or batch sampler.

    Attributes:
        sampler: the sampler inside.
        step: number of items that each iteration leaves out.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler
        self.step = 0

    def set_step(self, step: int) -> None:
        """Leave out the first `step` items from the next iteration on.

        Raises:
            ValueError (also AssertionError): not 0 <= step <= number of items.
        """
        number, total = operator.index(step), length_of(self.sampler)
        if number < 0 or (total is not None and number > total):
            limit = "" if total is None else f" <= {total}"
            raise ArgumentError(f"step is {number}, expected 0 <= step{limit}")
        self.step = number

    def __iter__(self) -> "RestSampler":
        return RestSampler(iter(self.sampler), self.step)

    def __len__(self) -> int:
        return len(self.sampler) - self.step  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sampler":  # copy and pickle ask before `sampler` is set
            raise AttributeError(name)
        return getattr(self.sampler, name)


class RestSampler(Iterator[Any]):
    """`items` without the first `step`.

    The first items are taken together with the first of the rest, not before. torch draws the workers' base seed
    between iter() and the first item, and both may use one generator.
    """

    def __init__(self, items: Iterator[Any], step: int) -> None:
        self._items, self._step = items, step

    def skip(self) -> None:
        """Take the first `step` items now, unless they were taken before."""
        step, self._step = self._step, 0
        for _ in itertools.islice(self._items, step):
            pass

    def __next__(self) -> Any:
        if self._step:
            self.skip()
        return next(self._items)


class SingleIndexSampler(Sampler[list[Any]]):
    """Each index of a sampler as a list of one, for datasets that take lists. Lists stay as they are."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[Any]]:
        return (index if isinstance(index, list) else [index] for index in iter(self.sampler))

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]


def length_of(sized: Any) -> int | None:
    """Return the length of `sized`; None if it has none."""
    try:
        return len(sized)
    except TypeError:
        return None

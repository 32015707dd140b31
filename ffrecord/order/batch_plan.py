"""One rank's way from a position to the end of an epoch, planned batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ffrecord.errors import SampleIndexError
from ffrecord.order.orders import Order
from ffrecord.order.split import Split

__all__ = ["Epoch", "Run", "Step", "batches"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One batch of one rank, planned. The arrays are its own.

    Attributes:
        epoch: that it belongs to.
        positions: int64 [k], places in the epoch's order, k >= 1.
        indices: int64 [k], the samples there.
        padding: the last so many of them are padding, which evaluation leaves out.
        last: no batch of this rank follows in this epoch.
        after: the position of a run in which every rank has yielded this batch.
        run: number of the `Run` it comes from.
    """

    epoch: int
    positions: Integers
    indices: Integers
    padding: int
    last: bool
    after: int
    run: int


@dataclass(frozen=True)
class Epoch:
    """All that decides which sample is where.

    Attributes:
        order: that it is in.
        samples: that the order runs over.
        seed: of the order.
        number: which epoch this is.
        filter: int64 [samples], indices into the dataset; None if the order runs over the dataset itself.
    """

    order: Order
    samples: int
    seed: int
    number: int
    filter: Integers | None

    @property
    def length(self) -> int:
        """Positions in it."""
        return self.order.length(self.samples)

    def indices(self, positions: Integers) -> Integers:
        """int64 [k] positions → int64 [k] samples of the dataset, a new array."""
        found: Integers = self.order.indices(positions, self.samples, self.seed, self.number)
        return found if self.filter is None else self.filter[found]


class Run:
    """The batches of one rank from a position to the end of its epoch.

    It is an iterator of `Step`, and gives any of them at once as `run[j]`, at the same cost anywhere in the epoch.
    `Course.steps` makes it. Nothing but `next` changes it.

    Attributes:
        epoch, split, position, batch_size: what it was made of.
        number: tells it from other runs of the same course.
    """

    def __init__(
        self, epoch: Epoch, split: Split, position: int, batch_size: int, drop_last: bool, number: int
    ) -> None:
        self.epoch, self.split, self.position, self.batch_size, self.number = epoch, split, position, batch_size, number
        self._length = epoch.length
        self._count = split.count(self._length, position)
        self._steps = batches(self._count, batch_size, drop_last)
        self._steps_most = batches(split.most(self._length, position), batch_size, drop_last)
        self._next = 0

    def __len__(self) -> int:
        """Batches of this rank, from the first."""
        return self._steps

    def __getitem__(self, j: int) -> Step:
        """Step j, 0 <= j < len(self)."""
        if not 0 <= j < self._steps:
            raise SampleIndexError(f"step {j} of {self._steps}")
        start = j * self.batch_size
        stop = min(start + self.batch_size, self._count)
        positions, padding = self.split.positions(self._length, self.position, start, stop)
        indices = self.epoch.indices(positions)
        last = j == self._steps - 1
        return Step(self.epoch.number, positions, indices, padding, last, self._after(j), self.number)

    def _after(self, j: int) -> int:
        # What nobody gets counts as done with the last batch. With "uneven" another rank may have one more batch.
        if j == self._steps_most - 1:
            return self._length
        return min(self._length, self.position + self.split.world_size * self.batch_size * (j + 1))

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self._next >= self._steps:
            raise StopIteration
        step = self[self._next]
        self._next += 1
        return step


def batches(count: int, batch_size: int, drop_last: bool) -> int:
    """How many batches `count` samples make."""
    return count // batch_size if drop_last else -(-count // batch_size)

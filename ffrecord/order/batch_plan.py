"""The batches of one rank from a position to the end of an epoch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ffrecord.errors import SampleIndexError
from ffrecord.order.orders import Order
from ffrecord.order.split import Split

__all__ = ["Epoch", "Run", "Step", "batches"]

Integers = npt.NDArray[np.int64]

PLANNED_MOST = 4096  # samples of the steps that are computed together


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One planned batch of one rank. Its arrays are its own.

    Attributes:
        epoch: epoch that the batch belongs to.
        positions: int64 [k], positions in the epoch's order, k >= 1.
        indices: int64 [k], samples at these positions.
        padding: number of samples at the end that are padding, which evaluation leaves out.
        last: True if no batch of this rank follows in this epoch.
        after: position of the epoch after every rank has yielded this batch.
        run: number of the `Run` that the batch comes from.
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
    """All data that decides which sample is at which position.

    Attributes:
        order: order of the samples.
        samples: number of samples that the order runs over.
        seed: seed of the order.
        number: number of the epoch.
        filter: int64 [samples], indices into the dataset; None if the order runs over the dataset itself.
    """

    order: Order
    samples: int
    seed: int
    number: int
    filter: Integers | None

    @property
    def length(self) -> int:
        """The number of positions in the epoch."""
        return self.order.length(self.samples)

    def indices(self, positions: Integers) -> Integers:
        """Return the samples of the dataset at some positions: int64 [k] → int64 [k], a new array."""
        found: Integers = self.order.indices(positions, self.samples, self.seed, self.number)
        # Two steps: the order runs over the filter's places, the filter names samples.
        return found if self.filter is None else self.filter[found]


class Run:
    """The batches of one rank from a position to the end of its epoch.

    A run is an iterator of `Step`. It also returns any step at once as `run[j]`, at the same cost anywhere in the
    epoch. `Cursor.steps` makes runs. Only `next` changes a run.

    Attributes:
        epoch, split, position, batch_size, drop_last: the arguments.
        number: number that distinguishes the runs of a cursor.
    """

    def __init__(
        self, epoch: Epoch, split: Split, position: int, batch_size: int, drop_last: bool, number: int
    ) -> None:
        self.epoch, self.split, self.position, self.number = epoch, split, position, number
        self.batch_size, self.drop_last = batch_size, drop_last
        self._length = epoch.length
        self._count = split.count(self._length, position)
        self._steps = batches(self._count, batch_size, drop_last)
        # The largest number of any rank, so that all ranks count alike.
        self._steps_most = batches(split.most(self._length, position), batch_size, drop_last)
        self._next = 0
        # Small batches take less time to plan together. A tuple, because a copy of the run shares it.
        self._planned: tuple[Step, ...] = ()
        self._first = 0  # number of the first of them

    def __len__(self) -> int:
        """Return the number of batches of this rank, from the first."""
        return self._steps

    def __getitem__(self, j: int) -> Step:
        """Return step j, 0 <= j < len(self)."""
        if not 0 <= j < self._steps:
            raise SampleIndexError(f"step is {j}, expected 0 <= step < {self._steps}")
        start = j * self.batch_size
        stop = min(start + self.batch_size, self._count)
        # Only arithmetic: no step depends on the one before.
        positions, padding = self.split.positions(self._length, self.position, start, stop)
        indices = self.epoch.indices(positions)
        last = j == self._steps - 1
        return Step(self.epoch.number, positions, indices, padding, last, self._after(j), self.number)

    @property
    def done(self) -> int:
        """The number of steps that `next` has returned."""
        return self._next

    @property
    def count(self) -> int:
        """The number of samples of this rank, from the first; a smaller last batch is left out with `drop_last`."""
        return min(self._count, self._steps * self.batch_size)

    def window_stop(self, start: int) -> int:
        """Return the number of the first sample of this rank behind the window of its sample number `start`.

        Raises:
            ZeroDivisionError: the order has no windows.
        """
        positions, _ = self.split.positions(self._length, self.position, start, start + 1)
        # A window ends at its next multiple; a position at a multiple has the whole window before it.
        left = -int(positions[0]) % self.epoch.order.window_length or self.epoch.order.window_length
        return min(self.count, start + -(-left // self.split.world_size))

    def samples(self, numbers: Integers) -> Integers:
        """Return samples of this rank by their numbers from the first, ascending and < count: int64 [k] → int64 [k]."""
        first, stop = int(numbers[0]), int(numbers[-1]) + 1
        positions, _ = self.split.positions(self._length, self.position, first, stop)
        # Consecutive positions are computed together, then those wanted are picked.
        return self.epoch.indices(positions[numbers - first])

    def _after(self, j: int) -> int:
        # Positions that no rank gets count as done with the last batch. With "uneven" another rank may have one more.
        if j == self._steps_most - 1:
            return self._length
        return min(self._length, self.position + self.split.world_size * self.batch_size * (j + 1))

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self._next >= self._steps:
            raise StopIteration
        if not 0 <= self._next - self._first < len(self._planned):
            self._first, self._planned = self._next, self._plan(self._next)
        step = self._planned[self._next - self._first]
        self._next += 1
        return step

    def _plan(self, j: int) -> tuple[Step, ...]:
        """Return step j, and those after it that are computed with it: twice as many as before."""
        count = min(max(1, 2 * len(self._planned)), PLANNED_MOST // self.batch_size, self._steps - 1 - j)
        if count <= 1:
            return (self[j],)
        size, number = self.batch_size, self.epoch.number
        # A rank has at most one position of padding, which is in the last step.
        positions, _ = self.split.positions(self._length, self.position, j * size, (j + count) * size)
        indices = self.epoch.indices(positions)
        parts = [slice(i * size, (i + 1) * size) for i in range(count)]
        return tuple(
            Step(number, positions[part], indices[part], 0, False, self._after(j + i), self.number)
            for i, part in enumerate(parts)
        )


def batches(count: int, batch_size: int, drop_last: bool) -> int:
    """Return the number of batches that `count` samples make."""
    return count // batch_size if drop_last else -(-count // batch_size)

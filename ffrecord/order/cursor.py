"""One rank's way through the epochs, and the place it has reached.

Positions are counted where batches are handed to the user, not where they are planned. So a `Run` may be as far ahead
as a loader likes; the `Course` follows only by `yielded`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ArgumentError, ArgumentTypeError, SampleIndexError
from ffrecord.order.batch_plan import Epoch, Run, Step, batches
from ffrecord.order.identity import Identity
from ffrecord.order.keys import EPOCHS, LENGTH_MAX, SEEDS, check_range
from ffrecord.order.node import Placement
from ffrecord.order.orders import Order, from_builtins, parse
from ffrecord.order.sliced import alike
from ffrecord.order.split import Split
from ffrecord.order.state import VERSION, Contents, State
from ffrecord.reading.indices import as_indices

__all__ = ["Course"]

Integers = npt.NDArray[np.int64]
Filter = Iterable[SupportsIndex]


@dataclass(frozen=True)
class BegunEpoch:
    """What an epoch began with, where that is not how it is now.

    Attributes:
        identity: of the dataset.
        order: in its slices of then.
    """

    identity: Identity
    order: Order


class Course:
    """One rank's way through the epochs of a dataset.

    Args:
        identity: of the dataset.
        order: "sequential", "random", "block", or an `Order`.
        seed: of the order, 0 <= seed < 2**64.
        epoch: to begin with, 0 <= epoch < 2**63.
        batch_size: samples of this rank in a batch, >= 1.
        drop_last: leave out a last batch that is smaller.
        rank, world_size, policy: see `Split`.
        indices: int [m] in [-n, n), the samples to use of the n there are, repeats allowed; the order then is one of
            [0, m). None for all. An int64 array without negative numbers is used where it lies, so that a mapped one
            stays mapped; it must not change.
        placement: of the rank on a node, so that a node reads the same part of the dataset in every epoch; see
            `Placed`, which `order` then becomes. None: samples are dealt to ranks wherever they are.

    Attributes:
        order: of epochs that begin from now on.

    Raises:
        ValueError: out of range; nothing to yield: no samples, or fewer for each rank than a batch that may not be
            short.
        IndexError: a number in `indices` is out of range.
        TypeError: not integers, or `drop_last` no bool.

    >>> from ffrecord.order import Course, Identity
    >>> course = Course(Identity(samples=10), order="sequential", batch_size=2, world_size=2)
    >>> for step in course.steps():
    ...     print(step.indices, course.yielded(step), course.position)
    [0 2] True 4
    [4 6] True 8
    [8] True 10
    >>> course.finished()
    True
    >>> course.epoch, course.position
    (1, 0)
    """

    def __init__(
        self,
        identity: Identity,
        *,
        order: str | Order = "random",
        seed: SupportsIndex = 0,
        epoch: SupportsIndex = 0,
        batch_size: SupportsIndex = 1,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        policy: str = "drop",
        indices: Filter | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.identity = identity
        self._order = parse(order)
        self.seed = check_range("seed", seed, 0, SEEDS)
        self._epoch_number = check_range("epoch", epoch, 0, EPOCHS)
        self._position = 0
        self.batch_size = check_batch_size(batch_size)
        if not isinstance(drop_last, bool | np.bool_):
            raise ArgumentTypeError(f"drop_last is {drop_last!r}, expected a bool")
        self.drop_last = bool(drop_last)
        self.split = Split(rank, world_size, policy, placement)
        self.order = self._placed(placement)
        self.indices = None if indices is None else _filter(indices, identity.samples)
        self._before: BegunEpoch | None = None
        self._run = 0
        self._entered: tuple[int, int, BegunEpoch | None, bool] = (
            self._epoch_number,
            0,
            None,
            False,
        )  # by the current run
        self._begun = False  # the current run has yielded
        self._pinned = False  # the next loop begins exactly here: the program said so
        self._again = False  # the next loop begins this epoch once more
        self._crc: int | None = None
        self._check_sizes(self.split, self.order)

    # Going on

    def steps(self) -> Run:
        """Return the steps from here to the end of the epoch. Those of earlier runs no longer count."""
        entered = self._epoch_number, self._position, self._before, self._pinned
        if self._is_over:
            self.finished()
        self._entered = entered
        self._run += 1
        self._begun = False
        return self._rest()

    def begin(self) -> Run:
        """Return the steps of a loop that begins now, as `iter(loader)` wants them.

        The loop is over

        * what `set_epoch`, `announce` or `set_position` said last, if nothing was yielded or loaded since;
        * else the next epoch, if the loop before has yielded a batch: a loop that is left gives up the rest of its
          epoch, as with torch's own loader;
        * else the rest of the epoch that the loaded state is in, or the next epoch if that one was finished.
        """
        if self._again:
            self._go_to(self._epoch_number, 0)
        elif self._begun:
            self.finished()
        return self.steps()

    def yielded(self, step: Step) -> bool:
        """The user has got this batch. Steps are yielded in order; one may be left out.

        Returns:
            False, and nothing changes, if since that step was planned something else was begun, loaded or set.
        """
        if step.run != self._run:
            return False
        self._position = step.after
        self._begun, self._pinned, self._again = True, False, False
        return True

    def finished(self, run: Run | None = None) -> bool:
        """The loop over the epoch ended: the next one begins.

        Args:
            run: that ended; None for whichever is the current one.

        Returns:
            False, and nothing changes, if since then something else was begun, loaded or set.
        """
        if run is not None and run.number != self._run:
            return False
        self._go_to(self._epoch_number + 1, 0)
        return True

    def return_to(self, run: Run) -> bool:
        """Let the next loop begin where `run` began, as if nothing of it had been yielded.

        Returns:
            False, and nothing changes, if since then something else was begun, loaded or set.
        """
        if run.number != self._run:
            return False
        epoch, position, before, pinned = self._entered
        self._go_to(epoch, position, before)
        self._pinned = pinned
        return True

    def __len__(self) -> int:
        """Batches of this rank left in the epoch, from `position`."""
        return len(self._rest())

    @property
    def whole(self) -> int:
        """Batches of this rank in a whole epoch, from position 0."""
        return batches(self.split.count(self.length), self.batch_size, self.drop_last)

    # Where it is

    @property
    def epoch(self) -> int:
        """The epoch of the next step; while a loop stands at the last step of an epoch, still that epoch."""
        return self._epoch_number + self._is_over

    @property
    def position(self) -> int:
        """The place in the epoch's order, 0 <= position <= length. All ranks together have yielded what is before."""
        return 0 if self._again or self._is_over else self._position

    @property
    def length(self) -> int:
        """Positions in the epoch."""
        return self._epoch(None if self._again or self._is_over else self._before).length

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Pin the epoch. The current one keeps its position; any other begins at 0.

        An epoch that a loaded state has finished counts as current, too: what is left of it is nothing, so the next
        loop is empty.
        """
        number = check_range("epoch", epoch, 0, EPOCHS)
        self._begun = self._again = False
        if number != self._epoch_number:
            self._go_to(number, 0)
        self._pinned = True

    def announce(self, epoch: SupportsIndex) -> None:
        """Say, as a trainer does before each of its loops, which epoch that loop is of.

        It differs from `set_epoch` where a loop over this epoch has yielded something here: that loop counts as left,
        and the next one begins the epoch once more. A validation that is done twice within an epoch is so.
        """
        number = check_range("epoch", epoch, 0, EPOCHS)
        if number == self._epoch_number and self._begun:
            self._again = True
        else:
            self.set_epoch(number)

    def set_position(self, position: SupportsIndex) -> None:
        """Go to a position of this epoch: samples yielded by all ranks together, 0 <= position <= length.

        The next loop begins there. It is empty if that is the end.
        """
        number, before = self.epoch, None if self._again or self._is_over else self._before
        self._go_to(number, check_range("position", position, 0, self.length + 1), before)
        self._pinned = True

    def share(self, rank: int, world_size: int, placement: Placement | None = None) -> None:
        """Be another rank of other ranks from the next run on. An epoch that has begun keeps the slices it has.

        Raises:
            ValueError: as for the arguments of the course.
        """
        split, order = Split(rank, world_size, self.split.policy, placement), self._placed(placement)
        self._check_sizes(split, order)
        if self._position and order != self.order and self._before is None:
            self._before = BegunEpoch(self.identity, self.order)
        self.split, self.order = split, order

    def state_dict(self) -> dict[str, Any]:
        """Where it is, small and JSON-able; see `State`. To be called when all ranks have yielded as many batches."""
        now = (None if self._again else self._before) or BegunEpoch(self.identity, self.order)
        state = State(
            version=VERSION,
            order=now.order.to_builtins(),
            dataset=Contents.of(now.identity),
            indices=self._indices_crc(),
            seed=self.seed,
            epoch=self._epoch_number,
            position=0 if self._again else self._position,
        )
        return state.to_builtins()

    def load_state_dict(self, state: Any, appended: str = "refuse") -> None:
        """Go on where a state was taken, with any ranks, policy and batch size. Seed and epoch are the state's.

        A state at the end of an epoch says that this epoch is finished: the next loop is the next epoch, unless
        `set_epoch` asks for what is left of the finished one, which is nothing.

        So are the slices, where nodes are placed: an epoch that has begun is finished in those it began with, on any
        nodes, and the next one has those of the nodes there are.

        Args:
            state: from `state_dict`.
            appended: what to do if shards were appended to the dataset since, and nothing else. "refuse" the state;
                or "finish" the epoch it is in over the samples it began with, and use all from the next one on. An
                epoch of which nothing was yielded uses all at once.

        Raises:
            ValueError: no such state; or of another dataset, filter or order, and the message names the difference.
                Nothing changes then.
        """
        if appended not in ("refuse", "finish"):
            raise ArgumentError(f"appended is {appended!r}, expected 'refuse' or 'finish'")
        loaded = State.from_builtins(state)
        before = self._compare(loaded, finish=appended == "finish")
        length = self._epoch(before, loaded.epoch).length
        if loaded.position > length:
            raise ArgumentError(f"state at position {loaded.position} of an epoch of {length}")
        self.seed = loaded.seed
        self._go_to(loaded.epoch, loaded.position, before if loaded.position else None)

    # Inside

    def _placed(self, placement: Placement | None) -> Order:
        return self._order if placement is None else placement.order(self._order)

    def _go_to(self, epoch: int, position: int, before: BegunEpoch | None = None) -> None:
        self._epoch_number, self._position, self._before = epoch, position, before
        self._run += 1
        self._begun = self._pinned = self._again = False

    @property
    def _is_over(self) -> bool:
        """Whether a loaded state has finished its epoch, so that the next loop is the next epoch."""
        if self._begun or self._pinned or not self._position:
            return False
        return self._position == self._epoch(self._before).length

    def _epoch(self, before: BegunEpoch | None, number: int | None = None) -> Epoch:
        """An epoch, by default the current one, as it was before, or as it is."""
        now = before or BegunEpoch(self.identity, self.order)
        samples = now.identity.samples if self.indices is None else len(self.indices)
        return Epoch(now.order, samples, self.seed, self._epoch_number if number is None else number, self.indices)

    def _rest(self) -> Run:
        """The steps from the current place; `epoch` and `position` say where that is."""
        before = None if self._again or self._is_over else self._before
        epoch = self._epoch(before, self.epoch)
        return Run(epoch, self.split, self.position, self.batch_size, drop_last=self.drop_last, number=self._run)

    def _compare(self, state: State, *, finish: bool) -> BegunEpoch | None:
        """Refuse a state of something else; what the epoch began with, if that is wanted and not how it is now."""
        order = self._order_of(state)
        theirs, crc = state.indices, self._indices_crc()
        if theirs != crc:
            raise ArgumentError(f"state of another filter: {_described(theirs)} in the state, {_described(crc)} here")
        before = state.dataset.identity
        difference = self.identity.difference(before)
        if difference is None:
            return None if order == self.order else BegunEpoch(self.identity, order)
        if not self.identity.extends(before):
            raise ArgumentError(f"state of another dataset: {difference}")
        if not finish:
            raise ArgumentError(
                f"shards were appended to the dataset: {difference}; appended='finish' finishes this epoch over the "
                "samples of then"
            )
        return BegunEpoch(before, order)

    def _order_of(self, state: State) -> Order:
        ours = self.order.to_builtins()
        if not alike(state.order, ours):
            raise ArgumentError(f"state of another order: {state.order} in the state, {ours} here")
        return self.order if state.order == ours else from_builtins(state.order)

    def _indices_crc(self) -> int | None:
        if self._crc is None and self.indices is not None:
            self._crc = crc32(self.indices.data)
        return self._crc

    def _check_sizes(self, split: Split, order: Order) -> None:
        """Refuse what would yield nothing, on all ranks alike."""
        epoch = self._epoch(BegunEpoch(self.identity, order))
        if epoch.samples == 0:
            what = "the dataset has" if self.indices is None else "indices have"
            raise ArgumentError(f"{what} 0 samples, expected at least 1")
        length = epoch.length
        most = split.most(length)
        if batches(most, self.batch_size, self.drop_last) == 0:
            least = self.batch_size if self.drop_last else 1
            raise ArgumentError(
                f"no batch: {length} samples over {split.world_size} ranks, policy {split.policy!r}, are "
                f"{most} for each, expected at least {least}"
            )


def check_batch_size(batch_size: SupportsIndex) -> int:
    """Return the size of a batch as an int.

    Raises:
        ValueError: less than 1, or more than any dataset can have.
        TypeError: not an int.
    """
    size = check_range("batch_size", batch_size, 1)
    if size > LENGTH_MAX:
        raise ArgumentError(f"batch_size is {size}, more than any dataset has samples: give the dataset's length")
    return size


def _filter(indices: Filter, samples: int) -> Integers:
    """int64 [m] in [0, samples)."""
    array = as_indices(indices)
    if len(array) == 0:
        return array
    least, most = int(array.min()), int(array.max())
    if least < -samples or most >= samples:
        wrong = least if least < -samples else most
        raise SampleIndexError(f"indices have {wrong}, expected {-samples} <= index < {samples}")
    return array if least >= 0 else np.where(array < 0, array + samples, array)


def _described(crc: int | None) -> str:
    return "none" if crc is None else f"indices of CRC-32 {crc:#010x}"

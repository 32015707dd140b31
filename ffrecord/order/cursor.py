"""The cursor of one rank: the epoch and the position that it has reached.

Positions are counted when batches are handed to the user, not when they are planned. So a `Run` may be as far ahead as
a loader likes: only `yielded` moves the `Cursor`.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order.batch_plan import Epoch, Run, Step, batches
from ffrecord.order.environment import Placement
from ffrecord.order.keys import EPOCHS, LENGTH_MAX, SEEDS, check_range
from ffrecord.order.orders import Order, from_builtins, parse
from ffrecord.order.sliced import same_but_for_slices
from ffrecord.order.split import Split
from ffrecord.order.state import VERSION, Contents, Identity, State
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.system.values import check_flag, describe_wrong, is_word

__all__ = ["Cursor"]

Integers = npt.NDArray[np.int64]
Filter = Iterable[int]


@dataclass(frozen=True)
class BegunEpoch:
    """The dataset and the order that an epoch began with, if they have changed since.

    Attributes:
        identity: identity of the dataset at that time.
        order: the order with the slices of that time.
    """

    identity: Identity
    order: Order


class Cursor:
    """The position of one rank in the epochs of a dataset.

    Args:
        identity: identity of the dataset.
        order: "sequential", "random", "block", or an `Order`.
        seed: seed of the order, 0 <= seed < 2**64.
        epoch: first epoch, 0 <= epoch < 2**63.
        batch_size: samples of this rank in a batch, >= 1.
        drop_last: leave out a smaller last batch.
        rank, world_size, policy: arguments of `Split`.
        indices: int [m] in [-n, n), the samples to use, of n; repeats are allowed. The order then runs over [0, m).
            None uses all samples. An int64 array without negative numbers is not copied, so a mapped one stays mapped;
            do not change it.
        placement: placement of the rank on a node. Each node then reads the same part of the dataset in every epoch,
            and `order` becomes a `Placed`. None deals samples to ranks wherever they are. Slices are cut from
            `indices`, if given, so sort them to keep neighbours on one node. Samples with which "pad" fills up may be
            another node's.

    Attributes:
        order: order of the epochs that begin from now on.

    Raises:
        ValueError: an argument is out of range; or there is nothing to yield: no samples, or fewer for each rank than a
            batch needs with `drop_last`.
        IndexError: a number in `indices` is out of range.
        TypeError: an argument is not an integer, or `drop_last` is not a bool.

    >>> from ffrecord.order import Cursor, Identity
    >>> cursor = Cursor(Identity(samples=10), order="sequential", batch_size=2, world_size=2)
    >>> for step in cursor.steps():
    ...     print(step.indices, cursor.yielded(step), cursor.position)
    [0 2] True 4
    [4 6] True 8
    [8] True 10
    >>> cursor.finished()
    True
    >>> cursor.epoch, cursor.position
    (1, 0)
    """

    def __init__(
        self,
        identity: Identity,
        *,
        order: str | Order = "random",
        seed: int = 0,
        epoch: int = 0,
        batch_size: int = 1,
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
        self.drop_last = check_flag("drop_last", drop_last)
        self.split = Split(rank, world_size, policy, placement)
        self.order = self._with_slices(placement)
        self.indices = None if indices is None else check_filter(indices, identity.samples)
        self._before: BegunEpoch | None = None
        self._run = 0
        # Epoch, position, changed epoch and pinned flag when the current run began; `return_to` restores them.
        self._entered: tuple[int, int, BegunEpoch | None, bool] = (self._epoch_number, 0, None, False)
        self._begun = False  # the current run has yielded
        self._pinned = False  # the program asked that the next loop begins exactly here
        self._again = False  # the next loop begins this epoch once more
        self._crc: int | None = None
        self._check_sizes(self.split, self.order)

    # Iteration

    def steps(self) -> Run:
        """Return the steps from here to the end of the epoch. Steps of earlier runs no longer count."""
        # Before `finished` changes them, so that `return_to` can undo that too.
        entered = self._epoch_number, self._position, self._before, self._pinned
        if self._is_over:
            self.finished()
        self._entered = entered
        self._run += 1
        self._begun = False
        return self._remaining_steps()

    def begin(self) -> Run:
        """Return the steps of a loop that begins now, as `iter(loader)` needs them.

        The loop runs over

        * the epoch or position that `set_epoch`, `announce` or `set_position` set, if nothing was yielded or loaded
          since;
        * else the next epoch, if the loop before has yielded a batch: if you `break` out of a loop, the rest of its
          epoch is given up, as with torch's own loader;
        * else the rest of the epoch of the loaded state, or the next epoch if that one was finished.
        """
        # A trainer announces the same epoch twice to run it twice.
        if self._again:
            self._go_to(self._epoch_number, 0)
        # The loop before was left after a batch: torch's DataLoader then begins the next epoch too.
        elif self._begun:
            self.finished()
        return self.steps()

    def yielded(self, step: Step) -> bool:
        """Note that the user has got a batch. Steps are yielded in order; some may be left out.

        Returns:
            False, and nothing changes, if something else was begun, loaded or set after the step was planned.
        """
        # A loader that reads ahead may still hand over batches of a loop that the user has left.
        if step.run != self._run:
            return False
        self._position = step.after
        self._begun, self._pinned, self._again = True, False, False
        return True

    def finished(self, run: Run | None = None) -> bool:
        """Note that the loop over the epoch ended, so the next epoch begins.

        Args:
            run: the run that ended; None for the current one.

        Returns:
            False, and nothing changes, if something else was begun, loaded or set since.
        """
        # None: the caller knows that its run is the current one.
        if run is not None and run.number != self._run:
            return False
        self._go_to(self._epoch_number + 1, 0)
        return True

    def return_to(self, run: Run) -> bool:
        """Let the next loop begin where `run` began, as if nothing of it had been yielded.

        Returns:
            False, and nothing changes, if something else was begun, loaded or set since.
        """
        if run.number != self._run:
            return False
        epoch, position, before, pinned = self._entered
        self._go_to(epoch, position, before)
        # After `_go_to`, which clears it.
        self._pinned = pinned
        return True

    def __len__(self) -> int:
        """Return the number of batches of this rank left in the epoch, from `position`."""
        return len(self._remaining_steps())

    @property
    def whole(self) -> int:
        """The number of batches of this rank in a whole epoch, from position 0."""
        return batches(self.split.count(self.length), self.batch_size, self.drop_last)

    # Position

    @property
    def epoch(self) -> int:
        """The epoch of the next step. After the last step of an epoch it is still that epoch, until the loop ends."""
        return self._epoch_number + self._is_over

    @property
    def position(self) -> int:
        """The position in the epoch's order, 0 <= position <= length. All ranks together have yielded the positions
        before it.
        """
        return 0 if self._again or self._is_over else self._position

    @property
    def length(self) -> int:
        """The number of positions in the epoch."""
        return self._epoch(None if self._again or self._is_over else self._before).length

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop. The current epoch keeps its position; any other begins at 0.

        An epoch that a loaded state has finished counts as current too. Nothing is left of it, so the next loop is
        empty.
        """
        number = check_range("epoch", epoch, 0, EPOCHS)
        self._begun = self._again = False
        # The same number keeps its position: a loaded state may be in its middle.
        if number != self._epoch_number:
            self._go_to(number, 0)
        self._pinned = True

    def announce(self, epoch: int) -> None:
        """Set the epoch of the next loop, as a trainer does before each of its loops.

        This differs from `set_epoch` if a loop over the same epoch has yielded something. That loop counts as left, and
        the next one begins the epoch once more. Trainers validate twice within an epoch in this way.
        """
        number = check_range("epoch", epoch, 0, EPOCHS)
        if number == self._epoch_number and self._begun:
            self._again = True
        else:
            self.set_epoch(number)

    def set_position(self, position: int) -> None:
        """Go to a position of this epoch: samples yielded by all ranks together, 0 <= position <= length.

        The next loop begins there. It is empty if this is the end.
        """
        number, before = self.epoch, None if self._again or self._is_over else self._before
        self._go_to(number, check_range("position", position, 0, self.length + 1), before)
        self._pinned = True

    def share(self, rank: int, world_size: int, placement: Placement | None = None) -> None:
        """Become another rank, perhaps of another number, from the next run on. An epoch that has begun keeps its
        slices.

        Raises:
            ValueError: the arguments are not valid for this cursor.
        """
        split, order = Split(rank, world_size, self.split.policy, placement), self._with_slices(placement)
        self._check_sizes(split, order)
        # Slices belong to nodes; samples of this epoch must not move to other slices in its middle.
        if self._position and order != self.order and self._before is None:
            self._before = BegunEpoch(self.identity, self.order)
        self.split, self.order = split, order

    def state_dict(self) -> dict[str, Any]:
        """Return the position, small and JSON-able; see `State`. Call it when all ranks have yielded equally many
        batches.
        """
        # Planned batches never show in a state, only those that were handed out.
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
        """Go on where a state was taken, with any ranks, policy and batch size. Seed and epoch come from the state.

        A state at the end of an epoch says that this epoch is finished. The next loop is the next epoch, unless
        `set_epoch` asks for the rest of the finished one, which is empty.

        With a placement, an epoch that has begun is finished in its own slices, on any nodes. The next epoch has slices
        for the present nodes.

        Args:
            state: a state from `state_dict`.
            appended: action if shards, and nothing else, were appended to the dataset since. "refuse" refuses the
                state. "finish" finishes its epoch over the samples of that time, and uses all samples from the next
                epoch on. An epoch of which nothing was yielded uses all samples at once.

        Raises:
            ValueError: `state` is not a state, or belongs to another dataset, filter or order; the message names the
                difference. Nothing changes then.
        """
        if not is_word(appended, ("refuse", "finish")):
            raise ArgumentError(f"appended is {appended!r}, expected 'refuse' or 'finish'")
        loaded = State.from_builtins(state)
        before = self._compare(loaded, finish=appended == "finish")
        length = self._epoch(before, loaded.epoch).length
        # Only a damaged or foreign state can be behind the end.
        if loaded.position > length:
            raise ArgumentError(f"the state is at position {loaded.position}, but its epoch has {length} samples")
        self.seed = loaded.seed
        # Before the first batch of an epoch nothing has to be finished, so it takes the present dataset.
        self._go_to(loaded.epoch, loaded.position, before if loaded.position else None)

    # Internals

    def _over(self, identity: Identity, indices: Filter | None, batch_size: int, drop_last: bool) -> "Cursor":
        """Return a copy for another dataset and other batches, in the same order and at the same place of it.

        Raises:
            ValueError, IndexError, TypeError: errors of `Cursor`.
        """
        cursor = copy(self)
        if self._before is not None and self._before.identity == self.identity:
            cursor._before = replace(self._before, identity=identity)
        cursor.identity, cursor._crc = identity, None
        cursor.indices = None if indices is None else check_filter(indices, identity.samples)
        cursor.batch_size, cursor.drop_last = check_batch_size(batch_size), check_flag("drop_last", drop_last)
        cursor._check_sizes(cursor.split, cursor.order)
        return cursor

    def _with_slices(self, placement: Placement | None) -> Order:
        return self._order if placement is None else placement.order(self._order)

    def _go_to(self, epoch: int, position: int, before: BegunEpoch | None = None) -> None:
        self._epoch_number, self._position, self._before = epoch, position, before
        # A new number makes all steps in flight stale.
        self._run += 1
        self._begun = self._pinned = self._again = False

    @property
    def _is_over(self) -> bool:
        """True if a loaded state has finished its epoch, so that the next loop is the next epoch."""
        # `position` at the end and a loop that ended there differ: see `set_epoch`.
        if self._begun or self._pinned or not self._position:
            return False
        return self._position == self._epoch(self._before).length

    def _epoch(self, before: BegunEpoch | None, number: int | None = None) -> Epoch:
        """Return an epoch, by default the current one, with the dataset and order of `before` or of now."""
        now = before or BegunEpoch(self.identity, self.order)
        samples = now.identity.samples if self.indices is None else len(self.indices)
        return Epoch(now.order, samples, self.seed, self._epoch_number if number is None else number, self.indices)

    def _remaining_steps(self) -> Run:
        """Return the steps from the current `epoch` and `position` on."""
        before = None if self._again or self._is_over else self._before
        epoch = self._epoch(before, self.epoch)
        return Run(epoch, self.split, self.position, self.batch_size, drop_last=self.drop_last, number=self._run)

    def _compare(self, state: State, *, finish: bool) -> BegunEpoch | None:
        """Refuse a state of something else; return the beginning of its epoch if that differs from now and may be
        finished.
        """
        order = self._order_of(state)
        theirs, crc = state.indices, self._indices_crc()
        # The filter is part of the order of samples, but too large for a state: its CRC-32 must do.
        if theirs != crc:
            raise ArgumentError(
                f"the state belongs to another filter: {_describe_filter(theirs)} in the state, "
                f"{_describe_filter(crc)} here"
            )
        before = state.dataset.identity
        difference = self.identity.difference(before)
        if difference is None:
            return None if order == self.order else BegunEpoch(self.identity, order)
        # Fingerprint of the first shards: appended shards leave it as it was.
        if not self.identity.extends(before):
            raise ArgumentError(f"the state belongs to another dataset: {difference}")
        if not finish:
            raise ArgumentError(
                f"shards were appended to the dataset: {difference}; pass appended='finish' to finish this epoch over "
                "the samples that it began with"
            )
        return BegunEpoch(before, order)

    def _order_of(self, state: State) -> Order:
        ours = self.order.to_builtins()
        if not same_but_for_slices(state.order, ours):
            raise ArgumentError(f"the state belongs to another order: {state.order} in the state, {ours} here")
        return self.order if state.order == ours else from_builtins(state.order)

    def _indices_crc(self) -> int | None:
        if self._crc is None and self.indices is not None:
            # Once, since it reads the whole filter.
            self._crc = crc32(self.indices.data)
        return self._crc

    def _check_sizes(self, split: Split, order: Order) -> None:
        """Refuse sizes with which nothing would be yielded, on all ranks alike."""
        epoch = self._epoch(BegunEpoch(self.identity, order))
        self.identity.check_samples()
        if epoch.samples == 0:
            raise ArgumentError("indices have 0 samples, expected at least 1")
        length = epoch.length
        most = split.most(length)
        if batches(most, self.batch_size, self.drop_last) == 0:
            least = self.batch_size if self.drop_last else 1
            advice = "; pass a smaller batch_size or drop_last=False" if self.drop_last else ""
            raise ArgumentError(
                f"there is no batch: each of {split.world_size} ranks gets {most} of {length} samples (policy "
                f"{split.policy!r}), expected at least {least}{advice}"
            )


def check_batch_size(batch_size: int) -> int:
    """Return the size of a batch as an int.

    Raises:
        ValueError: it is less than 1, or more than any dataset can have.
        TypeError: it is not an int.
    """
    if batch_size is None:  # torch's loaders take it, and make no batches then
        advice = "1 makes batches of one sample; iterate over a dataset or reader for samples alone"
        raise ArgumentTypeError(describe_wrong("batch_size", batch_size, "an int", advice))
    size = check_range("batch_size", batch_size, 1)
    if size > LENGTH_MAX:
        raise ArgumentError(
            f"batch_size is {size}, expected at most {LENGTH_MAX}; pass the dataset's length for a single batch"
        )
    return size


def check_filter(indices: Filter, samples: int) -> Integers:
    """Return indices as int64 [m] in [0, samples), without a copy if they are that already.

    Raises:
        IndexError: one is out of range.
        TypeError: they are not ints.
    """
    array = as_subset(indices)
    # Already in range: no copy, so that a mapped array stays mapped.
    if len(array) == 0 or (array.min() >= 0 and array.max() < samples):
        return array
    return count_from_start(array, samples)


def _describe_filter(crc: int | None) -> str:
    return "none" if crc is None else f"indices of CRC-32 {crc:#010x}"


Course = Cursor  # pickles and older programs have this name

"""The order of a sampler: indices of the user's become planned batches, and a sampler of this package is taken over."""

import operator
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from torch.utils.data import BatchSampler as TorchBatchSampler

from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    SampleIndexError,
    StateError,
    UserFunctionError,
    describe_error,
    plural,
)
from ffrecord.order import Epoch, Identity, Placement, Sequential, Split, Step
from ffrecord.order.batch_plan import batches
from ffrecord.order.cursor import check_batch_size, check_filter
from ffrecord.order.keys import EPOCHS, SEEDS, check_range
from ffrecord.order.state import Contents, Count, convert_state
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.system.values import describe_wrong, is_word
from ffrecord.torch.samplers import BatchSampler, Sampler

__all__ = ["KnownOrder", "SampledCursor", "SampledRun", "check_ranks", "check_seed", "find_order"]

VERSION = 1
INSIDE = ("sampler", "batch_sampler")  # attributes of samplers that hold other ones
LOOKED_AT = 8  # items of a list that may be a mask
SKIPPED_AT_ONCE = 1 << 16  # indices that are read again together
END = object()  # the end of a sampler, which might yield None

Batch = npt.NDArray[np.int64]


class SampledState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in what a sampler gives.

    Attributes:
        version: version of this layout.
        sampler: name of the sampler's type.
        batched: whether the sampler makes the batches.
        dataset: identity of the dataset.
        seed: seed of all augmentation, 0 <= seed < 2**64.
        epoch: number of the epoch.
        position: samples of this rank that were yielded in the epoch.
        finished: True if nothing of the epoch is left.
        seen: CRC-32 of those samples as int64, which shows whether the sampler gives the same ones again.
    """

    version: int
    sampler: str
    batched: bool
    dataset: Contents
    seed: int
    epoch: int
    position: Count
    finished: bool
    seen: Count


class SampledRun(Iterator[Step]):
    """The batches of one epoch of a sampler, from a position on. It reads the sampler as they are needed.

    Args:
        epoch: epoch of the batches; its order is not used.
        split: rank, for the positions from which seeds are derived.
        groups: iterator over the indices of each batch that is left.
        position: samples before the first batch.
        number: number that distinguishes the runs of a cursor.

    Attributes:
        epoch, split, position, number: the arguments.
    """

    def __init__(self, epoch: Epoch, split: Split, groups: Iterator[Batch], position: int, number: int) -> None:
        self.epoch, self.split, self.position, self.number = epoch, split, position, number
        self._groups, self._done = groups, position
        self._ahead: Batch | Exception | None = None  # one batch more, to know which one is the last
        self._started = False

    def __next__(self) -> Step:
        if not self._started:
            self._started = True
            self._look_ahead()
        indices = self._ahead
        if indices is None:
            raise StopIteration
        if isinstance(indices, Exception):
            self._ahead = None
            raise indices
        self._look_ahead()
        positions = np.arange(self._done, self._done + len(indices), dtype=np.int64)
        self._done += len(indices)
        positions = positions * self.split.world_size + self.split.rank  # so ranks have different seeds
        last = self._ahead is None
        return Step(self.epoch.number, positions, indices, 0, last, self._done, self.number)

    def _look_ahead(self) -> None:
        try:
            self._ahead = next(self._groups, None)
        except Exception as error:  # comes in the turn of its batch
            self._ahead = error


class SampledCursor:
    """The position of one rank in the epochs of a sampler. `Cursor` is that of an order.

    The sampler is this rank's own, as with torch's loader. Its `set_epoch`, or that of the sampler inside it, is called
    before each epoch. An epoch that was set there directly, by the program, is taken over.

    Args:
        identity: identity of the dataset.
        sampler: iterable of ints in [-n, n), or with `batched` of lists of them; read anew in each epoch.
        batched: whether the sampler makes the batches.
        batch_size, drop_last: batches to make of single indices.
        seed, epoch: arguments of `Loader`. With epoch=0 the sampler's own epoch is taken, if it has one.
        split: rank and number of ranks.
        chosen: int [m], samples of the dataset that the numbers of the sampler stand for; None for all.

    Attributes:
        batched, batch_size, seed, split: the arguments.
        order: name of the sampler's type.

    Raises:
        TypeError: the sampler is no iterable, or cannot be read twice.
        ValueError: a number is out of range.
        IndexError: a number in `chosen` is out of range.
    """

    def __init__(
        self,
        identity: Identity,
        sampler: Any,
        *,
        batched: bool,
        batch_size: int,
        drop_last: bool,
        seed: int,
        epoch: int,
        split: Split,
        chosen: Batch | None = None,
    ) -> None:
        word = "batch_sampler" if batched else "sampler"
        if isinstance(sampler, Iterator):
            raise ArgumentTypeError(
                f"{word} is of type {type(sampler).__name__}, which can be read once: pass a list, or an object whose "
                "__iter__ begins anew in each epoch"
            )
        if isinstance(sampler, str | bytes) or not isinstance(sampler, Iterable):
            kind = "lists of ints" if batched else "ints"
            raise ArgumentTypeError(describe_wrong(word, sampler, f"an iterable of {kind}"))
        self._sampler: Any = sampler
        if not batched and is_mask(sampler):
            count = plural(np.asarray(sampler).size, "bool")
            raise ArgumentTypeError(f"{word} is a mask of {count}, expected ints: pass np.flatnonzero(mask)")
        self.identity, self.batched, self._word = identity, batched, word
        self._chosen = None if chosen is None else check_filter(chosen, identity.samples)
        self._count = identity.samples if self._chosen is None else len(self._chosen)
        self.batch_size, self.drop_last = check_batch_size(batch_size), bool(drop_last)
        self.seed = check_range("seed", seed, 0, SEEDS)
        self.split, self.order = split, type(sampler).__name__
        self._holder = find_holder(sampler)
        self._known = self._sampler_epoch
        self._epoch_number = check_range("epoch", epoch, 0, EPOCHS) or self._known or 0
        self._position = self._run = self._seen = 0
        self._batches_done = 0  # batches of the epoch that were yielded or skipped
        self._finished = False  # nothing of the epoch is left
        self._begun = self._pinned = self._again = False  # as in `Cursor`

    # Iteration

    def begin(self) -> SampledRun:
        """Return the batches of a loop that begins now; `Cursor.begin` has the rules."""
        told = self._sampler_epoch
        if told != self._known and told != self._epoch_number and told is not None:
            self._go_to(told, 0)
        elif self._again:
            self._go_to(self._epoch_number, 0)
        elif self._begun or self._is_over:
            self.finished()
        if self._holder is not None:
            self._holder.set_epoch(self._epoch_number)
        self._known = self._sampler_epoch
        self._run += 1
        self._begun = False
        epoch = Epoch(Sequential(), self.identity.samples, self.seed, self._epoch_number, None)
        groups = self._read(self._position, self._seen)
        return SampledRun(epoch, self.split, groups, self._position, self._run)

    def _read(self, position: int, seen: int) -> Iterator[Batch]:
        """Yield the indices of each batch after `position` samples, whose checksum is `seen`."""
        known = 0
        try:
            found = iter(self._sampler)
            self._batches_done = 0 if self.batched else position // self.batch_size
        except Exception as error:
            raise self._error(error) from error
        if self.batched:
            done = 0
            while done < position:
                group = self._take(lambda: next(found, END))
                if group is END:
                    raise self._short(done, position)
                indices = self._check(group, done)
                known, done = checksum(indices, known), done + len(indices)
                self._batches_done += 1
            if done != position:
                raise StateError(f"no batch of {self._word} begins after {position} samples, as the state says")
        elif position:
            done = 0
            while done < position:
                some = islice(found, min(SKIPPED_AT_ONCE, position - done))
                group = self._take(partial(list, some))
                if not group:
                    raise self._short(done, position)
                known, done = checksum(self._check(group, done), known), done + len(group)
        if known != seen:
            raise StateError(
                f"{self._word} gives other samples in epoch {self._epoch_number} than before the state, so some would "
                f"come twice and others never: it must give the same {plural(position, 'sample')} again, as one with a "
                "seed does on as many ranks; Loader without a sampler goes on with any number of ranks"
            )
        done = position
        while True:
            group = self._take(lambda: next(found, END) if self.batched else list(islice(found, self.batch_size)))
            if group is END or (not self.batched and (not group or self._is_dropped(group))):
                return
            indices = self._check(group, done)
            done += len(indices)
            yield indices
            if not self.batched and len(indices) < self.batch_size:
                return  # the sampler has ended: some iterators would go on

    def _is_dropped(self, group: list[Any]) -> bool:
        return self.drop_last and len(group) < self.batch_size

    def _take(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> UserFunctionError:
        return UserFunctionError(f"{self._word} failed in epoch {self._epoch_number}: {describe_error(error)}")

    def _short(self, done: int, position: int) -> StateError:
        return StateError(
            f"{self._word} gave {plural(done, 'sample')} in epoch {self._epoch_number}, but the state is after "
            f"{position}: it must give the same samples again"
        )

    def _check(self, group: Any, done: int) -> Batch:
        """Return the samples of the dataset in a batch: int64 [k]."""
        n = self._count
        try:
            indices = as_subset(group)
        except (TypeError, IndexError) as error:
            raise ArgumentTypeError(
                f"{self._word} gave {group!r:.80} after {plural(done, 'sample')}: {error}"
            ) from None
        if not len(indices):
            raise ArgumentError(f"{self._word} gave a batch of 0 samples after {plural(done, 'sample')}")

        def out_of_range(place: int, index: int) -> SampleIndexError:
            return SampleIndexError(
                f"{self._word} gave {index} after {plural(done + place, 'sample')}, expected {-n} <= index < {n}"
            )

        indices = count_from_start(indices, n, out_of_range)
        return indices if self._chosen is None else self._chosen[indices]

    def yielded(self, step: Step) -> bool:
        """Note that the user has got a batch; return False if something else was begun or set since."""
        if step.run != self._run:
            return False
        self._position, self._finished = step.after, step.last
        self._seen = checksum(step.indices, self._seen)
        self._batches_done += 1
        self._begun, self._pinned, self._again = True, False, False
        return True

    def finished(self, run: Any = None) -> bool:
        """Note that the loop over the epoch ended; return False if something else was begun or set since."""
        if run is not None and run.number != self._run:
            return False
        self._go_to(self._epoch_number + 1, 0)
        return True

    def __len__(self) -> int:
        """Return the number of batches left in the epoch, once the first was asked for."""
        return max(0, self.whole - self._batches_done)

    @property
    def whole(self) -> int:
        """The number of batches of an epoch.

        Raises:
            TypeError: the sampler has no length.
        """
        count = len(self._sampler)
        return count if self.batched else batches(count, self.batch_size, self.drop_last)

    # Position

    @property
    def epoch(self) -> int:
        """The epoch of the next batch; after the last batch of an epoch still that epoch, until the loop ends."""
        return self._epoch_number + self._is_over

    @property
    def position(self) -> int:
        """The number of samples of this rank that were yielded in the epoch."""
        return 0 if self._again or self._is_over else self._position

    @property
    def length(self) -> int | str:
        """The number of samples of this rank in an epoch, or "?" if the sampler does not tell."""
        return len(self._sampler) if not self.batched and hasattr(self._sampler, "__len__") else "?"

    @property
    def _is_over(self) -> bool:
        """True if a loaded state has finished its epoch."""
        return self._finished and not self._begun and not self._pinned

    @property
    def _sampler_epoch(self) -> int | None:
        """The epoch that the sampler has now, or None. Some samplers have -1 before their first epoch."""
        try:
            epoch = operator.index(self._holder.epoch)
        except (AttributeError, TypeError):
            return None
        return epoch if 0 <= epoch < EPOCHS else None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop. The current epoch keeps its position; any other begins at 0."""
        number = check_range("epoch", epoch, 0, EPOCHS)
        self._known = self._sampler_epoch
        self._begun = self._again = False
        if number != self._epoch_number:
            self._go_to(number, 0)
        self._pinned = True

    def announce(self, epoch: int) -> None:
        """Set the epoch of the next loop, as a trainer does; see `Cursor.announce`."""
        number = check_range("epoch", epoch, 0, EPOCHS)
        if number == self._epoch_number and self._begun:
            self._again, self._known = True, self._sampler_epoch
        else:
            self.set_epoch(number)

    def share(self, rank: int, world_size: int, placement: Placement | None = None) -> None:
        """Become another rank, for the seeds: the sampler decides the samples."""
        self.split = Split(rank, world_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this rank: a small dict that JSON can hold."""
        state = SampledState(
            version=VERSION,
            sampler=self.order,
            batched=self.batched,
            dataset=Contents.of(self.identity),
            seed=self.seed,
            epoch=self._epoch_number,
            position=0 if self._again else self._position,
            finished=self._finished and not self._again,
            seen=0 if self._again else self._seen,
        )
        builtins: dict[str, Any] = msgspec.to_builtins(state)
        return builtins

    def load_state_dict(self, state: Any, appended: str = "refuse") -> None:
        """Go on where a state was taken. The sampler must give the same samples in that epoch once more.

        Args:
            state: a state from `state_dict`.
            appended: "finish" takes a state of the dataset before shards were appended, "refuse" does not.

        Raises:
            ValueError: `state` is not such a state; the message names the difference. Nothing changes then.
        """
        if not is_word(appended, ("refuse", "finish")):
            raise ArgumentError(f"appended is {appended!r}, expected 'refuse' or 'finish'")
        loaded = convert_state(state, SampledState, VERSION, f"a loader with a {self._word}")
        if loaded.batched != self.batched:
            word = "batch_sampler" if loaded.batched else "sampler"
            raise ArgumentError(f"the state is that of a loader with a {word}, but this one has a {self._word}")
        if loaded.sampler != self.order:
            raise ArgumentError(
                f"the state belongs to another sampler: {loaded.sampler} in the state, {self.order} here"
            )
        before = loaded.dataset.identity
        difference = self.identity.difference(before)
        if difference is not None and not (appended == "finish" and self.identity.extends(before)):
            raise ArgumentError(f"the state belongs to another dataset: {difference}")
        self.seed = check_range("seed of the state", loaded.seed, 0, SEEDS)
        self._go_to(check_range("epoch of the state", loaded.epoch, 0, EPOCHS), loaded.position)
        self._finished, self._known, self._seen = loaded.finished, self._sampler_epoch, loaded.seen

    def _go_to(self, epoch: int, position: int) -> None:
        self._epoch_number, self._position, self._seen = epoch, position, 0
        self._run += 1
        self._begun = self._pinned = self._again = self._finished = False


def checksum(indices: Batch, before: int) -> int:
    """Return the CRC-32 of indices that follow others, whose CRC-32 is `before`."""
    return zlib.crc32(np.ascontiguousarray(indices, np.int64).data, before)


def is_mask(sampler: Any) -> bool:
    """Tell whether a sampler is an array or list of bools, which Python takes for the samples 0 and 1."""
    if isinstance(sampler, list | tuple):
        return bool(sampler) and all(np.asarray(each).dtype.kind == "b" for each in islice(sampler, LOOKED_AT))
    return str(getattr(sampler, "dtype", "")).removeprefix("torch.") == "bool"


def find_holder(sampler: Any) -> Any:
    """Return the sampler, or the one inside it, that has `set_epoch`; None if there is none."""
    if callable(getattr(sampler, "set_epoch", None)):
        return sampler
    for name in INSIDE:
        inside = getattr(sampler, name, None)
        if inside is not None and inside is not sampler:
            found = find_holder(inside)
            if found is not None:
                return found
    return None


class KnownOrder(NamedTuple):
    """The order of a sampler of this package, and the batches to make of it."""

    sampler: Sampler
    batch_size: int
    drop_last: bool


def find_order(sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool) -> KnownOrder | None:
    """Return the order of these arguments of `Loader`; None if another sampler decides the samples, or none.

    A subclass may change what it yields, so it is read as any sampler is.
    """
    # torch's BatchSampler over our Sampler is known too.
    if type(batch_sampler) is BatchSampler:
        return KnownOrder(batch_sampler.sampler, *batch_sampler.sampler._sizes)
    if type(batch_sampler) is TorchBatchSampler:
        sampler, batch_size, drop_last = batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last
    return KnownOrder(sampler, batch_size, drop_last) if type(sampler) is Sampler else None


def check_seed(seed: int, sampler: Sampler) -> None:
    """Refuse a seed beside a sampler of this package, whose seed is that of order and augmentation.

    Raises:
        ValueError: `seed` is another one than the sampler's, and not the default.
        TypeError: it is no int.
    """
    if check_range("seed", seed, 0, SEEDS) not in (0, sampler.seed):
        raise ArgumentError(f"seed is {seed}, but the sampler has {sampler.seed}: leave it out here")


def check_ranks(rank: Any, world_size: Any, sampler: Any) -> None:
    """Refuse a rank beside a sampler that is made for another one.

    Raises:
        ValueError: the sampler, or the one inside it, has another rank or number of ranks.
    """
    if rank is None and world_size is None:
        return
    seen: list[Any] = []
    while sampler is not None and all(sampler is not each for each in seen):
        for name, value, other in (("rank", rank, "rank"), ("world_size", world_size, "num_replicas")):
            own = getattr(sampler, other, None)
            if value is not None and isinstance(own, int) and own != value:
                raise ArgumentError(f"{name} is {value}, but the sampler has {own}: leave it out here")
        seen.append(sampler)
        sampler = next((inside for each in INSIDE if (inside := getattr(sampler, each, None)) is not None), None)

"""Samplers for torch's loaders whose order is arithmetic: any place in it at once, on any number of ranks.

A sampler runs ahead of the training loop, as far as workers prefetch. Its state counts the indices that it has handed
out. So it is exact in a loader that keeps states with its batches, such as torchdata's StatefulDataLoader. Our own
DataLoader counts batches itself. With torch's own loader only the program knows how many batches it has got: it calls
`set_position`.
"""

import contextlib
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sized
from types import SimpleNamespace
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DistributedSampler
from torch.utils.data import Sampler as TorchSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ffrecord.errors import ArgumentError, ArgumentTypeError, StateError
from ffrecord.order import Cursor, Identity, Order, Run, Step, identity_of
from ffrecord.order.batch_plan import batches
from ffrecord.reading.store import Store
from ffrecord.system.values import describe_wrong, suggest_words, whole_number
from ffrecord.torch.argument_words import SAMPLER_WORDS
from ffrecord.torch.dataset import Dataset, plan_indices
from ffrecord.torch.distributed import Place, Ranks
from ffrecord.torch.indices import hand_down_seeds
from ffrecord.torch.ordering import OrderArguments

__all__ = ["BatchSampler", "Sampler"]

CHUNK = 1024  # indices computed at once
FRAMES = 16  # most calls on the stack between a loader that is being made and its sampler

State = dict[str, Any]


class RunProgress:
    """The progress of an iteration: how much of a run was handed out.

    While a loader with workers is being made, it asks for the first batches, before the program has asked for one. That
    is reading ahead: the iteration counts from the first batch that is asked for later.

    Args:
        cursor: cursor of the run.
        run: the steps to hand out.
        patient: an iteration that was read ahead to its end counts only when something is asked for later, or its
            loader says so.
        ours: the loader is of this package, and begins again by itself.

    Attributes:
        run, ours: the arguments.
        given: indices handed out one by one; 0 if batches are handed out.
        counts: True if something was asked for after the loader was made; then the cursor follows.
        ended: True if the end was reached.
        elsewhere: epoch that was set after the iteration had begun to read ahead, or None.

    A loader of torch that has read ahead begins again too if the sampler is set to another epoch, where that is
    possible.
    """

    def __init__(self, cursor: Cursor, run: Run, *, patient: bool, ours: bool) -> None:
        self.cursor, self.run, self.ours = cursor, run, ours
        self.given = 0
        self.counts = self.ended = False
        self.elsewhere: int | None = None
        self._last: Step | None = None
        self._patient = patient
        self._reader: weakref.ref[Any] | None = None  # the loader's iterator that reads ahead
        self._delivered = 0  # batches that this iterator had delivered before

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        return {**vars(self), "_reader": None, "_patient": True}  # a copy in another process has no loader

    def __next__(self) -> Step:
        self.note_request()
        try:
            step = next(self.run)
        except StopIteration:
            self._end()
            raise
        self._last = step
        if self.counts:
            self.cursor.yielded(step)
        return step

    def note_request(self) -> None:
        """Record that a loader asked for samples. Start counting unless the loader still reads ahead."""
        if self.counts:
            return
        reader = find_reader()
        if reader is not None:
            self._reader, self._delivered = weakref.ref(reader), reader._num_yielded
            return
        if self.elsewhere is not None:
            self._complain(self.elsewhere)
        self.count()

    def leave(self, epoch: int) -> None:
        """Note that `epoch` is wanted instead of the batches read ahead; begin again if possible."""
        self.elsewhere = epoch
        reader = None if self._reader is None else self._reader()
        if reader is None or getattr(reader, "_shutdown", True):
            return  # the iterator is gone or ended, or is of another kind
        with contextlib.suppress(AttributeError, TypeError):  # another torch may lack the method; then `ask` complains
            reader._reset(SimpleNamespace(_IterableDataset_len_called=reader._IterableDataset_len_called))

    def count(self) -> None:
        """Let the cursor follow: the loop has begun."""
        self.counts = True
        if self._last is not None:
            self.cursor.yielded(self._last)
        if self.ended:
            self.cursor.finished(self.run)

    def _end(self) -> None:
        self.ended = True
        if self.counts:
            self.cursor.finished(self.run)

    def settle(self) -> None:
        """Count an iteration that was read ahead to its end, if it was used. Nothing more is asked for then."""
        # torchdata makes two iterators of a state between two epochs, and nobody uses the first.
        if self.counts or not self.ended or self._patient:
            return
        reader = None if self._reader is None else self._reader()
        if reader is None or reader is find_reader() or reader._num_yielded != self._delivered:
            self.count()

    def _complain(self, told: int) -> None:
        """Warn that another epoch is delivered than was set: a loader of torch cannot take its batches back."""
        number = self.run.epoch.number
        sentence = (
            f"the epoch was set to {told} after the loader's workers had begun to read epoch {number}: set it before "
            "iter(loader), or take ffrecord.torch.DataLoader or Loader, which begin again"
        )
        if self.run.position:
            raise StateError(f"{sentence}; the rest of epoch {number}, which was loaded, is not epoch {told}")
        warnings.warn(f"{sentence}; this loop is of epoch {number}", stacklevel=4)

    @property
    def position(self) -> int:
        """The position after the items that were handed out."""
        if self.ended:
            return self.run.epoch.length
        if self.given:
            return position_after(self.run, self.given)
        return self.run.position if self._last is None else self._last.after

    def state(self) -> State:
        """Return the state of the cursor with this position in it. At the end of an epoch the state is still in that
        epoch.
        """
        return {**self.cursor.state_dict(), **place_in(self.run, self.position)}


def find_reader() -> Any:
    """Return the iterator of a loader of torch or torchdata that is being made, or reset, further up the stack."""
    frame = sys._getframe(1)
    for _ in range(FRAMES):
        code = frame.f_code.co_name
        if code in ("__init__", "_reset") and isinstance(found := frame.f_locals.get("self"), _BaseDataLoaderIter):
            return found
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def place_in(run: Run, position: int) -> State:
    """Return the entries of a state for a position in a run, wherever its cursor is now."""
    return {"order": run.epoch.order.to_builtins(), "epoch": run.epoch.number, "position": position}


class SampledBatches(Iterator[list[int]]):
    """An iterator of batches. It begins with the first one, and has a state, which StatefulDataLoader looks for."""

    def __init__(self, sampler: "Sampler") -> None:
        self._sampler = sampler
        self._drawn: RunProgress | None = None
        self._loaded = False

    @property
    def drawn(self) -> RunProgress | None:
        """The progress of the iteration, or None before the first batch."""
        return self._drawn

    def __next__(self) -> list[int]:
        if self._drawn is None:
            self._drawn = self._sampler.begin(patient=self._loaded)
        step, run = next(self._drawn), self._drawn.run
        return plan_indices(self._sampler.dataset, run, run.done - 1, step)

    def state_dict(self) -> State:
        """Return the position after the batches drawn so far; see `Sampler.state_dict`."""
        return self._sampler.state_dict() if self._drawn is None else self._drawn.state()

    def load_state_dict(self, state_dict: State) -> None:
        """Draw from a state on."""
        self._sampler.load_state_dict(state_dict)
        self._drawn, self._loaded = None, True


class SampledIndices(Iterator[int]):
    """An iterator of single indices. It begins with the first one.

    It has a state, which StatefulDataLoader looks for.
    """

    def __init__(self, sampler: "Sampler") -> None:
        self._batches = SampledBatches(sampler)
        self._chunk: Iterator[int] = iter(())
        self._drawn: RunProgress | None = None

    def __next__(self) -> int:
        drawn = self._drawn
        if drawn is not None:
            if not drawn.counts:
                drawn.note_request()
            for index in self._chunk:
                drawn.given += 1
                return index
        self._chunk = iter(next(self._batches))
        self._drawn = self._batches.drawn
        return next(self)

    def state_dict(self) -> State:
        """Return the position after the indices drawn so far; see `Sampler.state_dict`."""
        return self._batches.state_dict()

    def load_state_dict(self, state_dict: State) -> None:
        """Draw from a state on."""
        self._batches.load_state_dict(state_dict)
        self._chunk, self._drawn = iter(()), None


def position_after(run: Run, given: int) -> int:
    """Return the position of a run in which each rank has handed out `given` samples, or all it had."""
    length = run.epoch.length
    if given >= run.split.most(length, run.position):
        return length
    return min(length, run.position + run.split.world_size * given)


class Sampler(DistributedSampler[Any]):
    """Indices of this rank in the order of an epoch, for the `sampler` of a loader.

    It replaces torch's RandomSampler, SequentialSampler and DistributedSampler. Programs that check see a
    DistributedSampler: they leave it alone and call `set_epoch`. It holds no list of indices.

    Without `set_epoch`, each iteration is the next epoch. An iteration does not count if it draws nothing, or if only
    its loader's workers have read ahead. docs/states.md has all the rules.

    A `Loader` takes its order from the sampler. The sampler then has the loader's place: its methods move the loader.

    Args:
        dataset: a dataset of this package, a reader, anything with a length, or that length.
        num_replicas: number of ranks that share the epoch. None takes it from torch.distributed or the environment, and
            looks it up again when an iteration begins, so a process group may begin later; see `rank_and_size`.
        rank: this rank; None looks it up in the same way.
        shuffle: True for order="random", False for "sequential".
        seed: seed of the order, 0 <= seed < 2**64.
        drop_last: True for policy="drop", False for policy="pad", as in torch's DistributedSampler.
        order: "random", "sequential", "block", or an order of `ffrecord.order`.
        policy: "drop", "pad" or "uneven": treatment of samples that ranks cannot share evenly, see `Split`.
        epoch: first epoch.
        indices: int [m], the samples to use, see `Cursor`.
        placement: "node", or the number of nodes if ranks of a node follow each other. A node then reads the same part
            of the dataset in every epoch, in the order of `ffrecord.order.Placed`. "node" looks up the node in the
            environment, when the rank is looked up. None deals samples to ranks wherever they are.

    Raises:
        ValueError, TypeError: arguments are out of range, of another type, or contradict each other; or there is
            nothing to yield.
    """

    @suggest_words(SAMPLER_WORDS)
    def __init__(
        self,
        dataset: Sized | int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
        drop_last: bool | None = None,
        *,
        order: str | Order | None = None,
        policy: str | None = None,
        epoch: int = 0,
        indices: Iterable[int] | torch.Tensor | None = None,
        placement: Place = None,
    ) -> None:
        arguments = OrderArguments(
            order=order,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world_size=num_replicas,
            policy=policy,
            drop_uneven=drop_last,
            indices=indices,
            placement=placement,
        )
        self._set_up(dataset, arguments, CHUNK)

    @classmethod
    def _from_arguments(cls, dataset: Any, arguments: OrderArguments, batch_size: int, drop_last: bool) -> "Sampler":
        """Return a sampler of batches of one size."""
        sampler = cls.__new__(cls)
        sampler._set_up(dataset, arguments, batch_size, drop_last)
        return sampler

    def _set_up(self, dataset: Any, arguments: OrderArguments, batch_size: int, drop_last: bool = False) -> None:
        # torch's own __init__ is not called: it would set attributes that are properties here.
        self.dataset = dataset
        hand_down_seeds(dataset)
        self._cursor, self._ranks = arguments.make(_identify(dataset), batch_size, drop_last)
        self._sizes = self._cursor.batch_size, self._cursor.drop_last  # of iterations; a `Loader` may have others
        self._lent: list[weakref.ref[Cursor]] = []  # cursors of loaders
        self._drawn: RunProgress | None = None
        self._again = False  # the epoch of the last iteration was set again
        self.reports = False  # the loader that draws reports its deliveries itself

    # Attributes of torch's sampler

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """The number of ranks."""
        self._ranks.follow(self._cursor, provisional=True)
        return self._cursor.split.world_size

    @property
    def rank(self) -> int:  # type: ignore[override]
        """The number of this rank."""
        self._ranks.follow(self._cursor)
        return self._cursor.split.rank

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch of the next index."""
        drawn = self._last_drawn
        return self._cursor.epoch if drawn is None or not self._again else drawn.run.epoch.number

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The seed of the order."""
        return self._cursor.seed

    @property
    def order(self) -> Order:
        """The order, one of `ffrecord.order`."""
        return self._cursor.order

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        """True if the order is not "sequential"."""
        return self._cursor.order.name != "sequential-1"

    @property
    def policy(self) -> str:
        """The treatment of samples that ranks cannot share evenly."""
        return self._cursor.split.policy

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """True if samples that ranks cannot share evenly are left out."""
        return self.policy == "drop"

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """The number of samples of this rank in a whole epoch."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """The number of samples of all ranks, if they have equally many."""
        return len(self) * self.num_replicas

    # Drawing

    def begin(self, *, patient: bool = False) -> RunProgress:
        """Begin an iteration, of the next epoch if something was drawn in this one."""
        self._ranks.follow(self._cursor)
        drawn = self._last_drawn
        if drawn is not None and self._again:
            self._cursor.set_epoch(drawn.run.epoch.number)
            self._cursor.set_position(0)
        self._again = False
        run = self._cursor.begin()
        if (run.batch_size, run.drop_last) != self._sizes:  # those of a loader
            run = Run(run.epoch, run.split, run.position, *self._sizes, number=run.number)
        self._drawn = RunProgress(self._cursor, run, patient=patient or self.reports, ours=self.reports)
        return self._drawn

    def lend(
        self, identity: Identity, chosen: npt.NDArray[np.int64] | None, batch_size: int, drop_last: bool
    ) -> tuple[Cursor, Ranks]:
        """Return a cursor in this order for a `Loader`, and the ranks that it follows. The sampler follows the cursor.

        Args:
            identity: identity of the loader's dataset.
            chosen: int64 [m], the samples of the dataset that the loader uses; None for all.
            batch_size, drop_last: batches of the loader.

        Raises:
            ValueError: the sampler is of more samples; or errors of `Cursor`.
            IndexError: a number in `indices` of the sampler is out of range.
        """
        if self._last_drawn is not None and self._again:
            self.set_position(0)
        count, own = identity.samples if chosen is None else len(chosen), self._cursor.identity.samples
        if own > count:
            raise ArgumentError(
                f"the sampler is of a dataset of {own} samples, but the loader's has {count}: make it of that dataset"
            )
        indices = self._cursor.indices
        if indices is None and own < count:
            indices = np.arange(own)
        if chosen is not None:
            indices = chosen if indices is None else chosen[indices]
        self._cursor = self._cursor._over(identity, indices, batch_size, drop_last)
        self._lent = [each for each in self._lent if each() is not None] + [weakref.ref(self._cursor)]
        self._drawn, self._again = None, False
        return self._cursor, self._ranks

    def _cursors(self) -> list[Cursor]:
        """Return the cursors of loaders that are in use, or the sampler's own."""
        return [cursor for each in self._lent if (cursor := each()) is not None] or [self._cursor]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lent": []}  # a copy leads no loader

    @property
    def _last_drawn(self) -> RunProgress | None:
        """The last iteration, counted if it was used, or None."""
        if self._lent and self._drawn is not None and self._drawn.run.number != self._cursor._run:
            self._drawn, self._again = None, False  # a loader has begun a loop since
        if self._drawn is not None:
            self._drawn.settle()
        return self._drawn

    def take_back(self, drawn: RunProgress) -> None:
        """Let the next iteration begin where `drawn` began: nothing of it was delivered.

        Nothing changes if the sampler was set to another place since, or another iteration has begun.
        """
        if self._drawn is drawn and self._cursor.return_to(drawn.run):
            self._drawn, self._again = None, False

    def _follow_ranks(self) -> bool:
        """Become the rank that this process is now. An unknown rank is an error only if ranks may differ in length."""
        return self._ranks.follow(self._cursor, provisional=self.policy != "uneven")

    def __iter__(self) -> Iterator[int]:
        return SampledIndices(self)

    def __len__(self) -> int:
        """Return the number of samples of this rank in a whole epoch, as trainers expect, also in the middle of one."""
        self._follow_ranks()
        return self._cursor.split.count(self._cursor.length)

    # Position

    @property
    def position(self) -> int:
        """The number of samples of the epoch that all ranks together were handed out, if each was handed out equally
        many.
        """
        place: int = self.state_dict()["position"]
        return place

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. It begins at its start, or where a loaded state or `set_position` put
        it.
        """
        if self._lent:
            for cursor in self._cursors():
                cursor.announce(epoch)
            self._drawn, self._again = None, False
            return
        drawn = self._last_drawn
        if drawn is not None and drawn.run.epoch.number == epoch:
            # An iteration that has begun goes on: workers may have read ahead in it. If it has delivered something, the
            # next one has the same epoch, from its start.
            self._again = drawn.counts
            return
        if drawn is not None and not drawn.counts:
            self._cursor.return_to(drawn.run)
        self._cursor.set_epoch(epoch)
        self._drawn, self._again = None, False
        if drawn is not None and not drawn.counts and not drawn.ours:
            drawn.leave(self._cursor.epoch)

    def set_position(self, position: int) -> None:
        """Let the next iteration begin at a position of the current epoch.

        Args:
            position: number of samples that all ranks together have got, 0 <= position <= length. After k steps of an
                epoch with a loader's batch_size of b it is k * b * num_replicas; after the last step it is the length.
        """
        epoch = self.epoch
        for cursor in self._cursors():
            cursor.set_epoch(epoch)
            cursor.set_position(position)
        self._drawn, self._again = None, False

    def state_dict(self) -> State:
        """Return the position after the indices handed out so far: a small dict that JSON can hold.

        A loader with workers has yielded less. "epoch" and "position" are the place. "version", "order", "dataset",
        "indices" and "seed" describe what it is a place in.
        """
        self._ranks.follow(self._cursor, provisional=True)
        drawn = self._last_drawn
        if drawn is not None and self._again:
            return {**self._cursor.state_dict(), "epoch": self.epoch, "position": 0}
        return self._cursor.state_dict() if drawn is None or drawn.ended else drawn.state()

    def load_state_dict(self, state_dict: State, appended: str = "refuse") -> None:
        """Let the next iteration go on from a state.

        Args:
            state_dict: state of a sampler or loader of this package over the same dataset, order and `indices`; ranks
                and batch sizes may differ.
            appended: action if shards were appended since, see `Cursor`.

        Raises:
            ValueError: it is not such a state; nothing has changed.
        """
        for cursor in self._cursors():
            cursor.load_state_dict(state_dict, appended)
        self._drawn, self._again = None, False


class BatchSampler(TorchBatchSampler):
    """Batches of indices of this rank, for the `batch_sampler` of a loader.

    Args:
        dataset: argument of `Sampler`.
        batch_size: samples of this rank in a batch, 1 or more.
        drop_last: leave out a smaller last batch.
        policy: argument of `Sampler`; the default is "drop" too.
        num_replicas, rank, shuffle, seed, order, epoch, indices, placement: arguments of `Sampler`.

    Attributes:
        batch_size, drop_last: the arguments.
        sampler: a `Sampler` in the same place: setting the epoch of one sets the epoch of the other.

    Raises:
        As `Sampler`.
        TypeError: `dataset` is a sampler.
    """

    @suggest_words(SAMPLER_WORDS)
    def __init__(
        self,
        dataset: Sized | int,
        batch_size: int,
        drop_last: bool = False,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
        order: str | Order | None = None,
        policy: str | None = None,
        epoch: int = 0,
        indices: Iterable[int] | torch.Tensor | None = None,
        placement: Place = None,
    ) -> None:
        arguments = OrderArguments(
            order=order,
            shuffle=shuffle,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world_size=num_replicas,
            policy=policy,
            indices=indices,
            placement=placement,
        )
        self._set_up(dataset, arguments, batch_size, drop_last)

    @classmethod
    def _from_arguments(
        cls, dataset: Any, arguments: OrderArguments, batch_size: int, drop_last: bool = False
    ) -> "BatchSampler":
        batches = cls.__new__(cls)
        batches._set_up(dataset, arguments, batch_size, drop_last)
        return batches

    def _set_up(self, dataset: Any, arguments: OrderArguments, batch_size: int, drop_last: bool) -> None:
        # torch's own BatchSampler takes a sampler here, and programs that split loaders try it.
        if isinstance(dataset, TorchSampler):
            raise ArgumentTypeError(describe_wrong("dataset", dataset, "a dataset", "pass the dataset of this sampler"))
        self.sampler: Sampler = Sampler._from_arguments(dataset, arguments, batch_size, drop_last)
        self.batch_size = self.sampler._cursor.batch_size
        self.drop_last = bool(drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return SampledBatches(self.sampler)

    def __len__(self) -> int:
        """Return the number of batches of this rank in a whole epoch, as trainers expect, also in the middle of one."""
        return batches(len(self.sampler), *self.sampler._sizes)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self.sampler.epoch

    @property
    def position(self) -> int:
        """The number of samples of the epoch that all ranks together were handed out; see `Sampler.position`."""
        return self.sampler.position

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; see `Sampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def set_position(self, position: int) -> None:
        """Let the next iteration begin at a position of the current epoch; see `Sampler.set_position`."""
        self.sampler.set_position(position)

    def state_dict(self) -> State:
        """Return the position after the batches handed out so far; see `Sampler.state_dict`."""
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict: State, appended: str = "refuse") -> None:
        """Let the next iteration go on from a state; see `Sampler.load_state_dict`."""
        self.sampler.load_state_dict(state_dict, appended)


def _identify(dataset: Any) -> Identity:
    if isinstance(dataset, Store):
        return identity_of(dataset)
    if isinstance(dataset, Dataset):
        return dataset._identity()
    if isinstance(dataset, SupportsIndex):
        return Identity(whole_number("dataset", dataset))
    if isinstance(dataset, Sized) and not isinstance(dataset, str | bytes):  # a path has a length, but no samples
        return Identity(len(dataset))
    raise ArgumentTypeError(describe_wrong("dataset", dataset, "a dataset with a length, or that length"))

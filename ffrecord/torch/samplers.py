"""Samplers for torch's loaders whose order is arithmetic: any place in it at once, on any number of ranks.

A sampler runs ahead of the training loop, as far as workers prefetch. Its state counts what it has handed out, so it is
exact in a loader that keeps states with its batches, as torchdata's StatefulDataLoader does. Our own DataLoader counts
batches itself. With torch's own loader only the program knows how many it has got: it calls `set_position`.
"""

from collections.abc import Iterable, Iterator, Sized
from typing import Any, SupportsIndex

from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DistributedSampler
from torch.utils.data import Sampler as TorchSampler

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order import Course, Identity, Order, Run, identity_of
from ffrecord.store import Store
from ffrecord.torch.dataset import Dataset
from ffrecord.torch.distributed import Place, placement_on, rank_and_size

__all__ = ["BatchSampler", "Sampler"]

CHUNK = 1024  # indices computed at once

State = dict[str, Any]


class Drawn:
    """How much of a run was handed out.

    Attributes:
        run: that it is of.
        position: after what was handed out.
        any: whether something was, or there was nothing.
        ended: whether the end was reached.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.take(course.begin())

    def take(self, run: Run) -> None:
        """Begin at the start of `run`."""
        self.run = run
        self.position, self.any, self.ended = run.position, False, False

    def end(self) -> None:
        """The run has no more."""
        self.any = self.ended = True
        self.position = self.run.epoch.length
        self.course.finished(self.run)

    def state(self) -> State:
        """Of the course, with this place in it: at the end of the epoch also where that has ended."""
        return {**self.course.state_dict(), **place_in(self.run, self.position)}

    def load(self, state: State) -> None:
        """Go on at the place of `state`."""
        self.course.load_state_dict(state)
        self.take(self.course.steps())
        # StatefulDataLoader asks twice for an iterator where the state is of an epoch that had ended; the second is
        # of the next one.
        self.any = len(self.run) == 0


def place_in(run: Run, position: int) -> State:
    """What a state says of a place in a run, whatever has become of its course."""
    return {"order": run.epoch.order.to_builtins(), "epoch": run.epoch.number, "position": position}


class Batches(Iterator[list[int]]):
    """Draws batches. It has a state, which StatefulDataLoader looks for."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn

    def __next__(self) -> list[int]:
        drawn = self._drawn
        try:
            step = next(drawn.run)
        except StopIteration:
            drawn.end()
            raise
        drawn.course.yielded(step)
        drawn.position, drawn.any = step.after, True
        indices: list[int] = step.indices.tolist()
        return indices

    def state_dict(self) -> State:
        """After the batches drawn so far; see `Sampler.state_dict`."""
        return self._drawn.state()

    def load_state_dict(self, state_dict: State) -> None:
        """Draw from there on."""
        self._drawn.load(state_dict)


class Indices(Iterator[int]):
    """Draws indices one by one. It has a state, likewise."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn, self._batches = drawn, Batches(drawn)
        self._given = 0
        self._chunk: Iterator[int] = iter(())

    def __next__(self) -> int:
        for index in self._chunk:
            self._given += 1
            return index
        self._chunk = iter(next(self._batches))
        return next(self)

    def state_dict(self) -> State:
        """After the indices drawn so far; see `Sampler.state_dict`."""
        self.settle()
        return self._drawn.state()

    def load_state_dict(self, state_dict: State) -> None:
        """Draw from there on."""
        self._drawn.load(state_dict)
        self._given, self._chunk = 0, iter(())

    def settle(self) -> None:
        """Say how far it has come: not at every index, as that is what would take the time."""
        if self._given and not self._drawn.ended:
            self._drawn.position = position_after(self._drawn.run, self._given)


def position_after(run: Run, given: int) -> int:
    """The position of a run in which each rank has handed out `given` samples, or all it had."""
    length = run.epoch.length
    if given >= run.split.most(length, run.position):
        return length
    return min(length, run.position + run.split.world_size * given)


class Sampler(DistributedSampler[Any]):
    """Indices of this rank in the order of an epoch, for the `sampler` of a loader.

    It takes the place of torch's RandomSampler, SequentialSampler and DistributedSampler, and is the last one to
    programs that look: they leave it alone and call `set_epoch`. It holds no list of indices.

    Without `set_epoch`, each iteration is the next epoch. One that draws nothing does not count.

    Args:
        dataset: a dataset of ours, a reader, anything with a length, or that length.
        num_replicas: ranks that share the epoch; from torch.distributed or the environment if None, looked up again
            when an iteration begins, see `rank_and_size`.
        rank: this one; likewise.
        shuffle: True for order="random", False for "sequential".
        seed: of the order, 0 <= seed < 2**64.
        drop_last: True for policy="drop", False for policy="pad", as torch's DistributedSampler means them.
        order: "random", "sequential", "block", or an order of `ffrecord.order`.
        policy: "drop", "pad" or "uneven": what becomes of samples that ranks cannot share evenly, see `Split`.
        epoch: to begin with.
        indices: int [m], the samples to use, see `Course`.
        placement: "node", or the number of nodes where ranks of a node follow each other, so that a node reads the same
            part of the dataset in every epoch; see `ffrecord.order.Placed` for the order that this is. None: samples
            are dealt to ranks wherever they are. Which node this is, "node" looks up as `rank` is, in the environment.

    Raises:
        ValueError, TypeError: arguments out of range or of another type, that contradict each other, or that yield
            nothing.
    """

    def __init__(
        self,
        dataset: Sized | SupportsIndex,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool | None = None,
        seed: SupportsIndex = 0,
        drop_last: bool | None = None,
        *,
        order: str | Order | None = None,
        policy: str | None = None,
        epoch: SupportsIndex = 0,
        indices: Iterable[SupportsIndex] | None = None,
        placement: Place = None,
        _batch: tuple[SupportsIndex, bool] = (CHUNK, False),
    ) -> None:
        # torch's own __init__ would set what are properties here.
        self.dataset = dataset  # type: ignore[assignment]
        self._asked = rank, num_replicas
        self._place = placement
        rank, world_size = rank_and_size(rank, num_replicas)
        self._course = Course(
            _identity(dataset),
            order=_either("order", order, "shuffle", shuffle, {True: "random", False: "sequential"}, "random"),
            seed=seed,
            epoch=epoch,
            batch_size=_batch[0],
            drop_last=_batch[1],
            rank=rank,
            world_size=world_size,
            policy=_either("policy", policy, "drop_last", drop_last, {True: "drop", False: "pad"}, "drop"),
            indices=indices,
            placement=placement_on(placement, rank, world_size),
        )
        self._drawn: Drawn | None = None
        self._again = False  # the epoch of what was drawn was asked for again
        self._iterator: Indices | None = None

    # What torch's sampler has as attributes

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """Ranks."""
        return self._course.split.world_size

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This rank."""
        return self._course.split.rank

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """That the next index is of."""
        drawn = self._drawn
        return self._course.epoch if drawn is None or not self._again else drawn.run.epoch.number

    @property
    def seed(self) -> int:  # type: ignore[override]
        """Of the order."""
        return self._course.seed

    @property
    def order(self) -> Order:
        """As `ffrecord.order` has it."""
        return self._course.order

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        """Whether the order is another than that of the indices."""
        return self._course.order.name != "sequential-1"

    @property
    def policy(self) -> str:
        """What becomes of samples that ranks cannot share evenly."""
        return self._course.split.policy

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether those are left out."""
        return self.policy == "drop"

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """As `len`."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Of all ranks, where they have equally many."""
        return len(self) * self.num_replicas

    # Drawing

    def begin(self) -> Drawn:
        """Begin an iteration, of the next epoch if something was drawn in this one."""
        rank, world_size = rank_and_size(*self._asked)
        if (rank, world_size) != (self.rank, self.num_replicas):  # since then torch.distributed was initialised
            self._course.share(rank, world_size, placement_on(self._place, rank, world_size))
        drawn = self._drawn
        if drawn is not None and drawn.any:
            if self._again:
                self._course.set_epoch(drawn.run.epoch.number)
                self._course.set_position(0)
            elif not drawn.ended:
                self._course.finished()
        self._again = False
        self._drawn, self._iterator = Drawn(self._course), None
        return self._drawn

    def __iter__(self) -> Iterator[int]:
        iterator = Indices(self.begin())
        self._iterator = iterator
        return iterator

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch, as trainers expect: also where one is taken up in the middle."""
        return self._course.split.count(self._course.length)

    # Where it is

    @property
    def position(self) -> int:
        """Samples of the epoch that all ranks together were handed out, if each was handed out as many as this one."""
        place: int = self.state_dict()["position"]
        return place

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Let the next iteration be of this epoch: from its start, but where a state or position of it waits."""
        drawn = self._drawn
        if drawn is not None and drawn.run.epoch.number == epoch:
            self._again = True  # an iteration of it that has begun goes on, as one that workers have begun must
            return
        self._again = False
        self._course.set_epoch(epoch)
        self._drawn = None

    def set_position(self, position: SupportsIndex) -> None:
        """Let the next iteration begin there, in the epoch that `epoch` says.

        Args:
            position: samples that all ranks together have got, 0 <= position <= length: after k steps of an epoch with
                a loader's batch_size of b, that is k * b * num_replicas, and the length after the last one.
        """
        epoch = self.epoch
        self._course.set_epoch(epoch)
        self._course.set_position(position)
        self._drawn, self._again = None, False

    def state_dict(self) -> State:
        """What was handed out so far: a small dict that JSON can hold. A loader with workers has yielded less.

        "epoch" and "position" say where, the others of what: "version", "order", "dataset", "indices", "seed".
        """
        if self._iterator is not None:
            self._iterator.settle()
        drawn = self._drawn
        if drawn is None or not drawn.ended:
            return self._course.state_dict() if drawn is None else drawn.state()
        return {**self._course.state_dict(), "epoch": self.epoch}

    def load_state_dict(self, state_dict: State, appended: str = "refuse") -> None:
        """Let the next iteration go on there.

        Args:
            state_dict: of a sampler or loader of ours over the same dataset, order and `indices`; ranks and batch
                sizes may differ.
            appended: what to do where shards were appended since, see `Course`.

        Raises:
            ValueError: not such a state; nothing has changed.
        """
        self._course.load_state_dict(state_dict, appended)
        self._drawn, self._again = None, False


class BatchSampler(TorchBatchSampler):
    """Batches of indices of this rank, for the `batch_sampler` of a loader.

    Args:
        dataset: as of `Sampler`.
        batch_size: of this rank, 1 or more.
        drop_last: leave out a last batch that is smaller.
        policy: as of `Sampler`, and as for it the default is "drop".
        num_replicas, rank, shuffle, seed, order, epoch, indices, placement: as of `Sampler`.

    Attributes:
        batch_size, drop_last: as given.
        sampler: a `Sampler` in the same place: to set the epoch of one sets that of the other.

    Raises:
        As `Sampler`; TypeError: `dataset` is a sampler.
    """

    def __init__(
        self,
        dataset: Sized | SupportsIndex,
        batch_size: SupportsIndex,
        drop_last: bool = False,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool | None = None,
        seed: SupportsIndex = 0,
        order: str | Order | None = None,
        policy: str | None = None,
        epoch: SupportsIndex = 0,
        indices: Iterable[SupportsIndex] | None = None,
        placement: Place = None,
    ) -> None:
        # What torch's own wants there; programs that split loaders try it.
        if isinstance(dataset, TorchSampler):
            raise ArgumentTypeError(f"dataset is a sampler, {type(dataset).__name__}; give what it takes samples of")
        sampler = Sampler(
            dataset,
            num_replicas,
            rank,
            shuffle,
            seed,
            order=order,
            policy=policy,
            epoch=epoch,
            indices=indices,
            placement=placement,
            _batch=(batch_size, drop_last),
        )
        self.sampler: Sampler = sampler
        self.batch_size = sampler._course.batch_size
        self.drop_last = bool(drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return Batches(self.sampler.begin())

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch, as trainers expect: also where one is taken up in the middle."""
        return self.sampler._course.whole

    @property
    def epoch(self) -> int:
        """That the next batch is of."""
        return self.sampler.epoch

    @property
    def position(self) -> int:
        """As of `Sampler`."""
        return self.sampler.position

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """As of `Sampler`."""
        self.sampler.set_epoch(epoch)

    def set_position(self, position: SupportsIndex) -> None:
        """As of `Sampler`."""
        self.sampler.set_position(position)

    def state_dict(self) -> State:
        """As of `Sampler`."""
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict: State, appended: str = "refuse") -> None:
        """As of `Sampler`."""
        self.sampler.load_state_dict(state_dict, appended)


def _identity(dataset: Any) -> Identity:
    if isinstance(dataset, Store):
        return identity_of(dataset)
    if isinstance(dataset, Dataset):
        return dataset._identity()
    if isinstance(dataset, SupportsIndex):
        return Identity(dataset.__index__())
    if isinstance(dataset, Sized) and not isinstance(dataset, str | bytes):  # whose length is that of a path
        return Identity(len(dataset))
    raise ArgumentTypeError(f"dataset is {type(dataset).__name__}, expected a dataset with a length, or that length")


def _either(name: str, value: Any, other: str, flag: bool | None, meaning: dict[bool, str], default: str) -> Any:
    """What two arguments that say the same ask for."""
    if flag is None:
        return default if value is None else value
    meant = meaning[bool(flag)]
    if value is not None and value != meant:
        raise ArgumentError(f"{name} is {value!r}, but {other}={flag} asks for {meant!r}")
    return meant

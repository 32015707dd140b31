"""The samples of a dataset as an iterable, for loaders and trainers that do not take samplers."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info

from ffrecord.errors import ArgumentTypeError
from ffrecord.inputs.parts import ChosenSamples, Parts
from ffrecord.inputs.recognise import is_untouched, parts_of
from ffrecord.order import Order, Run
from ffrecord.system.sample_types import UNTOLD
from ffrecord.system.values import describe_wrong, suggest_words
from ffrecord.torch.argument_words import SAMPLER_WORDS
from ffrecord.torch.dataset import Dataset, plan_indices
from ffrecord.torch.distributed import Place
from ffrecord.torch.ordering import OrderArguments
from ffrecord.torch.samplers import BatchSampler, State
from ffrecord.torch.stop_iteration import StopIterationGuard, describe_batch

__all__ = ["IterableDataset"]

T_co = TypeVar("T_co", covariant=True)

# The entries of a state that `load_state_dict` may change: the others are equal in all processes.
CHANGING_ENTRIES = ("seed", "epoch", "position", "dataset")
PLACE_BYTES = 1024  # twice as much as these entries take as JSON, with the dataset's order in other slices


class WorkerSamples(Iterator[T_co]):
    """The samples of one worker's batches, in order. StatefulDataLoader keeps its state for each worker.

    Args:
        dataset: the whole dataset.
        begin: returns the batches of this rank, and the state of their beginning. It begins at a state, or, with None,
            at the place that was set for the dataset.
    """

    def __init__(self, dataset: Dataset[T_co], begin: Callable[[State | None], tuple[Run, State]]) -> None:
        info = get_worker_info()
        self._worker, self._workers = (0, 1) if info is None else (info.id, info.num_workers)
        self._dataset, self._begin = dataset, begin
        self._take(None)

    def _take(self, state: State | None) -> None:
        self._run, self._begun = self._begin(state)
        self._next = self._worker  # number of the batch to read next
        self._samples: list[T_co] = []  # of the batch read last
        self._given = 0  # how many of them were yielded

    def __next__(self) -> T_co:
        while self._given == len(self._samples):
            self._read()
        sample = self._samples[self._given]
        self._given += 1
        return sample

    def _read(self) -> None:
        if self._next >= len(self._run):
            raise StopIteration
        indices = plan_indices(self._dataset, self._run, self._next, self._run[self._next])
        with StopIterationGuard(lambda: f"{type(self._dataset).__name__}, for {describe_batch(indices)},"):
            self._samples, self._given = list(self._dataset.__getitems__(indices)), 0
        self._next += self._workers

    def state_dict(self) -> State:
        """Return the position: the state of the beginning, and how far it came."""
        return {"begun": self._begun, "next": self._next, "given": self._given}

    def load_state_dict(self, state_dict: State) -> None:
        """Go on from a state, in the same worker of equally many."""
        self._take(state_dict["begun"])
        if state_dict["given"]:
            self._next = state_dict["next"] - self._workers
            self._read()
            self._given = state_dict["given"]


class IterableDataset(TorchIterableDataset[T_co]):
    """The samples of a dataset in the order of an epoch, split over ranks, and over the workers of their loader.

    torch's `DataLoader(IterableDataset(dataset, batch_size=64), batch_size=64)` gives the same batches as a loader with
    `BatchSampler(dataset, 64)`, with any number of workers: they take whole batches in turn.

    An iteration yields the epoch that was set, from the position that was set: call `set_epoch` before each. The call
    also reaches persistent workers. A dataset cannot know the batches that its loader has yielded, so call
    `set_position` to go on in the middle of an epoch.

    Args:
        dataset: a dataset of this package. If its `on_error="skip"` leaves out samples, the next samples of the same
            worker fill the batch.
        batch_size: batch size of the loader, 1 or more.
        num_replicas, rank, shuffle, seed, order, policy, epoch, indices, placement: arguments of `Sampler`. Workers get
            the rank from the process that starts them, at that time.

    Attributes:
        dataset, batch_size: the arguments.

    Raises:
        As `Sampler`.
        TypeError: `dataset` is not a dataset of this package.
    """

    __orig_class__ = UNTOLD

    @suggest_words(SAMPLER_WORDS)
    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int = 1,
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
        if not isinstance(dataset, Dataset):
            raise ArgumentTypeError(describe_wrong("dataset", dataset, "an ffrecord.torch.Dataset"))
        self.dataset = dataset
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
        self._sampler = BatchSampler._from_arguments(dataset, arguments, batch_size)
        self._order = self._sampler.sampler.order.to_builtins()
        self.batch_size = self._sampler.batch_size
        # JSON in memory shared with the workers, so that persistent workers see the place that is set.
        self._place = torch.empty(PLACE_BYTES, dtype=torch.uint8, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
        self._publish()

    @property
    def epoch(self) -> int:
        """The epoch of iterations."""
        number: int = self._read_place()["epoch"]
        return number

    @property
    def position(self) -> int:
        """The position in the epoch's order where iterations begin."""
        place: int = self._read_place()["position"]
        return place

    def __len__(self) -> int:
        """Return the number of samples of this rank in an iteration."""
        self._follow_ranks(provisional=True)
        self._move_to_place()
        cursor = self._sampler.sampler._cursor
        return cursor.split.count(cursor.length, cursor.position)

    def __iter__(self) -> WorkerSamples[T_co]:
        return WorkerSamples(self.dataset, self._begin)

    def _parts_of_dataset(self) -> Parts | None:
        """Return the records that an iteration in this process yields; None if a subclass makes other samples."""
        inner = parts_of(self.dataset) if is_untouched(self, ("__iter__", "__len__")) else None
        if inner is None or get_worker_info() is not None:
            return None
        run, _ = self._begin(None)
        batches = [run[number].indices for number in range(len(run))]
        return ChosenSamples(inner, np.concatenate([np.empty(0, np.int64), *batches]))

    def set_epoch(self, epoch: int) -> None:
        """Let iterations yield this epoch, from its start. The current epoch keeps its position."""
        self._move_to_place()
        self._sampler.set_epoch(epoch)
        self._publish()

    def set_position(self, position: int) -> None:
        """Let iterations begin at a position.

        Args:
            position: number of samples that all ranks together have got, see `Sampler.set_position`.
        """
        self._move_to_place()
        self._sampler.set_position(position)
        self._publish()

    def state_dict(self) -> State:
        """Return the place where iterations begin, as it was set: a small dict that JSON can hold."""
        self._move_to_place()
        return self._sampler.state_dict()

    def load_state_dict(self, state_dict: State, appended: str = "refuse") -> None:
        """Let iterations begin at the place of a state, see `Sampler.load_state_dict`."""
        self._sampler.load_state_dict(state_dict, appended)
        self._publish()

    def _follow_ranks(self, *, provisional: bool = False) -> None:
        """Become the rank that this process is now; in a worker, the rank of the process that it works for."""
        sampler = self._sampler.sampler
        if sampler._ranks.follow(sampler._cursor, provisional=provisional):
            self._order = sampler.order.to_builtins()

    def _move_to_place(self) -> None:
        """Move the sampler to the place that was set, maybe in another process."""
        told = self._read_place()
        if told != self._current_place():
            # The process that set the place has checked whether shards may be appended.
            self._sampler.load_state_dict({**self._sampler.state_dict(), "order": self._order, **told}, "finish")
            self._sampler.set_epoch(told["epoch"])  # stays in that epoch, also at its end

    def _current_place(self) -> State:
        sampler = self._sampler.sampler
        state = {**sampler.state_dict(), "epoch": sampler.epoch, "position": sampler.position}
        # The order of a mixture may be long. It is left out while it is the dataset's own.
        changing = CHANGING_ENTRIES if state["order"] == self._order else (*CHANGING_ENTRIES, "order")
        return {name: state[name] for name in changing}

    def _read_place(self) -> State:
        told: State = json.loads(self._place.numpy().tobytes())
        return told

    def _publish(self) -> None:
        text = json.dumps(self._current_place()).ljust(PLACE_BYTES).encode()
        self._place.numpy()[:] = np.frombuffer(text, np.uint8)

    def _begin(self, state: State | None) -> tuple[Run, State]:
        self._follow_ranks()
        if state is None:
            self._move_to_place()
        else:
            self._sampler.load_state_dict(state)
        begun = self._sampler.state_dict()
        return self._sampler.sampler._cursor.steps(), begun

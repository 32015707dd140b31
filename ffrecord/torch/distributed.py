"""Rank, number of ranks and node of this process, found without communication with other ranks."""

from typing import Any, NamedTuple, Protocol, TypeAlias

import torch.distributed
from torch.utils.data import get_worker_info

from ffrecord.errors import ArgumentError, UnknownRankError
from ffrecord.order import Placement, Split
from ffrecord.order.environment import placement_of, rank_of
from ffrecord.system.values import whole_number

__all__ = ["Place", "Ranks", "placement_on", "rank_and_size"]

# Types of the argument `placement` of loaders and samplers.
Place: TypeAlias = "str | int | Placement | None"


def rank_and_size(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks.

    Given arguments count. Each missing one comes from torch.distributed if it is initialised; else from the
    environment: RANK and WORLD_SIZE of torchrun, or the variables of Open MPI, MVAPICH, MPICH, Intel MPI, or a step of
    Slurm; else it is rank 0 of 1. One of several ranks must know its number: if all took the same share, only the loss
    would show it.

    Args:
        rank: 0 <= rank < world_size.
        world_size: 1 or more.

    Raises:
        ValueError (also AssertionError): a number is out of range, with both numbers in the message; an environment
            variable is not an int; or there are several ranks, and this one is unknown.
        TypeError: an argument is not an int.
    """
    known_rank, known_size = (None, 1) if rank is not None and world_size is not None else _look_up()
    found_rank = known_rank if rank is None else whole_number("rank", rank)
    found_size = known_size if world_size is None else whole_number("world_size", world_size)
    if found_size < 1:
        raise ArgumentError(f"world_size is {found_size}, expected 1 or more")
    if found_rank is None:
        if found_size > 1:
            raise UnknownRankError(
                f"world_size is {found_size}, and no rank is given, nor by RANK or torch.distributed: pass rank=, or "
                "begin the loop after init_process_group"
            )
        found_rank = 0
    if not 0 <= found_rank < found_size:
        advice = "; pass world_size, too" if world_size is None else ""
        raise ArgumentError(f"rank is {found_rank}, expected 0 <= rank < {found_size}{advice}")
    return found_rank, found_size


def placement_on(place: Place, rank: int, world_size: int) -> Placement | None:
    """Return the node of a rank.

    Args:
        place: "node" for the node in the environment; the number of nodes, if ranks of a node follow each other; a
            `Placement`; or None.
        rank: 0 <= rank < world_size.
        world_size: 1 or more.

    Raises:
        ValueError: the word is unknown; the environment describes other ranks or no nodes, or contradicts itself; or
            nodes have different numbers of ranks.
        TypeError: `place` has another type.
    """
    if place is None or isinstance(place, Placement):
        return place
    if isinstance(place, str):
        if place != "node":
            raise ArgumentError(f"placement is {place!r}, expected 'node', a number of nodes, or a Placement")
        return placement_of(rank, world_size)
    return Placement.of(rank, world_size, place)


def _look_up() -> tuple[int | None, int]:
    if _has_group():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, size = rank_of()
    return rank, 1 if size is None else size


def _has_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class RankCursor(Protocol):
    """The cursor of one rank, by position or of drawn samples."""

    split: Split

    def share(self, rank: int, world_size: int, placement: Placement | None = None) -> None:
        """Become another rank."""


class FoundRank(NamedTuple):
    """The rank of a process, the number of ranks, and the placement of the rank."""

    rank: int
    world_size: int
    placement: Placement | None


class Ranks:
    """The rank of a sampler or loader. It is looked up again whenever a loop begins.

    Programs make their loaders before they begin a process group. Trainers start a script again for other ranks, which
    do not know their numbers at first. So the first result may be provisional.

    Args:
        rank, world_size, placement: arguments of `Sampler`; None to look them up.

    Raises:
        ValueError, TypeError: errors of `rank_and_size` and `placement_on`; or a number of ranks is given, but no rank
            is known.
    """

    def __init__(self, rank: int | None, world_size: int | None, placement: Place) -> None:
        self._asked = rank, world_size
        self._place = placement
        self._carried: FoundRank | None = None  # from the process that this object was pickled in
        self.first = self._find_first()

    def follow(self, cursor: RankCursor, *, provisional: bool = False) -> bool:
        """Let the next loop of `cursor` belong to the rank that this process is now.

        Args:
            cursor: the cursor to change.
            provisional: change nothing if the rank is not known yet.

        Returns:
            True if the rank, the number of ranks or the placement has changed.

        Raises:
            ValueError: the rank is unknown, or would have no batch.
        """
        try:
            found = self._find()
        except UnknownRankError:
            if provisional:
                return False
            raise
        split = cursor.split
        if found == (split.rank, split.world_size, split.placement):
            return False
        cursor.share(*found)
        return True

    def _find(self) -> FoundRank:
        if self._carried is not None and get_worker_info() is not None and not _has_group():
            return self._carried  # a spawned worker is in no group, so it uses the rank of its parent
        rank, world_size = rank_and_size(*self._asked)
        return FoundRank(rank, world_size, placement_on(self._place, rank, world_size))

    def _find_first(self) -> FoundRank:
        try:
            return self._find()
        except UnknownRankError:
            if self._asked[1] is not None:
                raise
            return FoundRank(0, _look_up()[1], None)

    def __getstate__(self) -> dict[str, Any]:
        carried: FoundRank | None
        try:
            carried = self._find()
        except ValueError:
            carried = self._carried
        return {**vars(self), "_carried": carried}

"""Which rank this process is, of how many, and on which node; found out without talking to the others."""

import operator
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import torch.distributed
from torch.utils.data import get_worker_info

from ffrecord.errors import ArgumentError, ArgumentTypeError, UnknownRankError
from ffrecord.order import Course, Placement
from ffrecord.order.environment import placement_of, rank_of

__all__ = ["Place", "Ranks", "placement_on", "rank_and_size"]

# What `placement` of loaders and samplers may be.
Place: TypeAlias = "str | SupportsIndex | Placement | None"


def rank_and_size(rank: SupportsIndex | None = None, world_size: SupportsIndex | None = None) -> tuple[int, int]:
    """The rank of this process and the number of ranks.

    What is given counts. What is not is taken, each by itself, from torch.distributed if that is initialised; else from
    the environment: RANK and WORLD_SIZE, which torchrun sets, or what Open MPI, MVAPICH, MPICH and Intel MPI, or a step
    of Slurm set; else it is rank 0 of 1. One of several has to know which it is: that all of them take the same share
    would show only in the loss.

    Args:
        rank: 0 <= rank < world_size.
        world_size: 1 or more.

    Raises:
        ValueError (also AssertionError): out of range, or an environment variable that is no int; with both numbers; or
            several ranks, and nobody says which this is.
        TypeError: not an int.
    """
    known_rank, known_size = (None, 1) if rank is not None and world_size is not None else _known()
    found_rank = known_rank if rank is None else _int("rank", rank)
    found_size = known_size if world_size is None else _int("world_size", world_size)
    if found_size < 1:
        raise ArgumentError(f"world_size is {found_size}, expected 1 or more")
    if found_rank is None:
        if found_size > 1:
            raise UnknownRankError(
                f"world_size is {found_size}, and no rank is given, nor by RANK or torch.distributed: give rank=, or "
                "begin the loop after init_process_group"
            )
        found_rank = 0
    if not 0 <= found_rank < found_size:
        raise ArgumentError(f"rank {found_rank} of world_size {found_size}, expected 0 <= rank < {found_size}")
    return found_rank, found_size


def placement_on(place: Place, rank: int, world_size: int) -> Placement | None:
    """On which node a rank is.

    Args:
        place: "node": as the environment says; or the number of nodes, where ranks of a node follow each other; or a
            `Placement`; or None.
        rank: 0 <= rank < world_size.
        world_size: 1 or more.

    Raises:
        ValueError: another word; the environment says it of other ranks, or not at all, or contradicts itself; or nodes
            have different numbers of ranks.
        TypeError: none of these.
    """
    if place is None or isinstance(place, Placement):
        return place
    if isinstance(place, str):
        if place != "node":
            raise ArgumentError(f"placement is {place!r}, expected 'node', a number of nodes, or a Placement")
        return placement_of(rank, world_size)
    return Placement.of(rank, world_size, place)


def _int(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}, expected an int") from None


def _known() -> tuple[int | None, int]:
    if _has_group():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, size = rank_of()
    return rank, 1 if size is None else size


def _has_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class FoundRank(NamedTuple):
    """What was found of a process: its rank, the number of ranks, and where the rank is placed."""

    rank: int
    world_size: int
    placement: Placement | None


class Ranks:
    """The rank of a sampler or loader. It is looked up again whenever a loop begins.

    Programs make their loaders before they begin a process group, and trainers start a script again for other ranks
    before these know which they are. So what is found first may be provisional.

    Args:
        rank, world_size, placement: as of `Sampler`; None for what is to be found.

    Raises:
        ValueError, TypeError: as `rank_and_size` and `placement_on`; a number of ranks is given, but no rank is known.
    """

    def __init__(self, rank: SupportsIndex | None, world_size: SupportsIndex | None, placement: Place) -> None:
        self._asked = rank, world_size
        self._place = placement
        self._carried: FoundRank | None = None  # from the process that this object was pickled in
        self.first = self._find_first()

    def follow(self, course: Course, *, provisional: bool = False) -> bool:
        """Let the next loop of `course` be that of the rank that this process is now.

        Args:
            provisional: leave it as it is where nobody knows the rank yet.

        Returns:
            Whether that is another rank, or another number of ranks, than before.

        Raises:
            ValueError: nobody says which rank this is; or it would have no batch.
        """
        try:
            found = self._find()
        except UnknownRankError:
            if provisional:
                return False
            raise
        split = course.split
        if found == (split.rank, split.world_size, split.placement):
            return False
        course.share(*found)
        return True

    def _find(self) -> FoundRank:
        if self._carried is not None and get_worker_info() is not None and not _has_group():
            return self._carried  # a worker that was spawned is in no group, but the process that it works for is
        rank, world_size = rank_and_size(*self._asked)
        return FoundRank(rank, world_size, placement_on(self._place, rank, world_size))

    def _find_first(self) -> FoundRank:
        try:
            return self._find()
        except UnknownRankError:
            if self._asked[1] is not None:
                raise
            return FoundRank(0, _known()[1], None)

    def __getstate__(self) -> dict[str, Any]:
        carried: FoundRank | None
        try:
            carried = self._find()
        except ValueError:
            carried = self._carried
        return {**vars(self), "_carried": carried}

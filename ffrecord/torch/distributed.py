"""Which rank this process is, of how many, and on which node; found out without talking to the others."""

import operator
from typing import SupportsIndex, TypeAlias

import torch.distributed

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.order import Placement
from ffrecord.order.launched import placement_of, rank_of

__all__ = ["Place", "placement_on", "rank_and_size"]

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
            raise ArgumentError(f"world_size is {found_size}, and no rank is given, nor by RANK or torch.distributed")
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
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, size = rank_of()
    return rank, 1 if size is None else size

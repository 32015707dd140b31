"""Which rank this process is, and of how many; found out without talking to the others."""

import operator
import os
from typing import SupportsIndex

import torch.distributed

from ffrecord.errors import ArgumentError

__all__ = ["rank_and_size"]


def rank_and_size(rank: SupportsIndex | None = None, world_size: SupportsIndex | None = None) -> tuple[int, int]:
    """The rank of this process and the number of ranks.

    What is given counts. What is not is taken, each by itself, from torch.distributed if that is initialised; else from
    the environment variables RANK and WORLD_SIZE, which torchrun sets; else it is rank 0 of 1.

    Args:
        rank: 0 <= rank < world_size.
        world_size: 1 or more.

    Raises:
        ValueError (also AssertionError): out of range, or an environment variable that is no int; with both numbers.
        TypeError: not an int.
    """
    known_rank, known_size = (0, 1) if rank is not None and world_size is not None else _known()
    found_rank = known_rank if rank is None else operator.index(rank)
    found_size = known_size if world_size is None else operator.index(world_size)
    if found_size < 1:
        raise ArgumentError(f"world_size is {found_size}, expected 1 or more")
    if not 0 <= found_rank < found_size:
        raise ArgumentError(f"rank {found_rank} of world_size {found_size}, expected 0 <= rank < {found_size}")
    return found_rank, found_size


def _known() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return _variable("RANK", 0), _variable("WORLD_SIZE", 1)


def _variable(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"environment variable {name} is {text!r}, expected an int") from None

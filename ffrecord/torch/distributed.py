"""Which rank this process is, and of how many; found out without talking to the others."""

import operator
import os
from typing import SupportsIndex

import torch.distributed

from ffrecord.errors import ArgumentError, ArgumentTypeError

__all__ = ["rank_and_size"]


def rank_and_size(rank: SupportsIndex | None = None, world_size: SupportsIndex | None = None) -> tuple[int, int]:
    """The rank of this process and the number of ranks.

    What is given counts. What is not is taken, each by itself, from torch.distributed if that is initialised; else from
    the environment variables RANK and WORLD_SIZE, which torchrun sets; else it is rank 0 of 1. One of several has to
    know which it is: that all of them take the same share would show only in the loss.

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


def _int(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}, expected an int") from None


def _known() -> tuple[int | None, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    size = _variable("WORLD_SIZE")
    return _variable("RANK"), 1 if size is None else size


def _variable(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"environment variable {name} is {text!r}, expected an int") from None

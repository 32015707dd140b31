"""Which positions of an epoch are whose, as arithmetic."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import check_range
from ffrecord.order.node import Placement

__all__ = ["POLICIES", "Split"]

POLICIES = ("drop", "pad", "uneven")
WORLD_SIZES = 1 << 31

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The share of one rank. From where a run starts, p, rank r of W has the positions p + r, p + r + W, p + r + 2 W, …

    With a placement, the ranks of all nodes come in another order, see `Placement.turn`: its turn takes the place of r.

    Args:
        rank: r, 0 <= rank < world_size.
        world_size: W, the number of ranks, 1 <= world_size < 2**31.
        policy: what becomes of the m = length - p positions that are left, where W does not divide m. "drop": each
            rank has floor(m / W), and the last few positions are nobody's. "pad": each has ceil(m / W); what is
            missing is taken from the start of the same order, position modulo length, and marked. "uneven": each
            position is exactly one rank's, and ranks differ by at most one.
        placement: of the rank on a node, None without one.

    Attributes:
        turn: place of the rank in a round of W positions: r without a placement.

    Raises:
        ValueError: out of range, or no such policy; W ranks cannot be so placed.
        TypeError: not integers.
    """

    rank: int
    world_size: int
    policy: str = "drop"
    placement: Placement | None = None
    turn: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        world_size = check_range("world_size", self.world_size, 1, WORLD_SIZES)
        rank = check_range("rank", self.rank, 0, WORLD_SIZES)
        if rank >= world_size:
            raise ArgumentError(f"rank {rank} of world_size {world_size}, expected 0 <= rank < {world_size}")
        if self.policy not in POLICIES:
            raise ArgumentError(f"policy is {self.policy!r}, expected one of {', '.join(POLICIES)}")
        object.__setattr__(self, "world_size", world_size)
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "turn", rank if self.placement is None else self.placement.turn(world_size))

    def count(self, length: int, position: int = 0) -> int:
        """How many positions are this rank's.

        Args:
            length: positions in the epoch, 0 <= length < 2**62.
            position: p, where the run starts, 0 <= position <= length.
        """
        left = length - position
        if self.policy == "drop":
            return left // self.world_size
        if self.policy == "uneven":
            left -= self.turn
        return max(0, -(-left // self.world_size))

    def most(self, length: int, position: int = 0) -> int:
        """How many the rank has that has most; for all policies that of turn 0."""
        left = length - position
        return left // self.world_size if self.policy == "drop" else -(-left // self.world_size)

    def positions(self, length: int, position: int, start: int, stop: int) -> tuple[Positions, int]:
        """Some of this rank's positions, in order.

        Args:
            length, position: as of `count`.
            start, stop: which of them, 0 <= start <= stop <= count(length, position).

        Returns:
            int64 [stop - start] in [0, length), and how many at the end of it are padding: positions that other ranks
            have too, or that this one had before.
        """
        first = position + self.turn
        positions = np.arange(start, stop, dtype=np.int64)
        positions *= self.world_size
        positions += first
        # The first s with first + s W >= length.
        real = max(0, -((first - length) // self.world_size))
        padding = min(stop - start, max(0, stop - real))
        if padding:
            positions[len(positions) - padding :] %= length
        return positions, padding

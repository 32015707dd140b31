"""Division of the positions of an epoch among ranks, as arithmetic."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.order.environment import Placement
from ffrecord.order.keys import check_range
from ffrecord.system.values import is_word

__all__ = ["POLICIES", "Split"]

POLICIES = ("drop", "pad", "uneven")
WORLD_SIZES = 1 << 31

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The share of one rank in the positions of a run. From p on, rank r of W has p + r, p + r + W, p + r + 2 W, …

    With a placement, the ranks of all nodes come in another order: `Placement.turn` takes the place of r.

    Args:
        rank: r, 0 <= rank < world_size.
        world_size: W, the number of ranks, 1 <= world_size < 2**31.
        policy: division of the m = length - p positions that are left, if W does not divide m. "drop": each rank has
            floor(m / W), and no rank has the last few positions. "pad": each rank has ceil(m / W); missing positions
            are taken from the start of the same order, modulo length, and marked. "uneven": each position belongs to
            exactly one rank, and ranks differ by at most one.
        placement: placement of the rank on a node, or None.

    Attributes:
        turn: place of the rank in a round of W positions: r without a placement.

    Raises:
        ValueError: a number is out of range, the policy is unknown, or W ranks cannot be placed so.
        TypeError: an argument is not an integer.
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
            raise ArgumentError(f"rank is {rank}, expected 0 <= rank < {world_size}")
        if not is_word(self.policy, POLICIES):
            raise ArgumentError(f"policy is {self.policy!r}, expected one of {', '.join(POLICIES)}")
        # Frozen, and therefore set this way; numbers may be of NumPy.
        object.__setattr__(self, "world_size", world_size)
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "turn", rank if self.placement is None else self.placement.turn(world_size))

    def count(self, length: int, position: int = 0) -> int:
        """Return the number of positions of this rank.

        Args:
            length: positions in the epoch, 0 <= length < 2**62.
            position: p, the start of the run, 0 <= position <= length.
        """
        left = length - position
        if self.policy == "drop":
            return left // self.world_size  # the same for all ranks
        if self.policy == "uneven":
            left -= self.turn
        return max(0, -(-left // self.world_size))  # a turn behind the last position has none

    def most(self, length: int, position: int = 0) -> int:
        """Return the largest number of positions of any rank: with all policies, the number of turn 0."""
        left = length - position
        return left // self.world_size if self.policy == "drop" else -(-left // self.world_size)

    def positions(self, length: int, position: int, start: int, stop: int) -> tuple[Positions, int]:
        """Return some of this rank's positions, in order.

        Args:
            length, position: arguments of `count`.
            start, stop: range of the rank's positions, 0 <= start <= stop <= count(length, position).

        Returns:
            int64 [stop - start] in [0, length), and the number of positions at its end that are padding: other ranks
                have them too, or this rank had them before.
        """
        first = position + self.turn
        world_size = self.world_size
        positions = np.arange(first + start * world_size, first + stop * world_size, world_size, dtype=np.int64)
        # The smallest s with first + s * W >= length: from there on, positions are padding.
        # A division that rounds down, of a negative number: this rounds up.
        real = max(0, -((first - length) // world_size))
        padding = 0
        if stop > real:
            padding = min(stop - start, stop - real)
            # The order itself goes on from its start, so padding repeats its first samples.
            positions[len(positions) - padding :] %= length
        return positions, padding

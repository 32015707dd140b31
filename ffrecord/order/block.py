"""An order that reads blocks of neighbours, for storage that reads single samples slowly."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.kernels._permutation import permute_blocks
from ffrecord.order.keys import LENGTH_MAX, check_range, key_of
from ffrecord.order.orders import Order, register

__all__ = ["Block"]


@register
@dataclass(frozen=True)
class Block(Order):
    """Blocks of neighbours in random order, with samples shuffled within windows of some blocks.

    The dataset is cut into blocks of `block_size`; the last one may be shorter. The blocks are permuted, and laid one
    after the other into a sequence of n places. This sequence is cut into `lanes` slices, as equal as possible.
    Position p belongs to lane p mod lanes, and has number p // lanes there. A lane is cut into windows of block_size *
    window places; the last one may be shorter. Each window is permuted by itself.

    So only the blocks of the current window are read: at most window + 1, because windows need not begin where blocks
    do. A window that has the short block inside reads one block more. If W divides `lanes`, a rank that reads every
    W-th position reads lanes / W lanes, and so many times as many blocks. Otherwise it reads all lanes.

    Args:
        block_size: samples in a block, >= 1. Make a block worth a request: some 256 kB on a disk, some MB on a network.
        window: blocks in a window, >= 1; block_size * window <= 2**62. A window takes no memory.
        lanes: 1 <= lanes <= 2**31; a multiple of every number of ranks that the run may have. Another number of lanes
            is another order.

    Raises:
        ValueError: a number is out of range.
        TypeError: an argument is not an int.
    """

    block_size: int = 256
    window: int = 64
    lanes: int = 1

    name: ClassVar[str] = "block-1"
    word: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        for name, most in (("block_size", LENGTH_MAX), ("window", LENGTH_MAX), ("lanes", 1 << 31)):
            object.__setattr__(self, name, check_range(name, getattr(self, name), 1, most + 1))
        if self.block_size * self.window > LENGTH_MAX:
            raise ArgumentError(f"block_size * window is {self.block_size * self.window}, expected <= {LENGTH_MAX}")

    def _place(self, array: npt.NDArray[np.int64], n: int, seed: int, epoch: int) -> None:
        key = key_of(self.name, n, seed, epoch, self.block_size, self.window, self.lanes)
        window_size = self.block_size * self.window
        permute_blocks(array, n, block_size=self.block_size, window_size=window_size, lanes=self.lanes, key=key)

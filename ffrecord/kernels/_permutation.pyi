import numpy as np
import numpy.typing as npt

def derive(*words: int) -> int:
    """Return the 64-bit key of numbers. Each number is added, with SplitMix64's constant, to the key so far, which is
    mixed.

    Mixing is that of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    with the constants of Stafford's variant 13). It is a bijection, so keys of numbers that differ in one place differ.

    Args:
        words: each 0 <= word < 2**64.

    Raises:
        OverflowError: a number is out of range.
    """

def rounds(n: int) -> int:
    """Return the number of rounds that `permute` computes for n positions."""

def check(positions: npt.NDArray[np.int64], n: int) -> None:
    """Raise IndexError unless each of int64 [k] positions is in [0, n)."""

def permute(positions: npt.NDArray[np.int64], n: int, key: int) -> None:
    """Replace each position by its image under the permutation of (n, key). It needs O(1) memory and releases the GIL.

    Args:
        positions: int64 [k], contiguous and writable, each in [0, n).
        n: 0 <= n <= 2**62.
        key: 0 <= key < 2**64.

    Raises:
        IndexError: a position is out of range; nothing was replaced.
        ValueError: `positions` is another kind of array.
        OverflowError: n or key is out of range.
    """

def unpermute(indices: npt.NDArray[np.int64], n: int, key: int) -> None:
    """Apply the inverse of `permute`, with the same arguments."""

def permute_blocks(
    positions: npt.NDArray[np.int64], n: int, *, block_size: int, window_size: int, lanes: int, key: int
) -> None:
    """Replace each position by its sample in `ffrecord.order.Block`. Other arguments and errors are those of `permute`.

    Args:
        block_size: samples in a block, >= 1.
        window_size: samples in a window, 1 <= window_size <= 2**62.
        lanes: >= 1.
    """

def seeds(positions: npt.NDArray[np.int64], out: npt.NDArray[np.uint64], key: int) -> None:
    """Write to `out` the result of `derive` for `key` followed by each position.

    Args:
        positions: int64 [k], contiguous, each >= 0.
        out: uint64 [k], contiguous.
    """

def draw(positions: npt.NDArray[np.int64], table: npt.NDArray[np.uint64], key: int) -> None:
    """Replace each position by a sample that is drawn by weight, with replacement. It releases the GIL.

    Args:
        positions: int64 [k], contiguous and writable, each >= 0.
        table: uint64 [n, 2], contiguous: for each sample the share of its place that it keeps, in units of 2**-64, and
            the sample that gets the rest, in [0, n).
        key: 0 <= key < 2**64.

    Raises:
        ValueError: an array is of another kind.
    """

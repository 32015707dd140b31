import numpy as np
import numpy.typing as npt

def derive(*words: int) -> int:
    """The 64-bit key of numbers: each is added, with SplitMix64's constant, to the key so far, which is then mixed.

    Mixing is SplitMix64's (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with the
    constants of Stafford's variant 13). It is a bijection, so keys of numbers that differ in one place differ.

    Args:
        words: each 0 <= word < 2**64.

    Raises:
        OverflowError: a number out of that range.
    """

def rounds(n: int) -> int:
    """How many rounds `permute` takes."""

def check(positions: npt.NDArray[np.int64], n: int) -> None:
    """Raise IndexError unless each of int64 [k] positions is in [0, n)."""

def permute(positions: npt.NDArray[np.int64], n: int, key: int) -> None:
    """Replace each position by where the permutation of (n, key) takes it. Takes O(1) memory; releases the GIL.

    Args:
        positions: int64 [k], contiguous and writable, each in [0, n).
        n: 0 <= n <= 2**62.
        key: 0 <= key < 2**64.

    Raises:
        IndexError: a position out of range; nothing was replaced.
        ValueError: no such array.
        OverflowError: n or key out of range.
    """

def unpermute(indices: npt.NDArray[np.int64], n: int, key: int) -> None:
    """The inverse of `permute`, with the same arguments."""

def permute_blocks(
    positions: npt.NDArray[np.int64], n: int, *, block_size: int, window_size: int, lanes: int, key: int
) -> None:
    """Replace each position by its sample in `ffrecord.order.Block`; as `permute`.

    Args:
        block_size: samples in a block, >= 1.
        window_size: samples in a window, 1 <= window_size <= 2**62.
        lanes: >= 1.
    """

def seeds(positions: npt.NDArray[np.int64], out: npt.NDArray[np.uint64], key: int) -> None:
    """Write to `out` what `derive` gives when it goes on from `key` with each position.

    Args:
        positions: int64 [k], contiguous, each >= 0.
        out: uint64 [k], contiguous.
    """

"""Keys from which everything random is derived, and checks of seeds, epochs and positions."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError, SampleIndexError
from ffrecord.kernels._permutation import derive, seeds
from ffrecord.system.values import describe_wrong, whole_number

__all__ = ["EPOCHS", "LENGTH_MAX", "SEEDS", "as_positions", "check_range", "key_of", "sample_seeds"]

SEEDS = 1 << 64
EPOCHS = 1 << 63
LENGTH_MAX = 1 << 62


def check_range(name: str, value: Any, low: int, stop: int | None = None) -> int:
    """Return `value` as an int, low <= value < stop. Without `stop` only `low` limits it.

    Raises:
        ValueError: it is out of range.
        TypeError: it is not an int.
    """
    number = whole_number(name, value)
    if stop is None and number < low:
        raise ArgumentError(f"{name} is {number}, expected {low} or more")
    if stop is not None and not low <= number < stop:
        raise ArgumentError(f"{name} is {number}, expected {low} <= {name} < {stop}")
    return number


def key_of(purpose: str, *words: int) -> int:
    """Return a 64-bit key for one use of randomness: `derive` of a purpose and numbers in [0, 2**64).

    Args:
        purpose: at most 8 ASCII characters, different for each use; they are read as a little-endian number.
        words: the numbers.
    """
    return derive(int.from_bytes(purpose.encode("ascii"), "little"), *words)


def as_positions(positions: Any) -> npt.NDArray[np.int64]:
    """Return a new array int64 [k] of positions.

    Raises:
        TypeError: `positions` is not a flat array, list or range of ints.
        IndexError: a number does not fit into 64 bits.
    """
    try:
        array = np.asarray(positions)
    except ValueError:
        raise ArgumentTypeError("positions is a nested sequence, expected int64 [k]") from None
    # An empty list has dtype float64, and is fine.
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentTypeError(describe_wrong("positions", array, "int64 [k]"))
    # Else a cast to int64 would make it negative.
    if array.dtype == np.uint64 and array.size and array.max() >= 1 << 63:
        raise SampleIndexError(f"position is {array.max()}, expected at most {(1 << 63) - 1}")
    # A copy: orders replace positions in place.
    return np.array(array, np.int64, order="C")


def sample_seeds(seed: int, epoch: int, positions: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return one random seed for each position of an epoch, for augmentation that depends on nothing else.

    Args:
        seed: 0 <= seed < 2**64.
        epoch: 0 <= epoch < 2**63.
        positions: int64 [k], each >= 0.

    Returns:
        uint64 [k]: `key_of("samples", seed, epoch, position)`, which never changes between versions.

    Raises:
        ValueError: seed or epoch is out of range.
        TypeError: an argument is not an int.
        IndexError: a position is < 0.
    """
    wanted = as_positions(positions)
    if wanted.size and wanted.min() < 0:
        raise SampleIndexError(f"position is {wanted.min()}, expected >= 0")
    found = np.empty(len(wanted), np.uint64)
    seeds(wanted, found, key_of("samples", check_range("seed", seed, 0, SEEDS), check_range("epoch", epoch, 0, EPOCHS)))
    return found

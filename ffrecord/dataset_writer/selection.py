"""Select the samples of a dataset to write, and their order."""

import operator
import secrets
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.system.values import describe, describe_wrong

SEEDS = 1 << 32

Indices = range | npt.NDArray[np.int64]


def dataset_length(dataset: Any) -> int:
    """Return len(dataset).

    Raises:
        TypeError: it has no length, or no samples by index.
        ValueError: its length is negative, or 2**63 or more.
    """
    kind = type(dataset).__name__
    if not hasattr(dataset, "__getitem__"):
        if not isinstance(dataset, Iterable):
            raise ArgumentTypeError(describe_wrong("dataset", dataset, "samples with len() and [i]"))
        raise ArgumentTypeError(f"dataset of type {kind} has no samples by index (dataset[i]); pass list(dataset)")
    try:
        return len(dataset)
    except TypeError as error:
        raise ArgumentTypeError(
            f"dataset of type {kind} has no length: {error}; give it a __len__, or pass list(dataset)"
        ) from None
    except (ValueError, OverflowError):
        found = type(dataset).__len__(dataset)  # raises what the code of the dataset itself raised
        raise ArgumentError(
            f"dataset of type {kind} has the length {describe(found)}, expected 0 <= len < 2**63: mend its __len__"
        ) from None


def select(n: int, indices: Iterable[SupportsIndex] | None) -> Indices:
    """Return the indices to write, each in [0, n).

    Args:
        n: number of samples of the dataset.
        indices: ints or an integer array; negative ones count from the end, repeats are allowed; None for all.

    Raises:
        IndexError: one is out of range.
        TypeError: not integers.
    """
    return range(n) if indices is None else count_from_start(as_subset(indices), n)


def shuffle(indices: Indices, seed: int | None) -> tuple[Indices, int]:
    """Return (indices in random order, seed). The order never changes: NumPy has frozen this generator.

    Args:
        seed: seed in [0, 2**32), or None to draw one.

    Raises:
        ValueError: the seed is out of range.
    """
    # Not from `random`, whose generator belongs to the user's program.
    seed = secrets.randbelow(SEEDS) if seed is None else operator.index(seed)
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed is {seed}, expected 0 <= seed < {SEEDS}")
    # No copy on Linux, where the permutation is int64 already.
    order = np.random.RandomState(seed).permutation(len(indices)).astype(np.int64, copy=False)
    return (order if isinstance(indices, range) else indices[order]), seed


def as_array(indices: Indices) -> npt.NDArray[np.int64]:
    """Return indices as an array. NumPy reads a range number by number, which takes ten times as long."""
    return (
        np.arange(indices.start, indices.stop, indices.step, dtype=np.int64) if isinstance(indices, range) else indices
    )

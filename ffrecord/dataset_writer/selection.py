"""Which samples of a dataset are written, in which order."""

import operator
import secrets
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.errors import SampleIndexError
from ffrecord.reading.indices import as_indices

SEEDS = 1 << 32

Chosen = range | npt.NDArray[np.int64]


def length(dataset: Any) -> int:
    """len(dataset).

    Raises:
        TypeError: it has none, or no samples by index.
    """
    kind = type(dataset).__name__
    if not hasattr(dataset, "__getitem__"):
        raise TypeError(f"dataset of type {kind} has no samples by index (dataset[i]); list(dataset) has")
    try:
        return len(dataset)
    except TypeError as error:
        raise TypeError(
            f"dataset of type {kind} has no length: {error}; give it a __len__, or pass list(dataset)"
        ) from None


def select(n: int, indices: Iterable[SupportsIndex] | None) -> Chosen:
    """The indices to write, each in [0, n).

    Args:
        n: samples of the dataset.
        indices: ints or an integer array, those below 0 counting from the end, repeats allowed; None for all.

    Raises:
        IndexError: one is out of range.
        TypeError: not integers.
    """
    if indices is None:
        return range(n)
    given = as_indices(indices)
    wrong = np.flatnonzero((given < -n) | (given >= n))
    if len(wrong):
        position = int(wrong[0])
        index = int(given[position])
        raise SampleIndexError(f"indices[{position}] is {index}, expected {-n} <= index < {n}")
    return np.where(given < 0, given + n, given)


def shuffle(indices: Chosen, seed: int | None) -> tuple[Chosen, int]:
    """(indices in random order, the seed). The order is the same for ever: numpy has frozen this generator.

    Args:
        seed: in [0, 2**32), or None to draw one.

    Raises:
        ValueError: the seed is out of range.
    """
    seed = secrets.randbelow(SEEDS) if seed is None else operator.index(seed)
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed is {seed}, expected 0 <= seed < {SEEDS}")
    order = np.random.RandomState(seed).permutation(len(indices)).astype(np.int64, copy=False)
    return (order if isinstance(indices, range) else indices[order]), seed


def as_array(indices: Chosen) -> npt.NDArray[np.int64]:
    """The same indices. Numpy asks a range for its numbers one by one, which takes ten times as long."""
    return (
        np.arange(indices.start, indices.stop, indices.step, dtype=np.int64) if isinstance(indices, range) else indices
    )

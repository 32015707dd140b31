"""Pieces of many records that lie back to back, as one array without a Python object for each."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.reading.batch_forms import Array


def gather_pieces(data: Array, starts: npt.NDArray[np.int64], size: int) -> Array:
    """Return the `size` bytes of `data` at each of `starts`, [k], as a fresh C-contiguous array [k, size].

    Raises:
        IndexError: a piece is not within `data`.
    """
    if size == 0 or not len(starts):
        return np.empty((len(starts), size), np.uint8)
    if size > len(data) or int(starts.min()) < 0 or int(starts.max()) > len(data) - size:
        raise IndexError(f"a piece of {size} bytes is not within {len(data)} bytes")
    return np.lib.stride_tricks.sliding_window_view(data, size)[starts]


def as_values(rows: Array, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return rows of bytes [k, size] as values of `dtype`, [k, *shape], in native byte order; a view if possible."""
    wanted = np.dtype(dtype)
    values = np.empty((len(rows), *shape), wanted) if not rows.size else rows.view(wanted).reshape(len(rows), *shape)
    return values.astype(wanted.newbyteorder("="), copy=False)

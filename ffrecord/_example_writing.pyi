"""Columns → examples of tf.train, the GIL released. For ffrecord.sources.examples_encode."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

def encode(
    columns: Sequence[tuple[bytes, int, npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]], k: int, /
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """k examples, back to back, as protocol buffers write them: entries in the order of the columns, numbers packed.

    Args:
        columns: (name as UTF-8; kind 1 bytes, 2 float, 3 int64, 0 none; values as bytes; offsets of rows [k + 1] among
            the values; of kind 1, offsets of values [v + 1], else of no matter).

    Returns:
        The bytes, and where each example begins [k + 1].

    Raises:
        ArgumentError: offsets that descend, or lead outside the values.
    """

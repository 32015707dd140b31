"""Parsing of tf.train.Example messages into columns, and serialization of columns, with the GIL released."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

INT64: int
FLOAT32: int
UINT8: int
STRING: int

class Wanted:
    """The requested features.

    Args:
        features: (name as UTF-8, INT64 | FLOAT32 | UINT8 | STRING, values of a row or -1, default or None). The default
            is the bytes of a row of numbers; for strings, the list of `bytes` of a row. A feature with any number of
            values may be absent without a default.

    Raises:
        ArgumentError: a name occurs twice, or a default has another size.
    """

    def __new__(cls, features: Sequence[tuple[bytes, int, int, Any]]) -> Wanted: ...
    @property
    def keys(self) -> Keys: ...

def parse(
    wanted: Wanted, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: Sequence[Any], threads: int, /
) -> list[Any]:
    """Parse k examples into columns.

    Args:
        data, offsets: record i is data[offsets[i]:offsets[i + 1]]; offsets [k + 1].
        out: for each feature of numbers of fixed size, uint8 memory of k rows; None for others.
        threads: most threads of this process, the caller's among them; used for large batches only.

    Returns:
        For each feature: None (rows of fixed size are in `out`); (values as uint8, offsets [k + 1]); for strings in any
        number (bytes, offsets of values, offsets of rows); for strings in a fixed number a list of `bytes`, row by row.

    Raises:
        ArgumentError: offsets descend or leave `data`, or `out` has too little memory.
        Fault: the first example that is damaged or does not fit.
    """

def parse_lists(
    wanted: Wanted,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    threads: int,
    optional: Sequence[bytes],
    /,
) -> list[tuple[Any, npt.NDArray[np.int64]]]:
    """Parse the lists of features of k sequence examples. For further arguments see `parse`.

    Args:
        optional: lists that an example may lack; then it has no steps.

    Returns:
        For each list: (steps of all examples as rows of `parse`, or their memory; offsets of examples [k + 1]).
    """

def describe(record: npt.NDArray[np.uint8], outer: int = 1, /) -> dict[str, list[tuple[int, int]]]:
    """Describe one example: name → [(kind, count of values)]; kind 1 bytes, 2 float32, 3 int64, 0 none.

    Args:
        outer: 1 for features and contexts; 2 for lists of features, which have one pair for each step.

    Raises:
        Fault: it is damaged.
    """

class Keys:
    """The names of features, for lookups.

    Args:
        names: names as UTF-8, each once.

    Raises:
        ArgumentError: a name occurs twice.
    """

    def __new__(cls, names: Iterable[bytes]) -> Keys: ...
    @property
    def names(self) -> tuple[bytes, ...]: ...
    def __len__(self) -> int: ...

class Fault(Exception):
    """An error in an example.

    Attributes:
        code: 1 to 7 as in wire.h; 11 absent, 12 another kind, 13 another count, 14 written to meanwhile.
        row: the example, in the batch.
        step: step in the list of features, or -1.
        column: the feature, or -1.
        offset: offset in the example, bytes.
        found, expected: numbers; their meaning stands beside the codes.
    """

    code: int
    row: int
    step: int
    column: int
    offset: int
    found: int
    expected: int

    def __init__(self, code: int, row: int, step: int, column: int, offset: int, found: int, expected: int) -> None: ...

def encode(
    columns: Sequence[tuple[bytes, int, npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]], k: int, /
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Serialize k examples back to back, as protocol buffers do.

    Entries stand in the order of the columns, and numbers are packed.

    Args:
        columns: (name as UTF-8; kind 1 bytes, 2 float, 3 int64, 0 none; values as bytes; offsets of rows [k + 1] among
            the values; offsets of values [v + 1] for kind 1, otherwise unused).

    Returns:
        The bytes, and the offset of each example [k + 1].

    Raises:
        ArgumentError: offsets descend, or leave the values.
    """

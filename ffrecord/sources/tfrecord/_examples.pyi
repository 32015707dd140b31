"""Parse tf.train.Example messages to columns, and serialize columns to messages, with the GIL released."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

INT64: int
FLOAT32: int
UINT8: int
STRING: int

class Wanted:
    """What is asked of each feature.

    Args:
        features: (name as UTF-8, INT64 | FLOAT32 | UINT8 | STRING, values of a row or -1, default or None). The default
            is the bytes of a row of numbers; of strings, the list of `bytes` of a row. A feature of any number of
            values may be absent without one.

    Raises:
        ArgumentError: a name twice, or a default of another size.
    """

    def __new__(cls, features: Sequence[tuple[bytes, int, int, Any]]) -> Wanted: ...
    @property
    def keys(self) -> Keys: ...

def parse(
    wanted: Wanted, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: Sequence[Any], threads: int, /
) -> list[Any]:
    """Columns of k examples.

    Args:
        data, offsets: record i is data[offsets[i]:offsets[i + 1]]; offsets [k + 1].
        out: for each feature of numbers of fixed size, uint8 memory of k rows; None for others.
        threads: of this process, at most so many, the caller's among them; used for large batches only.

    Returns:
        For each feature: None (rows of fixed size are in `out`); (values as uint8, offsets [k + 1]); of strings of any
        number (bytes, offsets of values, offsets of rows); of strings in a fixed number a list of `bytes`, row by row.

    Raises:
        ArgumentError: offsets that descend or lead outside `data`, too little memory in `out`.
        Fault: the first example that is damaged or not as asked.
    """

def parse_lists(
    wanted: Wanted,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    threads: int,
    optional: Sequence[bytes],
    /,
) -> list[tuple[Any, npt.NDArray[np.int64]]]:
    """Lists of features of k sequence examples: the arguments of `parse`.

    Args:
        optional: lists that an example may lack; it has no steps then.

    Returns:
        For each list: (steps of all examples as `parse` gives rows, or their memory; offsets of examples [k + 1]).
    """

def describe(record: npt.NDArray[np.uint8], outer: int = 1, /) -> dict[str, list[tuple[int, int]]]:
    """What one example holds: name → [(kind, count of values)]; kind 1 bytes, 2 float32, 3 int64, 0 none.

    Args:
        outer: 1 for features and contexts; 2 for lists of features, which have one pair for each step.

    Raises:
        Fault: damaged.
    """

class Keys:
    """The names of features, to be looked for.

    Args:
        names: as UTF-8, each once.

    Raises:
        ArgumentError: a name twice.
    """

    def __new__(cls, names: Iterable[bytes]) -> Keys: ...
    @property
    def names(self) -> tuple[bytes, ...]: ...
    def __len__(self) -> int: ...

class Fault(Exception):
    """What is wrong with an example.

    Attributes:
        code: 1 to 7 as in wire.h; 11 absent, 12 another kind, 13 another count, 14 written to meanwhile.
        row: the example, in the batch.
        step: in the list of features, or -1.
        column: the feature, or -1.
        offset: in the example, bytes.
        found, expected: numbers, see where the codes are.
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
    """k examples, back to back, as protocol buffers write them: entries in the order of the columns, numbers packed.

    Args:
        columns: (name as UTF-8; kind 1 bytes, 2 float, 3 int64, 0 none; values as bytes; offsets of rows [k + 1] among
            the values; of kind 1, offsets of values [v + 1], else of no matter).

    Returns:
        The bytes, and where each example begins [k + 1].

    Raises:
        ArgumentError: offsets that descend, or lead outside the values.
    """

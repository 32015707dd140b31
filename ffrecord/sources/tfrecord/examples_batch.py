"""Input and output of the compiled parsers: memory, and arrays over it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.kernels._memory import pooled
from ffrecord.reading.batch_forms import Packed
from ffrecord.sources.tfrecord.examples_features import DTYPES, Feature, Features, FixedFeature, Ragged, RaggedStrings
from ffrecord.system.values import as_bytes, check_offsets

Column = npt.NDArray[Any] | Ragged | RaggedStrings


def pack(records: Sequence[Any]) -> Packed:
    """Return records back to back, and their offsets [k + 1]. A single record is not copied."""
    views = [np.frombuffer(as_bytes(record), np.uint8) for record in records]
    offsets = np.zeros(len(views) + 1, np.int64)
    np.cumsum([len(view) for view in views], out=offsets[1:])
    # The empty array serves when there are no records.
    return (views[0] if len(views) == 1 else np.concatenate([np.empty(0, np.uint8), *views])), offsets


def check_arguments(data: Any, offsets: Any) -> Packed:
    """Return the arguments of `parse_batch` as contiguous arrays of their dtypes.

    Raises:
        ArgumentError, ArgumentTypeError: the offsets are empty, or not 1-D ints. Their values are checked later.
    """
    numbers = check_offsets(offsets)
    if len(numbers) == 0:
        raise ArgumentError("offsets is empty, expected ints [k + 1]")
    # Compiled code reads aligned numbers in one piece.
    return np.frombuffer(as_bytes(data), np.uint8), np.require(numbers, np.int64, ["C", "A"])


def rows_memory(features: Features, k: int, into: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any] | None]:
    """Return for each feature an array [>= k, *shape] for its rows; None if its rows have no fixed size in bytes.

    Raises:
        ArgumentError: an array of `into` does not fit the feature with its name.
    """
    for key in into:
        if key not in features:
            raise ArgumentError(f"into has {key!r}, expected only features: {', '.join(map(repr, features))}")
    return [_memory(key, feature, k, into.get(key)) for key, feature in features.items()]


def _memory(key: str, feature: Feature, k: int, given: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    if not isinstance(feature, FixedFeature) or feature.dtype == "string":
        if given is not None:
            raise ArgumentError(f"into[{key!r}] cannot be filled: rows of {feature} have no fixed number of bytes")
        return None
    dtype = DTYPES[feature.dtype]
    if given is None:
        return pooled(k * feature.size * dtype.itemsize).view(dtype).reshape(k, *feature.shape)
    fits = isinstance(given, np.ndarray) and given.dtype == dtype and given.shape[1:] == feature.shape
    if not fits or len(given) < k or not given.flags.carray:
        has = f"{given.dtype} of shape {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise ArgumentError(
            f"into[{key!r}] is {has}, expected a writable, aligned, C-ordered {dtype} array of shape "
            f"[>= {k}, {', '.join(map(str, feature.shape))}]"
        )
    return given


def bytes_of(memory: npt.NDArray[Any] | None) -> npt.NDArray[np.uint8] | None:
    """Return the same memory as bytes."""
    return None if memory is None else memory.reshape(-1).view(np.uint8)


def column(feature: Feature, k: int, memory: npt.NDArray[Any] | None, result: Any) -> Column:
    """Return the column of a feature from its memory, or from the result of the compiled parser."""
    if memory is not None:
        return memory[:k]
    if isinstance(feature, FixedFeature):
        # Assigned, since `np.array` makes strings of numpy, which lose zeros at their end.
        rows = np.empty(k * feature.size, object)
        rows[:] = result
        return rows.reshape(k, *feature.shape)
    if feature.dtype == "string":
        return RaggedStrings(*result)
    return Ragged(result[0].view(DTYPES[feature.dtype]), result[1])


def row(of: Column, i: int) -> Any:
    """Return row i of a column.

    It is a number or `bytes` if the shape is (), else an array; strings are an array of `bytes`.
    """
    if isinstance(of, Ragged):
        return of.values[of.offsets[i] : of.offsets[i + 1]]
    if isinstance(of, RaggedStrings):
        start, stop = int(of.row_offsets[i]), int(of.row_offsets[i + 1])
        ends = of.value_offsets[start : stop + 1].tolist()
        strings = np.empty(stop - start, object)
        strings[:] = [of.data[a:b].tobytes() for a, b in pairwise(ends)]
        return strings
    return of[i]

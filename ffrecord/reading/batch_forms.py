"""The forms in which a batch is delivered, arrays, packed or columns: made of records, and without some of them."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import ARRAYS, CHECKED, Slots
from ffrecord.errors import ArgumentError

Array = npt.NDArray[np.uint8]
Packed = tuple[Array, npt.NDArray[np.int64]]  # bytes back to back, and where each sample begins
Form = str | Slots  # ARRAYS, PACKED, CHECKED (for failures alone), or which pieces of each record make columns
Out = Array | list[Array] | None  # memory for it
Instead = dict[int, Array | None]  # place in a batch → the bytes to have there, None to leave the sample out


class BatchOutcome(NamedTuple):
    """A batch that has been read.

    Attributes:
        result: a list of arrays, (data, offsets), or a list of columns; garbage where a sample failed.
        failures: (place in the batch, error), in ascending order of places.
    """

    result: Any
    failures: list[tuple[int, Exception]]


def delivered(form: Form, arrays: list[Array], out: Out) -> Any:
    """Records in the form asked for.

    Raises:
        ArgumentError: `out` is too small for them.
    """
    if form in (ARRAYS, CHECKED):
        return arrays
    if isinstance(form, Slots):
        return columns_of(arrays, form, out if isinstance(out, list) else None)
    return packed_of(arrays, out if isinstance(out, np.ndarray) else None)


def packed_of(arrays: list[Array], out: Array | None) -> Packed:
    """Arrays back to back, in the memory of `out` if that is given.

    Raises:
        ValueError: `out` is too small for them.
    """
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    if out is not None and offsets[-1] > len(out):
        raise ArgumentError(f"out has {len(out)} bytes, the samples have {offsets[-1]}")
    data = np.empty(offsets[-1], np.uint8) if out is None else out[: offsets[-1]]
    return np.concatenate([*arrays, np.empty(0, np.uint8)], out=data), offsets


def columns_of(arrays: list[Array], slots: Slots, out: list[Array] | None) -> list[Array]:
    """Pieces of records of one size, those of the same place in all records together: uint8 [k, size] for each slot.

    Args:
        arrays: the records; rows of those of another size are garbage.
        slots: what pieces.
        out: memory to fill, 1-D, for each slot; fresh memory if None.

    Raises:
        ArgumentError: `out` is too small or has not one for each slot.
    """
    k = len(arrays)
    columns = [np.empty((k, size), np.uint8) for _, size in slots.pieces] if out is None else _given(out, slots, k)
    for place, record in enumerate(arrays):
        if len(record) == slots.record_size:
            for column, (offset, size) in zip(columns, slots.pieces, strict=True):
                column[place] = record[offset : offset + size]
    return columns


def _given(out: list[Array], slots: Slots, k: int) -> list[Array]:
    if len(out) != len(slots):
        raise ArgumentError(f"out has {len(out)} arrays, expected {len(slots)}, one for each slot")
    columns = []
    for given, (_, size) in zip(out, slots.pieces, strict=True):
        if len(given) < k * size:
            raise ArgumentError(f"out has {len(given)} bytes for {k} records of {size}, expected at least {k * size}")
        columns.append(given[: k * size].reshape(k, size))
    return columns


def without(form: str | Slots, result: Any, instead: Instead, out: Any = None) -> Any:
    """What a batch delivered, in the `form` it was asked in, each sample in `instead` replaced or left out.

    Args:
        out: the memory of a packed batch, where it was given.
    """
    if not instead:
        return result
    if form is ARRAYS:
        return arrays_without(result, instead)
    if isinstance(form, Slots):
        return columns_without(result, instead, form)
    return packed_without(result, instead, out if isinstance(out, np.ndarray) else None)


def arrays_without(arrays: list[Array], instead: Instead) -> list[Array]:
    """The arrays of a batch, each in `instead` replaced or left out."""
    replaced = [instead.get(place, array) for place, array in enumerate(arrays)]
    return [array for array in replaced if array is not None]


def packed_without(packed: Packed, instead: Instead, out: Array | None) -> Packed:
    """The same of packed samples; in the memory of `out` if that is given.

    Raises:
        ValueError: `out` is too small for them.
    """
    data, offsets = packed
    arrays = arrays_without([data[low:high] for low, high in pairwise(offsets)], instead)
    data, offsets = packed_of(arrays, None)
    return data if out is None else _moved(data, out), offsets


def columns_without(columns: list[Array], instead: Instead, slots: Slots) -> list[Array]:
    """The same of columns, in their own memory.

    Raises:
        ArgumentError: bytes to be put in place of a record have another size.
    """
    for place, record in instead.items():
        if record is None:
            continue
        if len(record) != slots.record_size:
            raise ArgumentError(
                f"on_error gave {len(record)} bytes for sample {place} of the batch, expected {slots.record_size}"
            )
        for column, (offset, size) in zip(columns, slots.pieces, strict=True):
            column[place] = record[offset : offset + size]
    left_out = [place for place, record in instead.items() if record is None]
    return [_without_rows(column, left_out) for column in columns] if left_out else columns


def _without_rows(column: Array, left_out: list[int]) -> Array:
    kept = np.delete(column, left_out, axis=0)
    column[: len(kept)] = kept
    return column[: len(kept)]


def _moved(data: Array, out: Array) -> Array:
    """`data` in the memory of `out`."""
    if len(data) > len(out):
        raise ValueError(f"out has {len(out)} bytes, the samples with their replacements {len(data)}")
    out[: len(data)] = data
    return out[: len(data)]

"""Forms of a batch result (arrays, packed or columns): built from records, or with samples left out or replaced."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import ARRAYS, CHECKED, IN_TURN, Slots
from ffrecord.errors import ArgumentError

Array = npt.NDArray[np.uint8]
Packed = tuple[Array, npt.NDArray[np.int64]]  # bytes back to back, and the start of each sample
# ARRAYS, IN_TURN, PACKED, CHECKED (only failures count), or the pieces of each record that make columns
Form = str | Slots
Out = Array | list[Array] | None  # memory for the result
Replacements = dict[int, Array | None]  # place in a batch → its replacement, None to leave the sample out


class BatchOutcome(NamedTuple):
    """Result of reading a batch.

    Attributes:
        result: a list of arrays, an iterator over arrays, (data, offsets), or a list of columns; the bytes of failed
            samples are undefined.
        failures: (place in the batch, error), in ascending order of places.
    """

    result: Any
    failures: list[tuple[int, Exception]]


def deliver(form: Form, arrays: list[Array], out: Out) -> Any:
    """Return records in the requested form.

    Raises:
        ArgumentError: `out` is too small for them.
    """
    if form in (ARRAYS, IN_TURN, CHECKED):
        return arrays
    if isinstance(form, Slots):
        return cut_columns(arrays, form, out if isinstance(out, list) else None)
    return pack_arrays(arrays, out if isinstance(out, np.ndarray) else None)


def pack_arrays(arrays: list[Array], out: Array | None = None) -> Packed:
    """Pack arrays back to back, in the memory of `out` if given.

    Raises:
        ValueError: `out` is too small for them.
    """
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=offsets[1:])
    if out is not None and offsets[-1] > len(out):
        raise ArgumentError(f"out has {len(out)} bytes, expected at least {offsets[-1]}")
    data = np.empty(offsets[-1], np.uint8) if out is None else out[: offsets[-1]]
    # `concatenate` refuses an empty list, so an empty array goes along.
    return np.concatenate([*arrays, np.empty(0, np.uint8)], out=data), offsets


def cut_columns(arrays: list[Array], slots: Slots, out: list[Array] | None) -> list[Array]:
    """Cut records of one size into columns: uint8 [k, size] for each slot.

    Args:
        arrays: the records; the rows of records of another size are undefined.
        slots: the pieces.
        out: 1-D memory to fill, one for each slot; fresh memory if None.

    Raises:
        ArgumentError: `out` is too small, or does not have one array for each slot.
    """
    k = len(arrays)
    columns = (
        [np.empty((k, size), np.uint8) for _, size in slots.pieces] if out is None else _reshape_out(out, slots, k)
    )
    for place, record in enumerate(arrays):
        if len(record) == slots.record_size:
            for column, (offset, size) in zip(columns, slots.pieces, strict=True):
                column[place] = record[offset : offset + size]
    return columns


def _reshape_out(out: list[Array], slots: Slots, k: int) -> list[Array]:
    if len(out) != len(slots):
        raise ArgumentError(f"out has {len(out)} arrays, expected {len(slots)}, one for each slot")
    columns = []
    for i, (given, (_, size)) in enumerate(zip(out, slots.pieces, strict=True)):
        if len(given) < k * size:
            raise ArgumentError(f"out[{i}] has {len(given)} bytes, expected at least {k * size} for {k} records")
        columns.append(given[: k * size].reshape(k, size))
    return columns


def apply_replacements(form: str | Slots, result: Any, instead: Replacements, out: Any = None) -> Any:
    """Return the result of a batch with each sample in `instead` replaced or left out.

    Args:
        form: form of the result.
        result: result of the batch.
        instead: replacement of each sample, by its place; None to leave it out.
        out: memory of a packed batch, if the caller gave it.
    """
    if not instead:
        return result
    if form in (ARRAYS, IN_TURN):
        return replace_in_arrays(result, instead)
    if isinstance(form, Slots):
        return replace_in_columns(result, instead, form)
    # A packed batch changes its length, so its samples move.
    return replace_in_packed(result, instead, out if isinstance(out, np.ndarray) else None)


def replace_in_arrays(arrays: Iterable[Array], instead: Replacements) -> list[Array]:
    """Return the arrays of a batch with each sample in `instead` replaced or left out."""
    replaced = [instead.get(place, array) for place, array in enumerate(arrays)]
    return [array for array in replaced if array is not None]


def replace_in_packed(packed: Packed, instead: Replacements, out: Array | None) -> Packed:
    """Return packed samples with each sample in `instead` replaced or left out; in the memory of `out` if given.

    Raises:
        ValueError: `out` is too small for them.
    """
    data, offsets = packed
    arrays = replace_in_arrays([data[low:high] for low, high in pairwise(offsets)], instead)
    # Into fresh memory first: the parts of `data` may lie in `out`, and would overwrite each other.
    data, offsets = pack_arrays(arrays)
    return data if out is None else _copy_to(data, out), offsets


def replace_in_columns(columns: list[Array], instead: Replacements, slots: Slots) -> list[Array]:
    """Return columns, in their own memory, with each sample in `instead` replaced or left out.

    Raises:
        ArgumentError: a replacement has another size than the records.
    """
    for place, record in instead.items():
        if record is None:
            continue
        if len(record) != slots.record_size:
            raise ArgumentError(
                f"on_error returned {len(record)} bytes for sample {place} of the batch, expected {slots.record_size}"
            )
        for column, (offset, size) in zip(columns, slots.pieces, strict=True):
            column[place] = record[offset : offset + size]
    # Dropped together, since each removal moves the rows behind it.
    left_out = [place for place, record in instead.items() if record is None]
    return [_drop_rows(column, left_out) for column in columns] if left_out else columns


def _drop_rows(column: Array, left_out: list[int]) -> Array:
    kept = np.delete(column, left_out, axis=0)
    # In the same memory: the caller may have given it.
    column[: len(kept)] = kept
    return column[: len(kept)]


def _copy_to(data: Array, out: Array) -> Array:
    """Copy `data` to the start of `out`."""
    if len(data) > len(out):
        raise ValueError(f"out has {len(out)} bytes, expected at least {len(data)} with the replacements")
    out[: len(data)] = data
    return out[: len(data)]


def gather_pieces(data: Array, starts: npt.NDArray[np.int64], size: int) -> Array:
    """Return the `size` bytes of `data` at each of `starts`, [k], as a fresh C-contiguous array [k, size].

    Raises:
        IndexError: a piece is not within `data`.
    """
    if size == 0 or not len(starts):
        return np.empty((len(starts), size), np.uint8)
    # NumPy takes negative starts as counted from the end.
    if size > len(data) or int(starts.min()) < 0 or int(starts.max()) > len(data) - size:
        raise IndexError(f"a piece of {size} bytes is not within {len(data)} bytes")
    # A view of all windows costs nothing; picking from it makes the one copy.
    return np.lib.stride_tricks.sliding_window_view(data, size)[starts]


def as_values(rows: Array, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return rows of bytes [k, size] as values of `dtype`, [k, *shape], in native byte order; a view if possible."""
    wanted = np.dtype(dtype)
    # A view of no bytes cannot take another item size.
    values = np.empty((len(rows), *shape), wanted) if not rows.size else rows.view(wanted).reshape(len(rows), *shape)
    # Values are stored little-endian, and only big-endian machines copy here.
    return values.astype(wanted.newbyteorder("="), copy=False)

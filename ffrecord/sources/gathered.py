"""Columns of records that are in memory already: what the engine does for those it reads itself."""

from typing import Any

import numpy as np

from ffrecord._columns import Slots
from ffrecord.errors import ArgumentError, FormatError
from ffrecord.failures import Array


def columns_of(
    arrays: list[Array | Exception], slots: Slots, out: Any
) -> tuple[list[Array], list[tuple[int, Exception]]]:
    """Pieces of records of one size, those of the same place in all records together.

    Args:
        arrays: the records, or why they could not be had.
        slots: what pieces.
        out: as for `RecordReader.read_columns`, each as 1-D uint8; None: fresh memory.

    Returns:
        (for each slot uint8 [k, size], (place, error) of each record that could not be had or has another size).

    Raises:
        ArgumentError: `out` is too small or has not one for each slot.
    """
    k = len(arrays)
    columns = [np.empty((k, size), np.uint8) for _, size in slots.pieces] if out is None else _given(out, slots, k)
    failures: list[tuple[int, Exception]] = []
    for place, record in enumerate(arrays):
        if isinstance(record, Exception):
            failures.append((place, record))
        elif len(record) != slots.record_size:
            message = (
                f"record {place} of the batch has {len(record)} bytes, expected {slots.record_size} as of every one"
            )
            failures.append((place, FormatError(message)))
        else:
            for column, (offset, size) in zip(columns, slots.pieces, strict=True):
                column[place] = record[offset : offset + size]
    return columns, failures


def _given(out: list[Array], slots: Slots, k: int) -> list[Array]:
    if len(out) != len(slots):
        raise ArgumentError(f"out has {len(out)} arrays, expected {len(slots)}, one for each slot")
    columns = []
    for given, (_, size) in zip(out, slots.pieces, strict=True):
        if len(given) < k * size:
            raise ArgumentError(f"out has {len(given)} bytes for {k} records of {size}, expected at least {k * size}")
        columns.append(given[: k * size].reshape(k, size))
    return columns

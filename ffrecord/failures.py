"""What became of a record that could not be had → an error for people; and a batch's result without such records."""

from errno import ESTALE
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord._columns import Slots
from ffrecord._engine import ARRAYS, Failure
from ffrecord.errors import ArgumentError, ChecksumError, FormatError, TruncatedError, file_error
from ffrecord.opened import OpenedFile
from ffrecord.span_file import SpanFile

Array = npt.NDArray[np.uint8]
Packed = tuple[Array, npt.NDArray[np.int64]]  # bytes back to back, and where each sample begins
Instead = dict[int, Array | None]  # place in a batch → the bytes to have there, None to leave the sample out


class Outcome(NamedTuple):
    """A batch that has been read.

    Attributes:
        result: a list of arrays, (data, offsets), or a list of columns; garbage where a sample failed.
        failures: (place in the batch, error), in ascending order of places.
    """

    result: Any
    failures: list[tuple[int, Exception]]


def failure_error(failure: Failure, file: OpenedFile | SpanFile, index: int, name: str) -> Exception:
    """The error of one failed record, naming file, index and numbers.

    Args:
        failure: as the engine reported it.
        file: that it is in.
        index: of the sample among all of the reader.
        name: of the sample in the file, such as "sample 3".
    """
    path, size, offset, detail = file.path, failure.size, failure.offset, failure.detail
    where = f"{path}: {name}"
    if failure.status == "mismatch":
        return ChecksumError(
            f"Sample {index}: checksum mismached! {where}: {file.checksum} {detail:#010x}, "
            f"stored {failure.stored:#010x} ({size} bytes at offset {offset})",
            path=path,
            index=index,
            stored=failure.stored,
            computed=detail,
        )
    if failure.status == "failed":
        return file_error(detail, f"Sample {index}: {where}: reading {size} bytes at offset {offset}", path)
    if failure.status == "size":
        return FormatError(
            f"Sample {index}: {where}: {size} bytes at offset {offset}, expected {detail} as of every sample"
        )
    if failure.status == "span":
        return FormatError(f"Sample {index}: {where}: {_wrong_span(failure, file)}")
    if failure.status == "changed":
        return TruncatedError(f"Sample {index}: {where}: {_cut(failure, file)}")
    if failure.status == "replaced":
        return file_error(
            ESTALE,
            f"Sample {index}: {where}: the file was replaced or removed after it was opened, and closed meanwhile",
            path,
        )
    return TruncatedError(f"Sample {index}: length {size} but read {detail} bytes. {where} at offset {offset}")


def _wrong_span(failure: Failure, file: OpenedFile | SpanFile) -> str:
    if isinstance(file, SpanFile):
        found = f"{failure.detail} bytes at offset {failure.offset}"
        return f"{found}, expected a span within the file's {file.size} bytes"
    found = f"offsets {failure.offset} .. {failure.detail}"
    return f"{found}, expected ascending from {file.data_start} to at most {file.size}"


def _cut(failure: Failure, file: OpenedFile | SpanFile) -> str:
    tables = "" if isinstance(file, SpanFile) else f", {file.data_start} of them tables"
    return f"the file was cut to {failure.detail} bytes; it had {file.size} when it was opened{tables}"


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

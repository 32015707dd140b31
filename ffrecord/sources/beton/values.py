"""Values of .beton fields: where they are, by the metadata and the allocations, and what they are for users."""

import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.reading.batch_forms import Array, as_values, gather_pieces
from ffrecord.sources.beton.layout import JPEG, RAW, BetonField, BetonLayout

Rows = npt.NDArray[np.void]
Table = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

ABSENT = -1  # size where no allocation begins
CHUNK = 1 << 18  # samples in one step, so that temporary arrays stay small


class Allocations:
    """The table of allocations, for lookups by offset.

    Args:
        offsets: uint64 [a], ascending, all different.
        sizes: int64 [a], bytes, > 0.
    """

    def __init__(self, offsets: Words, sizes: Table) -> None:
        self.offsets, self.sizes = offsets, sizes

    @classmethod
    def of(cls, table: npt.NDArray[np.void], layout: BetonLayout) -> "Allocations":
        """Return the table from the file's, which may be in any order.

        Empty allocations, whose offsets mean nothing, are left out.

        Raises:
            FormatError: an allocation is not within the pages, or two overlap.
        """
        table = table[table["size"] > 0]
        start, stop = np.uint64(layout.data_start), np.uint64(layout.table_start)
        offsets, sizes = np.ascontiguousarray(table["offset"]), np.ascontiguousarray(table["size"])
        # `minimum`, since numbers without sign wrap around.
        outside = (offsets < start) | (offsets > stop) | (sizes > stop - np.minimum(offsets, stop))
        if outside.any():
            bad = table[np.argmax(outside)]
            raise FormatError(
                f"sample {bad['sample']} has an allocation of {bad['size']} bytes at offset {bad['offset']}, "
                f"expected within {start} .. {stop}"
            )
        # Each worker of FFCV wrote its own allocations in ascending order. A stable sort uses such runs, and is fast.
        order = np.argsort(offsets, kind="stable")
        offsets, lengths = offsets[order], sizes[order].astype(np.int64)
        overlapping = offsets[1:] < offsets[:-1] + lengths[:-1].astype(np.uint64)
        if overlapping.any():
            place = int(np.argmax(overlapping))
            raise FormatError(
                f"allocations overlap: one of {lengths[place]} bytes at offset {offsets[place]} reaches into the next "
                f"one at offset {offsets[place + 1]}"
            )
        return cls(offsets, lengths)

    def size_of(self, offsets: Words) -> Table:
        """Return the bytes of the allocations at `offsets`: int64 [k], ABSENT if none begins there."""
        if not len(self.offsets):
            return np.full(len(offsets), ABSENT, np.int64)
        places = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        found: Table = np.where(self.offsets[places] == offsets, self.sizes[places], ABSENT)
        return found


class ValuePieces(NamedTuple):
    """Positions of the values of k samples, for p fields that have data.

    Attributes:
        offsets, sizes: int64 [p, k], bytes in the file; offsets of values without bytes mean nothing.
        starts, totals: int64 [k], the piece of the file, within one page, with all values of a sample.
        wrong: bool [k], samples whose metadata are invalid; all numbers above are 0 for them.
    """

    offsets: Table
    sizes: Table
    starts: Table
    totals: Table
    wrong: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, p: int, k: int) -> "ValuePieces":
        """Return the positions for samples without any values."""
        pieces, samples = np.zeros((2, p, k), np.int64), np.zeros((2, k), np.int64)
        return cls(pieces[0], pieces[1], samples[0], samples[1], np.zeros(k, np.bool_))


def pieces(rows: Rows, layout: BetonLayout, allocations: Allocations, check: bool) -> ValuePieces:
    """Return the positions of the values of the samples with these rows of metadata.

    Args:
        check: compare every offset and size with the allocations, not only those of JPEG images, which need it.
    """
    fields = [field for field in layout.fields if field.has_data]
    offsets, sizes = np.zeros((len(fields), len(rows)), np.int64), np.zeros((len(fields), len(rows)), np.int64)
    wrong = np.zeros(len(rows), np.bool_)
    start, stop = np.uint64(layout.data_start), np.uint64(layout.table_start)
    for place, field in enumerate(fields):
        at, size = _stated_spans(rows[field.column], field)
        allocated = allocations.size_of(at) if check or field.kind == "image" else None
        if field.kind == "image" and allocated is not None:
            mode = rows[field.column]["mode"]
            wrong |= (mode > RAW) | ((mode == JPEG) & (allocated < 0))
            # Where nothing is allocated, this is a huge number, but the sample is wrong already.
            size = np.where(mode == JPEG, allocated, size).astype(np.uint64)
        some = size > 0
        # As numbers without sign, before they become int64.
        wrong |= some & ((at < start) | (at > stop) | (size > stop - np.minimum(at, stop)))
        if check and allocated is not None:
            wrong |= some & (allocated.astype(np.uint64) != size)
        offsets[place], sizes[place] = np.where(some, at, 0).astype(np.int64), size.astype(np.int64)
    offsets[:, wrong], sizes[:, wrong] = 0, 0
    return _bound_pieces(offsets, sizes, wrong, layout)


def all_spans(rows: Rows, layout: BetonLayout, allocations: Allocations, check: bool) -> tuple[Table, Table]:
    """Return (offsets, sizes) of the pieces with the values of all samples: int64 [n] both; size -1 if it is wrong."""
    starts, totals = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for first in range(0, len(rows), CHUNK):
        part = pieces(rows[first : first + CHUNK], layout, allocations, check)
        starts[first : first + CHUNK] = part.starts
        totals[first : first + CHUNK] = np.where(part.wrong, -1, part.totals)
    return starts, totals


def why_wrong(row: Rows, layout: BetonLayout, allocations: Allocations) -> str:
    """Describe the error in the metadata of one sample, [1]: the metadata, and the allocations in the table."""
    said = []
    for field in layout.fields:
        if not field.has_data:
            continue
        at, size = _stated_spans(row[field.column], field)
        found = int(allocations.size_of(at)[0])
        mode = f"mode {row[field.column]['mode'][0]}, " if field.kind == "image" else ""
        listed = "nothing is allocated there" if found == ABSENT else f"{found} bytes are allocated there"
        said.append(f"field {field.name!r} has {mode}{size[0]} bytes at offset {at[0]}, but {listed}")
    return (
        f"expected its values in allocations of one page, at offsets {layout.data_start} .. {layout.table_start}: "
        + "; ".join(said)
    )


def _stated_spans(column: npt.NDArray[Any], field: BetonField) -> tuple[Words, Words]:
    """Return (offsets, sizes) of a field's values from the metadata. For images, the sizes are those of raw ones."""
    if field.kind == "array":
        return column.astype(np.uint64), np.full(len(column), field.size, np.uint64)
    if field.kind == "image":
        pixels = column["width"].astype(np.uint64) * column["height"].astype(np.uint64)
        return column["offset"].astype(np.uint64), pixels * np.uint64(3)
    return column["offset"].astype(np.uint64), column["size"].astype(np.uint64)


def _bound_pieces(offsets: Table, sizes: Table, wrong: npt.NDArray[np.bool_], layout: BetonLayout) -> ValuePieces:
    some = sizes > 0
    starts = np.where(some, offsets, np.iinfo(np.int64).max).min(axis=0, initial=np.iinfo(np.int64).max)
    ends = np.where(some, offsets + sizes, 0).max(axis=0, initial=0)
    starts = np.where(ends > 0, starts, 0)
    # FFCV allocates the values of a sample in one page.
    pages_of = (starts - layout.data_start) // layout.page_size, (ends - 1 - layout.data_start) // layout.page_size
    wrong = wrong | ((ends > 0) & (pages_of[0] != pages_of[1]))
    starts, ends = np.where(wrong, 0, starts), np.where(wrong, 0, ends)
    offsets[:, wrong], sizes[:, wrong] = 0, 0
    return ValuePieces(offsets, sizes, starts, ends - starts, wrong)


def values(field: BetonField, rows: Rows, pieces: list[Array], decode: bool) -> list[Any]:
    """Return the values of a field in k samples.

    Args:
        rows: [k], their metadata.
        pieces: bytes of each value in the pages; empty for a field that has none there.
        decode: decode JPEG images to arrays; otherwise they stay bytes.

    Raises:
        FormatError: a value is invalid; .args[0] begins with the place of the sample in the batch.
    """
    column = rows[field.column]
    if field.kind in ("int", "float"):
        return list(column.tolist())
    if not field.has_data:
        return list(column)
    found = []
    for place, piece in enumerate(pieces):
        try:
            found.append(_value(field, column[place], piece, decode))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{place}: field {field.name!r}: {error}") from None
    return found


def _value(field: BetonField, said: Any, piece: Array, decode: bool) -> Any:
    if field.kind == "bytes":
        return piece.tobytes()
    if field.dtype is not None:
        return as_values(piece[None], field.dtype, field.shape)[0].copy()
    if field.kind == "json":
        # FFCV ends JSON with a NUL.
        text, end, _ = piece.tobytes().partition(b"\0")
        if not end:
            raise FormatError(f"its {len(text)} bytes of JSON do not end with a NUL byte")
        return json.loads(text.decode())
    shape = (int(said["height"]), int(said["width"]), 3)
    if said["mode"] != JPEG:
        return piece.reshape(shape)
    if not decode:
        return piece.tobytes()
    image = decompress(piece.data, grey=False)
    if image.shape != shape:
        raise FormatError(f"its JPEG has shape {image.shape}, its metadata says {shape}")
    return image


def column(field: BetonField, rows: Rows, data: Array, starts: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
    """Return the values of a field in k samples as one array [k, ...] if they have one size, else None.

    Args:
        rows: [k], their metadata.
        data: bytes of all samples, packed.
        starts: int64 [k], start of each value in `data`.
    """
    said = rows[field.column]
    if not field.has_data:
        return np.ascontiguousarray(said)
    if field.dtype is not None:
        return as_values(gather_pieces(data, starts, field.size), field.dtype, field.shape)
    if field.kind == "image" and len(rows) and (said["mode"] != JPEG).all():
        width, height = said["width"][0], said["height"][0]
        if (said["width"] == width).all() and (said["height"] == height).all():
            shape = (int(height), int(width), 3)
            return gather_pieces(data, starts, shape[0] * shape[1] * 3).reshape(-1, *shape)
    return None

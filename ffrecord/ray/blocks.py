"""What a task of reading does: samples of shards as blocks of Arrow, only the columns that are asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields import BytesField, Field, Schema, schema_of
from ffrecord.fields.batch import Batch, check_records, decode_each
from ffrecord.fields.layout import RecordLayout
from ffrecord.fields.shapes import CHECKED, check_items
from ffrecord.ray.pieces import Opening, ReadPiece, open_piece
from ffrecord.ray.to_arrow import arrow_type, binary_array, column_array, row_size
from ffrecord.reader import FileReader
from ffrecord.system.requirements import require

pa: Any = require("pyarrow", "ray", "ffrecord.ray")

PLAIN = "data"  # name of the only column if samples are plain bytes

Bounds = tuple[int, int]


@dataclass(frozen=True)
class WantedColumns:
    """The columns of samples that become columns of blocks.

    Attributes:
        schema: schema to read the samples with; None for plain bytes.
        stored: schema in the files.
        columns: wanted columns, in order.
    """

    schema: Schema | None
    stored: Schema | None
    columns: tuple[str, ...]

    @cached_property
    def arrow(self) -> Any:
        """Schema of the blocks."""
        if self.schema is None:
            return pa.schema([(PLAIN, pa.large_binary())])
        return pa.schema([(name, arrow_type(self.schema.fields[name])) for name in self.columns])

    @cached_property
    def row_size(self) -> int | None:
        """Bytes of a row of a block; None if that varies."""
        if self.schema is None:
            return None
        sizes = [row_size(self.schema.fields[name]) for name in self.columns]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def only(self, columns: Sequence[str]) -> "WantedColumns":
        """Return the wanted columns among these names."""
        return WantedColumns(self.schema, self.stored, tuple(name for name in self.columns if name in columns))


def read_blocks(
    pieces: Sequence[ReadPiece], wanted: WantedColumns, opening: Opening, target: int | None
) -> Iterator[Any]:
    """Yield the blocks of a task.

    Args:
        target: approximate bytes of samples in a block; None for one block of each piece.
    """
    if not pieces:
        yield wanted.arrow.empty_table()
    for piece in pieces:
        with open_piece(piece, opening) as reader:
            if schema_of(reader) != wanted.stored:
                raise FormatError(
                    f"{reader.fnames[0]}: its columns differ from those of the first shard: "
                    "a dataset has one schema, so move that shard to a directory of its own"
                )
            for start, stop in _block_bounds(reader, piece, target):
                yield make_block(reader, np.arange(start, stop), wanted)


def _block_bounds(reader: FileReader, piece: ReadPiece, target: int | None) -> Iterator[Bounds]:
    if target is None:
        yield piece.start, piece.stop
        return
    offsets = reader.get_offsets(0)[piece.start : piece.stop + 1]
    first = 0
    while first < len(offsets) - 1:
        after = int(np.searchsorted(offsets, offsets[first] + target, side="right")) - 1
        after = min(max(after, first + 1), len(offsets) - 1)
        yield piece.start + first, piece.start + after
        first = after


def make_block(reader: FileReader, indices: Any, wanted: WantedColumns) -> Any:
    """Return the table of some samples."""
    if wanted.schema is None:
        return pa.table({PLAIN: binary_array(reader.read_packed(indices))})
    fields = wanted.schema.fields
    try:
        columns = _read(reader, indices, wanted.schema, wanted.columns)
        arrays = [column_array(fields[name], columns[name]) for name in wanted.columns]
    except FormatError as error:
        if str(error).startswith(reader.fnames[0]):
            raise
        raise FormatError(f"{reader.fnames[0]}: samples from index {indices[0]} on: {error}") from error
    return pa.table(arrays, schema=wanted.arrow)


def _read(reader: FileReader, indices: Any, schema: Schema, columns: Sequence[str]) -> Mapping[str, Any]:
    if schema.record_size is not None:
        return _read_fixed_size(reader, indices, schema.record_size, schema, columns)
    data, offsets = reader.read_packed(indices)
    batch = Batch(RecordLayout(list(schema.fields.items())), *check_records(data, offsets))

    def get(position: int) -> Any:
        name = schema.columns[position]
        if name not in columns:
            return None
        # Bytes go straight into Arrow's memory, without a Python object for each.
        return batch.payloads(position) if type(schema.fields[name]) is BytesField else batch.column(position)

    return dict(zip(schema.columns, decode_each(batch, get), strict=True))


def _read_fixed_size(
    reader: FileReader, indices: Any, size: int, schema: Schema, columns: Sequence[str]
) -> Mapping[str, Any]:
    """Read columns from records of `size` bytes each; the engine copies nothing but these."""
    slots = [schema.slots[name] for name in columns]
    found = reader.read_columns(indices, size, [(slot.offset, slot.size) for slot in slots])
    return {
        name: _column(schema.fields[name], raw, slot.dtype, slot.shape)
        for name, raw, slot in zip(columns, found, slots, strict=True)
    }


def _column(field: Field, raw: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    column = np.ndarray((len(raw), *shape), dtype, raw if raw.size else None)
    if dtype.kind in CHECKED:
        check_items(column)
    return field.column(column)

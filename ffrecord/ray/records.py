"""Blocks of Arrow as records: whole columns at once where they are of fixed size, else put together row by row."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ray.data.block import BlockAccessor

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import Schema
from ffrecord.fields.field import Array, Encoded
from ffrecord.fields.layout import SIZE
from ffrecord.ray.blocks import PLAIN
from ffrecord.ray.columns import is_binary
from ffrecord.ray.to_arrow import binary_array
from ffrecord.ray.values import ArrowColumn, packed, schema_of_arrays
from ffrecord.reading.batch_forms import Packed
from ffrecord.system.optional import require

pa: Any = require("pyarrow", "ray", "ffrecord.ray")
compute: Any = require("pyarrow.compute", "ray", "ffrecord.ray")

NOTHING = pa.scalar(b"", pa.large_binary())  # between the parts of a record
ROWS_MAX = 1 << 20  # bytes of records of one size that are put together at once
LARGE = 8 << 10  # bytes of a record, on the average, that is worth an object of Python's for each part
AT_ONCE = 8 << 20  # bytes of a block of which the records are put together at once


class ArrowRecords:
    """Makes records of blocks.

    Args:
        schema: of the samples; None for plain bytes in the column "data".
    """

    def __init__(self, schema: Schema | None) -> None:
        self._names = (PLAIN,) if schema is None else schema.columns
        # Tensors come as arrays, whose bytes are the same.
        self._assembly = None if schema is None else RecordAssembly(schema_of_arrays(schema))

    def of(self, block: Any) -> Iterator[Packed]:
        """The records of a block, in order, in one piece or several, each to be used before the next is asked for.

        Raises:
            ValueError: other columns than those of the schema.
            TypeError, ValueError: a value that its field does not hold; names the column.
        """
        table = _as_arrow(block)
        if not table.num_rows:
            return
        self._check_columns(table.column_names)
        if self._assembly is None:
            _check_plain(table.column(PLAIN))
            yield from map(packed, table.column(PLAIN).chunks)
        else:
            yield from self._assembly.records(table)

    def _check_columns(self, found: Sequence[str]) -> None:
        missing, extra = set(self._names) - set(found), set(found) - set(self._names)
        if missing or extra:
            if missing:
                has = f"the dataset has {', '.join(sorted(found))}"
                raise ArgumentError(f"the schema has a column {min(missing)!r}, which the dataset has not; {has}")
            has = f"the schema has {', '.join(sorted(self._names))}"
            wrong = f"the dataset has a column {min(extra)!r}, which the schema has not; {has}"
            raise ArgumentError(f"{wrong}; drop_columns leaves it out")


def _as_arrow(block: Any) -> Any:
    """Return a block as a table of Arrow. Of a block of pandas, NaN in a column of floats stays NaN.

    Arrow takes it for what is missing there, though pandas has both in columns of objects only.
    """
    table = BlockAccessor.for_block(block).to_arrow()
    if isinstance(block, pa.Table):
        return table
    for place, name in enumerate(table.column_names):
        column = block[name]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
            table = table.set_column(place, name, pa.array(column.to_numpy(), from_pandas=False))
    return table


def _check_plain(column: Any) -> None:
    if column.null_count:
        raise ArgumentTypeError(f"{PLAIN}: {column.null_count} values are missing, which plain bytes cannot be")
    if not is_binary(column.type):
        raise ArgumentTypeError(f"{PLAIN} is of type {column.type}, expected bytes")


class RecordAssembly:
    """Puts records together, as fields/layout.py says.

    Args:
        schema: of the samples.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._varying = [name for name in schema.columns if name not in schema.slots]
        self._memory = np.empty(0, np.uint8)  # used again: that of all records would be new

    def records(self, table: Any) -> Iterator[Packed]:
        """The records of a table, in pieces."""
        if self._schema.record_size:
            columns = [self._column(name, table).whole() for name in self._schema.columns]
            whole = [column for column in columns if column is not None]
            if len(whole) == len(columns):
                yield from self._of_one_size(whole, self._schema.record_size)
                return
        step = max(1, min(table.num_rows, AT_ONCE * table.num_rows // max(1, table.nbytes)))
        for start in range(0, table.num_rows, step):
            part = table.slice(start, step)
            try:
                yield self._together(part)
            except (TypeError, ValueError, OSError):
                self._explain(part)
                raise

    def _column(self, name: str, table: Any) -> ArrowColumn:
        return ArrowColumn(self._schema.fields[name], name, table)

    def _room(self, size: int) -> Array:
        if len(self._memory) < size:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size]

    def _of_one_size(self, columns: Sequence[Array], size: int) -> Iterator[Packed]:
        step, samples = max(1, ROWS_MAX // size), len(columns[0])
        for start in range(0, samples, step):
            at, count = 0, min(step, samples - start)
            rows = self._room(count * size).reshape(count, size)
            for column in columns:
                rows[:, at : at + column.shape[1]] = column[start : start + count]
                at += column.shape[1]
            yield rows.reshape(-1), np.arange(0, (count + 1) * size, size, dtype=np.int64)

    def _together(self, table: Any) -> Packed:
        """The records of a part."""
        payloads = [self._column(name, table).joined() for name in self._varying]
        sizes = [np.diff(packed(each)[1]).astype(SIZE)[:, None].view(np.uint8) for each in payloads]
        heads = np.concatenate([self._heads(table), *sizes], axis=1)
        ends = np.arange(table.num_rows + 1, dtype=np.int64) * heads.shape[1]
        parts = [binary_array((heads.reshape(-1), ends)), *payloads]
        if sum(part.nbytes for part in parts) < LARGE * table.num_rows:
            # By Arrow, where there is no object for a row.
            return packed(compute.binary_join_element_wise(*parts, NOTHING))
        return self._copied([packed(part) for part in parts])

    def _copied(self, parts: Sequence[Packed]) -> Packed:
        """Parts of large records, copied each: what Arrow gives is new memory, of which every page is cleared first."""
        offsets = np.sum([bounds for _, bounds in parts], axis=0)
        data = self._room(int(offsets[-1]))
        to, at = data.data, offsets[:-1].copy()
        for source, bounds in parts:
            view, starts = source.data, bounds.tolist()
            for place, (start, stop) in zip(at.tolist(), itertools.pairwise(starts), strict=True):
                to[place : place + stop - start] = view[start:stop]
            at += np.diff(bounds)
        return data, offsets

    def _heads(self, table: Any) -> Array:
        """The columns of fixed size, uint8 [rows, bytes]."""
        found = [np.empty((table.num_rows, 0), np.uint8)]
        for name, slot in self._schema.slots.items():
            column = self._column(name, table)
            whole = column.whole()
            found.append(_stacked(column.payloads(), slot.size) if whole is None else whole)
        return np.concatenate(found, axis=1)

    def _explain(self, table: Any) -> None:
        """Raise what keeps a row from being encoded, with the name of the column."""
        values = [self._column(name, table).values() for name in self._schema.columns]
        for row in zip(*values, strict=True):
            self._schema.encode(self._schema.unflatten(row))


def _stacked(payloads: Sequence[Encoded], size: int) -> Array:
    if any(len(payload) != size for payload in payloads):
        raise ValueError(f"values of other sizes than {size} bytes")
    return np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), size)

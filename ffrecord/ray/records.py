"""Records from blocks of Arrow: whole columns at once if they are of fixed size, else row by row."""

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
from ffrecord.ray.values import ArrowColumn, pack_chunk, schema_of_arrays
from ffrecord.reading.batch_forms import Packed
from ffrecord.system.requirements import require

pa: Any = require("pyarrow", "ray", "ffrecord.ray")
compute: Any = require("pyarrow.compute", "ray", "ffrecord.ray")

NOTHING = pa.scalar(b"", pa.large_binary())  # between the parts of a record
ROWS_MAX = 1 << 20  # bytes of fixed-size records joined at once
LARGE = 8 << 10  # mean bytes of a record from which a Python object for each part pays off
AT_ONCE = 8 << 20  # bytes of a block whose records are joined at once


class ArrowRecords:
    """An encoder of blocks.

    Args:
        schema: schema of the samples; None for plain bytes in the column "data".
    """

    def __init__(self, schema: Schema | None) -> None:
        self._names = (PLAIN,) if schema is None else schema.columns
        # Tensors come as arrays, whose bytes are the same.
        self._assembly = None if schema is None else RecordAssembly(schema_of_arrays(schema))

    def records(self, block: Any) -> Iterator[Packed]:
        """Yield the records of a block, in order, in one piece or several; use each before the next is requested.

        Raises:
            ValueError: other columns than those of the schema.
            TypeError, ValueError: a value that its field does not store; names the column.
        """
        table = _as_arrow(block)
        if not table.num_rows:
            return
        self._check_columns(table.column_names)
        if self._assembly is None:
            _check_plain(table.column(PLAIN))
            yield from map(pack_chunk, table.column(PLAIN).chunks)
        else:
            yield from self._assembly.records(table)

    def _check_columns(self, found: Sequence[str]) -> None:
        missing, extra = set(self._names) - set(found), set(found) - set(self._names)
        if missing or extra:
            if missing:
                has = f"the dataset has {', '.join(sorted(found))}"
                raise ArgumentError(f"the schema has a column {min(missing)!r}, which is missing in the dataset; {has}")
            has = f"the schema has {', '.join(sorted(self._names))}"
            wrong = f"the dataset has a column {min(extra)!r}, which is missing in the schema; {has}"
            raise ArgumentError(f"{wrong}; leave it out with drop_columns")


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
        raise ArgumentTypeError(f"{PLAIN}: {column.null_count} values are missing, but plain bytes cannot be missing")
    if not is_binary(column.type):
        raise ArgumentTypeError(f"{PLAIN} has type {column.type}, expected bytes")


class RecordAssembly:
    """An encoder of tables that joins the parts of records as fields/layout.py describes.

    Args:
        schema: schema of the samples.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._varying = [name for name in schema.columns if name not in schema.slots]
        self._memory = np.empty(0, np.uint8)  # reused, because new memory is slower

    def records(self, table: Any) -> Iterator[Packed]:
        """Yield the records of a table, in pieces."""
        if self._schema.record_size:
            columns = [self._column(name, table).fixed_bytes() for name in self._schema.columns]
            whole = [column for column in columns if column is not None]
            if len(whole) == len(columns):
                yield from self._fixed_records(whole, self._schema.record_size)
                return
        step = max(1, min(table.num_rows, AT_ONCE * table.num_rows // max(1, table.nbytes)))
        for start in range(0, table.num_rows, step):
            part = table.slice(start, step)
            try:
                yield self._join_parts(part)
            except (TypeError, ValueError, OSError):
                self._explain(part)
                raise

    def _column(self, name: str, table: Any) -> ArrowColumn:
        return ArrowColumn(self._schema.fields[name], name, table)

    def _room(self, size: int) -> Array:
        if len(self._memory) < size:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size]

    def _fixed_records(self, columns: Sequence[Array], size: int) -> Iterator[Packed]:
        step, samples = max(1, ROWS_MAX // size), len(columns[0])
        for start in range(0, samples, step):
            at, count = 0, min(step, samples - start)
            rows = self._room(count * size).reshape(count, size)
            for column in columns:
                rows[:, at : at + column.shape[1]] = column[start : start + count]
                at += column.shape[1]
            yield rows.reshape(-1), np.arange(0, (count + 1) * size, size, dtype=np.int64)

    def _join_parts(self, table: Any) -> Packed:
        """Return the records of a part of a table."""
        payloads = [self._column(name, table).as_binary() for name in self._varying]
        sizes = [np.diff(pack_chunk(each)[1]).astype(SIZE)[:, None].view(np.uint8) for each in payloads]
        heads = np.concatenate([self._heads(table), *sizes], axis=1)
        ends = np.arange(table.num_rows + 1, dtype=np.int64) * heads.shape[1]
        parts = [binary_array((heads.reshape(-1), ends)), *payloads]
        if sum(part.nbytes for part in parts) < LARGE * table.num_rows:
            # By Arrow, which creates no Python object for a row.
            return pack_chunk(compute.binary_join_element_wise(*parts, NOTHING))
        return self._copy_parts([pack_chunk(part) for part in parts])

    def _copy_parts(self, parts: Sequence[Packed]) -> Packed:
        """Return large records, each part copied.

        Arrow would allocate new memory, and every page of that is cleared first.
        """
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
        """Return the columns of fixed size, uint8 [rows, bytes]."""
        found = [np.empty((table.num_rows, 0), np.uint8)]
        for name, slot in self._schema.slots.items():
            column = self._column(name, table)
            whole = column.fixed_bytes()
            found.append(_stack_payloads(column.payloads(), slot.size) if whole is None else whole)
        return np.concatenate(found, axis=1)

    def _explain(self, table: Any) -> None:
        """Encode row by row to raise the error of the first bad value, with the name of its column."""
        values = [self._column(name, table).values() for name in self._schema.columns]
        for row in zip(*values, strict=True):
            self._schema.encode(self._schema.unflatten(row))


def _stack_payloads(payloads: Sequence[Encoded], size: int) -> Array:
    if any(len(payload) != size for payload in payloads):
        raise ValueError(f"values have other sizes, expected {size} bytes each")
    return np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), size)

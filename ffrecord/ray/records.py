"""Records from blocks of Arrow: whole columns at once if they are of fixed size, else row by row or value by value."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from ray.data.block import BlockAccessor
from ray.data.extensions import ArrowPythonObjectType

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import (
    BoolField,
    BytesField,
    Field,
    FloatField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
    ListField,
    MsgpackField,
    NDArrayField,
    NoneField,
    OptionalField,
    ScalarField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
)
from ffrecord.fields.field import Array, Encoded
from ffrecord.fields.layout import SIZE
from ffrecord.inputs.arrow_values import python_values
from ffrecord.ray.blocks import PLAIN
from ffrecord.ray.columns import has_maps, is_binary, is_list
from ffrecord.ray.to_arrow import binary_array, joined_array, uncompressed_field
from ffrecord.reading.batch_forms import Packed
from ffrecord.system.requirements import require
from ffrecord.system.values import is_tensor

pa: Any = require("pyarrow", "ray", "ffrecord.ray")
compute: Any = require("pyarrow.compute", "ray", "ffrecord.ray")

NOTHING = pa.scalar(b"", pa.large_binary())  # between the parts of a record
ROWS_MAX = 1 << 20  # bytes of fixed-size records joined at once
LARGE = 8 << 10  # mean bytes of a record from which a Python object for each part pays off
AT_ONCE = 8 << 20  # bytes of a block whose records are joined at once

# Fields whose values are exactly the items of an array. Subclasses are not included: they may encode otherwise.
WHOLE = (IntField, FloatField, BoolField, ScalarField, LabelField, NDArrayField, TensorField)
OURS = "ffrecord.fields."


def schema_of_arrays(schema: Schema) -> Schema:
    """Return a schema that writes the same bytes from arrays, where `schema` takes tensors of torch."""
    tree = schema._tree
    return Schema(_replace_tensors(tree))


def _replace_tensors(tree: Any) -> Any:
    if not isinstance(tree, Field):
        return replace(tree, children=tuple(map(_replace_tensors, tree.children)))
    return _as_array_field(tree)


def _as_array_field(field: Field) -> Field:
    if isinstance(field, TensorField):
        return NDArrayField(field.storage, field.shape)
    return replace(field, inner=_as_array_field(field.inner)) if isinstance(field, ZstdField) else field


class ArrowColumn:
    """The values of a column.

    Args:
        field: field for them.
        name: name of the column.
        table: table of the column, of one row or more.

    Raises:
        TypeError: values are missing.
    """

    def __init__(self, field: Field, name: str, table: Any) -> None:
        self._field, self._name, self._chunked = field, name, plain_column(table.column(name))
        self._plain = uncompressed_field(field)
        self._check_nulls()

    def _check_nulls(self) -> None:
        missing = self._chunked.null_count
        if missing and not _holds_none(self._plain):
            raise _missing_error(self._name, missing, self._field)

    def _array(self) -> Any:
        return _as_numpy(self._chunked)

    def fixed_bytes(self) -> Array | None:
        """Return the bytes of all values, uint8 [k, size]; None if they have to be encoded one by one."""
        fixed = self._field.fixed
        if type(self._field) not in WHOLE or fixed is None:
            return None
        array = self._array()
        if array.shape[1:] != fixed.shape or array.dtype.kind != fixed.dtype.kind:
            return None
        if not self._takes(array.dtype, fixed.dtype):
            return None
        if isinstance(self._field, LabelField) and not 0 <= array.min() <= array.max() < len(self._field.names):
            return None
        items = np.ascontiguousarray(array, fixed.dtype)
        return items.reshape(len(items), -1).view(np.uint8) if fixed.size else np.empty((len(items), 0), np.uint8)

    def _takes(self, given: np.dtype[Any], stored: np.dtype[Any]) -> bool:
        """Return whether all items of one type fit another one, without a check of each."""
        if isinstance(self._field, IntField | FloatField):
            return np.can_cast(given, stored, "safe")
        # Not even times of another unit: NumPy calls that cast safe, but it wraps around.
        return given.newbyteorder("=") == stored.newbyteorder("=")

    def as_binary(self) -> Any:
        """Return the bytes of all values as one Arrow array, without one Python object for each if Arrow has them as
        stored.
        """
        kind = self._chunked.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if (type(self._field) is BytesField and is_binary(kind)) or (type(self._field) is StrField and text):
            chunks = [chunk.cast(pa.large_binary()) for chunk in self._chunked.chunks]
            return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)  # concat_arrays copies even one chunk
        return joined_array(self.payloads())

    def payloads(self) -> list[Encoded]:
        """Return the bytes of each value, as its field encodes it."""
        encode = self._field.encode
        # The buffer from a user's field may be overwritten by its next call.
        if type(self._field).__module__.startswith(OURS):
            return [encode(value) for value in self.values()]
        return [bytes(encode(value)) for value in self.values()]

    def values(self) -> list[Any]:
        """Return the values, in the form that the field takes.

        Raises:
            TypeError: values within lists are missing.
        """
        return _values(self._chunked, self._plain, self._name)


def _values(column: Any, field: Field, name: str) -> list[Any]:
    """Return the values of an Arrow column in the form that `field` takes: None for a missing value, never NaN.

    NumPy has no missing number. So missing values are taken out before, and lists are taken apart.

    Args:
        column: a chunked array.
        field: field for the values.
        name: name of the column, for messages.
    """
    plain, kind = uncompressed_field(field), column.type
    if isinstance(plain, JSONField | MsgpackField | NoneField):
        return _python_values(column)
    if isinstance(plain, OptionalField):
        return _optional_values(column, plain, name)
    if column.null_count and not _holds_none(plain):
        raise _missing_error(name, column.null_count, plain)
    if isinstance(kind, pa.BaseExtensionType):
        return [_fit_value(value, plain) for value in _as_numpy(column)]
    if isinstance(plain, ListField) and is_list(kind):
        return [each for chunk in column.chunks for each in _list_values(chunk, plain.inner, name)]
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return _python_values(column)
    if is_list(kind):
        _check_items(column, plain, name)
    return [_fit_value(value, plain) for value in _as_numpy(column)]


def _python_values(column: Any) -> list[Any]:
    """Return the values of a column as Python objects: structs as dicts, maps as lists of pairs, as `convert` does."""
    # Arrow makes tuples of the pairs of a map, which no field holds.
    if not has_maps(column.type):
        return list(column.to_pylist())
    return [value for chunk in column.chunks for value in python_values(chunk)]


def plain_column(column: Any) -> Any:
    """Return a column of a type that all Arrow functions know: without views of text and bytes, and without
    dictionaries.
    """
    kind = _plain_type(column.type)
    if kind == column.type:
        return column
    try:
        if not is_list(column.type):
            return column.cast(kind)
    except pa.ArrowNotImplementedError:
        pass
    # A cast of list views would give lists without items.
    return pa.chunked_array([pa.array(chunk.to_pylist(), kind) for chunk in column.chunks], kind)


def _plain_type(kind: Any) -> Any:
    types = pa.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if is_list(kind):
        items = _plain_type(kind.value_type)
        return kind if items == kind.value_type else pa.large_list(items)
    views = {"is_string_view": pa.large_string(), "is_binary_view": pa.large_binary()}
    return next((plain for name, plain in views.items() if hasattr(types, name) and getattr(types, name)(kind)), kind)


def _optional_values(column: Any, field: OptionalField, name: str) -> list[Any]:
    if isinstance(column.type, ArrowPythonObjectType):  # None is an object like any other
        return [_fit_value(value, field) for value in _as_numpy(column)]
    there = np.array(column.is_valid().to_pylist(), np.bool_)
    found: list[Any] = [None] * len(column)
    values = _values(_drop_missing(column), field.inner, name)
    for place, value in zip(np.flatnonzero(there).tolist(), values, strict=True):
        found[place] = value
    return found


def _drop_missing(column: Any) -> Any:
    """Return a column without its missing values."""
    if not column.null_count:
        return column
    if not isinstance(column.type, pa.BaseExtensionType):
        return column.drop_null()
    chunks = [type(chunk).from_storage(chunk.type, chunk.storage.filter(chunk.is_valid())) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)


def _list_values(chunk: Any, inner: Field, name: str) -> list[list[Any]]:
    """Return lists of values, each a Python list."""
    items = _values(pa.chunked_array([chunk.flatten()]), inner, name)
    ends = np.cumsum([0, *compute.list_value_length(chunk).to_pylist()]).tolist()
    return [items[start:stop] for start, stop in itertools.pairwise(ends)]


def _check_items(column: Any, field: Field, name: str) -> None:
    """Raise TypeError if items of lists are missing, which an array would have as NaN."""
    for chunk in column.chunks:
        while is_list(chunk.type):
            chunk = chunk.flatten()
            if chunk.null_count and not pa.types.is_temporal(chunk.type):
                raise _missing_error(name, chunk.null_count, field)


def _missing_error(name: str, count: int, field: Field) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"column {name!r}: {count} values are missing, which {field!r} cannot hold; declare OptionalField(...) for "
        "this column"
    )


def _holds_none(field: Field) -> bool:
    """Return whether the field stores missing values. For times that is NaT."""
    fixed = field.fixed
    if fixed is not None and fixed.dtype.kind in "mM":
        return True
    return isinstance(uncompressed_field(field), JSONField | MsgpackField | NoneField | OptionalField)


def _as_numpy(column: Any) -> Any:
    """Return a column without missing values, except times, as Ray makes an array of it."""
    if isinstance(column.type, pa.BaseExtensionType) and not len(column):
        return []
    return BlockAccessor.for_block(pa.table({"": column})).to_numpy("")


def _fit_value(value: Any, field: Field) -> Any:
    """Return a value of NumPy or Python in the form that its field takes."""
    plain = uncompressed_field(field)
    if isinstance(plain, OptionalField):
        return None if value is None else _fit_value(value, plain.inner)
    if isinstance(plain, ListField) and isinstance(value, list | np.ndarray):
        return [_fit_value(each, plain.inner) for each in value]
    if isinstance(plain, NDArrayField):
        return _as_array(value, plain)
    return _without_channel(value) if isinstance(plain, JPEGField) else value


def _as_array(value: Any, field: NDArrayField) -> Any:
    """Return an array in the byte order of its field; the field checks the rest."""
    if is_tensor(value):
        value = value.numpy(force=True)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    # Lists of a block that are all empty have no type of items.
    if array.dtype.hasobject and array.shape == (0,):
        return array.astype(field.dtype)
    same = array.dtype.newbyteorder("=") == field.dtype.newbyteorder("=")
    return array.astype(field.dtype, copy=False) if same else array


def _without_channel(value: Any) -> Any:
    """Return grey pixels without their axis of one channel, as decoded JPEGs are."""
    return value[..., 0] if isinstance(value, np.ndarray) and value.ndim == 3 and value.shape[2] == 1 else value


def pack_chunk(chunk: Any) -> Packed:
    """Return the bytes of an array of bytes or text, without a copy, and the start of each value."""
    if not len(chunk):  # an empty chunk may have no buffers
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    wide = pa.large_binary() if is_binary(chunk.type) else pa.large_string()
    chunk = chunk if chunk.type == wide else chunk.cast(wide)
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    everything = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return everything[bounds[0] : bounds[-1]], bounds - bounds[0]


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

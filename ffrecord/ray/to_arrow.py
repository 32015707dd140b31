"""Columns of fields as arrays of Arrow: numbers and text as Arrow has them, arrays as Ray has tensors, and all else as
Python objects, as Ray has those. Which it is depends on the field alone, so all blocks of a dataset have one schema."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ray.data.extensions import (
    ArrowPythonObjectArray,
    ArrowPythonObjectType,
    ArrowTensorArray,
    ArrowVariableShapedTensorArray,
)

from ffrecord.fields import (
    BytesField,
    Field,
    JPEGField,
    NDArrayField,
    NoneField,
    RGBImageField,
    StrField,
    TensorField,
    ZstdField,
)
from ffrecord.fields.field import Array, Encoded
from ffrecord.reading.batch_forms import Packed
from ffrecord.system.optional import require

pa: Any = require("pyarrow", "ray", "ffrecord.ray")

NUMBERS = "biuf"
TIMES = "mM"
TIME_UNITS = ("s", "ms", "us", "ns")
IMAGE_AXES = 3
OFFSET = 8  # bytes that a value of more than a number takes beside its own


def arrow_type(field: Field) -> Any:
    """The type of Arrow that a column of `field` has, in every block."""
    fixed = _plain(field).fixed
    if fixed is not None:
        return column_array(field, _plain(field).column(np.zeros((1, *fixed.shape), fixed.dtype))).type
    axes = _axes(field)
    if axes is not None:
        return column_array(field, [np.zeros((1,) * axes, _items(field))]).type
    return column_array(field, [{StrField: "", BytesField: b""}.get(type(_plain(field)), b"")]).type


def row_size(field: Field) -> int | None:
    """Bytes that a value of `field` takes in a block, where they are always as many."""
    fixed = field.fixed
    if fixed is None or pa.types.is_null(arrow_type(field)):
        return None if fixed is None else 0
    if isinstance(arrow_type(field), ArrowPythonObjectType):
        return None
    return fixed.size + (OFFSET if fixed.shape else 0)


def column_array(field: Field, column: Any) -> Any:
    """The array of Arrow of k values, k > 0.

    Args:
        column: what `Schema.decode_columns` gives: an array [k, *shape], or a list. Of bytes, views will do.
    """
    if isinstance(column, np.ndarray):
        return _fixed(field, column.astype(column.dtype.newbyteorder("="), copy=False))
    plain = _plain(field)
    if isinstance(plain, NoneField):
        return pa.nulls(len(column))
    if isinstance(plain, StrField):
        return pa.array(column, pa.large_string())
    if isinstance(plain, BytesField) or (isinstance(plain, JPEGField) and plain.as_bytes):
        return joined_array(column)
    axes = _axes(field)
    return _objects(column) if axes is None else _ragged([_with_axes(value, axes) for value in column])


def joined_array(payloads: Sequence[Encoded]) -> Any:
    """Bytes from several places, as one array."""
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    return binary_array((np.frombuffer(b"".join(payloads), np.uint8), offsets))


def binary_array(packed: Packed) -> Any:
    """Records that lie back to back, as they are: no copy is made."""
    data, offsets = packed
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _plain(field: Field) -> Field:
    """Without compression."""
    return field.inner if isinstance(field, ZstdField) else field


def _fixed(field: Field, column: Array) -> Any:
    kind = column.dtype.kind
    if column.ndim == 1 and (kind in NUMBERS or (kind in TIMES and _has_arrow_unit(column.dtype))):
        return pa.array(column)
    if column.ndim > 1 and kind in NUMBERS:
        return ArrowTensorArray.from_numpy(column)
    return _objects(_plain(field).unstack(column))


def _has_arrow_unit(dtype: np.dtype[Any]) -> bool:
    unit, count = np.datetime_data(dtype)
    return unit in TIME_UNITS and count == 1


def _axes(field: Field) -> int | None:
    """How many axes the arrays of a field of varying size have; None if these are no arrays that Ray has."""
    plain = _plain(field)
    if isinstance(plain, RGBImageField | JPEGField):
        return None if isinstance(plain, JPEGField) and plain.as_bytes else IMAGE_AXES
    if isinstance(plain, NDArrayField | TensorField) and plain.shape and _items(field).kind in NUMBERS:
        return len(plain.shape)
    return None


def _items(field: Field) -> np.dtype[Any]:
    """The dtype of the arrays of a field of varying size."""
    plain = _plain(field)
    if isinstance(plain, NDArrayField):
        return plain.dtype.newbyteorder("=")
    return plain.storage if isinstance(plain, TensorField) else np.dtype(np.uint8)


def _with_axes(value: Array, axes: int) -> Array:
    """Grey images get an axis of one channel: Ray has one number of axes for a column."""
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    return native if native.ndim == axes else native[..., None]


def _ragged(values: Sequence[Array]) -> Any:
    return ArrowVariableShapedTensorArray.from_numpy(list(values))


def _objects(values: Sequence[Any]) -> Any:
    return ArrowPythonObjectArray.from_objects(list(values))

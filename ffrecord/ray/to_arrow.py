"""Columns of fields as arrays of Arrow.

Numbers and text get types of Arrow, arrays become tensors of Ray, and all other values Python objects of Ray. The type
depends on the field alone, so all blocks of a dataset have one schema.
"""

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
    ImageFileField,
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
from ffrecord.system.requirements import require

pa: Any = require("pyarrow", "ray", "ffrecord.ray")

NUMBERS = "biuf"
TIMES = "mM"
TIME_UNITS = ("s", "ms", "us", "ns")
IMAGE_AXES = 3
OFFSET = 8  # bytes of the offset of each value of a column of tensors or of varying size


def arrow_type(field: Field) -> Any:
    """Return the Arrow type that a column of `field` has in every block."""
    fixed = uncompressed_field(field).fixed
    if fixed is not None:
        return column_array(field, uncompressed_field(field).column(np.zeros((1, *fixed.shape), fixed.dtype))).type
    axes = _axis_count(field)
    if axes is not None:
        return column_array(field, [np.zeros((1,) * axes, _item_dtype(field))]).type
    return column_array(field, [{StrField: "", BytesField: b""}.get(type(uncompressed_field(field)), b"")]).type


def row_size(field: Field) -> int | None:
    """Return the bytes that a value of `field` takes in a block; None if that varies."""
    fixed = field.fixed
    if fixed is None or pa.types.is_null(arrow_type(field)):
        return None if fixed is None else 0
    if isinstance(arrow_type(field), ArrowPythonObjectType):
        return None
    return fixed.size + (OFFSET if fixed.shape else 0)


def column_array(field: Field, column: Any) -> Any:
    """Return the Arrow array of k values, k > 0.

    Args:
        column: result of `Schema.decode_columns`: an array [k, *shape], or a list. Views of bytes are fine.
    """
    if isinstance(column, np.ndarray):
        return _fixed_array(field, column.astype(column.dtype.newbyteorder("="), copy=False))
    plain = uncompressed_field(field)
    if isinstance(plain, NoneField):
        return pa.nulls(len(column))
    if isinstance(plain, StrField):
        return pa.array(column, pa.large_string())
    if isinstance(plain, BytesField) or (isinstance(plain, JPEGField | ImageFileField) and plain.as_bytes):
        return joined_array(column)
    axes = _axis_count(field)
    return _object_array(column) if axes is None else _ragged_array([_with_axes(value, axes) for value in column])


def joined_array(payloads: Sequence[Encoded]) -> Any:
    """Return bytes from several places as one array."""
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    return binary_array((np.frombuffer(b"".join(payloads), np.uint8), offsets))


def binary_array(packed: Packed) -> Any:
    """Return records that lie back to back as an array, without a copy."""
    data, offsets = packed
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def uncompressed_field(field: Field) -> Field:
    """Return the field without compression."""
    return field.inner if isinstance(field, ZstdField) else field


def _fixed_array(field: Field, column: Array) -> Any:
    kind = column.dtype.kind
    if column.ndim == 1 and (kind in NUMBERS or (kind in TIMES and _has_arrow_unit(column.dtype))):
        return pa.array(column)
    if column.ndim > 1 and kind in NUMBERS:
        return ArrowTensorArray.from_numpy(column)
    return _object_array(uncompressed_field(field).unstack(column))


def _has_arrow_unit(dtype: np.dtype[Any]) -> bool:
    unit, count = np.datetime_data(dtype)
    return unit in TIME_UNITS and count == 1


def _axis_count(field: Field) -> int | None:
    """Return the number of axes of the arrays of a field of varying size; None if Ray has no such arrays."""
    plain = uncompressed_field(field)
    if isinstance(plain, RGBImageField | JPEGField):
        return None if isinstance(plain, JPEGField) and plain.as_bytes else IMAGE_AXES
    if isinstance(plain, NDArrayField | TensorField) and plain.shape and _item_dtype(field).kind in NUMBERS:
        return len(plain.shape)
    return None


def _item_dtype(field: Field) -> np.dtype[Any]:
    """Return the dtype of the arrays of a field of varying size."""
    plain = uncompressed_field(field)
    if isinstance(plain, NDArrayField):
        return plain.dtype.newbyteorder("=")
    return plain.storage if isinstance(plain, TensorField) else np.dtype(np.uint8)


def _with_axes(value: Array, axes: int) -> Array:
    """Return an array with `axes` axes: grey images get one channel, since a column in Ray has one number of axes."""
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    return native if native.ndim == axes else native[..., None]


def _ragged_array(values: Sequence[Array]) -> Any:
    return ArrowVariableShapedTensorArray.from_numpy(list(values))


def _object_array(values: Sequence[Any]) -> Any:
    return ArrowPythonObjectArray.from_objects(list(values))

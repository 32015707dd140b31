"""A column of a block of Arrow, and the field that is to hold its values: all at once, or one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
from ray.data.block import BlockAccessor

from ffrecord.errors import ArgumentTypeError
from ffrecord.fields import (
    BoolField,
    BytesField,
    Field,
    FloatField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
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
from ffrecord.fields.describe import is_tensor
from ffrecord.fields.field import Array, Encoded
from ffrecord.fields.optional import require
from ffrecord.forms import Packed
from ffrecord.ray.columns import is_binary
from ffrecord.ray.to_arrow import joined_array

pa: Any = require("pyarrow", "ray", "ffrecord.ray")

# Those whose values are the items of an array, no more and no less. Not of classes that others derive from them.
WHOLE = (IntField, FloatField, BoolField, ScalarField, LabelField, NDArrayField, TensorField)
OURS = "ffrecord.fields."


def schema_of_arrays(schema: Schema) -> Schema:
    """A schema that writes the same bytes, of arrays where `schema` wants tensors of torch."""
    tree = schema._tree
    return Schema(_replaced(tree))


def _replaced(tree: Any) -> Any:
    if not isinstance(tree, Field):
        return replace(tree, children=tuple(map(_replaced, tree.children)))
    return _of_arrays(tree)


def _of_arrays(field: Field) -> Field:
    if isinstance(field, TensorField):
        return NDArrayField(field.storage, field.shape)
    return replace(field, inner=_of_arrays(field.inner)) if isinstance(field, ZstdField) else field


class Column:
    """The values of a column.

    Args:
        field: that is to hold them.
        name: of the column.
        table: that it is in, of one row or more.

    Raises:
        TypeError: values are missing.
    """

    def __init__(self, field: Field, name: str, table: Any) -> None:
        self._field, self._name, self._chunked = field, name, table.column(name)
        self._plain = field.inner if isinstance(field, ZstdField) else field
        self._check_nulls()

    def _check_nulls(self) -> None:
        fixed = self._plain.fixed
        are_times = fixed is not None and fixed.dtype.kind in "mM"
        may = are_times or isinstance(self._plain, JSONField | MsgpackField | NoneField | OptionalField)
        if self._chunked.null_count and not may:
            raise ArgumentTypeError(
                f"{self._name}: {self._chunked.null_count} values are missing, which {self._field!r} does not hold; "
                "OptionalField(...) holds None"
            )

    def _array(self) -> Any:
        return BlockAccessor.for_block(pa.table({self._name: self._chunked})).to_numpy(self._name)

    def whole(self) -> Array | None:
        """The bytes of all values, uint8 [k, size]; None where they have to be encoded one by one."""
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
        """Whether all items of one type are held as another one, without a look at each."""
        if isinstance(self._field, IntField | FloatField):
            return np.can_cast(given, stored, "safe")
        # Not even for times of another unit, which numpy calls safe and which wrap.
        return given.newbyteorder("=") == stored.newbyteorder("=")

    def joined(self) -> Any:
        """The bytes of all values as one array of Arrow: where it has them as they are stored, without one object for
        each."""
        kind = self._chunked.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if (type(self._field) is BytesField and is_binary(kind)) or (type(self._field) is StrField and text):
            chunks = [chunk.cast(pa.large_binary()) for chunk in self._chunked.chunks]
            return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)  # which copies in any case
        return joined_array(self.payloads())

    def payloads(self) -> list[Encoded]:
        """The bytes of each value, as its field makes them."""
        encode = self._field.encode
        # What a field of the user's gives may be gone with its next call.
        if type(self._field).__module__.startswith(OURS):
            return [encode(value) for value in self.values()]
        return [bytes(encode(value)) for value in self.values()]

    def values(self) -> list[Any]:
        """The values, as the field takes them."""
        plain = self._plain
        if isinstance(plain, JSONField | MsgpackField | NoneField):
            return list(self._chunked.to_pylist())
        array = self._array()
        if isinstance(plain, NDArrayField):
            return [_as_array(value, plain) for value in array]
        if isinstance(plain, JPEGField):
            return [_without_channel(value) for value in array]
        return list(array)


def _as_array(value: Any, field: NDArrayField) -> Any:
    """An array in the byte order of its field. What else it is, its field says."""
    if is_tensor(value):
        value = value.numpy(force=True)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    same = array.dtype.newbyteorder("=") == field.dtype.newbyteorder("=")
    return array.astype(field.dtype, copy=False) if same else array


def _without_channel(value: Any) -> Any:
    """Grey pixels without their axis of one channel, as JPEGs are decoded to."""
    return value[..., 0] if isinstance(value, np.ndarray) and value.ndim == 3 and value.shape[2] == 1 else value


def packed(chunk: Any) -> Packed:
    """The bytes of an array of bytes or text, where they are, and where each value begins."""
    if not len(chunk):  # it may have no buffers at all
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    wide = pa.large_binary() if is_binary(chunk.type) else pa.large_string()
    chunk = chunk if chunk.type == wide else chunk.cast(wide)
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    everything = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return everything[bounds[0] : bounds[-1]], bounds - bounds[0]

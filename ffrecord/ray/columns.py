"""Fields for the columns of a dataset of Ray, from their Arrow types."""

from collections.abc import Mapping
from typing import Any

from ray.data.extensions import ArrowPythonObjectType, ArrowVariableShapedTensorType

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import (
    BoolField,
    BytesField,
    Field,
    FloatField,
    IntField,
    JSONField,
    NDArrayField,
    NoneField,
    ScalarField,
    Schema,
    StrField,
)
from ffrecord.ray.blocks import PLAIN
from ffrecord.system.requirements import require

pa: Any = require("pyarrow", "ray", "ffrecord.ray")

ADVICE = "declare its field in schema="
PYTHON_NUMBERS: Mapping[Any, Field] = {pa.int64(): IntField(), pa.float64(): FloatField(), pa.bool_(): BoolField()}


def schema_of_types(types: Mapping[str, Any]) -> Schema | None:
    """Return the schema of columns of these types; None for one column of bytes called "data": these are the records.

    Raises:
        ValueError: no columns.
        TypeError: a type that does not tell how to store its values.
    """
    if not types:
        raise ArgumentError("the dataset has no columns")
    if list(types) == [PLAIN] and is_binary(types[PLAIN]):
        return None
    return Schema.of({name: _field_of_type(name, kind) for name, kind in types.items()})


def is_binary(kind: Any) -> bool:
    """Return whether values of a type are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _field_of_type(name: str, kind: Any) -> Field:
    if kind in PYTHON_NUMBERS:
        return PYTHON_NUMBERS[kind]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return ScalarField(kind.to_pandas_dtype())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return StrField()
    if is_binary(kind):
        return BytesField()
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return ScalarField(f"datetime64[{kind.unit}]")
    if pa.types.is_duration(kind):
        return ScalarField(f"timedelta64[{kind.unit}]")
    if pa.types.is_null(kind):
        return NoneField()
    return _field_of_nested(name, kind)


def _field_of_nested(name: str, kind: Any) -> Field:
    shape = tensor_shape(kind)
    if shape is not None and _is_number(_item_type(kind)):
        return NDArrayField(_item_type(kind).to_pandas_dtype(), shape)
    if isinstance(kind, ArrowPythonObjectType):
        raise ArgumentTypeError(f"column {name!r} holds Python objects: {ADVICE}")
    if is_list(kind) and _is_number(kind.value_type):
        return NDArrayField(kind.value_type.to_pandas_dtype(), (None,))
    if _is_json(kind):
        return JSONField()
    raise ArgumentTypeError(f"column {name!r} has type {kind}: {ADVICE}")


def tensor_shape(kind: Any) -> tuple[int | None, ...] | None:
    """Return the axes of the tensors of a type, None for one that varies; None if it is no tensor type."""
    if isinstance(kind, ArrowVariableShapedTensorType):
        return (None,) * kind.ndim
    is_extension = isinstance(kind, pa.BaseExtensionType) and hasattr(kind, "shape")
    return tuple(kind.shape) if is_extension else None


def _item_type(kind: Any) -> Any:
    """Return the type of the numbers of tensors; older releases of Ray have another name for it."""
    return kind.value_type if hasattr(kind, "value_type") else kind.scalar_type


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_list(kind: Any) -> bool:
    """Return whether values of a type are lists, of fixed or varying length."""
    types = pa.types
    views = [getattr(types, name)(kind) for name in ("is_list_view", "is_large_list_view") if hasattr(types, name)]
    return bool(any(views) or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def has_maps(kind: Any) -> bool:
    """Return whether a type is a map, or has maps in its lists and structs."""
    if is_list(kind):
        return has_maps(kind.value_type)
    if pa.types.is_struct(kind):
        return any(has_maps(each.type) for each in kind)
    return bool(pa.types.is_map(kind))


def _is_json(kind: Any) -> bool:
    """Return whether a `JSONField` stores values of this type."""
    if is_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(each.type) for each in kind)
    if pa.types.is_map(kind):  # a list of pairs
        return _is_json(kind.key_type) and _is_json(kind.item_type)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or _is_number(kind) or pa.types.is_null(kind))

"""Types of Arrow, and the fields that store their values."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ffrecord.fields import (
    BoolField,
    BytesField,
    DecimalField,
    FloatField,
    IntField,
    JSONField,
    ListField,
    MsgpackField,
    NDArrayField,
    NoneField,
    OptionalField,
    ScalarField,
    StrField,
)
from ffrecord.fields.field import Field
from ffrecord.fields.inner import DEPTH_MAX
from ffrecord.system.requirements import require

# Ways to read the values of a column, see `arrow_values`.
PYTHON, SCALARS, ARRAYS, TENSORS, FILES = "python", "scalars", "arrays", "tensors", "files"
HOLD_NONE = (OptionalField, JSONField, MsgpackField, NoneField)


class Missing(NamedTuple):
    """The numbers of missing values of a column.

    Attributes:
        values: number of missing values.
        inside: number of missing items in its lists, maps and structs.
    """

    values: int = 0
    inside: int = 0


class ArrowPlan(NamedTuple):
    """The way to store a column.

    Attributes:
        field: field for its values; None: the values show it.
        take: name of the way to read its values.
    """

    field: Field | None
    take: str


def pyarrow() -> Any:
    """Return the pyarrow library.

    Raises:
        ImportError: it is not installed.
    """
    return require("pyarrow", "parquet", "reading Arrow tables")


def types() -> Any:
    """Return the type predicates of pyarrow."""
    return require("pyarrow.types", "parquet", "reading Arrow tables")


# Types


def plain_type(kind: Any) -> Any:
    """Return the type of the values behind dictionaries, run-end encodings and extension types."""
    # They may be nested in one another.
    while True:
        if is_extension(kind):
            kind = kind.storage_type
        elif types().is_dictionary(kind) or types().is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def is_extension(kind: Any) -> bool:
    """Return whether a type has another meaning than its storage."""
    return isinstance(kind, pyarrow().BaseExtensionType)


def is_tensor(kind: Any) -> bool:
    """Return whether values are arrays of several axes: Arrow's tensors, and Hugging Face's arrays."""
    # By their attributes: the classes of Hugging Face need not be installed.
    return is_extension(kind) and hasattr(kind, "shape") and hasattr(kind, "value_type")


def is_arrow_tensor(kind: Any) -> bool:
    """Return whether values are Arrow's own tensors of one shape."""
    return isinstance(kind, pyarrow().FixedShapeTensorType)


def is_bytes(kind: Any) -> bool:
    """Return whether values are bytes."""
    known = types()
    sized = known.is_binary(kind) or known.is_large_binary(kind) or known.is_fixed_size_binary(kind)
    return bool(sized or known.is_binary_view(kind))  # newer versions of Arrow have views


def is_text(kind: Any) -> bool:
    """Return whether values are text."""
    known = types()
    return bool(known.is_string(kind) or known.is_large_string(kind) or known.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Return whether values are lists; maps are not."""
    known = types()
    sized = known.is_list(kind) or known.is_large_list(kind) or known.is_fixed_size_list(kind)
    return bool(sized or known.is_list_view(kind) or known.is_large_list_view(kind))


def is_number(kind: Any) -> bool:
    """Return whether values are numbers or bools."""
    known = types()
    return bool(known.is_integer(kind) or known.is_floating(kind) or known.is_boolean(kind))


def is_time(kind: Any) -> bool:
    """Return whether values are dates, timestamps or durations."""
    known = types()
    return bool(known.is_timestamp(kind) or known.is_date(kind) or known.is_duration(kind))


def is_file(kind: Any) -> bool:
    """Return whether values are files as Hugging Face stores them: bytes and a path."""
    inside = {each.name: each.type for each in kind} if types().is_struct(kind) else {}
    return inside.keys() == {"bytes", "path"} and is_bytes(inside["bytes"]) and len(kind) == 2  # and no third field


def has_files_inside(kind: Any) -> bool:
    """Tell whether such files are in the lists, maps or structs of a type."""
    inside = children(plain_type(kind))
    return any(is_file(plain_type(each)) or has_files_inside(each) for each in inside)


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a type of numbers or times."""
    if not is_time(kind):
        number: type = kind.to_pandas_dtype()
        return np.dtype(number)
    if types().is_date(kind):
        # Arrow's 64-bit dates are milliseconds.
        return np.dtype("datetime64[D]" if types().is_date32(kind) else "datetime64[ms]")
    return np.dtype(f"{'timedelta64' if types().is_duration(kind) else 'datetime64'}[{kind.unit}]")


def dtype_in_python(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype that the Python numbers of a type have in a batch; None if they are none, or too large."""
    if types().is_boolean(kind):
        return np.dtype(bool)
    if types().is_integer(kind) and not types().is_uint64(kind):
        return np.dtype(np.int64)
    return np.dtype(np.float64) if types().is_float32(kind) or types().is_float64(kind) else None


def children(kind: Any) -> list[Any]:
    """Return the inner types of a plain type."""
    if is_list(kind):
        return [kind.value_type]
    if types().is_map(kind):
        return [kind.key_type, kind.item_type]
    return [each.type for each in kind] if types().is_struct(kind) else []


def zones(kind: Any) -> Iterator[str]:
    """Yield each time zone in a type."""
    # NumPy's times have no zones, so users are told.
    kind = plain_type(kind)
    if types().is_timestamp(kind) and kind.tz:
        yield kind.tz
    for each in children(kind):
        yield from zones(each)


def leaves(kind: Any) -> int:
    """Return the number of columns that a Parquet file has for a type."""
    inside = children(plain_type(kind))
    return sum(map(leaves, inside)) if inside else 1


# Fields


def plan_column(kind: Any, missing: Missing) -> ArrowPlan | None:
    """Return the plan for a column of a type; None: no field stores its values."""
    if is_tensor(kind):
        return _of_tensor(kind, missing)
    kind = plain_type(kind)
    if is_file(kind):
        return ArrowPlan(OptionalField(BytesField()) if missing.values else None, FILES)
    if not _is_held(kind):
        return None
    # Bytes of pictures get a field of images, so the type alone does not decide.
    if is_bytes(kind):  # the values show whether they are JPEGs
        return ArrowPlan(OptionalField(BytesField()) if missing.values else None, PYTHON)
    if is_time(kind):
        return ArrowPlan(_optional(ScalarField(dtype_of(kind)), missing), SCALARS)
    # With missing values the column becomes JSON below, which holds large ints as well.
    if types().is_uint64(kind) and not missing.values:
        return ArrowPlan(ScalarField("uint64"), SCALARS)  # int64 holds only half of the values
    for fits, field in LEAVES:
        if fits(kind):
            # JSON holds None and needs no second field around it.
            json = missing.values and _is_json(kind)
            return ArrowPlan(JSONField() if json else _optional(field, missing), PYTHON)
    return _of_nested(kind, missing)


def depends_on_nulls(kind: Any) -> bool:
    """Return whether the field of a type depends on its missing values."""
    # If these three give the same, nobody has to count.
    few = (Missing(), Missing(1), Missing(0, 1))
    return len({plan_column(kind, each) for each in few}) > 1


LEAVES: tuple[tuple[Callable[[Any], bool], Field], ...] = (
    (lambda kind: types().is_boolean(kind), BoolField()),
    (lambda kind: types().is_integer(kind), IntField()),
    (lambda kind: types().is_floating(kind), FloatField()),
    (is_text, StrField()),
    (lambda kind: types().is_decimal(kind), DecimalField()),
)


def _optional(field: Field, missing: Missing) -> Field:
    return OptionalField(field) if missing.values else field


def _of_tensor(kind: Any, missing: Missing) -> ArrowPlan:
    if is_arrow_tensor(kind):
        # The stored order of axes may differ from that of the tensor.
        order = kind.permutation or range(len(kind.shape))
        shape = tuple(kind.shape[axis] for axis in order)
        return ArrowPlan(_optional(NDArrayField(dtype_of(kind.value_type), shape), missing), TENSORS)
    dtype = np.dtype(kind.value_type)
    # Hugging Face's arrays may differ in their first axis, which values show.
    known = NDArrayField(dtype, tuple(kind.shape)) if missing.values else None
    return ArrowPlan(None if known is None else OptionalField(known), TENSORS)


def _of_nested(kind: Any, missing: Missing) -> ArrowPlan:
    # A None among numbers fits no array.
    if is_list(kind) and not missing.inside:
        item = plain_type(kind.value_type)
        if is_number(item) or is_time(item):
            size = kind.list_size if types().is_fixed_size_list(kind) else None
            return ArrowPlan(_optional(NDArrayField(dtype_of(item), (size,)), missing), ARRAYS)
    if _is_json(kind):
        return ArrowPlan(JSONField(), PYTHON)
    # `OptionalField` below takes one of the levels.
    items = None if missing.inside else _items(kind, DEPTH_MAX - 1)
    # MessagePack holds anything that is left.
    return ArrowPlan(MsgpackField() if items is None else OptionalField(items), PYTHON)


def _items(kind: Any, depth: int) -> Field | None:
    """Return a field for lists of bytes or decimals, of any depth; None for other types."""
    kind = plain_type(kind)
    if is_bytes(kind):
        return BytesField()
    if types().is_decimal(kind):
        return DecimalField()
    if not is_list(kind) or not depth:
        return None
    inner = _items(kind.value_type, depth - 1)
    return None if inner is None else ListField(inner)


def _is_json(kind: Any) -> bool:
    """Return whether a `JSONField` stores every value of a type: not floats, since NaN is one."""
    kind = plain_type(kind)
    inside = children(kind)
    if inside or types().is_struct(kind):
        return all(map(_is_json, inside))
    return bool(types().is_integer(kind) or types().is_boolean(kind) or is_text(kind) or types().is_null(kind))


def _is_held(kind: Any) -> bool:
    """Return whether some field stores the values of a type. A struct with two values of one name is no dict."""
    kind = plain_type(kind)
    names = [each.name for each in kind] if types().is_struct(kind) else []
    # A dict keeps only the last of them.
    if len(set(names)) < len(names):
        return False
    inside = children(kind)
    if inside or names or types().is_struct(kind):
        return all(map(_is_held, inside))
    leaf = is_bytes(kind) or is_time(kind) or _is_json(kind) or is_number(kind)
    return bool(leaf or types().is_decimal(kind))

"""The dtypes that can be stored, their names, and lists of numbers as arrays of them, without changing a number."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.fields.shapes import NDIM_MAX, Shape, common_shape

ARRAY_KINDS = "biufcmMSU"
SCALAR_KINDS = "biufcmM"

# Names of dtypes that a file may contain. numpy's own parser would also take lists such as "1000000000i4,f8".
_SPEC = re.compile(r"[<>|][biufcmMSU][0-9]{1,10}(\[[0-9]{0,9}[A-Za-z]{1,8}\])?", re.ASCII)

# torch dtype -> numpy dtype of its bytes. BITS has the torch dtypes for which numpy has no number type.
_SAME = {
    "bool": "|b1",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}
BITS = {
    "bfloat16": "<u2",
    "complex32": "<u4",
    "float8_e4m3fn": "|u1",
    "float8_e4m3fnuz": "|u1",
    "float8_e5m2": "|u1",
    "float8_e5m2fnuz": "|u1",
    "float8_e8m0fnu": "|u1",
}
TORCH_DTYPES = _SAME | BITS
# numpy dtype of BITS -> the torch integer of the same size; signed where old releases of torch lack the unsigned one.
BITS_VIEW = {"|u1": "uint8", "<u2": "int16", "<u4": "int32"}


def array_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Check that arrays of `dtype` can be stored, and return it without metadata.

    A stored dtype means the same on every machine, and its name brings it back.

    Raises:
        TypeError, ValueError: `dtype` is not a dtype, or cannot be stored; the message says what can.
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"dtype is {repr(dtype)[:80]}, expected one of numpy, such as 'float32': {error}") from None
    if found.hasobject:
        raise ValueError(
            f"dtype {found} holds Python objects, which are never stored; declare JSONField() for lists and dicts"
        )
    if found.names is not None or found.kind == "V":
        raise ValueError(f"dtype {found} is structured or void; store a dict of arrays, one for each name")
    # `str` must bring the dtype back: else a reader would make another one.
    if found.kind not in ARRAY_KINDS or found.itemsize == 0 or np.dtype(found.str) != found:
        raise ValueError(f"dtype {found!r} cannot be stored, expected a bool, number, time, S or U dtype of fixed size")
    # 80 bits on some machines, 128 on others.
    if found.char in "gG":
        raise ValueError(f"dtype {found} (long double) differs between machines; convert to float64 or complex128")
    return np.dtype(found.str)  # without metadata


def scalar_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Check that scalars of `dtype` can be stored, and return it in little-endian order.

    A scalar has no byte order of its own.

    Raises:
        TypeError, ValueError: `array_dtype` refuses it, or it is a dtype of text or bytes.
    """
    found = array_dtype(dtype)
    if found.kind not in SCALAR_KINDS:
        raise ValueError(f"dtype {found} is text or bytes; declare StrField() or BytesField()")
    # In one order: equal scalars have equal bytes.
    return found.newbyteorder("<")


def spec_dtype(name: Any) -> np.dtype[Any]:
    """Return the dtype of a name in a file.

    Raises:
        TypeError, ValueError: `numpy.dtype.str` gives no such name for a stored dtype.
    """
    # Checked by a pattern before NumPy sees it.
    if not isinstance(name, str) or len(name) > 40 or not _SPEC.fullmatch(name):
        raise ValueError(f"dtype is {str(name)[:40]!r}, expected a name such as '<f4'")
    return np.dtype(name)


def dtype_repr(dtype: np.dtype[Any]) -> str:
    """Return the Python expression of `dtype`, for reprs."""
    named = dtype.isnative and dtype.kind not in "SU"
    # S and U have a length, which only `str` tells.
    return repr(dtype.name if named else dtype.str)


def torch_dtype(name: Any) -> str:
    """Return the name of a torch dtype that can be stored.

    Args:
        name: "float32", "torch.float32" or `torch.float32`.

    Raises:
        ValueError: the dtype cannot be stored; the message says which can.
    """
    found = str(name).removeprefix("torch.")
    if found not in TORCH_DTYPES:
        raise ValueError(f"torch dtype {found[:40]!r} cannot be stored, expected one of {', '.join(TORCH_DTYPES)}")
    return found


INT64 = range(-(1 << 63), 1 << 63)
NUMBERS = "biufc"  # kinds of dtypes that are numbers


def flatten_lists(value: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]] | None:
    """Return the shape of nested lists, and their items in C order.

    Returns:
        None if lists beside each other differ in length, or are nested too deeply.
    """
    shape, items = [len(value)], list(value)
    # One level at a time: all items are lists, or none is flattened.
    while items and all(type(each) in (list, tuple) for each in items):
        lengths = set(map(len, items))
        # Ragged lists are no array.
        if len(lengths) > 1 or len(shape) == NDIM_MAX:
            return None
        shape.append(lengths.pop())
        items = [item for each in items for item in each]
    return tuple(shape), items


def dtype_of(items: Sequence[Any]) -> np.dtype[Any] | None:
    """Return the dtype that holds these numbers exactly: int64, float64, bool, or the dtype of numpy scalars.

    Returns:
        None if some are not numbers, if there are both bools and numbers, or if a number is too large.
    """
    types = set(map(type, items))
    if types == {bool}:
        return np.dtype(bool)
    if types == {int}:
        # `min` and `max` of Python ints, which may be of any size.
        return np.dtype(np.int64) if min(items) in INT64 and max(items) in INT64 else None
    # NumPy scalars keep the dtype that the user has chosen.
    if len(types) == 1 and isinstance(items[0], np.generic):
        dtypes = {each.dtype for each in items}
        return dtypes.pop() if len(dtypes) == 1 and items[0].dtype.kind in NUMBERS else None
    if types and types <= {int, float, np.float64}:
        # A large int among floats would be rounded.
        return np.dtype(np.float64) if all(_is_exact(each) for each in items if type(each) is int) else None
    return None


def array_of_lists(values: Sequence[Sequence[Any]]) -> tuple[np.dtype[Any], Shape | None] | None:
    """Return the dtype and the shape of arrays that hold each of these lists of numbers.

    An empty list beside others becomes an array without rows. Axes that differ are None.

    Returns:
        None if they are not lists of numbers, or all of them are empty.
    """
    found = [flatten_lists(value) for value in values]
    items: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    for each in found:
        if each is None:
            return None
        shapes.append(each[0])
        items += each[1]
    dtype = dtype_of(items) if items else None
    if dtype is None:
        return None
    # An empty list has no axes of its own to compare.
    filled = [shape for shape in shapes if shape != (0,)]
    shape: Shape | None = filled[0]
    for each_shape in filled[1:]:
        shape = common_shape(shape, each_shape)
    if len(filled) < len(shapes) and shape:
        # Some have no rows, so the number of rows varies.
        shape = (None, *shape[1:])
    return dtype, shape


def as_array(value: list[Any], dtype: np.dtype[Any], shape: Shape | None) -> np.ndarray[Any, np.dtype[Any]] | None:
    """Convert a list of numbers to an array of `dtype` that holds each number exactly.

    Args:
        value: the list.
        dtype: dtype of the array.
        shape: shape of the field, which decides the axes of an empty list.

    Returns:
        None if `value` is not such a list.
    """
    found = flatten_lists(value)
    if found is None or dtype.kind not in NUMBERS:
        return None
    axes, items = found
    if not items:
        # An empty list of lists fits a shape that has no rows.
        known = shape is not None and axes == (0,) and len(shape) > 1 and shape[0] in (None, 0)
        return np.empty((0, *(axis or 0 for axis in (shape or ())[1:])) if known else axes, dtype)
    own = dtype_of(items)
    # Ints above int64 fit unsigned dtypes.
    if own is None and set(map(type, items)) == {int} and dtype.kind == "u" and 0 <= min(items) <= max(items) < 1 << 64:
        own = np.dtype(np.uint64)
    # Bools are not numbers, and an integer field does not take floats.
    if own is None or (own.kind == "b") != (dtype.kind == "b") or (own.kind in "fc" and dtype.kind in "iu"):
        return None
    if own.kind in "iu" and dtype.kind in "iu":
        # Compared before the cast, which would wrap around.
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array(items, dtype).reshape(axes) if low <= min(items) and max(items) <= high else None
    array = np.array(items, own)
    # A cast there and back shows whether a number was rounded; overflow is part of the answer.
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if not np.array_equal(cast.astype(own), array, equal_nan=own.kind in "fc"):
            return None
    return cast.reshape(axes)


def _is_exact(number: int) -> bool:
    """Tell whether float64 holds an int exactly."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False

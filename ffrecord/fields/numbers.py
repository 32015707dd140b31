"""Lists of numbers, and their conversion to arrays that changes no number."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ffrecord.fields.shapes import NDIM_MAX, Shape, common_shape

INT64 = range(-(1 << 63), 1 << 63)
NUMBERS = "biufc"  # kinds of dtypes that are numbers


def flatten_lists(value: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]] | None:
    """Return the shape of nested lists, and their items in C order.

    Returns:
        None if lists beside each other differ in length, or are nested too deeply.
    """
    shape, items = [len(value)], list(value)
    while items and all(type(each) in (list, tuple) for each in items):
        lengths = set(map(len, items))
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
        return np.dtype(np.int64) if min(items) in INT64 and max(items) in INT64 else None
    if len(types) == 1 and isinstance(items[0], np.generic):
        dtypes = {each.dtype for each in items}
        return dtypes.pop() if len(dtypes) == 1 and items[0].dtype.kind in NUMBERS else None
    if types and types <= {int, float, np.float64}:
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
    filled = [shape for shape in shapes if shape != (0,)]
    shape: Shape | None = filled[0]
    for each_shape in filled[1:]:
        shape = common_shape(shape, each_shape)
    if len(filled) < len(shapes) and shape:
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
        known = shape is not None and axes == (0,) and len(shape) > 1 and shape[0] in (None, 0)
        return np.empty((0, *(axis or 0 for axis in (shape or ())[1:])) if known else axes, dtype)
    own = dtype_of(items)
    if own is None and set(map(type, items)) == {int} and dtype.kind == "u" and 0 <= min(items) <= max(items) < 1 << 64:
        own = np.dtype(np.uint64)
    # Bools are not numbers, and an integer field does not take floats.
    if own is None or (own.kind == "b") != (dtype.kind == "b") or (own.kind in "fc" and dtype.kind in "iu"):
        return None
    if own.kind in "iu" and dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array(items, dtype).reshape(axes) if low <= min(items) and max(items) <= high else None
    array = np.array(items, own)
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

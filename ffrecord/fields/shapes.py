"""Shapes of arrays, fixed or varying, and the bytes of arrays of these shapes."""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import SIZE_MAX, Array, Encoded, Fixed
from ffrecord.system.values import REPR_MAX, describe, describe_wrong, iterator_of, whole_number

Shape = tuple[int | None, ...]

NDIM_MAX = 32  # axes; the limit of numpy before 2.0
DIRECT = 16384  # bytes; above this, a saved copy is worth more than the call that saves it
CHECKED = "bU"  # kinds of dtypes that have invalid bytes
_U64 = struct.Struct("<Q")


def check_shape(shape: Sequence[int | None] | None, itemsize: int) -> Shape | None:
    """Check `shape`, and return it as a tuple of plain ints and Nones.

    Raises:
        TypeError: `shape` is not a sequence of ints and Nones.
        ValueError: an axis is negative, there are more than NDIM_MAX axes, or arrays would be larger than numpy can
            count.
    """
    if shape is None:
        return None
    if isinstance(shape, (str, bytes)):
        raise TypeError(describe_wrong("shape", shape, "a tuple of ints and Nones"))
    # Plain ints: NumPy ints do not go into a spec.
    axes = iterator_of("shape", shape, "ints and Nones")
    found = tuple(axis if axis is None else _axis(axis) for axis in axes)
    if len(found) > NDIM_MAX:
        raise ValueError(f"shape has {len(found)} axes, expected at most {NDIM_MAX}")
    # NumPy fails with odd messages above that.
    if not is_countable(found, itemsize):
        raise ValueError(
            f"arrays of shape {str(found)[:REPR_MAX]} with items of {itemsize} bytes have more than {SIZE_MAX} bytes"
        )
    return found


def _axis(axis: int) -> int:
    found = whole_number("an axis of shape", axis)
    if found < 0:
        raise ValueError(f"shape has an axis of {found}, expected >= 0")
    return found


def is_countable(shape: Shape, itemsize: int) -> bool:
    """Tell whether numpy can make an array of `shape`. numpy multiplies all axes that are not 0."""
    return math.prod(axis for axis in shape if axis) * itemsize <= SIZE_MAX


def allows_shape(shape: Shape | None, found: tuple[int, ...]) -> bool:
    """Tell whether `shape` allows an array of shape `found`."""
    if shape is None:
        return len(found) <= NDIM_MAX
    # The number of axes first; zip would stop at the shorter one.
    return len(found) == len(shape) and all(
        want is None or want == axis for want, axis in zip(shape, found, strict=True)
    )


def common_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """Return the narrowest shape that allows all arrays that `a` and `b` allow."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def fixed_layout(dtype: np.dtype[Any], shape: Shape | None) -> Fixed | None:
    """Return the layout of arrays of `shape`, or None if an axis varies."""
    if shape is None:
        return None
    # Nones are the axes that vary.
    known = tuple(axis for axis in shape if axis is not None)
    return Fixed(dtype, known) if len(known) == len(shape) else None


def shape_repr(shape: Shape | None) -> str:
    """Describe `shape` for `Field.expects`."""
    return "any shape" if shape is None else f"shape {shape}"


def to_bytes(array: Array, shape: Shape | None, fixed: bool) -> Encoded:
    """Return the payload of `array`: its varying axes unless all are `fixed`, then its items in C order."""
    # Small arrays are copied by one call; for larger ones a view saves the copy.
    direct = array.nbytes >= DIRECT and array.flags.c_contiguous
    items = array.reshape(-1).view(np.uint8).data if direct else array.tobytes()
    return items if fixed else b"".join((pack_axes(array.shape, shape), items))


def pack_axes(found: tuple[int, ...], shape: Shape | None) -> bytes:
    """Return the bytes of the axes that `shape` leaves open, after their number if `shape` leaves that open too."""
    if shape is None:
        # With any number of axes, that number has to be stored.
        return struct.pack(f"<{1 + len(found)}Q", len(found), *found)
    axes = [axis for axis, want in zip(found, shape, strict=True) if want is None]
    return struct.pack(f"<{len(axes)}Q", *axes)


def unpack_axes(data: memoryview, shape: Shape | None) -> tuple[tuple[int, ...], memoryview]:
    """Return the shape of the array in payload `data`, and its items.

    Raises:
        FormatError: the payload ends before its axes, or has too many.
    """
    known = shape
    if known is None:
        # Compared before it is used: the number comes from a file.
        ndim = _U64.unpack(data[:8])[0] if len(data) >= 8 else 0
        if len(data) < 8 or ndim > NDIM_MAX:
            raise FormatError(
                f"the array has {len(data)} bytes and {ndim} axes, expected at least 8 bytes and at most {NDIM_MAX} "
                "axes"
            )
        known, data = (None,) * ndim, data[8:]
    count = known.count(None)
    # The axes must be there before they are unpacked.
    if len(data) < 8 * count:
        raise FormatError(f"the array has {len(data)} bytes, expected at least {8 * count} for the lengths of its axes")
    axes = iter(struct.unpack(f"<{count}Q", data[: 8 * count]))
    return tuple(next(axes) if axis is None else axis for axis in known), data[8 * count :]


def from_bytes(data: memoryview, dtype: np.dtype[Any], shape: Shape | None, fixed: bool) -> Array:
    """Return a new array of bytes that `to_bytes` made.

    Raises:
        FormatError: the items do not fill the shape.
    """
    found: Any = shape  # if `fixed`, all axes are ints
    if not fixed:
        found, data = unpack_axes(data, shape)
        # Without overflow: Python's ints, and a bound on what NumPy can count.
        if not is_countable(found, dtype.itemsize) or math.prod(found) * dtype.itemsize != len(data):
            raise FormatError(f"the array has {len(data)} bytes of {dtype} items, expected shape {found}")
    # A copy: the record is read-only, its memory may go, and nothing in it is aligned.
    array = np.frombuffer(data, dtype).reshape(found).copy()
    if dtype.kind in CHECKED:
        check_items(array)
    return array


def check_items(array: Array) -> None:
    """Check that all bytes of an array are valid items of its dtype, which is of a kind in `CHECKED`.

    numpy takes invalid ones too.

    Raises:
        FormatError: a bool's byte is above 1, or a character is above U+10FFFF.
    """
    if array.dtype.kind == "b":
        _check_largest(array, np.dtype(np.uint8), "a bool is byte", 1)
    else:
        _check_largest(
            array, np.dtype(np.uint32).newbyteorder(array.dtype.byteorder), "a character has number", 0x10FFFF
        )


def _check_largest(array: Array, dtype: np.dtype[Any], what: str, most: int) -> None:
    largest = int(array.reshape(-1).view(dtype).max(initial=0))
    if largest > most:
        raise FormatError(f"{what} {largest}, expected at most {most}")


def views(column: Array) -> list[Any]:
    """Return the arrays of a column [k, *shape] as views of it, also 0-d ones."""
    # Iterating over one axis gives scalars, not arrays of 0 axes.
    return list(column) if column.ndim > 1 else [column[i, ...] for i in range(len(column))]


def shape_spec(shape: Shape | None) -> list[int | None] | None:
    """Return `shape` as builtins."""
    return None if shape is None else list(shape)


def spec_shape(spec: Any) -> Any:
    """Return the shape in `spec`, with its axes still unchecked.

    Raises:
        ValueError: the shape is neither None nor a list.
    """
    shape = spec.get("shape", "missing")
    # Bounded here: a list from a file may be long.
    if shape is not None and (not isinstance(shape, (list, tuple)) or len(shape) > NDIM_MAX):
        raise ValueError(f"shape is {describe(shape)}, expected None or a list of at most {NDIM_MAX} axes")
    return shape


def advise(cls: Any, dtype: Any, shape: Shape | None, found: tuple[int, ...]) -> str:
    """Name the field of class `cls` that holds arrays of shape `found` beside those of `shape`."""
    return (
        f"{cls(dtype, common_shape(shape, found))!r} holds both"
        if len(found) <= NDIM_MAX
        else f"expected at most {NDIM_MAX} axes"
    )

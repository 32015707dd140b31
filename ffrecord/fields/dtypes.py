"""The dtypes that can be stored, and their names."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

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
    found = np.dtype(dtype)
    if found.hasobject:
        raise ValueError(
            f"dtype {found} holds Python objects, which are never stored; declare JSONField() for lists and dicts"
        )
    if found.names is not None or found.kind == "V":
        raise ValueError(f"dtype {found} is structured or void; store a dict of arrays, one for each name")
    if found.kind not in ARRAY_KINDS or found.itemsize == 0 or np.dtype(found.str) != found:
        raise ValueError(f"dtype {found!r} cannot be stored, expected a bool, number, time, S or U dtype of fixed size")
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
    return found.newbyteorder("<")


def spec_dtype(name: Any) -> np.dtype[Any]:
    """Return the dtype of a name in a file.

    Raises:
        TypeError, ValueError: `numpy.dtype.str` gives no such name for a stored dtype.
    """
    if not isinstance(name, str) or len(name) > 40 or not _SPEC.fullmatch(name):
        raise ValueError(f"dtype is {str(name)[:40]!r}, expected a name such as '<f4'")
    return np.dtype(name)


def dtype_repr(dtype: np.dtype[Any]) -> str:
    """Return the Python expression of `dtype`, for reprs."""
    named = dtype.isnative and dtype.kind not in "SU"
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

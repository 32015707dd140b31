"""Fields of one number (int, float, bool, numpy scalars, decimal numbers), and the field of None."""

import struct
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError, plural
from ffrecord.fields.dtypes import dtype_repr, scalar_dtype, spec_dtype
from ffrecord.fields.field import Array, Field, Fixed, mismatch, register
from ffrecord.system.values import describe

INT = struct.Struct("<q")
FLOAT = struct.Struct("<d")

# Bound once: an attribute of an object is looked up for each value.
_pack_int, _unpack_int = INT.pack, INT.unpack
_pack_float, _unpack_float = FLOAT.pack, FLOAT.unpack


def _size_error(field: Field, data: memoryview) -> FormatError:
    """Return the error of a value of fixed size that has another number of bytes."""
    size = 0 if field.fixed is None else field.fixed.size
    return FormatError(f"{field.expects} has {plural(len(data), 'byte')}, expected {size}")


@register
@dataclass(frozen=True)
class IntField(Field):
    """Python ints in [-2**63, 2**63), stored as int64. Takes numpy integers too; bools are not ints here."""

    kind: ClassVar[str] = "int"

    @property
    def expects(self) -> str:
        return "an int"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("<i8"))

    def encode(self, value: Any) -> bytes:
        # The usual type passes by one comparison.
        if type(value) is not int:
            # numpy counts a duration as an integer, but int() would lose its unit.
            if isinstance(value, bool | np.timedelta64) or not isinstance(value, (int, np.integer)):
                raise TypeError(mismatch(self, value))
            value = int(value)
        try:
            return _pack_int(value)
        except struct.error:
            raise ValueError(f"{describe(value)}, expected an int in [-2**63, 2**63)") from None

    def decode(self, data: memoryview) -> int:
        try:
            return int(_unpack_int(data)[0])
        except struct.error:
            raise _size_error(self, data) from None

    def unstack(self, column: Array) -> list[Any]:
        return list(column.tolist())


@register
@dataclass(frozen=True)
class FloatField(Field):
    """Python floats, stored as float64. Takes numpy floats and ints too, if float64 holds them exactly."""

    kind: ClassVar[str] = "float"

    @property
    def expects(self) -> str:
        return "a float"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("<f8"))

    def encode(self, value: Any) -> bytes:
        return _pack_float(value if type(value) is float else self._exact(value))

    def _exact(self, value: Any) -> float:
        if isinstance(value, bool | np.timedelta64) or not isinstance(value, (float, int, np.floating, np.integer)):
            raise TypeError(mismatch(self, value))
        if isinstance(value, np.integer):
            value = int(value)  # numpy rounds its own integers before it compares them with floats
        try:
            exact = float(value)
        except OverflowError:
            # Too large for float64: NaN, which is equal to nothing.
            exact = float("nan")
        # `value == value`: NaN may become NaN.
        if exact != value and value == value:
            raise ValueError(mismatch(self, value, "float64 cannot hold it exactly"))
        return exact

    def decode(self, data: memoryview) -> float:
        try:
            return float(_unpack_float(data)[0])
        except struct.error:
            raise _size_error(self, data) from None

    def unstack(self, column: Array) -> list[Any]:
        return list(column.tolist())


@register
@dataclass(frozen=True)
class BoolField(Field):
    """Python bools, stored as one byte 0 or 1. Takes numpy bools too."""

    kind: ClassVar[str] = "bool"

    @property
    def expects(self) -> str:
        return "a bool"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("|b1"))

    def encode(self, value: Any) -> bytes:
        # By identity first, which is the fastest.
        if value is not True and value is not False and not isinstance(value, np.bool_):
            raise TypeError(mismatch(self, value))
        return b"\1" if value else b"\0"

    def decode(self, data: memoryview) -> bool:
        if len(data) != 1:
            raise _size_error(self, data)
        # Any other byte is damage.
        if data[0] > 1:
            raise FormatError(f"a bool is byte {data[0]}, expected 0 or 1")
        return data[0] == 1

    def unstack(self, column: Array) -> list[Any]:
        return list(column.tolist())


@register
@dataclass(frozen=True)
class NoneField(Field):
    """A column that is always None and takes no bytes. Batches return a list."""

    kind: ClassVar[str] = "none"

    @property
    def expects(self) -> str:
        return "None"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("|u1"), (0,))

    def encode(self, value: Any) -> bytes:
        if value is not None:
            raise TypeError(
                mismatch(self, value, "declare OptionalField(...) for a column in which some values are None")
            )
        return b""

    def decode(self, data: memoryview) -> None:
        return None

    def unstack(self, column: Array) -> list[Any]:
        return [None] * len(column)

    # A column of bytes without items would be of no use.
    column = unstack


@register
@dataclass(frozen=True, repr=False)
class ScalarField(Field):
    """Numpy scalars of one dtype: bool, integers, floats, complex, datetime64 and timedelta64 with their unit.

    Args:
        dtype: dtype of the scalars, such as "float32".

    Raises:
        ValueError: scalars of this dtype cannot be stored.
    """

    kind: ClassVar[str] = "scalar"
    dtype: np.dtype[Any]

    def __init__(self, dtype: npt.DTypeLike) -> None:
        object.__setattr__(self, "dtype", scalar_dtype(dtype))

    def __repr__(self) -> str:
        return f"ScalarField({dtype_repr(self.dtype)})"

    @property
    def expects(self) -> str:
        return f"a numpy {self.dtype} scalar"

    @property
    def fixed(self) -> Fixed:
        return Fixed(self.dtype)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, np.generic):
            raise TypeError(mismatch(self, value))
        # Not cast: float64 does not fit float32.
        if value.dtype != self.dtype:
            raise TypeError(mismatch(self, value))
        return value.tobytes()

    def decode(self, data: memoryview) -> Any:
        if len(data) != self.dtype.itemsize:
            raise _size_error(self, data)
        if self.dtype.kind == "b" and data[0] > 1:
            raise FormatError(f"a bool is byte {data[0]}, expected 0 or 1")
        return np.frombuffer(data, self.dtype)[0]

    def unstack(self, column: Array) -> list[Any]:
        # `list` keeps NumPy's scalars; `tolist` would make Python's.
        return list(column)

    def spec(self) -> dict[str, Any]:
        return {"dtype": self.dtype.str}

    @classmethod
    def from_spec(cls, spec: Any) -> "ScalarField":
        return cls(**{**spec, "dtype": spec_dtype(spec.get("dtype"))})


DIGITS_MAX = 10_000  # characters of a decimal's text; Python takes quadratic time to parse it


@register
@dataclass(frozen=True)
class DecimalField(Field):
    """Numbers of type decimal.Decimal, stored as text: every digit stays, trailing zeros too; also infinities and NaN.

    Raises (in writing): ValueError: a number of more than 10,000 characters.
    """

    kind: ClassVar[str] = "decimal"

    @property
    def expects(self) -> str:
        return "a decimal.Decimal"

    def encode(self, value: Any) -> bytes:
        # Exact: a subclass would come back as its base.
        if type(value) is not Decimal:
            raise TypeError(mismatch(self, value))
        text = str(value).encode()
        if len(text) > DIGITS_MAX:
            raise ValueError(f"the decimal has {len(text)} characters, expected at most {DIGITS_MAX}")
        return text

    def decode(self, data: memoryview) -> Decimal:
        # One more than allowed shows that it is too long.
        text = bytes(data[: DIGITS_MAX + 1])
        try:
            value = Decimal(text.decode())
            # Compared with its own text: "1_000" and " 1" parse too, but nothing writes them.
            if len(text) <= DIGITS_MAX and str(value).encode() == text:
                return value
        except (InvalidOperation, ValueError):
            pass
        raise FormatError(f"the value is not a decimal: {text[:40]!r}, {plural(len(data), 'byte')}")

"""Fields of any size without inner layout: str, bytes, JSON, and nested values that JSON does not hold."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import msgspec
import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.dtypes import scalar_dtype, spec_dtype
from ffrecord.fields.field import Encoded, Field, mismatch, register
from ffrecord.fields.scalars import DecimalField
from ffrecord.system.values import describe, explain_surrogate


def _is_json(value: Any, hook: Callable[[Any], Any] | None) -> bool:
    try:
        # By trying: no list of types tells whether JSON keeps a value.
        return bool(msgspec.json.decode(msgspec.json.encode(value, enc_hook=hook)) == value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def describe_json_change(value: Any, hook: Callable[[Any], Any] | None = None, where: str = "") -> str:
    """Describe the first value inside `value` that JSON would change, and its place.

    Args:
        value: the value that JSON would change.
        hook: function that converts values of other types for JSON.
        where: place of `value` in the whole sample.
    """
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    # Descend to the value itself: a whole sample would say little.
    for place, child in children:
        if not _is_json(child, hook):
            return describe_json_change(child, hook, f"{where}[{place!r}]")
    return f"{describe(value)} at {where}" if where else describe(value)


@register
@dataclass(frozen=True)
class StrField(Field):
    """Text, stored as UTF-8. Subclasses of str come back as str."""

    kind: ClassVar[str] = "str"

    @property
    def expects(self) -> str:
        return "a str"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(mismatch(self, value))
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(explain_surrogate(error)) from None

    def decode(self, data: memoryview) -> str:
        try:
            return str(data, "utf-8")  # `str` takes a view, and copies once
        except UnicodeDecodeError as error:
            raise FormatError(f"the value is not UTF-8: {error.reason} at byte {error.start} of {len(data)}") from None


@register
@dataclass(frozen=True)
class BytesField(Field):
    """Bytes. Takes bytes, bytearray, memoryview and flat uint8 arrays; all of them come back as bytes."""

    kind: ClassVar[str] = "bytes"

    @property
    def expects(self) -> str:
        return "bytes"

    def encode(self, value: Any) -> Encoded:
        if isinstance(value, (bytes, bytearray)):
            return value
        if isinstance(value, memoryview):
            view, flat = value, value.format == "B" and value.ndim == 1 and value.c_contiguous
        elif isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
            # A subclass may have another `data`.
            view, flat = value.data, type(value) is np.ndarray and value.flags.c_contiguous
        else:
            raise TypeError(mismatch(self, value))
        # The caller copies a view into a record at once. A field that a user derives from this one gets bytes.
        return view if flat and type(self) is BytesField else value.tobytes()

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)


@register
@dataclass(frozen=True)
class JSONField(Field):
    """Values that JSON holds: dicts with str keys, lists, str, ints, finite floats, bools, None; nested.

    Of two equal keys in a file, the last one counts.
    """

    kind: ClassVar[str] = "json"

    @property
    def expects(self) -> str:
        return "a value that JSON can hold"

    def encode(self, value: Any) -> bytes:
        try:
            text = msgspec.json.encode(value)
            same = msgspec.json.decode(text) == value
        except TypeError:
            what = describe_json_change(value)
            raise TypeError(
                mismatch(self, value, f"JSON cannot hold {what}{ARRAYS if ' array ' in what else ''}")
            ) from None
        except (ValueError, OverflowError, RecursionError) as error:
            raise ValueError(mismatch(self, value, str(error))) from None
        # JSON would silently change some values: a tuple to a list, bytes to str, NaN to null, the key 1 to "1".
        # `is not True`: comparing arrays gives an array.
        if same is not True:
            raise ValueError(
                f"JSON would change {describe_json_change(value)}, expected dicts with str keys, lists, str, finite "
                "numbers, bools and None; MsgpackField() holds more types"
            )
        return text

    def decode(self, data: memoryview) -> Any:
        try:
            return msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"the value is not JSON: {error}") from None


ARRAYS = "; array.tolist() makes a list of an array, and ListField(NDArrayField(...)) takes lists of arrays"
DECIMAL, SCALAR = 1, 2  # types of MessagePack extension values
# MessagePack has signed and unsigned ints of 64 bits.
INTS = range(-(1 << 63), 1 << 64)
_decimal = DecimalField()


@register
@dataclass(frozen=True)
class MsgpackField(Field):
    """Nested values, among them NaN, infinities, bytes, decimals and times, which JSON does not hold.

    Takes None, bools, ints in [-2**63, 2**64), floats, str, bytes, decimals, numpy scalars, lists of these, and dicts
    of these with str keys.
    """

    kind: ClassVar[str] = "msgpack"

    @property
    def expects(self) -> str:
        return "None, bool, int, float, str, bytes, Decimal, a numpy scalar, or lists and dicts of these"

    def encode(self, value: Any) -> bytes:
        try:
            return msgspec.msgpack.encode(_to_msgpack(value))
        except RecursionError:
            raise ValueError(f"{describe(value)} is nested too deeply") from None
        except UnicodeEncodeError as error:
            raise ValueError(explain_surrogate(error)) from None
        except (TypeError, ValueError) as error:
            # Only now, since finding the place takes time.
            place = _find_refused(value)
            raise type(error)(f"at {place}: {error}" if place else str(error)) from None

    def decode(self, data: memoryview) -> Any:
        try:
            return msgspec.msgpack.decode(data, ext_hook=_decode_extension)
        except (ValueError, TypeError, RecursionError) as error:
            raise FormatError(f"the value is not MessagePack of this field: {error}") from None


def _to_msgpack(value: Any) -> Any:
    """Convert a value to types of MessagePack.

    Raises:
        TypeError, ValueError: the field does not hold it.
    """
    kind = type(value)
    # Exact types: a subclass would come back as its base.
    if value is None or kind in (bool, float, str, bytes) or (kind is int and value in INTS):
        return value
    if kind is list:
        return [_to_msgpack(each) for each in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _to_msgpack(each) for key, each in value.items()}
    if kind is Decimal:
        return msgspec.msgpack.Ext(DECIMAL, _decimal.encode(value))
    if isinstance(value, np.generic):
        # The dtype's name comes first, since MessagePack does not know dtypes.
        name = scalar_dtype(value.dtype).str.encode()
        return msgspec.msgpack.Ext(SCALAR, bytes([len(name)]) + name + value.tobytes())
    # Ints and dicts have the right type, so their value does not fit.
    error = ValueError if kind in (int, dict) else TypeError
    raise error(mismatch(MsgpackField(), value))


def _find_refused(value: Any, where: str = "") -> str:
    """Return the place of the first value inside that the field does not hold."""
    if type(value) not in (list, dict):
        return where
    for place, each in enumerate(value) if type(value) is list else value.items():
        try:
            _to_msgpack(each)
        except (TypeError, ValueError):
            return _find_refused(each, f"{where}[{place!r}]")
    return where


def _decode_extension(code: int, data: memoryview) -> Any:
    """Return the value of an extension.

    Raises:
        FormatError: `_to_msgpack` makes no such extension.
    """
    if code == DECIMAL:
        return _decimal.decode(data)
    # Empty for an unknown code, which `spec_dtype` then refuses.
    size = data[0] if code == SCALAR and len(data) else 0
    try:
        dtype = scalar_dtype(spec_dtype(bytes(data[1 : 1 + size]).decode("ascii")))
    except (TypeError, ValueError) as error:
        raise FormatError(
            f"the extension value of type {code} has {len(data)} bytes that cannot be decoded: {error}"
        ) from None
    held = data[1 + size :]
    if len(held) != dtype.itemsize:
        raise FormatError(f"the {dtype} scalar has {len(held)} bytes, expected {dtype.itemsize}")
    # NumPy would take any byte for a bool.
    if dtype.kind == "b" and held[0] > 1:
        raise FormatError(f"a bool is byte {held[0]}, expected 0 or 1")
    return np.frombuffer(held, dtype)[0]

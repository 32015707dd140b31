"""Fields of any size without inner layout: str, bytes, JSON."""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.describe import describe, explain_surrogate
from ffrecord.fields.field import Encoded, Field, mismatch, register


def _is_json(value: Any) -> bool:
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(value)) == value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _describe_change(value: Any, where: str = "") -> str:
    """Describe the first value inside `value` that JSON would change, and its place."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, child in children:
        if not _is_json(child):
            return _describe_change(child, f"{where}[{place!r}]")
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
            return str(data, "utf-8")
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
    """Values that JSON holds: dicts with str keys, lists, str, ints, finite floats, bools, None; nested."""

    kind: ClassVar[str] = "json"

    @property
    def expects(self) -> str:
        return "a value that JSON can hold"

    def encode(self, value: Any) -> bytes:
        try:
            text = msgspec.json.encode(value)
            same = msgspec.json.decode(text) == value
        except TypeError as error:
            raise TypeError(mismatch(self, value, str(error))) from None
        except (ValueError, OverflowError, RecursionError) as error:
            raise ValueError(mismatch(self, value, str(error))) from None
        # JSON would silently change some values: a tuple to a list, bytes to str, NaN to null, the key 1 to "1".
        if same is not True:
            raise ValueError(
                f"JSON would change {_describe_change(value)}, expected dicts with str keys, lists, str, finite "
                "numbers, bools and None; MsgpackField() holds more types"
            )
        return text

    def decode(self, data: memoryview) -> Any:
        try:
            return msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"the value is not JSON: {error}") from None

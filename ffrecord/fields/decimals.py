"""Decimal numbers."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from ffrecord.errors import FormatError, plural
from ffrecord.fields.field import Field, mismatch, register

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
        if type(value) is not Decimal:
            raise TypeError(mismatch(self, value))
        text = str(value).encode()
        if len(text) > DIGITS_MAX:
            raise ValueError(f"the decimal has {len(text)} characters, expected at most {DIGITS_MAX}")
        return text

    def decode(self, data: memoryview) -> Decimal:
        text = bytes(data[: DIGITS_MAX + 1])
        try:
            value = Decimal(text.decode())
            if len(text) <= DIGITS_MAX and str(value).encode() == text:
                return value
        except (InvalidOperation, ValueError):
            pass
        raise FormatError(f"the value is not a decimal: {text[:40]!r}, {plural(len(data), 'byte')}")

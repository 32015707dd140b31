"""OptionalField and ListField, which are around other fields; DecimalField and MsgpackField."""

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pytest
from field_cases import nested_fields, same, values
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.errors import FormatError
from ffrecord.fields import (
    BytesField,
    DecimalField,
    Field,
    IntField,
    ListField,
    MsgpackField,
    NDArrayField,
    NoneField,
    OptionalField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
    register,
)


@settings(deadline=None)
@given(st.data(), nested_fields())
def test_round_trip_by_the_field_alone(data: st.DataObject, inner: Field) -> None:
    for field, value in ((OptionalField(inner), data.draw(values(inner))), (ListField(inner), [])):
        assert same(field.decode(memoryview(field.encode(value))), value)
        assert type(field).from_spec(field.spec()) == field
    assert OptionalField(inner).encode(None) == b"\0"


def test_bytes() -> None:
    """As docs/fields.md says them."""
    assert OptionalField(IntField()).encode(5) == b"\1" + struct.pack("<q", 5)
    assert OptionalField(NoneField()).encode(None) == b"\0"
    assert ListField(StrField()).encode(["é", ""]) == struct.pack("<3Q", 2, 2, 0) + "é".encode()
    assert DecimalField().encode(Decimal("-1.500E+7")) == b"-1.500E+7"
    packed = MsgpackField().encode({"a": [None, float("nan"), b"b", Decimal("1.5"), np.datetime64(5, "us")]})
    scalar = b"\xd8\x02\x07<M8[us]" + struct.pack("<q", 5)
    assert packed == b"\x81\xa1a\x95\xc0\xcb\x7f\xf8" + bytes(6) + b"\xc4\x01b" + b"\xc7\x03\x011.5" + scalar


@pytest.mark.parametrize(
    ("field", "data", "words"),
    [
        (OptionalField(IntField()), b"", r"0 bytes and begins with b''"),
        (OptionalField(IntField()), b"\2", r"1 bytes and begins with b'\\x02'"),
        (OptionalField(IntField()), b"\0\0", r"2 bytes and begins with b'\\x00'"),
        (OptionalField(IntField()), b"\1" + bytes(7), r"7 bytes, expected 8 for IntField\(\)"),
        (OptionalField(StrField()), b"\1\xff", "not UTF-8"),
        (ListField(BytesField()), b"", "the list of 0 items has 0 bytes, expected at least 8"),
        (ListField(BytesField()), struct.pack("<Q", 2**64 - 1), "the list of 18446744073709551615 items has 8 bytes"),
        (ListField(BytesField()), struct.pack("<2Q", 1, 5) + b"four", "item 0 of 1 has 5 bytes, but only 4 are left"),
        (
            ListField(BytesField()),
            struct.pack("<2Q", 1, 3) + b"four",
            "the list of 1 items has 1 bytes after its last item",
        ),
        (ListField(NoneField()), struct.pack("<2Q", 1, 1) + b"x", r"1 bytes, expected 0 for NoneField\(\)"),
        (ListField(IntField()), struct.pack("<2Q", 1, 7) + bytes(7), r"7 bytes, expected 8 for IntField\(\)"),
        (DecimalField(), b"", "not a decimal: b'', 0 bytes"),
        (DecimalField(), b" 1", "not a decimal"),
        (DecimalField(), b"1_0", "not a decimal"),
        (DecimalField(), b"\xff", "not a decimal"),
        (DecimalField(), "١".encode(), "not a decimal"),
        (DecimalField(), b"1" * 10_001, "not a decimal: .*, 10001 bytes"),
        (MsgpackField(), b"", "not MessagePack"),
        (MsgpackField(), b"\xc1", "not MessagePack"),
        (MsgpackField(), b"\xd4\x05x", "the extension value of type 5 has 1 bytes"),
        (MsgpackField(), b"\xd4\x01x", "not a decimal: b'x', 1 byte"),
        (MsgpackField(), b"\xd6\x02\x03|b1", r"the bool scalar has 0 bytes, expected 1"),
        (MsgpackField(), b"\xc7\x05\x02\x03|b1\x02", r"a bool is byte 2"),
        (MsgpackField(), b"\xc7\x05\x02\x03|O1\x02", "dtype is '|O1'"),
        (MsgpackField(), b"[" * 100_000, "not MessagePack"),
    ],
)
def test_damaged_bytes(field: Field, data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        field.decode(memoryview(data))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (OptionalField(IntField()), "1", "str '1', expected an int"),
        (ListField(IntField()), (1,), "a tuple of 1, expected a list in which each item is an int"),
        (ListField(IntField()), [1, "2"], "item 1: str '2', expected an int"),
        (ListField(OptionalField(IntField())), [[]], "item 0: a list of 0, expected an int"),
        (DecimalField(), 1, "int 1, expected a decimal.Decimal"),
        (DecimalField(), Decimal("1" * 10_001), "the decimal has 10001 characters, expected at most 10000"),
        (MsgpackField(), (1,), "a tuple of 1"),
        (MsgpackField(), {"a": [0, {1: 2}]}, r"at \['a'\]\[1\]: a dict of 1, expected"),
        (MsgpackField(), [2**64], r"at \[0\]: int 18446744073709551616, expected"),
        (MsgpackField(), ["\ud800"], "UTF-8 cannot encode character"),
        (MsgpackField(), np.longdouble(1), "long double"),
    ],
)
def test_refused_values(field: Field, value: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        field.encode(value)


@register
@dataclass(frozen=True)
class AsciiField(Field):
    kind: ClassVar[str] = "acme.ascii"

    def encode(self, value: Any) -> bytes:
        return str(value).encode("ascii")

    def decode(self, data: memoryview) -> Any:
        return str(data, "ascii")


def test_errors_of_items_that_are_not_made_of_a_text() -> None:
    with pytest.raises(ValueError, match=r"^x: item 1: 'ascii' codec can't encode character"):
        Schema.of({"x": ListField(AsciiField())}).encode({"x": ["a", "é"]})


def test_values_nested_too_deep() -> None:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    with pytest.raises(ValueError, match="nested too deep"):
        MsgpackField().encode(found)


def deep(count: int) -> Field:
    field: Field = IntField()
    for _ in range(count):
        field = OptionalField(field)
    return field


@pytest.mark.parametrize(
    ("inner", "error", "words"),
    [
        (None, TypeError, "inner is None.*, expected a Field"),
        (IntField, TypeError, "expected a Field"),
        (TensorField("float32", (2,)), TypeError, "whose values are tensors; use NDArrayField"),
        (deep(8), ValueError, "9 fields deep, expected at most 8"),
    ],
)
@pytest.mark.parametrize("outer", [OptionalField, ListField])
def test_refused_inner_fields(outer: Any, inner: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        outer(inner)


def test_a_schema_of_too_many_around_each_other() -> None:
    """Refused before any is made: a file may say what it wants."""
    spec: dict[str, Any] = {"kind": "int"}
    for _ in range(500):
        spec = {"kind": "optional", "inner": spec}
    with pytest.raises(ValueError, match="inner is more than 8 fields deep"):
        OptionalField.from_spec(spec)
    for wrong in ({}, {"inner": None}, {"inner": {"kind": "int"}, "more": 1}):
        with pytest.raises((TypeError, ValueError)):
            ListField.from_spec(wrong)


def test_with_compression() -> None:
    pytest.importorskip("zstandard")
    schema = Schema.of(
        {"x": ZstdField(ListField(NDArrayField("u1", (None,)))), "y": OptionalField(ZstdField(StrField()))}
    )
    sample = {"x": [np.zeros(3, "u1"), np.ones(0, "u1")], "y": None}
    assert same(schema.decode(schema.encode(sample)), sample)
    assert Schema.from_builtins(schema.to_builtins()) == schema

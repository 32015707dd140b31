"""int, float, bool, None and numpy scalars."""

import enum
import math
import struct
from typing import Any

import numpy as np
import pytest
from field_cases import same

from ffrecord.errors import FormatError
from ffrecord.fields import BoolField, Field, FloatField, IntField, NoneField, ScalarField, Schema


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("field", "value", "data"),
    [
        (IntField(), -2, "feffffffffffffff"),
        (IntField(), 2**63 - 1, "ffffffffffffff7f"),
        (FloatField(), 1.5, "000000000000f83f"),
        (FloatField(), math.inf, "000000000000f07f"),
        (BoolField(), True, "01"),
        (BoolField(), False, "00"),
        (NoneField(), None, ""),
        (ScalarField("int16"), np.int16(-2), "feff"),
        (ScalarField("bool"), np.True_, "01"),
        (ScalarField("float32"), np.float32(1.5), "0000c03f"),
        (ScalarField("complex64"), np.complex64(1j), "000000000000803f"),
        (ScalarField("datetime64[s]"), np.datetime64("1970-01-01T00:00:02"), "0200000000000000"),
    ],
)
def test_bytes(field: Field, value: object, data: str) -> None:
    assert bytes(field.encode(value)) == bytes.fromhex(data)
    assert same(field.decode(memoryview(bytes.fromhex(data))), value)
    assert field.fixed is not None and field.fixed.size == len(data) // 2


@pytest.mark.parametrize(
    ("field", "value", "back"),
    [
        (IntField(), np.uint8(7), 7),
        (IntField(), Colour.RED, 3),
        (FloatField(), 3, 3.0),
        (FloatField(), np.float32(0.1), float(np.float32(0.1))),
        (FloatField(), np.float64(2.5), 2.5),
        (FloatField(), np.int8(-1), -1.0),
        (BoolField(), np.True_, True),
        (ScalarField(">i4"), np.array([5], ">i4")[0], np.int32(5)),
    ],
)
def test_exact_conversions(field: Field, value: object, back: object) -> None:
    schema = Schema.of(field)
    assert same(schema.decode(schema.encode(value)), back)


def test_nan_keeps_its_bits() -> None:
    value = struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]
    assert FloatField().encode(value) == bytes.fromhex("010000000000f87f")


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        (
            IntField(),
            2**63,
            ValueError,
            r"value: int 9223372036854775808, expected an int in \[-2\*\*63, 2\*\*63\)",
        ),
        (IntField(), -(2**63) - 1, ValueError, "int -9223372036854775809"),
        (IntField(), np.uint64(2**63), ValueError, "int 9223372036854775808"),
        (IntField(), True, TypeError, "value: True, expected an int"),
        (IntField(), 1.0, TypeError, "float 1.0"),
        (IntField(), np.timedelta64(5, "ns"), TypeError, "numpy timedelta64 .*, expected an int"),
        (FloatField(), np.timedelta64(5, "Y"), TypeError, "numpy timedelta64 .*, expected a float"),
        (IntField(), "5", TypeError, "str '5'"),
        (IntField(), np.array(5), TypeError, r"an int64 array of shape \(\)"),
        (FloatField(), True, TypeError, "True, expected a float"),
        (FloatField(), 2**53 + 1, ValueError, "float64 cannot hold it exactly"),
        (FloatField(), np.int64(2**53 + 1), ValueError, "float64 cannot hold it exactly"),
        (FloatField(), np.uint64(2**64 - 1), ValueError, "float64 cannot hold it exactly"),
        (FloatField(), "1.5", TypeError, "str '1.5'"),
        (BoolField(), 1, TypeError, "int 1, expected a bool"),
        (NoneField(), 0, TypeError, r"int 0, expected None; .*declare OptionalField\(\.\.\.\)"),
        (ScalarField("float32"), 1.5, TypeError, "float 1.5, expected a numpy float32 scalar"),
        (ScalarField("float32"), np.float64(1.5), TypeError, "numpy float64"),
        (ScalarField("datetime64[s]"), np.datetime64("2000", "Y"), TypeError, r"datetime64\[s\] scalar"),
    ],
)
def test_refused(field: Field, value: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(field).encode(value)


@pytest.mark.parametrize(
    ("field", "words"), [(IntField(), "an int of 16610 bits"), (FloatField(), "cannot hold it exactly")]
)
def test_huge_ints(field: Field, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        field.encode(10**5000)


@pytest.mark.parametrize("field", [BoolField(), ScalarField("bool")])
def test_bytes_that_are_no_bool(field: Field) -> None:
    schema = Schema.of(field)
    with pytest.raises(FormatError, match=r"value \(\w+\): a bool is byte 2"):
        schema.decode(b"\2")
    data = np.frombuffer(b"\0\1\2", np.uint8)
    with pytest.raises(FormatError, match=r"record 2 of the batch: value \(\w+\): a bool is byte 2"):
        schema.decode_batch(data, [0, 1, 2, 3])
    with pytest.raises(FormatError, match=r"record 2 of the batch: value \(\w+\): a bool is byte 2"):
        schema.decode_columns(data, [0, 1, 2, 3])


@pytest.mark.parametrize("dtype", ["S4", "U2", "O", "V8", "i4,f8", np.longdouble, "no such dtype"])
def test_scalar_dtypes_refused(dtype: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        ScalarField(dtype)  # type: ignore[arg-type]


def test_columns() -> None:
    schema = Schema.of([IntField(), FloatField(), BoolField(), NoneField(), ScalarField("<m8[s]")])
    records = [schema.encode([i, i / 2, i > 0, None, np.timedelta64(i, "s")]) for i in range(3)]
    columns = schema.decode_columns(np.frombuffer(b"".join(records), np.uint8), np.arange(4) * len(records[0]))
    assert same(columns["[0]"], np.arange(3))
    assert same(columns["[1]"], np.array([0, 0.5, 1]))
    assert same(columns["[2]"], np.array([False, True, True]))
    assert columns["[3]"] == [None, None, None]
    assert same(columns["[4]"], np.arange(3).astype("m8[s]"))
    assert "[3]" in schema.slots and schema.slots["[4]"].offset == 17


@pytest.mark.parametrize("field", [IntField(), FloatField(), BoolField(), ScalarField("float32"), ScalarField("bool")])
@pytest.mark.parametrize("data", [b"", b"\0" * 3, b"\0" * 9])
def test_values_of_other_sizes_are_refused(field: Any, data: bytes) -> None:
    with pytest.raises(FormatError, match=rf"^an? .* has {len(data)} bytes, expected {field.fixed.size}$"):
        field.decode(memoryview(data))

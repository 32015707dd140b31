"""str, bytes and JSON."""

import json
from typing import Any

import numpy as np
import pytest
from field_cases import JSON, same
from hypothesis import given, settings

from ffrecord.errors import FormatError
from ffrecord.fields import BytesField, Field, JSONField, Schema, StrField


class Name(str):
    pass


@pytest.mark.parametrize(
    ("field", "value", "payload", "back"),
    [
        (StrField(), "", b"", ""),
        (StrField(), "né\0", b"n\xc3\xa9\0", "né\0"),
        (StrField(), Name("x"), b"x", "x"),
        (StrField(), np.str_("x"), b"x", "x"),
        (BytesField(), b"\0\xff", b"\0\xff", b"\0\xff"),
        (BytesField(), bytearray(b"ab"), b"ab", b"ab"),
        (BytesField(), memoryview(b"abcd")[::2], b"ac", b"ac"),
        (BytesField(), memoryview(np.arange(2, dtype="<u2")), b"\0\0\1\0", b"\0\0\1\0"),
        (BytesField(), np.frombuffer(b"abcd", np.uint8)[::2], b"ac", b"ac"),
        (BytesField(), np.bytes_(b"ab"), b"ab", b"ab"),
        (JSONField(), {"b": [1, 2.5, "é"], "a": None}, '{"b":[1,2.5,"é"],"a":null}'.encode(), None),
        (JSONField(), 2**64 - 1, b"18446744073709551615", None),
        (JSONField(), None, b"null", None),
        (JSONField(), -(2**70), b"-1180591620717411303424", None),
        (JSONField(), {}, b"{}", None),
    ],
)
def test_bytes(field: Field, value: Any, payload: bytes, back: Any) -> None:
    schema = Schema.of(field)
    record = schema.encode(value)
    assert record == len(payload).to_bytes(8, "little") + payload
    assert same(schema.decode(record), value if isinstance(field, JSONField) else back)


@settings(deadline=None)
@given(JSON)
def test_json_is_what_json_reads(value: Any) -> None:
    payload = JSONField().encode(value)
    assert same(json.loads(payload), value)
    assert same(JSONField().decode(memoryview(json.dumps(value).encode())), value)


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        (StrField(), b"x", TypeError, "value: a bytes of 1, expected a str"),
        (StrField(), "a\ud800", ValueError, "UTF-8 cannot encode character 1 of the text: surrogates not allowed"),
        (BytesField(), "x", TypeError, "str 'x', expected bytes"),
        (BytesField(), np.zeros(2, np.int8), TypeError, "an int8 array"),
        (BytesField(), np.zeros((2, 2), np.uint8), TypeError, r"array of shape \(2, 2\)"),
        (JSONField(), (1, 2), ValueError, "JSON would change a tuple of 2"),
        (JSONField(), [float("nan")], ValueError, "finite"),
        (JSONField(), {1: "x"}, ValueError, "str keys"),
        (JSONField(), b"x", ValueError, "JSON would change a bytes of 1"),
        (JSONField(), {"x": np.int64(1)}, TypeError, "a dict of 1, expected a value that JSON can hold; .*int64"),
        (JSONField(), {"x": object()}, TypeError, "value that JSON can hold; JSON cannot hold an object at ..x..$"),
        (
            JSONField(),
            [{"x": [0, np.zeros(2)]}],
            TypeError,
            r"JSON cannot hold .*array of shape \(2,\) at \[0\]\['x'\]\[1\]; array",
        ),
        (JSONField(), cyclic(), ValueError, "value that JSON can hold"),
        (JSONField(), "a\ud800", ValueError, "value that JSON can hold"),
    ],
)
def test_refused(field: Field, value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(field).encode(value)


@pytest.mark.parametrize(
    ("field", "payload", "words"),
    [
        (StrField(), b"ab\xff", r"value \(StrField\): the value is not UTF-8: invalid start byte at byte 2 of 3"),
        (JSONField(), b"", r"value \(JSONField\): the value is not JSON"),
        (JSONField(), b"{'a': 1}", r"value \(JSONField\): the value is not JSON"),
        (JSONField(), b"[" * 100_000, r"value \(JSONField\): the value is not JSON"),
        (JSONField(), b'"\xff"', r"value \(JSONField\): the value is not JSON"),
    ],
)
def test_damaged(field: Field, payload: bytes, words: str) -> None:
    schema = Schema.of(field)
    record = len(payload).to_bytes(8, "little") + payload
    with pytest.raises(FormatError, match=words):
        schema.decode(record)
    with pytest.raises(FormatError, match=f"record 1 of the batch: {words}"):
        good = schema.encode("x")
        data = np.frombuffer(good + record, np.uint8)
        schema.decode_batch(data, [0, len(good), len(data)])

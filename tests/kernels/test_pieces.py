"""Samples in pieces: the record is the one that the schema gives, and keeps nothing of the sample."""

import gc
import io
import weakref
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.fields import (
    BoolField,
    BytesField,
    Field,
    FloatField,
    IntField,
    ListField,
    NDArrayField,
    OptionalField,
    Schema,
    StrField,
    ZstdField,
    register,
)
from ffrecord.kernels._records import Pieces, Records

IMAGE = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
EVERYTHING = {
    "image": NDArrayField("uint8", (32, 32, 3)),
    "label": IntField(),
    "box": NDArrayField("float32", (4,)),
    "score": FloatField(),
    "inner": ({"bytes": BytesField(), "good": BoolField()}, [StrField(), NDArrayField("int16", (None,))]),
    "large": NDArrayField("float64", (100,)),
    "packed": ZstdField(StrField()) if find_spec("zstandard") else StrField(),
    "listed": OptionalField(ListField(BytesField())),
}


def sample(**other: Any) -> dict[str, Any]:
    plain = {
        "image": IMAGE,
        "label": -5,
        "box": np.arange(4, dtype=np.float32),
        "score": 0.5,
        "inner": ({"bytes": b"some", "good": True}, ["text", np.arange(3, dtype=np.int16)]),
        "large": np.arange(100.0),
        "packed": "a" * 1000,
        "listed": [b"some", b""],
    }
    return {**plain, **other}


def appended(pieces: Any, samples: list[Any]) -> list[bytes]:
    """Their records, each with its CRC-32 compared."""
    records = Records(1 << 20)
    for index, each in enumerate(samples):
        records.append(pieces(each), index)
    ends = np.cumsum(records.sizes()).tolist()
    found = [bytes(records.view(start, end)) for start, end in zip([0, *ends], ends, strict=False)]
    assert records.checksums().tolist() == [zlib.crc32(each) for each in found]
    return found


UNUSUAL = [
    {"image": IMAGE[::-1]},
    {"image": np.asfortranarray(IMAGE)},
    {"image": IMAGE.view(type("Own", (np.ndarray,), {}))},
    {"label": np.int32(7)},
    {"label": -(2**63)},
    {"score": 3},
    {"score": float("nan")},
    {"inner": ({"good": np.True_, "bytes": bytearray(b"abc")}, ["", np.zeros(0, np.int16)])},
    {"inner": ({"good": False, "bytes": memoryview(b"abcd")[::2]}, ["ä€𝄞", np.arange(9, dtype=np.int16)[::2]])},
    {"inner": ({"good": False, "bytes": np.arange(5, dtype=np.uint8)}, ["ä", np.arange(2, dtype=np.int16)])},
]


def test_pieces_are_the_record() -> None:
    schema = Schema.of(EVERYTHING)
    samples = [sample(), *[sample(**other) for other in UNUSUAL], dict(reversed(sample().items()))]
    assert appended(schema.pieces(), samples) == [schema.encode(each) for each in samples]


def test_what_is_plain_is_copied_once() -> None:
    schema = Schema.of(EVERYTHING)
    pieces = schema.pieces()
    assert isinstance(pieces(sample()), Pieces)
    assert pieces.size == len(schema.encode(sample()))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.binary(max_size=2000), st.text(max_size=50), st.integers(-(2**63), 2**63 - 1)), max_size=20)
)
def test_records_of_varying_size(samples: list[Any]) -> None:
    schema = Schema.of((BytesField(), StrField(), IntField()))
    assert appended(schema.pieces(), samples) == [schema.encode(each) for each in samples]


def test_records_larger_than_the_memory_for_them() -> None:
    schema = Schema.of([BytesField(), NDArrayField("uint8", (3 << 20,))])
    samples = [[bytes([i]) * (i << 20), np.full(3 << 20, i, np.uint8)] for i in range(4)]
    assert appended(schema.pieces(), samples) == [schema.encode(each) for each in samples]


WRONG = [
    ({"label": 2**63}, ValueError, "label"),
    ({"label": True}, TypeError, "label"),
    ({"image": IMAGE[:31]}, ValueError, "image"),
    ({"image": IMAGE.astype(np.int8)}, TypeError, "image"),
    ({"inner": ({"bytes": b"", "good": 1}, ["", np.zeros(0, np.int16)])}, TypeError, "good"),
    ({"inner": ({"bytes": b""}, ["", np.zeros(0, np.int16)])}, ValueError, "good"),
    ({"other": 1}, ValueError, "other"),
]


@pytest.mark.parametrize(("other", "error", "column"), WRONG)
def test_errors_name_the_column_as_those_of_the_schema(other: Any, error: type[Exception], column: str) -> None:
    schema = Schema.of(EVERYTHING)
    pieces = schema.pieces()
    with pytest.raises(error, match=column) as found:
        pieces(sample(**other))
    with pytest.raises(error) as expected:
        schema.encode(sample(**other))
    assert str(found.value) == str(expected.value)
    assert appended(pieces, [sample()]) == [schema.encode(sample())]


@register
@dataclass(frozen=True)
class Stream(Field):
    """Encodes what can be read once."""

    kind = "test.stream"

    def encode(self, value: Any) -> bytes:
        return bytes(value.read())

    def decode(self, data: memoryview) -> Any:
        return bytes(data)


class Target(NamedTuple):
    label: int
    text: str


@pytest.mark.parametrize("inner", [Target(1, "a"), OrderedDict(label=1, text="a"), {"label": 1, "text": "a"}])
def test_no_value_is_encoded_twice(inner: Any) -> None:
    schema = Schema.of({"stream": Stream(), "inner": {"label": IntField(), "text": StrField()}})
    (found,) = appended(schema.pieces(), [{"stream": io.BytesIO(b"hello"), "inner": inner}])
    assert found == schema.encode({"stream": io.BytesIO(b"hello"), "inner": inner})


def test_pieces_of_no_sample_are_refused() -> None:
    pieces, records = Schema.of([IntField()]).pieces(), Records(4096)
    for fill in (lambda: None, lambda: records.append(pieces([1]), 0)):
        fill()
        count = records.count
        with pytest.raises(ValueError, match="of no sample"):
            records.append(pieces, 1)
        assert records.count == count
    with pytest.raises(TypeError):
        pieces(["no number"])
    with pytest.raises(ValueError, match="of no sample"):
        records.append(pieces, 1)


def test_nothing_of_a_sample_is_kept() -> None:
    pieces, records = Schema.of((NDArrayField("uint8", (1000,)), IntField())).pieces(), Records(1 << 20)
    array = np.zeros(1000, np.uint8)
    there = weakref.ref(array)
    records.append(pieces((array, 1)), 0)
    del array
    gc.collect()
    assert there() is None


def test_what_is_made_for_a_sample_lives_until_it_is_copied() -> None:
    schema = Schema.of({"made": NDArrayField("int64", (1000,))})
    pieces, records = schema.pieces(), Records(1 << 20)
    record = pieces({"made": np.full(1000, 7)})
    others = [np.full(1000, 9) for _ in range(10)]
    records.append(record, 0)
    assert bytes(records.view(0, 8000)) == np.full(1000, 7).tobytes()
    assert all((other == 9).all() for other in others)


@register
@dataclass(frozen=True)
class Wide(Field):
    """Gives views that are not of bytes, or not as many as it says."""

    kind = "test.wide"
    gives: int = 0

    def encode(self, value: Any) -> Any:
        return [memoryview(value), memoryview(value)[::2], value.tobytes(), bytearray(value)][self.gives]

    def decode(self, data: memoryview) -> Any:
        return bytes(data)


@pytest.mark.parametrize("gives", range(4))
def test_fields_of_users(gives: int) -> None:
    schema = Schema.of([Wide(gives), IntField()])
    value = [np.arange(4.0), 1]
    if gives >= 2:
        assert appended(schema.pieces(), [value]) == [schema.encode(value)]
        return
    for encode in (schema.encode, schema.pieces()):
        with pytest.raises((TypeError, ValueError), match="Wide"):
            encode(value)


def test_an_error_of_a_key_comes_out() -> None:
    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("keys that do not compare")

    pieces = Schema.of({"a": IntField(), "b": IntField()}).pieces()
    with pytest.raises(RuntimeError, match="keys that do not compare"):
        pieces({Key("a"): 1, Key("b"): 2})
    assert isinstance(pieces({"a": 1, "b": 2}), Pieces)

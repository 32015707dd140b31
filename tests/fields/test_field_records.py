"""Records: their bytes, hostile ones, and batches of them."""

import struct
from typing import Any

import numpy as np
import pytest
from field_cases import pack, same

from ffrecord.errors import FormatError
from ffrecord.fields import BytesField, IntField, NDArrayField, Schema, StrField

FIELDS = {"name": StrField(), "id": IntField(), "image": NDArrayField("u1", (2, 2)), "extra": BytesField()}
SAMPLE = {"name": "né", "id": 5, "image": np.arange(4, dtype="u1").reshape(2, 2), "extra": b"\xff" * 5}
RECORD = bytes.fromhex(
    "0500000000000000 00010203"  # id, image
    "0300000000000000 0500000000000000"  # sizes of name and extra
    "6ec3a9 ffffffffff"
)


def test_bytes() -> None:
    schema = Schema.of(FIELDS)
    assert schema.encode(SAMPLE) == RECORD
    assert same(schema.decode(RECORD), SAMPLE)
    assert schema.fixed_size == 12 and schema.record_size is None
    assert {name: slot[:2] for name, slot in schema.slots.items()} == {"id": (0, 8), "image": (8, 4)}


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda record: np.frombuffer(record, np.uint8)])
def test_records_in_any_buffer(wrap: Any) -> None:
    assert same(Schema.of(FIELDS).decode(wrap(RECORD)), SAMPLE)


def test_records_in_no_buffer() -> None:
    schema = Schema.of(FIELDS)
    with pytest.raises(TypeError):
        schema.decode("text")
    with pytest.raises(TypeError):
        schema.decode(np.frombuffer(RECORD * 2, np.uint8)[::2])


def sizes(name: int, extra: int) -> bytes:
    return RECORD[:12] + struct.pack("<QQ", name, extra) + RECORD[28:]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"", r"the record has 0 bytes, expected 28 or more \(id 8, image 4\)"),
        (RECORD[:27], "the record has 27 bytes, expected 28 or more"),
        (RECORD[:-1], r"extra \(BytesField\): its size is 5, but only 4 bytes of the record of 35 are left"),
        (RECORD + b"\0", "the record has 37 bytes, but its columns end at 36"),
        (
            sizes(2**64 - 1, 5),
            r"name \(StrField\): its size is 18446744073709551615, but only 8 bytes of the record of 36 are left",
        ),
        (sizes(3, 2**64 - 1), r"extra \(BytesField\): its size is 18446744073709551615, but only 5 bytes"),
        (sizes(2**63, 2**63 + 8), r"name \(StrField\): its size is 9223372036854775808, but only 8"),
        (sizes(2**64 - 5, 13), r"name \(StrField\): its size is 18446744073709551611, but only 8"),
        (sizes(9, 0), r"name \(StrField\): its size is 9, but only 8"),
        (sizes(4, 3), "the record has 36 bytes, but its columns end at 35"),
        (sizes(2, 6), r"name \(StrField\): the value is not UTF-8"),
    ],
)
def test_hostile_records(record: bytes, words: str) -> None:
    schema = Schema.of(FIELDS)
    with pytest.raises(FormatError, match=f"^{words}"):
        schema.decode(record)
    data, offsets = pack([RECORD, RECORD, record, b""], before=b"1", after=RECORD)
    for decode in (schema.decode_batch, schema.decode_columns):
        with pytest.raises(FormatError, match=f"^record 2 of the batch: {words}"):
            decode(data, offsets[:4])


@pytest.mark.parametrize("size", [0, 11, 13])
def test_fixed_records_of_another_size(size: int) -> None:
    schema = Schema.of({"id": IntField(), "image": NDArrayField("u1", (2, 2))})
    record = bytes(size)
    with pytest.raises(FormatError, match=rf"^the record has {size} bytes, expected 12 \(id 8, image 4\)$"):
        schema.decode(record)
    with pytest.raises(
        FormatError, match=rf"^record 1 of the batch: the record has {size} bytes, expected 12 \(id 8, image 4\)$"
    ):
        schema.decode_columns(*pack([bytes(12), record]))


def test_records_of_nothing() -> None:
    for tree in ({}, None, [None, {}], NDArrayField("f4", (0, 3))):
        schema = Schema.of(tree)
        assert schema.record_size == 0
        data, offsets = pack([b""] * 3)
        assert len(schema.decode_batch(data, offsets)) == 3
        with pytest.raises(FormatError, match=r"the record has 1 bytes, expected 0"):
            schema.decode(b"\0")


def test_empty_batch() -> None:
    schema = Schema.of(FIELDS)
    assert schema.decode_batch(np.empty(0, np.uint8), [0]) == []
    columns = schema.decode_columns(np.empty(0, np.uint8), [0])
    assert columns["name"] == [] and columns["id"].shape == (0,) and columns["image"].shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("data", "offsets", "error", "words"),
    [
        (RECORD, [0, 36], TypeError, "data is .*, expected a contiguous uint8 array"),
        (np.zeros(36, np.int8), [0, 36], TypeError, "data is .*, expected"),
        (np.zeros((6, 6), np.uint8), [0, 36], TypeError, "data is .*, expected"),
        (np.zeros(72, np.uint8)[::2], [0, 36], TypeError, "data is .*, expected"),
        (np.zeros(36, np.uint8), [], TypeError, r"offsets is a float64 array.*, expected ints \[k \+ 1\]"),
        (np.zeros(36, np.uint8), [0.0, 36.0], TypeError, "offsets is a float64 array"),
        (np.zeros(36, np.uint8), [[0, 36]], TypeError, r"offsets is an int64 array of shape \(1, 2\)"),
        (
            np.zeros(36, np.uint8),
            [0, 37],
            ValueError,
            "offsets go from 0 to 37, expected them to ascend from 0 to at most 36",
        ),
        (np.zeros(36, np.uint8), [-1, 36], ValueError, "offsets go from -1 to 36"),
        (np.zeros(36, np.uint8), [0, 40, 36], ValueError, "to ascend"),
        (np.zeros(36, np.uint8), np.array([0, 2**64 - 1], np.uint64), ValueError, "offsets go from 0 to -1"),
    ],
)
def test_batches_refused(data: Any, offsets: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(IntField()).decode_batch(data, offsets)


def test_read_only_data() -> None:
    schema = Schema.of(FIELDS)
    data, offsets = pack([RECORD] * 3)
    assert not data.flags.writeable
    assert schema.decode_batch(data, offsets)[2]["image"].flags.writeable
    assert schema.decode_columns(data, offsets)["image"].flags.writeable


def test_large_columns_are_shared_in_pieces() -> None:
    schema = Schema.of(NDArrayField("u1", (300_000,)))
    record = bytes(300_000)
    samples = schema.decode_batch(*pack([record] * 10))
    bases = {id(sample.base): sample.base.nbytes for sample in samples}
    assert len(bases) == 4 and max(bases.values()) <= 1 << 20

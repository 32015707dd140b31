"""Examples as bytes: what protocol buffers allow, what is refused, and damage of every kind."""

import example_messages as twin
import numpy as np
import pytest
from example_messages import entry, features, field, int64s, varint
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutants

from ffrecord.errors import FormatError
from ffrecord.sources.tfrecord.examples import ExampleError, ExampleParser, FixedFeature, VarFeature, infer

FLOATS = np.array([1.5, -2.0, 0.1], "<f4")
UNKNOWN = [field(9, 5), field(9, b"bytes"), field(9, b"12345678", 1), field(9, b"1234", 5), field(2**29 - 1, b"")]


def values(record: bytes, dtype: str = "int64", key: str = "k") -> list:
    return ExampleParser({key: VarFeature(dtype)}).parse(record)[key].tolist()


def one(feature: bytes) -> bytes:
    """An example of one feature."""
    return features(entry(b"k", feature))


# Each of these is told in two ways: the values, and by google.protobuf


@pytest.mark.parametrize(
    "record, expected",
    [
        (one(int64s(1, -1, 300, 2**63 - 1, -(2**63))), [1, -1, 300, 2**63 - 1, -(2**63)]),
        (one(field(3, field(1, 5) + field(1, -6))), [5, -6]),  # unpacked
        (one(field(3, field(1, 5) + field(1, varint(6) + varint(7)) + field(1, b"") + field(1, 8))), [5, 6, 7, 8]),
        (one(int64s(1) + int64s(2, 3)), [1, 2, 3]),  # two pieces of one list
        (features(entry(b"k", int64s(1), int64s(2, 3))), [1, 2, 3]),  # two pieces of the value
        (one(int64s(1) + field(2, b"") + int64s(4)), [4]),  # the last kind counts, and what came before is gone
        (features(entry(b"k", int64s(1), field(1, b"")), entry(b"k", int64s(4))), [4]),  # the last entry counts
        (features(entry(b"k", int64s(1))) + features(entry(b"j", int64s(2)), entry(b"k", int64s(4))), [4]),
        (features(field(1, field(2, int64s(3)) + field(1, b"k"))), [3]),  # the value before the key
        (features(field(1, field(1, b"j") + field(2, int64s(3)) + field(1, b"k"))), [3]),  # two keys: the last
        (features(entry(b"k", int64s(3)), entry(b"k")), []),  # the last entry, which holds nothing
        (features(entry(b"k", int64s(3)), entry(b"k", b"")), []),
        (one(field(3, b"")), []),
        (b"", []),
        (b"\x0a\x00", []),
        (one(field(3, field(1, b"\x80" * 9 + b"\x01"))), [-(2**63)]),
        (one(field(3, field(1, b"\x81\x80\x80\x00"))), [1]),  # longer than need be
        (one(field(3, field(1, b"\xff" * 9 + b"\x7f"))), [-1]),  # bits above the 64th are dropped
        (one(field(3, field(1, b"abcdefg\x90\x91\x12abcdefgh"))), [*b"abcdefg", 0x48890, *b"abcdefgh"]),
    ],
)  # fmt: skip
def test_ints(record, expected):
    assert values(record) == expected
    assert twin.parsed(record).get("k", (0, []))[1] == expected


def test_other_lists_come_in_pieces_too():
    packed = FLOATS.tobytes()
    record = one(field(2, field(1, packed[:4], 5) + field(1, packed[4:])) + field(2, field(1, packed)))
    assert values(record, "float32") == FLOATS.tolist() * 2 == twin.parsed(record)["k"][1]
    record = features(entry(b"k", field(1, field(1, b"ab") + field(1, b"")), field(1, field(1, b"c"))))
    assert values(record, "string") == [b"ab", b"", b"c"] == twin.parsed(record)["k"][1]
    assert bytes(values(record, "uint8")) == b"abc"
    fixed = {"k": FixedFeature("string", (3,))}
    assert ExampleParser(fixed).parse(record)["k"].tolist() == [b"ab", b"", b"c"]


def test_a_missing_key_is_the_empty_one():
    record = features(field(1, field(2, int64s(7))))
    assert values(record, key="") == [7] == twin.parsed(record)[""][1]


@pytest.mark.parametrize("extra", UNKNOWN)
@pytest.mark.parametrize("wrong", [field(1, 3), field(2, b"1234", 5), field(3, b"12345678", 1)])
def test_what_is_unknown_is_skipped(extra, wrong):
    """Numbers that no message has; known ones with another type; in each message."""
    numbers = extra + field(3, extra + field(1, varint(1)) + extra + field(1, b"12345678", 1)) + wrong
    record = extra + field(1, extra + entry(b"k", numbers) + extra + field(1, 3)) + extra
    assert values(record) == [1] == twin.parsed(record)["k"][1]
    # google.protobuf would skip the whole entry, as nothing of its own has such fields; formats say: skip the field.
    assert values(features(field(1, extra + field(1, b"k") + field(2, int64s(1)) + extra))) == [1]


def test_what_is_not_asked_for_is_not_looked_at():
    assert values(features(entry(b"other", b"\x0b"), entry(b"k", int64s(2)))) == [2]


@pytest.mark.parametrize(
    "record, message",
    [
        (b"\x0a", "at byte 1: a number is cut: 0 bytes are left, expected at least 1"),
        (b"\x0a\x05abc", "at byte 0: a field has 5 bytes, but 3 are left"),
        (b"\x0a" + varint(2**63), "a field has 9223372036854775807 bytes, but 0 are left"),
        (b"\x80" * 11, "a varint has more than 10 bytes"),
        (b"\x80" * 9, "at byte 0: a number is cut: 9 bytes are left"),
        (b"\x05\x00", "field number is 0"),
        (varint(2**29 << 3 | 2) + b"\x00", "field number is 536870912, expected 1 to 536870911"),
        (b"\x0b\x0c", "wire type is 3, expected 0, 1, 2 or 5"),
        (b"\x4b\x4c", "wire type is 3"),
        (b"\x0e", "wire type is 6"),
        (b"\x49abc", "a number is cut: 3 bytes are left, expected at least 8"),
        (features(entry(b"k\xff", int64s(1))), "at byte 6: a key of 2 bytes is not UTF-8"),
        (one(field(2, field(1, b"12345"))), "packed numbers have 5 bytes, expected a multiple of 4"),
        (one(field(3, field(1, b"\x01\x80"))), "a number is cut: 1 bytes are left"),
        (one(field(3, field(1, b"\x80" * 10 + b"\x01"))), "a varint has more than 10 bytes"),
        (one(field(3, field(1, b"\x01" * 9 + b"\x80" * 10 + b"\x01" * 9))), "a varint has more than 10 bytes"),
        (features(entry(b"k", b"\x1a\x09ab")), "a field has 9 bytes, but 2 are left"),
    ],
)
def test_what_is_refused(record, message):
    dtype = "float32" if "multiple of 4" in message else "int64"
    for features_ in ({"k": VarFeature(dtype)}, {"k": FixedFeature(dtype, (19,))}):
        with pytest.raises(ExampleError) as caught:
            ExampleParser(features_).decode([b"", record] if isinstance(features_["k"], VarFeature) else [record])
        assert message in str(caught.value)
    assert caught.value.index == 0 and str(caught.value).startswith("example 0")


@pytest.mark.parametrize("text", ["", "a", "é", "日本", "😀", "\u07ff\u0800\uffff\U00010000\U0010ffff\ud7ff\ue000"])
def test_names_of_all_lengths(text):
    assert values(features(entry(b"other", int64s(1)), entry(text.encode(), int64s(2))), key=text) == [2]
    assert values(features(entry(text.encode(), int64s(2)), entry(b"k", int64s(3)))) == [3]


@given(st.binary(max_size=6) | st.text(max_size=3).map(str.encode))
def test_text_is_what_python_takes_for_it(key):
    record = features(entry(key, int64s(2)))
    try:
        key.decode()
    except UnicodeDecodeError:
        with pytest.raises(ExampleError, match="UTF-8"):
            values(record, key="asked for")
    else:
        assert values(record, key="asked for") == []


def test_many_names():
    """More than are remembered from one record to the next, in another order in each."""
    rng = np.random.default_rng(3)
    names = [f"feature/{i}" for i in range(300)]
    records = [features(*(entry(names[i].encode(), int64s(int(i))) for i in rng.permutation(300))) for _ in range(5)]
    asked = {name: FixedFeature("int64") for name in names[::3]}
    for sample in ExampleParser(asked).decode(records):
        assert sample == {name: i * 3 for i, name in enumerate(asked)}


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), max_size=40), st.integers(0, 3))
def test_runs_of_varints(numbers, width):
    """Of every length beside every other; `width` further ones make them end elsewhere in eight bytes."""
    assert values(one(int64s(*numbers, *range(width)))) == [*numbers, *range(width)]


@pytest.mark.parametrize("numbers", [range(5000), range(-200, 200), [127] * 249, [1 << 7 * i for i in range(9)] * 40])
def test_long_runs_of_varints(numbers):
    assert values(one(int64s(*numbers))) == list(numbers)


# Damage


def damaged_like_protobuf(record: bytes) -> None:
    """Whatever google.protobuf accepts is what we find, or refuse as a group, or for lists besides the features."""
    try:
        expected = twin.parsed(record)
    except DecodeError:
        expected = None
    try:
        found = infer(record)
    except ExampleError as error:
        refused = ("wire type is 3", "wire type 4", "a SequenceExample")
        assert expected is None or any(each in str(error) for each in refused)
        return
    # It skips entries that have unknown fields as a whole.
    if expected is None or len(UnknownFieldSet(twin.Example.FromString(record).features)):
        return
    assert found.keys() == {key for key, (kind, _) in expected.items() if kind}
    for key, feature in found.items():
        equal_nan = feature.dtype == "float32"
        assert np.array_equal(values(record, feature.dtype, key), expected[key][1], equal_nan=equal_nan)


BIG = twin.example(
    {"image": [bytes(range(48))], "ids": [1, -2, 300], "vec": FLOATS.tolist(), "é": [b"text", b""], "none": []}
)


def test_every_byte_flipped_and_every_cut():
    for at in range(len(BIG)):
        damaged_like_protobuf(BIG[:at])
        for flip in (1, 2, 4, 8, 16, 32, 64, 128):
            damaged_like_protobuf(BIG[:at] + bytes([BIG[at] ^ flip]) + BIG[at + 1 :])


def survives(record: bytes) -> None:
    """Every way of parsing gives values or an error of ours."""
    asked = {
        "image": FixedFeature("uint8", (48,)),
        "ids": FixedFeature("int64", (3,), 0),
        "vec": FixedFeature("float32", (3,), 0),
        "é": VarFeature("string"),
        "none": VarFeature("uint8"),
    }
    others = {"ids": VarFeature("int64"), "vec": VarFeature("float32"), "é": FixedFeature("string", (2,), b"")}
    for wanted in (asked, others):
        try:
            ExampleParser(wanted).decode([record, record])
        except FormatError as error:
            assert "example 0" in str(error)


def test_mutants():
    for mutant in mutants(BIG, 2000, seed=1):
        survives(mutant)
        damaged_like_protobuf(mutant)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_mutants(seed):
    for mutant in mutants(BIG, 40_000, seed=seed):
        survives(mutant)
        damaged_like_protobuf(mutant)


@given(st.binary(max_size=80))
def test_any_bytes(record):
    survives(record)
    damaged_like_protobuf(record)

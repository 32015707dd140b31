"""Examples written: as google.protobuf writes them, and as we read them."""

from itertools import pairwise

import example_messages as twin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.sources.tfrecord.examples import (
    ExampleParser,
    FixedFeature,
    Ragged,
    RaggedStrings,
    VarFeature,
    describe,
    encode_batch,
    encode_example,
)

VALUES = (
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
    | st.lists(st.floats(width=32, allow_nan=False), max_size=5)
    | st.lists(st.binary(max_size=20), max_size=5)
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5))
def test_the_same_bytes_as_google_protobuf(features):
    record = twin.example(features)
    assert encode_example({key: features[key] for key in describe(record)}) == record  # in its order, which is its own


@given(st.integers(0, 4), st.data())
def test_batches_are_their_examples(k, data):
    numbers = data.draw(st.lists(st.lists(st.integers(-9, 10**12), min_size=3, max_size=3), min_size=k, max_size=k))
    strings = data.draw(st.lists(st.lists(st.binary(max_size=5), max_size=3), min_size=k, max_size=k))
    flat = [each for row in strings for each in row]
    columns = {
        "n": np.array(numbers, np.int64).reshape(k, 3),
        "x": Ragged(np.array([0.5] * len(flat), np.float32), np.cumsum([0, *map(len, strings)])),
        "s": RaggedStrings(
            np.frombuffer(b"".join(flat), np.uint8), np.cumsum([0, *map(len, flat)]), np.cumsum([0, *map(len, strings)])
        ),
        "u": np.arange(k * 4, dtype=np.uint8).reshape(k, 2, 2),
        "t": ["é"] * k,
    }
    records, offsets = encode_batch(columns)
    assert len(offsets) == k + 1 and offsets[-1] == len(records)
    asked = {
        "n": FixedFeature("int64", (3,)),
        "x": VarFeature("float32"),
        "s": VarFeature("string"),
        "u": FixedFeature("uint8", (2, 2)),
        "t": FixedFeature("string"),
    }
    samples = ExampleParser(asked).samples(records, offsets)
    again = encode_batch(ExampleParser(asked).parse_batch(records, offsets))
    assert again[0].tobytes() == records.tobytes()
    for i in range(k):
        assert samples[i]["n"].tolist() == numbers[i] and samples[i]["s"].tolist() == strings[i]
        assert samples[i]["x"].tolist() == [0.5] * len(strings[i])
        assert samples[i]["u"].tobytes() == bytes(range(4 * i, 4 * i + 4)) and samples[i]["t"] == "é".encode()
        record = records[offsets[i] : offsets[i + 1]].tobytes()
        assert set(twin.parsed(record)) == set(columns)


@pytest.mark.parametrize(
    "value, kind, expected",
    [
        (5, 3, [5]),
        (True, 3, [1]),
        ([False, True], 3, [0, 1]),
        (np.uint8(200), 3, [200]),
        (np.array([[1, 2], [3, -4]], np.int16), 3, [1, 2, 3, -4]),
        (np.arange(8)[::-2], 3, [7, 5, 3, 1]),
        (np.array([1, 2], ">i4"), 3, [1, 2]),
        (np.array(2**63 - 1, np.uint64), 3, [2**63 - 1]),
        ([], 0, []),
        (np.zeros(0, np.int64), 3, []),
        (0.5, 2, [0.5]),
        ([1, 0.5], 2, [1.0, 0.5]),
        (np.array([np.inf, -np.inf]), 2, [np.inf, -np.inf]),
        (np.float16(0.25), 2, [0.25]),
        ("é", 1, ["é".encode()]),
        (b"a\0\0", 1, [b"a\0\0"]),
        (bytearray(b"ab"), 1, [b"ab"]),
        (["a", b"b\0"], 1, [b"a", b"b\0"]),
        (np.array([["a", "bc"]]), 1, [b"a", b"bc"]),
        (np.array([b"a\0", "b"], object), 1, [b"a\0", b"b"]),
        (np.arange(4, dtype=np.uint8).reshape(2, 2).T, 1, [b"\0\2\1\3"]),
    ],
)
def test_kinds_of_values(value, kind, expected):
    assert twin.parsed(encode_example({"k": value})) == {"k": (kind, expected)}


def test_values_of_more_bytes_than_a_length_of_one():
    value = [b"a" * 127, b"b" * 128, b"c" * 20_000]
    assert encode_example({"k": value}) == twin.example({"k": value})


def test_none_is_left_out():
    assert encode_example({"k": None, "j": 1}) == twin.example({"j": [1]})
    assert encode_example({}) == b"\x0a\x00" == twin.example({})


@pytest.mark.long
def test_tensors():
    torch = pytest.importorskip("torch")
    assert twin.parsed(encode_example({"k": torch.arange(3)})) == {"k": (3, [0, 1, 2])}


@pytest.mark.parametrize(
    "value, message",
    [
        (2**63, "9223372036854775808, expected at most 9223372036854775807"),
        (2**70, "a string"),
        (1e300, "1e\\+300, which float32 cannot hold"),
        (1j, "complex128 values, expected ints, floats, bytes or str"),
        ({"a": 1}, "dict"),
        ([[1], [2, 3]], "cannot become an array"),
        (["a", 1], "int among strings"),
        (2**70, "an int of 71 bits, which int64 cannot hold"),
        ([1, -(1 << 70)], "an int of 71 bits"),
        ([-1, 2**63], "an int of 64 bits, which int64 cannot hold"),
        ([[0.5, 2**63], [1.0, 2.0]], "an int of 64 bits, which int64 cannot hold"),
        ("a\ud800", "UTF-8 cannot encode character 1 of the text: surrogates not allowed"),
        (np.array([b"a", None], object), "NoneType among strings"),
    ],
)
def test_values_that_are_refused(value, message):
    with pytest.raises(ArgumentError, match=f"'k'.*{message}" if message != "a string" else "'k'.*int"):
        encode_example({"k": value})


def test_columns_that_are_refused():
    for columns, message in [
        ({"a": [1, 2], "b": [1]}, "different numbers of rows"),
        ({3: [1]}, "name of a feature is int .*, expected str"),
        ({"a": Ragged(np.arange(3), np.array([0, 4]))}, "rows of b'a'"),
        ({"a": Ragged(np.arange(3), np.array([0, 2, 1]))}, "offset 1 is 2, and offset 2 is 1"),
        ({"a": Ragged(np.arange(3, dtype=np.uint8), np.array([-1, 2]))}, "values of b'a'"),
        ({"a": RaggedStrings(np.zeros(3, np.uint8), np.array([0, 4]), np.array([0, 1]))}, "values of b'a'"),
        ({"a": RaggedStrings(np.zeros(3, np.uint8), np.array([0, 3]), np.array([0, 2]))}, "rows of b'a'"),
    ]:
        with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
            encode_batch(columns)


def test_what_is_no_mapping():
    with pytest.raises(ArgumentTypeError, match=r"features is int .*, expected a mapping of names to values"):
        encode_example(5)
    with pytest.raises(ArgumentTypeError, match=r"columns is a list.*, expected a mapping of names to columns"):
        encode_batch([1])


def test_columns_of_bytes_that_are_numbers():
    """A column of uint8 has one number in each row; an array of them for each row is bytes."""
    records, offsets = encode_batch({"label": np.array([3, 200], np.uint8), "image": np.zeros((2, 3), np.uint8)})
    assert [twin.parsed(records[a:b].tobytes()) for a, b in pairwise(offsets)] == [
        {"label": (3, [label]), "image": (1, [bytes(3)])} for label in (3, 200)
    ]


def test_no_columns():
    records, offsets = encode_batch({})
    assert len(records) == 0 and offsets.tolist() == [0]

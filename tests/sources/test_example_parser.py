"""Examples of tf.train: records → columns."""

import hashlib
import json
import pickle
import struct
import threading
from itertools import pairwise
from pathlib import Path

import example_messages as twin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.sources.tfrecord.examples import (
    ExampleError,
    ExampleParser,
    FeatureCountError,
    FeatureKindError,
    FixedFeature,
    MissingFeatureError,
    Ragged,
    RaggedStrings,
    VarFeature,
    decoder,
)
from ffrecord.sources.tfrecord.examples_batch import pack

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"
INT64, FLOAT32 = st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False)
VALUES = {"int64": INT64, "float32": FLOAT32, "string": st.binary(max_size=9), "uint8": st.binary(max_size=9)}


def records_of(path: Path) -> list[bytes]:
    """Of a TFRecord file, whose checksums are not this test's."""
    data, records, at = path.read_bytes(), [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        records.append(data[at + 12 : at + 12 + size])
        at += 16 + size
    return records


def test_golden_file():
    told = json.loads((SEEDS / "manifest.json").read_text())["examples.tfrecord"]
    wanted = {
        "image": FixedFeature("uint8", (4, 4, 3)),
        "vec": FixedFeature("float32", (4,)),
        "ids": FixedFeature("int64", (3,)),
    }
    columns = ExampleParser(wanted).parse_batch(*pack(records_of(SEEDS / "examples.tfrecord")))
    assert [column.shape for column in columns.values()] == [(15, 4, 4, 3), (15, 4), (15, 3)]
    found = [
        {"image_sha256": hashlib.sha256(image).hexdigest(), "vec": vec.tolist(), "ids": ids.tolist()}
        for image, vec, ids in zip(*columns.values(), strict=True)
    ]
    assert found == told["samples"]


# Against google.protobuf


@st.composite
def batches(draw):
    """Features, and examples of them as google.protobuf writes them, with others besides."""
    features, columns = {}, {}
    k = draw(st.integers(0, 5))
    for number in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(list(VALUES)))
        size = draw(st.integers(0, 4))
        fixed = dtype != "uint8" and draw(st.booleans())
        least, most = (size, size) if fixed else (0, 4)
        rows = st.lists(VALUES[dtype], min_size=least, max_size=most)
        features[f"é{number}"] = FixedFeature(dtype, (size,)) if fixed else VarFeature(dtype)
        columns[f"é{number}"] = draw(st.lists(rows, min_size=k, max_size=k))
    others = draw(st.dictionaries(st.text(max_size=3), st.lists(INT64, max_size=2), max_size=2))
    examples = [{**others, **{key: column[i] for key, column in columns.items()}} for i in range(k)]
    # A feature without values has no kind, and counts as absent.
    for key, feature in features.items():
        if isinstance(feature, FixedFeature) and feature.size == 0:
            features[key] = FixedFeature(feature.dtype, (0,), default=0 if feature.dtype != "string" else b"")
    return features, columns, [twin.example(each) for each in examples]


def rows_of(column, k):
    if isinstance(column, Ragged):
        assert column.offsets[0] == 0 and column.offsets[-1] == len(column.values)
        return [column.values[a:b].tolist() for a, b in pairwise(column.offsets)]
    if isinstance(column, RaggedStrings):
        assert len(column.row_offsets) == k + 1 and column.value_offsets[-1] == len(column.data)
        strings = [column.data[a:b].tobytes() for a, b in pairwise(column.value_offsets)]
        return [strings[a:b] for a, b in pairwise(column.row_offsets)]
    return column.tolist()


@given(batches())
def test_as_google_protobuf(batch):
    features, columns, records = batch
    found = ExampleParser(features).parse_batch(*pack(records))
    assert list(found) == list(features)
    for key, column in columns.items():
        expected = column if features[key].dtype != "uint8" else [list(b"".join(row)) for row in column]
        assert rows_of(found[key], len(records)) == expected


@given(batches())
def test_samples_are_rows(batch):
    features, columns, records = batch
    parser = ExampleParser(features)
    samples = parser.decode(records)
    assert len(samples) == len(records)
    for i, record in enumerate(records):
        single = parser.parse(record)
        for key, column in columns.items():
            expected = column[i] if features[key].dtype != "uint8" else list(b"".join(column[i]))
            assert samples[i][key].tolist() == single[key].tolist() == expected


# What is asked, and what comes


def test_single_values_have_no_dimension():
    record = twin.example({"n": [-5], "x": [1.5], "s": [b"a\0"]})
    features = {"n": FixedFeature("int64"), "x": FixedFeature("float32"), "s": FixedFeature("string")}
    (sample,) = ExampleParser(features).decode([record])
    assert sample == {"n": -5, "x": 1.5, "s": b"a\0"}
    assert [type(value) for value in sample.values()] == [np.int64, np.float32, bytes]
    columns = ExampleParser(features).parse_batch(*pack([record] * 3))
    assert [(column.shape, column.dtype) for column in columns.values()] == [
        ((3,), "int64"),
        ((3,), "float32"),
        ((3,), "O"),
    ]


def test_shapes_are_in_c_order():
    record = twin.example({"n": list(range(6)), "s": [b"a", b"b"], "u": [b"abc", b"", b"def"]})
    features = {
        "n": FixedFeature("int64", (2, 3)),
        "s": FixedFeature("string", (2, 1)),
        "u": FixedFeature("uint8", (3, 2)),
    }
    sample = ExampleParser(features).parse(record)
    assert sample["n"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert sample["s"].tolist() == [[b"a"], [b"b"]]
    assert sample["u"].tobytes() == b"abcdef" and sample["u"].shape == (3, 2)


def test_defaults():
    features = {
        "n": FixedFeature("int64", (2,), default=-1),
        "x": FixedFeature("float32", (2, 2), default=[[0.5], [1]]),
        "s": FixedFeature("string", (2,), default="é"),
        "u": FixedFeature("uint8", (2,), default=[7, 8]),
        "v": VarFeature("int64"),
        "w": VarFeature("string"),
    }
    there = twin.example(
        {"n": [1, 2], "x": [1.0, 2.0, 3.0, 4.0], "s": [b"a", b"b"], "u": [b"xy"], "v": [3], "w": [b"c"]}
    )
    full, empty = ExampleParser(features).decode([there, b""])
    assert [value.tolist() for value in full.values()] == [
        [1, 2], [[1, 2], [3, 4]], [b"a", b"b"], [120, 121], [3], [b"c"],
    ]  # fmt: skip
    assert [value.tolist() for value in empty.values()] == [
        [-1, -1], [[0.5, 0.5], [1, 1]], ["é".encode()] * 2, [7, 8], [], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "feature", [("int64", (2,), [1, 2, 3]), ("int64", (), 0.5), ("uint8", (), 256), ("string", (), 3)]
)
def test_defaults_that_do_not_fit(feature):
    with pytest.raises(ArgumentError, match="default"):
        FixedFeature(*feature)


@pytest.mark.parametrize("shape", [3, (2.5,), "a"])
def test_shapes_that_are_none(shape):
    with pytest.raises(ArgumentError, match=r"shape is .*, expected a tuple of ints"):
        FixedFeature("int64", shape)


def test_into():
    record = twin.example({"n": [1, 2], "u": [b"abcd"]})
    features = {"n": FixedFeature("int64", (2,)), "u": FixedFeature("uint8", (2, 2))}
    numbers = np.full((4, 2), -1, np.int64)
    found = ExampleParser(features).parse_batch(*pack([record] * 3), into={"n": numbers})
    assert numbers.tolist() == [[1, 2], [1, 2], [1, 2], [-1, -1]]
    assert np.shares_memory(found["n"], numbers) and len(found["n"]) == 3
    assert found["u"].tobytes() == b"abcd" * 3
    ExampleParser(features).parse(twin.example({"n": [8, 9], "u": [b"abcd"]}), into={"n": numbers[2:3]})
    assert numbers.tolist() == [[1, 2], [1, 2], [8, 9], [-1, -1]]


def test_into_that_does_not_fit():
    frozen = np.zeros((2, 2), np.int64)
    frozen.flags.writeable = False
    wrong = [np.zeros((1, 2), np.int64), np.zeros((2, 3), np.int64), np.zeros((2, 2), np.int32), [[1, 2]] * 2]
    parser = ExampleParser({"n": FixedFeature("int64", (2,)), "v": VarFeature("int64"), "s": FixedFeature("string")})
    arguments = pack([twin.example({"n": [1, 2], "s": [b""]})] * 2)
    for array in [*wrong, frozen, np.zeros((2, 4), np.int64)[:, ::2]]:
        with pytest.raises(ArgumentError, match=r"into\['n'\]"):
            parser.parse_batch(*arguments, into={"n": array})
    for key in ("v", "s", "other"):
        with pytest.raises(ArgumentError, match=f"into.*'{key}'"):
            parser.parse_batch(*arguments, into={key: np.zeros((2, 2), np.int64)})


def test_offsets_that_lead_elsewhere():
    parser = ExampleParser({"n": VarFeature("int64")})
    for offsets in ([0, 5], [-1, 2], [2, 1], [1, 0, 2], [[0, 1]], [], [0.0, 1.0]):
        with pytest.raises((ArgumentError, ArgumentTypeError), match="offset"):
            parser.parse_batch(b"\x0a\x00", offsets)
    assert len(parser.parse_batch(b"\x0a\x00", [0])["n"].offsets) == 1
    assert parser.parse_batch(b"zz\x0a\x00zz", [2, 2, 4, 4])["n"].offsets.tolist() == [0, 0, 0, 0]


def test_several_threads_find_the_same():
    rng = np.random.default_rng(0)
    texts = [[rng.bytes(int(n)) for n in rng.integers(0, 900, 3)] for _ in range(600)]
    records = [twin.example({"n": [i] * 5, "t": texts[i], "v": list(range(i % 7))}) for i in range(600)]
    features = {"n": FixedFeature("int64", (5,)), "t": VarFeature("string"), "v": VarFeature("int64")}
    parser = ExampleParser(features)
    one, four = (parser.parse_batch(*pack(records), num_threads=count) for count in (1, 4))
    for key in features:
        assert rows_of(one[key], 600) == rows_of(four[key], 600)
    assert rows_of(four["t"], 600) == texts
    for bad in ([*records[:401], b"\x0b", *records[402:500], b""], [*records[:500], b"\x0a", *records[501:]]):
        with pytest.raises(FormatError) as caught:
            parser.parse_batch(*pack(bad), num_threads=4)
        assert caught.value.index == (401 if bad[401] == b"\x0b" else 500)


def test_one_parser_in_many_threads():
    parser = ExampleParser({"n": FixedFeature("int64", (3,)), "s": FixedFeature("string")})
    arguments = pack([twin.example({"n": [i, i, i], "s": [b"%d" % i]}) for i in range(200)])
    wrong = []

    def work():
        for _ in range(20):
            found = parser.parse_batch(*arguments)
            if found["n"][:, 1].tolist() != list(range(200)) or found["s"][7] != b"7":
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_parsers_pickle():
    parser = ExampleParser({"n": FixedFeature("int64", (), 3), "v": VarFeature("uint8")})
    again = pickle.loads(pickle.dumps(parser))
    assert again.features == parser.features and again.parse(b"")["n"] == 3
    assert repr(again) == repr(parser)


# Errors: key, example, both numbers


@pytest.mark.parametrize(
    "feature, error, found, expected",
    [
        (FixedFeature("int64", (4,)), FeatureCountError, 3, 4),
        (FixedFeature("int64"), FeatureCountError, 3, 1),
        (FixedFeature("float32", (3,)), FeatureKindError, "int64", "float"),
        (FixedFeature("uint8", (3,)), FeatureKindError, "int64", "bytes"),
        (VarFeature("string"), FeatureKindError, "int64", "bytes"),
    ],
)
def test_not_as_asked(feature, error, found, expected):
    good = twin.example({"é": [1, 2, 3]})
    with pytest.raises(error) as caught:
        ExampleParser({"first": VarFeature("int64"), "é": feature}).decode([good, good])
    assert (caught.value.key, caught.value.index) == ("é", 0)
    assert (caught.value.found, caught.value.expected) == (found, expected)
    for part in ("example 0", "'é'", str(found), str(expected)):
        assert part in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_absent():
    records = [twin.example({"n": [1]}), twin.example({"n": []}), twin.example({"m": [1]})]
    for bad in (1, 2):
        with pytest.raises(MissingFeatureError, match="example 1, feature 'n'") as caught:
            ExampleParser({"n": FixedFeature("int64")}).decode([records[0], records[bad]])
        assert (caught.value.key, caught.value.index) == ("n", 1)


def test_bytes_of_uint8_are_counted():
    with pytest.raises(FeatureCountError, match="5 bytes, expected 6"):
        ExampleParser({"u": FixedFeature("uint8", (2, 3))}).parse(twin.example({"u": [b"abc", b"de"]}))
    with pytest.raises(FeatureCountError, match="2 values, expected 1"):
        ExampleParser({"u": FixedFeature("string")}).parse(twin.example({"u": [b"abc", b"de"]}))


def test_arguments():
    assert FixedFeature(np.dtype("f4")).dtype == "float32" and VarFeature(np.int64).dtype == "int64"  # type: ignore[arg-type]
    for dtype in ("int32", "object", "nonsense", None, 3):
        with pytest.raises(ArgumentError, match="expected one of 'int64'"):
            VarFeature(dtype)
    for shape in ((-1,), (2, -3), (1 << 40, 1 << 40)):
        with pytest.raises(ArgumentError, match="shape"):
            FixedFeature("int64", shape)
    for features in ({"n": "int64"}, {3: VarFeature("int64")}):
        with pytest.raises(ArgumentError, match="FixedFeature or VarFeature"):
            ExampleParser(features)


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_that_are_none(threads):
    record = twin.example({"n": [1]})
    parser = ExampleParser({"n": FixedFeature("int64")})
    with pytest.raises(ArgumentError, match=f"num_threads is {threads}, expected > 0"):
        parser.parse_batch(np.frombuffer(record, np.uint8), [0, len(record)], num_threads=threads)


def test_memory_that_no_machine_has():
    parser = ExampleParser({"u": FixedFeature("uint8", (1 << 23, 1 << 23))})
    with pytest.raises(MemoryError):
        parser.decode([b""] * 4)


def test_no_features_are_asked_for():
    assert ExampleParser({}).parse_batch(*pack([twin.example({"n": [1]})])) == {}
    with pytest.raises(ExampleError):
        ExampleParser({}).decode([b"\x0a\x05"])


def test_decoder():
    records = [twin.example({"n": [1], "v": [1.0] * i}) for i in range(3)]
    assert decoder("infer", lambda: records).features == {"n": FixedFeature("int64"), "v": VarFeature("float32")}
    parser = decoder({"n": FixedFeature("int64")}, lambda: pytest.fail("asked for records"))
    assert decoder(parser, list) is parser
    with pytest.raises(ArgumentError, match="'guess'"):
        decoder("guess", list)

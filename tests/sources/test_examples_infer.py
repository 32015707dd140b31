"""What Examples hold, found out from some."""

import example_messages as twin
import numpy as np
import pytest

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord.examples import (
    ExampleError,
    ExampleParser,
    FeatureKindError,
    FixedFeature,
    VarFeature,
    infer,
)


def test_of_one():
    record = twin.example({"n": [1], "v": [1, 2, 3], "x": [0.5], "s": [b"a"], "t": [b"a", b"b"], "none": []})
    expected = {
        "n": FixedFeature("int64"),
        "v": FixedFeature("int64", (3,)),
        "x": FixedFeature("float32"),
        "s": FixedFeature("string"),
        "t": FixedFeature("string", (2,)),
    }
    for buffer in (record, bytearray(record), memoryview(record), np.frombuffer(record, np.uint8)):
        assert infer(buffer) == infer([buffer]) == expected


def test_of_several():
    records = [
        twin.example({"same": [1], "more": [1, 2], "late": [], "empty": []}),
        twin.example({"same": [2], "more": [3], "late": [0.5], "new": [b"a"]}),
    ]
    assert infer(records) == {
        "same": FixedFeature("int64"),
        "more": VarFeature("int64"),
        "late": VarFeature("float32"),
        "new": VarFeature("string"),
    }
    samples = ExampleParser(infer(records)).decode(records)
    assert [sample["late"].tolist() for sample in samples] == [[], [0.5]]


def test_lists_without_values_may_have_some_elsewhere():
    record = twin.features(twin.entry(b"k", twin.field(3, b"")))
    assert infer(record) == {"k": VarFeature("int64")}


def test_two_kinds():
    records = [twin.example({"k": []}), twin.example({"k": [1]}), twin.example({"k": [b"a"]})]
    with pytest.raises(
        FeatureKindError, match="example 2, feature 'k': it holds bytes values, but int64 values in example 1"
    ):
        infer(records)


def test_sequences_are_not_taken_for_their_contexts():
    context = twin.example({"n": [1]})
    lists = twin.sequence({"n": [1]}, {"steps": [[1], [2]]})
    assert lists.startswith(context)
    with pytest.raises(
        ExampleError, match=r"example 1 is a SequenceExample: it has the list 'steps'; .*SequenceParser"
    ):
        infer([context, lists])
    assert infer(context + b"\x12\x02\xff\xff") == infer(context)  # an unknown field


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="no records"):
        infer([])
    with pytest.raises(ExampleError, match="example 1: it is not an Example"):
        infer([twin.example({}), b"\x0a"])

"""Examples to and from the package `tfrecord`."""

import pytest

from ffrecord.sources.tfrecord.examples import ExampleParser, FixedFeature, SequenceParser, VarFeature, encode_example

pytest.importorskip("tfrecord")


def test_what_it_writes():
    from tfrecord.writer import TFRecordWriter

    told = {
        "label": (-3, "int"),
        "ids": ([1, 2, 300], "int"),
        "vec": ([0.5, -1.0], "float"),
        "image": (b"ab\0", "byte"),
    }
    record = TFRecordWriter.serialize_tf_example(told)
    asked = {
        "label": FixedFeature("int64"),
        "ids": VarFeature("int64"),
        "vec": FixedFeature("float32", (2,)),
        "image": FixedFeature("string"),
    }
    sample = ExampleParser(asked).parse(record)
    assert (sample["label"], sample["image"]) == (-3, b"ab\0")
    assert (sample["ids"].tolist(), sample["vec"].tolist()) == ([1, 2, 300], [0.5, -1.0])


def test_sequences_that_it_writes():
    from tfrecord.writer import TFRecordWriter

    lists = {"tokens": ([[1, 2], [3]], "int"), "frames": ([b"a", b"bc"], "byte")}
    record = TFRecordWriter.serialize_tf_sequence_example({"length": (2, "int")}, lists)
    parser = SequenceParser(
        {"length": FixedFeature("int64")}, {"tokens": VarFeature("int64"), "frames": FixedFeature("string")}
    )
    context, found = parser.parse(record)
    assert context == {"length": 2} and found["frames"].tolist() == [b"a", b"bc"]
    assert [step.tolist() for step in found["tokens"]] == [[1, 2], [3]]


def test_what_it_reads():
    from tfrecord import example_pb2

    record = encode_example({"label": 3, "vec": [0.5, 1.5], "image": b"ab", "texts": ["é", "f"]})
    found = example_pb2.Example.FromString(record).features.feature
    assert list(found["label"].int64_list.value) == [3] and list(found["vec"].float_list.value) == [0.5, 1.5]
    assert list(found["texts"].bytes_list.value) == ["é".encode(), b"f"] and found["image"].bytes_list.value[0] == b"ab"

"""Messages: tf.train.Example and SequenceExample, and TorchRecord's TensorProtos."""

from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import GOLDEN, Run, Scratch, Target

FEATURES = {"ids": [1, 2, 3], "vec": [0.5, 1.5], "text": [b"a", b"bc"], "image": [bytes(12)], "none": []}


def _prepare_example(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord import FormatError
    from ffrecord.sources import ExampleParser, FixedFeature, VarFeature
    from ffrecord.sources.tfrecord.examples import describe, infer

    strict = ExampleParser({
        "ids": FixedFeature("int64", (3,)),
        "vec": FixedFeature("float32", (2,), default=[1, 2]),
        "image": FixedFeature("uint8", (2, 2, 3), default=[[[7] * 3] * 2] * 2),
        "text": FixedFeature("string", (2,), default=[b"", b""]),
    })  # fmt: skip
    loose = ExampleParser(
        {
            "ids": VarFeature("int64"),
            "vec": VarFeature("float32"),
            "image": VarFeature("string"),
            "text": VarFeature("string"),
        }
    )

    def run(data: memoryview) -> None:
        # Two records, so that one's end is another's beginning.
        record = np.frombuffer(data, np.uint8)
        cut = len(record) // 2
        offsets = np.array([0, cut, len(record)])
        for parser in (loose, strict):
            for bounds in (offsets[::2], offsets):
                try:
                    parser.parse_batch(record, bounds)
                except FormatError:
                    continue
        describe(record)
        infer([record])

    return run


def _prepare_sequence(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord import FormatError
    from ffrecord.sources import FixedFeature, SequenceParser, VarFeature

    strict = SequenceParser(
        {"ids": FixedFeature("int64", (3,), default=[1, 2, 3])},
        {"steps": FixedFeature("float32", (2,)), "words": FixedFeature("string", ())},
        optional=["steps"],
    )
    loose = SequenceParser(
        {"ids": VarFeature("int64")}, {"steps": VarFeature("float32"), "words": VarFeature("string")}
    )

    def run(data: memoryview) -> None:
        record = np.frombuffer(data, np.uint8)
        for parser in (loose, strict):
            try:
                parser.parse_batch(record, np.array([0, len(record)]))
            except FormatError:
                continue

    return run


def _prepare_tensors(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.sources.lmdb.torchrecord import sample

    def run(data: memoryview) -> None:
        sample(np.frombuffer(data, np.uint8))

    return run


def _example_seeds(folder: Path) -> Iterator[bytes]:
    from sources.example_messages import example

    yield example(FEATURES)
    yield example({"ids": [2**63 - 1, -1, 0], "vec": [1.0, 2.0], "image": [255] * 12})
    yield example({})
    from ffrecord.sources import TFRecordReader

    with TFRecordReader(GOLDEN / "seeds/examples.tfrecord") as reader:
        yield bytes(reader.read_one(0))
    # Not packed, as old writers have it.
    unpacked = b"\x0a\x11\x0a\x0f\x0a\x03ids\x12\x08\x1a\x06\x08\x01\x08\x02\x08\x03"
    yield unpacked


def _sequence_seeds(folder: Path) -> Iterator[bytes]:
    from sources.example_messages import sequence

    yield sequence({"ids": [1, 2, 3]}, {"steps": [[0.5, 1.5], [2.0, 3.0]], "words": [[b"a"], [b"bc"]]})
    yield sequence({}, {"words": []})


def _tensor_seeds(folder: Path) -> Iterator[bytes]:
    import numpy as np
    from sources.tensor_messages import TensorProto, TensorProtos, default_sample

    yield default_sample(np.arange(12, dtype=np.uint8).reshape(2, 2, 3), 7)
    made = [
        TensorProto(dims=[2, 2], data_type=1, float_data=[1, 2, 3, 4]),
        TensorProto(dims=[3], data_type=9, int32_data=[1, -2, 3]),
        TensorProto(data_type=4, string_data=[b"a", b""], name="names"),
        TensorProto(dims=[1], data_type=13, double_data=[1.5], segment={"begin": 0, "end": 1}),
        TensorProto(dims=[2], data_type=10, int64_data=[2**62, -1]),
        TensorProto(dims=[2], data_type=12, int32_data=[0x3C00, 1]),
        TensorProto(dims=[2], data_type=5, int32_data=[0, 1]),
    ]
    yield TensorProtos(protos=made).SerializeToString()


SOURCES = "ffrecord.sources."
COMPILED = ("sources/tfrecord/_examples",)
TARGETS = [
    Target(
        "example",
        _prepare_example,
        _example_seeds,
        (f"{SOURCES}tfrecord.examples_features",),
        COMPILED,
        size_most=1 << 10,
    ),
    Target(
        "sequence",
        _prepare_sequence,
        _sequence_seeds,
        (f"{SOURCES}tfrecord.examples_features",),
        COMPILED,
        size_most=1 << 10,
    ),
    Target("tensor_protos", _prepare_tensors, _tensor_seeds, (f"{SOURCES}lmdb.torchrecord",), size_most=1 << 10),
]

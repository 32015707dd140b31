"""Schemas, and records by them."""

from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzz.targets import Run, Scratch, Target


def _prepare(scratch: Scratch) -> Run:
    import msgspec
    import numpy as np

    from ffrecord import FormatError
    from ffrecord.fields import Schema
    from ffrecord.format.extension import Extension

    def run(data: memoryview) -> None:
        """The first two bytes: how long the schema is, as it is stored; the rest are two records."""
        size = int.from_bytes(data[:2], "little")
        extension = Extension()
        extension.stored = extension.stored.__class__(msgspec.Raw(bytes(data[2 : 2 + size])))
        schema = Schema.from_builtins(extension.schema)
        again = schema.to_builtins()
        assert Schema.from_builtins(again).to_builtins() == again
        repr(schema)
        records = np.frombuffer(data, np.uint8)[2 + size :]
        for stop in (len(records), schema.record_size or 0):
            offsets = np.array([0, min(stop, len(records))])
            for decode in (schema.decode_batch, schema.decode_columns):
                try:
                    decode(records, offsets)
                except FormatError:
                    continue
        schema.decode(records)

    return run


def _samples() -> list[Any]:
    import numpy as np

    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    return [
        {"a": 1, "b": 2.5, "c": "text", "d": b"bytes", "e": True, "f": None},
        (np.arange(4, dtype="<i2"), [np.ones((2, 2), "<f4"), 7]),
        {"image": pixels, "label": 3},
        [1, [2, [3, {"x": (4,)}]]],
        5,
    ]


def _seeds(folder: Path) -> Iterator[bytes]:
    import numpy as np
    from PIL import Image

    from ffrecord import fields

    for sample in _samples():
        yield _of(fields.Schema.infer([sample]), sample)
    varying = fields.Schema.infer([np.zeros((2, 3)), np.zeros((4, 3))])
    yield _of(varying, np.ones((3, 3)))
    made = {
        "i": fields.IntField(),
        "f": fields.FloatField(),
        "l": fields.LabelField(["cat", "dog"]),
        "j": fields.JSONField(),
        "z": fields.ZstdField(fields.StrField()),
        "r": fields.RGBImageField(),
        "s": fields.ScalarField("int16"),
        "p": fields.JPEGField(),
        "q": fields.ImageField(),
        "o": fields.OptionalField(fields.ListField(fields.BytesField())),
        "d": fields.DecimalField(),
        "m": fields.MsgpackField(),
    }
    values = {
        "i": 7,
        "f": 0.5,
        "l": "dog",
        "j": {"a": [1]},
        "z": "text " * 9,
        "s": np.int16(4),
        "o": [b"first", b""],
        "d": Decimal("-1.50E+7"),
        "m": {"a": [1, None, float("nan"), b"b"], "b": [Decimal("1.5"), np.datetime64(5, "us")]},
        **dict.fromkeys("rp", _samples()[2]["image"]),
        "q": Image.fromarray(_samples()[2]["image"]),
    }
    if find_spec("zstandard") is None:
        del made["z"]
    for name, field in made.items():
        schema = fields.Schema.of({name: field})
        yield _of(schema, {name: values[name]})


def _of(schema: Any, sample: Any) -> bytes:
    import msgspec

    stored = msgspec.msgpack.encode(schema.to_builtins())
    return len(stored).to_bytes(2, "little") + stored + schema.encode(sample)


NAMES = (
    *(
        "spec",
        "schema",
        "layout",
        "batch",
        "tree",
        "arrays",
        "blobs",
        "dtypes",
        "field",
        "images.image",
        "images.jpeg_codec",
    ),
    *("labels", "images.pixels", "images.rgb", "scalars", "shapes", "zstd", "inner"),
)
TARGETS = [Target("schema", _prepare, _seeds, tuple(f"ffrecord.fields.{name}" for name in NAMES), size_most=1 << 10)]

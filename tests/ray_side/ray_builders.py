"""What the tests of `ffrecord.ray` make and compare."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
from PIL import Image

from ffrecord import DatasetWriter, FileReader
from ffrecord.fields import (
    BoolField,
    BytesField,
    FloatField,
    ImageField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
    NDArrayField,
    RGBImageField,
    ScalarField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
)

KINDS = Schema.of(
    {
        "int": IntField(),
        "float": FloatField(),
        "bool": BoolField(),
        "none": None,
        "label": LabelField(["a", "b", "c"]),
        "scalar": ScalarField("uint16"),
        "complex": ScalarField("complex64"),
        "time": ScalarField("datetime64[s]"),
        "day": ScalarField("datetime64[D]"),
        "span": ScalarField("timedelta64[ms]"),
        "str": StrField(),
        "bytes": BytesField(),
        "json": JSONField(),
        "array": NDArrayField("float32", (3, 4)),
        "bools": NDArrayField("bool", (5,)),
        "big": NDArrayField(">i4", (3,)),
        "empty": NDArrayField("float64", (0, 3)),
        "point": NDArrayField("int16", ()),
        "words": NDArrayField("U2", (2,)),
        "ragged": NDArrayField("uint8", (None, 2)),
        "any": NDArrayField("float64", None),
        "image": ImageField(),
        "jpeg": JPEGField(as_bytes=True),
        "rgb": RGBImageField(),
        "bits": TensorField("bfloat16", (4,)),
        "tensor": TensorField("float16", (None,)),
        "text": ZstdField(StrField()),
        "packed": ZstdField(NDArrayField("int64", (2, 3))),
        "meta": {"at": (IntField(), [FloatField()])},
    }
)


def kinds(i: int) -> dict[str, Any]:
    """Sample `i` of `KINDS`; tensors as arrays, which is how they are read without torch."""
    rng = np.random.default_rng(i)
    pixels = rng.integers(0, 255, (8, 8 + i % 3, 3), dtype=np.uint8)
    return {
        "int": i - 5,
        "float": i / 7 if i % 5 else float("nan"),
        "bool": i % 2 == 0,
        "none": None,
        "label": i % 3,
        "scalar": np.uint16(i),
        "complex": np.complex64(i + 1j),
        "time": np.datetime64("2020-01-01T00:00:00", "s") + i if i % 4 else np.datetime64("NaT", "s"),
        "day": np.datetime64("2020-01-01", "D") + i,
        "span": np.timedelta64(i, "ms"),
        "str": f"é{i}" * (i % 4),
        "bytes": bytes([i % 256]) * i,
        "json": {"a": [i, None, {"x": 1.5}]} if i % 2 else [1, "x"],
        "array": rng.random((3, 4)).astype(np.float32),
        "bools": rng.random(5) < 0.5,
        "big": (np.arange(3) + i).astype(">i4"),
        "empty": np.zeros((0, 3)),
        "point": np.array(i, np.int16),
        "words": np.array(["ab", str(i % 10)]).astype("U2"),
        "ragged": rng.integers(0, 255, (i % 5, 2), dtype=np.uint8),
        "any": np.full((2,) * (i % 3), float(i)),
        "image": Image.fromarray(pixels).convert(("RGB", "L", "P")[i % 3]),
        "jpeg": b"\xff\xd8\xff" + bytes([i % 256]) * 9,
        "rgb": pixels,
        "bits": np.arange(4, dtype=np.uint16) + i,
        "tensor": np.ones(i % 4 + 1, np.float16) * i,
        "text": f"{i}" * i,
        "packed": np.full((2, 3), i),
        "meta": {"at": (i, [i / 3])},
    }


def flat(sample: Any, schema: Schema) -> dict[str, Any]:
    """A sample as a row of Ray."""
    return dict(zip(schema.columns, schema._flatten(sample), strict=True))


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, types and byte order of arrays apart."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        alike = a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") or not a.ndim
        return bool(alike and a.shape == b.shape and (a == b).all())
    if isinstance(a, Image.Image):
        return bool(a.mode == b.mode and a.tobytes() == b.tobytes() and a.getpalette() == b.getpalette())
    if isinstance(a, np.datetime64 | np.timedelta64):
        return b is None if np.isnat(a) else bool(a == b)
    return bool(a == b or (a != a and b != b))


def records(path: Any) -> list[bytes]:
    """The bytes of all records, in order."""
    with FileReader(path) as reader:
        return [record.tobytes() for record in reader]


def plain(path: Path, count: int, per_shard: int = 100, start: int = 0) -> Path:
    """A dataset of plain bytes that say which one they are: 8 bytes of a number, and up to 300 more."""
    samples = [numbered(i) for i in range(start, start + count)]
    DatasetWriter(path, num_workers=0, samples_per_shard=per_shard, progress=False).from_iterable(samples)
    return path


def numbered(i: int) -> bytes:
    """Bytes that are those of no other number."""
    return i.to_bytes(8, "little") + np.random.default_rng(i).bytes(i * 37 % 300)


def quiet() -> None:
    """What Ray Data says of each execution goes to nobody; and rows come in order."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)

"""FFCV's .beton files."""

from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target, drain


def _prepare_layout(scratch: Scratch) -> Run:
    from ffrecord.sources.beton.layout import HEADER, descriptors_size, parse

    def run(data: memoryview) -> None:
        head = bytes(data[: HEADER.size])
        end = HEADER.size + descriptors_size(head, len(data))
        parse(head, bytes(data[HEADER.size : end]), len(data), {})

    return run


def _prepare_beton(scratch: Scratch) -> Run:
    from ffrecord.sources import BetonReader
    from fuzz.targets import refused

    file = scratch.file("a.beton")

    def run(data: memoryview) -> None:
        path = file.put(data)
        for check in (True, False):
            reader = BetonReader(path, check, io="pread")
            try:
                reader.columns(range(min(len(reader), 8)))
            except refused():
                pass
            finally:
                drain(reader)

    return run


def _seeds(folder: Path) -> Iterator[bytes]:
    import numpy as np
    from sources.beton_twin import beton

    numbers = [{"x": i / 2, "y": -i} for i in range(5)]
    yield beton({"x": "float", "y": "int"}, numbers, 64)
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    for count in (0, 3):
        one = {"i": pixels, "b": b"bytes", "j": {"a": [1]}, "a": np.ones((2, 2), "<f4"), "n": 7}
        fields = {"i": "image", "b": "bytes", "j": "json", "a": ("array", "<f4", (2, 2)), "n": "int"}
        yield beton(fields, [one] * count, 256)
    yield beton({"i": "image"}, [{"i": (b"\xff\xd8\xff" + bytes(20), 3, 2)}] * 2, 64)
    yield beton({"a": ("tensor", "<i2", (3,))}, [{"a": np.arange(3, dtype="<i2")}] * 2, 64)


LAYOUT = "ffrecord.sources.beton.layout"
REST = tuple(f"ffrecord.sources.beton.{name}" for name in ("reader", "values"))
TARGETS = [
    Target("beton_layout", _prepare_layout, _seeds, (LAYOUT,), size_most=1 << 13),
    Target("beton", _prepare_beton, _seeds, (LAYOUT, *REST), size_most=1 << 13),
]

"""JPEG: the header, and whole pictures."""

import struct
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target


def _prepare_header(scratch: Scratch) -> Run:
    from ffrecord.fields import JPEGField
    from ffrecord.fields.images.jpeg_values import check_frame, is_whole, read_frame

    field = JPEGField()

    def run(data: memoryview) -> None:
        picture = bytes(data)
        frame = read_frame(picture)
        if frame is None:
            return
        assert frame.offset <= len(picture)
        is_whole(picture, frame)
        try:
            check_frame(field, picture)
        except ValueError as error:
            # What a writer says of a value that it does not take.
            if not str(error).startswith(("expected", "a JPEG")):
                raise

    return run


def _prepare_picture(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.fields.images.jpeg_files import jpeg_pixels

    def run(data: memoryview) -> None:
        picture = np.frombuffer(data, np.uint8)
        for grey in (False, True):
            pixels = jpeg_pixels(picture, lambda: "it", grey)
            assert pixels.dtype == np.uint8 and pixels.ndim == (2 if grey else 3)

    return run


def _seeds(folder: Path) -> Iterator[bytes]:
    import io

    import numpy as np
    from PIL import Image

    pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    for mode in ("RGB", "L", "CMYK"):
        for progressive in (False, True):
            out = io.BytesIO()
            Image.fromarray(pixels).convert(mode).save(out, "jpeg", quality=60, progressive=progressive)
            yield out.getvalue()
    thumbnail = b"\xff\xe1" + struct.pack(">H", 30) + b"\xff\xd8\xff\xc0" + bytes(24)
    yield b"\xff\xd8" + thumbnail + out.getvalue()[2:]


HEADER = ("ffrecord.fields.images.jpeg_values", "ffrecord.fields.images.jpeg_values")
TARGETS = [
    Target("jpeg_header", _prepare_header, _seeds, HEADER, ("kernels/_pictures",), size_most=1 << 10),
    Target(
        "jpeg",
        _prepare_picture,
        _seeds,
        ("ffrecord.fields.images.jpeg_files", "ffrecord.fields.images.jpeg_codec"),
        size_most=1 << 11,
    ),
]

"""JPEG: the header, and whole pictures; image files of other formats."""

import contextlib
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
            if not str(error).startswith(("the JPEG ", "a JPEG ")):
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


def _prepare_file(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.errors import FormatError
    from ffrecord.fields import ImageFileField
    from ffrecord.fields.images.image_header import read_image_header
    from ffrecord.torch.images import Resize

    field, decoder = ImageFileField(), Resize(8, exif=True)
    row = np.empty((8, 8, 3), np.uint8)

    def run(data: memoryview) -> None:
        header = read_image_header(data)
        with contextlib.suppress(FormatError):
            decoder.decode_into(data, row, 0)
        pixels = field.decode(data)
        assert header is not None and pixels.shape[:2] == (header.height, header.width)

    return run


def _file_seeds(folder: Path) -> Iterator[bytes]:
    import io

    import numpy as np
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    for kind, mode, options in (
        ("png", "RGBA", {"exif": exif}),
        ("png", "P", {}),
        ("webp", "RGB", {"exif": exif}),
        ("webp", "RGBA", {"lossless": True}),
        ("tiff", "RGB", {"exif": exif, "compression": "tiff_lzw"}),
        ("tiff", "L", {"big_tiff": True}),
        ("bmp", "P", {}),
        ("gif", "P", {}),
        ("jpeg", "RGB", {"exif": exif}),
    ):
        out = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(out, kind, **options)
        yield out.getvalue()


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
    Target(
        "image_file",
        _prepare_file,
        _file_seeds,
        (
            "ffrecord.fields.images.image_file",
            "ffrecord.fields.images.image_header",
            "ffrecord.fields.images.image_codec",
            "ffrecord.torch.images.picture",
        ),
        size_most=1 << 11,
        memory_most=640 << 20,  # 65,536 pixels for each byte of a WebP or TIFF, four bytes each
    ),
]

"""Field of PIL images, without loss."""

import io
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.describe import describe, is_image
from ffrecord.fields.field import Field, check_range, mismatch, register
from ffrecord.fields.optional import require

PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
# Modes that PNG does not hold are stored as they are: dtype of a channel, channels.
RAW_MODES = {
    "CMYK": ("|u1", 4),
    "YCbCr": ("|u1", 3),
    "LAB": ("|u1", 3),
    "HSV": ("|u1", 3),
    "I": ("<i4", 1),
    "F": ("<f4", 1),
}
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
RAW = struct.Struct("<B8sII")  # 0, mode, width, height


@register
@dataclass(frozen=True)
class ImageField(Field):
    """PIL images of any size and of modes 1, L, LA, P, RGB, RGBA, I;16, I, F, CMYK, YCbCr, LAB and HSV, without loss.

    Stored as PNG, or as plain pixels where PNG does not have the mode. They come back as PIL images of the same mode
    and pixels; of what else PIL keeps beside the pixels, only what Pillow writes into a PNG.

    Args:
        compress_level: of PNG, in [0, 9]. Lower is faster and larger.
    """

    kind: ClassVar[str] = "image"
    compress_level: int = 1

    def __post_init__(self) -> None:
        check_range("compress_level", self.compress_level, 0, 9)

    @property
    def expects(self) -> str:
        return "a PIL image"

    def encode(self, value: Any) -> bytes:
        if not is_image(value):
            raise TypeError(mismatch(self, value))
        if value.mode not in PNG_MODES and value.mode not in RAW_MODES:
            raise ValueError(mismatch(self, value, "no lossless form of that mode; convert it"))
        if not value.width or not value.height:
            raise ValueError(mismatch(self, value, "an image without pixels"))
        try:
            return _raw(value) if value.mode in RAW_MODES else self._png(value)
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{describe(value)} does not load: {error}") from error

    def _png(self, image: Any) -> bytes:
        out = io.BytesIO()
        _with_whole_palette(image).save(out, "PNG", compress_level=self.compress_level)
        return out.getvalue()

    def decode(self, data: memoryview) -> Any:
        pillow = require("PIL.Image", "image", "an image field")
        if data[: len(PNG_MAGIC)] != PNG_MAGIC:
            return _from_raw(data, pillow)
        try:
            image = pillow.open(io.BytesIO(data), formats=["PNG"])
            image.load()
        except MemoryError:
            raise
        except Exception as error:  # Pillow documents no list of what bad bytes may raise
            raise FormatError(f"a PNG of {len(data)} bytes that Pillow does not read: {error}") from error
        return image


def _with_whole_palette(image: Any) -> Any:
    """`image`, or one with the same pixels and 256 colours where it has pixels without a colour.

    Pillow would store those pixels as the last colour: masks of 21 classes and 255 for none lose it so.
    """
    if image.mode != "P":
        return image
    mode = image.palette.mode if image.palette else "RGB"
    colours = image.getpalette(mode) or []
    if image.getextrema()[1] * len(mode) < len(colours):
        return image
    whole = image.copy()
    whole.putpalette(colours + [0] * (256 * len(mode) - len(colours)), mode)
    return whole


def _raw(image: Any) -> bytes:
    pixels = np.asarray(image).astype(RAW_MODES[image.mode][0], copy=False)
    return b"".join((RAW.pack(0, image.mode.encode(), image.width, image.height), pixels.tobytes()))


def _from_raw(data: memoryview, pillow: Any) -> Any:
    if len(data) < RAW.size or data[0] != 0:
        raise FormatError(f"{len(data)} bytes that are neither PNG nor plain pixels")
    _, name, width, height = RAW.unpack(data[: RAW.size])
    mode = name.rstrip(b"\0").decode("latin-1")
    if mode not in RAW_MODES:
        raise FormatError(f"plain pixels of mode {mode!r}, expected one of {', '.join(RAW_MODES)}")
    dtype, channels = np.dtype(RAW_MODES[mode][0]), RAW_MODES[mode][1]
    expected = width * height * channels * dtype.itemsize
    if len(data) - RAW.size != expected or not expected:
        raise FormatError(f"{len(data) - RAW.size} bytes of {mode} pixels, expected {expected} of {width} x {height}")
    pixels = np.frombuffer(data[RAW.size :], dtype)
    return pillow.frombytes(mode, (width, height), pixels.astype(dtype.newbyteorder("=")).tobytes())

"""Field of PIL images, stored without loss."""

import io
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Field, check_range, mismatch, register
from ffrecord.fields.images.image_header import PER_BYTE
from ffrecord.fields.images.pixels import MODES, PIXELS_MAX, pack_pixels, too_large, unpack_pixels
from ffrecord.system.requirements import require
from ffrecord.system.values import describe, is_image

PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
# Modes that PNG does not hold are stored as they are.
RAW_MODES = tuple(mode for mode in MODES if mode not in PNG_MODES)
NAME = "an image field"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


@register
@dataclass(frozen=True)
class ImageField(Field):
    """PIL images of any size and of modes 1, L, LA, P, RGB, RGBA, I;16, I, F, CMYK, YCbCr, LAB and HSV, without loss.

    Images are stored as PNG, or as plain pixels if PNG does not have the mode. They come back as PIL images with the
    same mode and pixels. Of other data that PIL keeps with an image, only the data that Pillow writes into a PNG comes
    back.

    Args:
        compress_level: compression level of PNG, in [0, 9]. Lower is faster and larger.
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
            stored = "ImageFileField() stores files as they are" if isinstance(value, bytes | PathLike) else ""
            raise TypeError(mismatch(self, value, stored))
        if value.mode not in PNG_MODES and value.mode not in RAW_MODES:
            raise ValueError(mismatch(self, value, "this mode has no lossless form: convert it"))
        # Neither form holds an image without pixels.
        if not value.width or not value.height:
            raise ValueError(mismatch(self, value, "it has no pixels"))
        try:
            return pack_pixels(value.mode, np.asarray(value)) if value.mode in RAW_MODES else self._png(value)
        # Pillow loads lazily, so a damaged file shows only here.
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{describe(value)} cannot be loaded: {error}") from error

    def _png(self, image: Any) -> bytes:
        # The same limit as in reading: what is written can be read.
        wrong = too_large("a PNG", image.width, image.height)
        if wrong:
            raise ValueError(f"{wrong}; NDArrayField('uint8', (None, None, 3)) stores larger ones")
        out = io.BytesIO()
        _with_whole_palette(image).save(out, "PNG", compress_level=self.compress_level)
        return out.getvalue()

    def decode(self, data: memoryview) -> Any:
        # The first byte tells both forms apart: plain pixels begin with 0.
        if data[: len(PNG_MAGIC)] != PNG_MAGIC:
            mode, pixels = unpack_pixels(data, RAW_MODES)
            height, width, _ = pixels.shape
            # Pillow takes pixels of modes I and F in native order.
            native = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
            return require("PIL.Image", "image", NAME).frombytes(mode, (width, height), native.tobytes())
        plugin = require("PIL.PngImagePlugin", "image", NAME)
        try:
            # Image.open has a limit that belongs to the program, and warns below it.
            image = plugin.PngImageFile(io.BytesIO(data))
            # By the header, before the pixels are allocated.
            self._check_size(image, len(data))
            image.load()
        except (MemoryError, FormatError):  # out of memory is not the file's fault
            raise
        except Exception as error:  # Pillow does not document the errors that bad bytes raise
            raise FormatError(f"Pillow cannot read a PNG of {len(data)} bytes: {error}") from error
        return image

    def _check_size(self, image: Any, size: int) -> None:
        # A PNG of so few bytes cannot have more pixels, so its header lies.
        limit = min(PIXELS_MAX, PER_BYTE["PNG"] * size)
        wrong = too_large(f"a PNG of {size} bytes and", image.width, image.height, limit)
        if wrong:
            raise FormatError(wrong)


def _with_whole_palette(image: Any) -> Any:
    """Return `image`, with all 256 colours in its palette if some pixels have no colour.

    Pillow would store these pixels as the last colour. A mask of 21 classes, and 255 for none, would lose its 255.
    """
    if image.mode != "P":
        return image
    mode = image.palette.mode if image.palette else "RGB"
    colours = image.getpalette(mode) or []
    # The largest index has a colour: nothing to do.
    if image.getextrema()[1] * len(mode) < len(colours):
        return image
    whole = image.copy()
    whole.putpalette(colours + [0] * (256 * len(mode) - len(colours)), mode)
    return whole

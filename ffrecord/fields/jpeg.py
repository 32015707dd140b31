"""Field of JPEG images."""

import io
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.describe import describe, is_image
from ffrecord.fields.field import Array, Encoded, Field, check_range, mismatch, register
from ffrecord.fields.optional import optional, require

MAGIC = b"\xff\xd8\xff"
PIXELS_MAX = 178_956_970  # where Pillow too takes a compressed image for a bomb
SIDE_MAX = 65535


@register
@dataclass(frozen=True)
class JPEGField(Field):
    """JPEG images. JPEG bytes are stored as they are; uint8 arrays and PIL images are compressed.

    Takes JPEG bytes, uint8 arrays [H, W, 3] (RGB) or [H, W] (grey), PIL images of mode RGB or L. Decodes to writable
    uint8 arrays: [H, W] if the JPEG is grey, else RGB [H, W, 3], CMYK converted. An EXIF orientation is not applied.
    simplejpeg does the work where it is installed, else Pillow.

    Args:
        quality: in [1, 100], of images that are compressed here, with chroma halved in both directions (4:2:0).
        as_bytes: decode to the JPEG's bytes.
    """

    kind: ClassVar[str] = "jpeg"
    quality: int = 90
    as_bytes: bool = False

    def __post_init__(self) -> None:
        check_range("quality", self.quality, 1, 100)
        if not isinstance(self.as_bytes, bool):
            raise TypeError(f"as_bytes is {self.as_bytes!r}, expected a bool")

    @property
    def expects(self) -> str:
        return "JPEG bytes, a uint8 array [H, W, 3] or [H, W], or a PIL image of mode RGB or L"

    def encode(self, value: Any) -> Encoded:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._checked_bytes(value)
        if is_image(value) and value.mode in ("RGB", "L"):
            try:
                value = np.asarray(value)
            except (OSError, SyntaxError) as error:
                raise ValueError(f"{describe(value)} does not load: {error}") from error
        return _compress(self._checked_array(value), self.quality)

    def _checked_bytes(self, value: bytes | bytearray | memoryview) -> bytes | bytearray:
        data = value.tobytes() if isinstance(value, memoryview) else value
        if not data.startswith(MAGIC):
            raise ValueError(f"expected {self.expects}, found {len(data)} bytes that begin with {bytes(data[:3])!r}")
        return data

    def _checked_array(self, value: Any) -> Array:
        if not isinstance(value, np.ndarray) or value.dtype != np.uint8:
            raise TypeError(mismatch(self, value))
        if value.ndim != 2 and (value.ndim != 3 or value.shape[2] != 3):
            raise ValueError(mismatch(self, value))
        if not all(1 <= side <= SIDE_MAX for side in value.shape[:2]):
            raise ValueError(mismatch(self, value, f"sides of 1 to {SIDE_MAX}"))
        return np.ascontiguousarray(value)

    def decode(self, data: memoryview) -> Any:
        if data[: len(MAGIC)] != MAGIC:
            raise FormatError(f"{len(data)} bytes that begin with {bytes(data[:3])!r}, expected a JPEG")
        return bytes(data) if self.as_bytes else _decompress(data)


def _compress(array: Array, quality: int) -> bytes:
    grey = array.ndim == 2
    simplejpeg = optional("simplejpeg")
    if simplejpeg is not None:
        pixels, space, sampling = (array[:, :, None], "GRAY", "Gray") if grey else (array, "RGB", "420")
        return bytes(simplejpeg.encode_jpeg(pixels, quality, space, sampling))
    out = io.BytesIO()
    pillow = require("PIL.Image", "jpeg", "a JPEG field without simplejpeg")
    pillow.fromarray(array).save(out, "JPEG", quality=quality, subsampling="4:2:0")
    return out.getvalue()


def _decompress(data: memoryview) -> Array:
    simplejpeg = optional("simplejpeg")
    if simplejpeg is None:
        return _decompress_pillow(data, require("PIL.Image", "jpeg", "a JPEG field without simplejpeg"))
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        if width * height > PIXELS_MAX:
            raise FormatError(f"a JPEG of {width} x {height} pixels, expected at most {PIXELS_MAX} in all")
        if space == "Gray":
            grey: Array = simplejpeg.decode_jpeg(data, "GRAY")
            return grey[:, :, 0]
        if space in ("YCbCr", "RGB"):
            colour: Array = simplejpeg.decode_jpeg(data, "RGB")
            return colour
        pillow = require("PIL.Image", "image", f"a JPEG of {space}")
    except FormatError:
        raise
    except ValueError as error:
        # It refuses what it could repair, such as stray bytes between segments; Pillow repairs that, but refuses an
        # image that ends early.
        pillow = optional("PIL.Image")
        if pillow is None:
            raise FormatError(f"a JPEG of {len(data)} bytes that simplejpeg does not read: {error}") from error
    return _decompress_pillow(data, pillow)


def _decompress_pillow(data: memoryview, pillow: Any) -> Array:
    try:
        image = pillow.open(io.BytesIO(data), formats=["JPEG"])
        return np.array(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    except MemoryError:
        raise
    except Exception as error:  # Pillow documents no list of what bad bytes may raise
        raise FormatError(f"a JPEG of {len(data)} bytes that Pillow does not read: {error}") from error

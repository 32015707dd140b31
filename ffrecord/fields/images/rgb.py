"""Fields of photographs: JPEG files as they are, and RGB images as pixels or as JPEG."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord._crc import crc32
from ffrecord.fields.field import Array, Encoded, Field, check_range, register
from ffrecord.fields.images.file_values import name_path
from ffrecord.fields.images.image_header import Data
from ffrecord.fields.images.jpeg_codec import MAGIC, check_begin, compress, decompress
from ffrecord.fields.images.jpeg_values import check_frame, check_pixels, jpeg_file
from ffrecord.fields.images.pixels import pack_pixels, unpack_pixels
from ffrecord.system.requirements import require
from ffrecord.system.values import describe, describe_wrong

MODES = ("RGB", "L")


@register
@dataclass(frozen=True)
class JPEGField(Field):
    """JPEG images. JPEG files are stored as they are; pixels are compressed.

    Takes JPEG bytes, the path of a JPEG file, PIL images of mode RGB or L, and uint8 arrays [H, W, 3] (RGB) or [H, W]
    (grey). A PIL image that was opened from a JPEG and is not loaded yet is stored as its file.

    Decodes to writable uint8 arrays: [H, W] if the JPEG is grey, else RGB [H, W, 3]; CMYK is converted. An EXIF
    orientation is not applied: `PIL.ImageOps.exif_transpose(image)` turns the pixels before you store them. simplejpeg
    encodes and decodes if it is installed, else Pillow.

    Args:
        quality: quality in [1, 100] of images that are compressed here, with chroma halved in both directions (4:2:0).
        as_bytes: decode to the JPEG's bytes; then you can also store JPEG files that cannot be decoded here.
    """

    kind: ClassVar[str] = "jpeg"
    quality: int = 90
    as_bytes: bool = False

    def __post_init__(self) -> None:
        check_range("quality", self.quality, 1, 100)
        if not isinstance(self.as_bytes, bool):
            raise TypeError(describe_wrong("as_bytes", self.as_bytes, "True or False"))

    @property
    def expects(self) -> str:
        return "JPEG bytes, the path of a JPEG, a uint8 array [H, W, 3] or [H, W], or a PIL image of mode RGB or L"

    @name_path
    def encode(self, value: Any) -> Encoded:  # pyright: ignore[reportIncompatibleMethodOverride]
        # Only RGB and L: other modes would have to be converted.
        file = jpeg_file(self, value, MODES, views=type(self) is JPEGField)
        if file is None:
            return compress(check_pixels(self, value, grey=True), self.quality)
        # With as_bytes nobody decodes it here.
        if not self.as_bytes:
            check_frame(self, file)
        return file

    def decode(self, data: memoryview) -> Any:
        if not self.as_bytes:
            return decompress(data, grey=True)
        # Not decoded, but it must at least begin like a JPEG.
        check_begin(data)
        return bytes(data)


WRITE_MODES = ("raw", "jpeg", "smart", "proportion")
CHANNELS = 3
Size = tuple[int, int]  # width, height


@register
@dataclass(frozen=True)
class RGBImageField(Field):
    """RGB images, each stored as plain pixels or as a JPEG; `write_mode` decides.

    Takes uint8 arrays [H, W, 3], PIL images of mode RGB, JPEG bytes, and the path of a JPEG file. A PIL image that was
    opened from a JPEG and is not loaded yet counts as its file.

    Decodes to writable uint8 arrays [H, W, 3], also from JPEG files of grey or CMYK. An EXIF orientation is not
    applied.

    A JPEG file that is to be stored as a JPEG of the same size is stored as it is, whatever its quality. All other
    values are decoded, and compressed if they are to be stored as a JPEG.

    Args:
        write_mode: "raw": plain pixels; "jpeg"; "smart": a JPEG if the plain pixels are larger than `smart_threshold`;
            "proportion": a JPEG with probability `compress_probability`. A hash of the value's bytes decides, so every
            writer stores the same image in the same way.
        max_resolution: pixels, 1 or more. An image whose longer side is longer is first scaled down to it, in
            proportion (Pillow's bicubic filter). None leaves images as they are.
        smart_threshold: bytes of plain pixels, 0 or more; only for "smart".
        jpeg_quality: quality in [1, 100] of images that are compressed here, with chroma halved in both directions
            (4:2:0).
        compress_probability: in [0, 1]; only for "proportion".

    Raises:
        TypeError, ValueError: a parameter is of another type or out of range.
    """

    kind: ClassVar[str] = "rgb"
    write_mode: str = "raw"
    max_resolution: int | None = None
    smart_threshold: int | None = None
    jpeg_quality: int = 90
    compress_probability: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.write_mode, str) or self.write_mode not in WRITE_MODES:
            raise ValueError(f"write_mode is {describe(self.write_mode)}, expected one of {', '.join(WRITE_MODES)}")
        if self.max_resolution is not None:
            check_range("max_resolution", self.max_resolution, 1, 2**31 - 1)
        if (self.smart_threshold is not None) != (self.write_mode == "smart"):
            raise ValueError(
                f"smart_threshold is {describe(self.smart_threshold)} with write_mode={self.write_mode!r}, expected a "
                "number of bytes with 'smart' and None with the others"
            )
        if self.smart_threshold is not None:
            check_range("smart_threshold", self.smart_threshold, 0, 2**63 - 1)
        check_range("jpeg_quality", self.jpeg_quality, 1, 100)
        _check_probability(self.compress_probability)

    @property
    def expects(self) -> str:
        return "a uint8 array [H, W, 3], a PIL image of mode RGB, JPEG bytes, or the path of a JPEG"

    @name_path
    def encode(self, value: Any) -> Encoded:  # pyright: ignore[reportIncompatibleMethodOverride]
        # A grey JPEG counts as a file here, too: it decodes to RGB.
        file = jpeg_file(self, value, ("RGB",), views=type(self) is RGBImageField)
        return self._encode_pixels(check_pixels(self, value, grey=False)) if file is None else self._encode_file(file)

    def _encode_file(self, file: Data) -> Encoded:
        frame = check_frame(self, file)
        size = self._stored_size(frame.width, frame.height)
        as_jpeg = self._is_jpeg(size, file)
        # As it is: decoding and compressing again would lose quality.
        if as_jpeg and size == (frame.width, frame.height):
            return file
        return self._pack(decompress(file, grey=False), size, as_jpeg)

    def _encode_pixels(self, pixels: Array) -> bytes:
        size = self._stored_size(pixels.shape[1], pixels.shape[0])
        return self._pack(pixels, size, self._is_jpeg(size, pixels.data))

    def _stored_size(self, width: int, height: int) -> Size:
        longer = max(width, height)
        if self.max_resolution is None or longer <= self.max_resolution:
            return width, height
        # Integers give the same size on every machine; floats might be rounded differently.
        width, height = ((side * self.max_resolution + longer // 2) // longer for side in (width, height))
        return max(1, width), max(1, height)  # a very long side must not make the other one 0

    def _is_jpeg(self, size: Size, content: Data) -> bool:
        if self.write_mode == "smart":
            return CHANNELS * size[0] * size[1] > (self.smart_threshold or 0)
        if self.write_mode == "proportion":
            # The CRC-32 is as good as random, and the same for every writer.
            return crc32(content) < self.compress_probability * 2**32
        return self.write_mode == "jpeg"

    def _pack(self, pixels: Array, size: Size, as_jpeg: bool) -> bytes:
        if size != (pixels.shape[1], pixels.shape[0]):
            pillow = require("PIL.Image", "image", "max_resolution")
            pixels = np.asarray(pillow.fromarray(pixels).resize(size, pillow.Resampling.BICUBIC))
        return compress(pixels, self.jpeg_quality) if as_jpeg else pack_pixels("RGB", pixels)

    def decode(self, data: memoryview) -> Array:
        if data[: len(MAGIC)] == MAGIC:
            return decompress(data, grey=False)
        # A copy: the record is read-only, and larger than the image.
        return unpack_pixels(data, ("RGB",))[1].copy()


def _check_probability(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(describe_wrong("compress_probability", value, "a float"))
    if not 0 <= value <= 1:
        raise ValueError(f"compress_probability is {describe(value)}, expected 0 to 1")

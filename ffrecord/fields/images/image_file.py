"""Field of image files of any format, stored as they are."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Encoded, Field, mismatch, register
from ffrecord.fields.images.file_values import name_path, read_file, read_opened
from ffrecord.fields.images.image import PNG_MODES, ImageField
from ffrecord.fields.images.image_codec import FORMATS, check_image_header, decode_image_file
from ffrecord.fields.images.image_header import Data, image_format, is_cut
from ffrecord.fields.images.jpeg_values import check_frame
from ffrecord.fields.images.pixels import not_of_kind
from ffrecord.system.requirements import require
from ffrecord.system.values import describe_wrong, is_image

PIXELS = (np.uint8, np.uint16)


@register
@dataclass(frozen=True)
class ImageFileField(Field):
    """Image files as they are: JPEG, PNG, WebP, TIFF, BMP and GIF, also mixed.

    Takes the bytes of a file, its path, and PIL images and arrays: uint8 [H, W, 3] (RGB) and [H, W] (grey), uint16
    [H, W]. A PIL image that was opened from a file and is not loaded yet is stored as its file. All others become PNG,
    without loss.

    Decodes the first frame or page to a writable array: uint8 [H, W, 3] in RGB; [H, W] if the image is grey, uint8, or
    uint16 of 16 bits, int32 and float32 of TIFF. Palettes give their colours, 1 bit gives 0 and 255. Alpha is dropped.
    An EXIF orientation is not applied. Pillow decodes; JPEG needs simplejpeg or Pillow.

    Args:
        as_bytes: decode to the file's bytes; then you can also store files that cannot be decoded here.
    """

    kind: ClassVar[str] = "image_file"
    as_bytes: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.as_bytes, bool):
            raise TypeError(describe_wrong("as_bytes", self.as_bytes, "True or False"))

    @property
    def expects(self) -> str:
        return f"the bytes or path of a {FORMATS} file, a PIL image, or an array of pixels"

    @name_path
    def encode(self, value: Any) -> Encoded:  # pyright: ignore[reportIncompatibleMethodOverride]
        # A field of a user that derives from this one must get bytes.
        data = read_file(value, views=type(self) is ImageFileField)
        if data is not None:
            return self._check_file(data)
        if is_image(value):
            # The file itself if it is still untouched, or else its pixels.
            return _file_of(value) or self._encode_png(value)
        if not isinstance(value, np.ndarray) or value.dtype not in PIXELS:
            raise TypeError(mismatch(self, value))
        colour = value.ndim == 3 and value.shape[2] == 3 and value.dtype == np.uint8
        if not (colour or value.ndim == 2) or not value.size:
            raise ValueError(mismatch(self, value))
        return self._encode_png(require("PIL.Image", "image", "an image file").fromarray(np.ascontiguousarray(value)))

    def _encode_png(self, image: Any) -> bytes:
        # Pixels become PNG, which keeps them without loss.
        if image.mode not in PNG_MODES:
            raise TypeError(mismatch(self, image, f"convert it to {' or '.join(PNG_MODES)}, or take ImageField()"))
        return ImageField().encode(image)

    def _check_file(self, data: Data) -> Data:
        kind = image_format(data)
        if kind is None:
            raise ValueError(not_of_kind(data, self.expects, "; BytesField() stores any bytes"))
        # With as_bytes nobody decodes it here, so it need not be readable.
        if self.as_bytes:
            return data
        # The frame header of a JPEG is found as decoders find it, and its end is looked for.
        if kind == "JPEG":
            check_frame(self, data)
            return data
        try:
            header = check_image_header(data)
        except FormatError as error:
            raise ValueError(f"{error}, expected {self.expects}; BytesField() stores any bytes") from None
        # Checked in writing: otherwise a file that was cut is found only when somebody reads it.
        if is_cut(data, header):
            raise ValueError(f"the {kind} of {len(data)} bytes ends before its image does, expected {self.expects}")
        return data

    def decode(self, data: memoryview) -> Any:
        if not self.as_bytes:
            return decode_image_file(data)
        if image_format(data) is None:
            raise FormatError(not_of_kind(data, FORMATS))
        return bytes(data)


def _file_of(image: Any) -> bytes | None:
    """Return the file that a PIL image was opened from, if it was not loaded or changed since; else None.

    Raises:
        ValueError: the file is closed.
    """
    # An image without tiles is loaded, but WebP never has any: there the content of `fp` tells. A decoder configuration
    # means that draft() asked for another size or mode.
    webp = getattr(image, "format", None) == "WEBP" and getattr(image, "fp", None) is not None
    if getattr(image, "decoderconfig", None) or not (webp or getattr(image, "tile", None)):
        return None
    data = read_opened(image)
    kind = image_format(data)
    # Of several frames, the first one is meant by a file.
    return None if image.tell() or kind is None or (webp and kind != "WebP") else data

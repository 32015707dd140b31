"""Field of JPEG images."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ffrecord.fields.field import Encoded, Field, check_range, register
from ffrecord.fields.images.jpeg_codec import check_begin, compress, decompress
from ffrecord.fields.images.jpeg_values import check_frame, check_pixels, jpeg_file

MODES = ("RGB", "L")


@register
@dataclass(frozen=True)
class JPEGField(Field):
    """JPEG images. JPEG files are stored as they are; pixels are compressed.

    Takes JPEG bytes, the path of a JPEG file, PIL images of mode RGB or L, and uint8 arrays [H, W, 3] (RGB) or [H, W]
    (grey). A PIL image that was opened from a JPEG and is not loaded yet is stored as its file.

    Decodes to writable uint8 arrays: [H, W] if the JPEG is grey, else RGB [H, W, 3]; CMYK is converted. An EXIF
    orientation is not applied. simplejpeg encodes and decodes if it is installed, else Pillow.

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
            raise TypeError(f"as_bytes is {self.as_bytes!r}, expected a bool")

    @property
    def expects(self) -> str:
        return "JPEG bytes, the path of a JPEG, a uint8 array [H, W, 3] or [H, W], or a PIL image of mode RGB or L"

    def encode(self, value: Any) -> Encoded:
        file = jpeg_file(self, value, MODES, views=type(self) is JPEGField)
        if file is None:
            return compress(check_pixels(self, value, grey=True), self.quality)
        if not self.as_bytes:
            check_frame(self, file)
        return file

    def decode(self, data: memoryview) -> Any:
        if not self.as_bytes:
            return decompress(data, grey=True)
        check_begin(data)
        return bytes(data)

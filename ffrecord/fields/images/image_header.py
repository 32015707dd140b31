"""Headers of image files, read without a decoder: format and sides."""

import struct
from collections.abc import Callable
from typing import NamedTuple

from ffrecord.fields.images.jpeg_codec import MAGIC as JPEG_MAGIC
from ffrecord.fields.images.jpeg_codec import PIXELS_PER_BYTE as JPEG_PER_BYTE
from ffrecord.fields.images.pixels import PIXELS_MAX
from ffrecord.kernels import _pictures

Data = bytes | bytearray | memoryview  # a view is flat

# Pixels for each byte of a file. A blank image has the most. In PNG and GIF a pixel takes at least one bit, and a byte
# expands to at most 1032. Codes of WebP and TIFF have no limit, but the encoders of Pillow stay below half of this.
PER_BYTE = {"JPEG": JPEG_PER_BYTE, "PNG": 8 * 1032, "GIF": 8 * 1032, "BMP": 128, "WebP": 1 << 16, "TIFF": 1 << 16}
PIXELS_LEAST = 1 << 20  # always allowed: 3 MB of RGB
TAGS_MOST = 4096  # entries of a TIFF directory that are looked at
WIDTH, HEIGHT = 256, 257  # tags of TIFF
WIDE = {3: "H", 4: "I", 16: "Q"}  # types of whole numbers in TIFF
DIB_SIZES = (12, 16, 40, 52, 56, 64, 108, 124)  # of the header that follows "BM" and 12 bytes


class ImageHeader(NamedTuple):
    """The format of an image file and the sides that its header claims, in pixels."""

    format: str
    width: int
    height: int

    def pixels_max(self, size: int) -> int:
        """Return the largest number of pixels that is believed of a file of `size` bytes."""
        return min(PIXELS_MAX, max(PIXELS_LEAST, PER_BYTE[self.format] * size))


def image_format(data: Data) -> str | None:
    """Return the format that the first bytes show: JPEG, PNG, GIF, BMP, WebP or TIFF; None for another one."""
    head = bytes(data[:16])
    if head.startswith(JPEG_MAGIC):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    # "RIFF" also begins sounds, so the second word counts.
    if head.startswith(b"RIFF") and head[8:15] == b"WEBPVP8":
        return "WebP"
    # BigTIFF has 43 instead of 42, and offsets of 8 bytes.
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0")):
        return "TIFF"
    # "BM" alone begins many texts.
    if head.startswith(b"BM") and bytes(data[14:18]) in (size.to_bytes(4, "little") for size in DIB_SIZES):
        return "BMP"
    return None


def read_image_header(data: Data) -> ImageHeader | None:
    """Read the header of an image file; None if it is of another format, has no readable header, or no pixels."""
    kind = image_format(data)
    if kind is None:
        return None
    try:
        found = SIDES[kind](data)
    # A header that ends early is no header.
    except (struct.error, IndexError, OverflowError):
        return None
    # An image without pixels cannot be decoded.
    return ImageHeader(kind, *found) if found is not None and min(found) > 0 else None


def is_cut(data: Data, header: ImageHeader) -> bool:
    """Tell whether a file ends before its image does, as far as its format tells without decoding."""
    if header.format == "PNG":
        # Some programs append data behind the end of a PNG, so look for it anywhere.
        return bytes(data[-12:]) != PNG_END and bytes(data).find(PNG_END) < 0
    if header.format == "WebP":
        # RIFF states its size at the start.
        return bool(struct.unpack_from("<I", data, 4)[0] + 8 > len(data))
    return False


PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
Sides = tuple[int, int]  # width, height


def _jpeg_sides(data: Data) -> Sides | None:
    frame = _pictures.read_frame(data)
    return None if frame is None else (frame[2], frame[1])  # height comes first in a JPEG


def _png_sides(data: Data) -> Sides | None:
    return struct.unpack_from(">II", data, 16) if data[12:16] == b"IHDR" else None


def _gif_sides(data: Data) -> Sides | None:
    return struct.unpack_from("<HH", data, 6)


def _bmp_sides(data: Data) -> Sides | None:
    # OS/2 headers have unsigned sides, of 16 bits in the oldest.
    if data[14] in (12, 16):
        return struct.unpack_from("<HH" if data[14] == 12 else "<II", data, 18)
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)  # below 0: the rows begin at the top


def _webp_sides(data: Data) -> Sides | None:
    kind = bytes(data[12:16])
    if kind == b"VP8X" and len(data) >= 30:
        # Extended WebP: 24 bits each, less one.
        return tuple(1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))  # type: ignore[return-value]
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        # Lossless WebP: 14 bits each, less one.
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        # Lossy WebP: 14 bits each; the upper two are a scale.
        return width & 0x3FFF, height & 0x3FFF
    return None


def _tiff_sides(data: Data) -> Sides | None:
    order = "<" if data[0] == ord("I") else ">"
    big = data[2] == 43 or data[3] == 43  # BigTIFF has 64-bit offsets
    word, count = ("Q", "Q") if big else ("I", "H")
    (at,) = struct.unpack_from(order + word, data, 8 if big else 4)
    (entries,) = struct.unpack_from(order + count, data, at)
    entry = struct.Struct(f"{order}HH{word}")
    value_size = struct.calcsize(word)
    at += struct.calcsize("=" + count)
    sides: dict[int, int] = {}
    # The number of entries comes from the file.
    for _ in range(min(entries, TAGS_MOST)):
        tag, kind, number = entry.unpack_from(data, at)
        # One number stands in the entry itself.
        if tag in (WIDTH, HEIGHT) and kind in WIDE and number == 1:
            (sides[tag],) = struct.unpack_from(order + WIDE[kind], data, at + entry.size)
        elif tag > HEIGHT:
            break  # tags ascend
        at += entry.size + value_size
    return (sides[WIDTH], sides[HEIGHT]) if len(sides) == 2 else None


SIDES: dict[str, Callable[[Data], Sides | None]] = {
    "JPEG": _jpeg_sides,
    "PNG": _png_sides,
    "GIF": _gif_sides,
    "BMP": _bmp_sides,
    "WebP": _webp_sides,
    "TIFF": _tiff_sides,
}

"""Pictures among values, as files that browsers show."""

import io
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.system.requirements import import_optional

Pixels = npt.NDArray[np.uint8]

SIDE_LEAST = 8  # pixels of a side; smaller arrays are rather numbers than pictures
SIDE_MOST = 16_384
DARK = 64  # grey arrays without larger values are brightened, such as masks of class numbers or digits of 17 shades
SMALL = 320  # pixels of the longer side of a thumbnail
SMALL_BYTES = 64 << 10  # files up to this size are their own thumbnails
PIXELS_MOST = 100 << 20  # pixels of a file; no thumbnail is made of a larger one
MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png", b"GIF8": "image/gif"}
COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels → colour type of PNG


class Picture(NamedTuple):
    """A file that browsers show, and its media type."""

    type: str
    data: bytes


def picture_of(value: Any, *, small: bool = False, side: int = SMALL, size: int = SMALL_BYTES) -> Picture | None:
    """Return a value as a file that browsers show; None if it is no picture.

    JPEG, PNG, GIF and WebP bytes stay as they are. PIL images, and arrays that look like pixels, become PNG.

    Args:
        value: any value.
        small: whether a thumbnail is enough.
        side: pixels of the longer side of a thumbnail.
        size: files of up to so many bytes are their own thumbnails.
    """
    data = bytes_of(value)
    if data is not None:
        kind = type_of(data[:16])  # 16 bytes are enough for every kind
        return None if kind is None else _shrink_file(Picture(kind, bytes(data)), small, side, size)
    pixels = pixels_of(value)
    if pixels is None:
        return None
    # A step rounded up keeps the picture within `side`.
    step = max(1, -(-max(pixels.shape[:2]) // side)) if small else 1
    return Picture("image/png", encode_png(pixels[::step, ::step]))


def is_picture(value: Any) -> bool:
    """Tell whether `picture_of` returns a picture."""
    data = bytes_of(value)
    return type_of(data[:16]) is not None if data is not None else _looks_like_pixels(value)


def bytes_of(value: Any) -> memoryview | None:
    """Return the bytes of a value that is bytes, or None. Records have bytes as flat uint8 arrays."""
    if isinstance(value, bytes | bytearray | memoryview):
        return memoryview(value)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
        return np.ascontiguousarray(value).data
    return None


def type_of(start: memoryview) -> str | None:
    """Return the media type of a file by its first bytes; None if browsers do not show it."""
    head = bytes(start)
    # RIFF is also the container of sounds and videos.
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)


def _looks_like_pixels(value: Any) -> bool:
    if _is_image(value):
        return True
    # Other types are numbers rather than pixels.
    if not isinstance(value, np.ndarray) or value.dtype not in (np.uint8, np.bool_):
        return False
    shape = value.shape
    # Channels first, as torch has them.
    if len(shape) == 3 and shape[2] not in COLOUR_TYPES and shape[0] in COLOUR_TYPES:
        shape = shape[1:]
    elif len(shape) == 3 and shape[2] not in COLOUR_TYPES:
        return False
    return len(shape) in (2, 3) and all(SIDE_LEAST <= side <= SIDE_MOST for side in shape[:2])


def pixels_of(value: Any) -> Pixels | None:
    """Return the pixels of a picture, [H, W, channels], or None if the value is no picture.

    Pictures are PIL images, and uint8 or bool arrays [H, W], [H, W, c] or [c, H, W] with c of 1, 3 or 4.
    """
    if not _looks_like_pixels(value):
        return None
    if _is_image(value):
        # Palettes, CMYK and others become RGB; transparency is kept.
        mode = value.mode if value.mode in ("L", "RGB", "RGBA") else "RGBA" if "A" in value.mode else "RGB"
        value = np.asarray(value.convert(mode))
    pixels: Pixels = value.view(np.uint8) * 255 if value.dtype == np.bool_ else value  # bool masks: 0 and 255
    if pixels.ndim == 3 and pixels.shape[2] not in COLOUR_TYPES:
        pixels = pixels.transpose(1, 2, 0)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    # Grey only: in colours, dark pixels are an ordinary dark picture.
    most = int(pixels.max()) if pixels.shape[2] == 1 else 255
    return pixels * np.uint8(255 // most) if 0 < most < DARK else pixels


def _is_image(value: Any) -> bool:
    # Only a value of PIL makes Pillow worth importing.
    image = import_optional("PIL.Image") if type(value).__module__.startswith("PIL.") else None
    return image is not None and isinstance(value, image.Image)


def encode_png(pixels: Pixels) -> bytes:
    """Encode pixels, [H, W, 1, 3 or 4], as PNG: fast, with unfiltered rows and little compression."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with the number of its filter; 0: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    # Level 1: the file goes to a browser once.
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_encode_chunk(name, data) for name, data in parts)


def _encode_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _shrink_file(picture: Picture, small: bool, side: int, size: int) -> Picture:
    """Return the picture, or a thumbnail of a large one if Pillow is installed and can read it."""
    image = import_optional("PIL.Image") if small and len(picture.data) > size else None
    if image is None:
        return picture
    try:
        # Only these formats: Pillow's rarer decoders are a risk with files of strangers.
        with image.open(io.BytesIO(picture.data), formats=("JPEG", "PNG", "WEBP")) as opened:
            # The header is read by now, and a small file may unpack to gigabytes.
            if opened.width * opened.height > PIXELS_MOST:
                return picture
            opened.draft("RGB", (side, side))  # makes the JPEG decoder skip detail that a thumbnail does not show
            opened.thumbnail((side, side))
            out = io.BytesIO()
            opened.convert("RGB").save(out, "JPEG", quality=85)  # JPEG has no transparency and no palette
    except Exception:  # Pillow does not document its errors for bad bytes; the browser may still show the picture
        return picture
    return Picture("image/jpeg", out.getvalue())

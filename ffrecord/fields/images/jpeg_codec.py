"""JPEG bytes to arrays and back, by simplejpeg where it is installed, else by Pillow."""

import io
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.pixels import PIXELS_MAX, too_large
from ffrecord.kernels import _pictures
from ffrecord.system.optional import import_optional, require

MAGIC = b"\xff\xd8\xff"
SIDE_MAX = 65535
# Each block of a channel takes a bit or more, and some channel has a block for 16 x 16 pixels or fewer.
PIXELS_PER_BYTE = 2048

DECODED = ("Gray", "YCbCr", "RGB")  # by simplejpeg
CODECS = "simplejpeg or Pillow"
WITHOUT = "a JPEG"  # what needs one of them


def pixels_max(size: int) -> int:
    """The pixels that a JPEG of `size` bytes can have; what says more lies, and nothing is allocated for it."""
    return min(PIXELS_MAX, PIXELS_PER_BYTE * size)


def compress(array: Array, quality: int) -> bytes:
    """The JPEG of `array`, C-ordered uint8 [H, W, 3] (RGB) or [H, W], its chroma halved in both directions."""
    grey = array.ndim == 2
    simplejpeg = import_optional("simplejpeg")
    if simplejpeg is not None:
        pixels, space, sampling = (array[:, :, None], "GRAY", "Gray") if grey else (array, "RGB", "420")
        return bytes(simplejpeg.encode_jpeg(pixels, quality, space, sampling))
    out = io.BytesIO()
    image = require("PIL.Image", "jpeg", WITHOUT, CODECS).fromarray(array)
    image.save(out, "JPEG", quality=quality, subsampling="4:2:0")
    return out.getvalue()


def decompress(data: bytes | bytearray | memoryview, grey: bool, only_grey: bool = False, kept: bool = True) -> Array:
    """The pixels of JPEG `data`, a new uint8 array: [H, W] if the JPEG is grey and `grey` allows it, else [H, W, 3].

    Args:
        data: contiguous.
        only_grey: [H, W] of any JPEG: the Y of YCbCr as it is stored, else 0.299 R + 0.587 G + 0.114 B (BT.601).
        kept: as for `_pictures.room`.

    Raises:
        FormatError: no JPEG that can be read whole, or of more pixels than `pixels_max`.
        ImportError: neither simplejpeg nor Pillow is installed; of CMYK, no Pillow.
    """
    simplejpeg = import_optional("simplejpeg")
    if simplejpeg is None:
        check_begin(data)
        return _by_pillow(data, require("PIL.JpegImagePlugin", "jpeg", WITHOUT, CODECS), grey, only_grey)
    # Where our look at the header is enough, it takes a sixth of the time of simplejpeg's.
    room = _pictures.room(data, pixels_max(len(data)), grey, only_grey, kept)
    try:
        room = room or _room(simplejpeg, data, grey, only_grey)
        if room is not None:
            flat, memory = room
            pixels: Array = simplejpeg.decode_jpeg(data, "GRAY" if flat else "RGB", buffer=memory)
            return pixels[:, :, 0] if flat else pixels
        plugin = import_optional("PIL.JpegImagePlugin")
    except FormatError:
        raise
    except (ValueError, KeyError) as error:
        # It refuses what it could repair, such as stray bytes between segments, and in headers has no name for some
        # subsamplings (KeyError); Pillow takes both, but refuses an image that ends early.
        plugin = import_optional("PIL.JpegImagePlugin")
        if plugin is None:
            raise FormatError(f"a JPEG of {len(data)} bytes that simplejpeg does not read: {error}") from error
    return _by_pillow(data, plugin, grey, only_grey)


def _room(
    simplejpeg: Any, data: bytes | bytearray | memoryview, grey: bool, only_grey: bool
) -> tuple[bool, None] | None:
    """As `_pictures.room` of what is not kept, by simplejpeg's look at the header; None: Pillow converts its colours.

    Raises:
        FormatError: no JPEG, or too many pixels.
        ImportError: there is no Pillow for it.
        ValueError, KeyError: simplejpeg refuses it.
    """
    check_begin(data)
    height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    check_size(width, height, len(data))
    if space not in DECODED:
        require("PIL.JpegImagePlugin", "image", f"a JPEG of {space}")
        return None
    return only_grey or (space == "Gray" and grey), None


def check_begin(data: bytes | bytearray | memoryview) -> None:
    """Refuse what does not begin as a JPEG does.

    Raises:
        FormatError: it does not.
    """
    begin = bytes(data[: len(MAGIC)])
    if begin != MAGIC:
        raise FormatError(f"{len(data)} bytes that begin with {begin!r}, expected a JPEG")


def check_size(width: int, height: int, size: int) -> None:
    """Refuse a JPEG of `size` bytes that says it has more pixels than `pixels_max`, before anything is allocated.

    Raises:
        FormatError: it does.
    """
    most = pixels_max(size)
    if width * height > most:
        raise FormatError(too_large(f"a JPEG of {size} bytes and", width, height, most))


def _by_pillow(data: bytes | bytearray | memoryview, plugin: Any, grey: bool, only_grey: bool) -> Array:
    try:
        # Not Image.open, whose limits are the program's own, and who warns below them.
        image = plugin.JpegImageFile(io.BytesIO(data))
        check_size(image.width, image.height, len(data))
        if only_grey:
            image.draft("L", None)  # has libjpeg give Y
        mode = "L" if only_grey or (grey and image.mode == "L") else "RGB"
        return np.array(image if image.mode == mode else image.convert(mode))
    except (MemoryError, FormatError):
        raise
    except Exception as error:  # Pillow documents no list of what bad bytes may raise
        raise FormatError(f"a JPEG of {len(data)} bytes that Pillow does not read: {error}") from error

"""Conversion of JPEG bytes to arrays and back, by simplejpeg if it is installed, else by Pillow."""

import io
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.pixels import PIXELS_MAX, not_of_kind, too_large
from ffrecord.kernels import _pictures
from ffrecord.system.requirements import import_optional, require

MAGIC = b"\xff\xd8\xff"
SIDE_MAX = 65535
# Each block of a channel takes at least one bit. In some channel a block covers at most 16 x 16 pixels.
PIXELS_PER_BYTE = 2048

DECODED = ("Gray", "YCbCr", "RGB")  # colour spaces that simplejpeg decodes
CODECS = "simplejpeg or Pillow"
WITHOUT = "a JPEG"  # names the value that needs a codec, for messages


def pixels_max(size: int) -> int:
    """Return the largest number of pixels that a JPEG of `size` bytes can have.

    A header that claims more is wrong, and no memory is allocated for it.
    """
    return min(PIXELS_MAX, PIXELS_PER_BYTE * size)


def compress(array: Array, quality: int) -> bytes:
    """Return the JPEG of `array`, with chroma halved in both directions.

    Args:
        array: uint8 [H, W, 3] (RGB) or [H, W] (grey), in C order.
        quality: in [1, 100].
    """
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
    """Return the pixels of JPEG `data` as a new uint8 array: [H, W] or [H, W, 3].

    Args:
        data: the JPEG, contiguous.
        grey: return [H, W] if the JPEG is grey.
        only_grey: return [H, W] of any JPEG: the stored Y of YCbCr, else 0.299 R + 0.587 G + 0.114 B (BT.601).
        kept: argument `kept` of `_pictures.room`.

    Raises:
        FormatError: `data` is not a complete JPEG, or has more pixels than `pixels_max`.
        ImportError: neither simplejpeg nor Pillow is installed; or the JPEG is CMYK, and Pillow is not installed.
    """
    simplejpeg = import_optional("simplejpeg")
    if simplejpeg is None:
        check_begin(data)  # before Pillow sees it
        return _decompress_by_pillow(data, require("PIL.JpegImagePlugin", "jpeg", WITHOUT, CODECS), grey, only_grey)
    # Our own reader of headers takes a sixth of the time of simplejpeg's, but does not know all headers.
    room = _pictures.room(data, pixels_max(len(data)), grey, only_grey, kept)
    try:
        # None of our reader: the header is unusual, and simplejpeg's reader decides.
        room = room or _check_header(simplejpeg, data, grey, only_grey)
        if room is not None:
            # None of both: the colours need Pillow.
            flat, memory = room
            pixels: Array = simplejpeg.decode_jpeg(data, "GRAY" if flat else "RGB", buffer=memory)
            return pixels[:, :, 0] if flat else pixels
        plugin = import_optional("PIL.JpegImagePlugin")
    except FormatError:  # ours: the file is damaged, and Pillow would not do better
        raise
    except (ValueError, KeyError) as error:
        # simplejpeg refuses files that libjpeg could repair, such as stray bytes between segments. It also has no
        # name for some subsamplings in headers (KeyError). Pillow takes both, but refuses an image that ends early.
        plugin = import_optional("PIL.JpegImagePlugin")
        if plugin is None:
            raise FormatError(f"simplejpeg cannot read a JPEG of {len(data)} bytes: {error}") from error
    return _decompress_by_pillow(data, plugin, grey, only_grey)


def _check_header(
    simplejpeg: Any, data: bytes | bytearray | memoryview, grey: bool, only_grey: bool
) -> tuple[bool, None] | None:
    """Check a header by simplejpeg, and choose the form of the pixels.

    Returns:
        (whether the pixels are [H, W], None for new memory); None if Pillow has to convert the colours.

    Raises:
        FormatError: `data` is not a JPEG, or has too many pixels.
        ImportError: Pillow is needed, and not installed.
        ValueError, KeyError: simplejpeg refuses the header.
    """
    check_begin(data)
    # The size is known before pixels are allocated.
    height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    check_size(width, height, len(data))
    if space not in DECODED:
        # CMYK and others need a conversion that only Pillow has.
        require("PIL.JpegImagePlugin", "image", f"a JPEG of {space}")
        return None
    return only_grey or (space == "Gray" and grey), None


def check_begin(data: bytes | bytearray | memoryview) -> None:
    """Check that bytes begin like a JPEG.

    Raises:
        FormatError: they do not.
    """
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise FormatError(not_of_kind(data, "a JPEG"))


def check_size(width: int, height: int, size: int) -> None:
    """Check that a JPEG of `size` bytes claims at most `pixels_max` pixels, before memory is allocated.

    Raises:
        FormatError: it claims more.
    """
    most = pixels_max(size)
    if width * height > most:
        raise FormatError(too_large(f"a JPEG of {size} bytes and", width, height, most))


def _decompress_by_pillow(data: bytes | bytearray | memoryview, plugin: Any, grey: bool, only_grey: bool) -> Array:
    try:
        # Image.open has a limit that belongs to the program, and warns below it.
        image = plugin.JpegImageFile(io.BytesIO(data))
        check_size(image.width, image.height, len(data))
        if only_grey:
            image.draft("L", None)  # makes libjpeg return Y
        mode = "L" if only_grey or (grey and image.mode == "L") else "RGB"
        return np.array(image if image.mode == mode else image.convert(mode))
    except (MemoryError, FormatError):
        raise
    except Exception as error:  # Pillow does not document the errors that bad bytes raise
        raise FormatError(f"Pillow cannot read a JPEG of {len(data)} bytes: {error}") from error

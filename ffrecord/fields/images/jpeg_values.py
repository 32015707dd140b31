"""Values that become JPEGs: JPEG files as bytes, paths and PIL images not loaded yet; and pixels."""

from typing import Any, NamedTuple

import numpy as np

from ffrecord.fields.field import Array, Field, mismatch
from ffrecord.fields.images.file_values import read_file, read_opened
from ffrecord.fields.images.image_header import Data, image_format
from ffrecord.fields.images.jpeg_codec import MAGIC, SIDE_MAX, pixels_max
from ffrecord.fields.images.pixels import not_of_kind, too_large
from ffrecord.kernels import _pictures
from ffrecord.system.values import describe, is_image


class Frame(NamedTuple):
    """The content of a JPEG frame header, and the offset of its end.

    Attributes:
        bits: bits of a channel.
        height, width: sides in pixels.
        channels: number of channels.
        offset: offset of the end of the header, in bytes.
    """

    bits: int
    height: int
    width: int
    channels: int
    offset: int


def read_frame(data: Data) -> Frame | None:
    """Read the frame header of JPEG `data`, which is found as decoders find it; None if decoders would find none."""
    found = _pictures.read_frame(data)
    return None if found is None else Frame(*found)


def is_whole(data: Data, frame: Frame) -> bool:
    """Tell whether the image of `frame` has its end marker. No decoder reads an image without it.

    Thumbnails before the frame may have end markers of their own. The marker cannot occur within the frame's scans.
    """
    return _pictures.ends(data, frame.offset)


def jpeg_file(field: Field, value: Any, modes: tuple[str, ...], *, views: bool) -> Data | None:
    """Return the bytes of the JPEG file that `value` is, or None if it is something else.

    A PIL image counts as its file if it was opened from a JPEG and not loaded since. Any change would load it first,
    and a loaded image holds pixels. The image stays as it was.

    Args:
        field: the field, for messages.
        value: the value to store.
        modes: modes of PIL images that the field takes.
        views: argument of `read_file`.

    Raises:
        TypeError: a PIL image has another mode than `modes`; the message names it.
        ValueError: bytes or a file are not a JPEG.
        OSError: a path cannot be read.
    """
    data = read_file(value, views)
    if data is not None:
        return _check_file(field, data)
    # A PIL image is a file or pixels; anything else is left to the caller.
    return _read_image_file(field, value, modes) if is_image(value) else None


def _check_file(field: Field, data: Data) -> Data:
    if data[: len(MAGIC)] != MAGIC:
        # Name the field that holds such a file, if there is one.
        other = image_format(data)
        holder = "BytesField() stores any bytes" if other is None else "ImageFileField() stores it"
        raise ValueError(not_of_kind(data, field.expects, f"; {holder}"))
    return data


def _read_image_file(field: Field, image: Any, modes: tuple[str, ...]) -> bytes | None:
    if image.mode not in modes:
        raise TypeError(mismatch(field, image, f"convert it to {' or '.join(modes)}, or keep its mode by ImageField()"))
    # An image without tiles is loaded. A decoder configuration means that draft() asked for another size or mode.
    if image.format != "JPEG" or not getattr(image, "tile", None) or getattr(image, "decoderconfig", None):
        return None
    data = read_opened(image)
    # The file object may have been exchanged for another one.
    return data if data.startswith(MAGIC) else None


def check_frame(field: Field, data: Data) -> Frame:
    """Check that JPEG `data` can be decoded, and return its frame header.

    Its pixels are not decoded, so damage among them is not found.

    Raises:
        ValueError: there is no frame header, `decompress` would not read it, or the file ends early.
    """
    frame = read_frame(data)
    # A height of 0 means that it follows later in the file (DNL), which decoders do not read.
    if frame is None or not frame.height or not frame.width:
        raise ValueError(f"the JPEG of {len(data)} bytes has no readable frame header, expected {field.expects}")
    if not is_whole(data, frame):
        raise ValueError(f"the JPEG of {len(data)} bytes ends before its image does, expected {field.expects}")
    # 12 bits, and other numbers of channels, are in the standard, but not in the decoders.
    if frame.bits != 8 or frame.channels not in (1, 3, 4):
        raise ValueError(
            f"the JPEG has {frame.channels} channels of {frame.bits} bits, expected 1, 3 or 4 channels of 8 bits; "
            "BytesField() stores any bytes"
        )
    # The same limits as in reading.
    wrong = too_large(f"a JPEG of {len(data)} bytes and", frame.width, frame.height, pixels_max(len(data)))
    if wrong:
        raise ValueError(f"{wrong}; BytesField() stores any bytes")
    return frame


def check_pixels(field: Field, value: Any, grey: bool) -> Array:
    """Check the pixels of a PIL image or array, and return them in C order: uint8 [H, W, 3], or [H, W] if `grey` allows
    it.

    Raises:
        TypeError: `value` is neither a PIL image nor a uint8 array.
        ValueError: its shape is wrong, it is too large for a JPEG, or the file of the image cannot be loaded.
    """
    pixels = _load_pixels(value) if is_image(value) else value
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise TypeError(mismatch(field, value))
    # Grey is [H, W]; one channel in a third axis would be unclear.
    if not (pixels.ndim == 2 and grey) and (pixels.ndim != 3 or pixels.shape[2] != 3):
        raise ValueError(mismatch(field, value))
    height, width = pixels.shape[:2]
    # The JPEG header has 16 bits for each side.
    if not 1 <= height <= SIDE_MAX or not 1 <= width <= SIDE_MAX:
        raise ValueError(mismatch(field, value, f"sides of 1 to {SIDE_MAX}"))
    wrong = too_large("an image", width, height)
    if wrong:
        raise ValueError(f"{wrong}; NDArrayField('uint8', (None, None, 3)) stores larger ones")
    return np.ascontiguousarray(pixels)


def _load_pixels(image: Any) -> Array:
    try:
        # Pillow loads the file here.
        return np.asarray(image)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{describe(image)} cannot be loaded: {error}") from error

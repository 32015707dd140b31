"""Limits of compressed images, and payloads of plain pixels."""

import struct

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.format.ffr_layout import hint_of

PIXELS_MAX = 178_956_970  # pixels of an image to decompress, about 0.5 GB of RGB; also Pillow's limit
HEADER = struct.Struct("<B8sII")  # 0, mode, width, height

# PIL mode -> dtype of a channel, number of channels.
MODES = {
    "RGB": ("|u1", 3),
    "CMYK": ("|u1", 4),
    "YCbCr": ("|u1", 3),
    "LAB": ("|u1", 3),
    "HSV": ("|u1", 3),
    "I": ("<i4", 1),
    "F": ("<f4", 1),
}


def pack_pixels(mode: str, pixels: Array) -> bytes:
    """Return the payload of `pixels` [height, width] or [height, width, channels] of `mode`."""
    height, width = pixels.shape[:2]
    return b"".join((HEADER.pack(0, mode.encode(), width, height), pixels.astype(MODES[mode][0], copy=False).tobytes()))


def unpack_pixels(data: memoryview, modes: tuple[str, ...]) -> tuple[str, Array]:
    """Return the mode of a payload, and its pixels [height, width, channels] as a view of it.

    Raises:
        FormatError: `data` is not such a payload, its mode is not in `modes`, it has no pixels, or its size is wrong.
    """
    # 0 begins neither a JPEG nor a PNG.
    if len(data) < HEADER.size or data[0] != 0:
        begin = bytes(data[:3])
        raise FormatError(f"{len(data)} bytes that begin with {begin!r}, expected compressed or plain pixels")
    _, name, width, height = HEADER.unpack(data[: HEADER.size])
    mode = name.rstrip(b"\0").decode("latin-1")
    if mode not in modes:
        raise FormatError(f"the plain pixels have mode {mode!r}, expected {' or '.join(modes)}")
    dtype, channels = np.dtype(MODES[mode][0]), MODES[mode][1]
    # Python's ints cannot overflow, whatever the numbers are.
    expected = width * height * channels * dtype.itemsize
    if not expected:
        raise FormatError(f"an image has {width} x {height} pixels, expected sides of 1 or more")
    if len(data) - HEADER.size != expected:
        raise FormatError(
            f"{width} x {height} pixels of mode {mode} have {len(data) - HEADER.size} bytes, expected {expected}"
        )
    return mode, np.frombuffer(data[HEADER.size :], dtype).reshape(height, width, channels)


def not_of_kind(data: bytes | bytearray | memoryview, expected: str, advice: str = "") -> str:
    """Return the sentence that says that bytes are no image of the expected kind.

    Args:
        data: the bytes.
        expected: words for what they should be.
        advice: text that begins with "; ", unless it is known what came in their place.
    """
    return f"{len(data)} bytes that begin with {bytes(data[:4])!r}, expected {expected}{hint_of(data) or advice}"


def too_large(what: str, width: int, height: int, limit: int = PIXELS_MAX) -> str | None:
    """Return the sentence that says that `what`, such as "a PNG", has more than `limit` pixels, or None."""
    if width * height <= limit:
        return None
    return f"{what} of {width} x {height} pixels, expected at most {limit} in all"

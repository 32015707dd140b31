"""Decoding of the part of a JPEG that a box needs, at the smallest sufficient size, and no further down than the box.

Two kinds of work are left out. First, the inverse transform of a JPEG's blocks can return 1/2, 1/4 or 1/8 of the pixels
in each direction, each the mean of many. Second, the rows below the box are not decoded: a copy of the file says in its
header that the image ends there. The decoder then complains of bytes left over, but only after all pixels have come.
libjpeg-turbo keeps the first of several complaints, so this one means that there was no other. After any other
complaint the file is decoded whole, and the error names the fault.
"""

import io
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.jpeg_codec import CODECS, WITHOUT, check_size, decompress
from ffrecord.kernels._pictures import FRAMES
from ffrecord.system.requirements import import_optional, require
from ffrecord.torch.images.boxes import Box

__all__ = ["JPEGPart", "decode_part"]

SCALES = (8, 4, 2)  # libjpeg-turbo has vector code for these; with other scales decoding takes longer than without
SIDE_LEAST = 16  # pixels; in smaller images the sides do not tell one scale from another
BOX_LEAST = 8  # pixels on each side of a scaled box; fewer differ from those that the filter would make of all
FROM_TOP_TO_BOTTOM = (0xC0, 0xC1)  # frames whose rows come in order, if one scan has all channels
RESTARTS, SCAN, ESCAPE = 0xDD, 0xDA, 0xFF
SEGMENT = struct.Struct(">BBH")  # ESCAPE, marker, size (which counts its own two bytes)
FRAME = struct.Struct(">BHHB")  # bits, height, width, channels
SIDE = struct.Struct(">H")
CONTEXT = 2  # rows below the box whose colour spreads into it, if a JPEG has colour at half the resolution
LEFT_OVER = "extraneous bytes before marker 0xd9"
SCRATCH_MOST = 16 << 20  # bytes that a thread keeps; a larger image gets its own memory

Choose = Callable[[int, int], Box]
Size = tuple[int, int]  # height, width


class Header(NamedTuple):
    """The part of a JPEG before its pixels.

    Attributes:
        height, width: sides in pixels.
        channels: number of channels.
        offset: offset of the height in the file.
        can_end: True if the header may claim a smaller height than the file has.
    """

    height: int
    width: int
    channels: int
    offset: int
    can_end: bool


class JPEGPart(NamedTuple):
    """Pixels [h, w, C], the box in them as (top, left, height, width), and whether to exchange left and right."""

    pixels: Array
    area: tuple[float, float, float, float]
    flip: bool


class DecodeScratch(threading.local):
    """Memory to decode into, one for each thread. Its content lasts until the thread decodes the next image."""

    memory = np.empty(0, np.uint8)

    def take(self, size: int) -> Array:
        """Return `size` bytes."""
        if size > SCRATCH_MOST:
            return np.empty(size, np.uint8)
        if len(self.memory) < size:
            self.memory = np.empty(1 << (size - 1).bit_length(), np.uint8)
        return self.memory[:size]


_scratch = DecodeScratch()


def decode_part(data: memoryview, choose: Choose, size: Size, channels: int) -> JPEGPart:
    """Decode the pixels of a JPEG that an image of `size` needs from the box that `choose(height, width)` returns.

    Args:
        data: the JPEG.
        choose: function of height and width that returns the box.
        size: height and width of the result.
        channels: channels of the result: 3, or 1 for the luma.

    Returns:
        Pixels [h, w, 3], or maybe [h, w, 1] if `channels` is 1 or the JPEG is grey. The box in them is not smaller than
            `size`, unless it was before. They are valid until this thread's next call.

    Raises:
        FormatError: `data` is not a JPEG that can be read as far as the box goes; it is cut short, or claims more
            pixels than its bytes can hold.
        ImportError: neither simplejpeg nor Pillow is installed; names the extra.
    """
    header = read_header(data)
    if header is None or header.channels not in (1, 3):
        return _decode_whole(data, choose, channels)
    check_size(header.width, header.height, len(data))
    box = choose(header.height, header.width)
    scale = _choose_scale(box, size)
    simplejpeg = import_optional("simplejpeg")
    if simplejpeg is None:
        pixels = _decode_by_pillow(data, header, scale, channels)
    else:
        found = _decode_by_simplejpeg(simplejpeg, data, header, box, scale, channels)
        if found is None:
            return _decode_whole(data, choose, channels)
        pixels = found
    return JPEGPart(pixels, box.area(scale), box.flip)


def read_header(data: memoryview) -> Header | None:
    """Read the header of JPEG `data`; None if it has none, or one with oddities that decoders should judge."""
    at, found, restarts = 2, None, 0
    try:
        while True:
            escape, marker, size = SEGMENT.unpack_from(data, at)
            if escape != ESCAPE or marker == ESCAPE or size < 2:
                return None
            at += SEGMENT.size
            if marker == SCAN:
                break
            if marker in FRAMES:
                found = (marker, at + 1, *FRAME.unpack_from(data, at))
            elif marker == RESTARTS:
                (restarts,) = SIDE.unpack_from(data, at)
            at += size - 2
        if found is None:
            return None
        frame, offset, bits, height, width, channels = found
        can_end = frame in FROM_TOP_TO_BOTTOM and not restarts and data[at] == channels
    except (struct.error, IndexError):
        return None
    return Header(height, width, channels, offset, can_end) if bits == 8 and height and width else None


def _choose_scale(box: Box, size: Size) -> int:
    """Return the number of pixels that become one in each direction; the box keeps `size` and `BOX_LEAST`."""
    for scale in SCALES:
        if box.height >= scale * max(size[0], BOX_LEAST) and box.width >= scale * max(size[1], BOX_LEAST):
            return scale
    return 1


def _decode_by_simplejpeg(
    simplejpeg: Any, data: memoryview, header: Header, box: Box, scale: int, channels: int
) -> Array | None:
    """Decode rows as far down as the box goes; None if simplejpeg complains."""
    end, file = header.height, data
    if header.can_end:
        end = min(end, max(box.top + box.height + CONTEXT * scale, SIDE_LEAST))
    if end < header.height:
        file = memoryview(bytearray(data))
        SIDE.pack_into(file, header.offset, end)
    h, w = -(-end // scale), -(-header.width // scale)
    pixels = _scratch.take(h * w * channels)
    least = {"min_height": h, "min_width": w} if scale > 1 else {}
    try:
        found = simplejpeg.decode_jpeg(file, "GRAY" if channels == 1 else "RGB", buffer=pixels, **least)
        if found.shape != (h, w, channels):  # libjpeg-turbo has chosen another scale than expected
            return None
    except ValueError as error:
        if end == header.height or not str(error).endswith(LEFT_OVER):
            return None
    return pixels.reshape(h, w, channels)


def _decode_by_pillow(data: memoryview, header: Header, scale: int, channels: int) -> Array:
    plugin = require("PIL.JpegImagePlugin", "jpeg", WITHOUT, CODECS)
    mode = "L" if channels == 1 else "RGB"
    try:
        image = plugin.JpegImageFile(io.BytesIO(data))
        # draft() takes the largest scale that keeps these sides, rounded up.
        image.draft(mode, (header.width // scale, header.height // scale))
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    except MemoryError:
        raise
    except Exception as error:  # Pillow does not document the errors that bad bytes raise
        raise FormatError(f"Pillow cannot read a JPEG of {len(data)} bytes: {error}") from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _decode_whole(data: memoryview, choose: Choose, channels: int) -> JPEGPart:
    pixels = decompress(data, grey=channels == 1)
    box = choose(*pixels.shape[:2])
    return JPEGPart(pixels.reshape(*pixels.shape[:2], -1), box.area(), box.flip)

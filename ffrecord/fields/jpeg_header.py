"""What a JPEG says of its pixels before they come; and whether they all come."""

import struct
from typing import NamedTuple

# Sequential and progressive, Huffman and arithmetic; the others nobody decodes.
FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}
LAST = {0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF, 0xDA, 0xD9}  # after these comes no frame header: scan, end
END = b"\xff\xd9"
ALONE = {0x00, 0x01, *range(0xD0, 0xD9)}  # markers without a segment
SEGMENT = struct.Struct(">H")  # its size, these two bytes included
FRAME = struct.Struct(">HBHHB")  # the size of the segment, then Frame
LOOKED_AT = 4096  # bytes that are copied to look for something in them, as views cannot be searched

JPEG = bytes | bytearray | memoryview  # a view is flat


class Frame(NamedTuple):
    """What a frame header says: bits of a channel, sides in pixels, number of channels; and the offset of its end."""

    bits: int
    height: int
    width: int
    channels: int
    offset: int


def read_frame(data: JPEG) -> Frame | None:
    """The frame header of JPEG `data`, found as decoders find it; None: there is none that they read."""
    at = 2
    while (at := _marker(data, at)) >= 0:
        while at < len(data) and data[at] == 0xFF:
            at += 1  # any number of them may stand before a marker
        if at + 1 + FRAME.size > len(data) or data[at] in LAST:
            return None
        if data[at] in FRAMES:
            _, bits, height, width, channels = FRAME.unpack_from(data, at + 1)
            return Frame(bits, height, width, channels, at + 1 + FRAME.size)
        at += 1 if data[at] in ALONE else 1 + SEGMENT.unpack_from(data, at + 1)[0]
    return None


def is_whole(data: JPEG, frame: Frame) -> bool:
    """Whether the image of `frame` ends with its marker, without which no decoder reads it.

    Before the frame there may be thumbnails with ends of their own. Within its scans the marker cannot occur.
    """
    end = len(data)
    while end > frame.offset:
        start = max(frame.offset, end - LOOKED_AT)
        if bytes(data[start : end + len(END) - 1]).rfind(END) >= 0:  # or one that is cut by where this begins
            return True
        end = start
    return False


def _marker(data: JPEG, start: int) -> int:
    """The first byte from `start` on that may begin a marker; -1: there is none."""
    for at in range(start, len(data), LOOKED_AT):
        found = bytes(data[at : at + LOOKED_AT]).find(b"\xff")
        if found >= 0:
            return at + found
    return -1

"""What a JPEG says of its pixels before they come; and whether they all come."""

from typing import NamedTuple

from ffrecord.kernels import _pictures

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
    found = _pictures.read_frame(data)
    return None if found is None else Frame(*found)


def is_whole(data: JPEG, frame: Frame) -> bool:
    """Whether the image of `frame` ends with its marker, without which no decoder reads it.

    Before the frame there may be thumbnails with ends of their own. Within its scans the marker cannot occur.
    """
    return _pictures.ends(data, frame.offset)

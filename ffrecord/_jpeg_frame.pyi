"""What a JPEG says of its pixels before they come; and whether they all come."""

from typing_extensions import Buffer

FRAMES: frozenset[int]
"""Markers of frames: sequential and progressive, Huffman and arithmetic; the others nobody decodes."""

def read_frame(data: Buffer, /) -> tuple[int, int, int, int, int] | None:
    """The frame header of a JPEG, found as decoders find it.

    Args:
        data: its bytes, contiguous; the first two are not looked at.

    Returns:
        (bits of a channel, height, width, channels, offset of its end); None: there is none that decoders read.

    Raises:
        BufferError: not contiguous.
        ValueError: not of bytes.
    """

def ends(data: Buffer, start: int, /) -> bool:
    """Whether the marker of the end is somewhere in data[start:]."""

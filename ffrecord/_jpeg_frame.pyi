"""What a JPEG says of its pixels before they come; and whether they all come."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

FRAMES: frozenset[int]
"""Markers of frames: sequential and progressive, Huffman and arithmetic; the others nobody decodes."""

def read_frame(data: Buffer, /) -> tuple[int, int, int, int, int] | None:
    """The frame header of a JPEG, found as decoders find it.

    Args:
        data: its bytes, contiguous.

    Returns:
        (bits of a channel, height, width, channels, offset of its end); None: there is none that decoders read.

    Raises:
        BufferError: not contiguous.
        ValueError: not of bytes.
    """

def room(
    data: Buffer, most: int, grey: bool, only_grey: bool, kept: bool, /
) -> tuple[bool, NDArray[np.uint8] | None] | None:
    """Memory for the pixels of a JPEG of one or three channels, if they are at most `most`.

    Args:
        data: as for `read_frame`.
        grey: one channel stays one.
        only_grey: one channel of any.
        kept: with those of a batch. They get pages that were used before: to fault in fresh ones takes a tenth as
            long as decoding. What is dropped at once, malloc serves as well.

    Returns:
        (whether they have one channel, not three; uninitialised uint8 [bytes] if `kept`); None: it is none of those.

    Raises:
        As `read_frame`; MemoryError.
    """

def ends(data: Buffer, start: int, /) -> bool:
    """Whether the marker of the end is somewhere in data[start:]."""

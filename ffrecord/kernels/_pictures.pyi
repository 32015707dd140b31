"""What a JPEG says of its pixels before they come; and whether they all come.

A box of an image, resampled to another size with the GIL released.

The filter is the triangle, widened when it makes smaller so that nothing aliases: torchvision's and Pillow's
"bilinear" of a cropped image, `resize(antialias=True)`. What lies outside the box does not count. All is computed in
integers: every CPU gives the same pixels, which differ from Pillow's by at most 1.
"""

import numpy as np
import numpy.typing as npt
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

def kernels() -> tuple[str, ...]:
    """The names of the implementations that this machine can run, best first."""

def resample(
    image: npt.NDArray[np.uint8],
    box: tuple[float, float, float, float],
    out: npt.NDArray[np.uint8],
    /,
    flip: bool = False,
    kernel: str | None = None,
) -> None:
    """`box` of `image` into the whole of `out`.

    Args:
        image: [h, w, C], C-ordered, C 1 or 3.
        box: (top, left, height, width) in pixels of `image`, fractions allowed: the area [top, top + height) x
            [left, left + width).
        out: [H, W, C], C-ordered and writable; must not overlap `image`.
        flip: left and right exchanged in `out`.
        kernel: one of `kernels()`; None takes the best.

    Raises:
        ArgumentError: arrays of other shapes or without pixels, a box that is empty or not inside the image.
        ValueError: arrays of other dtypes or memory layouts, a kernel that this machine does not have.
        MemoryError: no room for the weights and one row.
    """

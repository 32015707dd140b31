"""Frame headers of JPEG files, and resampling of a box of an image with the GIL released.

The filter is the triangle, widened for reduction so that nothing aliases: "bilinear" of torchvision and Pillow for a
cropped image, `resize(antialias=True)`. Pixels outside the box have no influence. All arithmetic is in integers: every
CPU computes the same pixels, which differ from Pillow's by at most 1.
"""

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from typing_extensions import Buffer

FRAMES: frozenset[int]
"""Markers of the frames that decoders support: sequential and progressive, Huffman and arithmetic."""

def read_frame(data: Buffer, /) -> tuple[int, int, int, int, int] | None:
    """Find the frame header of a JPEG in the same way as decoders.

    Args:
        data: bytes of the JPEG, contiguous.

    Returns:
        (bits of a channel, height, width, channels, offset of its end); None if it has no header that decoders support.

    Raises:
        BufferError: the buffer is not contiguous.
        ValueError: the buffer does not consist of bytes.
    """

def room(
    data: Buffer, most: int, grey: bool, only_grey: bool, kept: bool, /
) -> tuple[bool, NDArray[np.uint8] | None] | None:
    """Allocate memory for the pixels of a JPEG with one or three channels, if there are at most `most` pixels.

    Args:
        data: bytes of the JPEG, contiguous.
        most: maximum number of pixels.
        grey: keep one channel as one channel.
        only_grey: decode any image to one channel.
        kept: the pixels are kept with those of a batch. Then the memory comes from the pool, with pages that were used
            before: faulting in fresh pages takes a tenth as long as decoding. Otherwise malloc is as good.

    Returns:
        (whether there is one channel, not three; uninitialised uint8 [bytes] if `kept`, else None); None if the JPEG is
        unsuitable.

    Raises:
        BufferError, ValueError: the same as for `read_frame`.
        MemoryError: out of memory.
    """

def ends(data: Buffer, start: int, /) -> bool:
    """Tell whether an end-of-image marker occurs in data[start:]."""

def kernels() -> tuple[str, ...]:
    """Return the names of the implementations that this machine can run, best first."""

def resample(
    image: npt.NDArray[np.uint8],
    box: tuple[float, float, float, float],
    out: npt.NDArray[np.uint8],
    /,
    flip: bool = False,
    kernel: str | None = None,
    table: npt.NDArray[np.uint8] | None = None,
) -> None:
    """Resample `box` of `image` to the whole of `out`.

    Args:
        image: [h, w, C], C-ordered, C 1 or 3.
        box: (top, left, height, width) in pixels of `image`, fractions allowed: the area [top, top + height) x
            [left, left + width).
        out: [H, W, C], C-ordered and writable; must not overlap `image`. With a table, the bytes of its numbers: [H, W,
            C * n].
        flip: exchange left and right in `out`.
        kernel: one of `kernels()`; None for the best.
        table: the numbers that replace the values 0 to 255 of each channel, as bytes: [C, 256 * n], n 2 or 4. They are
            written row by row, while the pixels are in the cache.

    Raises:
        ArgumentError: an array has another shape or no pixels, or the box is empty or not inside the image.
        ValueError: an array has another dtype or memory layout, or this machine lacks the kernel.
        MemoryError: out of memory for the weights and one row.
    """

def look_up(pixels: npt.NDArray[np.uint8], table: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], /) -> None:
    """Replace the bytes of pixels by numbers, with the GIL released.

    Args:
        pixels: [h, w, C], C-ordered, C 1 or 3.
        table: see `resample`.
        out: the bytes of the numbers, [h, w, C * n], C-ordered.

    Raises:
        ArgumentError: an array has another shape.
    """

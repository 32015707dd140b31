"""A box of an image, resampled to another size with the GIL released.

The filter is the triangle, widened when it makes smaller so that nothing aliases: torchvision's and Pillow's
"bilinear" of a cropped image, `resize(antialias=True)`. What lies outside the box does not count. All is computed in
integers: every CPU gives the same pixels, which differ from Pillow's by at most 1.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["kernels", "resample"]

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

"""Decoders of masks and boxes, which take the box and the flip that the decoder of their image takes."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.torch.images.boxes import Box
from ffrecord.torch.images.picture import Data, Sides, array_of

__all__ = ["BoxChooser", "BoxDecoder", "MaskDecoder"]


class BoxChooser(Protocol):
    """The decoder of images that others follow: an `ImageDecoder`."""

    @property
    def exif(self) -> bool:  # pyright: ignore[reportReturnType]
        """True if images are turned upright first."""

    @property
    def sides(self) -> tuple[int, int]:  # pyright: ignore[reportReturnType]  # a protocol's
        """The height and width of the result."""

    def box(self, height: int, width: int, seed: int) -> Box:  # pyright: ignore[reportReturnType]  # a protocol's
        """Return the box of an image of these sides."""


@dataclass(frozen=True)
class MaskDecoder:
    """Masks that take the box and flip of their images. `ImageDecoder.mask` returns it.

    Pixels are chosen by nearest neighbour, so class numbers stay what they are. Of a file of one channel, such as a
    PNG, they are the stored numbers: indices of a palette, 0 and 1 of 1 bit, 16 bits as uint16. Of arrays they may be
    bools or numbers of any size.

    Args:
        image: the decoder of the images.
    """

    image: BoxChooser

    def decode(self, data: Data, seed: int, sides: Sides | None = None) -> Array:
        """Return the part of a mask that belongs to the part of its image.

        Args:
            data: an image file or a field's payload; or an array [H, W], or [n, H, W] of n masks of one image.
            seed: the seed of the image.
            sides: height and width of the image, as `decode_into` returns them; None for those of the mask.

        Returns:
            An array [h, w] or [n, h, w] of the mask's dtype, h and w those of `size`.

        Raises:
            FormatError: `data` is no mask, or not as large as its image; the message has both sizes.
            ImportError: Pillow is not installed.
        """
        mask = array_of(data, self.image.exif)
        height, width = mask.shape[-2:]
        if sides is not None and (height, width) != tuple(sides):
            raise FormatError(
                f"a mask has {width} x {height} pixels, expected {sides[1]} x {sides[0]}, the size of its image"
            )
        box = self.image.box(height, width, seed)
        rows, columns = self.image.sides
        down = _nearest(box.top, box.height, rows)
        across = _nearest(box.left, box.width, columns)
        return np.take(np.take(mask, down, axis=-2), across[::-1] if box.flip else across, axis=-1)


@dataclass(frozen=True)
class BoxDecoder:
    """Boxes that are shifted, scaled, mirrored and clipped as their images are. `ImageDecoder.boxes` returns it.

    A box is (left, top, right, bottom) in pixels, as in torchvision ("xyxy"). All boxes stay, in their order, so that
    their labels still fit. Those outside of the part have no area: select the others by
    `(boxes[:, 2:] > boxes[:, :2]).all(1)`.

    Args:
        image: the decoder of the images.
    """

    image: BoxChooser

    def decode(self, boxes: Array, seed: int, sides: Sides) -> Array:
        """Return the boxes in the pixels of the result.

        Args:
            boxes: numbers [..., 4], in pixels of the image (with `exif`, of the turned image).
            seed: the seed of the image.
            sides: height and width of the image, as `decode_into` returns them.

        Returns:
            An array of the same shape: float64 of float64, else float32.

        Raises:
            FormatError: `boxes` is no such array, or one has its right before its left, or its bottom above its top.
        """
        if not isinstance(boxes, np.ndarray) or boxes.ndim < 1 or boxes.shape[-1] != 4 or boxes.dtype.kind not in "iuf":
            found = (
                f"a {boxes.dtype} array {list(boxes.shape)}" if isinstance(boxes, np.ndarray) else type(boxes).__name__
            )
            raise FormatError(f"{found}, expected boxes [n, 4] of numbers: left, top, right, bottom")
        box: Box = self.image.box(*sides, seed)
        rows, columns = self.image.sides
        made = boxes.astype(np.float64)
        _check_corners(boxes, made)
        across, down = made[..., 0::2], made[..., 1::2]
        across[:] = ((across - box.left) * columns / box.width).clip(0, columns)
        down[:] = ((down - box.top) * rows / box.height).clip(0, rows)
        if box.flip:
            across[:] = columns - across[..., ::-1]
        return made.astype(np.float64 if boxes.dtype == np.float64 else np.float32, copy=False)


def _check_corners(boxes: Array, numbers: Array) -> None:
    """Refuse boxes [..., 4] that have no such corners: those of (left, top, width, height) mostly have none.

    Args:
        boxes: the boxes as they were given, for the message.
        numbers: their float64 numbers.

    Raises:
        FormatError: a number is NaN; the right of a box is less than its left, or its bottom less than its top.
    """
    _check_numbers(boxes, numbers)
    wrong = (numbers[..., 2:] < numbers[..., :2]).any(axis=-1)
    if not wrong.any():
        return
    place = tuple(np.argwhere(wrong)[0].tolist())
    left, top, right, bottom = (str(number) for number in boxes[place])
    difference = (
        f"its right, {right}, at least its left, {left}"
        if numbers[place][2] < numbers[place][0]
        else f"its bottom, {bottom}, at least its top, {top}"
    )
    index = f"[{', '.join(map(str, place))}]" if place else ""
    raise FormatError(
        f"boxes{index} is [{left}, {top}, {right}, {bottom}], expected {difference}; boxes are left, top, right, "
        "bottom in pixels (COCO's are left, top, width, height: boxes[:, 2:] += boxes[:, :2])"
    )


def _check_numbers(boxes: Array, numbers: Array) -> None:
    # A maximum with 0 would make 0 of it.
    missing = np.isnan(numbers).any(axis=-1)
    if missing.any():
        place = tuple(np.argwhere(missing)[0].tolist())
        index = f"[{', '.join(map(str, place))}]" if place else ""
        shown = ", ".join(str(number) for number in boxes[place])
        raise FormatError(f"boxes{index} is [{shown}], expected numbers: remove boxes that have NaN")


def _nearest(start: int, size: int, out: int) -> Array:
    """Return the place of [start, start + size) nearest to the centre of each of `out` parts."""
    # In whole numbers: floor((i + 0.5) * size / out).
    return start + (2 * np.arange(out) + 1) * size // (2 * out)

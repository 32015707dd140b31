"""Decoders of image columns: JPEG or plain pixels → rows of a uint8 tensor, all of one size."""

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.jpeg_codec import MAGIC, SIDE_MAX
from ffrecord.fields.images.pixels import unpack_pixels
from ffrecord.kernels._memory import pooled
from ffrecord.kernels._pictures import resample
from ffrecord.torch.images.boxes import Box, central_box, random_box
from ffrecord.torch.images.jpeg import Choose, JPEGPart, decode_part

__all__ = ["CenterCrop", "ImageDecoder", "RandomResizedCrop", "Resize"]

LUMA = np.array([19595, 38470, 7471], np.uint32)  # ITU-R BT.601 in units of 1/65536, like JPEG and Pillow


@dataclass(frozen=True)
class ImageDecoder:
    """A box of each image, resampled to one size. Base of `CenterCrop`, `RandomResizedCrop` and `Resize`.

    Takes the values of `JPEGField` and `RGBImageField`: JPEG files (grey and CMYK too), and plain RGB pixels. An EXIF
    orientation is not applied. A decoder has no state: many threads use it at once, and it pickles.

    Args:
        size: size of the result in pixels: an int for a square, or (height, width), each in [1, 65535].
        channels: channels of the result: 3 (RGB; grey images get three equal ones), or 1 (luma, ITU-R BT.601).
        channels_first: True makes batches [k, C, H, W] whose memory is still pixel by pixel (torch's `channels_last`,
            in which convolutions are fastest). False makes them [k, H, W, C], with the same memory.

    Raises:
        ArgumentError, ArgumentTypeError: a parameter is out of range or of another type.
    """

    size: int | tuple[int, int]
    channels: int = field(default=3, kw_only=True)
    channels_first: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        sides = self.size if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        if len(sides) != 2:
            raise ArgumentError(f"size is {self.size!r}, expected an int or (height, width)")
        height, width = (_whole_number("size", side) for side in sides)
        if not (1 <= height <= SIDE_MAX and 1 <= width <= SIDE_MAX):
            raise ArgumentError(f"size is {self.size!r}, expected sides of 1 to {SIDE_MAX}")
        if self.channels not in (1, 3):
            raise ArgumentError(f"channels is {self.channels!r}, expected 1 or 3")
        # The dataclass is frozen, so set the plain ints in this way.
        object.__setattr__(self, "size", (height, width))

    def allocate(self, k: int, pin: bool = False) -> torch.Tensor:
        """Return an uninitialised uint8 tensor for `k` images: [k, C, H, W], or [k, H, W, C] without `channels_first`.

        Args:
            k: number of images, 0 or more.
            pin: allocate page-locked memory, from which copies to a GPU overlap with its work.
        """
        height, width = self.sides
        shape = (k, height, width, self.channels)
        if pin:
            batch = torch.empty(shape, dtype=torch.uint8, device="cpu", pin_memory=True)
        else:
            # Memory from a pool: faulting in fresh pages would cost a tenth of the time that decoding takes.
            batch = torch.from_numpy(pooled(math.prod(shape))).view(shape)
        return batch.permute(0, 3, 1, 2) if self.channels_first else batch

    def rows(self, batch: torch.Tensor) -> Array:
        """Return a uint8 array [k, H, W, C] that shares the memory of `batch`; `decode_into` takes its rows."""
        rows: Array = (batch.permute(0, 2, 3, 1) if self.channels_first else batch).numpy()
        return rows

    @property
    def sides(self) -> tuple[int, int]:
        """The height and width of the result."""
        height, width = self.size  # type: ignore[misc]  # __post_init__ made it two
        return height, width

    def box(self, height: int, width: int, seed: int) -> Box:
        """Return the box of an image of `height` x `width` pixels that `decode_into` takes with `seed`."""
        raise NotImplementedError(f"{type(self).__name__}.box")

    def decode_into(self, data: memoryview, out: Array, seed: int) -> None:
        """Decode one image, resample its box, and write it to `out`.

        Many threads may call this at once; decoding and resampling release the GIL.

        Args:
            data: the field's payload, bytes, 1-D.
            out: uint8 [H, W, C], in C order: one of `rows(batch)`.
            seed: in [0, 2**64); all random choices follow from it.

        Raises:
            FormatError: `data` is not an image; the content of `out` is undefined then.
            ImportError: neither simplejpeg nor Pillow is installed, or a CMYK JPEG needs Pillow; names the extra.
            ArgumentError: `out` has another shape.
        """
        data, seed = memoryview(data), operator.index(seed)
        if out.shape != (*self.sides, self.channels):
            raise ArgumentError(f"out has shape {out.shape}, expected {(*self.sides, self.channels)}")

        def choose(height: int, width: int) -> Box:
            return self.box(height, width, seed)

        if data[: len(MAGIC)] == MAGIC:
            part = decode_part(data, choose, self.sides, self.channels)
        else:
            part = _plain_part(data, choose)
        self._write(part, out)

    def _write(self, part: JPEGPart, out: Array) -> None:
        if part.pixels.shape[2] == self.channels:
            resample(part.pixels, part.area, out, part.flip)
            return
        # Three channels, but luma is wanted: the pixels are plain ones, or the JPEG decoder does not return luma.
        colour = np.empty((*self.sides, 3), np.uint8)
        resample(part.pixels, part.area, colour, part.flip)
        out[:, :, 0] = (colour @ LUMA + 32768) >> 16


@dataclass(frozen=True)
class CenterCrop(ImageDecoder):
    """The largest central box with the proportions of `size`, its sides times `ratio`: for evaluation.

    With the default ratio, 224 shows the same part as torchvision's Resize(256) and CenterCrop(224).

    Args:
        size, channels, channels_first: arguments of `ImageDecoder`.
        ratio: in (0, 1].

    Raises:
        ArgumentError, ArgumentTypeError: a parameter is out of range or of another type.
    """

    ratio: float = 224 / 256

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_number("ratio", self.ratio)
        if not 0 < self.ratio <= 1:
            raise ArgumentError(f"ratio is {self.ratio!r}, expected more than 0 and at most 1")

    def box(self, height: int, width: int, seed: int) -> Box:
        return central_box(height, width, self.sides, self.ratio)


@dataclass(frozen=True)
class RandomResizedCrop(ImageDecoder):
    """A random box of random size and proportions, perhaps with left and right exchanged: for training.

    The algorithm is that of torchvision's RandomResizedCrop, with its own random numbers. The box depends only on the
    image's sides and the seed; see `ffrecord.torch.images.boxes`.

    Args:
        size, channels, channels_first: arguments of `ImageDecoder`.
        scale: (least, most) share of the image's area, 0 < least <= most <= 1.
        ratio: (least, most) width over height, 0 < least <= most.
        flip: probability that left and right are exchanged, in [0, 1].

    Raises:
        ArgumentError, ArgumentTypeError: a parameter is out of range or of another type.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, most in (("scale", self.scale, 1), ("ratio", self.ratio, math.inf)):
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise ArgumentTypeError(f"{name} is {value!r}, expected (least, most)")
            for bound in value:
                _check_number(name, bound)
            if not 0 < value[0] <= value[1] <= most or math.isinf(value[1]):
                raise ArgumentError(f"{name} is {value!r}, expected 0 < least <= most" + " <= 1" * (most == 1))
            object.__setattr__(self, name, tuple(value))
        _check_number("flip", self.flip)
        if not 0 <= self.flip <= 1:
            raise ArgumentError(f"flip is {self.flip!r}, expected 0 to 1")

    def box(self, height: int, width: int, seed: int) -> Box:
        return random_box(height, width, self.scale, self.ratio, self.flip, seed)


@dataclass(frozen=True)
class Resize(ImageDecoder):
    """The whole image, without keeping its proportions.

    Args:
        size, channels, channels_first: arguments of `ImageDecoder`.

    Raises:
        ArgumentError, ArgumentTypeError: a parameter is out of range or of another type.
    """

    def box(self, height: int, width: int, seed: int) -> Box:
        return Box(0, 0, height, width)


def _plain_part(data: memoryview, choose: Choose) -> JPEGPart:
    pixels = unpack_pixels(data, ("RGB",))[1]
    height, width = pixels.shape[:2]
    if max(height, width) > SIDE_MAX:
        raise FormatError(f"plain pixels of {width} x {height}, expected sides of 1 to {SIDE_MAX}")
    box = choose(height, width)
    return JPEGPart(pixels, box.area(), box.flip)


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool):
        raise ArgumentTypeError(f"{name} is {value!r}, expected an int")
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}, expected an int") from None


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
        raise ArgumentTypeError(f"{name} has {value!r}, expected a number")

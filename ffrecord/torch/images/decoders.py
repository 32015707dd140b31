"""Decoders of image columns: files, or plain pixels → rows of one tensor, all of one size."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields.field import Array
from ffrecord.fields.images.image_codec import TURNS, turn
from ffrecord.fields.images.jpeg_codec import SIDE_MAX
from ffrecord.kernels._memory import pooled
from ffrecord.kernels._pictures import look_up, resample
from ffrecord.system.values import describe_wrong, whole_number
from ffrecord.torch.images.boxes import Box, central_box, random_box
from ffrecord.torch.images.followers import BoxDecoder, MaskDecoder
from ffrecord.torch.images.picture import ImagePart, Sides, picture_of

__all__ = ["CenterCrop", "ImageDecoder", "RandomResizedCrop", "Resize"]

DTYPES = {torch.uint8: 1, torch.float32: 4, torch.float16: 2, torch.bfloat16: 2}  # dtype → bytes
NUMBER_MAX = 2  # of mean and std; those of pixels in 0 to 1 are less, those of pixels in 0 to 255 are more
LUMA = np.array([19595, 38470, 7471], np.uint32)  # ITU-R BT.601 in units of 1/65536, like JPEG and Pillow


@dataclass(frozen=True)
class ImageDecoder:
    """A box of each image, resampled to one size. Base of `CenterCrop`, `RandomResizedCrop` and `Resize`.

    Takes JPEG, PNG, WebP, TIFF, BMP and GIF files (the first frame), the values of all fields of images, and uint8
    arrays [H, W] and [H, W, 1, 3 or 4]. Palettes give their colours. Alpha is dropped. 16-bit grey keeps its upper 8
    bits. int32 and float32 images are refused. A decoder has no state: many threads use it at once, and it pickles.

    A JPEG is decoded from its top to the lower edge of the box; progressive ones, and those with restart markers, to
    their end, which takes longer. It is decoded at a half, a quarter or an eighth of its sides if the result stays no
    smaller. Parts less than twice the result, or under 16 pixels in a direction, are at least 55 dB alike. CMYK needs
    Pillow. Each thread keeps up to 16 MiB.

    Args:
        size: size of the result in pixels: an int for a square, or (height, width), each in [1, 65535].
        channels: channels of the result: 3 (RGB; grey images get three equal ones), or 1 (luma, ITU-R BT.601).
        channels_first: True makes batches [k, C, H, W] whose memory is still pixel by pixel (torch's `channels_last`,
            in which convolutions are fastest). False makes them [k, H, W, C], with the same memory.
        exif: turn each image upright by its EXIF orientation, before the box is chosen. Arrays have none.
        dtype: uint8; or float32, float16 or bfloat16 for numbers that are divided by 255, and normalised by `mean` and
            `std`. They equal torchvision's `ToDtype(torch.float32, scale=True)` and `Normalize` bit for bit, rounded to
            `dtype` at the end.
        mean, std: numbers for each channel (a list, array or tensor), subtracted and divided by, for pixels in 0 to 1,
            so at most 2; None for 0 and 1.

    Attributes:
        mask: the decoder of masks of the same images: the same box and flip, see `MaskDecoder`.
        boxes: the decoder of boxes in the same images, see `BoxDecoder`.

    Raises:
        ArgumentError, ArgumentTypeError: a parameter is out of range or of another type.
    """

    size: int | tuple[int, int]
    channels: int = field(default=3, kw_only=True)
    channels_first: bool = field(default=True, kw_only=True)
    exif: bool = field(default=False, kw_only=True)
    dtype: torch.dtype = field(default=torch.uint8, kw_only=True)
    mean: tuple[float, ...] | None = field(default=None, kw_only=True)
    std: tuple[float, ...] | None = field(default=None, kw_only=True)
    _table: Array | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sides = self.size if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        if len(sides) != 2:
            raise ArgumentError(f"size is {self.size!r}, expected an int or (height, width)")
        height, width = (whole_number("size", side) for side in sides)
        if not (1 <= height <= SIDE_MAX and 1 <= width <= SIDE_MAX):
            raise ArgumentError(f"size is {self.size!r}, expected sides of 1 to {SIDE_MAX}")
        if self.channels not in (1, 3):
            raise ArgumentError(f"channels is {self.channels!r}, expected 1 or 3")
        if not isinstance(self.exif, bool):
            raise ArgumentTypeError(describe_wrong("exif", self.exif, "True or False"))
        # The dataclass is frozen, so set the plain ints in this way.
        object.__setattr__(self, "size", (height, width))
        self._check_numbers()

    def _check_numbers(self) -> None:
        """Check `dtype`, `mean` and `std`, and make the table of the numbers of each byte."""
        if self.dtype not in DTYPES:
            raise ArgumentTypeError(f"dtype is {self.dtype!r}, expected one of {', '.join(map(str, DTYPES))}")
        for name in ("mean", "std"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, (np.ndarray, torch.Tensor)):
                value = value.tolist()
            if self.dtype == torch.uint8:
                raise ArgumentError(f"{name} is {value!r} with dtype=torch.uint8, expected dtype=torch.float32 or half")
            if not isinstance(value, (tuple, list)) or len(value) != self.channels:
                raise ArgumentTypeError(f"{name} is {value!r}, expected {self.channels} numbers, one for each channel")
            for number in value:
                _check_number(name, number)
                if not math.isfinite(number) or (name == "std" and number <= 0):
                    raise ArgumentError(f"{name} is {value!r}, expected finite numbers" + ", > 0" * (name == "std"))
            if max(value) > NUMBER_MAX:
                raise ArgumentError(
                    f"{name} is {value!r}, expected numbers for pixels in 0 to 1; divide those for 0 to 255, such as "
                    "FFCV's, by 255"
                )
            object.__setattr__(self, name, tuple(value))
        if self.dtype != torch.uint8:
            object.__setattr__(self, "_table", _numbers(self.dtype, self.channels, self.mean, self.std))

    @property
    def mask(self) -> MaskDecoder:
        """The decoder of the masks of the same images."""
        return MaskDecoder(self)

    @property
    def boxes(self) -> BoxDecoder:
        """The decoder of boxes in the same images."""
        return BoxDecoder(self)

    def allocate(self, k: int, pin: bool = False) -> torch.Tensor:
        """Return an uninitialised tensor of `dtype` for `k` images: [k, C, H, W], or [k, H, W, C] without
        `channels_first`.

        Args:
            k: number of images, 0 or more.
            pin: allocate page-locked memory, from which copies to a GPU overlap with its work.
        """
        height, width = self.sides
        shape = (k, height, width, self.channels)
        if pin:
            batch = torch.empty(shape, dtype=self.dtype, device="cpu", pin_memory=True)
        else:
            # Memory from a pool: faulting in fresh pages would cost a tenth of the time that decoding takes.
            batch = torch.from_numpy(pooled(math.prod(shape) * DTYPES[self.dtype])).view(self.dtype).view(shape)
        return batch.permute(0, 3, 1, 2) if self.channels_first else batch

    def rows(self, batch: torch.Tensor) -> Array:
        """Return an array [k, H, W, C] that shares the memory of `batch`; `decode_into` takes its rows.

        Its dtype is that of `batch`; the bits of bfloat16, which numpy does not have, come as uint16.
        """
        last = batch.permute(0, 2, 3, 1) if self.channels_first else batch
        rows: Array = last.view(torch.int16).numpy().view(np.uint16) if batch.dtype == torch.bfloat16 else last.numpy()
        return rows

    @property
    def sides(self) -> tuple[int, int]:
        """The height and width of the result."""
        height, width = self.size  # type: ignore[misc]  # __post_init__ made it two
        return height, width

    def box(self, height: int, width: int, seed: int) -> Box:
        """Return the box of an image of `height` x `width` pixels that `decode_into` takes with `seed`."""
        raise NotImplementedError(f"{type(self).__name__}.box")

    def decode_into(self, data: memoryview | Array, out: Array, seed: int) -> Sides:
        """Decode one image, resample its box, and write it to `out`.

        Many threads may call this at once; decoding and resampling release the GIL.

        Args:
            data: an image file or a field's payload, bytes, 1-D; or pixels, uint8 [H, W] or [H, W, 1, 3 or 4].
            out: [H, W, C], in C order: one of `rows(batch)`.
            seed: in [0, 2**64); all random choices follow from it.

        Returns:
            The height and width of the whole image, which the decoders of masks and boxes need.

        Raises:
            FormatError: `data` is not an image; the content of `out` is undefined then.
            ImportError: simplejpeg or Pillow is not installed; names it.
            ArgumentError: `out` has another shape or dtype.
        """
        buffer: Any = data
        pixels = data if isinstance(data, np.ndarray) and data.ndim > 1 else memoryview(buffer)
        seed = whole_number("seed", seed)
        if out.shape != (*self.sides, self.channels) or out.itemsize != DTYPES[self.dtype]:
            raise ArgumentError(
                f"out has shape {out.shape} and dtype {out.dtype}, expected {(*self.sides, self.channels)} and "
                f"{str(self.dtype).removeprefix('torch.')}"
            )

        def choose(height: int, width: int) -> Box:
            return self.box(height, width, seed)

        picture = picture_of(pixels, choose, self.sides, self.channels, self.exif)
        self._write(picture, out)
        return picture.sides

    def _write(self, picture: ImagePart, out: Array) -> None:
        pixels, orientation, flip = picture.pixels, picture.orientation, picture.flip
        channels = pixels.shape[2]
        if channels == self.channels and orientation == 1:
            if self._table is None:
                resample(pixels, picture.area, out, flip)
            else:
                resample(pixels, picture.area, out.view(np.uint8), flip, table=self._table)
            return
        sides = self.sides[::-1] if TURNS[orientation][0] else self.sides
        made: Array = np.empty((*sides, channels), np.uint8)
        resample(pixels, picture.area, made)
        made = turn(made, orientation)
        made = made[:, ::-1] if flip else made
        if channels == 3 and self.channels == 1:  # plain pixels, or the JPEG decoder does not return luma
            made = ((made @ LUMA + 32768) >> 16)[:, :, None]
        if self._table is None:
            out[:] = made
            return
        whole = np.empty(out.shape, np.uint8)
        whole[:] = made
        look_up(whole, self._table, out.view(np.uint8))


@dataclass(frozen=True)
class CenterCrop(ImageDecoder):
    """The largest central box with the proportions of `size`, its sides times `ratio`: for evaluation.

    With the default ratio, 224 shows the same part as torchvision's Resize(256) and CenterCrop(224).

    Args:
        size, channels, channels_first, exif, dtype, mean, std: arguments of `ImageDecoder`.
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
        size, channels, channels_first, exif, dtype, mean, std: arguments of `ImageDecoder`.
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
                raise ArgumentTypeError(describe_wrong(name, value, "(least, most)"))
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
        size, channels, channels_first, exif, dtype, mean, std: arguments of `ImageDecoder`.

    Raises:
        ArgumentError, ArgumentTypeError: a parameter is out of range or of another type.
    """

    def box(self, height: int, width: int, seed: int) -> Box:
        return Box(0, 0, height, width)


def _numbers(dtype: torch.dtype, channels: int, mean: Any, std: Any) -> Array:
    """Return the number of each byte of each channel, as bytes: [channels, 256 * item]."""
    table = torch.arange(256, dtype=torch.uint8, device="cpu").to(torch.float32).div(255).repeat(channels, 1)
    if mean is not None:
        table.sub_(torch.tensor(mean, dtype=torch.float32, device="cpu")[:, None])
    if std is not None:
        table.div_(torch.tensor(std, dtype=torch.float32, device="cpu")[:, None])
    found: Array = table.to(dtype).contiguous().view(torch.uint8).numpy()
    return found


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
        raise ArgumentTypeError(describe_wrong(name, value, "a number"))

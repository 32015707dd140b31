"""The decoders of several columns of a batch, and what they take: files, paths, pixels and boxes, of any type."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.image_codec import ORIENTATION, TURNS, byte_pixels, turn
from ffrecord.system.values import describe, is_image
from ffrecord.torch.images.decoders import ImageDecoder
from ffrecord.torch.images.followers import BoxChooser, BoxDecoder, MaskDecoder
from ffrecord.torch.images.nvimgcodec import NVImageCodec
from ffrecord.torch.images.picture import Data, Sides, mask_pixels

__all__ = ["DECODERS", "ColumnDecoders", "Decoder"]
Decoder = ImageDecoder | MaskDecoder | BoxDecoder
DECODERS = (ImageDecoder, MaskDecoder, BoxDecoder)
Seeds = npt.NDArray[np.uint64]
Form = Callable[[str, list[torch.Tensor]], Any]
# torch computes little with these.
WIDER = {np.dtype(np.uint16): np.int32, np.dtype(np.uint32): np.int64, np.dtype(np.uint64): np.int64}


def as_image(value: Any, exif: bool) -> Data:
    """Return an image as the bytes of a file, or an array of several axes.

    Args:
        value: the bytes or path of a file, a PIL image, an array or tensor of pixels; or a dict of "bytes" and "path",
            as Hugging Face datasets have of an image that they do not decode.
        exif: turn a PIL image by its EXIF orientation.

    Raises:
        FormatError: the value is of another kind, or cannot be read.
    """
    if is_image(value):
        image, orientation = _load(value, exif)
        return turn(byte_pixels(image, False), orientation)
    return _as_data(value)


def as_mask(value: Any, exif: bool) -> Data:
    """Return a mask as the bytes of a file, or an array of several axes: of a PIL image, the stored numbers.

    Args:
        value, exif: as `as_image` takes them.

    Raises:
        FormatError: the value is of another kind, or cannot be read.
    """
    return mask_pixels(*_load(value, exif)) if is_image(value) else _as_data(value)


def as_boxes(value: Any) -> Any:
    """Return boxes as an array [n, 4] if they are a tensor or a list; no boxes at all are [0, 4]."""
    if isinstance(value, torch.Tensor):
        value = _array(value)
    elif isinstance(value, list | tuple):
        try:
            value = np.array(value)
        except ValueError:  # lists of different lengths
            return value
        # As torch does; with float64, a batch would depend on which of its lists are empty.
        value = value.astype(np.float32) if value.dtype == np.float64 else value
    return value.reshape(0, 4) if isinstance(value, np.ndarray) and value.shape == (0,) else value


def path_of(value: Any) -> str | None:
    """Return the path of the file that a value names, for messages, or None."""
    path = value.get("path") if isinstance(value, Mapping) else None if isinstance(value, str) else value
    return os.fsdecode(path) if isinstance(path, str | os.PathLike) else None


def _load(image: Any, exif: bool) -> tuple[Any, int]:
    """Return a PIL image with its pixels, and its orientation or 1."""
    try:
        image.load()
        orientation = image.getexif().get(ORIENTATION, 1) if exif else 1
    except MemoryError:
        raise
    except Exception as error:  # Pillow does not document the errors that bad bytes raise
        raise FormatError(f"Pillow cannot read this {type(image).__name__}: {error}") from error
    # The conversion removes this from the image, which is not ours.
    image = image.copy() if "transparency" in image.info else image
    return image, orientation if orientation in TURNS else 1


def _as_data(value: Any) -> Data:
    if isinstance(value, Mapping):
        value = _file_of(value)
    if isinstance(value, os.PathLike):
        try:
            with open(value, "rb") as file:
                return memoryview(file.read())
        except OSError as error:
            raise FormatError(f"the file cannot be read: {error.strerror or error}") from error
    if isinstance(value, torch.Tensor):
        value = _array(value)
    if isinstance(value, np.ndarray):
        if value.ndim > 1:
            return value
        if value.dtype == np.uint8 and value.ndim == 1:
            buffer: Any = np.ascontiguousarray(value)
            return memoryview(buffer)
        raise FormatError(f"a {value.dtype} array {list(value.shape)}, expected an image file or an array of pixels")
    if isinstance(value, bytes | bytearray | memoryview):
        return memoryview(value)
    advice = "; pass a path as pathlib.Path" if isinstance(value, str) else ""
    raise FormatError(f"{describe(value)}, expected an image file or an array of pixels{advice}")


def _file_of(stored: Mapping[Any, Any]) -> Any:
    """Return the bytes or path of a file that Hugging Face stores as a dict of both, of which one may be None."""
    if not stored.keys() <= {"bytes", "path"}:
        keys = ", ".join(map(str, stored)) or "no keys"
        raise FormatError(f"a dict of {keys}, expected an image file, an array of pixels, or a dict of bytes and path")
    data, path = stored.get("bytes"), stored.get("path")
    if data is not None:
        return data
    if not isinstance(path, str | os.PathLike):
        raise FormatError("an image without bytes and without a path")
    return Path(path)


def _array(tensor: torch.Tensor) -> Array:
    try:
        array: Array = tensor.detach().cpu().numpy()
    except (RuntimeError, TypeError) as error:
        raise FormatError(f"{describe(tensor)}, expected numbers that numpy has: {error}") from error
    return array


class ColumnDecoders:
    """The decoders of the columns of a batch.

    Masks and boxes follow the column whose decoder is theirs, or one that takes the same part of each image; masks may
    have another size. Masks without any column of images take the box of their own decoder.

    Args:
        decoders: column → decoder.
        form: form of values that vary in shape.
        pin: put images into pinned memory.
        undecoded: whether columns of images may be beside them that have no decoder.
        library: library that decodes the images of a batch together; None to decode them one by one on the CPU.

    Raises:
        ArgumentError: boxes have no column of images to follow; or masks have none, among columns of images.
    """

    def __init__(
        self,
        decoders: Mapping[str, Decoder],
        form: Form,
        pin: bool,
        undecoded: bool,
        library: NVImageCodec | None = None,
    ) -> None:
        self._form, self._pin, self._library = form, pin, library
        self._images = {name: each for name, each in decoders.items() if isinstance(each, ImageDecoder)}
        self._followers = {name: each for name, each in decoders.items() if not isinstance(each, ImageDecoder)}
        self._leaders = {name: self._leader(each) for name, each in self._followers.items()}
        for name, each in self._followers.items():
            # Of another decoder, boxes and masks would silently show other parts than their images.
            boxes = isinstance(each, BoxDecoder)
            if self._leaders[name] is None and (boxes or self._images or undecoded):
                kind = "boxes" if boxes else "masks"
                alone = "" if boxes or self._images else "; or name columns without images in fields="
                raise ArgumentError(
                    f"decode: {name} has {kind} of a decoder that no other column has, expected the decoder of its "
                    f'images, too: {{"image": crop, "{name}": crop.{"boxes" if boxes else "mask"}}}{alone}'
                )

    def _leader(self, follower: MaskDecoder | BoxDecoder) -> str | None:
        """Return the column with the own decoder of a follower, else the first that shows the same part, or None."""
        own, sized = follower.image, isinstance(follower, BoxDecoder)
        same = [name for name, each in self._images.items() if _part(each, sized) == _part(own, sized)]
        return next((name for name in same if self._images[name] is own), same[0] if same else None)

    def __bool__(self) -> bool:
        return bool(self._images or self._followers)

    def __contains__(self, name: object) -> bool:
        return name in self._images or name in self._followers

    def decode(
        self,
        values: Callable[[str], Sequence[Any]],
        count: int,
        seeds: Seeds | None,
        varies: Callable[[str], bool],
        label: Callable[[str], str],
        samples: bool = False,
    ) -> dict[str, Any]:
        """Return each column with a decoder.

        Args:
            values: function of a column that returns its k values, of any kind that `as_image`, `as_mask` or
                `as_boxes` takes.
            count: k.
            seeds: uint64 [k]; None for 0.
            varies: function of a column that tells whether the shapes of its values may vary.
            label: function of a column that returns its name for messages.
            samples: return a list of k values where shapes may vary, not the form of a batch.

        Raises:
            FormatError: a value is no image, mask or boxes; the message begins with the label of its column.
            ImportError: a package is not installed.
        """
        numbers = [0] * count if seeds is None else seeds.tolist()
        found: dict[str, Any] = {}
        sides: dict[str | None, list[Sides]] = {}
        for name, decoder in self._images.items():
            with _Named(label, name) as named:
                found[name], sides[name] = self._decode_images(decoder, values(name), numbers, named)
        for name, follower in self._followers.items():
            known: Sequence[Any] = sides.get(self._leaders[name], [None] * count)
            made: list[Array] = []
            with _Named(label, name) as named:
                for named.value, seed, each in zip(values(name), numbers, known, strict=True):
                    if isinstance(follower, BoxDecoder):
                        made.append(follower.decode(as_boxes(named.value), seed, each))  # pyright: ignore[reportArgumentType]
                    else:
                        made.append(follower.decode(as_mask(named.value, follower.image.exif), seed, each))
            if isinstance(follower, MaskDecoder):
                with _Named(label, name):
                    made = _to_one_dtype(made)
            found[name] = self._join(name, follower, made, varies(name), samples)
        return found

    def _decode_images(
        self, decoder: ImageDecoder, values: Sequence[Any], seeds: list[int], named: "_Named"
    ) -> tuple[torch.Tensor, list[Sides]]:
        """Return the images of a column as one tensor, and the sides of each."""
        if self._library is not None:
            return self._decode_together(self._library, decoder, values, seeds, named)
        batch = decoder.allocate(len(seeds), self._pin)
        sides = []
        for named.value, row, seed in zip(values, decoder.rows(batch), seeds, strict=True):
            sides.append(decoder.decode_into(as_image(named.value, decoder.exif), row, seed))
        return batch, sides

    @staticmethod
    def _decode_together(
        library: NVImageCodec, decoder: ImageDecoder, values: Sequence[Any], seeds: list[int], named: "_Named"
    ) -> tuple[torch.Tensor, list[Sides]]:
        data = []
        for named.value in values:
            data.append(as_image(named.value, decoder.exif))

        def decode_row(place: int, row: Array) -> Sides:
            named.value = values[place]
            return decoder.decode_into(data[place], row, seeds[place])

        return library.decode(decoder, data, seeds, decode_row)

    def _join(self, name: str, follower: Decoder, made: list[Array], varies: bool, samples: bool) -> Any:
        if made and isinstance(follower, MaskDecoder):
            varies = any(each.ndim > 2 for each in made) and varies
        tensors = [torch.from_numpy(np.ascontiguousarray(each)) for each in made]
        varies = varies or len({each.shape for each in tensors}) > 1  # samples that Python makes may be of any shapes
        if samples and varies:
            return tensors
        return self._form(name, tensors) if varies or not made else torch.stack(tensors)


def _part(decoder: BoxChooser, sized: bool) -> BoxChooser:
    """Return the decoder that takes the same part of images, and is equal for all decoders that take it.

    Args:
        decoder: a decoder of images.
        sized: decoders of other sizes are different, since boxes are in pixels of the result. Otherwise only their
            proportions count, because a central box follows these.
    """
    if not isinstance(decoder, ImageDecoder):
        return decoder
    divisor = 1 if sized else math.gcd(*decoder.sides)
    height, width = (side // divisor for side in decoder.sides)
    return replace(
        decoder, size=(height, width), channels=3, channels_first=True, dtype=torch.uint8, mean=None, std=None
    )


def _to_one_dtype(masks: list[Array]) -> list[Array]:
    """Return masks with the one dtype that holds the numbers of all.

    Raises:
        FormatError: a number is 2**63 or more, which int64 does not hold.
    """
    if not masks:
        return masks
    kind = np.result_type(*{each.dtype for each in masks})
    if all(each.dtype.kind in "biu" for each in masks) and kind.kind == "f":
        kind = np.dtype(np.int64)  # numpy has no whole number for all of uint64 and int64, and takes float64
    kind = np.dtype(WIDER.get(kind, kind))
    for each in masks:
        if kind == np.int64 and each.dtype == np.uint64 and each.max(initial=0) >= 1 << 63:
            raise FormatError(f"a mask has the number {each.max()}, expected less than 2**63")
    return [each.astype(kind, copy=False) for each in masks]


class _Named:
    """A context in which messages of FormatError get the label of a column, and the path of the file if there is one.

    Attributes:
        value: the value at work.
    """

    def __init__(self, label: Callable[[str], str], name: str) -> None:
        self._label, self._name = label, name
        self.value: Any = None

    def __enter__(self) -> "_Named":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FormatError):
            path = path_of(self.value)
            told = "" if path is None else f"{path!r}: "
            raise FormatError(f"{self._label(self._name)}: {told}{error}") from error

"""What samples hold for a decoder: files, paths, pixels and boxes of any type, as bytes or arrays."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ffrecord.errors import FormatError
from ffrecord.fields.field import Array
from ffrecord.fields.images.image_codec import ORIENTATION, TURNS, byte_pixels, turn
from ffrecord.system.values import describe, is_image
from ffrecord.torch.images.picture import Data, mask_pixels

__all__ = ["as_boxes", "as_image", "as_mask", "path_of"]


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

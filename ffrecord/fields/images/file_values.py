"""Image files that values stand for: bytes, paths, and PIL images that are not loaded yet."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields.field import Encoded, Field
from ffrecord.fields.images.image_header import Data
from ffrecord.system.values import describe

FieldT = TypeVar("FieldT", bound=Field)


def name_path(encode: Callable[[FieldT, Any], Encoded]) -> Callable[[FieldT, Any], Encoded]:
    """Decorate an `encode` of a field, so that a message about a file begins with the path if the value is one."""

    @wraps(encode)
    def encode_named(field: FieldT, value: Any) -> Encoded:
        try:
            return encode(field, value)
        except ValueError as error:
            # Only a path is a name worth showing.
            if not isinstance(value, (str, os.PathLike)):
                raise
            # The class stays, as callers tell errors of files from errors of arguments.
            kind = next(each for each in (FormatError, ArgumentError, ValueError) if isinstance(error, each))
            raise kind(f"{os.fsdecode(value)!r}: {error}") from error

    return encode_named


def read_file(value: Any, views: bool) -> Data | None:
    """Return the bytes of the file that `value` is or names, or None if it is something else.

    Args:
        value: the value to store.
        views: return a flat memoryview as it is, if the caller copies it into a record at once. Fields that users
            derive from ours need bytes.

    Raises:
        OSError: a path cannot be read.
    """
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        # Other formats of views would have other bytes when flattened.
        flat = value.format == "B" and value.ndim == 1 and value.c_contiguous
        return value if views and flat else value.tobytes()
    if isinstance(value, (str, os.PathLike)):
        with open(value, "rb") as file:
            return file.read()
    return None


def read_opened(image: Any) -> bytes:
    """Return the file that a PIL image was opened from. The image stays as it was.

    Raises:
        ValueError: the file is closed.
    """
    try:
        # The position is put back, since Pillow reads on from there when it loads the image.
        position = image.fp.tell()
        try:
            image.fp.seek(0)
            data: bytes = image.fp.read()
        finally:
            image.fp.seek(position)
    # Pillow sets `fp` to None when it closes a file.
    except (AttributeError, OSError, ValueError) as error:
        raise ValueError(f"{describe(image)} cannot be loaded: {error}") from error
    return data

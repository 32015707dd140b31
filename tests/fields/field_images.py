"""A picture, and JPEG files of it."""

import io
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

Y, X = np.mgrid[:48, :64]
SMOOTH = np.stack([4 * Y, 3 * X, Y + X], axis=2).astype(np.uint8)


def jpeg_bytes(mode: str = "RGB", **options: Any) -> bytes:
    """`SMOOTH` as a JPEG of `mode`."""
    out = io.BytesIO()
    Image.fromarray(SMOOTH).convert(mode).save(out, "JPEG", **options)
    return out.getvalue()


def pixels(data: bytes, mode: str = "RGB") -> Any:
    """What Pillow makes of an image file."""
    return np.array(Image.open(io.BytesIO(data)).convert(mode))


def resized(data: bytes, width: int, height: int) -> bytes:
    """JPEG `data` with another size in its frame header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]

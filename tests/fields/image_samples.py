"""Small images in every format, and what they look like."""

import io
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

Y, X = np.mgrid[:40, :56]
COLOUR = np.stack([6 * Y, 4 * X, Y + X], axis=2).astype(np.uint8)
GREY = np.ascontiguousarray(COLOUR[:, :, 0])
DEEP = (1000 * Y + 900 * X).astype(np.uint16)
FORMATS = {"PNG": "PNG", "WebP": "WEBP", "TIFF": "TIFF", "BMP": "BMP", "GIF": "GIF", "JPEG": "JPEG"}


def saved(image: Any, kind: str, **options: Any) -> bytes:
    """A PIL image as a file."""
    out = io.BytesIO()
    image.save(out, FORMATS[kind], **options)
    return out.getvalue()


def image_of(mode: str) -> Any:
    """An image of `mode`."""
    if mode == "I;16":
        return Image.fromarray(DEEP)
    if mode == "I":
        return Image.fromarray(DEEP.astype(np.int32) - 20000)
    if mode == "F":
        return Image.fromarray(DEEP.astype(np.float32) / 7)
    if mode in ("RGBA", "LA"):
        image = Image.fromarray(COLOUR).convert(mode)
        image.putalpha(Image.fromarray(255 - GREY))
        return image
    if mode == "P":
        return Image.fromarray(COLOUR).quantize(37)
    return Image.fromarray(COLOUR).convert(mode)


def without_alpha(image: Any) -> Any:
    """The pixels that a decoded image shall have, by Pillow."""
    if image.mode in ("1", "L", "LA"):
        return np.array(image.convert("L"))
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return np.array(image)
    return np.array(image.convert("RGB"))


MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "WebP": ("RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("1", "L", "P"),
}
LOSSLESS: dict[str, dict[str, Any]] = {"WebP": {"lossless": True, "exact": True}}
CASES = [(kind, mode) for kind, modes in MODES.items() for mode in modes]


def file_of(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """An image of `mode` as a file of the format `kind`."""
    return saved(image_of(mode), kind, **{**LOSSLESS.get(kind, {}), **options})

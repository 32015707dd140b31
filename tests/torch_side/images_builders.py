"""Photographs and JPEG files for the tests of image decoders."""

import io
from functools import cache
from typing import Any

import numpy as np
import pytest

from ffrecord.torch.images import ImageDecoder

Image = pytest.importorskip("PIL.Image")

Array = np.ndarray[Any, Any]


@cache
def picture(height: int, width: int, seed: int = 0) -> Array:
    """Uint8 [height, width, 3] like a photograph: power falls with frequency; an edge; a little noise."""
    random = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)) + 1 / max(height, width)
    layers = []
    for _ in range(3):
        spectrum = np.fft.rfft2(random.normal(size=(height, width))) / frequency**1.3
        layers.append(np.fft.irfft2(spectrum, (height, width)))
    luma = layers[0] + (layers[0] > 0) * layers[0].std()  # an edge along a line of no direction
    pixels = np.stack([luma, luma + layers[1] / 4, luma + layers[2] / 4], axis=2)
    pixels = (pixels - pixels.mean()) / (pixels.std() + 1e-9) * 45 + 120 + random.normal(size=pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def jpeg(pixels: Array, **options: Any) -> bytes:
    """A JPEG by Pillow, of quality 92 unless `options` say otherwise."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", **{"quality": 92, **options})
    return out.getvalue()


def decoded(decoder: ImageDecoder, data: bytes, seed: int = 0) -> Array:
    """What a decoder makes of one payload."""
    batch = decoder.allocate(1)
    batch.fill_(99)
    row = decoder.rows(batch)[0]
    decoder.decode_into(memoryview(data), row, seed)
    return row


def expected(decoder: ImageDecoder, data: bytes, seed: int = 0) -> Array:
    """The same by the book: the whole image, cropped, resized by Pillow's antialiased bilinear filter, flipped."""
    mode = "L" if decoder.channels == 1 else "RGB"
    image = Image.open(io.BytesIO(data)).convert(mode)
    box = decoder.box(image.height, image.width, seed)
    image = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    image = image.resize(decoder.sides[::-1], Image.Resampling.BILINEAR)
    pixels = np.asarray(image).reshape(*decoder.sides, decoder.channels)
    return pixels[:, ::-1] if box.flip else pixels


def psnr(one: Array, other: Array) -> float:
    """Likeness of two images in dB; 50 is a difference that nobody sees."""
    error = ((one.astype(float) - other) ** 2).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))

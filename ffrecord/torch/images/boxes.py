"""The boxes that decoders cut out of images: pure functions of the sides, and of a seed for random ones."""

import math
from typing import NamedTuple

__all__ = ["Box", "central_box", "random_box", "uniforms"]

ATTEMPTS = 10
BITS = 53  # of a float's mantissa
MASK = 2**64 - 1

Range = tuple[float, float]


class Box(NamedTuple):
    """Rows [top, top + height) and columns [left, left + width), in pixels; `flip` exchanges left and right."""

    top: int
    left: int
    height: int
    width: int
    flip: bool = False

    def area(self, scale: int = 1) -> tuple[float, float, float, float]:
        """Return (top, left, height, width) in units of `scale` pixels."""
        return self.top / scale, self.left / scale, self.height / scale, self.width / scale


def uniforms(seed: int, start: int, count: int) -> list[float]:
    """Return `count` numbers in [0, 1), from number `start` on of the SplitMix64 stream of `seed`.

    Each is the upper 53 bits of a value, times 2**-53. SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom
    Number Generators (OOPSLA 2014), with the constants of Vigna's public-domain splitmix64.c.
    """
    numbers = []
    for place in range(start + 1, start + count + 1):
        z = (seed + place * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(((z ^ (z >> 31)) >> (64 - BITS)) * 2.0**-BITS)
    return numbers


def random_box(height: int, width: int, scale: Range, ratio: Range, flip: float, seed: int) -> Box:
    """Return a random box of `height` x `width` pixels, chosen like torchvision's RandomResizedCrop.

    Its share of the area is uniform in `scale`. Its width over its height is log-uniform in `ratio`. Both are drawn
    again while the rounded sides do not fit, at most ten times. Then the box is the largest central part of an allowed
    ratio. The numbers of `uniforms(seed)` are used in order: flip (if below `flip`), top, left, then area and ratio of
    each attempt.
    """
    chance, down, right = uniforms(seed, 0, 3)
    flipped = chance < flip
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(ATTEMPTS):
        share, aspect = uniforms(seed, 3 + 2 * attempt, 2)
        area = height * width * (scale[0] + share * (scale[1] - scale[0]))
        odds = math.exp(low + aspect * (high - low))
        w, h = round(math.sqrt(area * odds)), round(math.sqrt(area / odds))
        if 0 < w <= width and 0 < h <= height:
            return Box(int(down * (height - h + 1)), int(right * (width - w + 1)), h, w, flipped)
    return _fallback_box(height, width, ratio)._replace(flip=flipped)


def _fallback_box(height: int, width: int, ratio: Range) -> Box:
    if width < ratio[0] * height:
        height, whole = max(1, round(width / ratio[0])), height
        return Box((whole - height) // 2, 0, height, width)
    if width > ratio[1] * height:
        width, whole = max(1, round(height * ratio[1])), width
        return Box(0, (whole - width) // 2, height, width)
    return Box(0, 0, height, width)


def central_box(height: int, width: int, size: tuple[int, int], ratio: float) -> Box:
    """Return the largest central box with the proportions of `size` (height, width), its sides times `ratio`."""
    scale = ratio * min(height / size[0], width / size[1])
    h = min(height, max(1, round(size[0] * scale)))
    w = min(width, max(1, round(size[1] * scale)))
    return Box((height - h) // 2, (width - w) // 2, h, w)

"""Which part of an image is taken: the random numbers, torchvision's algorithm, its distribution; and central parts."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.torch.images import CenterCrop, RandomResizedCrop, Resize
from ffrecord.torch.images.boxes import Box, central_box, random_box, uniforms

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
SIDES = st.integers(1, 70_000)
GOLDEN = [
    (35, 6, 294, 243, False),
    (50, 197, 308, 298, False),
    (89, 124, 256, 292, False),
    (49, 99, 312, 241, True),
    (87, 40, 280, 316, False),
]


def test_splitmix64() -> None:
    """The first values of Vigna's splitmix64.c with seed 1234567, as published with many ports of it."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert uniforms(1234567, 0, 5) == [(value >> 11) * 2.0**-53 for value in published]
    assert uniforms(1234567, 3, 2) == uniforms(1234567, 0, 5)[3:]
    assert all(0 <= value < 1 for value in uniforms(2**64 - 1, 0, 100))


def test_golden_boxes() -> None:
    """Never change: a run that goes on must see what it would have seen."""
    assert [tuple(random_box(375, 500, SCALE, RATIO, 0.5, seed)) for seed in (0, 1, 2, 2**63, 2**64 - 1)] == GOLDEN


def twin(height: int, width: int, scale: Any, ratio: Any, random: np.random.Generator) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.get_params, line by line, with numpy's random numbers."""
    area = height * width
    log_ratio = np.log(ratio)
    for _ in range(10):
        target_area = area * random.uniform(scale[0], scale[1])
        aspect_ratio = math.exp(random.uniform(log_ratio[0], log_ratio[1]))
        w = round(math.sqrt(target_area * aspect_ratio))
        h = round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            i = int(random.integers(0, height - h + 1))
            j = int(random.integers(0, width - w + 1))
            return i, j, h, w
    in_ratio = width / height
    if in_ratio < min(ratio):
        w = width
        h = round(w / min(ratio))
    elif in_ratio > max(ratio):
        h = height
        w = round(h * max(ratio))
    else:
        w = width
        h = height
    return (height - h) // 2, (width - w) // 2, h, w


def apart(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The statistic of Kolmogorov and Smirnov: how far two samples' distributions are apart, in [0, 1]."""
    both = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(each), both, "right") / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


@pytest.mark.parametrize("sides", [(375, 500), (100, 400), (300, 60), (224, 224)])
def test_distribution(sides: tuple[int, int]) -> None:
    """Areas, proportions and places are distributed as torchvision's."""
    count = 8000
    random = np.random.default_rng(0)
    seeds = random.integers(0, 2**64, count, np.uint64).tolist()
    ours = np.array([random_box(*sides, SCALE, RATIO, 0.5, seed) for seed in seeds], float)
    theirs = np.array([twin(*sides, SCALE, RATIO, random) for _ in range(count)], float)

    def measures(boxes: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        top, left, height, width = boxes.T[:4]
        return {
            "area": height * width,
            "aspect": width / height,
            "top": top / np.maximum(1, sides[0] - height),
            "left": left / np.maximum(1, sides[1] - width),
        }

    for name, own in measures(ours).items():
        # Of samples of one distribution, once in 10,000 times are so far apart: 2.23 * sqrt(2 / count).
        assert apart(own, measures(theirs)[name]) < 0.0353, name
    flips = ours[:, 4]
    assert abs(flips.mean() - 0.5) < 4 * 0.5 / math.sqrt(count)
    for column in ours.T[:4]:
        if column.std():
            assert abs(np.corrcoef(column, flips)[0, 1]) < 0.045  # 4 deviations


@given(SIDES, SIDES, st.integers(0, 2**64 - 1), st.floats(0.01, 1), st.floats(0.05, 1), st.floats(1, 20))
def test_inside_the_image(height: int, width: int, seed: int, least: float, low: float, high: float) -> None:
    box = random_box(height, width, (least, 1.0), (low, high), 0.5, seed)
    assert box.top >= 0 and box.height >= 1 and box.top + box.height <= height
    assert box.left >= 0 and box.width >= 1 and box.left + box.width <= width
    assert box == random_box(height, width, (least, 1.0), (low, high), 0.5, seed)


@pytest.mark.parametrize(
    ("sides", "box"),
    [
        ((1000, 10), (493, 0, 13, 10)),  # too narrow for any part: ten attempts, then the centre
        ((10, 1000), (0, 493, 10, 13)),
        ((1, 1), (0, 0, 1, 1)),
    ],
)
def test_central_where_no_attempt_fits(sides: tuple[int, int], box: tuple[int, ...]) -> None:
    """As torchvision falls back; the share asked for is all of the area, in proportions that do not fit."""
    found = random_box(*sides, (1.0, 1.0), RATIO, 0, 5)
    assert found[:4] == box
    assert found[:4] == twin(*sides, (1.0, 1.0), RATIO, np.random.default_rng(0))


@pytest.mark.parametrize(("flip", "share"), [(0, 0), (1, 1), (0.25, 0.25)])
def test_flips(flip: float, share: float) -> None:
    boxes = [random_box(50, 60, SCALE, RATIO, flip, seed) for seed in range(2000)]
    assert abs(sum(box.flip for box in boxes) / 2000 - share) < 0.04
    # The rest does not depend on it.
    assert [box[:4] for box in boxes] == [random_box(50, 60, SCALE, RATIO, 0.5, seed)[:4] for seed in range(2000)]


@given(SIDES, SIDES, st.integers(1, 1000), st.integers(1, 1000), st.floats(0.01, 1))
def test_central_parts(height: int, width: int, h: int, w: int, ratio: float) -> None:
    box = central_box(height, width, (h, w), ratio)
    assert box.top >= 0 and box.height >= 1 and box.top + box.height <= height and not box.flip
    assert box.left >= 0 and box.width >= 1 and box.left + box.width <= width
    assert abs(2 * box.top + box.height - height) <= 1 and abs(2 * box.left + box.width - width) <= 1
    if min(box.height, box.width) > 50:
        assert math.isclose(box.width / box.height, w / h, rel_tol=0.02)


def test_decoders_boxes() -> None:
    assert CenterCrop(224).box(256, 400, 7) == Box(16, 88, 224, 224)
    assert CenterCrop((100, 200), ratio=1).box(300, 300, 7) == Box(75, 0, 150, 300)
    assert Resize(5).box(30, 40, 7) == Box(0, 0, 30, 40)
    crop = RandomResizedCrop(224, (0.5, 1), (1, 1), flip=1)
    assert crop.box(300, 300, 9) == random_box(300, 300, (0.5, 1), (1, 1), 1, 9)

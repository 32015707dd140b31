"""Images that are resampled together, as on a GPU: each as it would be alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.fields.images.image_codec import TURNS
from ffrecord.torch.images import nvimgcodec
from ffrecord.torch.images.nvimgcodec import ImagePlan, Upright, group_neighbours, resample_together
from ffrecord.torch.images.picture import Sides

LENGTHS = st.sampled_from([1, 2, 3, 7, 50, 64, 65, 200])
IMAGES = st.lists(
    st.tuples(st.integers(0, 20), LENGTHS, LENGTHS, st.sampled_from(sorted(TURNS)), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda image: image[0],
)
FILLED = -1.0


def weights(length: int, count: int) -> np.ndarray:
    """Weights [count, length] of the triangles by which rows become fewer or more."""
    scale = length / count
    distance = np.abs((np.arange(count)[:, None] + 0.5) * scale - np.arange(length) - 0.5)
    triangles = np.maximum(0, 1 - distance / max(scale, 1))
    return triangles / triangles.sum(axis=1, keepdims=True)


def alone(pixels: np.ndarray, orientation: int, flip: bool, sides: tuple[int, int]) -> np.ndarray:
    """The slow obvious twin: turn the image, then resample its rows and its columns. [C, *sides]."""
    swap, down, across = TURNS[orientation]
    upright = pixels.transpose(1, 0, 2) if swap else pixels
    upright = upright[::-1] if down else upright
    upright = upright[:, ::-1] if across else upright
    upright = upright[:, ::-1] if flip else upright
    rows, columns = (weights(length, side) for length, side in zip(upright.shape, sides, strict=False))
    return np.einsum("yh,hwc,xw->cyx", rows, upright.astype(float), columns)


@given(
    images=IMAGES,
    sides=st.tuples(LENGTHS, LENGTHS),
    channels=st.sampled_from([1, 3]),
    most=st.sampled_from([1, 5000, 1 << 24]),
)
def test_as_each_alone(images, sides, channels, most):
    images = sorted(images)
    torch.manual_seed(len(images))
    pixels = [torch.randint(0, 256, (height, width, channels), dtype=torch.uint8) for _, height, width, *_ in images]
    whole = torch.full((21, channels, *sides), FILLED).contiguous(memory_format=torch.channels_last)
    uprights = [
        Upright(place, each, ImagePlan(None, each.numel(), Sides(1, 1), orientation, flip))
        for each, (place, _, _, orientation, flip) in zip(pixels, images, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvimgcodec, "TOGETHER_MOST", most)
        groups = list(group_neighbours(uprights))
    assert [image for group in groups for image in group] == uprights
    for group in groups:
        resample_together(group, whole)
    for each, (place, _, _, orientation, flip) in zip(pixels, images, strict=True):
        np.testing.assert_allclose(whole[place], alone(each.numpy(), orientation, flip, sides), rtol=0, atol=0.02)
    others = set(range(len(whole))) - {image[0] for image in images}
    assert (whole[sorted(others)] == FILLED).all()

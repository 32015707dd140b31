"""Images that are resampled together, as on a GPU: each as it would be alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from ffrecord.fields.images.image_codec import TURNS
from ffrecord.torch.images import nvimgcodec
from ffrecord.torch.images.nvimgcodec import ImagePlan, Upright, group_neighbours, resample_together
from ffrecord.torch.images.picture import Sides

LENGTHS = st.sampled_from([1, 2, 3, 7, 50, 64, 65, 200])
IMAGES = st.lists(
    st.tuples(st.integers(0, 20), LENGTHS, LENGTHS, st.sampled_from(sorted(TURNS)), st.booleans()),
    min_size=1,
    max_size=5,
    unique_by=lambda image: image[0],
)
FILLED = -1.0


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """A child that a later test forks would hang in a product, if this process had used several threads for one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
        groups = list(group_neighbours(uprights, sides))
    assert [image for group in groups for image in group] == uprights
    for group in groups:
        resample_together(group, whole)
    for each, (place, height, width, orientation, flip) in zip(pixels, images, strict=True):
        if orientation == 1 and not flip and sides[1] > 1:  # torch 2.13 is wrong for one column
            filtered = interpolate(each.permute(2, 0, 1)[None].float(), sides, mode="bilinear", antialias=True)[0]
            assert torch.allclose(whole[place], filtered, rtol=0, atol=0.02), (height, width)
        np.testing.assert_allclose(whole[place], alone(each.numpy(), orientation, flip, sides), rtol=0, atol=0.02)
    others = set(range(len(whole))) - {image[0] for image in images}
    assert (whole[sorted(others)] == FILLED).all()


def image(place: int, height: int, width: int) -> Upright:
    pixels = torch.arange(height * width * 3, device="cpu").reshape(height, width, 3) % 251
    return Upright(place, pixels.to(torch.uint8), ImagePlan(None, height * width, Sides(height, width), 1, False))


def resampled(images: list[Upright], sides: tuple[int, int]) -> torch.Tensor:
    whole = torch.zeros((len(images), 3, *sides), dtype=torch.float32, device="cpu")
    for group in group_neighbours(images, sides):
        resample_together(group, whole)
    return whole


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_default_types_and_autocast(kind):
    images = [image(0, 40, 30), image(1, 7, 300)]
    expected = resampled(images, (20, 24))
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        assert torch.equal(resampled(images, (20, 24)), expected)
    finally:
        torch.set_default_dtype(before)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(resampled(images, (20, 24)), expected)
    with torch.device("meta"):
        assert torch.equal(resampled(images, (20, 24)), expected)


def test_weights_count_for_the_room_of_a_group():
    """Long strips have few pixels and large weights."""
    strips = [image(place, 2000, 4) for place in range(64)]
    assert max(map(len, group_neighbours(strips, (2048, 32)))) < 8
    assert max(map(len, group_neighbours(strips, (16, 32)))) == 64

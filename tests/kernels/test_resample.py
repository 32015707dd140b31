"""Resampling against a twin in floats, against Pillow, and between the kernels."""

import ctypes
import mmap
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.errors import ArgumentError
from ffrecord.kernels._pictures import kernels, look_up, resample

Array = np.ndarray[Any, Any]
Box = tuple[float, float, float, float]
GOLDEN = [[[128, 124, 123], [127, 127, 149], [143, 132, 118]], [[123, 119, 127], [128, 104, 136], [110, 131, 107]]]


def matrix(start: float, size: float, sides: int, out: int) -> Array:
    """The weights of the triangle filter, [out, sides], by the book."""
    scale = size / out
    support = max(1.0, scale)
    places = np.arange(sides) + 0.5
    centres = start + (np.arange(out)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(places - centres) / support)
    weights[:, (places < np.floor(start)) | (places > np.ceil(start + size))] = 0
    return weights / weights.sum(1, keepdims=True)


def twin(image: Array, box: Box, height: int, width: int) -> Array:
    """The result in floats."""
    top, left, h, w = box
    down, across = matrix(top, h, image.shape[0], height), matrix(left, w, image.shape[1], width)
    return np.einsum("yr,rcd,xc->yxd", down, image.astype(float), across)


def resampled(image: Array, box: Box, height: int, width: int, **options: Any) -> Array:
    out = np.full((height, width, image.shape[2]), 77, np.uint8)
    resample(image, box, out, **options)
    return out


def noise(height: int, width: int, channels: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, Box, int, int]:
    rows, columns = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    top, left = draw(st.integers(0, 8 * rows - 1)), draw(st.integers(0, 8 * columns - 1))
    h, w = draw(st.integers(1, 8 * rows - top)), draw(st.integers(1, 8 * columns - left))
    image = noise(rows, columns, draw(st.sampled_from([1, 3])), draw(st.integers(0, 9)))
    return image, (top / 8, left / 8, h / 8, w / 8), draw(st.integers(1, 40)), draw(st.integers(1, 40))


@given(cases())
def test_as_the_twin(case: tuple[Array, Box, int, int]) -> None:
    image, box, height, width = case
    expected = twin(image, box, height, width)
    best = resampled(image, box, height, width)
    # Half by rounding, the rest by weights of 14 bits.
    assert np.abs(best - expected).max() < 0.6
    for kernel in kernels():
        assert (resampled(image, box, height, width, kernel=kernel) == best).all(), kernel
        flipped = resampled(image, box, height, width, kernel=kernel, flip=True)
        assert (flipped[:, ::-1] == best).all(), kernel


@pytest.mark.parametrize("sides", [(280, 340), (100, 61), (33, 1000), (1, 500), (500, 1), (224, 224), (1, 1)])
def test_as_pillow(sides: tuple[int, int]) -> None:
    pillow = pytest.importorskip("PIL.Image")
    image = noise(*sides, 3)
    expected = np.asarray(pillow.fromarray(image).resize((112, 224), pillow.Resampling.BILINEAR))
    found = resampled(image, (0, 0, *sides), 224, 112)
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("value", [0, 1, 127, 255])
def test_plain_areas_stay(kernel: str, value: int) -> None:
    """Weights sum to exactly one, whatever they are; and nothing overflows."""
    image = np.full((301, 997, 3), value, np.uint8)
    for height, width in [(1, 1), (7, 3), (224, 224), (500, 1500)]:
        assert (resampled(image, (0.3, 11.7, 300.1, 980.9), height, width, kernel=kernel) == value).all()


@pytest.mark.parametrize("kernel", kernels())
def test_what_is_outside_the_box_does_not_count(kernel: str) -> None:
    image = noise(60, 80, 3)
    box = (10, 20, 30, 40)
    before = resampled(image, box, 17, 19, kernel=kernel)
    inside = image[10:40, 20:60].copy()
    image[:] = ~image
    image[10:40, 20:60] = inside
    assert (resampled(image, box, 17, 19, kernel=kernel) == before).all()
    assert (resampled(inside, (0, 0, 30, 40), 17, 19, kernel=kernel) == before).all()


@pytest.mark.parametrize("kernel", kernels())
def test_identity(kernel: str) -> None:
    for channels in (1, 3):
        image = noise(37, 53, channels)
        assert (resampled(image, (0, 0, 37, 53), 37, 53, kernel=kernel) == image).all()


def test_golden() -> None:
    """Never changes, on no machine."""
    out = resampled(noise(9, 11, 3), (0.5, 1.25, 8, 9.5), 2, 3)
    assert out.tolist() == GOLDEN


def guarded(size: int) -> Array:
    """`size` bytes, behind which every access is a crash."""
    page = mmap.PAGESIZE
    own = -(-size // page) * page
    memory = np.frombuffer(mmap.mmap(-1, own + page), np.uint8)
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + own), page, 0)
    return memory[own - size : own]


@pytest.mark.parametrize("kernel", kernels())
def test_reads_and_writes_nothing_else(kernel: str) -> None:
    """The image ends where its memory does, and so does the result."""
    for rows, columns in [(1, 1), (3, 5), (16, 16), (21, 65)]:
        size = 3 * rows * columns
        image = guarded(size).reshape(rows, columns, 3)
        image[:] = noise(rows, columns, 3)
        for height, width in [(1, 1), (5, 7), (30, 33)]:
            around = np.full(3 * height * width + 64, 9, np.uint8)
            out = around[32:-32].reshape(height, width, 3)
            resample(image, (0, 0, rows, columns), out, kernel=kernel)
            assert (around[:32] == 9).all() and (around[-32:] == 9).all()


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((-1, 0, 2, 2), "the box has rows -1.0 to 1.0, expected some of 4"),
        ((0, 0, 0, 2), "the box has rows 0.0 to 0.0"),
        ((3, 0, 1.5, 2), "the box has rows 3.0 to 4.5, expected some of 4"),
        ((0, -0.5, 2, 2), "the box has columns -0.5 to 1.5, expected some of 5"),
        ((0, 0, 2, 5.1), "the box has columns 0.0 to 5.1, expected some of 5"),
        ((0, float("nan"), 2, 2), "the box has columns nan"),
        ((0, 0, float("inf"), 2), "the box has rows 0.0 to inf"),
        ((4, 0, 1e-300, 2), "the box has rows 4.0 to 4.0, expected some of 4"),
        ((0, 5, 2, 1e-300), "the box has columns 5.0 to 5.0, expected some of 5"),
    ],
)
def test_boxes_refused(box: Box, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        resampled(noise(4, 5, 3), box, 2, 2)


def test_arrays_refused() -> None:
    image = noise(4, 5, 3)
    box = (0, 0, 4, 5)
    for wrong, words in [
        (np.zeros((2, 2, 1), np.uint8), "pixels has 3 channels, out 1, expected"),
        (np.zeros((0, 2, 3), np.uint8), "a side has 0 pixels"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            resample(image, box, wrong)
    with pytest.raises(ArgumentError, match="pixels has 2 channels, out 2"):
        resample(np.zeros((4, 5, 2), np.uint8), box, np.zeros((2, 2, 2), np.uint8))
    with pytest.raises(ValueError):
        resample(image, box, np.zeros((2, 2, 3), np.float32))
    with pytest.raises(ValueError):
        resample(image, box, np.zeros((2, 4, 3), np.uint8)[:, ::2])
    with pytest.raises(ValueError):
        resample(image, box, np.zeros((2, 2, 3), np.uint8), kernel="none")


@children.measures_memory
def test_no_memory_stays() -> None:
    image, out = noise(2, 20_000, 3), np.zeros((2, 2, 3), np.uint8)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    resample(image, (0, 0, 2, 20_000), out)
    before = resident()
    for _ in range(1000):  # of 280 kB each
        resample(image, (0, 0, 2, 20_000), out)
    assert resident() - before < 50 << 20


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_of_a_table(kernel: str, dtype: Any, channels: int) -> None:
    """Each byte of each channel becomes its number, and nothing else is written."""
    table = np.random.default_rng(1).integers(0, 2**16, (channels, 256)).astype(dtype)
    image = noise(40, 50, channels)
    for height, width in [(1, 1), (5, 7), (30, 33)]:
        for flip in (False, True):
            plain = resampled(image, (3, 4, 30, 41), height, width, flip=flip, kernel=kernel)
            around = np.full(channels * height * width + 64, 9, dtype)
            out = around[32:-32].reshape(height, width, channels)
            numbers = table.view(np.uint8)
            resample(image, (3, 4, 30, 41), out.view(np.uint8), flip, kernel, numbers)
            expected = np.stack([table[c][plain[:, :, c]] for c in range(channels)], 2)
            assert np.array_equal(out, expected)
            assert (around[:32] == 9).all() and (around[-32:] == 9).all()
            again = np.zeros_like(out)
            look_up(plain, numbers, again.view(np.uint8))
            assert np.array_equal(again, expected)


def test_tables_refused() -> None:
    image, box, table = noise(4, 5, 3), (0, 0, 4, 5), np.zeros((3, 1024), np.uint8)
    for wrong in (np.zeros((1, 1024), np.uint8), np.zeros((3, 256), np.uint8)):
        with pytest.raises(ArgumentError, match=r"the table has \d x \d+ bytes, expected 3 x 512 or 1024"):
            resample(image, box, np.zeros((2, 2, 12), np.uint8), table=wrong)
    with pytest.raises(ArgumentError, match="pixels has 3 channels, out 6, expected"):
        resample(image, box, np.zeros((2, 2, 6), np.uint8), table=table)
    with pytest.raises(ArgumentError, match=r"out has shape \[4, 6, 12\], expected \[4, 5, 12\]"):
        look_up(image, table, np.zeros((4, 6, 12), np.uint8))
    with pytest.raises(ArgumentError, match="0 pixels, expected"):
        look_up(image[:0], table, np.zeros((0, 5, 12), np.uint8))

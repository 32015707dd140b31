"""Decoders as a loader uses them: batches, rows, seeds, threads, plain pixels, odd sizes, parameters."""

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from images_builders import decoded, expected, jpeg, picture, psnr

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.fields import JPEGField, RGBImageField
from ffrecord.fields.images.pixels import pack_pixels
from ffrecord.torch.images import CenterCrop, ImageDecoder, RandomResizedCrop, Resize

DECODERS = [CenterCrop(32), RandomResizedCrop((24, 40)), Resize((7, 5))]


def test_allocate() -> None:
    batch = Resize((7, 5)).allocate(4)
    assert batch.dtype == torch.uint8 and batch.shape == (4, 3, 7, 5)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    last = Resize((7, 5), channels_first=False).allocate(4)
    assert last.shape == (4, 7, 5, 3) and last.is_contiguous()
    assert Resize(7, channels=1).allocate(0).shape == (0, 1, 7, 7)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_rows_are_the_batch(first: bool, channels: int) -> None:
    decoder = Resize((7, 5), channels=channels, channels_first=first)
    batch = decoder.allocate(2)
    rows = decoder.rows(batch)
    assert rows.shape == (2, 7, 5, channels) and rows[0].flags.c_contiguous
    decoder.decode_into(memoryview(jpeg(picture(50, 60))), rows[1], 0)
    image = batch[1].permute(1, 2, 0) if first else batch[1]
    assert (image.numpy() == rows[1]).all()


@pytest.mark.parametrize("decoder", DECODERS)
def test_only_its_row_is_written(decoder: ImageDecoder) -> None:
    batch = decoder.allocate(3)
    batch.fill_(7)
    decoder.decode_into(memoryview(jpeg(picture(90, 120))), decoder.rows(batch)[1], 3)
    assert (batch[0] == 7).all() and (batch[2] == 7).all() and (batch[1] != 7).any()


@pytest.mark.parametrize("decoder", [*DECODERS, RandomResizedCrop(48, channels=1)])
def test_a_pure_function_of_the_seed_in_all_threads(decoder: ImageDecoder) -> None:
    files = [jpeg(picture(80 + 30 * i, 200 - 20 * i, i)) for i in range(6)]
    alone = [decoded(decoder, data, seed).tobytes() for seed, data in enumerate(files)]
    jobs = [(seed, data) for _ in range(20) for seed, data in enumerate(files)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda job: decoded(decoder, job[1], job[0]).tobytes(), jobs))
    assert results == alone * 20
    if isinstance(decoder, RandomResizedCrop):
        assert len({decoded(decoder, files[0], seed).tobytes() for seed in range(8)}) > 6


def test_flip() -> None:
    data = jpeg(picture(90, 120))
    one, other = (decoded(RandomResizedCrop(32, flip=flip), data, 5) for flip in (0, 1))
    assert (one == other[:, ::-1]).all() and (one != other).any()


def test_seeds_may_be_of_numpy() -> None:
    data = jpeg(picture(90, 120))
    seeds: Any = np.array([2**64 - 1], np.uint64)
    assert (decoded(DECODERS[1], data, seeds[0]) == decoded(DECODERS[1], data, 2**64 - 1)).all()


@pytest.mark.parametrize("write_mode", ["raw", "jpeg", "smart", "proportion"])
def test_payloads_of_fields(write_mode: str) -> None:
    options: dict[str, Any] = {"smart_threshold": 20_000} if write_mode == "smart" else {}
    field = RGBImageField(write_mode, jpeg_quality=95, **options)
    for sides in [(50, 60), (120, 90)]:
        pixels = picture(*sides)
        data = bytes(field.encode(pixels))
        for decoder in (*DECODERS, Resize(16, channels=1)):
            found = decoded(decoder, data, 4)
            assert psnr(found, expected(decoder, jpeg(pixels, quality=100, subsampling=0), 4)) > 32
    assert decoded(Resize(4), bytes(JPEGField().encode(picture(9, 9)[:, :, 0].copy()))).shape == (4, 4, 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_plain_pixels_are_exact(channels: int) -> None:
    from images_builders import Image

    pixels = picture(91, 120)
    decoder = Resize((40, 30), channels=channels)
    image = Image.fromarray(pixels).resize((30, 40), Image.Resampling.BILINEAR)
    book = np.asarray(image if channels == 3 else image.convert("L")).reshape(40, 30, channels)
    assert np.abs(decoded(decoder, pack_pixels("RGB", pixels)).astype(int) - book).max() <= 1


@pytest.mark.parametrize(
    "data", [b"\0RGB", pack_pixels("RGB", picture(5, 5))[:-1], pack_pixels("I", np.zeros((2, 2), np.int32))]
)
def test_damaged_pixels(data: bytes) -> None:
    with pytest.raises(FormatError):
        decoded(Resize(4), data)


def test_pixels_wider_than_any_image() -> None:
    with pytest.raises(FormatError, match="an image has 65536 x 1 pixels, expected sides of 1 to 65535"):
        decoded(Resize(4), pack_pixels("RGB", np.zeros((1, 65536, 3), np.uint8)))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 48), st.integers(1, 48), st.integers(0, 2**64 - 1))
def test_any_sides(height: int, width: int, h: int, w: int, seed: int) -> None:
    """Images of a pixel's width or height, and smaller than what is asked for."""
    data = jpeg(picture(40, 40)[:height, :width].copy(), subsampling=seed % 3)
    for decoder in (CenterCrop((h, w)), RandomResizedCrop((h, w)), Resize((h, w)), Resize((h, w), channels=1)):
        assert psnr(decoded(decoder, data, seed), expected(decoder, data, seed)) > 27


@pytest.mark.parametrize(
    ("decoder", "sides", "seed"),
    [
        (RandomResizedCrop(1), (24, 16), 14433073496889016335),
        (RandomResizedCrop(1), (32, 24), 10571140515597351977),
        (CenterCrop((1, 4)), (16, 18), 0),
        (CenterCrop((2, 1)), (18, 18), 0),
        (CenterCrop(4), (37, 19), 0),
        (CenterCrop((4, 6)), (36, 28), 0),
    ],
)
def test_few_pixels(decoder: ImageDecoder, sides: tuple[int, int], seed: int) -> None:
    """A box is not scaled to so few pixels that the result shows it."""
    data = jpeg(picture(40, 40)[: sides[0], : sides[1]].copy(), subsampling=seed % 3)
    assert psnr(decoded(decoder, data, seed), expected(decoder, data, seed)) > 29


@pytest.mark.parametrize("sides", [(1, 3000), (3000, 1), (1, 1)])
def test_lines(sides: tuple[int, int]) -> None:
    data = jpeg(np.full((*sides, 3), 93, np.uint8))
    for decoder in DECODERS:
        assert np.abs(decoded(decoder, data, 1).astype(int) - 93).max() <= 1


@pytest.mark.parametrize("decoder", [*DECODERS, CenterCrop(8, 0.5, channels=1), Resize(3, channels_first=False)])
def test_frozen_pickled_equal(decoder: ImageDecoder) -> None:
    assert pickle.loads(pickle.dumps(decoder)) == decoder
    assert eval(repr(decoder)) == decoder and hash(decoder) == hash(dataclasses.replace(decoder))
    with pytest.raises(dataclasses.FrozenInstanceError):
        decoder.size = 3  # type: ignore[misc]


def test_a_square_is_an_int() -> None:
    assert Resize(7) == Resize((7, 7)) and Resize(np.int64(7)).sides == (7, 7)  # type: ignore[arg-type]
    assert RandomResizedCrop(7, [0.1, 1], [1, 2]).scale == (0.1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Resize(0), ArgumentError, r"size is 0, expected sides of 1 to 65535"),
        (lambda: Resize((5, 65536)), ArgumentError, r"size is \(5, 65536\)"),
        (lambda: Resize((1, 2, 3)), ArgumentError, r"size is \(1, 2, 3\), expected an int or \(height, width\)"),
        (lambda: Resize(2.0), ArgumentTypeError, "size is float 2.0, expected an int"),
        (lambda: Resize(True), ArgumentTypeError, "size is True"),
        (lambda: Resize(2, channels=2), ArgumentError, "channels is 2, expected 1 or 3"),
        (lambda: CenterCrop(2, 0), ArgumentError, "ratio is 0, expected more than 0 and at most 1"),
        (lambda: CenterCrop(2, float("nan")), ArgumentError, "ratio is nan"),
        (lambda: CenterCrop(2, "1"), ArgumentTypeError, "ratio is str '1', expected a number"),
        (lambda: RandomResizedCrop(2, 0.5), ArgumentTypeError, r"scale is float 0.5, expected \(least, most\)"),
        (lambda: RandomResizedCrop(2, (0, 1)), ArgumentError, r"scale is \(0, 1\), expected 0 < least <= most <= 1"),
        (lambda: RandomResizedCrop(2, (0.5, 1.5)), ArgumentError, r"scale is \(0.5, 1.5\)"),
        (lambda: RandomResizedCrop(2, (0.5, True)), ArgumentTypeError, "scale is True, expected a number"),
        (lambda: RandomResizedCrop(2, ratio=(2, 1)), ArgumentError, r"ratio is \(2, 1\), expected 0 < least <= most$"),
        (lambda: RandomResizedCrop(2, ratio=(1, float("inf"))), ArgumentError, r"ratio is \(1, inf\)"),
        (lambda: RandomResizedCrop(2, flip=1.1), ArgumentError, "flip is 1.1, expected 0 to 1"),
    ],
)
def test_parameters_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"out has shape \(5, 5, 3\) and dtype uint8, expected \(4, 4, 3\) and uint8"
    ):
        Resize(4).decode_into(memoryview(jpeg(picture(9, 9))), np.zeros((5, 5, 3), np.uint8), 0)


def test_the_base_takes_no_box() -> None:
    with pytest.raises(NotImplementedError, match=r"ImageDecoder\.box"):
        decoded(ImageDecoder(4), jpeg(picture(9, 9)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is pinned for a GPU, and there is none")
def test_pinned() -> None:
    batch = Resize(7).allocate(2, pin=True)
    assert batch.is_pinned()
    Resize(7).decode_into(memoryview(jpeg(picture(9, 9))), Resize(7).rows(batch)[1], 0)

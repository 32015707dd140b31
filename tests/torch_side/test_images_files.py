"""Decoders on files of all formats, payloads of all fields and arrays, against Pillow; EXIF; damage."""

import io
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from images_builders import Image, decoded, expected, picture, psnr

from ffrecord.errors import FormatError
from ffrecord.fields import ImageField, ImageFileField, NDArrayField, RGBImageField
from ffrecord.torch.images import CenterCrop, ImageDecoder, RandomResizedCrop, Resize

Array = np.ndarray[Any, Any]
COLOUR = picture(91, 120)
GREY = np.ascontiguousarray(COLOUR[:, :, 1])
DECODERS = [CenterCrop(32), RandomResizedCrop((24, 40)), Resize((40, 30)), Resize(16, channels=1)]
MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA"),
    "WEBP": ("RGB", "RGBA"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P"),
}


def image_of(mode: str) -> Any:
    image = Image.fromarray(COLOUR)
    if mode == "P":
        return image.quantize(200)
    image = image.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(GREY))
    return image


def saved(image: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **{**({"lossless": True, "exact": True} if kind == "WEBP" else {}), **options})
    return out.getvalue()


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("kind", "mode"), [(kind, mode) for kind, modes in MODES.items() for mode in modes])
def test_as_pillow_does(kind: str, mode: str, decoder: ImageDecoder) -> None:
    """At most 1 off the whole image, converted, cropped, resized and flipped by Pillow."""
    data = saved(image_of(mode), kind)
    try:
        Image.open(io.BytesIO(data)).load()
    except OSError as error:  # Pillow 12.3 writes TIFF of YCbCr that it cannot read
        pytest.skip(f"Pillow {PIL.__version__} does not read the {kind} it has written: {error}")
    for seed in (1, 2, 3):
        found = decoded(decoder, data, seed)
        if mode == "P":  # Pillow's luma of colours is that of the result, ours too
            image = Image.open(io.BytesIO(data)).convert("RGB")
            data = saved(image, "PNG")
        book = expected(decoder, data, seed)
        assert np.abs(found.astype(int) - book).max() <= (2 if decoder.channels == 1 else 1)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_keep_their_upper_8(kind: str) -> None:
    deep = (np.arange(91 * 120) * 6).reshape(91, 120).astype(np.uint16)
    data = saved(Image.fromarray(deep), kind)
    for decoder in DECODERS:
        assert np.array_equal(
            decoded(decoder, data, 2), decoded(decoder, saved(Image.fromarray((deep >> 8).astype(np.uint8)), "PNG"), 2)
        )


@pytest.mark.parametrize("mode", ["I", "F"])
def test_numbers_without_a_range_are_refused(mode: str) -> None:
    with pytest.raises(FormatError, match=f"numbers of mode {mode} have no range, expected 8 or 16 bits"):
        decoded(Resize(4), saved(Image.fromarray(GREY).convert(mode), "TIFF"))


def test_alpha_is_dropped() -> None:
    clear = Image.fromarray(COLOUR)
    clear.putalpha(Image.new("L", clear.size, 0))
    assert np.array_equal(decoded(Resize(20), saved(clear, "PNG")), decoded(Resize(20), saved(image_of("RGB"), "PNG")))


def test_payloads_of_every_field_of_images() -> None:
    same = [
        RGBImageField().encode(COLOUR),
        ImageField().encode(image_of("RGB")),
        ImageFileField().encode(saved(image_of("RGB"), "BMP")),
    ]
    for decoder in DECODERS:
        first, *others = (decoded(decoder, bytes(data), 5) for data in same)
        assert all(np.abs(first.astype(int) - other).max() <= (decoder.channels == 1) for other in others)
    cmyk = ImageField().encode(image_of("CMYK"))
    assert np.array_equal(decoded(Resize(20), bytes(cmyk)), decoded(Resize(20), saved(image_of("CMYK"), "TIFF")))


@pytest.mark.parametrize("decoder", DECODERS)
def test_arrays(decoder: ImageDecoder) -> None:
    def of(array: Array) -> Array:
        row = np.full((*decoder.sides, decoder.channels), 9, np.uint8)
        assert decoder.decode_into(array, row, 3) == (91, 120)
        return row

    whole, grey = (
        decoded(decoder, saved(image_of("RGB"), "PNG"), 3),
        decoded(decoder, saved(Image.fromarray(GREY), "PNG"), 3),
    )
    alpha = np.dstack([COLOUR, GREY])
    for array in (
        COLOUR,
        alpha,
        np.asfortranarray(COLOUR),
        COLOUR[::-1][::-1],
        NDArrayField("uint8", None).decode(memoryview(NDArrayField("uint8", None).encode(COLOUR))),
    ):
        assert np.abs(of(array).astype(int) - whole).max() <= 1
    for array in (GREY, GREY[:, :, None], COLOUR[:, :, 1]):
        assert np.array_equal(of(array), grey)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4, 2), np.uint8),
        np.zeros((3, 4, 5), np.uint8),
        np.zeros((3, 4), np.uint16),
        np.zeros((0, 4), np.uint8),
        np.zeros((3, 4, 3), np.float32),
        np.zeros((1, 3, 4, 3), np.uint8),
    ],
)
def test_arrays_that_are_no_images(array: Array) -> None:
    with pytest.raises(FormatError, match=r"array \[.*\], expected pixels: uint8 \[H, W\] or \[H, W, 1, 3 or 4\]"):
        Resize(4).decode_into(array, np.zeros((4, 4, 3), np.uint8), 0)


TURNED = [
    None,
    None,
    "FLIP_LEFT_RIGHT",
    "ROTATE_180",
    "FLIP_TOP_BOTTOM",
    "TRANSPOSE",
    "ROTATE_270",
    "TRANSVERSE",
    "ROTATE_90",
]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation(kind: str, orientation: int) -> None:
    """With `exif` the image is turned as Pillow turns it, before the box is chosen; without, it is as it is stored."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(picture(96, 120))  # whole blocks, which stay whole when they are turned
    options: dict[str, Any] = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    data, plain = saved(stored, kind, exif=exif, **options), saved(stored, kind, **options)
    way = TURNED[orientation]
    upright = stored if way is None else stored.transpose(getattr(Image.Transpose, way))
    turned = saved(upright, kind, **options)
    for make in (CenterCrop, RandomResizedCrop, Resize):
        for size, channels in (((24, 40), 3), (60, 1), ((9, 20), 3)):
            decoder = make(size, channels=channels, exif=True)
            for seed in range(3):
                found, book = decoded(decoder, data, seed), decoded(decoder, turned, seed)
                assert psnr(found, book) > (38 if kind == "JPEG" else 50), (make, size, seed)
                assert np.array_equal(
                    decoded(make(size, channels=channels), data, seed),
                    decoded(make(size, channels=channels), plain, seed),
                )
    row = np.zeros((60, 60, 3), np.uint8)
    assert Resize(60, exif=True).decode_into(memoryview(data), row, 0) == (upright.height, upright.width)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("value", [0, 9, 65535])
def test_orientations_that_do_not_exist(kind: str, value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    data = saved(Image.fromarray(COLOUR), kind, exif=exif)
    assert np.array_equal(decoded(Resize(30, exif=True), data), decoded(Resize(30), data))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # of Pillow, which reads JPEGs where simplejpeg is missing
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif", [b"", b"none at all", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\0\1\1\x12", b"II*\0"]
)
def test_exif_that_is_damaged(kind: str, exif: bytes) -> None:
    """The pixels are whole, so the image is: as without EXIF, in every format."""
    data = saved(Image.fromarray(COLOUR), kind, exif=b"Exif\0\0" + exif)
    assert np.array_equal(decoded(Resize(30, exif=True), data), decoded(Resize(30), data))


@pytest.mark.parametrize("exif", [False, True])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_damaged_files(kind: str, exif: bool) -> None:
    """Cut anywhere, and with bytes changed: an image, or a FormatError; never anything else."""
    tags = Image.Exif()
    tags[0x0112] = 6
    options = {"exif": tags} if kind in ("JPEG", "PNG", "WEBP", "TIFF") else {}
    data = saved(Image.fromarray(picture(40, 30)), kind, **options)
    random = np.random.default_rng(7)
    spoilt = [data[:size] for size in random.integers(0, len(data), 60)]
    for at in [*range(min(150, len(data))), *random.integers(0, len(data), 150)]:
        spoilt.append(data[:at] + bytes([random.integers(256)]) + data[at + 1 :])
    failed = 0
    for each in spoilt:
        try:
            decoded(RandomResizedCrop(16, exif=exif), each, 1)
        except FormatError:
            failed += 1
    assert failed > 20


def test_claims_of_a_header() -> None:
    for data in (
        b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\xff\x7f\x01\0\0" + bytes(9),
        saved(Image.fromarray(GREY), "PNG").replace(b"\0\0\0\x78\0\0\0\x5b", b"\0\1\0\0\0\1\0\0"),
    ):
        with pytest.raises(FormatError, match=r"pixels, expected at most \d+ in all"):
            decoded(Resize(4), data)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    from ffrecord.system import requirements

    monkeypatch.setattr(requirements, "import_optional", lambda name: None)
    with pytest.raises(ImportError, match="a PNG needs PIL: pip install pillow"):
        decoded(Resize(4), saved(Image.fromarray(GREY), "PNG"))


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [CenterCrop, RandomResizedCrop, Resize])
@pytest.mark.parametrize("channels", [1, 3])
def test_normalised_as_torch_does(make: Any, dtype: torch.dtype, channels: int) -> None:
    """Bit for bit: uint8, to float32, divided by 255, less the mean, divided by std, rounded to the dtype."""
    mean, std = MEAN[:channels], STD[:channels]
    sources = [saved(image_of("RGB"), kind) for kind in ("PNG", "JPEG")] + [saved(Image.fromarray(GREY), "PNG")]
    for first in (True, False):
        for numbers in ({"mean": mean, "std": std}, {"mean": mean}, {"std": std}, {}):
            plain = make((31, 18), channels=channels, channels_first=first)
            decoder = make((31, 18), channels=channels, channels_first=first, dtype=dtype, **numbers)
            for seed, data in enumerate(sources):
                bytes_, found = plain.allocate(1), decoder.allocate(1)
                plain.decode_into(memoryview(data), plain.rows(bytes_)[0], seed)
                decoder.decode_into(memoryview(data), decoder.rows(found)[0], seed)
                book = bytes_.float() / 255
                shape = (-1, 1, 1) if first else (-1,)
                if "mean" in numbers:
                    book = book - torch.tensor(mean).view(shape)
                if "std" in numbers:
                    book = book / torch.tensor(std).view(shape)
                assert found.dtype == dtype and found.shape == bytes_.shape and found.stride() == bytes_.stride()
                assert torch.equal(found, book.to(dtype))


@pytest.mark.parametrize("exif", [False, True])
def test_normalised_where_the_image_is_turned(exif: bool) -> None:
    tags = Image.Exif()
    tags[0x0112] = 7
    data = saved(image_of("RGB"), "PNG", exif=tags)
    plain = decoded(RandomResizedCrop(20, exif=exif), data, 3)
    found = decoded(RandomResizedCrop(20, exif=exif, dtype=torch.float32), data, 3)
    assert np.array_equal(found, plain.astype(np.float32) / np.float32(255))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dtype": torch.float64}, TypeError, r"dtype is torch.float64, expected one of torch.uint8, torch.float32"),
        ({"dtype": "float32"}, TypeError, "dtype is 'float32'"),
        ({"mean": MEAN}, ValueError, "mean is .* with dtype=torch.uint8, expected dtype=torch.float32 or half"),
        ({"dtype": torch.float32, "mean": 0.5}, TypeError, "mean is 0.5, expected 3 numbers, one for each channel"),
        ({"dtype": torch.float32, "std": (1, 1)}, TypeError, r"std is \(1, 1\), expected 3 numbers"),
        ({"dtype": torch.float32, "std": (1, 1, 0)}, ValueError, r"std is \(1, 1, 0\), expected finite numbers, > 0"),
        ({"dtype": torch.float32, "mean": (1, 1, float("nan"))}, ValueError, "mean is .*, expected finite numbers$"),
        (
            {"dtype": torch.float32, "mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)},
            ValueError,
            r"mean is \(123.7, .*\), expected numbers for pixels in 0 to 1; divide .* FFCV's, by 255$",
        ),
        ({"dtype": torch.float32, "std": (1, 1, 57.4)}, ValueError, "std is .*, expected numbers for pixels"),
        ({"exif": 1}, TypeError, "exif is int 1, expected True or False"),
    ],
)  # fmt: skip
def test_parameters_refused(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Resize(4, **options)


def test_rows_of_another_dtype_are_refused() -> None:
    with pytest.raises(ValueError, match=r"out has shape .* and dtype uint8, expected \(4, 4, 3\) and float32"):
        Resize(4, dtype=torch.float32).decode_into(COLOUR, np.zeros((4, 4, 3), np.uint8), 0)


@pytest.mark.parametrize("given", [list, np.array, torch.tensor])
def test_arrays_and_tensors_of_means(given: Any) -> None:
    made = Resize(4, dtype=torch.float32, mean=given((0.5, 0.25, 0.0)), std=given((1.0, 2.0, 0.5)))
    assert made == Resize(4, dtype=torch.float32, mean=(0.5, 0.25, 0.0), std=(1.0, 2.0, 0.5))
    for wrong in ((0.5, 0.25), 0.5, ((0.5, 0.25, 0.0),) * 3):
        with pytest.raises(TypeError, match="mean is "):
            Resize(4, dtype=torch.float32, mean=given(wrong) if given is not list else wrong)


def test_a_seed_that_is_no_int() -> None:
    decoder = Resize(4)
    with pytest.raises(TypeError, match="seed is str 'x', expected an int"):
        decoder.decode_into(memoryview(b""), decoder.rows(decoder.allocate(1))[0], "x")  # type: ignore[arg-type]

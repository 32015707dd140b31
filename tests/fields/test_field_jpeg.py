"""JPEG: bytes pass through, arrays and images are compressed, all decode to arrays."""

import io
from typing import Any

import numpy as np
import pytest
from field_cases import pack, run_without, same
from field_images import SMOOTH, Image, jpeg_bytes, resized

from ffrecord.errors import FormatError
from ffrecord.fields import JPEGField, Schema
from ffrecord.fields.images import jpeg_codec


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_bytes_pass_through(decoder: str, wrap: Any) -> None:
    data = jpeg_bytes(quality=60, progressive=True, comment=b"kept")
    schema = Schema.of({"image": JPEGField(), "raw": JPEGField(as_bytes=True)})
    record = schema.encode({"image": wrap(data), "raw": wrap(data)})
    assert record.count(data) == 2
    back = schema.decode(record)
    assert back["raw"] == data
    assert same(back["image"], np.array(Image.open(io.BytesIO(data)))) and back["image"].flags.writeable


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("kind", ["array", "image", "strided"])
def test_compressed_here(decoder: str, grey: bool, kind: str) -> None:
    pixels = np.ascontiguousarray(SMOOTH[:, :, 0]) if grey else SMOOTH
    value = {"array": pixels, "image": Image.fromarray(pixels), "strided": np.repeat(pixels, 2, 0)[::2]}[kind]
    schema = Schema.of(JPEGField(quality=95))
    back = schema.decode(schema.encode(value))
    assert back.dtype == np.uint8 and back.shape == pixels.shape and back.flags.writeable
    assert np.abs(back.astype(int) - pixels).mean() < 3


def test_quality(decoder: str) -> None:
    sizes = [len(JPEGField(quality=quality).encode(SMOOTH)) for quality in (1, 50, 100)]
    assert sizes == sorted(set(sizes))


def test_chroma_is_halved(decoder: str) -> None:
    simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    assert simplejpeg.decode_jpeg_header(JPEGField().encode(SMOOTH))[2:] == ("YCbCr", "420")


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_colour_spaces(decoder: str, mode: str) -> None:
    data = jpeg_bytes(mode, quality=95)
    schema = Schema.of(JPEGField())
    back = schema.decode(schema.encode(data))
    image = Image.open(io.BytesIO(data))
    assert same(back, np.array(image if mode == "L" else image.convert("RGB")))


@pytest.mark.parametrize("options", [{}, {"keep_rgb": True}, {"mode": "L"}, {"mode": "CMYK"}], ids=str)
def test_only_grey(decoder: str, options: dict[str, Any]) -> None:
    """The same by either library: what libjpeg gives for Y, or BT.601 of pixels in colour."""
    data = jpeg_bytes(quality=95, **options)
    pixels = jpeg_codec.decompress(data, grey=False, only_grey=True)
    colours = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
    assert pixels.shape == SMOOTH.shape[:2] and pixels.flags.writeable
    assert np.abs(pixels - colours @ [0.299, 0.587, 0.114]).mean() < 1


def test_batches(decoder: str) -> None:
    schema = Schema.of({"image": JPEGField(), "label": None})
    small = np.ascontiguousarray(SMOOTH[:8, :8])
    records = [schema.encode({"image": image, "label": None}) for image in (SMOOTH, jpeg_bytes("L"), small)]
    samples = schema.decode_batch(*pack(records))
    assert [sample["image"].shape for sample in samples] == [(48, 64, 3), (48, 64), (8, 8, 3)]
    images = schema.decode_columns(*pack(records))["image"]
    assert all(same(image, sample["image"]) for image, sample in zip(images, samples, strict=True))


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (b"", ValueError, "value: 0 bytes .*, expected JPEG bytes, .*"),
        (b"\x89PNG", ValueError, r"4 bytes that begin with b'\\x89PNG'"),
        (SMOOTH.astype(float), TypeError, "a float64 array"),
        (SMOOTH[:, :, :2], ValueError, r"a uint8 array of shape \(48, 64, 2\)"),
        (SMOOTH[0, 0], ValueError, "a uint8 array of shape"),
        (np.zeros((0, 5), np.uint8), ValueError, "sides of 1 to 65535"),
        (np.zeros((1, 65536), np.uint8), ValueError, "sides of 1 to 65535"),
        (Image.new("RGBA", (2, 2)), TypeError, "a PIL image of mode RGBA .*; convert it to RGB or L"),
        (Image.new("I;16", (2, 2)), TypeError, "a PIL image of mode I;16"),
        (SMOOTH.astype(np.uint16), TypeError, "a uint16 array"),
        (
            np.broadcast_to(np.uint8(0), (20000, 20000)),
            ValueError,
            "an image of 20000 x 20000 pixels, expected at most",
        ),
        (5, TypeError, "value: int 5, expected JPEG bytes, .*"),
    ],
)
def test_refused(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(JPEGField()).encode(value)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0,), ValueError, "quality is 0, expected 1 to 100"),
        ((101,), ValueError, "quality is 101"),
        (("90",), TypeError, "quality is str '90', expected an int"),
        ((90, 1), TypeError, "as_bytes is int 1, expected True or False"),
    ],
)
def test_parameters_refused(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        JPEGField(*arguments)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes that begin with b''"),
        (b"\xff\xd8\xff", r"\w+ cannot read a JPEG of 3 bytes"),
        (jpeg_bytes()[:-300], r"\w+ cannot read a JPEG of"),
        (jpeg_bytes()[:100], r"\w+ cannot read a JPEG of 100 bytes"),
        (resized(jpeg_bytes(), 65500, 65500), "a JPEG of .*65500 x 65500 pixels, expected at most"),
        (resized(jpeg_bytes(), 0, 10), r"\w+ cannot read a JPEG of"),
    ],
)
def test_damaged(decoder: str, data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=rf"value \(JPEGField\): {words}"):
        Schema.of(JPEGField()).decode(len(data).to_bytes(8, "little") + data)


def test_any_damage(decoder: str) -> None:
    """Any bytes are decoded or refused as a FormatError."""
    random = np.random.default_rng(0)
    whole = np.frombuffer(jpeg_bytes(), np.uint8)
    for _ in range(300):
        data = whole[: random.integers(3, len(whole) + 1)].copy()
        data[random.integers(3, len(data) + 1, 3) - 1] = random.integers(0, 256, 3)
        try:
            image = JPEGField().decode(data.data)
        except FormatError:
            continue
        assert image.dtype == np.uint8 and image.ndim in (2, 3)


def test_harmless_damage_is_repaired(decoder: str) -> None:
    data = jpeg_bytes()
    at = data.index(b"\xff\xdb")
    stray = data[:at] + b"\0\0\0" + data[at:]
    assert JPEGField().decode(memoryview(stray)).shape == (48, 64, 3)


def test_a_subsampling_that_simplejpeg_has_no_name_for(decoder: str) -> None:
    simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = bytearray(simplejpeg.encode_jpeg(image, 90))
    data[data.index(b"\xff\xc0") + 11] = 0x14  # 4:4:1
    assert JPEGField().decode(memoryview(data)).shape == (64, 64, 3)


def test_damage_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    monkeypatch.setattr(jpeg_codec, "import_optional", lambda name: simplejpeg if name == "simplejpeg" else None)
    with pytest.raises(FormatError, match="simplejpeg cannot read a JPEG of 100 bytes"):
        JPEGField().decode(memoryview(jpeg_bytes()[:100]))


def test_replaced_to_read_bytes() -> None:
    schema = Schema.of({"image": JPEGField()})
    record = schema.encode({"image": jpeg_bytes()})
    assert schema.replace({"image": JPEGField(as_bytes=True)}).decode(record) == {"image": jpeg_bytes()}


@pytest.mark.parametrize(
    ("blocked", "action", "words"),
    [
        (
            ["PIL"],
            "ImageField().decode(memoryview(b'\\x89PNG\\r\\n\\x1a\\n'))",
            "an image field needs PIL: pip install pillow",
        ),
        (
            ["PIL", "simplejpeg"],
            "JPEGField().encode(np.zeros((8, 8), 'u1'))",
            "a JPEG needs simplejpeg or Pillow: pip install simplejpeg",
        ),
        (
            ["PIL", "simplejpeg"],
            "JPEGField().decode(memoryview({data!r}))",
            "a JPEG needs simplejpeg or Pillow: pip install simplejpeg",
        ),
        (
            ["PIL"],
            "JPEGField().decode(memoryview({cmyk!r}))",
            "a JPEG of CMYK needs PIL: pip install pillow",
        ),
        (["simplejpeg"], "print(JPEGField().decode(memoryview({data!r})).shape)", "(48, 64, 3)"),
        (["PIL"], "print(JPEGField().decode(memoryview({data!r})).shape)", "(48, 64, 3)"),
        (["PIL", "simplejpeg"], "print(len(JPEGField(as_bytes=True).decode(memoryview({data!r}))))", "{size}"),
    ],
)
def test_missing_libraries(blocked: list[str], action: str, words: str) -> None:
    if "simplejpeg" not in blocked and "JPEGField" in action:
        pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    data, cmyk = jpeg_bytes(), jpeg_bytes("CMYK")
    printed = run_without(blocked, action.format(data=data, cmyk=cmyk))
    assert words.format(size=len(data)) in printed


def test_images_that_are_kept_stay_while_memory_is_used_again() -> None:
    pictures = [np.full((200, 200, 3), i, np.uint8) for i in range(0, 250, 10)]
    files = [jpeg_codec.compress(picture, 95) for picture in pictures]
    kept = []
    for file, picture in zip(files, pictures, strict=True):
        kept.append((jpeg_codec.decompress(file, False), int(picture[0, 0, 0])))
        for other in files[:3]:  # dropped at once
            jpeg_codec.decompress(other, True, only_grey=True)
            jpeg_codec.decompress(other, False)
    for found, value in kept:
        assert found.flags.writeable and found.flags.c_contiguous
        assert np.abs(found.astype(int) - value).max() <= 2
    places = {jpeg_codec.decompress(files[0], False).ctypes.data for _ in range(10)}
    assert len(places) <= 2

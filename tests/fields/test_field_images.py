"""PIL images."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from field_cases import pack
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.errors import FormatError
from ffrecord.fields import ImageField, Schema

Image = pytest.importorskip("PIL.Image")

MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr", "LAB", "HSV"]


def picture(mode: str, size: tuple[int, int] = (7, 5)) -> Any:
    """An image of random pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, size[0] * size[1] * 4, np.uint8).tobytes()
    count = len(Image.new(mode, size).tobytes())
    if mode == "F":
        return Image.fromarray(np.random.default_rng(0).normal(size=size[::-1]).astype("f4"))
    return Image.frombytes(mode, size, pixels[:count])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_modes(mode: str, level: int) -> None:
    image = picture(mode)
    for schema in (Schema.infer([image]), Schema.of(ImageField(compress_level=level))):
        back = schema.decode(schema.encode(image))
        assert (back.mode, back.size, back.tobytes()) == (mode, image.size, image.tobytes())


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MODES), st.integers(1, 20), st.integers(1, 20), st.integers(0, 9), st.binary(max_size=40))
def test_round_trip(mode: str, width: int, height: int, level: int, seed: bytes) -> None:
    size = len(Image.new(mode, (width, height)).tobytes())
    image = Image.frombytes(mode, (width, height), ((seed or b"\0") * size)[:size])
    back = ImageField(level).decode(memoryview(ImageField(level).encode(image)))
    assert (back.mode, back.size, back.tobytes()) == (mode, image.size, image.tobytes())


def test_palette_and_transparency() -> None:
    image = picture("RGB").quantize(4)
    image.info["transparency"] = 2
    back = Schema.of(ImageField()).decode(Schema.of(ImageField()).encode(image))
    assert back.info["transparency"] == 2
    assert back.convert("RGBA").tobytes() == image.convert("RGBA").tobytes()
    assert back.tobytes() == image.tobytes()


def test_palette_shorter_than_its_pixels() -> None:
    image = Image.new("P", (4, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putdata([0, 1, 7, 255])
    schema = Schema.of(ImageField())
    back = schema.decode(schema.encode(image))
    assert back.tobytes() == bytes([0, 1, 7, 255])
    assert back.convert("RGB").tobytes()[:6] == bytes([255, 0, 0, 0, 255, 0])
    assert len(image.getpalette()) == 6  # the caller's image is left alone


def test_opened_files_and_batches(tmp_path: Any) -> None:
    for i in range(3):
        picture("RGB", (i + 1, 2)).save(tmp_path / f"{i}.bmp")
    images = [Image.open(tmp_path / f"{i}.bmp") for i in range(3)]
    schema = Schema.infer([{"image": images[0], "i": 0}])
    data, offsets = pack([schema.encode({"image": image, "i": i}) for i, image in enumerate(images)])
    for sample, image in zip(schema.decode_batch(data, offsets), images, strict=True):
        assert sample["image"].tobytes() == image.tobytes()
    assert [image.size for image in schema.decode_columns(data, offsets)["image"]] == [(1, 2), (2, 2), (3, 2)]


def test_payload_of_plain_pixels() -> None:
    payload = ImageField().encode(Image.new("CMYK", (2, 1), (1, 2, 3, 4)))
    assert payload == b"\0CMYK\0\0\0\0" + struct.pack("<II", 2, 1) + bytes([1, 2, 3, 4] * 2)
    assert ImageField().encode(Image.new("I", (1, 1), -2)).endswith(b"\xfe\xff\xff\xff")


def test_cut_file_is_refused(tmp_path: Any) -> None:
    picture("RGB", (64, 64)).save(tmp_path / "x.png")
    (tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:2000])
    with (
        Image.open(tmp_path / "x.png") as image,
        pytest.raises(ValueError, match=r"value: a PIL image .* cannot be loaded"),
    ):
        Schema.of(ImageField()).encode(image)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (np.zeros((2, 2, 3), np.uint8), TypeError, "value: a uint8 array .*, expected a PIL image"),
        (b"\x89PNG", TypeError, "a bytes of 4"),
        (
            Image.new("RGBX", (2, 2)),
            ValueError,
            "mode RGBX and size .2, 2., expected a PIL image; this mode has no lossless form",
        ),
        (Image.new("RGB", (0, 2)), ValueError, "it has no pixels"),
        (Image.new("F", (0, 2)), ValueError, "it has no pixels"),
    ],
)
def test_refused(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(ImageField()).encode(value)


def test_images_that_could_not_be_read_are_not_written() -> None:
    with pytest.raises(ValueError, match="a PNG of 13400 x 13400 pixels, expected at most 178956970 in all"):
        ImageField().encode(Image.new("L", (13_400, 13_400)))


@pytest.mark.parametrize(
    ("level", "error"), [(-1, ValueError), (10, ValueError), (1.0, TypeError), (True, TypeError), ("1", TypeError)]
)
def test_parameters_refused(level: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"compress_level is"):
        ImageField(level)


def png(width: int, height: int) -> bytes:
    """A PNG of another size than its pixels."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def gif() -> bytes:
    out = io.BytesIO()
    picture("L").save(out, "GIF")
    return out.getvalue()


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "0 bytes that begin with b'', expected compressed"),
        (gif(), "expected compressed or plain pixels"),
        (png(3, 3)[:20], "a PNG of 20 bytes"),
        (png(30, 30), "a PNG of"),
        (png(2**31 - 1, 2**31 - 1), "a PNG of .* 2147483647 x 2147483647 pixels, expected at most"),
        (png(10_000, 100), "a PNG of .* 10000 x 100 pixels, expected at most 569664 in all"),
        (png(0, 1), "a PNG of"),
        (b"\0RGB\0\0\0\0\0" + struct.pack("<II", 1, 1) + b"123", "mode 'RGB'"),
        (
            b"\0CMYK\0\0\0\0" + struct.pack("<II", 2**32 - 1, 2**32 - 1),
            "pixels of mode CMYK have 0 bytes, expected 7378",
        ),
        (
            b"\0CMYK\0\0\0\0" + struct.pack("<II", 0, 2**32 - 1),
            "an image has 0 x 4294967295 pixels, expected sides of 1 or more",
        ),
        (b"\0F\0\0\0\0\0\0\0" + struct.pack("<II", 1, 1) + b"123", "1 x 1 pixels of mode F have 3 bytes, expected 4"),
    ],
)
def test_hostile_payloads(payload: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=rf"value \(ImageField\): .*{words}"):
        Schema.of(ImageField()).decode(len(payload).to_bytes(8, "little") + payload)


@pytest.mark.parametrize("mode", ["RGB", "P", "F"])
def test_any_damage(mode: str) -> None:
    """Any bytes are decoded or refused as a FormatError."""
    random = np.random.default_rng(0)
    whole = np.frombuffer(ImageField().encode(picture(mode)), np.uint8)
    for _ in range(300):
        data = whole[: random.integers(3, len(whole) + 1)].copy()
        data[random.integers(0, len(data), 2)] = random.integers(0, 256, 2)
        try:
            assert ImageField().decode(data.data).mode in MODES
        except FormatError:
            continue

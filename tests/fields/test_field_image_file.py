"""Image files of any format: bytes pass through, and decode to what Pillow makes of them."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from field_cases import pack, run_without, same
from image_samples import CASES, COLOUR, DEEP, GREY, LOSSLESS, MODES, Image, file_of, image_of, saved, without_alpha

from ffrecord.errors import FormatError
from ffrecord.fields import ImageFileField, JPEGField, Schema
from ffrecord.fields.images.image_header import ImageHeader, image_format, read_image_header

# A TIFF of Motorola's byte order that is only a header: the width as a short, the height as a long.
MOTOROLA = bytes.fromhex("4d4d002a00000008000201000003000000010007000001010004000000010000 0009")
ONE_EACH = [file_of("JPEG"), *(file_of(kind, modes[0]) for kind, modes in MODES.items())]


@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_decodes_as_pillow_does(kind: str, mode: str) -> None:
    data = file_of(kind, mode)
    schema = Schema.of({"image": ImageFileField(), "raw": ImageFileField(as_bytes=True)})
    record = schema.encode({"image": data, "raw": data})
    assert record.count(data) == 2
    back = schema.decode(record)
    opened = Image.open(io.BytesIO(data))
    opened.load()
    assert back["raw"] == data
    assert same(back["image"], without_alpha(opened)) and back["image"].flags.writeable
    if kind != "GIF" and mode not in ("P", "CMYK", "YCbCr", "1"):  # what was put in, too
        assert np.array_equal(back["image"], without_alpha(image_of(mode)))


def test_mixed_formats_in_one_column() -> None:
    schema = Schema.of({"image": ImageFileField()})
    records = [schema.encode({"image": data}) for data in ONE_EACH]
    columns = schema.decode_columns(*pack(records))["image"]
    assert [image.dtype for image in columns] == [np.uint8] * len(ONE_EACH)
    assert columns[0].shape == COLOUR.shape and columns[1].shape == GREY.shape


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_bytes_pass_through(wrap: Any) -> None:
    for data in ONE_EACH:
        assert bytes(ImageFileField().encode(wrap(data))) == data


def test_paths_and_unloaded_images_are_files(tmp_path: Any) -> None:
    for data in ONE_EACH:
        path = tmp_path / "image"
        path.write_bytes(data)
        assert ImageFileField().encode(path) == data == ImageFileField().encode(str(path))
        with Image.open(path) as image:
            assert ImageFileField().encode(image) == data
        assert ImageFileField().encode(Image.open(io.BytesIO(data))) == data


@pytest.mark.parametrize("value", [COLOUR, GREY, DEEP, COLOUR[::2, ::-1]], ids=str)
def test_pixels_become_png(value: Any) -> None:
    schema = Schema.of(ImageFileField())
    assert same(schema.decode(schema.encode(value)), np.ascontiguousarray(value))


@pytest.mark.parametrize("mode", MODES["PNG"])
def test_loaded_images_become_png(mode: str) -> None:
    image = image_of(mode)
    schema = Schema.of(ImageFileField())
    assert same(schema.decode(schema.encode(image)), without_alpha(image))
    loaded = Image.open(io.BytesIO(file_of("WebP", "RGBA")))
    loaded.load()
    assert image_format(ImageFileField().encode(loaded)) == "PNG"


def test_the_first_frame() -> None:
    first, second = image_of("RGB"), Image.fromarray(255 - COLOUR)
    for kind, options in (("GIF", {}), ("WebP", {"lossless": True}), ("TIFF", {}), ("PNG", {})):
        one = ImageFileField().decode(memoryview(saved(first, kind, **options)))
        data = saved(first, kind, save_all=True, append_images=[second], **options)
        assert same(ImageFileField().decode(memoryview(data)), one)


def test_transparent_palettes_keep_their_colours() -> None:
    image = image_of("P")
    for transparency in (3, bytes(range(37))):
        data = saved(image, "PNG", transparency=transparency)
        assert same(ImageFileField().decode(memoryview(data)), np.array(image.convert("RGB")))


@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_headers_are_those_of_pillow(kind: str, mode: str) -> None:
    for width, height in ((1, 1), (56, 40), (300, 2), (3, 700)):
        data = saved(image_of(mode).resize((width, height)), kind, **LOSSLESS.get(kind, {}))
        assert read_image_header(data) == ImageHeader(kind, width, height)


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (file_of("WebP", quality=30, lossless=False), ImageHeader("WebP", 56, 40)),  # VP8
        (file_of("WebP", "RGBA", lossless=False), ImageHeader("WebP", 56, 40)),  # VP8X
        (file_of("JPEG"), ImageHeader("JPEG", 56, 40)),
        (file_of("TIFF", big_tiff=True), ImageHeader("TIFF", 56, 40)),
        (MOTOROLA, ImageHeader("TIFF", 7, 9)),
        (b"BM" + bytes(12) + struct.pack("<IHH", 12, 7, 9), ImageHeader("BMP", 7, 9)),
        (b"BM" + bytes(12) + struct.pack("<Iii", 40, 7, -9), ImageHeader("BMP", 7, 9)),
        (b"BM" + bytes(12) + struct.pack("<Iii", 41, 7, 9), None),
        (b"", None),
        (b"GIF89a\0\0\x05\0", None),
        (b"GIF88a\1\0\5\0", None),
        (b"RIFF\0\0\0\0WAVEfmt ", None),
        (b"II+\0\x08\0\0\0" + b"\xff" * 20, None),  # a directory beyond any memory
    ],
)  # fmt: skip
def test_headers(data: bytes, header: ImageHeader | None) -> None:
    assert read_image_header(data) == header


@pytest.mark.parametrize("data", [*ONE_EACH, file_of("TIFF", big_tiff=True)], ids=lambda data: str(image_format(data)))
def test_no_header_beyond_the_end(data: bytes) -> None:
    for size in range(min(len(data), 600)):
        assert read_image_header(data[:size]) in (None, read_image_header(data))


@pytest.mark.parametrize("kind", ["PNG", "WebP", "TIFF", "BMP", "GIF", "JPEG"])
def test_damage_is_an_error_of_ours(kind: str) -> None:
    """Cut at any place, and with any byte changed: pixels of the right shape, or a FormatError."""
    data = file_of(kind, "P" if kind == "GIF" else "RGB")
    random = np.random.default_rng(5)
    spoilt = [data[:size] for size in random.integers(0, len(data), 120)]
    for at in [*range(min(200, len(data))), *random.integers(0, len(data), 200)]:
        spoilt.append(data[:at] + bytes([random.integers(256)]) + data[at + 1 :])
    failed = 0
    for each in spoilt:
        try:
            found = ImageFileField().decode(memoryview(each))
        except FormatError:
            failed += 1
        else:
            header = read_image_header(each)
            assert header is not None and found.shape[:2] == (header.height, header.width)
            assert header.width * header.height <= header.pixels_max(len(each))
        try:
            ImageFileField().encode(each)
        except ValueError as error:
            assert "expected" in str(error)
    assert failed > 60


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "data",
    [
        png(20000, 5000),
        b"GIF89a" + struct.pack("<HH", 65535, 2000) + bytes(40),
        b"BM" + bytes(12) + struct.pack("<Iii", 40, 60000, 60000) + bytes(40),
        b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f" + struct.pack("<I", 16382 | 10921 << 14) + bytes(9),
        b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\xff\x7f\x01\0\0" + bytes(9),
    ],
)
def test_claims_are_compared_with_the_bytes(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"of \d+ bytes and of \d+ x \d+ pixels, expected at most \d+ in all"):
        ImageFileField().decode(memoryview(data))
    with pytest.raises(ValueError, match="pixels, expected at most"):
        ImageFileField().encode(data)
    assert ImageFileField(as_bytes=True).encode(data) == data


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "L", {}),
        ("WebP", "RGB", {"lossless": True}),
        ("WebP", "RGB", {"quality": 1}),
        ("TIFF", "1", {"compression": "group4"}),
        ("TIFF", "L", {"compression": "tiff_adobe_deflate"}),
        ("GIF", "P", {}),
        ("BMP", "1", {}),
    ],
)
def test_blank_images_are_believed(kind: str, mode: str, options: dict[str, Any]) -> None:
    data = saved(Image.new(mode, (3000, 2000)), kind, **options)
    assert ImageFileField().decode(memoryview(ImageFileField().encode(data))).shape[:2] == (2000, 3000)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (b"", ValueError, "0 bytes .*, expected the bytes or path of a JPEG, PNG, WebP, TIFF, BMP or GIF file, .*"),
        (b"RIFFabcdWAVE", ValueError, r"12 bytes that begin with b'RIFF', expected .*; BytesField\(\) stores any"),
        (file_of("PNG")[:-5], ValueError, r"the PNG of \d+ bytes ends before its image does"),
        (file_of("WebP")[:-5], ValueError, r"the WebP of \d+ bytes ends before its image does"),
        (file_of("JPEG")[:-9], ValueError, r"the JPEG of \d+ bytes ends before its image does"),
        (file_of("PNG")[:20], ValueError, "the PNG of 20 bytes has no readable header"),
        (b"RIFF\x0c\0\0\0WEBPVP8X\0\0\0\0", ValueError, "the WebP of 20 bytes has no readable header"),
        (np.zeros((4, 4, 4), np.uint8), ValueError, r"a uint8 array of shape \(4, 4, 4\)"),
        (np.zeros((4, 4, 3), np.uint16), ValueError, "a uint16 array"),
        (np.zeros((0, 4), np.uint8), ValueError, "a uint8 array of shape"),
        (np.zeros((4, 4), np.float32), TypeError, "a float32 array"),
        (image_of("CMYK"), TypeError, r"a PIL image of mode CMYK .*or take ImageField\(\)"),
        (5, TypeError, "int 5"),
    ],
)
def test_refused(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(ImageFileField()).encode(value)


def test_spec_is_for_ever() -> None:
    schema = Schema.of({"image": ImageFileField(as_bytes=True)})
    assert schema.to_builtins()["sample"]["items"] == [["image", {"kind": "image_file", "as_bytes": True}]]
    assert Schema.from_builtins(schema.to_builtins()) == schema
    with pytest.raises(TypeError, match="as_bytes is int 1, expected True or False"):
        ImageFileField(1)  # type: ignore[arg-type]


def test_a_jpeg_field_points_here() -> None:
    with pytest.raises(ValueError, match=r"ImageFileField\(\) stores it"):
        JPEGField().encode(file_of("PNG"))


def test_without_pillow() -> None:
    """Files are packed without Pillow; its absence has a name when they are decoded."""
    action = f"""from ffrecord.fields import ImageFileField
    data = {file_of("PNG", "1")!r}
    assert ImageFileField().encode(data) == data and ImageFileField(True).decode(memoryview(data)) == data
    ImageFileField().decode(memoryview(data))"""
    assert "a PNG needs PIL: pip install pillow" in run_without(["PIL"], action)

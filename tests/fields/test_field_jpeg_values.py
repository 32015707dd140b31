"""What counts as a JPEG file and is stored as it is, and which files are refused before they are stored."""

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_images import SMOOTH, Image, jpeg_bytes, resized

from ffrecord.fields import Field, ImageFileField, JPEGField, RGBImageField, Schema
from ffrecord.fields.images.jpeg_values import Frame, is_whole, read_frame

FIELDS = [JPEGField(), RGBImageField("jpeg")]
JPEG = jpeg_bytes(quality=70, progressive=True)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_bytes(field: Field, wrap: Any) -> None:
    assert field.encode(wrap(JPEG)) == JPEG


@pytest.mark.parametrize("field", FIELDS)
def test_views(field: Field) -> None:
    view = memoryview(JPEG)
    assert field.encode(view) is view  # nothing is copied
    assert field.encode(memoryview(JPEG[:1] + bytes(each for byte in JPEG[1:] for each in (7, byte)))[::2]) == JPEG
    assert field.encode(memoryview(np.frombuffer(JPEG, np.int8))) == JPEG


def test_fields_of_users_get_bytes() -> None:
    @dataclass(frozen=True)
    class Tailed(JPEGField):
        def encode(self, value: Any) -> Any:
            return super().encode(value) + b"tail"

    assert Tailed().encode(memoryview(JPEG)) == JPEG + b"tail"


@pytest.mark.parametrize("field", FIELDS)
def test_paths(field: Field, tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(JPEG)
    assert field.encode(path) == JPEG
    assert field.encode(str(path)) == JPEG


@pytest.mark.parametrize("field", FIELDS)
def test_paths_that_cannot_be_read(field: Field, tmp_path: Path) -> None:
    for trees, wrap in (({"image": field}, lambda value: {"image": value}), ([field, None], lambda v: [v, None])):
        column = "image" if isinstance(trees, dict) else r"\[0\]"
        with pytest.raises(FileNotFoundError, match=rf"\] {column}: No such file or directory: '.*gone.jpg'") as raised:
            Schema.of(trees).encode(wrap(tmp_path / "gone.jpg"))
        assert raised.value.filename == str(tmp_path / "gone.jpg")
    with pytest.raises(IsADirectoryError, match=rf"value: .*{tmp_path.name}"):
        Schema.of(field).encode(tmp_path)
    (tmp_path / "x.png").write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match=r"value: '.*x\.png': 4 bytes that begin with .*PNG', expected .*"):
        Schema.of(field).encode(tmp_path / "x.png")


BAD = [
    b"text",
    JPEG[:3],
    JPEG[:-9],
    JPEG.replace(b"\x08" + struct.pack(">HH", *SMOOTH.shape[:2]), b"\x0c" + struct.pack(">HH", *SMOOTH.shape[:2])),
    b"\x89PNG\r\n\x1a\n" + bytes(40),
]


@pytest.mark.parametrize("field", [*FIELDS, RGBImageField(), ImageFileField()])
@pytest.mark.parametrize("data", BAD, ids=len)
def test_messages_about_a_file_name_its_path(field: Field, data: bytes, tmp_path: Path) -> None:
    """All that is said about bytes is said about a file, with its path in front."""
    with pytest.raises(ValueError, match="expected") as of_bytes:
        field.encode(data)
    (tmp_path / "bad.jpg").write_bytes(data)
    for path in (tmp_path / "bad.jpg", str(tmp_path / "bad.jpg")):
        with pytest.raises(type(of_bytes.value)) as of_path:
            field.encode(path)
        assert str(of_path.value) == f"{str(path)!r}: {of_bytes.value}"


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("source", ["path", "memory"])
def test_opened_images(field: Field, source: str, tmp_path: Path) -> None:
    """An image that was opened counts as its file, any number of times, and still loads."""
    (tmp_path / "x.jpg").write_bytes(JPEG)
    with Image.open(tmp_path / "x.jpg" if source == "path" else io.BytesIO(JPEG)) as image:
        assert field.encode(image) == JPEG
        assert field.encode(image) == JPEG
        assert (np.asarray(image) == np.asarray(Image.open(io.BytesIO(JPEG)))).all()


def touched(how: str) -> Any:
    """An image opened from `JPEG`, and then no longer what the file holds."""
    image = Image.open(io.BytesIO(JPEG))
    if how == "draft":
        image.draft("RGB", (32, 24))
    elif how == "draft to grey":
        image.draft("L", None)
    elif how == "pixel":
        image.putpixel((0, 0), (255, 255, 255))
    elif how == "thumbnail":
        image.thumbnail((20, 20))
    elif how == "rotate":
        image = image.rotate(90)
    return image


@pytest.mark.parametrize("how", ["draft", "pixel", "thumbnail", "rotate"])
@pytest.mark.parametrize("field", FIELDS)
def test_images_that_were_changed_are_compressed(field: Field, how: str) -> None:
    payload = bytes(field.encode(touched(how)))
    assert payload[:3] == b"\xff\xd8\xff" and payload != JPEG
    expected = np.asarray(touched(how))
    found = field.decode(memoryview(payload))
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 6


def test_images_drafted_to_grey() -> None:
    assert JPEGField().decode(memoryview(JPEGField().encode(touched("draft to grey")))).shape == (48, 64)


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGBA", "I;16", "YCbCr"])
def test_modes_of_images(mode: str) -> None:
    """An image has the mode of the field, or is refused, opened from a JPEG or not."""
    images = [Image.new(mode, (8, 8))]
    if mode in ("CMYK", "L"):
        images.append(Image.open(io.BytesIO(jpeg_bytes(mode))))
    for field in FIELDS if mode != "L" else [FIELDS[1]]:
        for image in images:
            with pytest.raises(TypeError, match=rf"x: a PIL image of mode {mode} .*, expected .*; convert it to"):
                Schema.of({"x": field}).encode({"x": image})


@pytest.mark.parametrize("field", FIELDS)
def test_closed_images(field: Field, tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(JPEG)
    with Image.open(tmp_path / "x.jpg") as image:
        pass
    with pytest.raises(ValueError, match=r"value: a PIL image .* cannot be loaded"):
        Schema.of(field).encode(image)


@pytest.mark.parametrize("field", FIELDS)
def test_images_of_other_files_that_do_not_load(field: Field) -> None:
    out = io.BytesIO()
    Image.fromarray(SMOOTH).save(out, "BMP")
    with (
        Image.open(io.BytesIO(out.getvalue()[:-100])) as image,
        pytest.raises(ValueError, match=r"value: a PIL image of mode RGB and size \(64, 48\) cannot be loaded"),
    ):
        Schema.of(field).encode(image)


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def with_thumbnail(data: bytes) -> bytes:
    """JPEG `data` with a whole JPEG inside its EXIF segment."""
    return data[:2] + segment(0xE1, b"Exif\0\0" + jpeg_bytes()) + data[2:]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("source", ["bytes", "image"])
@pytest.mark.parametrize("cut", [1, 2, 30, 400])
def test_cut_files_are_refused(field: Field, source: str, cut: int) -> None:
    data = with_thumbnail(JPEG)[:-cut]
    value = data if source == "bytes" else Image.open(io.BytesIO(data))
    with pytest.raises(ValueError, match=f"value: the JPEG of {len(data)} bytes ends before its image does"):
        Schema.of(field).encode(value)


SOF = JPEG.index(b"\xff\xc2")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xd8\xff", "the JPEG of 3 bytes has no readable frame header"),
        (JPEG[: SOF + 5], "has no readable frame header"),
        (b"\xff\xd8" + JPEG[JPEG.index(b"\xff\xda") :], "has no readable frame header"),
        (JPEG[: SOF + 1] + b"\xc3" + JPEG[SOF + 2 :], "has no readable frame header"),
        (JPEG[: SOF + 4] + b"\x0c" + JPEG[SOF + 5 :], "the JPEG has 3 channels of 12 bits, .*BytesField"),
        (JPEG[: SOF + 9] + b"\x02" + JPEG[SOF + 10 :], "the JPEG has 2 channels of 8 bits"),
        (resized(jpeg_bytes(), 64, 0), "has no readable frame header"),
        (resized(jpeg_bytes(), 65500, 65500), "a JPEG of .* 65500 x 65500 pixels, expected at most"),
        (resized(jpeg_bytes(), 65500, 100), r"a JPEG of \d+ bytes and of 65500 x 100 pixels, expected at most"),
        (b"\x89PNG\r\n", "6 bytes that begin with"),
    ],
)
def test_files_that_could_not_be_read_are_refused(field: Field, data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=f"image: .*{words}"):
        Schema.of({"image": field}).encode({"image": data})


def test_bytes_are_only_kept() -> None:
    strange = JPEG[: SOF + 1] + b"\xc3" + JPEG[SOF + 2 :]
    field = JPEGField(as_bytes=True)
    assert field.decode(memoryview(field.encode(strange))) == strange


@pytest.mark.parametrize(
    ("before", "where"),
    [
        (b"", "nothing"),
        (b"\xff\x01\0\0\xff\0", "stray bytes"),
        (b"\xff\x01" + b"\0" * (2 * 4096 + 1), "many stray bytes"),
        (b"\xff\xff\xff", "fill bytes"),
        (b"\xff\x01\xff\xd0", "markers without a segment"),
        (segment(0xE1, b"\xff\xc0" * 20), "frame headers within a segment"),
        (segment(0xE1, jpeg_bytes("L")), "another JPEG"),
    ],
)
def test_header(before: bytes, where: str) -> None:
    data = b"\xff\xd8" + before + JPEG[2:]
    frame = read_frame(data)
    assert frame == Frame(8, 48, 64, 3, SOF + 10 + len(before)), where
    assert is_whole(data, frame) and not is_whole(data[:-1], frame)
    assert read_frame(memoryview(data)) == frame


@pytest.mark.parametrize("wrap", [bytes, memoryview])
def test_ends_before_other_bytes(wrap: Any) -> None:
    frame = read_frame(JPEG)
    assert frame is not None
    for more in (1, 4096 - 3, 4096 - 2, 4096 - 1, 4096, 3 * 4096 + 5):
        assert is_whole(wrap(JPEG + b"\xff" * more), frame)
        assert not is_whole(wrap(JPEG[:-2] + b"\xff" * more), frame)


def test_header_of_anything() -> None:
    """Whatever the bytes, finding the header ends."""
    random = np.random.default_rng(0)
    for _ in range(2000):
        data = bytearray(random.choice([0, 1, 0xC0, 0xD8, 0xE0, 0xFF], int(random.integers(0, 40))).astype("u1"))
        assert read_frame(data) is None or len(data) > 10
    assert read_frame(bytes([0xFF, 0xD8]) + b"\xff" * 100_000) is None


def test_headers_that_pillow_agrees_with() -> None:
    for mode, channels in (("L", 1), ("RGB", 3), ("CMYK", 4)):
        for options in ({}, {"progressive": True}, {"exif": Image.Exif(), "icc_profile": b"x" * 70_000}):
            frame = read_frame(jpeg_bytes(mode, **options))
            assert frame is not None and frame[:4] == (8, *SMOOTH.shape[:2], channels)

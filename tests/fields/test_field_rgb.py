"""RGB images as plain pixels or JPEG."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_cases import pack, run_without, same
from field_images import SMOOTH, Image, jpeg_bytes, pixels
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ffrecord import DatasetWriter
from ffrecord.errors import FormatError
from ffrecord.fields import RGBImageField, Schema

JPEG = jpeg_bytes(quality=70)
RAW_SIZE = SMOOTH.nbytes


def back(field: RGBImageField, value: Any) -> Any:
    return field.decode(memoryview(field.encode(value)))


def is_raw(payload: Any) -> bool:
    return bytes(payload[:1]) == b"\0"


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_raw_round_trip(image: Any) -> None:
    schema = Schema.of({"image": RGBImageField()})
    for value in (image, Image.fromarray(image), image[::-1, ::-1][::-1, ::-1], np.asfortranarray(image)):
        found = schema.decode(schema.encode({"image": value}))["image"]
        assert same(found, image) and found.flags.writeable and found.flags.aligned


def test_payload() -> None:
    payload = RGBImageField().encode(SMOOTH[:1, :2])
    assert payload == b"\0RGB\0\0\0\0\0" + struct.pack("<II", 2, 1) + SMOOTH[:1, :2].tobytes()
    assert RGBImageField("jpeg").encode(JPEG) == JPEG


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_files_in_raw(decoder: str, mode: str) -> None:
    data = jpeg_bytes(mode)
    assert same(back(RGBImageField(), data), pixels(data))
    assert same(back(RGBImageField("jpeg"), data), pixels(data))


def test_an_opened_image_is_the_same_as_its_file() -> None:
    for field in (RGBImageField(), RGBImageField("jpeg"), RGBImageField("proportion"), RGBImageField("jpeg", 32)):
        image = Image.open(io.BytesIO(JPEG))
        assert field.encode(image) == field.encode(image) == field.encode(JPEG)


@pytest.mark.parametrize(("threshold", "raw"), [(0, False), (RAW_SIZE - 1, False), (RAW_SIZE, True), (2**40, True)])
@pytest.mark.parametrize("value", [SMOOTH, JPEG, Image.fromarray(SMOOTH)], ids=["array", "file", "image"])
def test_smart(threshold: int, raw: bool, value: Any) -> None:
    payload = RGBImageField("smart", smart_threshold=threshold).encode(value)
    assert is_raw(payload) is raw
    assert payload != JPEG if raw or value is not JPEG else payload == JPEG


def test_smart_counts_what_is_stored() -> None:
    field = RGBImageField("smart", max_resolution=32, smart_threshold=32 * 24 * 3)
    assert is_raw(field.encode(SMOOTH))
    assert not is_raw(RGBImageField("smart", smart_threshold=32 * 24 * 3).encode(SMOOTH))


def test_proportion() -> None:
    images = [np.roll(SMOOTH, shift, 1) + np.uint8(shift // 64) for shift in range(400)]
    for probability, low, high in ((0, 0, 0), (0.25, 0.17, 0.33), (0.5, 0.41, 0.59), (1, 1, 1)):
        field = RGBImageField("proportion", compress_probability=probability)
        payloads = [field.encode(image) for image in images]
        compressed = sum(not is_raw(payload) for payload in payloads) / len(images)
        assert low <= compressed <= high
        assert payloads == [field.encode(image.copy()) for image in images]  # by content, not by chance or by turn


def test_proportions_are_nested() -> None:
    """What a smaller share compresses, a larger one does too."""
    small, large = (RGBImageField("proportion", compress_probability=share) for share in (0.3, 0.6))
    for shift in range(100):
        image = np.roll(SMOOTH, shift, 1)
        assert is_raw(small.encode(image)) or not is_raw(large.encode(image))


def test_output_does_not_depend_on_workers(tmp_path: Path) -> None:
    images = [{"image": np.roll(SMOOTH, shift, 1)} for shift in range(60)]
    fields = {"image": RGBImageField("proportion", max_resolution=40)}
    for workers, chunksize in ((0, 100), (2, 7)):
        writer = DatasetWriter(tmp_path / str(workers), fields, num_workers=workers, samples_per_shard=25)
        writer.from_indexed_dataset(images, chunksize=chunksize)
    one, other = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("0", "2"))
    assert one == other and len(one) >= 3


@pytest.mark.parametrize(
    ("size", "most", "expected"),
    [
        ((64, 48), 64, (64, 48)),
        ((64, 48), 65, (64, 48)),
        ((64, 48), 32, (32, 24)),
        ((48, 64), 32, (24, 32)),
        ((640, 1), 64, (64, 1)),
        ((3, 2), 2, (2, 1)),
        ((100, 99), 1, (1, 1)),
        ((1000, 333), 500, (500, 167)),
    ],
)
@pytest.mark.parametrize("write_mode", ["raw", "jpeg"])
def test_max_resolution(size: tuple[int, int], most: int, expected: tuple[int, int], write_mode: str) -> None:
    field = RGBImageField(write_mode, max_resolution=most)
    found = back(field, Image.new("RGB", size, (10, 200, 30)))
    assert found.shape == (expected[1], expected[0], 3)
    assert np.abs(found.astype(int) - [10, 200, 30]).max() < 6


def test_scaled_as_pillow_scales(decoder: str) -> None:
    field = RGBImageField(max_resolution=32)
    assert same(back(field, JPEG), np.asarray(Image.open(io.BytesIO(JPEG)).resize((32, 24), Image.Resampling.BICUBIC)))
    smaller = RGBImageField("jpeg", max_resolution=32, jpeg_quality=95).encode(JPEG)
    assert smaller != JPEG and len(smaller) < len(JPEG)
    assert RGBImageField("jpeg", max_resolution=64).encode(JPEG) == JPEG


def test_quality(decoder: str) -> None:
    sizes = [len(RGBImageField("jpeg", jpeg_quality=quality).encode(SMOOTH)) for quality in (1, 50, 100)]
    assert sizes == sorted(set(sizes))


def test_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    data = jpeg_bytes(exif=exif.tobytes())
    for write_mode in ("raw", "jpeg"):
        assert back(RGBImageField(write_mode), data).shape == SMOOTH.shape
        assert back(RGBImageField(write_mode), Image.open(io.BytesIO(data))).shape == SMOOTH.shape


def test_batches() -> None:
    schema = Schema.of({"image": RGBImageField("smart", smart_threshold=1000), "label": None})
    images = [SMOOTH, JPEG, SMOOTH[:8, :8]]
    data, offsets = pack([schema.encode({"image": image, "label": None}) for image in images])
    found = schema.decode_columns(data, offsets)["image"]
    assert [image.shape for image in found] == [(48, 64, 3), (48, 64, 3), (8, 8, 3)]
    assert same(found[2], np.ascontiguousarray(SMOOTH[:8, :8]))
    assert all(same(a, b["image"]) for a, b in zip(found, schema.decode_batch(data, offsets), strict=True))


def test_parameters_of_writing_do_not_matter_to_reading() -> None:
    schema = Schema.of(RGBImageField("smart", 40, 2000, 80))
    assert Schema.from_builtins(schema.to_builtins()) == schema
    other = schema.replace({"value": RGBImageField()})
    assert same(other.decode(schema.encode(SMOOTH)), schema.decode(schema.encode(SMOOTH)))


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (SMOOTH.astype(np.uint16), TypeError, "image: a uint16 array .*, expected a uint8 array .*"),
        (SMOOTH[:, :, 0], ValueError, r"a uint8 array of shape \(48, 64\)"),
        (SMOOTH[:, :, :2], ValueError, r"of shape \(48, 64, 2\)"),
        (np.zeros((0, 5, 3), np.uint8), ValueError, "sides of 1 to 65535"),
        (np.zeros((1, 65536, 3), np.uint8), ValueError, "sides of 1 to 65535"),
        (Image.new("L", (2, 2)), TypeError, "mode L .*convert it to RGB, or keep its mode by ImageField"),
        (Image.new("RGBA", (2, 2)), TypeError, "a PIL image of mode RGBA"),
        (b"\x89PNG", ValueError, "4 bytes that begin with"),
        (JPEG[:-20], ValueError, "ends before its image does"),
        (JPEG[:300] + bytes(100) + b"\xff\xd9", ValueError, "image: .*a JPEG of 402 bytes"),
        (None, TypeError, "None"),
    ],
)
def test_refused(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of({"image": RGBImageField()}).encode({"image": value})


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"write_mode": "jpg"}, ValueError, "write_mode is str 'jpg', expected one of raw, jpeg, smart, proportion"),
        ({"write_mode": ["raw"]}, ValueError, "write_mode is a list of 1"),
        ({"max_resolution": 0}, ValueError, "max_resolution is 0"),
        ({"max_resolution": 2.5}, TypeError, "max_resolution is float 2.5, expected an int"),
        ({"write_mode": "smart"}, ValueError, "smart_threshold is None with write_mode='smart', expected a number"),
        ({"smart_threshold": 5}, ValueError, "smart_threshold is int 5 with write_mode='raw'"),
        ({"write_mode": "smart", "smart_threshold": -1}, ValueError, "smart_threshold is -1"),
        ({"write_mode": "smart", "smart_threshold": 0.5}, TypeError, "smart_threshold is float 0.5, expected an int"),
        ({"jpeg_quality": 0}, ValueError, "jpeg_quality is 0"),
        ({"compress_probability": 1.5}, ValueError, "compress_probability is float 1.5, expected 0 to 1"),
        ({"compress_probability": float("nan")}, ValueError, "compress_probability is float nan"),
        ({"compress_probability": True}, TypeError, "compress_probability is True"),
    ],
)
def test_parameters_refused(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RGBImageField(**arguments)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "0 bytes that begin with b''"),
        (b"\x89PNG\r\n", r"6 bytes that begin with b'\\x89PN', expected compressed"),
        (b"\0RGB\0\0\0\0\0" + struct.pack("<II", 2, 1) + bytes(5), "2 x 1 pixels of mode RGB have 5 bytes, expected 6"),
        (
            b"\0RGB\0\0\0\0\0" + struct.pack("<II", 2**32 - 1, 2**32 - 1),
            "4294967295 x 4294967295 pixels of mode RGB have 0 bytes, expected 553",
        ),
        (b"\0RGB\0\0\0\0\0" + struct.pack("<II", 0, 7), "an image has 0 x 7 pixels, expected sides of 1 or more"),
        (b"\0CMYK\0\0\0\0" + struct.pack("<II", 1, 1) + bytes(4), "the plain pixels have mode 'CMYK', expected RGB"),
        (b"\0RGB", "4 bytes that begin with"),
        (JPEG[:-20], r"\w+ cannot read a JPEG of"),
    ],
)
def test_hostile_payloads(decoder: str, payload: bytes, words: str) -> None:
    schema = Schema.of({"image": RGBImageField()})
    record = len(payload).to_bytes(8, "little") + payload
    with pytest.raises(FormatError, match=rf"^image \(RGBImageField\): {words}"):
        schema.decode(record)
    with pytest.raises(FormatError, match=rf"^record 0 of the batch: image \(RGBImageField\): {words}"):
        schema.decode_columns(*pack([record]))


@pytest.mark.parametrize("payload", [RGBImageField().encode(SMOOTH[:4, :4]), JPEG], ids=["raw", "jpeg"])
def test_any_damage(decoder: str, payload: bytes) -> None:
    """Any bytes are decoded or refused as a FormatError."""
    random = np.random.default_rng(0)
    whole = np.frombuffer(payload, np.uint8)
    for _ in range(200):
        data = whole[: random.integers(1, len(whole) + 1)].copy()
        data[random.integers(0, len(data), 2)] = random.integers(0, 256, 2)
        try:
            image = RGBImageField().decode(data.data)
        except FormatError:
            continue
        assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3


def test_without_pillow() -> None:
    raw = "field = RGBImageField(); print(field.decode(memoryview(field.encode(np.ones((2, 2, 3), 'u1')))).sum())"
    assert "12" in run_without(["PIL"], raw)
    scaled = run_without(["PIL"], "RGBImageField(max_resolution=1).encode(np.ones((2, 2, 3), 'u1'))")
    assert "max_resolution needs PIL: pip install pillow" in scaled

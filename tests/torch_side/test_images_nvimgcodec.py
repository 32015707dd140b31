"""Images decoded by nvImageCodec, by its backend for the CPU. All but resampling takes the same steps as on a GPU.

Its CPU backend returns the pixels of libjpeg-turbo bit for bit. torch's filter computes with floats, where Pillow's
rounds after each of its two passes; so results differ by 1 at most from those made by the book.
"""

import gc
import io
import logging
import os
import threading
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from images_builders import Array, Image, expected, jpeg, picture, psnr

from ffrecord import DatasetWriter, FileWriter, FormatError
from ffrecord.fields import BytesField, IntField, JPEGField, NDArrayField, RGBImageField, Schema
from ffrecord.format.extension import Extension
from ffrecord.order import sample_seeds
from ffrecord.torch import Loader
from ffrecord.torch.images import CenterCrop, ImageDecoder, RandomResizedCrop, Resize, nvimgcodec
from ffrecord.torch.images.nvimgcodec import NVImageCodec

simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
pytest.importorskip("nvidia.nvimgcodec", reason="nvImageCodec is not installed: pip install nvidia-nvimgcodec-cu12")

COUNT = 12
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DECODERS = [
    RandomResizedCrop(64, flip=1),
    RandomResizedCrop((48, 80), channels_first=False),
    CenterCrop(64),
    Resize((50, 30)),
    RandomResizedCrop(64, channels=1),
    Resize(400, channels=1, channels_first=False),
]
KINDS = {
    "usual": {},
    "all the colours": {"subsampling": 0},
    "half the colours": {"subsampling": 1},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
}


@pytest.fixture(scope="module")
def codec() -> NVImageCodec:
    return NVImageCodec(None, 1)


def refuse(place: int, row: Array) -> None:
    raise AssertionError(f"image {place} was left to the CPU")


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def by_the_book(decoder: ImageDecoder, data: bytes, seed: int, orientation: int = 1) -> Array:
    """The same of the whole image, turned upright."""
    whole = simplejpeg.decode_jpeg(data, "GRAY" if decoder.channels == 1 else "RGB").squeeze()
    image = Image.fromarray(whole)
    image.getexif()[0x0112] = orientation
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(orientation)
    return expected(decoder, saved(image if turn is None else image.transpose(turn), "PNG"), seed)


def check(codec: NVImageCodec, decoder: ImageDecoder, files: list[bytes], orientation: int = 1) -> None:
    seeds = list(range(len(files)))
    batch, sides = codec.decode(decoder, [memoryview(data) for data in files], seeds, refuse)
    made = decoder.allocate(len(files))
    assert batch.shape == made.shape and batch.dtype == made.dtype and batch.stride() == made.stride()
    for row, data, seed, found in zip(decoder.rows(batch), files, seeds, sides, strict=True):
        book = by_the_book(decoder, data, seed, orientation)
        assert np.abs(row.astype(int) - book).max() <= 1
        assert found == decoder.decode_into(memoryview(data), decoder.rows(made)[0], seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_images_are_as_by_the_book(codec: NVImageCodec, decoder: ImageDecoder, kind: str) -> None:
    check(codec, decoder, [jpeg(picture(201 + 7 * i, 260 - 9 * i, i), **KINDS[kind]) for i in range(4)])


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_grey_images(codec: NVImageCodec, decoder: ImageDecoder) -> None:
    check(codec, decoder, [saved(Image.fromarray(picture(101, 160, i)).convert("L"), "JPEG") for i in range(3)])


@pytest.mark.parametrize("sides", [(50, 1), (1, 50), (1, 1)])
@pytest.mark.parametrize("channels", [1, 3])
def test_results_of_one_column_or_row(codec: NVImageCodec, sides: tuple[int, int], channels: int) -> None:
    files = [saved(Image.fromarray(picture(101, 60 + 7 * i, i)), "JPEG") for i in range(3)]
    check(codec, Resize(sides, channels=channels), files)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("decoder", [RandomResizedCrop((40, 64), exif=True), CenterCrop((64, 30), exif=True)], ids=repr)
def test_orientation(codec: NVImageCodec, decoder: ImageDecoder, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    files = [saved(Image.fromarray(picture(101, 160, i)), "JPEG", exif=exif) for i in range(4)]
    check(codec, decoder, files, orientation)
    stored, _ = codec.decode(Resize(30), [memoryview(files[0])], [0], refuse)  # without exif, as it is stored
    assert np.abs(Resize(30).rows(stored)[0].astype(int) - by_the_book(Resize(30), files[0], 0)).max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_are_those_of_the_bytes(codec: NVImageCodec, dtype: torch.dtype, channels: int) -> None:
    """Bit for bit, as on the CPU."""
    options = {"dtype": dtype, "channels": channels, "mean": MEAN[:channels], "std": STD[:channels]}
    decoder, plain = RandomResizedCrop(64, **options), RandomResizedCrop(64, channels=channels)
    data = [memoryview(jpeg(picture(120, 160, i))) for i in range(3)]
    numbers, _ = codec.decode(decoder, data, [1, 2, 3], refuse)
    whole, _ = codec.decode(plain, data, [1, 2, 3], refuse)
    exact = whole.float().div(255).sub(torch.tensor(MEAN[:channels])[:, None, None])
    assert torch.equal(numbers, exact.div(torch.tensor(STD[:channels])[:, None, None]).to(dtype))
    assert numbers.stride() == decoder.allocate(3).stride()


# What is left to the CPU


def left_ones() -> dict[str, bytes | Array]:
    image = Image.fromarray(picture(60, 90))
    noise = np.random.default_rng(0).integers(0, 1 << 16, (60, 90), np.uint16)
    return {
        "PNG": saved(image, "PNG"),
        "alpha": saved(image.convert("RGBA"), "PNG"),
        "palette": saved(image.quantize(16), "PNG"),
        "16 bits": saved(Image.fromarray(noise), "PNG"),
        "WebP": saved(image, "WebP", lossless=True),
        "CMYK": saved(image.convert("CMYK"), "JPEG"),
        "red, green and blue": saved(image, "JPEG", keep_rgb=True),
        "bytes at the end": jpeg(picture(60, 90)) + b"more",
        "pixels": picture(60, 90),
        "plain pixels": bytes(RGBImageField().encode(picture(60, 90))),
    }


@pytest.mark.parametrize("kind", left_ones())
@pytest.mark.parametrize("decoder", [RandomResizedCrop(24), Resize(30, channels=1)], ids=repr)
def test_other_images_are_those_of_the_cpu(kind: str, decoder: ImageDecoder, caplog: pytest.LogCaptureFixture) -> None:
    """Among images that are not left to it."""
    caplog.set_level(logging.INFO, "ffrecord")
    codec, other, usual = NVImageCodec(None, 1), left_ones()[kind], memoryview(jpeg(picture(70, 50)))
    data = [usual, other if isinstance(other, np.ndarray) else memoryview(other), usual, usual]
    data[3] = data[1]
    batch, sides = codec.decode(
        decoder, data, [5, 6, 7, 8], lambda place, row: decoder.decode_into(data[place], row, 5 + place)
    )
    for place in (1, 3):
        row = decoder.rows(decoder.allocate(1))[0]
        assert decoder.decode_into(data[place], row, 5 + place) == sides[place] == (60, 90)
        assert np.array_equal(decoder.rows(batch)[place], row)
    assert np.abs(decoder.rows(batch)[2].astype(int) - by_the_book(decoder, bytes(usual), 7)).max() <= 1
    assert codec.left == 2
    (said,) = [record.getMessage() for record in caplog.records]
    assert "nvImageCodec leaves" in said and "decoded_on_cpu" in said


def test_a_box_that_shrinks_too_much_for_a_gpu(codec: NVImageCodec) -> None:
    data = memoryview(jpeg(picture(20, 1200)))
    with pytest.raises(AssertionError, match="image 0 was left"):
        codec.decode(Resize((4, 8)), [data], [0], refuse)
    codec.decode(Resize((4, 10)), [data], [0], refuse)


@pytest.mark.parametrize("most", [1, 30_000, 1 << 26])
def test_no_more_than_a_part_of_the_batch_is_in_memory(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codec, decoder = NVImageCodec(None, 1), RandomResizedCrop(24)
    data, seeds = [memoryview(jpeg(picture(120, 160, i))) for i in range(9)], list(range(9))
    whole, sides = codec.decode(decoder, data, seeds, refuse)
    asked: list[int] = []
    decode_streams = codec._decode_streams

    def count(streams: list[object], channels: int) -> list[object]:
        asked.append(len(streams))
        return decode_streams(streams, channels)

    monkeypatch.setattr(codec, "_decode_streams", count)
    monkeypatch.setattr(nvimgcodec, "PIXELS_MOST", most)
    parts, again = codec.decode(decoder, data, seeds, refuse)
    assert torch.equal(parts, whole) and again == sides and sum(asked) == 9
    boxes = [decoder.box(120, 160, seed) for seed in seeds]
    assert {1: 9, 1 << 26: 1}.get(most, len(asked)) == len(asked)
    if most == 30_000:
        assert 1 < len(asked) < 9
        ends = np.cumsum([0, *asked])
        areas = [sum(box.height * box.width for box in boxes[low:high]) for low, high in pairwise(ends)]
        assert max(areas) <= most


def test_memory_is_freed(path: str) -> None:
    """By `close`; a batch after that begins anew."""
    loader = Loader(path, COUNT, "sequential", decode={"image": CenterCrop(24)}, decode_with="nvimgcodec")
    (batch,) = loader
    assert loader._library._decoder is not None
    loader._library.close()
    assert loader._library._decoder is None
    (again,) = loader
    assert torch.equal(batch["image"], again["image"])
    loader.close()
    assert loader._library._decoder is None


# Through a loader


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("nvimgcodec") / "photos"
    fields = {"image": JPEGField(), "mask": NDArrayField("uint8", (None, None)), "id": IntField()}
    fields["boxes"] = NDArrayField("float32", (2, 4))
    sides = [(90 + 3 * i, 140 - 5 * i) for i in range(COUNT)]
    samples = [
        {
            "image": jpeg(picture(*each, i)),
            "mask": (np.arange(each[0] * each[1]) % 251).astype(np.uint8).reshape(each),
            "boxes": np.float32([[3, 4, 50, 60], [i, i, 80, 80]]),
            "id": i,
        }
        for i, each in enumerate(sides)
    ]
    DatasetWriter(out, fields, num_workers=0, progress=False).from_indexed_dataset(samples)
    return str(out)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_loader_gives_the_same_crops_masks_and_boxes(path: str, threads: int) -> None:
    crop = RandomResizedCrop(32)
    options = {"seed": 3, "decode": {"image": crop, "mask": crop.mask, "boxes": crop.boxes}}
    usual = list(Loader(path, 5, **options))
    loader = Loader(path, 5, decode_with="nvimgcodec", num_threads=threads, **options)
    found = list(loader)
    assert len(found) == len(usual) == 3
    for one, other in zip(found, usual, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in ("mask", "boxes", "id"))
        assert one["image"].shape == other["image"].shape and one["image"].stride() == other["image"].stride()
        # Our decoder takes an eighth, a quarter or half of the pixels where they suffice: 33 dB, as documented.
        assert all(psnr(*both) >= 33 for both in zip(one["image"].numpy(), other["image"].numpy(), strict=True))
    assert loader.stats().decoded_on_cpu == 0
    assert loader.stats().source.endswith("; images decoded by nvImageCodec on cpu")


def test_functions_get_the_images(path: str) -> None:
    decode = {"image": CenterCrop(32)}
    options = {"decode": decode, "decode_with": "nvimgcodec", "fields": ["image", "id"]}
    (batch,) = Loader(path, COUNT, "sequential", **options)

    def invert(sample):
        return {**sample, "image": 255 - sample["image"]}

    (single,) = Loader(path, COUNT, "sequential", transform=invert, **options)
    (whole,) = Loader(path, COUNT, "sequential", batch_transform=invert, **options)
    assert torch.equal(single["image"], 255 - batch["image"]) and torch.equal(whole["image"], single["image"])


def test_samples_of_python_and_of_other_formats(path: str, tmp_path) -> None:
    files = [jpeg(picture(90, 120, i)) for i in range(6)]
    for i, data in enumerate(files):
        (tmp_path / f"{i}.jpg").write_bytes(data)
    crop = RandomResizedCrop(24)
    options = {"decode": {"image": crop}, "decode_with": "nvimgcodec", "seed": 2}
    (from_bytes,) = Loader([{"image": data} for data in files], 6, "sequential", **options)
    (from_paths,) = Loader([{"image": tmp_path / f"{i}.jpg"} for i in range(6)], 6, "sequential", **options)
    assert torch.equal(from_bytes["image"], from_paths["image"])
    seeds = sample_seeds(2, 0, np.arange(6)).tolist()
    for row, data, seed in zip(crop.rows(from_bytes["image"]), files, seeds, strict=True):
        assert np.abs(row.astype(int) - by_the_book(crop, data, seed)).max() <= 1


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of twelve images, number 3 is cut short, 5 is no image, and 7 is damaged so that no decoder reads it."""
    schema = Schema.of({"image": BytesField(), "id": IntField()})
    file = tmp_path_factory.mktemp("nvimgcodec") / "cut.ffr"
    with FileWriter(file, extension=Extension(schema=schema.to_builtins())) as writer:
        for i in range(COUNT):
            data = jpeg(picture(80, 100, i))
            data = {3: data[:-900], 5: b"\xff\xd8\xff" + bytes(500), 7: data[:300] + data[-2:]}.get(i, data)
            writer.write_one(schema.encode({"image": data, "id": i}))
    return str(file)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_images_that_cannot_be_read(cut: str, on_error: str) -> None:
    options = {"decode": {"image": Resize(24)}, "on_error": on_error, "seed": 1}
    usual = list(Loader(cut, 4, **options))
    loader = Loader(cut, 4, decode_with="nvimgcodec", **options)
    found = list(loader)
    assert [batch["id"].tolist() for batch in found] == [batch["id"].tolist() for batch in usual]
    assert loader.stats().skipped == 3 and loader.stats().decoded_on_cpu >= 3


def test_an_image_that_cannot_be_read_is_named(cut: str) -> None:
    options = {"decode": {"image": Resize(24)}, "num_threads": 0}
    with pytest.raises(FormatError, match=r"Sample 3: .*image") as usual:
        list(Loader(cut, 4, "sequential", **options))
    with pytest.raises(FormatError) as found:
        list(Loader(cut, 4, "sequential", decode_with="nvimgcodec", **options))
    assert str(found.value) == str(usual.value)


def test_a_child_of_a_fork_begins_anew(path: str) -> None:
    """Also while a thread of the parent decodes."""
    codec, decoder, data = NVImageCodec(None, 1), Resize(24), memoryview(jpeg(picture(60, 90)))
    before, _ = codec.decode(decoder, [data], [0], refuse)
    held = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with codec._turn:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        code = 1
        try:
            after, _ = codec.decode(decoder, [data], [0], refuse)
            code = 0 if torch.equal(before, after) else 2
        finally:
            os._exit(code)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_of_a_fork_never_destroys_the_decoder_of_its_parent() -> None:
    """With several threads it would crash: it waits for them to end, and a child has none."""
    codec, parent = NVImageCodec(None, 1), os.getpid()

    class Witness:
        def __del__(self) -> None:
            if os.getpid() != parent:
                os._exit(3)

    codec._decoder = Witness()
    child = os.fork()
    if not child:
        del codec
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closed_by_a_signal_handler_while_it_decodes(codec: NVImageCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the thread that decodes."""
    mine, decoder, data = NVImageCodec(None, 1), Resize(24), memoryview(jpeg(picture(60, 90)))
    real = mine._open()

    class Interrupted:
        def decode(self, *arguments: object, **options: object) -> object:
            mine.close()
            return real.decode(*arguments, **options)

    monkeypatch.setattr(mine, "_open", Interrupted)
    found, _ = mine.decode(decoder, [data], [0], refuse)
    assert torch.equal(found, codec.decode(decoder, [data], [0], refuse)[0]) and mine._decoder is None


def test_images_are_left_to_the_cpu_while_another_batch_is_decoded() -> None:
    codec, decoder, data = NVImageCodec(None, 1), Resize(24), picture(60, 90)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with codec._turn:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    other = threading.Thread(target=lambda: codec.decode(decoder, [data], [0], lambda *_: (60, 90)))
    other.start()
    other.join(10)
    waiting = other.is_alive()
    done.set()
    thread.join()
    other.join()
    assert not waiting and codec.left == 1


# What this machine can tell of a GPU


def test_arguments_of_a_decoder_on_a_gpu(codec: NVImageCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library has the names that are used, and takes the arguments."""
    asked = {}
    library = SimpleNamespace(**vars(codec._library))
    library.Decoder = lambda **arguments: asked.update(arguments)
    library.Backend = lambda kind: codec._library.Backend(kind).backend_kind
    there = NVImageCodec(torch.device("cuda", 1), 1)
    monkeypatch.setattr(there, "_library", library)
    assert there.on_gpu and there.described.endswith("on cuda:1")
    there._open()
    kinds = codec._library.BackendKind
    assert asked == {
        "device_id": 1,
        "max_num_cpu_threads": 1,
        "backends": [kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU],
        "options": ":fancy_upsampling=1",
    }

"""Masks and boxes take the part and the flip of their image."""

import io
import pickle
import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from images_builders import Image, picture

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields import (
    BytesField,
    Field,
    ImageField,
    ImageFileField,
    IntField,
    JPEGField,
    NDArrayField,
    OptionalField,
    TensorField,
    ZstdField,
)
from ffrecord.torch import Dataset, Loader
from ffrecord.torch.images import BoxDecoder, CenterCrop, ImageDecoder, MaskDecoder, RandomResizedCrop, Resize

Array = np.ndarray[Any, Any]
CROPS = [RandomResizedCrop((24, 40)), RandomResizedCrop(50, flip=1), CenterCrop(32), Resize((60, 30))]
NO_LEADER = (
    "decode: mask has masks of a decoder that no other column has, expected the decoder of its images, too: "
    r'\{"image": crop, "mask": crop.mask\}'
)
HOW = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


def mask_of(height: int, width: int, dtype: Any = np.uint8) -> Array:
    """Every pixel another number, as far as the dtype goes."""
    return np.arange(height * width).reshape(height, width).astype(dtype)


def png(image: Any, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def by_the_book(mask: Array, crop: ImageDecoder, seed: int) -> Array:
    """Pixel by pixel: the one under the centre of the result's pixel."""
    box = crop.box(*mask.shape, seed)
    rows, columns = crop.sides
    made = np.zeros((rows, columns), mask.dtype)
    for y in range(rows):
        for x in range(columns):
            place = columns - 1 - x if box.flip else x
            made[y, x] = mask[
                box.top + int((y + 0.5) * box.height / rows), box.left + int((place + 0.5) * box.width / columns)
            ]
    return made


@pytest.mark.parametrize("crop", CROPS)
def test_nearest_neighbours(crop: ImageDecoder) -> None:
    for dtype in (np.uint8, np.uint16, np.int32, np.int64, np.float32, bool):
        mask = mask_of(37, 61, dtype)
        for seed in range(4):
            found = crop.mask.decode(mask, seed)
            assert found.dtype == dtype and np.array_equal(found, by_the_book(mask, crop, seed))
    several = np.stack([mask_of(37, 61), mask_of(37, 61) + 1])
    assert np.array_equal(crop.mask.decode(several, 3)[1], by_the_book(several[1], crop, 3))
    assert crop.mask.decode(several[:0], 3).shape == (0, *crop.sides)


@pytest.mark.parametrize("crop", CROPS)
def test_the_pixels_of_pillow(crop: ImageDecoder) -> None:
    mask = mask_of(37, 61)
    for seed in range(4):
        box = crop.box(37, 61, seed)
        area = (box.left, box.top, box.left + box.width, box.top + box.height)
        book = np.asarray(Image.fromarray(mask).crop(area).resize(crop.sides[::-1], Image.Resampling.NEAREST))
        found = crop.mask.decode(mask, seed)
        # Where a centre falls between two pixels, Pillow's floats round either way.
        rows, columns = (
            (2 * np.arange(out) + 1) * size % (2 * out) != 0
            for out, size in zip(crop.sides, (box.height, box.width), strict=True)
        )
        assert np.array_equal((found[:, ::-1] if box.flip else found)[rows][:, columns], book[rows][:, columns])


def test_files_of_masks_keep_their_numbers() -> None:
    crop = Resize((37, 61))
    palette = Image.fromarray(mask_of(37, 61) % 21)
    palette.putpalette(list(np.random.default_rng(1).integers(0, 256, 63)))
    assert np.array_equal(crop.mask.decode(memoryview(png(palette)), 0), mask_of(37, 61) % 21)
    deep = mask_of(37, 61, np.uint16) * 20
    for kind in ("PNG", "TIFF"):
        assert np.array_equal(crop.mask.decode(memoryview(png(Image.fromarray(deep), kind)), 0), deep)
    wide = mask_of(37, 61, np.int32) * 99999
    assert np.array_equal(crop.mask.decode(memoryview(png(Image.fromarray(wide), "TIFF")), 0), wide)
    bits = Image.fromarray(mask_of(37, 61) % 2 * 255).convert("1")
    assert np.array_equal(crop.mask.decode(memoryview(png(bits)), 0), mask_of(37, 61) % 2)
    assert np.array_equal(crop.mask.decode(memoryview(ImageField().encode(Image.fromarray(wide))), 0), wide)


def test_masks_are_turned_with_their_image() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    Image.fromarray(mask_of(37, 61)).save(out, "PNG", exif=exif)
    found = Resize((61, 37), exif=True).mask.decode(memoryview(out.getvalue()), 0, (61, 37))
    assert np.array_equal(found, np.rot90(mask_of(37, 61), -1))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (picture(9, 9), "a mask has 3 x 9 pixels, expected 9 x 9"),
        (np.zeros(9, np.uint8), r"a uint8 array \[9\], expected a mask \[H, W\] of numbers"),
        (np.zeros((0, 9), np.uint8), r"a uint8 array \[0, 9\]"),
        (np.full((9, 9), "a"), r"a <U1 array \[9, 9\]"),
        (memoryview(png(Image.fromarray(picture(9, 9)))), "the image has mode RGB, expected a mask of one channel"),
        (memoryview(b"nothing"), "7 bytes that begin with b'noth'"),
        (mask_of(9, 10), "a mask has 10 x 9 pixels, expected 9 x 9, the size of its image"),
    ],
)
def test_masks_refused(mask: Any, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        Resize(4).mask.decode(mask, 0, (9, 9))


LARGE = 2**53 + 1  # float64 does not have it


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((np.int64, np.uint64), torch.int64),
        ((np.uint64, np.int8, bool), torch.int64),
        ((np.uint64,), torch.int64),
        ((np.uint8, np.uint16), torch.int32),
        ((np.uint16, np.float32), torch.float32),
        ((np.int64, np.float32), torch.float64),
    ],
)
def test_masks_of_several_dtypes(dtypes: Any, expected: torch.dtype) -> None:
    most = {kind: min(LARGE, np.iinfo(kind).max) if np.dtype(kind).kind in "iu" else 1 for kind in dtypes}
    samples = [{"image": picture(9, 9), "mask": np.full((9, 9), most[kind], kind)} for kind in dtypes]
    crop = Resize(4)
    (batch,) = Loader(samples, len(samples), "sequential", decode={"image": crop, "mask": crop.mask})
    assert batch["mask"].dtype == expected
    numbers = [int(most[kind]) for kind in dtypes]
    assert batch["mask"][:, 0, 0].tolist() == (numbers if expected != torch.float64 else [float(n) for n in numbers])


def test_masks_that_int64_does_not_hold() -> None:
    samples = [{"image": picture(9, 9), "mask": np.full((9, 9), number, np.uint64)} for number in (2**63 - 1, 2**63)]
    crop = Resize(4)
    with pytest.raises(
        FormatError, match=r"Sample 1: .*mask: a mask has the number 9223372036854775808, expected less"
    ):
        list(Loader(samples, 2, "sequential", decode={"image": crop, "mask": crop.mask}))


@pytest.mark.parametrize("crop", CROPS)
def test_boxes(crop: ImageDecoder) -> None:
    """A rectangle of a mask, and the box around it, stay together."""
    random = np.random.default_rng(3)
    for seed in range(20):
        left, top = int(random.integers(0, 50)), int(random.integers(0, 30))
        right, bottom = int(random.integers(left + 1, 62)), int(random.integers(top + 1, 38))
        mask = np.zeros((37, 61), bool)
        mask[top:bottom, left:right] = True
        boxes = np.array([[left, top, right, bottom]], random.choice([np.float32, np.float64, np.int64]))
        ((x0, y0, x1, y1),) = crop.boxes.decode(boxes, seed, (37, 61)).tolist()
        assert 0 <= x0 <= x1 <= crop.sides[1] and 0 <= y0 <= y1 <= crop.sides[0]
        centres = np.mgrid[: crop.sides[0], : crop.sides[1]] + 0.5
        inside = (centres[0] > y0) & (centres[0] < y1) & (centres[1] > x0) & (centres[1] < x1)
        # Where a pixel's centre falls on an edge, either side is right.
        on_edge = (np.abs(centres[0] - y0) < 1e-3) | (np.abs(centres[0] - y1) < 1e-3)
        on_edge |= (np.abs(centres[1] - x0) < 1e-3) | (np.abs(centres[1] - x1) < 1e-3)
        near = inside != crop.mask.decode(mask, seed)
        # Nearest neighbours are whole pixels, so they may be up to half a stored pixel off.
        box = crop.box(37, 61, seed)
        off_y, off_x = crop.sides[0] / box.height / 2 + 0.5, crop.sides[1] / box.width / 2 + 0.5
        rows, columns = centres
        close = np.minimum(np.abs(rows - y0), np.abs(rows - y1)) <= off_y
        close |= np.minimum(np.abs(columns - x0), np.abs(columns - x1)) <= off_x
        assert not (near & ~close & ~on_edge).any()


def test_boxes_by_hand() -> None:
    crop, sides = Resize((20, 10)), (40, 50)
    boxes = np.array([[0, 0, 50, 40], [10, 4, 20, 8], [-5, -5, 5, 90]], np.float64)
    assert crop.boxes.decode(boxes, 0, sides).tolist() == [[0, 0, 10, 20], [2, 2, 4, 4], [0, 0, 1, 20]]
    flipped = RandomResizedCrop((20, 10), scale=(1, 1), ratio=(1.25, 1.25), flip=1)
    assert flipped.box(40, 50, 0)[:4] == (0, 0, 40, 50)
    assert flipped.boxes.decode(boxes, 0, sides).tolist() == [[0, 0, 10, 20], [6, 2, 8, 4], [9, 0, 10, 20]]


def test_boxes_outside_have_no_area_and_stay_in_place() -> None:
    crop = CenterCrop(10, 0.5)  # of 40 x 40: rows and columns 10 to 29
    boxes = np.array([[0, 0, 5, 5], [15, 15, 20, 20], [35, 0, 40, 40], [15, 32, 20, 38]], np.float32)
    found = crop.boxes.decode(boxes, 0, (40, 40))
    assert ((found[:, 2:] > found[:, :2]).all(1)).tolist() == [False, True, False, False]
    assert found.dtype == np.float32 and (found >= 0).all() and (found <= 10).all()
    assert crop.boxes.decode(boxes[:0], 0, (40, 40)).shape == (0, 4)
    assert crop.boxes.decode(boxes[1], 0, (40, 40)).tolist() == found[1].tolist()


@pytest.mark.parametrize("boxes", [np.zeros((2, 5)), np.zeros(()), np.zeros((2, 4), bool), [[1, 2, 3, 4]]])
def test_boxes_refused(boxes: Any) -> None:
    with pytest.raises(FormatError, match=r"expected boxes \[n, 4\] of numbers: left, top, right, bottom"):
        Resize(4).boxes.decode(boxes, 0, (9, 9))


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        (np.array([[60, 70, 20, 10]]), "boxes[0] is [60, 70, 20, 10], expected its right, 20, at least its left, 60; "),
        (np.float32([[1, 2, 1, 2], [3, 4.5, 9, 2]]), "boxes[1] is [3.0, 4.5, 9.0, 2.0], expected its bottom, 2.0, "),
        (np.array([9, 0, 8, 9], np.uint16), "boxes is [9, 0, 8, 9], expected its right, 8, at least its left, 9; "),
        (np.array([[[0, 0, 1, 1], [0, 2, 1, 1]]]), "boxes[0, 1] is [0, 2, 1, 1], expected its bottom, 1, at least"),
    ],
)
def test_boxes_of_coco_refused(boxes: Array, words: str) -> None:
    with pytest.raises(FormatError, match=re.escape(words)) as caught:
        Resize(4).boxes.decode(boxes, 0, (90, 90))
    assert "(COCO's are left, top, width, height: boxes[:, 2:] += boxes[:, :2])" in str(caught.value)


def test_boxes_of_coco_are_refused_with_their_sample() -> None:
    coco = [np.array([[0, 0, 9, 9]]), np.array([[0, 0, 9, 9], [20, 25, 10, 4]])]
    samples = [{"image": picture(30, 40, i), "boxes": each} for i, each in enumerate(coco)]
    crop = Resize((15, 20))
    with pytest.raises(FormatError, match=r"sample 1: boxes: boxes\[1\] is \[20, 25, 10, 4\], expected its right, 10"):
        list(Loader(samples, 1, "sequential", decode={"image": crop, "boxes": crop.boxes}))
    for boxes in coco:
        boxes[:, 2:] += boxes[:, :2]  # as the message says
    first, second = Loader(samples, 1, "sequential", decode={"image": crop, "boxes": crop.boxes})
    assert first["boxes"].shape == (1, 1, 4) and second["boxes"][0, 1].tolist() == [10, 12.5, 15, 14.5]


def test_frozen_pickled_equal() -> None:
    crop = RandomResizedCrop(8)
    assert crop.mask == MaskDecoder(crop) == pickle.loads(pickle.dumps(crop.mask)) and crop.boxes == BoxDecoder(crop)


def sample(i: int) -> dict[str, Any]:
    """A picture whose red channel has the number of each pixel's class, a mask of these, and boxes around them."""
    height, width = 40 + i, 90 - i
    classes = np.zeros((height, width), np.uint8)
    boxes = []
    for k in range(i % 4):
        top, left = 3 + 9 * k, 5 + 20 * k
        classes[top : top + 8, left : left + 12] = 60 * (k + 1)
        boxes.append([left, top, left + 12, top + 8])
    pixels = np.stack([classes, classes, classes], 2)
    return {
        "image": png(Image.fromarray(pixels)),
        "mask": classes,
        "deep": classes.astype(np.uint16),
        "file": png(Image.fromarray(classes)),
        "each": np.stack([classes == 60 * (k + 1) for k in range(i % 4)] or [classes > 0])[: i % 4],
        "boxes": np.array(boxes, np.float32).reshape(-1, 4),
        "first": np.array((boxes or [[0, 0, 1, 1]])[0], np.int64),
        "id": i,
    }


def packed(field: Field) -> Field:
    """The field compressed, where that can be done."""
    return ZstdField(field) if find_spec("zstandard") else field


COLUMNS = {
    "image": ImageFileField(),
    "mask": packed(NDArrayField("uint8", (None, None))),
    "deep": NDArrayField("uint16", (None, None)),
    "file": ImageFileField(),
    "each": NDArrayField("bool", (None, None, None)),
    "boxes": NDArrayField("float32", (None, 4)),
    "first": NDArrayField("int64", (4,)),
    "id": IntField(),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("followers") / "samples"
    DatasetWriter(path, COLUMNS, num_workers=0).from_indexed_dataset([sample(i) for i in range(12)])
    return str(path)


def decoders(crop: ImageDecoder) -> dict[str, Any]:
    masks = dict.fromkeys(("mask", "deep", "file", "each"), crop.mask)
    return {"boxes": crop.boxes, "first": crop.boxes, **masks, "image": crop}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("crop", CROPS)
def test_in_a_loader(path: str, crop: ImageDecoder, how: Any) -> None:
    seen = []
    for batch in Loader(path, 4, seed=5, decode=decoders(crop), **how):
        rows, columns = crop.sides
        assert batch["image"].shape == (4, 3, rows, columns) and batch["mask"].shape == (4, rows, columns)
        assert batch["mask"].dtype == batch["file"].dtype == torch.uint8 and batch["deep"].dtype == torch.int32
        assert torch.equal(batch["mask"], batch["file"]) and torch.equal(batch["mask"].int(), batch["deep"])
        assert batch["first"].shape == (4, 4) and batch["first"].dtype == torch.float32
        for i, number in enumerate(batch["id"].tolist()):
            # The image, smooth at the edges of classes, agrees with its mask in the middle of them.
            apart = (batch["image"][i, 0].int() - batch["mask"][i].int()).abs()
            assert (apart == 0).float().mean() > 0.5
            assert batch["each"][i].shape == (number % 4, rows, columns) and batch["each"][i].dtype == torch.bool
            assert len(batch["boxes"][i]) == number % 4
            for k, (box, mask) in enumerate(zip(batch["boxes"][i].tolist(), batch["each"][i], strict=True)):
                assert torch.equal(mask, batch["mask"][i] == 60 * (k + 1))
                if mask.any():
                    y, x = torch.nonzero(mask, as_tuple=True)
                    assert box[0] - 3 <= x.min() and x.max() <= box[2] + 3
                    assert box[1] - 3 <= y.min() and y.max() <= box[3] + 3
            if number % 4:
                assert torch.equal(batch["first"][i], batch["boxes"][i][0])
            seen.append(number)
    assert sorted(seen) == list(range(12))


def test_transforms_and_padded_boxes(path: str) -> None:
    crop = RandomResizedCrop(20)

    def transform(sample: Any) -> Any:
        assert sample["image"].shape == (3, 20, 20) and sample["mask"].shape == (20, 20)
        return {"image": sample["image"], "mask": sample["mask"], "boxes": sample["boxes"], "id": sample["id"]}

    some = {name: each for name, each in decoders(crop).items() if name in ("image", "mask", "boxes")}
    plain = list(Loader(path, 4, seed=5, decode=some))
    padded = list(Loader(path, 4, seed=5, decode=some, transform=transform, ragged="padded"))
    for one, other in zip(plain, padded, strict=True):
        assert torch.equal(one["image"], other["image"]) and torch.equal(one["mask"], other["mask"])
        assert other["boxes"].lengths[:, 0].tolist() == [len(boxes) for boxes in one["boxes"]]


def test_masks_alone_take_their_own_size(path: str) -> None:
    crop = RandomResizedCrop(20)
    both = [batch["mask"] for batch in Loader(path, 4, seed=5, decode={"image": crop, "mask": crop.mask})]
    alone = [batch["mask"] for batch in Loader(path, 4, seed=5, fields=["mask"], decode={"mask": crop.mask})]
    assert all(torch.equal(one, other) for one, other in zip(both, alone, strict=True))


@pytest.mark.parametrize("boxes", [[[1, 2, 3, 4], [float("nan"), 0, 1, 2]], [[1, 2, 3, 4], [0, 0, 1, float("nan")]]])
def test_boxes_without_numbers(boxes: Any) -> None:
    """They became 0."""
    with pytest.raises(FormatError, match=r"^boxes\[1\] is \[.*nan.*\], expected numbers: remove"):
        CenterCrop(16).boxes.decode(np.array(boxes), 0, (30, 40))


def test_masks_beside_whole_images_are_refused(path: str) -> None:
    """The image would be whole, and its mask a part of it."""
    decode = {"mask": RandomResizedCrop(20).mask}
    told = r"^decode: mask has masks of a decoder that no other column has, .*; or name columns without images"
    for source in (path, ffrecord.open(path).samples(range(4))):
        for load in (lambda source=source: Loader(source, 4, decode=decode), lambda: Dataset(path, decode=decode)):
            with pytest.raises(ArgumentError, match=told):
                load()
    with pytest.raises(ArgumentError, match=told):
        Loader(path, 4, fields=["image", "mask"], decode=decode)


def test_masks_beside_images_that_may_be_missing_are_refused(tmp_path: Any) -> None:
    fields = {"image": OptionalField(ImageFileField()), "mask": NDArrayField("uint8", (None, None))}
    samples = [{"image": sample(i)["image"], "mask": sample(i)["mask"]} for i in range(4)]
    DatasetWriter(tmp_path / "samples", fields, num_workers=0, progress=False).from_indexed_dataset(samples)
    with pytest.raises(ArgumentError, match="no other column has"):
        Loader(str(tmp_path / "samples"), 4, decode={"mask": RandomResizedCrop(20).mask})


@pytest.mark.parametrize("how", HOW)
def test_a_mask_of_another_size(tmp_path: Any, how: Any) -> None:
    samples = [{"image": picture(30, 40), "mask": mask_of(30 if i != 6 else 31, 40), "id": i} for i in range(9)]
    columns = {"image": JPEGField(), "mask": NDArrayField("uint8", (None, None)), "id": IntField()}
    DatasetWriter(tmp_path / "out", columns, num_workers=0).from_indexed_dataset(samples)
    crop = CenterCrop(16)
    words = r"Sample 6: .*sample 6: mask \(NDArrayField\): a mask has 40 x 31 pixels, expected 40 x 30, the size of its"
    with pytest.raises(RuntimeError, match=words):
        list(Loader(tmp_path / "out", 3, "sequential", decode={"image": crop, "mask": crop.mask}, **how))
    loader = Loader(
        tmp_path / "out", 3, "sequential", decode={"image": crop, "mask": crop.mask}, on_error="skip", **how
    )
    assert [batch["id"].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [7, 8]]


def test_images_of_arrays_tensors_bytes_and_pil(tmp_path: Any) -> None:
    pixels = [picture(30, 40, i) for i in range(6)]
    columns = {
        "array": NDArrayField("uint8", (30, 40, 3)),
        "loose": NDArrayField("uint8", None),
        "tensor": TensorField("uint8", (30, 40, 3)),
        "bytes": BytesField(),
        "pil": ImageField(),
        "packed": packed(ImageFileField(as_bytes=True)),
        "grey": NDArrayField("uint8", (30, 40)),
    }
    samples = [
        {
            **dict.fromkeys(("array", "loose"), each),
            "tensor": torch.from_numpy(each),
            **dict.fromkeys(("bytes", "packed"), png(Image.fromarray(each))),
            "pil": Image.fromarray(each),
            "grey": each[:, :, 0].copy(),
        }
        for each in pixels
    ]
    DatasetWriter(tmp_path / "out", columns, num_workers=0).from_indexed_dataset(samples)
    crop = RandomResizedCrop(16)
    for batch in Loader(tmp_path / "out", 3, seed=1, decode=dict.fromkeys(columns, crop)):
        first = batch["array"]
        assert all(torch.equal(batch[name], first) for name in columns if name != "grey")
        assert torch.equal(batch["grey"], first[:, :1].expand(-1, 3, -1, -1))
    for batch in Loader(tmp_path / "out", 3, seed=1, decode={"grey": crop}, fields=["grey"]):
        assert batch["grey"].shape == (3, 3, 16, 16)


def test_fixed_arrays_alone(tmp_path: Any) -> None:
    """Records of one size, which are read as columns."""
    samples = [{"image": picture(30, 40, i), "id": i} for i in range(6)]
    DatasetWriter(tmp_path / "out", num_workers=0).from_indexed_dataset(samples)
    crop = RandomResizedCrop(16, dtype=torch.bfloat16)
    for batch in Loader(tmp_path / "out", 3, seed=1, decode={"image": crop}):
        assert batch["image"].shape == (3, 3, 16, 16) and batch["image"].dtype == torch.bfloat16
    with pytest.raises(ArgumentError, match="decode: image has boxes of a decoder that no other column has"):
        Loader(tmp_path / "out", 3, decode={"image": crop.boxes})


def test_a_folder_and_a_webdataset_in_place(tmp_path: Any) -> None:
    import tarfile

    (tmp_path / "folder" / "a").mkdir(parents=True)
    with tarfile.open(tmp_path / "web.tar", "w") as tar:
        for i in range(6):
            for suffix, data in (
                ("png", png(Image.fromarray(picture(30, 40, i)))),
                ("seg.png", png(Image.fromarray(mask_of(30, 40)))),
            ):
                member = tarfile.TarInfo(f"{i}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            (tmp_path / "folder" / "a" / f"{i}.png").write_bytes(png(Image.fromarray(picture(30, 40, i))))
    crop = RandomResizedCrop(16)
    with ffrecord.open(tmp_path / "folder") as folder, ffrecord.open(tmp_path / "web.tar", format="webdataset") as web:
        in_folder = [batch["image"] for batch in Loader(folder, 3, seed=1, decode={"image": crop})]
        decode = {"png": crop, "seg.png": crop.mask}
        for batch, images in zip(Loader(web, 3, seed=1, decode=decode), in_folder, strict=True):
            assert torch.equal(batch["png"], images) and batch["seg.png"].shape == (3, 16, 16)


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        ({"id": Resize(4)}, r"decode: id is IntField\(\), expected a column of images"),
        ({"id": Resize(4).mask}, r"decode: id is IntField\(\), expected a column of images"),
        (
            {"image": Resize(4), "file": Resize(4).boxes},
            r"decode: file is ImageFileField\(.*\), expected a column of boxes",
        ),
        ({"boxes": Resize(4).boxes}, "decode: boxes has boxes of a decoder that no other column has"),
        ({"image": Resize(4), "boxes": Resize(5).boxes}, "decode: boxes has boxes of a decoder that no other column"),
        *(
            ({"image": RandomResizedCrop(64), "mask": other.mask}, NO_LEADER)
            for other in (
                CenterCrop(64),
                RandomResizedCrop(64, exif=True),
                RandomResizedCrop(64, flip=0),
                RandomResizedCrop(64, scale=(0.5, 1)),
            )
        ),
    ],
)
def test_columns_refused(path: str, decode: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Loader(path, 3, decode=decode)


def test_a_mask_of_another_decoder_is_refused_everywhere(path: str) -> None:
    """It would show another part than its image."""
    decode = {"image": RandomResizedCrop(16), "mask": CenterCrop(16).mask}
    with ffrecord.torch.Dataset(path) as plain:
        samples = [plain[i] for i in range(3)]
    with pytest.raises(ArgumentError, match=NO_LEADER):
        Loader(samples, 3, decode=decode)
    with pytest.raises(ArgumentError, match=NO_LEADER):
        ffrecord.torch.Dataset(path, decode=decode)


def test_a_mask_of_an_equal_decoder_and_a_mask_alone(path: str) -> None:
    crop = RandomResizedCrop(16)
    one, equal, alone = (
        next(iter(Loader(path, 3, seed=1, decode=decode, fields=[*decode])))["mask"]
        for decode in (
            {"image": crop, "mask": crop.mask},
            {"image": crop, "mask": RandomResizedCrop(16).mask},
            {"mask": crop.mask},
        )
    )
    assert torch.equal(one, equal) and torch.equal(one, alone)


def test_a_mask_of_a_decoder_that_shows_the_same_part(path: str) -> None:
    """Numbers, channels and size of the images do not matter, as for outputs of a network that are smaller."""
    numbers = {"dtype": torch.float32, "mean": (0.5, 0.5, 0.5), "channels_first": False}
    for image, smaller in (
        (RandomResizedCrop(16, **numbers), RandomResizedCrop(8)),
        (CenterCrop((16, 32), **numbers), CenterCrop((4, 8))),
    ):
        found, alone = (
            next(iter(Loader(path, 3, seed=1, decode=decode, fields=[*decode])))["mask"]
            for decode in ({"image": image, "mask": smaller.mask}, {"mask": smaller.mask})
        )
        assert torch.equal(found, alone) and found.shape[1:] == smaller.sides
    with pytest.raises(ArgumentError, match=NO_LEADER):  # a central part has the proportions of the result
        Loader(path, 3, decode={"image": CenterCrop((16, 32)), "mask": CenterCrop(16).mask})
    Loader(path, 3, decode={"image": RandomResizedCrop(16, **numbers), "boxes": RandomResizedCrop(16).boxes})


@pytest.mark.parametrize("workers", [0, 2])
def test_under_torchs_own_loader(path: str, workers: int) -> None:
    """A dataset gives the same as `Loader` for the same samples and seeds."""
    crop = RandomResizedCrop(20)
    some = {"image": crop, "mask": crop.mask, "boxes": crop.boxes}
    dataset = ffrecord.torch.Dataset(path, decode=some, fields=[*some, "id"])
    sampler = ffrecord.torch.Sampler(dataset, seed=5)
    seen = 0
    loader = torch.utils.data.DataLoader(
        dataset,
        4,
        sampler=sampler,
        num_workers=workers,
        collate_fn=list,
        multiprocessing_context="fork" if workers else None,
    )
    for samples, batch in zip(loader, Loader(path, 4, seed=5, decode=some, fields=[*some, "id"]), strict=True):
        for i, sample in enumerate(samples):
            assert sample["id"] == batch["id"][i] and sample["mask"].shape == (20, 20)
            assert all(torch.equal(sample[name], batch[name][i]) for name in some)
            seen += 1
    assert seen == 12

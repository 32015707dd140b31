"""Images, masks and boxes of samples that Python makes: of any type, and anywhere in a sample."""

import io
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_builders import WORKERS_ANYWHERE

from ffrecord.errors import ArgumentError, ArgumentTypeError, FFRecordError, FormatError, UserFunctionError
from ffrecord.torch import Loader
from ffrecord.torch.images import CenterCrop, RandomResizedCrop, Resize

Image = pytest.importorskip("PIL.Image")
pytestmark = WORKERS_ANYWHERE
COUNT = 11
CROP = RandomResizedCrop(24)
Pair = namedtuple("Pair", ["picture", "target"])
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


def picture(i: int) -> Any:
    y, x = np.mgrid[: 40 + i, : 50 - i]
    return Image.fromarray(np.stack([x * 4 % 256, y * 4 % 256, np.full_like(x, 20 * i)], 2).astype(np.uint8))


def mask(i: int) -> Any:
    found = Image.fromarray(np.asarray(picture(i))[:, :, 0] // 64)
    if i % 2:  # a palette: its numbers count, not its colours
        found = found.convert("P")
        found.putpalette(list(range(255, -1, -1)) * 3)
        found.frombytes((np.asarray(picture(i))[:, :, 0] // 64).tobytes())
    return found


def boxes(i: int) -> np.ndarray:
    return np.array([[3, 4, 20 + j, 30] for j in range(i % 4)], np.float32).reshape(-1, 4)


def png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def plain() -> list[Any]:
    return [{"image": png(picture(i)), "mask": png(mask(i)), "boxes": boxes(i), "id": i} for i in range(COUNT)]


def flat(samples: list[Any], **how: Any) -> list[Any]:
    decode = {"image": CROP, "mask": CROP.mask, "boxes": CROP.boxes}
    return list(Loader(samples, 4, seed=3, decode=decode, **how))


def assert_same(batch: Any, other: Any, tolerance: int = 0) -> None:
    """Compare batches. Of files the box is cut out before the filter runs, so at its edges pixels may differ by 1."""
    torch.testing.assert_close(batch["image"], other["image"], rtol=0, atol=tolerance)
    assert torch.equal(batch["mask"], other["mask"])
    assert len(batch["boxes"]) == len(other["boxes"])
    assert all(torch.equal(ours.float(), theirs) for ours, theirs in zip(batch["boxes"], other["boxes"], strict=True))


@pytest.mark.parametrize("how", MAKERS, ids=str)
@pytest.mark.parametrize("kind", ["PIL", "opened", "path", "array", "tensor", "stored", "stored path"])
def test_kinds_of_values(tmp_path, kind, how):
    opened = []

    def value(image: Any, name: str) -> Any:
        (tmp_path / name).write_bytes(png(image))
        path = Path(tmp_path / name)
        array = np.array(image)
        if kind == "opened":
            opened.append(Image.open(path))
            return opened[-1]
        if kind == "stored":  # as Hugging Face does, with a path that says nothing where the bytes are there
            return {"bytes": png(image), "path": "gone.png"}
        if kind == "stored path":
            return {"bytes": None, "path": str(path)}
        return {"PIL": image, "path": path, "array": array, "tensor": torch.from_numpy(array)}[kind]

    found = [
        {
            **each,
            "image": value(picture(i), f"{i}.png"),
            "mask": value(mask(i), f"{i}-mask.png"),
            "boxes": [boxes(i).tolist(), torch.from_numpy(boxes(i))][i % 2],
        }
        for i, each in enumerate(plain())
    ]
    for batch, twin in zip(flat(found, **how), flat(plain()), strict=True):
        assert_same(batch, twin, 0 if "path" in kind or "stored" in kind else 1)
        assert torch.equal(batch["id"], twin["id"])
    for image in opened:
        image.close()


def test_images_that_hugging_face_does_not_decode():
    """They were refused: a dict of 2, expected an image file."""
    datasets = pytest.importorskip("datasets")
    rows = [{"image": {"bytes": each["image"], "path": None}, "id": each["id"]} for each in plain()]
    for decode in (False, True):
        features = datasets.Features({"image": datasets.Image(decode=decode), "id": datasets.Value("int64")})
        found = datasets.Dataset.from_list(rows, features=features)
        batches = list(Loader(found, 4, seed=3, decode={"image": CROP}))
        for batch, twin in zip(batches, flat(plain()), strict=True):
            torch.testing.assert_close(batch["image"], twin["image"], rtol=0, atol=1)
            assert torch.equal(batch["id"], twin["id"])


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"bytes": None, "path": "/gone.png"}, "image: '/gone.png': the file cannot be read: No such file"),
        ({"bytes": b"xy", "path": "a.png"}, "image: 'a.png': "),
        ({"bytes": None, "path": None}, "image: an image without bytes and without a path"),
        ({"data": b"xy"}, "image: a dict of data, expected an image file, an array of pixels, or a dict of bytes"),
    ],
)
def test_stored_images_that_are_none(stored, words):
    with pytest.raises(FormatError, match=f"sample 1: {words}"):
        list(Loader([{"image": png(picture(0))}, {"image": stored}], 2, shuffle=False, decode={"image": CROP}))


@pytest.mark.parametrize("how", MAKERS, ids=str)
@pytest.mark.parametrize("shape", ["tuple", "named", "dicts", "dots"])
def test_columns_inside_of_samples(shape, how):
    def nested(each: Any) -> Any:
        target = {"mask": each["mask"], "boxes": each["boxes"], "id": each["id"]}
        return {
            "tuple": (each["image"], target),
            "named": Pair(each["image"], target),
            "dicts": {"image": each["image"], "target": target},
            "dots": {"a.b": each["image"], "target": target},
        }[shape]

    image, target = {"dicts": ("image", "target"), "dots": ("a.b", "target")}.get(shape, ("[0]", "[1]"))
    decode = {image: CROP, f"{target}.mask": CROP.mask, f"{target}.boxes": CROP.boxes}
    loader = Loader([nested(each) for each in plain()], 4, seed=3, decode=decode, **how)
    for batch, twin in zip(loader, flat(plain()), strict=True):
        assert isinstance(batch, (Pair if shape == "named" else tuple) if "[" in image else dict)
        first, second = batch if "[" in image else batch.values()
        assert_same({"image": first, **second}, twin)
        assert torch.equal(second["id"], twin["id"])


def test_samples_for_functions():
    pairs = [(each["image"], {"boxes": each["boxes"]}) for each in plain()]
    decode = {"[0]": CROP, "[1].boxes": CROP.boxes}
    seen = []

    def collate(samples: list[Any]) -> Any:
        seen.extend(samples)
        return len(samples)

    assert sum(Loader(pairs, 4, "sequential", seed=3, decode=decode, collate_fn=collate, num_threads=0)) == COUNT
    assert all(image.shape == (3, 24, 24) and found["boxes"].shape[1:] == (4,) for image, found in seen)
    assert isinstance(pairs[0][0], bytes)  # ours were not changed


def test_fields_and_columns_inside():
    samples = [{"image": each["image"], "target": {"boxes": each["boxes"]}, "id": each["id"]} for each in plain()]
    decode = {"image": CROP, "target.boxes": CROP.boxes}
    batch = next(iter(Loader(samples, 4, decode=decode, fields=["image", "target"])))
    assert batch.keys() == {"image", "target"} and len(batch["target"]["boxes"]) == 4


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["[0]"], ([0, 1, 2],)),
        (["[1].a"], ({"a": [0, 1, 0]},)),
        (["[1].a", "[0]"], ([0, 1, 2], {"a": [0, 1, 0]})),
        (["[1]", "[1].a"], ({"a": [0, 1, 0], "b": [5, 5, 5]},)),
        (["[2]"], ([7, 7, 7],)),
    ],
)
def test_fields_inside_of_samples(fields, expected):
    samples = [(i, {"a": i % 2, "b": 5}, 7) for i in range(3)]
    (batch,) = Loader(samples, 3, "sequential", fields=fields)
    assert torch.utils._pytree.tree_map(torch.Tensor.tolist, batch) == expected


def test_fields_beside_decoders():
    samples = [(i, {"boxes": each["boxes"]}, each["image"]) for i, each in enumerate(plain())]
    loader = Loader(
        samples, 4, seed=3, fields=["[2]", "[1]"], decode={"[2]": CROP, "[1].boxes": CROP.boxes}, num_threads=0
    )
    for (found, image), twin in zip(loader, flat(plain()), strict=True):
        assert torch.equal(image, twin["image"])
        assert all(map(torch.equal, found["boxes"], twin["boxes"]))
    with pytest.raises(ArgumentError, match=r"decode has '\[1\].boxes', expected some of the columns"):
        Loader(samples, 4, fields=["[2]"], decode={"[2]": CROP, "[1].boxes": CROP.boxes})


def test_classes_inside_of_samples():
    samples = [(i, int(i > 0)) for i in range(100)]
    drawn = torch.cat([labels for _, labels in Loader(samples, 10, class_balanced="[1]", seed=0)])
    assert 30 < drawn.sum() < 70


def test_exif_of_pil_images():
    image = picture(3)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    opened = Image.open(io.BytesIO(file.getvalue()))
    for exif_too in (False, True):
        decode = {"image": Resize(20, exif=exif_too)}
        ((ours,), (twin,)) = (list(Loader([{"image": each}], decode=decode)) for each in (opened, file.getvalue()))
        torch.testing.assert_close(ours["image"], twin["image"], rtol=0, atol=1)


def test_transparency_stays_with_the_image():
    image = mask(1)
    image.info["transparency"] = 0
    list(Loader([{"image": image}], decode={"image": Resize(8)}))
    assert image.info["transparency"] == 0


def test_hugging_face():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "id": datasets.Value("int64")})
    rows = {"image": [picture(i) for i in range(COUNT)], "id": list(range(COUNT))}
    loader = Loader(datasets.Dataset.from_dict(rows, features=features), 4, seed=3, decode={"image": CROP})
    for batch, twin in zip(loader, flat(plain()), strict=True):
        torch.testing.assert_close(batch["image"], twin["image"], rtol=0, atol=1)
        assert torch.equal(batch["id"], twin["id"])


@pytest.mark.parametrize(
    ("samples", "decode", "message"),
    [
        (
            [{"image": "a.png"}],
            {"image": CROP},
            "image: str 'a.png', expected an image file.*pass a path as pathlib.Path",
        ),
        (
            [{"image": Path("gone.png")}],
            {"image": CROP},
            "image: 'gone.png': the file cannot be read: No such file or directory$",
        ),
        ([{"image": torch.zeros(3, 4, 4)}], {"image": CROP}, r"image: a float32 array \[3, 4, 4\], expected pixels"),
        ([{"image": [[1]]}], {"image": CROP}, "image: a list of 1, expected"),
        (
            [(b"", {"boxes": 1})],
            {"[0]": CROP, "[2]": CROP.mask},
            r"no column '\[2\]' .* of list, which has \[0\], \[1\].b",
        ),
        ([{"a": {"b": 1}}], {"a.c": CROP}, "no column 'a.c' in a sample of list, which has a.b"),
        ([7], {"image": CROP}, "no column 'image' in a sample of list, which has none: it is int 7"),
        (
            [{"image": picture(1), "mask": picture(1)}],
            {"image": CROP, "mask": CROP.mask},
            "mask: the image has mode RGB",
        ),
        (
            [{"image": picture(1), "boxes": [[1, 2], [3]]}],
            {"image": CROP, "boxes": CROP.boxes},
            "boxes: list, expected boxes",
        ),
    ],
)
def test_values_that_are_none(samples, decode, message):
    with pytest.raises(FormatError, match=message):
        list(Loader(samples, decode=decode))
    with pytest.raises(FFRecordError, match="all samples of epoch 0 were left out"):
        list(Loader(samples, decode=decode, on_error="skip"))


def test_cut_short():
    file = png(Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), np.uint8)))
    cut = Image.open(io.BytesIO(file[: len(file) // 2]))
    samples = [{"image": picture(0)}, {"image": cut}]
    with pytest.raises(FormatError, match="Sample 1: list: sample 1: image: Pillow cannot read this PngImageFile"):
        list(Loader(samples, 2, "sequential", decode={"image": CROP}))
    (batch,) = Loader(samples, 2, "sequential", decode={"image": CROP}, on_error="skip")
    assert batch["image"].shape == (1, 3, 24, 24)


@pytest.mark.parametrize(("data", "why"), [(b"no", "2 bytes that begin"), (b"\xff\xd8\xff", ".*JPEG of 3 bytes")])
@pytest.mark.parametrize("column", ["image", "mask"])
def test_bad_files_are_named(tmp_path, column, data, why):
    (tmp_path / "good.png").write_bytes(png(mask(0)))
    (tmp_path / "bad.png").write_bytes(data)
    samples = [{"image": tmp_path / "good.png", "mask": tmp_path / "good.png"} for _ in range(3)]
    samples[1][column] = tmp_path / "bad.png"
    with pytest.raises(FormatError, match=rf"Sample 1: .*{column}: '{tmp_path}/bad.png': {why}"):
        list(Loader(samples, 3, "sequential", decode={"image": CROP, "mask": CROP.mask}))


def test_boxes_of_lists_have_one_dtype():
    for lists in ([[], [[1, 2, 3, 4]]], [[[1, 2, 3, 4]], []], [[[1.5, 2, 3, 4]], [[1, 2, 3, 4]]]):
        samples = [{"image": picture(0), "boxes": each} for each in lists]
        (batch,) = Loader(samples, 2, "sequential", decode={"image": CROP, "boxes": CROP.boxes})
        assert {each.dtype for each in batch["boxes"]} == {torch.float32}


def test_lists_of_different_lengths():
    samples = [{"images": [picture(0)] * (1 + i)} for i in range(2)]
    with pytest.raises(UserFunctionError, match=r"sample 1: it has 2 items where a decoded column is.* batch 1"):
        list(Loader(samples, 2, "sequential", decode={"images[0]": CenterCrop(8)}))


def test_names_of_columns():
    with pytest.raises(ArgumentTypeError, match=r"decode has 0, expected names of columns, such as 'image' or '\[0\]'"):
        Loader([(picture(0), 1)], decode={0: CROP})

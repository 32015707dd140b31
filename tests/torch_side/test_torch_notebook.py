"""Datasets and batches of torch in notebooks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from images_builders import jpeg, picture
from torch_builders import Ints, NewStyle

import ffrecord
from ffrecord.fields import IntField, JPEGField
from ffrecord.torch import Dataset, Padded, show
from ffrecord.torch.images import RandomResizedCrop

CROP = RandomResizedCrop(32)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [{"image": jpeg(picture(60, 80, i)), "id": i} for i in range(6)]
    path = tmp_path_factory.mktemp("notebook") / "photos"
    fields = {"image": JPEGField(), "id": IntField()}
    ffrecord.DatasetWriter(path, fields, num_workers=0).from_indexed_dataset(samples)
    return path


def test_what_the_dataset_gives_is_shown(photos: Path):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP})
    state = torch.get_rng_state()
    text = dataset._repr_html_()
    assert text.count("<img ") == 3 and "RandomResizedCrop(" in text and "IntField()" in text
    assert dataset.reader.stats().records == 3
    assert text == dataset._repr_html_() and torch.equal(torch.get_rng_state(), state)
    assert dataset[:2]._repr_html_().count("<img ") == 2
    assert (dataset + dataset)._repr_html_().count("<img ") == 3


def test_floats_are_pictures(photos: Path):
    def transform(sample: dict[str, Any]) -> Any:
        return sample["image"] / 255 - torch.rand(()), sample["id"]

    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP}, transform=transform)
    state = torch.get_rng_state()
    text = dataset._repr_html_()
    assert text.count("<img ") == 3 and "float32 [3, 32, 32]" in text
    assert torch.equal(torch.get_rng_state(), state)


def test_fields(photos: Path):
    text = Dataset(photos, fields=["id"])._repr_html_()
    assert "IntField()" in text and "JPEGField" not in text


def test_subclasses(path: str, values: list[int]):
    for dataset in (Ints(path), NewStyle(path)):
        text = dataset._repr_html_()
        assert type(dataset).__name__ in text and str(values[-1]) in text


def test_nothing_is_raised(path: str):
    class Broken(Dataset[Any]):
        def __init__(self) -> None:
            pass

        def __len__(self) -> int:
            raise RuntimeError("no length")

    assert "Broken" in Broken()._repr_html_()
    assert "NotImplementedError" in Dataset(path)._repr_html_()
    skipping: Dataset[Any] = Dataset(path, transform=lambda data: 1 // 0, on_error="skip")
    assert skipping._repr_html_().count("transform failed on sample") == 3


def test_batches():
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    batch = {
        "image": torch.rand(5, 3, 20, 20),
        "half": torch.zeros(5, 2, dtype=torch.bfloat16),
        "words": Padded(torch.zeros(5, 4), torch.arange(5)),
        "nested": nested,
    }
    text = show(batch)._repr_html_()
    assert text.count("<img ") == 4 and "float32 [5, 3, 20, 20]" in text and "bfloat16 [5, 2]" in text
    assert show([batch["image"], torch.arange(5)])._repr_html_().count("<img ") == 4
    assert show(batch["image"])._repr_html_()

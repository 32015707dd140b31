"""JPEG columns as tensors of one size."""

import numpy as np
import pytest
import torch
from loader_builders import damage
from torch_builders import WORKERS_ANYWHERE

from ffrecord import FileWriter
from ffrecord.fields import IntField, JPEGField, Schema
from ffrecord.format.extension import Extension
from ffrecord.order import sample_seeds
from ffrecord.torch import Dataset, Loader
from ffrecord.torch.images import CenterCrop, RandomResizedCrop

pytestmark = WORKERS_ANYWHERE
COUNT = 12
BAD = 5
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


def picture(i):
    """Of a size of its own, with something to see in it."""
    y, x = np.mgrid[: 40 + i, : 50 - i]
    return np.stack([x * 4 % 256, y * 4 % 256, np.full_like(x, 20 * i)], 2).astype(np.uint8)


def write(path, spoil=None):
    schema = Schema.of({"image": JPEGField(), "id": IntField()})
    with FileWriter(path, extension=Extension(schema=schema.to_builtins())) as writer:
        for i in range(COUNT):
            record = schema.encode({"image": picture(i), "id": i})
            writer.write_one(spoil(record) if spoil and i == BAD else record)
    return str(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "photos.ffr")


@pytest.mark.parametrize("how", MAKERS)
def test_decoded_as_by_the_decoder_alone(path, how):
    decoder = RandomResizedCrop(16)
    jpegs = Dataset(path).reader.read(range(COUNT))
    schema = Schema.of({"image": JPEGField(as_bytes=True), "id": IntField()})
    loader = Loader(path, 4, seed=3, epoch=1, decode={"image": decoder}, **how)
    position = 0
    for batch in loader:
        assert batch["image"].shape == (4, 3, 16, 16) and batch["image"].dtype == torch.uint8
        expected = decoder.allocate(4)
        rows = decoder.rows(expected)
        for row, index, seed in zip(
            rows, batch["id"], sample_seeds(3, 1, np.arange(position, position + 4)), strict=True
        ):
            decoder.decode_into(memoryview(schema.decode(jpegs[index])["image"]), row, int(seed))
        assert torch.equal(batch["image"], expected)
        position += 4


def test_the_same_on_any_ranks(path):
    def made(**how):
        batches = Loader(path, 2, seed=3, decode={"image": RandomResizedCrop(16)}, **how)
        return {int(i): image for batch in batches for i, image in zip(batch["id"], batch["image"], strict=True)}

    whole, parts = made(), made(rank=0, world_size=2) | made(rank=1, world_size=2)
    assert whole.keys() == parts.keys() == set(range(COUNT))
    assert all(torch.equal(whole[i], parts[i]) for i in whole)


def test_transform_gets_what_was_decoded(path):
    def transform(sample):
        assert sample["image"].shape == (3, 16, 16)
        return sample["image"].float().mean((1, 2)), sample["id"]

    loader = Loader(path, 4, "sequential", decode={"image": CenterCrop(16)}, transform=transform)
    means = torch.cat([batch[0] for batch in loader])
    assert means.shape == (COUNT, 3) and (means[:, 2] - 20 * torch.arange(COUNT)).abs().max() < 8


def test_without_decoder_they_vary_in_size(path):
    batch = next(iter(Loader(path, 3, "sequential")))
    assert [image.shape for image in batch["image"]] == [picture(i).shape for i in range(3)]


@pytest.mark.parametrize("how", MAKERS)
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_broken_picture(tmp_path, how, on_error):
    path = write(tmp_path / "photos.ffr", lambda record: record[:60] + bytes(len(record) - 60))
    loader = Loader(path, 4, "sequential", decode={"image": CenterCrop(16)}, on_error=on_error, **how)
    if on_error == "raise":
        with pytest.raises(RuntimeError, match=rf"Sample {BAD}: .*photos.ffr: sample {BAD}: image \(JPEGField\): "):
            list(loader)
        return
    found = [batch["id"].tolist() for batch in loader]
    assert found[1][:2] == [4, 6] if on_error == "skip" else found[1][0] == 4 and found[1][1] != BAD
    assert loader.stats().skipped == 1


def test_damaged_picture(tmp_path):
    path = write(tmp_path / "photos.ffr")
    damage(path, BAD)
    loader = Loader(path, 4, "sequential", decode={"image": CenterCrop(16)}, on_error="skip")
    assert [len(batch["image"]) for batch in loader] == [4, 3, 4]


@pytest.mark.parametrize(
    ("decoder", "words"),
    [(3, r"expected one of ffrecord\.torch\.images"), (CenterCrop, r"expected a decoder: CenterCrop\(size\)")],
)
def test_no_decoder(path, decoder, words):
    with pytest.raises(TypeError, match=f"decode: image is .* {words}"):
        Loader(path, decode={"image": decoder})

"""What users of other systems do with several parts of this package at once; docs/peers.md leads here."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ffrecord
from ffrecord import order
from ffrecord.fields import IntField, JPEGField
from ffrecord.sources import FixedFeature, TFRecordReader, TFRecordWriter, encode_example

torch = pytest.importorskip("torch")

from ffrecord.torch import Loader  # noqa: E402  (needs torch)
from ffrecord.torch.images import RandomResizedCrop  # noqa: E402

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"
ORDERS = ["random", order.Block(block_size=4, window=2, lanes=2), "sequential"]
OF_THE_ORIGINALS = {
    "a_snappy.recordio": {},
    "examples.tfrecord": {"features": "infer"},
    "mds": {},
    "mixed.beton": {"decode": True},
    "torchrecord_lmdb": {},
}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """20 samples of two pictures of different sizes and a label."""
    path = tmp_path_factory.mktemp("peers") / "photographs"
    samples = [
        {
            "left": np.full((40, 60, 3), 10 * i, np.uint8),
            "right": np.full((90, 30, 3), 255 - 10 * i, np.uint8),
            "label": i % 3,
        }
        for i in range(20)
    ]
    fields = {"left": JPEGField(), "right": JPEGField(), "label": IntField()}
    ffrecord.DatasetWriter(path, fields, num_workers=0).from_indexed_dataset(samples)
    return path


@pytest.mark.parametrize("how", ORDERS, ids=str)
@pytest.mark.parametrize("name", OF_THE_ORIGINALS)
def test_files_of_the_originals_are_trained_from_as_they_are(name, how):
    """Two ranks see every sample exactly once, in any order; one that stopped goes on."""
    with ffrecord.open(SEEDS / name, **OF_THE_ORIGINALS[name]) as store:
        seen, states = [], []
        for rank in range(2):
            loader = Loader(store, 3, how, seed=3, rank=rank, world_size=2, policy="uneven")
            for _ in loader:
                seen += loader.batch_indices.tolist()
                states.append(loader.state_dict())
        assert sorted(seen) == list(range(len(store)))

        rest = Loader(store, 100, how, policy="uneven")
        rest.load_state_dict(json.loads(json.dumps(states[0])))  # of rank 0, when each had given one batch
        ((batch, indices),) = [(batch, rest.batch_indices) for batch in rest]
        first = order.Cursor(order.identity_of(store), order=how, seed=3, batch_size=6)
        assert sorted({*indices.tolist(), *next(first.steps()).indices.tolist()}) == list(range(len(store)))
        expected = store.samples(indices)
        for column in [name for name, value in expected[0].items() if isinstance(value, int)]:
            assert batch[column].tolist() == [sample[column] for sample in expected]


def test_samples_that_meet_a_condition(photographs):
    """FFCV's filter: over some samples only, and what `batch_indices` says is their number in the whole dataset."""
    some = np.arange(1, 20, 2)
    loader = Loader(photographs, 4, "sequential", fields=["label"], indices=some)
    labels = torch.cat([batch["label"] for batch in loader]).numpy()
    chosen = some[labels == 2]
    assert chosen.tolist() == [5, 11, 17]
    loader = Loader(photographs, 2, fields=["label"], indices=chosen)
    found = [(loader.batch_indices.tolist(), batch["label"].tolist()) for batch in loader]
    assert sorted(index for indices, _ in found for index in indices) == [5, 11, 17]
    assert {label for _, labels in found for label in labels} == {2}


def test_one_decoder_for_two_columns(photographs):
    """Pictures of different sizes; the last batch is smaller."""
    crop = RandomResizedCrop((16, 24))
    batches = list(Loader(photographs, 8, "sequential", decode={"left": crop, "right": crop}))
    assert [tuple(batch[side].shape) for batch in batches for side in ("left", "right")] == [
        (k, 3, 16, 24) for k in (8, 8, 8, 8, 4, 4)
    ]
    left, right = (torch.cat([batch[side] for batch in batches]).int() for side in ("left", "right"))
    for i in range(20):
        assert abs(left[i] - 10 * i).max() <= 2 and abs(right[i] - (255 - 10 * i)).max() <= 2


@pytest.mark.parametrize("how", ORDERS, ids=str)
def test_the_order_does_not_depend_on_the_batch_size(photographs, how):
    """FFCV's quasi-random order shuffles nothing with batches of 1."""
    found = []
    for batch_size in (1, 7):
        loader = Loader(photographs, batch_size, how, seed=5, fields=["label"])
        found.append([index for _ in loader for index in loader.batch_indices.tolist()])
    assert found[0] == found[1]
    assert (found[0] == list(range(20))) == (how == "sequential")


def mixed_up(batch, seeds):
    """Each sample with its neighbour, in shares that its seed decides."""
    share = torch.from_numpy((seeds >> np.uint64(11)) * 2.0**-53).float().reshape(-1, 1, 1, 1)
    images = batch["left"].float()
    return {
        "image": share * images + (1 - share) * images.roll(1, 0),
        "share": share.flatten(),
        "label": batch["label"],
    }


def test_mixup_in_five_lines(photographs):
    options = {"batch_size": 8, "seed": 1, "decode": {"left": RandomResizedCrop(8)}, "fields": ["left", "label"]}
    plain = list(Loader(photographs, **options))
    found = list(Loader(photographs, batch_transform=mixed_up, **options))
    alone = list(Loader(photographs, batch_transform=mixed_up, num_threads=0, **options))
    assert len({share for batch in found for share in batch["share"].tolist()}) == 20
    for batch, again, images in zip(found, alone, plain, strict=True):
        assert torch.equal(batch["image"], again["image"]) and torch.equal(batch["label"], images["label"])
        images = images["left"].float()
        assert torch.allclose(batch["image"][2], torch.lerp(images[1], images[2], batch["share"][2]))


def test_parsed_records_in_random_order(tmp_path):
    """DareBlopy's parsed iterator: a shuffle by (seed, epoch) over several files, one of them compressed."""
    for number, compression in enumerate([None, "gzip"]):
        with TFRecordWriter(tmp_path / f"{number}.tfrecord", compression) as writer:
            for i in range(10 * number, 10 * number + 10):
                writer.write(encode_example({"image": bytes([i]) * 12, "label": i}))
    features = {"image": FixedFeature("uint8", (2, 2, 3)), "label": FixedFeature("int64")}
    with TFRecordReader(sorted(tmp_path.glob("*.tfrecord")), features=features) as reader:
        epochs = []
        for epoch in (0, 1, 0):
            batches = list(Loader(reader, 8, seed=2, epoch=epoch))
            assert [tuple(batch["image"].shape) for batch in batches] == [(8, 2, 2, 3), (8, 2, 2, 3), (4, 2, 2, 3)]
            labels = torch.cat([batch["label"] for batch in batches])
            assert torch.equal(torch.cat([batch["image"] for batch in batches])[:, 0, 0, 0].long(), labels)
            epochs.append(labels.tolist())
    assert epochs[0] == epochs[2] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))


def test_pictures_of_an_archive_become_batches(tmp_path):
    """Straight from the members of a zip archive."""
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for i in range(10):
            archive.writestr(f"{i}.jpg", JPEGField().encode(np.full((20 + i, 40 - i, 3), 20 * i, np.uint8)))
    with ffrecord.open(tmp_path / "pictures.zip") as store:
        loader = Loader(store, 4, "sequential", decode={"data": RandomResizedCrop(16)})
        batches = list(loader)
    assert [len(batch["key"]) for batch in batches] == [4, 4, 2]
    pictures = torch.cat([batch["data"] for batch in batches]).int()
    assert all(abs(pictures[i] - 20 * i).max() <= 2 for i in range(10))

"""Columns that `fields=` leaves out are not decoded, and an error names the file, the sample and the column."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beton_twin import beton
from mds_twin import write_mds
from torch.utils import data as torch_data

import ffrecord
from ffrecord import FormatError
from ffrecord.errors import UserFunctionError
from ffrecord.sources import FixedFeature, TFRecordWriter, WebDatasetReader, encode_example
from ffrecord.torch import DataLoader, Dataset, Loader
from ffrecord.torch.images import CenterCrop

PIL = pytest.importorskip("PIL.Image")
COUNT, BAD = 6, 3
JUNK = b"\xff\xd8\xff junk"


def picture(i: int) -> bytes:
    out = io.BytesIO()
    PIL.fromarray(np.full((8, 8, 3), 20 * i, np.uint8)).save(out, "JPEG")
    return out.getvalue()


def image(i: int) -> bytes:
    return JUNK if i == BAD else picture(i)


def tar(path: Path, names: Callable[[int], dict[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for i in range(COUNT):
            for name, content in names(i).items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def webdataset(path: Path) -> Any:
    made = tar(path / "a.tar", lambda i: {f"{i:03}.jpg": image(i), f"{i:03}.label.cls": b"%d" % i})
    return ffrecord.open(made, "webdataset", decode=True)


def parted_webdataset(path: Path) -> Any:
    """A directory lies between the members of each sample, so these are read in pieces."""

    def names(i: int) -> dict[str, bytes]:
        return {f"{i:03}.jpg": image(i), f"{i}": b"no sample", f"{i:03}.label.cls": b"%d" % i}

    return ffrecord.open(tar(path / "a.tar", names), "webdataset", decode=True)


def mds(path: Path) -> Any:
    samples = [{"jpg": image(i), "label.cls": i} for i in range(COUNT)]
    return ffrecord.open(write_mds(path / "a", {"jpg": "jpeg", "label.cls": "int"}, samples), decode=True)


def packed_mds(path: Path) -> Any:
    samples = [{"jpg": image(i), "label.cls": i} for i in range(COUNT)]
    made = write_mds(path / "a", {"jpg": "jpeg", "label.cls": "int"}, samples, compression="zstd")
    return ffrecord.open(made, decode=True)


def beton_file(path: Path) -> Any:
    samples = [{"jpg": (image(i), 8, 8), "label.cls": i} for i in range(COUNT)]
    (path / "a.beton").write_bytes(beton({"jpg": "image", "label.cls": "int"}, samples))
    return ffrecord.open(path / "a.beton", decode=True)


def tfrecord(path: Path) -> Any:
    with TFRecordWriter(path / "a.tfrecord") as writer:
        for i in range(COUNT):
            writer.write(encode_example({"jpg": [0.5] if i == BAD else [b"x"], "label.cls": i}))
    features = {"jpg": FixedFeature("string", ()), "label.cls": FixedFeature("int64", ())}
    return ffrecord.open(path / "a.tfrecord", features=features)


SOURCES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "webdataset": (webdataset, r"Sample 3: .*a\.tar: sample 3, '003' at offset \d+: field 'jpg'"),
    "webdataset in pieces": (parted_webdataset, r"Sample 3: .*a\.tar: sample 3, '003' at offset \d+: field 'jpg'"),
    "mds": (mds, r"Sample 3: .*shard\.00001\.mds: sample 0: column 'jpg'"),
    "packed mds": (packed_mds, r"Sample 3: .*shard\.00001\.mds\.zstd: sample 0: column 'jpg'"),
    "beton": (beton_file, r"Sample 3: .*a\.beton: .*'jpg'"),
    "tfrecord": (tfrecord, r"Sample 3: .*a\.tfrecord: record 3: feature 'jpg'"),
}
every_source = pytest.mark.parametrize("name", SOURCES)


@every_source
def test_columns_that_fields_leaves_out_are_not_decoded(tmp_path, name):
    with SOURCES[name][0](tmp_path) as store:
        dataset = Dataset(store, fields=["label.cls"])
        batches = [
            *Loader(store, COUNT, "sequential", fields=["label.cls"]),
            *Loader(dataset, COUNT, "sequential", num_workers=1),
            *Loader(Dataset(store), COUNT, "sequential", fields=["label.cls"], on_error="skip"),
            *torch_data.DataLoader(dataset, COUNT),
            *DataLoader(dataset, COUNT, num_workers=1),
        ]
        assert [batch["label.cls"].tolist() for batch in batches] == [list(range(COUNT))] * 5
        assert dataset[BAD] == {"label.cls": BAD} and [list(batch) for batch in batches] == [["label.cls"]] * 5
        assert len(Loader(store, 2, class_balanced="label.cls", fields=["label.cls"])) == COUNT // 2
        with pytest.raises(FormatError, match=r"no column 'other' in a sample of .*, only .*jpg, label.cls"):
            next(iter(Loader(store, COUNT, fields=["other"])))


@every_source
def test_an_error_in_a_batch_names_file_sample_and_column_once(tmp_path, name):
    make, message = SOURCES[name]
    with make(tmp_path) as store:
        failed = []
        for call in (
            lambda: list(Loader(store, 4, "sequential")),
            lambda: list(Loader(store, 4, "sequential", fields=["jpg"], num_workers=1)),
            lambda: Dataset(store, fields=["jpg"])[[2, BAD]],
            lambda: Dataset(store, fields=["jpg"])[BAD],
        ):
            with pytest.raises(FormatError, match=message) as caught:
                call()
            failed.append(str(caught.value))
        assert max(text.count(store.locate(BAD)[0]) for text in failed) == 1
        left = [i for batch in Loader(store, 4, "sequential", on_error="skip") for i in batch["label.cls"].tolist()]
        assert left == [i for i in range(COUNT) if i != BAD]


class Doubled(WebDatasetReader):
    """Its samples are those of its own method, also for a loader that wants some columns."""

    def _decode(self, positions, records):
        return [{"twice": 2 * sample["cls"], **sample} for sample in super()._decode(positions, records)]


def test_a_subclass_that_decodes_itself(tmp_path):
    tar(tmp_path / "a.tar", lambda i: {f"{i}.cls": b"%d" % i})
    with Doubled(tmp_path / "a.tar", decode=True) as store:
        (batch,) = Loader(store, COUNT, "sequential", fields=["twice"])
    assert {name: values.tolist() for name, values in batch.items()} == {"twice": [2 * i for i in range(COUNT)]}


def test_samples_of_other_columns_are_named(tmp_path):
    tar(tmp_path / "a.tar", lambda i: {f"{i}.cls": b"1", f"{i}.{'txt' if i == BAD else 'text'}": b"x"})
    with ffrecord.open(tmp_path / "a.tar", "webdataset", decode=True) as store:
        expected = r"webdataset do not make a batch: sample 3 \(.*a\.tar: sample '3'\): it lacks column 'text', which"
        for how in ({}, {"num_workers": 1}):
            with pytest.raises(FormatError, match=expected):
                list(Loader(store, 4, "sequential", **how))
        (batch,) = Loader(store, COUNT, "sequential", fields=["cls"])
        assert batch["cls"].tolist() == [1] * COUNT


def zip_of(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(COUNT):
            archive.writestr(f"{i}.jpg", image(i))
    return path


@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_a_bad_picture_of_an_archive_is_named(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    made = zip_of(path) if suffix == "zip" else tar(path, lambda i: {f"{i}.jpg": image(i)})
    crop = {"data": CenterCrop(8)}
    with ffrecord.open(made) as store:
        for call in (
            lambda: list(Loader(store, 4, "sequential", decode=crop)),
            lambda: Dataset(store, decode=crop)[[BAD]],
            lambda: list(torch_data.DataLoader(Dataset(store, decode=crop), 4)),
        ):
            with pytest.raises(FormatError, match=rf"^Sample 3: .*a\.{suffix}: member '3\.jpg': data: "):
                call()


@pytest.mark.parametrize("format", [None, "torch"])
def test_columns_of_hugging_face_that_are_left_out_are_not_decoded(tmp_path, format):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"jpg": datasets.Image(), "label": {"id": datasets.Value("int64")}})
    rows = {
        "jpg": [{"bytes": image(i), "path": None} for i in range(COUNT)],
        "label": [{"id": i} for i in range(COUNT)],
    }
    dataset = datasets.Dataset.from_dict(rows, features=features).with_format(format)
    for source in (dataset, torch_data.Subset(dataset, range(COUNT))):
        for how in ({}, {"num_workers": 1}):
            (batch,) = Loader(source, COUNT, "sequential", fields=["label.id"], **how)
            assert batch["label"]["id"].tolist() == list(range(COUNT))
    for fields in (None, ["jpg"], ["jpg", "label"]):
        with pytest.raises(UserFunctionError, match="dataset Dataset failed on "):
            list(Loader(dataset, COUNT, "sequential", fields=fields))
    with pytest.raises(UserFunctionError, match="dataset Dataset failed on "):  # its transform gets all columns
        list(Loader(dataset.with_transform(lambda batch: batch), COUNT, fields=["label"]))

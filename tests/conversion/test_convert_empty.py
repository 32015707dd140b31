"""No samples make a dataset of none, whatever they are said to be in."""

import gzip
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beton_twin import beton
from lmdb_builders import library
from mds_twin import zstd

import ffrecord
from ffrecord import FileReader, convert, export
from ffrecord.errors import ArgumentError, name_files
from ffrecord.fields import IntField, JSONField, schema_of


def nothing() -> Iterator[Any]:
    yield from ()


def zip_file(path: Path) -> Path:
    zipfile.ZipFile(path, "w").close()
    return path


def tar_file(path: Path) -> Path:
    tarfile.open(path, "w").close()
    return path


def folders_in_a_tar(path: Path) -> Path:
    """A tar.gz in which no member is a file."""
    with tarfile.open(path, "w:gz") as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return path


def mds(path: Path) -> Path:
    path.mkdir()
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": []}))
    return path


def lmdb_environment(path: Path) -> Path:
    library().open(str(path)).close()
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def classes(path: Path) -> Path:
    (path / "cat").mkdir(parents=True)
    return path


def parquet(path: Path, columns: Any) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), path)
    return path


def typed(path: Path) -> Path:
    ffrecord.DatasetWriter(path, {"x": IntField()}, num_workers=0).from_indexed_dataset([])
    return path


ZEROS = bytes(10_240)
SOURCES: dict[str, tuple[Callable[[Path], Any], str | None]] = {
    "zip": (lambda path: zip_file(path / "a.zip"), None),
    "tar": (lambda path: tar_file(path / "a.tar"), None),
    "webdataset": (lambda path: tar_file(path / "a.tar"), "webdataset"),
    "tar.gz": (lambda path: written(path / "a.tar.gz", gzip.compress(ZEROS)), None),
    "webdataset.gz": (lambda path: written(path / "a.tar.gz", gzip.compress(ZEROS)), "webdataset"),
    "tar.xz": (lambda path: written(path / "a.tar.xz", lzma.compress(ZEROS)), None),
    "tar.zst": (lambda path: written(path / "a.tar.zst", zstd(ZEROS)), None),
    "folders in a tar": (lambda path: folders_in_a_tar(path / "a.tgz"), None),
    "tfrecord": (lambda path: written(path / "a.tfrecord", b""), None),
    "tfrecord.gz": (lambda path: written(path / "a.tfrecord.gz", gzip.compress(b"")), None),
    "recordio": (lambda path: written(path / "a.recordio", b""), None),
    "beton": (lambda path: written(path / "a.beton", beton({"x": "int"}, [])), None),
    "lmdb": (lambda path: lmdb_environment(path / "a"), None),
    "torchrecord": (lambda path: lmdb_environment(path / "a"), "torchrecord"),
    "mds": (lambda path: mds(path / "a"), None),
    "mds, by name": (lambda path: mds(path / "a"), "mds"),
    "image folder": (lambda path: classes(path / "a"), "image folder"),
    "path list": (lambda path: written(path / "a.txt", b""), "path list"),
    "parquet": (lambda path: parquet(path / "a.parquet", {"x": np.zeros(0)}), None),
    "parquet of no columns": (lambda path: parquet(path / "a.parquet", {}), None),
    "ffrecord": (lambda path: typed(path / "a"), None),
    "list": (lambda path: [], None),
    "iterator": (lambda path: nothing(), None),
    "array": (lambda path: np.zeros((0, 3)), None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_no_samples(tmp_path, name):
    make, format = SOURCES[name]
    source = make(tmp_path)
    once = name == "iterator"
    summary = convert(source, tmp_path / "out", format=format, num_workers=0, verify=not once)
    with FileReader(tmp_path / "out") as reader:
        assert summary.samples == len(reader) == 0
    assert convert(tmp_path / "out", tmp_path / "again", num_workers=0).samples == 0
    assert export(tmp_path / "out", tmp_path / "out.tfrecord", verify=True).samples == 0


@pytest.mark.parametrize("name", ["tar.gz", "zip"])
def test_columns_that_are_declared(tmp_path, name):
    source = SOURCES[name][0](tmp_path)
    convert(source, tmp_path / "out", fields={"key": JSONField(), "data": JSONField()}, num_workers=0)
    with FileReader(tmp_path / "out") as reader:
        assert schema_of(reader).fields == {"key": JSONField(), "data": JSONField()}


@pytest.mark.parametrize("format", ["zip", "tfrecord", "parquet"])
def test_a_directory_without_such_files(tmp_path, format):
    (tmp_path / "a").mkdir()
    with pytest.raises(ArgumentError, match=r"a: no file in this directory ends in \."):
        convert(tmp_path / "a", tmp_path / "out", format=format)


PACKED = ("tar.gz", "webdataset.gz", "tar.xz", "tar.zst", "folders in a tar")  # they are read in order only
OTHERS = ("parquet", "parquet of no columns", "list", "iterator", "array")
STORES = [name for name in SOURCES if name not in (*PACKED, *OTHERS)]


@pytest.mark.parametrize("name", STORES)
def test_no_samples_to_train_on(tmp_path, caplog, name):
    """One error for all formats, which names the file; of loaders that follow torch's, an empty epoch and a line."""
    pytest.importorskip("torch")
    from torch.utils import data

    from ffrecord import torch as ours

    make, format = SOURCES[name]
    store: Any = ffrecord.open(make(tmp_path), format)
    file = store.fnames[0]
    dataset = ours.Dataset(store, transform=lambda sample: sample)
    whole = f"{re.escape(file)} has 0 samples, expected at least 1"
    inside = f"dataset is of type .* and has 0 samples of {re.escape(file)}( …)?, expected at least 1"
    cases: list[tuple[str, Callable[[], Any]]] = [
        (whole, lambda: ours.Loader(store)),
        (whole, lambda: ours.Loader(store, weights=[])),
        (whole, lambda: ours.Loader(store, sampler=[])),
        (whole, lambda: ours.Loader(store, indices=[])),
        (whole, lambda: ours.Loader(data.Subset(ours.Dataset(store), []))),
        (whole, lambda: ours.Sampler(dataset)),
        (whole, lambda: ours.BatchSampler(store, 2)),
        (whole, lambda: ours.IterableDataset(dataset)),
        (whole, lambda: ours.DataLoader(dataset, shuffle=True)),
        (f"a subset of {whole}", lambda: ours.Sampler(dataset[:0])),
        (inside, lambda: ours.Loader(dataset)),
        (inside, lambda: ours.Loader(data.ConcatDataset([dataset, dataset]))),
        (inside, lambda: ours.Loader(data.Subset(data.StackDataset(one=dataset), []))),
    ]
    if format is None:
        cases.append((whole, lambda: ours.Loader(file if name != "mds" else Path(file).parent)))
    for expected, call in cases:
        with pytest.raises(ArgumentError, match=f"^{expected}$"):
            call()
    told = {message for message in caplog.messages if not message.startswith("Dataset: ")}
    assert f"Dataset: {name_files(store.fnames)} has 0 samples" in caplog.messages
    assert not told or name == "image folder"
    assert list(ours.DataLoader(dataset, 2)) == []
    assert re.search(f"DataLoader: {whole}", caplog.text)

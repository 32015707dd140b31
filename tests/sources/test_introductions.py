"""The first lines of code on each page about a format do what they say, with the files that they name."""

import io
import tarfile
import zipfile
from pathlib import Path

import lmdb_builders
import numpy as np
import pytest
from beton_twin import beton
from documents import ROOT, blocks
from mds_twin import write_mds
from PIL import Image

import ffrecord
from ffrecord.sources import BetonReader, RecordIOReader, RecordIOWriter, TFRecordWriter, encode_example
from ffrecord.sources.lmdb.reader import LMDBReader
from ffrecord.sources.mds.reader import MDSReader
from ffrecord.sources.tfrecord.reader import TFRecordReader

TEXTS = [b"record %d" % i for i in range(12)]
NAMED = {f"sample{i:03d}.txt": text for i, text in enumerate(TEXTS)}
EXAMPLES = [encode_example({"label": [i], "image": [text]}) for i, text in enumerate(TEXTS)]
SAMPLES = [{"image": bytes([i]) * 20, "label": i, "text": f"sentence {i}"} for i in range(12)]


def zip_archive(path: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in NAMED.items():
            archive.writestr(name, text)


def tar_archive(path: str) -> None:
    with tarfile.open(path, "w") as archive:
        for name, text in NAMED.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))


def make_zip() -> None:
    zip_archive("train.zip")


def make_pictures() -> None:
    with zipfile.ZipFile("pictures.zip", "w") as archive:
        for i in range(8):
            data = io.BytesIO()
            Image.new("RGB", (16, 16), (i, 0, 0)).save(data, "JPEG")
            archive.writestr(f"cats/{i}.jpg", data.getvalue())


def make_exported() -> None:
    zip_archive("archive.zip")
    ffrecord.DatasetWriter("train", num_workers=0).from_indexed_dataset(SAMPLES)


def make_tars() -> None:
    for path in ["train.tar", *(f"data-{i:03d}.tar" for i in range(10))]:
        tar_archive(path)


def make_tfrecords() -> None:
    with TFRecordWriter("train-0.tfrecord") as writer:
        for example in EXAMPLES:
            writer.write(example)


def make_recordio() -> None:
    with RecordIOWriter("train.recordio") as writer:
        writer.write_many(TEXTS)


def make_lmdb() -> None:
    lmdb_builders.write(Path("train.lmdb"), [(b"image-%06d" % i, text) for i, text in enumerate(TEXTS)])


def make_mds() -> None:
    write_mds(Path("train"), {"image": "bytes", "label": "int", "text": "str"}, SAMPLES)


def make_beton() -> None:
    samples = [{"label": i, "weight": i / 2} for i in range(12)]
    Path("train.beton").write_bytes(beton({"label": "int", "weight": "float"}, samples))


def make_images() -> None:
    for i, text in enumerate(TEXTS):
        path = Path(f"imagenet/train/class{i // 6}/{i:03d}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    Path("train.txt").write_text("".join(f"train/class{i // 6}/{i:03d}.jpg {i}\n" for i in range(12)))
    Path("images").symlink_to("imagenet")


# How the files of a page are made, the name of what it reads there, and what sample 3 is.
PAGES = {
    "sources": (make_zip, "records", TEXTS[3]),
    "converting": (make_zip, "batch", None),
    "exporting": (make_exported, None, None),
    "zip": (make_pictures, "pixels", None),
    "tar": (make_tars, "arrays", TEXTS[3]),
    "tfrecord": (make_tfrecords, "records", EXAMPLES[3]),
    "recordio": (make_recordio, "records", TEXTS[3]),
    "lmdb": (make_lmdb, "arrays", TEXTS[3]),
    "mds": (make_mds, "samples", SAMPLES[3]),
    "beton": (make_beton, "samples", {"label": 3, "weight": 1.5}),
    "image-folders": (make_images, "samples", None),
}
NAMES = {
    each.__name__: each
    for each in (BetonReader, LMDBReader, MDSReader, RecordIOReader, RecordIOWriter, TFRecordReader, TFRecordWriter)
}


def introduction(page: str) -> str:
    first = next(iter(blocks((ROOT / "docs" / f"{page}.md").read_text())))
    assert first.language == "py"
    return first.text


@pytest.mark.parametrize("page", PAGES)
def test_it_does_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, read, wanted = PAGES[page]
    make()
    names = {"ffrecord": ffrecord, "np": np, **NAMES}
    exec(compile(introduction(page), f"docs/{page}.md", "exec"), names)
    if isinstance(wanted, bytes):
        assert bytes(names[read][0]) == wanted
    elif wanted is not None:
        assert names[read][0] == wanted


def test_that_of_exporting_writes_what_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_exported()
    exec(introduction("exporting"), {"ffrecord": ffrecord})
    assert len(zipfile.ZipFile("train.zip").namelist()) >= len(SAMPLES)
    assert [path.name for path in Path("shards").glob("*.tar")] == ["shard-000000.tar"]
    assert {path.name: path.read_bytes() for path in Path("photographs").iterdir()} == NAMED


def test_that_of_image_folders_tells_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_images()
    names = {"ffrecord": ffrecord}
    exec(introduction("image-folders"), names)
    assert [sample["label"] for sample in names["samples"]] == [0, 1, 0]
    assert [names["listed"].sample(i)["label"] for i in (3, 6)] == [3, 6]


def test_no_page_begins_with_code_that_is_not_run():
    """Of pages about peers and about Ray other tests have the code."""
    pages = {path.stem: [block.language for block in blocks(path.read_text())] for path in (ROOT / "docs").glob("*.md")}
    assert {name for name, found in pages.items() if found[:1] == ["py"]} - {"peers", "ray"} == set(PAGES)

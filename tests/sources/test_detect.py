import bz2
import contextlib
import gzip
import io
import lzma
import os
import shutil
import socket
import tarfile
import zipfile
import zlib
from pathlib import Path

import ffr_twin
import mutations
import numpy as np
import pytest

import ffrecord
from ffrecord.errors import FormatError
from ffrecord.sources.detect import detect, is_packed_folder
from ffrecord.sources.registry import READERS, SUFFIXES

GOLDEN = Path(__file__).parents[1] / "golden"
SEEDS = GOLDEN / "seeds"


def tar_bytes(format=tarfile.PAX_FORMAT):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name in ("a.txt", "d" * 60 + "/" + "b" * 90):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    return buffer.getvalue()


def signed(data: bytes) -> bytes:
    """The first header with a byte above 127, and the checksum that some old programs made then."""
    data = b"\xff" + data[1:]
    total = sum(byte - 256 * (byte > 127) for byte in data[:148] + b" " * 8 + data[156:512])
    return data[:148] + b"%06o\0 " % total + data[156:]


def zip_bytes(prefix=b"", comment=b""):
    buffer = io.BytesIO(prefix)
    buffer.seek(0, os.SEEK_END)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("a.txt", b"abc")
        archive.comment = comment
    return buffer.getvalue()


EXAMPLES = (SEEDS / "examples.tfrecord").read_bytes()
FILES = {
    "tar, pax": ("tar", tar_bytes()),
    "tar, gnu": ("tar", tar_bytes(tarfile.GNU_FORMAT)),
    "tar, sums of signed bytes": ("tar", signed(tar_bytes())),
    "tar, ustar": ("tar", tar_bytes(tarfile.USTAR_FORMAT)),
    "tar.gz": ("tar", gzip.compress(tar_bytes())),
    "tar.bz2": ("tar", bz2.compress(tar_bytes())),
    "tar.xz": ("tar", lzma.compress(tar_bytes())),
    "tar.gz, an empty member before": ("tar", gzip.compress(b"") + gzip.compress(tar_bytes())),
    "tar.gz, of small members": ("tar", b"".join(gzip.compress(tar_bytes()[i : i + 100]) for i in range(0, 5000, 100))),
    "tar.zst": ("tar", b"\x28\xb5\x2f\xfd" + bytes(40)),
    "tar.zst, a skippable frame before": ("tar", b"\x50\x2a\x4d\x18\x04\0\0\0size\x28\xb5\x2f\xfd" + bytes(40)),
    "zip": ("zip", zip_bytes()),
    "zip, empty": ("zip", b"PK\5\6" + bytes(18)),
    "zip, behind a program": ("zip", zip_bytes(b"#!/bin/sh\n" * 100)),
    "zip, a comment that looks like an end": ("zip", zip_bytes(b"#!/bin/sh\n", b"PK\5\6" + bytes(30))),
    "tfrecord": ("tfrecord", EXAMPLES),
    "tfrecord, gzip": ("tfrecord", gzip.compress(EXAMPLES)),
    "tfrecord, gzip, an empty member before": ("tfrecord", gzip.compress(b"") + gzip.compress(EXAMPLES)),
    "tfrecord, zlib": ("tfrecord", zlib.compress(EXAMPLES)),
    "recordio": ("recordio", (SEEDS / "a_snappy.recordio").read_bytes()),
    "beton": ("beton", (SEEDS / "mixed.beton").read_bytes()),
    "lmdb, one file": ("lmdb", (SEEDS / "torchrecord_lmdb/data.mdb").read_bytes()),
    "parquet": ("parquet", b"PAR1" + bytes(20) + b"PAR1"),
    "ffrecord, a zip last": ("ffrecord", ffr_twin.build([b"first", zip_bytes()])),
    "ffrecord, a zip alone": ("ffrecord", ffr_twin.build([zip_bytes()])),
    "ffrecord, a zip with a comment last": ("ffrecord", ffr_twin.build([b"first", zip_bytes(comment=b"x" * 300)])),
    "ffrecord, large tables, a zip last": ("ffrecord", ffr_twin.build([b"x"] * 20_000 + [zip_bytes()])),
    # What the prefix of a `.ffr` file would say here is that it has 65,794 samples.
    "zip, behind a program of 64 bits": ("zip", zip_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\x90" * 1_000_000)),
    **{path.name: ("ffrecord", path.read_bytes()) for path in sorted((GOLDEN / "ffrecord").glob("*.ffr"))},
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_known_by_what_is_in_them(tmp_path, name):
    expected, data = FILES[name]
    path = tmp_path / "a name that says nothing"
    path.write_bytes(data)
    assert detect(str(path)) == expected


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.tfrecord", b"", "tfrecord"),
        ("a.tfrecord-00002-of-00003", b"", "tfrecord"),
        ("a.tfrecord.gz", gzip.compress(b"", mtime=0), "tfrecord"),
        ("a.recordio", b"", "recordio"),
        ("a.tar", bytes(10_240), "tar"),
        ("a.tgz", gzip.compress(bytes(10_240), mtime=0), "tar"),
    ],
)
def test_files_of_no_records_are_known_by_their_names(tmp_path, name, data, expected):
    (tmp_path / name).write_bytes(data)
    assert detect(str(tmp_path / name)) == expected
    (tmp_path / "unknown").write_bytes(data)
    with pytest.raises(FormatError, match="unknown"):
        detect(str(tmp_path / "unknown"))


@pytest.mark.parametrize(
    "data", [b"\0" * 600, b"some text\n" * 100, bytes(range(256)) * 4, b"\x1f\x8b\x08" + bytes(50)]
)
def test_what_is_none_of_them(tmp_path, data):
    path = tmp_path / "unknown.zip"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"unknown\.zip: unknown format: {len(data)} bytes that begin with"):
        detect(str(path))


def test_damaged_files_are_of_a_format_or_of_none(tmp_path):
    path = tmp_path / "file"
    for name, (_, data) in FILES.items():
        for mutant in mutations.mutants(data[:20_000], 20, seed=len(name)):
            path.write_bytes(mutant)
            with contextlib.suppress(FormatError):
                assert detect(str(path)) in {*READERS, "parquet"}


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist"):
        detect(str(tmp_path / "nowhere"))


def directory_of(tmp_path, *names, data=b"x"):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ("ffrecord", ["dataset.json", "notes.txt"]),
        ("ffrecord", ["a.ffr", "picture.jpg"]),
        ("lmdb", ["data.mdb", "lock.mdb"]),
        ("torchrecord", ["db0/data.mdb", "db1/data.mdb"]),
        ("tar", ["0.tar", "1.tar", "README"]),
        ("tar", ["0.tar.gz"]),
        ("zip", ["A.ZIP"]),
        ("tfrecord", ["x.tfrecord", "y.tfrecords"]),
        ("tfrecord", ["x.tfrecord-00000-of-00003", "x.tfrecord-00001-of-00003"]),
        ("tfrecord", ["X.TFRecords.gz-00000-of-00003"]),
        ("tfrecord", ["train-00000-of-01024", "train-00001-of-01024", "README"]),
        ("recordio", ["x.recordio"]),
        ("parquet", ["train-00000-of-00001.parquet"]),
        ("parquet", ["year=2024/month=1/part-0.parquet", "year=2024/month=2/part-0.parquet", "_SUCCESS"]),
        ("beton", ["train.beton"]),
        ("parquet", ["0.parquet"]),
        ("image folder", ["cat/1.jpg", "dog/2.PNG"]),
        ("image folder", ["1.jpeg"]),
        ("image folder", ["cat/1.jpg", "dog/2.PNG", "backup.tar"]),
        ("image folder", ["1.jpg", "2.jpg", "backup.zip", "README", ".x.zip", ".y.zip"]),
        ("tar", ["0.tar", "1.tar", "examples/1.jpg", "examples/2.jpg", "examples/3.jpg"]),
        ("tar", ["0.tar", "1.tar", "2.tar", "preview.jpg", "examples/1.jpg", "x.zip"]),
    ],
)
def test_directories(tmp_path, expected, names):
    assert detect(directory_of(tmp_path, *names)) == expected


@pytest.mark.parametrize(("format", "suffix"), [(each, end) for each in SUFFIXES for end in SUFFIXES[each]])
def test_readers_take_the_directories_that_are_said_to_be_theirs(tmp_path, format, suffix):
    data = FILES[format][1] if format in FILES else tar_bytes()
    directory = directory_of(tmp_path, f"a{suffix}", data=data)
    assert detect(directory) == format
    if format in READERS:
        with ffrecord.open(directory) as store:
            assert len(store) > 0 and store.fnames == [f"{directory}/a{suffix}"]


@pytest.mark.parametrize(
    ("formats", "names"),
    [
        ("tar as of image folder", ["cat/1.jpg", "backup.tar"]),
        ("tar as of zip", ["a.tar", "b.zip", "1.txt"]),
        ("tar as of zip as of image folder", ["a.tar", "b.zip", "1.jpg"]),
    ],
)
def test_directories_of_several(tmp_path, formats, names):
    path = directory_of(tmp_path, *names)
    with pytest.raises(FormatError, match=f"it has as many entries of {formats}; pass format="):
        detect(path)


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{tmp_path}/socket")
    for path, kind in ((tmp_path / "pipe", "pipe"), (tmp_path / "socket", "socket"), ("/dev/zero", "device")):
        with pytest.raises(FormatError, match=f"is a {kind}, expected a regular file"):
            ffrecord.open(path)


def test_a_link_that_leads_to_itself_among_pictures(tmp_path):
    path = directory_of(tmp_path, "cat/1.jpg", "cat/2.jpg", "dog/1.jpg")
    os.symlink("3.jpg", tmp_path / "cat/3.jpg")
    assert detect(path) == "image folder"


def test_directories_of_mosaicml(tmp_path):
    shutil.copytree(SEEDS / "mds", tmp_path / "mds")
    assert detect(str(tmp_path / "mds")) == "mds"
    for text in ("{", "[1]", '{"shards": 3}', "[" * 100_000):
        (tmp_path / "mds/index.json").write_text(text)
        with pytest.raises(FormatError, match=r'pass format="mds" to see why$'):
            detect(str(tmp_path / "mds"))
    (tmp_path / "mds/index.json").unlink()
    with pytest.raises(FormatError, match=r"it has shards of MDS, but no index\.json to list them$"):
        detect(str(tmp_path / "mds"))


def test_indexes_of_something_else(tmp_path):
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(FormatError, match=r": unknown format: a directory of \d+ entr(y|ies)$"):
        detect(str(tmp_path))
    (tmp_path / "index.json").write_text('{"shards": [')
    with pytest.raises(FormatError, match='format="mds"'):
        detect(str(tmp_path))


def test_directories_of_none(tmp_path):
    with pytest.raises(FormatError, match="unknown format: a directory of 2 entries"):
        detect(directory_of(tmp_path, "a.txt", "below/b.txt"))


def test_directories_of_datasets(tmp_path):
    directory_of(tmp_path, "train/a.ffr", "test/dataset.json", "other/a.txt")
    with pytest.raises(
        FormatError, match=f"; it contains the datasets {tmp_path}/test, {tmp_path}/train: open one of them$"
    ):
        detect(str(tmp_path))
    directory_of(tmp_path, *(f"many-{i}/a.ffr" for i in range(10)))
    with pytest.raises(FormatError, match=f"datasets {tmp_path}/many-0, .*/many-4 and 7 more: open one of them$"):
        detect(str(tmp_path))


DOCUMENTS = ["index.md", "guide.md", "faq.md", "conf.py"]


@pytest.mark.parametrize(
    "names",
    [
        [*DOCUMENTS, "logo.png"],
        [*DOCUMENTS, "images/1.png", "images/2.png"],
        ["README.md", "screenshots/1.png"],
        [*(f"cat/{i}.txt" for i in range(5)), "cat/1.jpg", "dog/1.txt", "dog/2.txt", "dog/1.jpg"],
        ["Annotations/1.xml", "JPEGImages/1.jpg", "ImageSets/train.txt"],
    ],
    ids=str,
)
def test_few_pictures_among_others_are_no_image_folder(tmp_path, names):
    path = directory_of(tmp_path / "docs", *names)
    with pytest.raises(FormatError, match=r"docs: unknown format: a directory of \d+ entries"):
        detect(path)
    with pytest.raises(FormatError, match="unknown format"):
        ffrecord.convert(path, tmp_path / "out")
    assert len(ffrecord.open(path, "image folder")) >= 0


def test_the_advice_for_few_pictures(tmp_path):
    with pytest.raises(FormatError, match=r'few of them are pictures.*, pass format="image folder"$'):
        detect(directory_of(tmp_path, *DOCUMENTS, "logo.png"))


def test_pictures_with_a_file_for_each(tmp_path):
    """As annotations of detection are."""
    assert detect(
        directory_of(tmp_path, *(f"{kind}/{i}.{end}" for kind in "ab" for i in "01" for end in ("jpg", "txt")))
    )


def test_datasets_and_pictures(tmp_path):
    directory_of(tmp_path, "train/dataset.json", "photos/1.jpg", "shots/1.png", "all.zip", "c/data.mdb", "notes.txt")
    found = ", ".join(f"{tmp_path}/{name}" for name in ("all.zip", "c", "photos", "shots", "train"))
    with pytest.raises(FormatError, match=f"; it contains the datasets {found}: open one of them$"):
        detect(str(tmp_path))


def test_datasets_beside_an_archive(tmp_path):
    directory_of(tmp_path, "train/a.ffr", "all.zip")
    with pytest.raises(
        FormatError, match=f"; it contains the datasets {tmp_path}/all.zip, {tmp_path}/train: open one of them$"
    ):
        detect(str(tmp_path))
    directory_of(tmp_path, "more.zip")
    assert detect(str(tmp_path)) == "zip"


def test_pictures_further_down(tmp_path):
    directory_of(tmp_path, "train/cats/1.JPG", "train/dogs/1.jpg", "a.txt")
    said = (
        f"there are pictures in {tmp_path}/train/(cat|dog)s: "
        "pass format=\"image folder\" to give them the class 'train', not"
    )
    with pytest.raises(FormatError, match=f"unknown format: a directory of 2 entries; {said} '(cat|dog)s'"):
        detect(str(tmp_path))


def test_directories_of_nothing_and_of_one_file(tmp_path):
    with pytest.raises(FormatError, match=r"unknown format: the directory is empty$"):
        detect(str(tmp_path))
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(FormatError, match=r": unknown format: a directory of 1 entry$"):
        detect(str(tmp_path))


def test_arrays_of_numpy(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(
        FormatError, match=r"; it looks like an array of numpy: run `ffrecord write FILE OUT` to make samples of it$"
    ):
        detect(str(tmp_path / "a.npy"))


def test_packed_folders(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a").write_bytes(b"a")
    ffrecord.pack_folder(tmp_path / "folder", tmp_path / "packed.ffr")
    assert is_packed_folder(str(tmp_path / "packed.ffr"))
    found = {path.name for path in (GOLDEN / "ffrecord").glob("*.ffr") if is_packed_folder(str(path))}
    assert found == {"packed_folder.ffr"} and not is_packed_folder(str(tmp_path))


@pytest.mark.parametrize("name", ["a.tar", "a.tfrecord", "a.beton", "a.ffr", "a"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "it is a Git LFS pointer: run `git lfs pull`"),
        (b"\n<!DOCTYPE html><html lang=en>" + bytes(600), "it is an HTML page, so the download failed"),
    ],
)
def test_files_in_place_of_the_data(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FormatError, match=f"; {said}"):
        detect(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "a.csv": 'read_csv.*; if its lines are "path,label", pass format="path list"',
        "a.jsonl": r"read_json\(path, lines=True\)",
        "a.HDF5": "HDF5.*h5py",
        "a.pkl": "pickle, which is not loaded here",
        "dataset.json": "lists the shards of a dataset: pass '",
    }.items(),
)
def test_files_of_other_libraries(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"id,text\n")
    with pytest.raises(FormatError, match=f"unknown format: 8 bytes .*; .*{said}"):
        detect(str(tmp_path / name))

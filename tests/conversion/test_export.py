"""`export`: what other programs then read, and that nothing is left where it fails."""

import datetime
import io
import json
import os
import tarfile
import warnings
import zipfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from lmdb_builders import library

import ffrecord
from ffrecord.conversion import convert, export
from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError, MismatchError, WorkerError
from ffrecord.fields import FloatField, IntField, JPEGField, JSONField, LabelField, NDArrayField, StrField
from ffrecord.fields.images.jpeg_codec import compress

SEEDS = Path(__file__).parents[1] / "golden" / "seeds"
NAMES = ["a/one.jpg", "a/two.txt", "b/three", "é ü.bin"]
RECORDS = [b"\xff\xd8\xff not quite", b"", bytes(range(256)) * 300, b"four"]


def photograph(i: int) -> bytes:
    return compress(np.full((8, 8, 3), 10 * i, np.uint8), 90)


def sample(i: int) -> dict:
    return {
        "image": photograph(i),
        "label": i % 3,
        "caption": f"é {i}",
        "vector": np.arange(i, i + 4, dtype="f4"),
        "score": i / 3,
        "boxes": [{"x": i, "kind": None}],
    }


@pytest.fixture
def archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as out:
        for name, record in zip(NAMES, RECORDS, strict=True):
            out.writestr(name, record)
    return tmp_path / "in.zip"


@pytest.fixture
def typed(tmp_path):
    """25 samples in .ffr files, the image as JPEG, the boxes as JSON."""
    fields = {
        "image": JPEGField(),
        "label": IntField(),
        "caption": StrField(),
        "vector": NDArrayField("f4", (4,)),
        "score": FloatField(),
        "boxes": JSONField(),
    }
    writer = ffrecord.DatasetWriter(tmp_path / "typed", fields, num_workers=0, progress=False)
    writer.from_indexed_dataset([sample(i) for i in range(25)])
    return tmp_path / "typed"


def npy(data: bytes) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)


def assert_members(members: dict[str, bytes], n: int) -> None:
    suffixes = Counter(name.partition(".")[2] for name in members)
    assert suffixes == {"jpg": n, "cls": n, "txt": n, "npy": n, "score.json": n, "boxes.json": n}
    for i in range(n):
        base, expected = f"{i:06}", sample(i)
        assert members[f"{base}.jpg"] == expected["image"]
        assert int(members[f"{base}.cls"]) == expected["label"]
        assert members[f"{base}.txt"].decode() == expected["caption"]
        assert np.array_equal(npy(members[f"{base}.npy"]), expected["vector"])
        assert json.loads(members[f"{base}.score.json"]) == expected["score"]
        assert json.loads(members[f"{base}.boxes.json"]) == expected["boxes"]


def tar_members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def folder_files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


# What other programs read


def test_typed_samples_to_zip(typed, tmp_path):
    summary = export(typed, tmp_path / "out.zip", verify=True, progress=False)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert archive.testzip() is None
        members = {name: archive.read(name) for name in archive.namelist()}
    assert_members(members, 25)
    assert (summary.samples, summary.shards, summary.path) == (25, 1, str(tmp_path / "out.zip"))
    assert summary.bytes == sum(map(len, members.values()))


def test_typed_samples_to_tar(typed, tmp_path):
    export(typed, tmp_path / "out.tar", verify=True, progress=False)
    assert_members(tar_members(tmp_path / "out.tar"), 25)


def test_typed_samples_to_a_folder(typed, tmp_path):
    export(typed, tmp_path / "out", "folder", verify=True, progress=False)
    assert_members(folder_files(tmp_path / "out"), 25)


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_that_webdataset_reads(typed, tmp_path, workers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        webdataset = pytest.importorskip("webdataset")
    summary = export(
        typed, tmp_path / "out", "webdataset", samples_per_shard=10, num_workers=workers, verify=True, progress=False
    )
    assert summary.shards == 3
    names = [f"shard-{i:06}.tar" for i in range(3)]
    assert sorted(os.listdir(tmp_path / "out")) == names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = webdataset.WebDataset([str(tmp_path / "out" / name) for name in names], shardshuffle=False).decode()
        found = list(dataset)
    assert [each["__key__"] for each in found] == [f"{i:06}" for i in range(25)]
    for i, each in enumerate(found):
        expected = sample(i)
        assert each["jpg"] == expected["image"]
        assert (each["cls"], each["txt"], each["score.json"]) == tuple(
            expected[c] for c in ("label", "caption", "score")
        )
        assert np.array_equal(each["npy"], expected["vector"]) and each["boxes.json"] == expected["boxes"]


def test_webdataset_there_and_back(typed, tmp_path):
    export(typed, tmp_path / "one.tar", "webdataset", progress=False)
    export(tmp_path / "one.tar", tmp_path / "two.tar", "webdataset", source_format="webdataset", progress=False)
    assert tar_members(tmp_path / "one.tar") == tar_members(tmp_path / "two.tar")


def test_examples_that_tfrecord_reads(tmp_path):
    tfrecord = pytest.importorskip("tfrecord.reader")
    samples = [{"image": photograph(i), "label": i, "vector": np.arange(3, dtype="f4") + i} for i in range(12)]
    export(samples, tmp_path / "out.tfrecord", verify=True, progress=False)
    description = {"image": "byte", "label": "int", "vector": "float"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(tfrecord.tfrecord_loader(str(tmp_path / "out.tfrecord"), None, description))
    assert len(found) == 12
    for each, expected in zip(found, samples, strict=True):
        assert bytes(each["image"]) == expected["image"] and each["label"] == [expected["label"]]
        assert np.array_equal(each["vector"], expected["vector"])


def test_records_stay_records_in_tfrecord(tmp_path):
    export(SEEDS / "a_snappy.recordio", tmp_path / "out", "tfrecord", samples_per_shard=20, progress=False, verify=True)
    with ffrecord.open(SEEDS / "a_snappy.recordio") as one, ffrecord.open(tmp_path / "out") as other:
        assert len(one) == len(other) == 43
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# Names


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
def test_names_stay(archive, tmp_path, kind):
    out = tmp_path / "out"
    export(archive, out, kind, verify=True, progress=False)
    if kind == "folder":
        found = folder_files(out)
    elif kind == "tar":
        found = tar_members(out)
    else:
        with zipfile.ZipFile(out) as written:
            found = {name: written.read(name) for name in written.namelist()}
    assert found == dict(zip(NAMES, RECORDS, strict=True))


def test_names_that_convert_made_a_column(archive, tmp_path):
    convert(archive, tmp_path / "dataset", num_workers=0, progress=False)
    export(tmp_path / "dataset", tmp_path / "out.tar", verify=True, progress=False)
    assert tar_members(tmp_path / "out.tar") == dict(zip(NAMES, RECORDS, strict=True))


def test_dots_belong_to_columns_in_webdataset(tmp_path):
    samples = {"a.b/x.y.jpg": b"\xff\xd8\xff1", "c.jpg": b"\xff\xd8\xff2"}
    rows = [{"key": name, "image": data, "label": 1} for name, data in samples.items()]
    export(rows, tmp_path / "w.tar", "webdataset", progress=False)
    assert sorted(tar_members(tmp_path / "w.tar")) == ["a.b/x_y.cls", "a.b/x_y.jpg", "c.cls", "c.jpg"]
    export(rows, tmp_path / "t.tar", progress=False)
    assert sorted(tar_members(tmp_path / "t.tar")) == ["a.b/x.y.cls", "a.b/x.y.jpg", "c.cls", "c.jpg"]


@pytest.mark.parametrize("name", ["../a", "/a", "a/../b", "a//b", "a/", "", "c:/a", "a\0b", "./a", "x" * 70_000])
@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name, kind):
    with pytest.raises(FormatError, match=r"is not a valid name of a file|cannot be the name of a file"):
        export([{"key": "good", "data": b"1"}, {"key": name, "data": b"2"}], tmp_path / "out", kind, progress=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
def test_the_same_name_twice_is_refused(tmp_path, kind):
    rows = [{"key": name, "data": name.encode()} for name in ("a", "b", "a")]
    with pytest.raises(FormatError, match=r"'a'.* (occurs twice|already exists)"):
        export(rows, tmp_path / "out", kind, progress=False)
    assert os.listdir(tmp_path) == []


def test_the_same_name_in_two_shards_is_refused(tmp_path):
    rows = [{"key": name, "data": name.encode()} for name in ("a", "b", "c", "a")]
    for workers in (0, 2):
        with pytest.raises(FormatError, match="'a' of sample 0 occurs twice"):
            export(rows, tmp_path / "out", "tar", samples_per_shard=2, num_workers=workers, progress=False)
        assert os.listdir(tmp_path) == []


def test_columns_of_different_samples_that_make_one_name(tmp_path):
    rows = [{"key": "a", "x": 1, "b.x": 2}, {"key": "a.b", "x": 1, "b.x": 2}]
    with pytest.raises(FormatError, match=r"'a\.b\.x\.cls' of sample 0 occurs twice"):
        export(rows, tmp_path / "out.tar", progress=False)
    assert os.listdir(tmp_path) == []


def test_a_file_where_another_needs_a_directory(tmp_path):
    with pytest.raises(FormatError, match="needs a directory there"):
        export([{"key": "a", "data": b""}, {"key": "a/b", "data": b""}], tmp_path / "out", "folder", progress=False)
    assert os.listdir(tmp_path) == []


def test_names_that_are_no_unicode(tmp_path):
    with library().open(str(tmp_path / "db"), map_size=1 << 20) as database, database.begin(write=True) as transaction:
        transaction.put(b"a/\xff", b"1")
    for kind in ("tar", "folder"):
        export(tmp_path / "db", tmp_path / kind, kind, verify=True, progress=False)
    assert tar_members(tmp_path / "tar") == folder_files(tmp_path / "folder") == {"a/\udcff": b"1"}
    with pytest.raises(FormatError, match="cannot be written"):
        export(tmp_path / "db", tmp_path / "zip", "zip", progress=False)


# Values


def test_values_of_all_kinds(tmp_path):
    image = pytest.importorskip("PIL.Image")
    torch = pytest.importorskip("torch")
    row = {
        "big": 2**70,
        "flag": True,
        "none": None,
        "half": np.float16(0.5),
        "long": np.int64(7),
        "double": np.float64(0.1),
        "empty": np.zeros((0, 3), "u2"),
        "scalar": np.array(3.5),
        "tensor": torch.arange(3),
        "gif": b"GIF89a",
        "raw": b"\0",
        "nested": {"a": [1, np.int8(2)]},
        "inf": float("-inf"),
        "picture": image.new("RGBA", (2, 3), (1, 2, 3, 4)),
        "cmyk": image.new("CMYK", (2, 2)),
    }
    export([row], tmp_path / "out", "folder", verify=True, progress=False)
    found = folder_files(tmp_path / "out")
    text = {name.split(".", 1)[1]: data.decode() for name, data in found.items() if name.endswith(("cls", "json"))}
    assert text["big.cls"] == str(2**70) and text["long.cls"] == "7"
    assert text["flag.json"] == "true" and text["none.json"] == "null" and text["double.json"] == "0.1"
    assert json.loads(text["nested.json"]) == {"a": [1, 2]}
    for name in ("half", "empty", "scalar", "inf"):
        assert npy(found[f"000000.{name}.npy"]).dtype == np.asarray(row[name]).dtype
        assert np.array_equal(npy(found[f"000000.{name}.npy"]), row[name])
    assert npy(found["000000.tensor.npy"]).tolist() == [0, 1, 2]
    assert found["000000.gif"] == b"GIF89a" and found["000000.raw.bin"] == b"\0"
    with image.open(io.BytesIO(found["000000.picture.png"])) as picture:
        assert picture.mode == "RGBA" and picture.getpixel((1, 1)) == (1, 2, 3, 4)
    with image.open(io.BytesIO(found["000000.cmyk.tif"])) as picture:
        assert picture.mode == "CMYK"


KINDS = ("zip", "tar", "webdataset", "folder")
KEPT = [
    *(np.timedelta64(5, unit) for unit in ("ns", "us", "s", "D", "Y")),
    *(np.datetime64(5, unit) for unit in ("ns", "D")),
    *(np.timedelta64("NaT", "ms"), np.datetime64("NaT", "s"), np.float16(1.5), np.complex64(1 + 2j), float("nan")),
    *(np.zeros(0, "f2"), np.zeros((0, 3), "u8"), np.array(5, "i2"), np.array(True), np.array(b"ab"), np.array("é")),
    *(np.zeros(2, [("a", "<i4"), ("b", "S2")]), np.array([1, 2], "m8[h]"), np.array(["2020"], "M8[Y]")),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_values_that_come_back_as_they_are(tmp_path, kind, value):
    export([{"x": value}] * 2, tmp_path / "out", kind, verify=True, progress=False)
    if kind == "folder":
        content = (tmp_path / "out" / "000000.npy").read_bytes()
    else:
        with ffrecord.open(tmp_path / "out", kind.replace("webdataset", "tar")) as reader:
            content = bytes(reader.read_one(0))
    found = npy(content)
    assert found.dtype == np.asarray(value).dtype and found.shape == np.shape(value)
    assert found.tobytes() == np.asarray(value).tobytes()


LOST = [
    *({"a": np.timedelta64(5, unit)} for unit in ("ns", "us", "Y")),
    *([np.datetime64(5, "ns")], 1j, np.array([object()]), np.ma.masked_array([1, 2], [0, 1]), {"a": b"x"}),
    *([float("nan")], (1, 2), {1: 2}, datetime.timedelta(1), datetime.date(2020, 1, 1), {"a": Decimal(1)}),
]


@pytest.mark.parametrize("kind", [*KINDS, "tfrecord"])
@pytest.mark.parametrize("value", LOST, ids=lambda value: "objects" if "object at" in repr(value) else repr(value))
def test_values_that_would_be_lost_are_refused_by_column(tmp_path, kind, value):
    with pytest.raises((ArgumentError, ArgumentTypeError), match="sample 0, column 'x'"):
        export([{"x": value, "y": 1}], tmp_path / "out", kind, progress=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [np.timedelta64(5, "ns"), np.datetime64(5, "D"), np.complex64(1j)], ids=repr)
def test_values_that_no_example_holds(tmp_path, value):
    with pytest.raises(ArgumentError, match="feature 'x' has "):
        export([{"x": value, "y": 1}], tmp_path / "a.tfrecord", progress=False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.1, "column 'x': float64 values are rounded to float32, because Examples cannot hold them otherwise"),
        (np.array([[1.5]], "f4"), "column 'x': the shape (1, 1) is not kept"),
        (np.array([True]), "column 'x': bools become int64"),
        (np.array([1e-300, 0.5]), "column 'x': float64 values are rounded"),
        *((value, "") for value in (0.5, float("nan"), 7, np.float16(0.1), np.float32(0.1), b"a", np.arange(3))),
    ],
    ids=repr,
)
def test_what_examples_do_not_keep_is_told(tmp_path, caplog, value, words):
    export([{"x": value, "y": 1}] * 3, tmp_path / "a.tfrecord", progress=False)
    assert caplog.text.count("column 'x'") == (1 if words else 0) and words in caplog.text


def test_names_of_classes_that_are_not_kept_are_told(typed, tmp_path, caplog):
    fields = {"label": LabelField(["cat", "dog"])}
    ffrecord.DatasetWriter(tmp_path / "a", fields, num_workers=0).from_indexed_dataset([{"label": 1}])
    export(tmp_path / "a", tmp_path / "a.zip", progress=False)
    assert "a.zip: class names of 'label' are not kept" in caplog.text
    caplog.clear()
    export(tmp_path / "a", tmp_path / "folder", "folder", progress=False)
    assert caplog.text == "" and (tmp_path / "folder" / "classes.json").exists()


@pytest.mark.parametrize("value", [object(), np.array([object()]), {"a": b"bytes"}, [np.zeros(2)], {1, 2}, "\ud800"])
def test_values_that_no_file_holds(tmp_path, value):
    rows = [{"x": 1, "y": 1}, {"x": 1, "y": value}]
    for kind in ("zip", "tar", "folder", "tfrecord"):
        with pytest.raises((TypeError, ValueError)):
            export(rows, tmp_path / "out", kind, progress=False)
        assert os.listdir(tmp_path) == []


class Failing:
    """Samples, of which one cannot be had."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict:
        if index == 33:
            raise OSError(5, "gone")
        return {"a": b"x" * 100, "b": index}


@pytest.mark.parametrize(("kind", "per_shard"), [("zip", None), ("folder", None), ("tar", 10), ("tfrecord", 10)])
def test_a_sample_that_cannot_be_had_leaves_nothing(tmp_path, kind, per_shard):
    for workers in (0, 2):
        with pytest.raises((OSError, WorkerError), match="gone"):
            export(Failing(), tmp_path / "out", kind, samples_per_shard=per_shard, num_workers=workers, progress=False)
        assert os.listdir(tmp_path) == []


class Changing:
    """Samples that are others when they are read again."""

    reads = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict:
        Changing.reads += 1
        return {"a": b"x" * (1 + (Changing.reads > 4 and index == 1)), "b": 1}


@pytest.mark.parametrize("kind", ["zip", "tar", "webdataset", "tfrecord", "folder"])
def test_verifying_finds_what_differs(tmp_path, kind):
    Changing.reads = 0
    with pytest.raises(MismatchError, match=r"1 of \d differ from their source: (000001\.bin|record 1) has ") as caught:
        export(Changing(), tmp_path / "out", kind, verify=True, progress=False)
    assert len(caught.value.differences) == 1


@pytest.mark.parametrize("seed", ["mixed.beton", "mds", "torchrecord_lmdb", "examples.tfrecord", "a_snappy.recordio"])
def test_files_of_the_original_systems(tmp_path, seed):
    for kind in ("zip", "webdataset", "tfrecord"):
        summary = export(SEEDS / seed, tmp_path / kind, kind, verify=True, progress=False)
        with ffrecord.open(SEEDS / seed) as reader:
            assert summary.samples == len(reader) > 0


def test_lmdb_to_a_folder(tmp_path):
    with library().open(str(tmp_path / "db"), map_size=1 << 20) as database, database.begin(write=True) as transaction:
        for name, record in zip(NAMES, RECORDS, strict=True):
            transaction.put(name.encode(), record)
    export(tmp_path / "db", tmp_path / "out", "folder", verify=True, progress=False)
    assert folder_files(tmp_path / "out") == dict(zip(NAMES, RECORDS, strict=True))


@pytest.mark.parametrize("kind", ["zip", "tar", "tfrecord", "folder"])
def test_nothing_to_export(tmp_path, kind):
    summary = export([], tmp_path / "out", kind, verify=kind == "folder", progress=False)
    assert (summary.samples, summary.bytes) == (0, 0)
    assert (tmp_path / "out").exists()


# Arguments


def test_what_is_there_stays(archive, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(b"mine")
    (tmp_path / "out.zip").write_bytes(b"mine")
    for out, kind in (("out", "folder"), ("out", "zip"), ("out.zip", None)):
        with pytest.raises(FileExistsError, match="already exists; delete it"):
            export(archive, tmp_path / out, kind, progress=False)
    assert (tmp_path / "out.zip").read_bytes() == b"mine"
    (tmp_path / "empty").mkdir()
    export(archive, tmp_path / "empty", "folder", progress=False)
    assert len(folder_files(tmp_path / "empty")) == 4


def test_wrong_arguments(archive, tmp_path):
    for options, message in [
        ({"format": "rar"}, "format is 'rar', expected one of zip, tar, webdataset, tfrecord, folder$"),
        ({"format": None}, "out: suffix is '', expected one of .zip, .tar, .*; or pass format=$"),
        ({"format": "folder", "samples_per_shard": 3}, "samples_per_shard is only for formats"),
        ({"format": "zip", "samples_per_shard": 0}, "samples_per_shard is 0"),
        ({"format": "zip", "num_workers": -2}, "num_workers is -2"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            export(archive, tmp_path / "out", **options)
    with pytest.raises(TypeError, match="options"):
        export([b"x"], tmp_path / "out.zip", check_data=False)
    with pytest.raises(TypeError, match=r"verify is str .*, expected True or False"):
        export(archive, tmp_path / "out.zip", verify="x")
    for source in (None, 5, iter([b"x"])):
        with pytest.raises(
            TypeError, match=r"source is .*, expected a path, a store or samples with len\(\) and \[i\]$"
        ):
            export(source, tmp_path / "out.zip")
    assert os.listdir(tmp_path) == ["in.zip"]


def test_a_store_that_is_open_stays_so(archive, tmp_path):
    with ffrecord.open(archive) as reader:
        export(reader, tmp_path / "out.tar", progress=False)
        assert len(reader.read([0])) == 1


def test_the_same_samples_give_the_same_bytes(typed, tmp_path):
    for kind in ("zip", "tar", "tfrecord"):
        export(typed, tmp_path / f"one.{kind}", progress=False)
        export(typed, tmp_path / f"two.{kind}", progress=False)
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()


@pytest.mark.long
def test_workers_that_are_spawned(typed, tmp_path):
    export(typed, tmp_path / "one", "tar", samples_per_shard=5, num_workers=2, start_method="spawn", progress=False)
    export(typed, tmp_path / "two", "tar", samples_per_shard=5, num_workers=0, progress=False)
    assert folder_files(tmp_path / "one") == folder_files(tmp_path / "two")


def test_columns_are_no_samples(tmp_path: Path) -> None:
    words = r"^source is a dict of 1, expected samples; make a dataset of its columns with convert$"
    with pytest.raises(TypeError, match=words):
        ffrecord.export({"x": [1, 2]}, tmp_path / "x.zip")

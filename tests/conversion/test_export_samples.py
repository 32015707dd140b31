"""`export` of samples that are not all alike: nothing is lost, merged or left out without an error."""

import enum
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ffrecord
from ffrecord.conversion import export
from ffrecord.conversion.export_samples import SampleSource
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.errors import ArgumentError, FFRecordError, FormatError, MismatchError
from ffrecord.fields import BytesField, IntField, LabelField, OptionalField, StrField
from ffrecord.reading.store import Store
from ffrecord.sources import ExampleParser, FixedFeature, TFRecordWriter, WebDatasetReader

JPG, PNG = b"\xff\xd8\xffpicture", b"\x89PNG\r\n\x1a\npicture"


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_zip(path: Path, names: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


# Samples that have other columns than the first one


@pytest.mark.parametrize("second", [{"data": b"2", "label": 7}, {"x": b"2"}, {"data": "text"}, {}])
def test_samples_that_are_not_only_bytes_among_such_that_are(tmp_path, second):
    for kind in ("zip", "tar", "webdataset", "tfrecord", "folder"):
        with pytest.raises(FormatError, match=r"sample 1 has (the|no) columns"):
            rows = (
                [{"data": b"1"}, second] if kind == "tfrecord" else [{"key": "a", "data": b"1"}, {"key": "b", **second}]
            )
            export(rows, tmp_path / "out", kind, verify=True, progress=False)
        assert os.listdir(tmp_path) == []


def test_names_among_records_without(tmp_path):
    with pytest.raises(FormatError, match="sample 1 has the name 'b', but sample 0 has none"):
        export([{"data": b"1"}, {"key": "b", "data": b"2"}], tmp_path / "out", "tfrecord", progress=False)


def test_columns_whose_values_change_their_kind(tmp_path):
    rows = [{"l": JPG, "r": 1}, {"l": JPG, "r": PNG}, {"l": JPG, "r": JPG, "s": 3.5}, {"l": 1.5, "r": 2}]
    export(rows, tmp_path / "out.tar", verify=True, progress=False)
    assert members(tmp_path / "out.tar") == {
        "000000.jpg": JPG,
        "000000.cls": b"1",
        "000001.jpg": JPG,
        "000001.r.png": PNG,
        "000002.jpg": JPG,
        "000002.r.jpg": JPG,
        "000002.s.json": b"3.5",
        "000003.l.json": b"1.5",
        "000003.cls": b"2",
    }


@pytest.mark.parametrize("row", [{}, {"key": "b"}])
def test_samples_without_columns(tmp_path, row):
    with pytest.raises(FormatError, match="sample 1 has no columns"):
        export([{"a": 1}, row], tmp_path / "out.zip", progress=False)
    export([{"a": 1}, row], tmp_path / "out.tfrecord", verify=True, progress=False)
    assert len(ffrecord.open(tmp_path / "out.tfrecord")) == 2


def contents(path):
    """Name → bytes of each file of a zip, a tar or a folder."""
    if path.is_dir():
        return {f"{each.relative_to(path)}": each.read_bytes() for each in path.rglob("*") if each.is_file()}
    with ffrecord.open(path) as reader:
        return {name: reader.read(name).tobytes() for name in list(reader.keys())}


@pytest.mark.parametrize("kind", ["zip", "tar", "folder", "webdataset"])
@pytest.mark.parametrize("rows", [[1, None], [None, 1], [None, None]])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("column", ["x", "data"])
def test_none_has_a_file(tmp_path, kind, rows, beside, column):
    """A file that says null, of every source alike."""
    samples = [{column: each, **({"t": "text"} if beside else {})} for each in rows]
    fields = {column: OptionalField(IntField()), **({"t": StrField()} if beside else {})}
    DatasetWriter(tmp_path / "in", fields, num_workers=0).from_indexed_dataset(samples)
    for name, source in (("list", samples), ("dataset", tmp_path / "in")):
        out = tmp_path / (f"{name}.tar" if kind == "webdataset" else f"{name}.{kind}")
        export(source, out, kind, verify=True, progress=False)
        found = contents(out)
        assert sorted(found.values()) == sorted(
            [*(b"null" if each is None else b"1" for each in rows), *([b"text"] * 2 if beside else [])]
        )
        for i, each in enumerate(rows):
            end = f"{'' if (each is None) == (rows[0] is None) else column + '.'}{'json' if each is None else 'cls'}"
            assert f"{i:06}.{end}" in found


def test_none_among_bytes_has_a_file(tmp_path):
    fields = {"data": OptionalField(BytesField())}
    DatasetWriter(tmp_path / "in", fields, num_workers=0).from_indexed_dataset([{"data": b"1"}, {"data": None}])
    export(tmp_path / "in", tmp_path / "out.zip", verify=True, progress=False)
    assert contents(tmp_path / "out.zip") == {"000000.bin": b"1", "000001.data.json": b"null"}
    export(tmp_path / "in", tmp_path / "out.tfrecord", verify=True, progress=False)
    assert len(ffrecord.open(tmp_path / "out.tfrecord")) == 2


def test_a_sample_of_a_webdataset_without_any_field(tmp_path):
    fields = {"__key__": StrField(), "x": OptionalField(BytesField())}
    rows = [{"__key__": "a", "x": b"1"}, {"__key__": "b", "x": None}]
    DatasetWriter(tmp_path / "in", fields, num_workers=0).from_indexed_dataset(rows)
    export(tmp_path / "in", tmp_path / "out.tar", verify=True, progress=False)
    assert contents(tmp_path / "out.tar") == {"a.x": b"1", "b.x.json": b"null"}


# Values that JSON would change


@pytest.mark.parametrize("value", [{1: "x"}, (1, 2), [float("nan")], {"a": (1,)}, [{1, 2}]])
def test_values_that_json_would_change(tmp_path, value):
    with pytest.raises((ArgumentError, TypeError), match=r"sample 1, column 'b': .*JSON"):
        export([{"a": 1, "b": [1]}, {"a": 1, "b": value}], tmp_path / "out.zip", progress=False)
    assert os.listdir(tmp_path) == []


def test_the_place_of_what_json_would_change(tmp_path):
    value = {"size": [np.int64(3), np.float32(0.5)], "boxes": [{"corner": (1, 2)}]}
    with pytest.raises(
        ArgumentError, match=r"JSON would change a tuple of 2 at \['boxes'\]\[0\]\['corner'\], expected"
    ):
        export([{"a": 1, "b": value}], tmp_path / "out.zip", progress=False)


def test_nan_has_a_file(tmp_path):
    export([{"a": 0.5}, {"a": float("nan")}], tmp_path / "out.tar", verify=True, progress=False)
    found = members(tmp_path / "out.tar")
    assert found["000000.json"] == b"0.5" and np.isnan(np.load(io.BytesIO(found["000001.a.npy"])))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70, 1e300])
def test_numbers_that_tfrecord_does_not_hold(tmp_path, value):
    with pytest.raises(ArgumentError, match=r"sample 1.* (does not fit in int64|which float32 cannot hold)"):
        export([{"a": 1, "b": 1}, {"a": 1, "b": value}], tmp_path / "out.tfrecord", progress=False)


# Names


def test_files_as_samples_of_webdataset(tmp_path):
    names = ["a.1.jpg", "a.2.jpg", "README", ".hidden", "c.d/b.jpg", "end."]
    export(write_zip(tmp_path / "in.zip", names), tmp_path / "out.tar", "webdataset", verify=True, progress=False)
    expected = ["a_1.jpg", "a_2.jpg", "README.bin", "_hidden.bin", "c.d/b.jpg", "end_.bin"]
    assert members(tmp_path / "out.tar") == dict(zip(expected, map(str.encode, names), strict=True))
    with WebDatasetReader(tmp_path / "out.tar") as reader:
        assert list(reader.keys()) == [name.rpartition(".")[0] for name in expected]


def test_files_that_would_be_one_sample(tmp_path):
    archive = write_zip(tmp_path / "in.zip", ["a.jpg", "b.jpg", "a.txt", "c.jpg"])
    for options in ({}, {"samples_per_shard": 2, "num_workers": 0}):
        with pytest.raises(FormatError, match=r"'a' of sample 0 occurs twice"):
            export(archive, tmp_path / "out", "webdataset", progress=False, **options)
    assert os.listdir(tmp_path) == ["in.zip"]


@pytest.mark.parametrize("name", ["__meta__/a.jpg", "__a.b__"])
def test_names_that_webdataset_leaves_out(tmp_path, name):
    with pytest.raises(FormatError, match="would not belong to any sample of a WebDataset"):
        rows = [{"key": "__meta__/a.jpg", "data": JPG}, {"key": "b", "data": JPG}]
        export(rows, tmp_path / "out.tar", "webdataset", progress=False)


def test_columns_that_webdataset_does_not_tell_apart(tmp_path):
    with pytest.raises(FormatError, match=r"sample 0: of the files 000000\.A\.bin, 000000\.a\.bin, .* the same field"):
        export([{"A": b"1", "a": b"2"}], tmp_path / "out.tar", "webdataset", progress=False)
    export([{"A": b"1", "a": b"2"}], tmp_path / "out.tar", verify=True, progress=False)


def test_names_that_differ_in_their_ends_only(tmp_path):
    rows = [{"key": "1.jpg", "image": JPG, "label": 0}, {"key": "1.png", "image": PNG, "label": 1}]
    export(rows, tmp_path / "out.tar", verify=True, progress=False)
    assert members(tmp_path / "out.tar") == {"1.jpg": JPG, "1.cls": b"0", "1.png": PNG, "1.png.cls": b"1"}
    export(rows, tmp_path / "w.tar", "webdataset", verify=True, progress=False)
    assert members(tmp_path / "w.tar") == {"1.jpg": JPG, "1.cls": b"0", "1_png.png": PNG, "1_png.cls": b"1"}


@pytest.mark.parametrize("kind", ["zip", "tar", "webdataset", "folder"])
@pytest.mark.parametrize("column", ["x/a", "../x", "/", "..", "."])
def test_columns_that_would_lead_elsewhere(tmp_path, column, kind):
    with pytest.raises(FormatError, match=f"column {column!r} cannot be part of a file's name"):
        export([{column: b"1", "y": b"2"}], tmp_path / "out", kind, progress=False)
    assert os.listdir(tmp_path) == []


def test_columns_with_slashes_that_are_in_no_name(tmp_path):
    export([{"image/encoded": JPG, "image/label": 3}], tmp_path / "out.zip", verify=True, progress=False)
    with ffrecord.open(tmp_path / "out.zip") as reader:
        assert list(reader.keys()) == ["000000.jpg", "000000.cls"]


JPEG_NAMES = ["x_0.JPEG", "1.jpeg", "2.JPG", "3.jpe", "4.jfif", "5.jpg", "6.PNG", "7.webp", "8.TIF"]


def test_ends_of_names_that_fit_stay(tmp_path):
    """From a folder to typed samples, and back: the same files, and the labels beside them."""
    (tmp_path / "in" / "cat").mkdir(parents=True)
    files = {name: {"6": PNG, "7": b"RIFF", "8": b"II*"}.get(name[0], JPG) for name in JPEG_NAMES}
    for name, data in files.items():
        (tmp_path / "in" / "cat" / name).write_bytes(data)
    ends = [".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif"]
    ffrecord.convert(tmp_path / "in", tmp_path / "mid", format="image folder", extensions=ends, num_workers=0)
    export(tmp_path / "mid", tmp_path / "out", "folder", verify=True, progress=False)
    found = {path.name: path.read_bytes() for path in (tmp_path / "out" / "cat").iterdir()}
    assert {name: data for name, data in found.items() if not name.endswith(".cls")} == files
    assert len(found) == 2 * len(files)


def test_ends_of_names_are_one_field_in_webdataset(tmp_path):
    rows = [{"key": "a.JPEG", "image": JPG, "label": 0}, {"key": "b.JPEG", "image": JPG, "label": 1}]
    export(rows, tmp_path / "out.tar", "webdataset", verify=True, progress=False)
    assert members(tmp_path / "out.tar") == {"a.jpg": JPG, "a.cls": b"0", "b.jpg": JPG, "b.cls": b"1"}


def test_a_field_called_key(tmp_path):
    archive = write_tar(tmp_path / "in.tar", {"s1.key": b"K1", "s1.jpg": JPG, "s2.key": b"K2", "s2.jpg": PNG})
    export(archive, tmp_path / "out.tfrecord", source_format="webdataset", verify=True, progress=False)
    with ffrecord.open(tmp_path / "out.tfrecord") as reader:
        feature = FixedFeature("string")
        found = ExampleParser(dict.fromkeys(("__key__", "key", "jpg"), feature)).parse(reader.read_one(0))
    assert found == {"__key__": b"s1", "key": b"K1", "jpg": JPG}


def test_decoded_samples_are_exported_as_they_were(tmp_path):
    array = io.BytesIO()
    np.save(array, np.arange(5, dtype=np.uint8))
    files = {
        "0.jpg": JPG,
        "0.cls": b"07",
        "0.b.npy": array.getvalue(),
        "1.jpg": PNG,
        "1.cls": b"8",
        "1.b.npy": b"no array",
    }
    with ffrecord.open(write_tar(tmp_path / "in.tar", files), "webdataset", decode=True) as reader:
        export(reader, tmp_path / "out.tar", "webdataset", verify=True, progress=False)
    assert members(tmp_path / "out.tar") == files


def test_names_of_classes(tmp_path):
    fields = {"kind": LabelField(["cat", "dog"]), "caption": StrField()}
    writer = ffrecord.DatasetWriter(tmp_path / "in", fields, num_workers=0, progress=False)
    writer.from_indexed_dataset([{"kind": i % 2, "caption": "x"} for i in range(4)])
    export(tmp_path / "in", tmp_path / "folder", "folder", verify=True, progress=False)
    export(tmp_path / "in", tmp_path / "shards", "tar", samples_per_shard=2, num_workers=0, verify=True, progress=False)
    for out in ("folder", "shards"):
        assert json.loads((tmp_path / out / "classes.json").read_bytes()) == {"kind": ["cat", "dog"]}
    assert len(ffrecord.open(tmp_path / "shards")) == 8


def test_a_sample_where_names_of_classes_are_kept(tmp_path):
    (tmp_path / "in" / "cat").mkdir(parents=True)
    (tmp_path / "in" / "cat" / "1.jpg").write_bytes(JPG)
    export(tmp_path / "in", tmp_path / "out", "folder", progress=False)
    assert json.loads((tmp_path / "out" / "classes.json").read_bytes()) == {"label": ["cat"]}
    assert (tmp_path / "out" / "cat" / "1.cls").read_bytes() == b"0"


# What is at the target


class Meanwhile:
    """Samples, during whose reading something comes to where they are to be written."""

    def __init__(self, path: Path, directory: bool) -> None:
        self.path, self.directory = path, directory

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> bytes:
        if index == 2:
            if self.directory:
                self.path.mkdir(exist_ok=True)
            (self.path / "x" if self.directory else self.path).write_bytes(b"precious")
        return b"x"


@pytest.mark.parametrize("kind", ["zip", "tar", "webdataset", "tfrecord", "folder"])
def test_what_comes_there_meanwhile_stays(tmp_path, kind):
    source = Meanwhile(tmp_path / "out", kind == "folder")
    with pytest.raises(OSError, match="nothing was published"):
        export(source, tmp_path / "out", kind, progress=False)
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out" / "x" if kind == "folder" else tmp_path / "out").read_bytes() == b"precious"


class Counting:
    """Samples that are others whenever they are read."""

    reads = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict:
        self.reads += 1
        return {"a": self.reads}


@pytest.mark.parametrize("kind", ["zip", "tar", "webdataset", "tfrecord", "folder"])
def test_nothing_is_left_of_what_differs(tmp_path, kind):
    for options in ({}, {} if kind == "folder" else {"samples_per_shard": 2, "num_workers": 0}):
        with pytest.raises(MismatchError, match=f"{tmp_path / 'out'}: 3 of 3 differ"):
            export(Counting(), tmp_path / "out", kind, verify=True, progress=False, **options)
        assert os.listdir(tmp_path) == []


def test_a_directory_that_is_not_there(tmp_path):
    for kind in ("zip", "tfrecord", "folder"):
        with pytest.raises(FileNotFoundError, match=f"{tmp_path / 'no' / 'out'}: a file could not be created there"):
            export([b"x"], tmp_path / "no" / "out", kind, progress=False)


def test_a_format_of_what_is_open(tmp_path):
    with ffrecord.open(write_zip(tmp_path / "in.zip", ["a"])) as reader:
        for source in (reader, [b"x"]):
            with pytest.raises(TypeError, match="source_format"):
                export(source, tmp_path / "out.tar", source_format="nonsense", progress=False)


# Records as they are, many at once


class Rare(Store):
    """Records, of which one cannot be had."""

    format = "rare"

    def _load(self, positions):
        return [np.full(i % 7, i % 251, np.uint8) if i != 5000 else OSError(5, "gone") for i in positions.tolist()]


def test_records_are_copied_many_at_once(tmp_path):
    with TFRecordWriter(tmp_path / "in.tfrecord") as writer:
        for i in range(9000):
            writer.write(b"%d" % i * (i % 5))
    with ffrecord.open(tmp_path / "in.tfrecord") as reader:
        assert sum(len(offsets) - 1 for _, offsets in SampleSource(reader).iter_packed(0, 9000)) == 9000
    export(tmp_path / "in.tfrecord", tmp_path / "out.tfrecord", verify=True, progress=False)
    assert (tmp_path / "out.tfrecord").read_bytes() == (tmp_path / "in.tfrecord").read_bytes()
    export(Rare(["x"], 5000), tmp_path / "some.tfrecord", verify=True, progress=False)
    for on_error, error in (("raise", OSError), ("skip", FFRecordError)):
        with pytest.raises(error, match=r"gone|[0-9]+ of [0-9]+ samples"):
            export(Rare(["x"], 9000, on_error=on_error), tmp_path / "other.tfrecord", progress=False)
    assert not (tmp_path / "other.tfrecord").exists()


@pytest.mark.parametrize("decode", [False, True])
def test_a_webdataset_comes_back_from_a_dataset(tmp_path, decode):
    members = {"a.cls": b"3", "a.txt": b"text", "a.json": b'{"x":1}', "a.seg.bin": b"\0\1", "b.cls": b"4"}
    members |= {"b.txt": b"more", "b.json": b'{"x":2}', "b.seg.bin": b"\2"}
    with tarfile.open(tmp_path / "source.tar", "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    options = {"format": "webdataset", "decode": decode, "num_workers": 0}
    ffrecord.convert(tmp_path / "source.tar", tmp_path / "dataset", verify=True, **options)
    ffrecord.export(tmp_path / "dataset", tmp_path / "back.tar", "webdataset", verify=True)
    with tarfile.open(tmp_path / "back.tar") as archive:
        assert {each.name: archive.extractfile(each).read() for each in archive} == members


@pytest.mark.parametrize("name", ["out.tfrecord", "out.zip"])
def test_ints_of_other_classes(tmp_path, name):
    """A range looks for them number by number, which would take for ever."""
    values = [enum.IntEnum("E", "A").A, type("I", (int,), {})(2**62), True]
    export([{"v": value, "k": 1} for value in values[:2]], tmp_path / name, progress=False)
    found = ffrecord.open(tmp_path / name)
    if name == "out.tfrecord":
        parser = ExampleParser({"v": FixedFeature("int64")})
        assert [int(parser.parse(found[index])["v"]) for index in range(2)] == [1, 2**62]
    with pytest.raises(ArgumentError, match="does not fit in int64"):
        export([{"v": type("I", (int,), {})(2**63)}], tmp_path / "large.tfrecord", progress=False)


@pytest.mark.parametrize("name", ["out.tfrecord", "out.zip"])
def test_tensors_of_every_kind(tmp_path, name):
    torch = pytest.importorskip("torch")
    conjugated = torch.tensor([1 + 2j]).conj()
    for index, tensor in enumerate((conjugated, conjugated.imag, torch.ones(2, requires_grad=True))):
        export([{"v": tensor}], tmp_path / f"{index}-{name}", progress=False)
    with pytest.raises(ArgumentError, match=r"[Ss]ample 0.*column 'v'.*not plain numbers in memory"):
        export([{"v": torch.ones(2, device="meta")}], tmp_path / f"meta-{name}", progress=False)


def test_a_series_goes_by_position(tmp_path):
    series = pytest.importorskip("pandas").Series([b"a", b"b", b"c"], index=[2, 0, 1])
    export(series, tmp_path / "out.tfrecord", progress=False)
    assert [bytes(each) for each in ffrecord.open(tmp_path / "out.tfrecord").read(range(3))] == [b"a", b"b", b"c"]

"""DatasetWriter of stores, slices and packed folders: their columns, classes and the bytes of their records stay."""

import gzip
import io
import pickle
import shutil
import tarfile
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ffrecord
from ffrecord import ChecksumError, DatasetWriter, FileReader, MismatchError, WorkerError
from ffrecord.errors import ArgumentError, FFRecordError, FormatError
from ffrecord.fields import (
    BytesField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
    ListField,
    NDArrayField,
    OptionalField,
    StrField,
    ZstdField,
    schema_of,
)
from ffrecord.utils import dump

FIELDS = {
    "image": JPEGField(),
    "label": LabelField(["cat", "dog"]),
    "facts": JSONField(),
    "values": NDArrayField("f4", (3,)),
}
COUNT = 12
COMPRESSED = pytest.mark.skipif(find_spec("zstandard") is None, reason="zstandard is not installed")


def jpeg(seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 255, (8 + seed, 12, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "JPEG", quality=70)
    return out.getvalue()


def sample(i: int) -> dict[str, Any]:
    return {"image": jpeg(i), "label": i % 2, "facts": {"score": i / 2}, "values": np.full(3, i, "f4")}


def writer(path: Path, fields: Any = None, **options: Any) -> DatasetWriter:
    return DatasetWriter(path, fields, **{"num_workers": 0, "progress": False, **options})


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "photos"
    writer(path, FIELDS, samples_per_shard=5).from_indexed_dataset([sample(i) for i in range(COUNT)])
    return path


def records(path: Path) -> tuple[Any, list[bytes]]:
    with FileReader(path) as reader:
        return schema_of(reader), [record.tobytes() for record in reader]


def same(path: Path, photos: Path, indices: Any) -> bool:
    schema, all_records = records(photos)
    return records(path) == (schema, [all_records[i] for i in indices])


SOURCES = {
    "a reader": (lambda reader: reader, range(COUNT)),
    "a slice": (lambda reader: reader[2:9:3], range(2, 9, 3)),
    "a slice of a slice": (lambda reader: reader[::-1][1:4], range(COUNT - 2, COUNT - 5, -1)),
    "several": (lambda reader: [reader, reader[:2], reader], [*range(COUNT), 0, 1, *range(COUNT)]),
    "no samples": (lambda reader: reader[:0], []),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_records_are_copied(tmp_path: Path, photos: Path, source: str, workers: int) -> None:
    make, indices = SOURCES[source]
    with FileReader(photos) as reader:
        writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(make(reader))
        writer(tmp_path / "b", num_workers=workers, samples_per_shard=3).from_iterable(
            make(reader), length=len(indices)
        )
        ffrecord.convert(make(reader), tmp_path / "c", num_workers=workers, verify=True)
    assert all(same(tmp_path / name, photos, indices) for name in "abc")


def test_some_of_them_shuffled(tmp_path: Path, photos: Path) -> None:
    with FileReader(photos) as reader:
        chosen = writer(tmp_path / "a").from_indexed_dataset(reader[3:], indices=[-1, 0, 0, 4])
        assert chosen.samples == 4
        assert same(tmp_path / "a", photos, [COUNT - 1, 3, 3, 7])
        # As many as are asked for at once.
        order = [9, 2, 7, 7, 0, 3, 8, 1, 5, 4]
        writer(tmp_path / "c").from_indexed_dataset(reader[2:], indices=order)
        assert same(tmp_path / "c", photos, [2 + i for i in order])
        writer(tmp_path / "b").from_indexed_dataset(reader, shuffle_indices=True, seed=7)
    schema, found = records(tmp_path / "b")
    assert found != records(photos)[1] and (schema, sorted(found)) == (records(photos)[0], sorted(records(photos)[1]))


def test_a_length_that_is_another(tmp_path: Path, photos: Path) -> None:
    with FileReader(photos) as reader, pytest.raises(ValueError, match=f"gives {COUNT} samples, but length is 3"):
        writer(tmp_path / "a").from_iterable(reader, length=3)


def test_appended(tmp_path: Path, photos: Path) -> None:
    with FileReader(photos) as reader:
        writer(tmp_path / "a").from_indexed_dataset(reader[:3])
        for number in range(2):
            writer(tmp_path / "a", mode="append").from_indexed_dataset(reader[3 + number : 5])
    assert same(tmp_path / "a", photos, [0, 1, 2, 3, 4, 4])


def test_appended_to_other_fields_of_the_same_columns(tmp_path: Path, photos: Path) -> None:
    """In another order, arrays of varying shape, other numbers for the same classes."""
    there = {
        "label": LabelField(["dog", "cow", "cat"]),
        "values": NDArrayField("f4", (None,)),
        "image": JPEGField(quality=50),
        "facts": JSONField(),
    }
    writer(tmp_path / "a", there).from_indexed_dataset([sample(0) | {"values": np.zeros(1, "f4"), "label": "cow"}])
    with FileReader(photos) as reader:
        writer(tmp_path / "a", mode="append").from_indexed_dataset(reader[1:3])
    schema, found = records(tmp_path / "a")
    read = schema.replace({"image": JPEGField(as_bytes=True)})
    decoded = [read.decode(record) for record in found]
    assert [each["label"] for each in decoded] == [1, 0, 2]
    assert [each["image"] for each in decoded] == [jpeg(0), jpeg(1), jpeg(2)]
    assert decoded[2]["values"].tolist() == [2, 2, 2]


@COMPRESSED
def test_fields_are_encoded_anew_only_where_they_differ(tmp_path: Path, photos: Path) -> None:
    with FileReader(photos) as reader:
        writer(tmp_path / "a", {"facts": ZstdField(JSONField())}).from_indexed_dataset(reader)
        writer(tmp_path / "b", FIELDS).from_indexed_dataset(reader)
        with pytest.raises(ValueError, match="fields has 'mask', expected some of the columns image, label, facts"):
            writer(tmp_path / "c", {"mask": BytesField()}).from_indexed_dataset(reader)
    schema, found = records(tmp_path / "a")
    assert schema.fields == {**FIELDS, "facts": ZstdField(JSONField())}
    read = schema.replace({"image": JPEGField(as_bytes=True)})
    assert [read.decode(record)["image"] for record in found] == [jpeg(i) for i in range(COUNT)]
    assert schema.decode(found[5])["facts"] == {"score": 2.5}
    assert same(tmp_path / "b", photos, range(COUNT))


@pytest.mark.parametrize(
    ("around", "value", "expected"),
    [
        pytest.param(ZstdField, 0, 2, marks=COMPRESSED),
        (OptionalField, 1, 0),
        (OptionalField, None, None),
        (lambda field: ListField(OptionalField(field)), [0, None, 1], [2, None, 0]),
        (lambda field: OptionalField(ListField(ListField(field))), [[], [0, 1]], [[], [2, 0]]),
    ],
)
@pytest.mark.parametrize("call", ["convert", "write"])
def test_classes_inside_of_another_field_are_not_mistaken(
    tmp_path: Path, call: str, around: Any, value: Any, expected: Any
) -> None:
    writer(tmp_path / "a", {"x": around(LabelField(["a", "b"]))}).from_indexed_dataset([{"x": value}])
    fields = {"x": around(LabelField(["b", "c", "a"]))}
    with FileReader(tmp_path / "a") as reader:
        if call == "convert":
            ffrecord.convert(reader, tmp_path / "b", fields=fields, num_workers=0, verify=True)
        else:
            writer(tmp_path / "b", fields).from_indexed_dataset(reader)
    with FileReader(tmp_path / "b") as reader:
        assert reader.samples([0]) == [{"x": expected}]


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    plain = [b"one", b"", bytes(range(256))]
    with ffrecord.FileWriter(tmp_path / "a.ffr") as file:
        file.write_many(plain)
    with FileReader(tmp_path / "a.ffr") as reader:
        writer(tmp_path / "b").from_indexed_dataset(reader)
        writer(tmp_path / "c").from_iterable(reader[1:])
    assert records(tmp_path / "b") == (None, plain)
    assert records(tmp_path / "c") == (None, plain[1:])


def test_the_name_of_the_serializer_stays(tmp_path: Path) -> None:
    writer(tmp_path / "a", serializer=pickle.dumps).from_indexed_dataset([1, 2])
    with FileReader(tmp_path / "a") as reader:
        writer(tmp_path / "b").from_indexed_dataset(reader)
        dump(reader, tmp_path / "c.ffr", 1)
        writer(tmp_path / "a", mode="append").from_indexed_dataset(reader)
        # Another serializer takes what reader[i] gives.
        writer(tmp_path / "d", serializer=bytes).from_indexed_dataset(reader)
    for name in ("b", "c.ffr"):
        with FileReader(tmp_path / name) as reader:
            assert reader.extension is not None and reader.extension.serializer == "_pickle.dumps"
            assert [pickle.loads(record) for record in reader] == [1, 2]
    assert [pickle.loads(record) for record in records(tmp_path / "a")[1]] == [1, 2, 1, 2]


@pytest.mark.parametrize("files", [1, 2])
def test_dumped(tmp_path: Path, photos: Path, files: int) -> None:
    path = tmp_path / ("a.ffr" if files == 1 else "a")
    with FileReader(photos) as reader:
        dump(reader[1:], path, files)
    assert same(path, photos, range(1, COUNT))


class Own(FileReader[Any]):
    """A reader whose samples are its own."""

    def __getitem__(self, index: Any) -> Any:
        return {"size": len(super().__getitem__(index))}


def test_a_reader_that_decodes_gives_its_samples(tmp_path: Path, photos: Path) -> None:
    with Own(photos) as reader:
        writer(tmp_path / "a").from_indexed_dataset(reader)
    schema, found = records(tmp_path / "a")
    assert (schema.fields, len(found)) == ({"size": IntField()}, COUNT)


def test_other_columns_beside_are_refused(tmp_path: Path, photos: Path) -> None:
    writer(tmp_path / "a").from_indexed_dataset([{"x": 1}])
    with (
        FileReader(photos) as reader,
        FileReader(tmp_path / "a") as other,
        pytest.raises(MismatchError, match=r"its columns differ from those of .*photos.*: x IntField\(\), there image"),
    ):
        writer(tmp_path / "b").from_indexed_dataset([reader, other])
    assert not (tmp_path / "b").exists()


def test_members_whose_fields_are_made_the_same(tmp_path: Path) -> None:
    for name, shape in (("a", 2), ("b", 3)):
        writer(tmp_path / name).from_indexed_dataset([{"x": np.full(shape, i, "i4"), "i": i} for i in range(6)])
    with FileReader(tmp_path / "a") as one, FileReader(tmp_path / "b") as other:
        fields = {"x": NDArrayField("i4", (None,))}
        writer(tmp_path / "c", fields, num_workers=2).from_indexed_dataset([one, other])
        writer(tmp_path / "d", fields).from_indexed_dataset([one, other], indices=[11, 0, 7, 3, 6, 2, 1, 10])
    schema, found = records(tmp_path / "c")
    assert [schema.decode(record)["x"].tolist() for record in found] == [[i] * n for n in (2, 3) for i in range(6)]
    assert records(tmp_path / "d") == (schema, [found[i] for i in (11, 0, 7, 3, 6, 2, 1, 10)])


def damaged(photos: Path, path: Path) -> Path:
    """A copy in which record 7 is damaged."""
    path.mkdir()
    for file in photos.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    with FileReader(path) as reader:
        name, local = reader.locate(7)
        offset = int(reader.get_offsets(1)[local])
    data = bytearray(Path(name).read_bytes())
    data[offset + 5] ^= 1
    Path(name).write_bytes(data)
    return path


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("workers", [0, 2])
def test_damage_is_no_sample(tmp_path: Path, photos: Path, workers: int, on_error: Any) -> None:
    path = damaged(photos, tmp_path / "damaged")
    with FileReader(path, on_error=on_error) as reader:
        with pytest.raises(WorkerError, match=r"failed at sample 7: .*ChecksumError"):
            writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(reader)
        with pytest.raises(WorkerError, match=r"failed at sample 2 \(.*: sample 2\): .*ChecksumError") as caught:
            writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(reader[5:])
        assert workers or isinstance(caught.value.__cause__, ChecksumError)
        done = writer(tmp_path / "b", num_workers=workers, on_error="skip").from_indexed_dataset(reader)
    assert (done.samples, done.skipped) == (COUNT - 1, 1)
    assert same(tmp_path / "b", photos, [i for i in range(COUNT) if i != 7])


def test_a_bad_member_of_one_archive_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for i in range(3):
            file.writestr(f"{i}.jpg", jpeg(i) if i < 2 else b"no JPEG")
    with ffrecord.open(archive) as store:
        for given, index in ((store, 2), (store[1:], 1)):
            told = rf"failed at sample {index} \({archive}: member '2\.jpg'\): "
            with pytest.raises(WorkerError, match=told):
                writer(tmp_path / "out", {"data": JPEGField()}).from_indexed_dataset(given)


def test_a_write_of_other_records_is_not_gone_on_with(tmp_path: Path, photos: Path) -> None:
    path = damaged(photos, tmp_path / "damaged")
    with FileReader(path) as reader:
        with pytest.raises(WorkerError):
            writer(tmp_path / "a", samples_per_shard=2).from_indexed_dataset(reader, chunksize=1)
        with pytest.raises(MismatchError, match="fingerprint was"):
            writer(tmp_path / "a", samples_per_shard=2).from_indexed_dataset(reader[:])


def test_archives_and_folders_are_written_as_convert_does(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i in range(5):
            archive.writestr(f"{i}.txt", "x" * i)
    for name in ("cat", "dog"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        for i in range(2):
            (tmp_path / "folder" / name / f"{i}.jpg").write_bytes(jpeg(i))
    ffrecord.pack_folder(tmp_path / "folder", tmp_path / "packed.ffr")
    sources = [
        ffrecord.open(tmp_path / "a.zip"),
        ffrecord.open(tmp_path / "folder"),
        ffrecord.PackedFolder(tmp_path / "packed.ffr"),
    ]
    for number, source in enumerate(sources):
        with source:
            paths = [tmp_path / f"{number}{kind}" for kind in ("converted", "written", "iterated")]
            ffrecord.convert(source, paths[0], num_workers=0)
            writer(paths[1]).from_indexed_dataset(source)
            writer(paths[2]).from_iterable(source)
        assert records(paths[0]) == records(paths[1]) == records(paths[2])
    assert records(tmp_path / "1written")[0].fields == {
        "key": StrField(),
        "image": JPEGField(),
        "label": LabelField(["cat", "dog"]),
    }
    assert records(tmp_path / "2written")[0].columns == ("key", "data")


@pytest.mark.parametrize(
    "around",
    [lambda field: field, OptionalField, pytest.param(ZstdField, marks=COMPRESSED)],
    ids=["plain", "optional", "zstd"],
)
@pytest.mark.parametrize("call", ["convert", "write"])
def test_classes_in_another_order(tmp_path: Path, call: str, around: Any) -> None:
    """The numbers of a folder's classes are those of its names, not of the field that is asked for."""
    for name in ("cat", "dog"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "a.jpg").write_bytes(jpeg(1))
    fields = {"label": around(LabelField(["dog", "cow", "cat"]))}
    with ffrecord.open(tmp_path / "folder") as store:
        if call == "convert":
            ffrecord.convert(store, tmp_path / "a", fields=fields, num_workers=0, verify=True)
        else:
            writer(tmp_path / "a", fields).from_indexed_dataset(store)
    with FileReader(tmp_path / "a") as reader:
        assert {each["key"]: each["label"] for each in reader.samples([0, 1])} == {"cat/a.jpg": 2, "dog/a.jpg": 0}


@pytest.mark.parametrize("call", ["from_indexed_dataset", "from_iterable"])
def test_no_place_inside_an_image_folder_that_is_read(tmp_path: Path, call: str) -> None:
    """What is written there would be a class of its own, and no picture: the folder could not be opened any more."""
    for name in "ab":
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "1.jpg").write_bytes(jpeg(1))
    with ffrecord.open(tmp_path / "in") as reader:
        for source in (reader, reader[:1]):
            for out in ("in/out", "in/a/out"):
                with pytest.raises(ArgumentError, match=r"out is inside .*in, which is read: choose a place outside"):
                    getattr(writer(tmp_path / out), call)(source)
        assert getattr(writer(tmp_path / "beside"), call)(reader).samples == 2
    assert sorted(path.name for path in (tmp_path / "in").rglob("*")) == ["1.jpg", "1.jpg", "a", "b"]


@pytest.mark.parametrize("call", ["convert", "writer"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "it is a Git LFS pointer: run `git lfs pull`"),
        (b"<html><body>404</body></html>", "it is an HTML page"),
    ],
)
def test_files_in_place_of_pictures(tmp_path: Path, call: str, data: bytes, said: str) -> None:
    """They became a column of bytes, with no error, if all of a folder were such."""
    folder = tmp_path / "photos" / "cats"
    folder.mkdir(parents=True)
    for i in range(3):
        (folder / f"{i}.jpg").write_bytes(data)
    with pytest.raises(FormatError, match=rf"^sample 0 \({folder}/0\.jpg\): it is not an image; {said}"):
        if call == "convert":
            ffrecord.convert(folder.parent, tmp_path / "out")
        else:
            DatasetWriter(tmp_path / "out", num_workers=0).from_indexed_dataset(ffrecord.open(folder.parent))
    assert not (tmp_path / "out").exists()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"


def archive(path: Path, names: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as made:
            for name, data in names.items():
                made.writestr(name, data)
        return path
    with tarfile.open(path, "w") as tar:
        for name, data in names.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("pointers", [[3], range(6)], ids=["one", "all"])
@pytest.mark.parametrize(
    ("name", "format", "place"),
    [
        ("a.tar", "tar", "member '{}.jpg'[)]: it is"),
        ("a.zip", "zip", "member '{}.jpg'[)]: it is"),
        ("a.tar", "webdataset", "sample '{}'[)]: field 'jpg' is"),
    ],
)
def test_pointers_in_place_of_pictures_of_archives(
    tmp_path: Path, pointers: Any, name: str, format: str, place: str
) -> None:
    """They became a column of bytes, with no error."""
    members = {f"{i}.jpg": POINTER if i in pointers else jpeg(i) for i in range(6)}
    path = archive(tmp_path / name, members)
    first = rf"sample {pointers[0]} [(]{path}: {place.format(pointers[0])} not an image; it is a Git LFS pointer"
    for workers in (0, 1):
        with pytest.raises(FormatError, match=first):
            ffrecord.convert(path, tmp_path / "out", format=format, num_workers=workers)
    if pointers == [3]:
        ffrecord.convert(path, tmp_path / "out", format=format, num_workers=0, max_skipped=1)
        with FileReader(tmp_path / "out") as reader:
            schema = schema_of(reader)
            assert schema is not None and JPEGField() in schema.fields.values() and len(reader) == 5


@pytest.mark.parametrize(
    ("format", "place"), [("tar", "'3.jpg': it is not an image"), ("webdataset", "'3': field 'jpg' is not an image")]
)
def test_pointers_in_compressed_archives(tmp_path: Path, format: str, place: str) -> None:
    members = {f"{i}.jpg": POINTER if i == 3 else jpeg(i) for i in range(6)}
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(archive(tmp_path / "a.tar", members).read_bytes()))
    with pytest.raises(FormatError, match=f"^{packed}: {place}; it is a Git LFS pointer"):
        ffrecord.convert(packed, tmp_path / "out", format=format, num_workers=0)


def test_a_pointer_that_is_not_looked_at_at_first(tmp_path: Path) -> None:
    """One other file among pictures makes their column bytes, and bytes take anything."""
    members = {f"{i:03}.jpg": b"no picture" if i == 0 else POINTER if i == 1 else b"\xff\xd8" for i in range(300)}
    path = archive(tmp_path / "a.zip", members)
    for workers in (0, 2):
        with pytest.raises(FFRecordError, match=r"001\.jpg'\): it is not an image; it is a Git LFS pointer"):
            ffrecord.convert(path, tmp_path / "out", num_workers=workers)


PAGE = b"<!DOCTYPE html>\n<html></html>"


@pytest.mark.parametrize("max_skipped", [0, 9])
@pytest.mark.parametrize("format", ["tar", "webdataset"])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
@pytest.mark.parametrize(
    ("end", "data", "said"),
    [
        ("jpg", POINTER, "not an image; it is a Git LFS pointer: run `git lfs pull`"),
        ("jpg", PAGE, "not an image; it is an HTML page"),
        ("npy", POINTER, "not a file of data; it is a Git LFS pointer: run `git lfs pull`; to keep it all the same"),
        ("bin", PAGE, "not a file of data; it is an HTML page"),
        ("txt", POINTER, "not a file of data; it is a Git LFS pointer"),
    ],
)
def test_archives_of_nothing_but_pointers_or_pages(
    tmp_path: Path, name: str, format: str, end: str, data: bytes, said: str, max_skipped: int
) -> None:
    """A compressed one became bytes with `max_skipped`, and one of other files than pictures always."""
    path = archive(tmp_path / name.removesuffix(".gz"), {f"{i}.{end}": data for i in range(6)})
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    options: Any = {} if name == "a.zip" else {"format": format}
    with pytest.raises(FormatError, match=rf"{tmp_path / name}.*'0.*: (it|field '{end}') is {said}"):
        ffrecord.convert(tmp_path / name, tmp_path / "out", num_workers=0, max_skipped=max_skipped, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", ["tar", "webdataset"])
@pytest.mark.parametrize("workers", [0, 2])
def test_pointers_in_compressed_archives_are_left_out(
    tmp_path: Path, format: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    members = {f"{i:03}.jpg": POINTER if i in (0, 5, 90) else jpeg(i % 9) for i in range(99)}
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(archive(tmp_path / "a.tar", members).read_bytes()))
    done = ffrecord.convert(packed, tmp_path / "out", format=format, num_workers=workers, max_skipped=3)
    assert (done.samples, done.skipped) == (96, 3)
    assert caplog.text.count("is not an image; it is a Git LFS pointer") == 3
    with FileReader(tmp_path / "out") as reader:
        schema = schema_of(reader)
        assert schema is not None and JPEGField() in schema.fields.values()
        assert [members["001.jpg"] in record.tobytes() for record in reader.read([0, 1])] == [True, False]


def test_pointers_and_pages_that_are_wanted(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"a.txt": POINTER, "b.bin": POINTER})
    fields = {"data": BytesField()}
    assert ffrecord.convert(path, tmp_path / "out", num_workers=0, fields=fields).samples == 2
    path = archive(tmp_path / "b.zip", {"a.html": PAGE, "b.txt": PAGE, "c": PAGE})
    assert ffrecord.convert(path, tmp_path / "pages", num_workers=0).samples == 3


def test_keys_that_come_again_in_an_archive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An archive with all pictures before all labels became twice as many samples, in silence."""
    names = [f"{i}.{end}" for end in ("txt", "cls") for i in range(3)]
    apart = archive(tmp_path / "apart.tar", dict.fromkeys(names, b"1"))
    together = archive(tmp_path / "together.tar", dict.fromkeys(sorted(names), b"1"))
    convert = partial(ffrecord.convert, format="webdataset", num_workers=0)
    assert convert(apart, tmp_path / "a").samples == 6
    assert f"{apart}: 3 samples have the key of an earlier one, such as '0': the files" in caplog.text
    caplog.clear()
    packed = tmp_path / "packed.tgz"  # read once, in a stream
    packed.write_bytes(gzip.compress(apart.read_bytes()))
    assert convert(packed, tmp_path / "c").samples == 6
    assert f"{packed}: 3 samples have the key of an earlier one, such as '0': the files" in caplog.text
    caplog.clear()
    assert convert([together, shutil.copy(together, tmp_path / "again.tar")], tmp_path / "b").samples == 6
    assert not caplog.records

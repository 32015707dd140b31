"""Every format converted, and what the original systems wrote, value by value."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from every_format import FORMATS, GOLDEN, RECORDS

import ffrecord
from ffrecord import FileReader, WorkerError
from ffrecord.conversion import convert
from ffrecord.errors import FormatError, MissingNamesError
from ffrecord.fields import BytesField, IntField, LabelField, schema_of
from ffrecord.sources.tfrecord.examples import FeatureKindError, VarFeature, encode_example
from ffrecord.sources.tfrecord.writer import TFRecordWriter

MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())


def result(path: Path) -> list[dict]:
    with FileReader(path) as reader:
        schema = schema_of(reader)
        return [schema.decode(record) for record in reader]


def sha256(data) -> str:
    return hashlib.sha256(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()).hexdigest()


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "ffrecord"])
def test_records_of_every_format(tmp_path, name):
    _, make, options = FORMATS[name]
    source = make(tmp_path)
    summary = convert(source, tmp_path / "out", num_workers=0, verify=True, **options)
    assert summary.samples == len(RECORDS)
    found = result(tmp_path / "out")
    (column,) = {"data", "image"} & found[0].keys()
    assert [each[column] for each in found] == RECORDS
    with ffrecord.open(source, **options) as store:
        if "key" in found[0]:
            assert [each["key"] for each in found] == list(store.keys())
        else:  # nothing that could be lost
            with pytest.raises(MissingNamesError):
                store.keys()


@pytest.fixture
def golden(tmp_path):
    """The samples of a golden file, converted by two workers and verified."""

    def converted(name: str) -> list[dict]:
        source = GOLDEN / name
        copied = tmp_path / name
        shutil.copytree(source, copied) if source.is_dir() else shutil.copy(source, copied)
        convert(copied, tmp_path / "out", num_workers=2, verify=True)
        found = result(tmp_path / "out")
        assert len(found) == MANIFEST[name]["n"]
        return found

    return converted


def test_recordio(golden):
    assert [sha256(each["data"]) for each in golden("a_snappy.recordio")] == MANIFEST["a_snappy.recordio"]["sha256"]


def test_torchrecord(golden):
    for found, expected in zip(golden("torchrecord_lmdb"), MANIFEST["torchrecord_lmdb"]["samples"], strict=True):
        assert sha256(found["image"]) == expected["sha256"] and found["label"] == expected["label"]
        assert list(found["image"].shape) == [*expected["size"][::-1], 3]


def test_examples(golden):
    for found, expected in zip(golden("examples.tfrecord"), MANIFEST["examples.tfrecord"]["samples"], strict=True):
        assert sha256(found["image"]) == expected["image_sha256"]
        assert np.array_equal(found["vec"], np.array(expected["vec"], np.float32))
        assert found["ids"].tolist() == expected["ids"]


def test_features_that_are_asked_for(tmp_path):
    features = {"ids": VarFeature("int64")}
    convert(GOLDEN / "examples.tfrecord", tmp_path / "out", features=features, num_workers=0, verify=True)
    expected = [{"ids": each["ids"]} for each in MANIFEST["examples.tfrecord"]["samples"]]
    assert [{"ids": each["ids"].tolist()} for each in result(tmp_path / "out")] == expected


def test_a_feature_that_comes_late_is_not_lost(tmp_path):
    with TFRecordWriter(tmp_path / "x.tfrecord") as writer:
        for i in range(200):
            writer.write(encode_example({"a": i} if i != 150 else {"a": i, "late": 3.5}))
    with pytest.raises(
        WorkerError, match=r"x\.tfrecord: record 150: it has the feature 'late', which no example looked at has"
    ):
        convert(tmp_path / "x.tfrecord", tmp_path / "out", num_workers=0)
    convert(tmp_path / "x.tfrecord", tmp_path / "out", fields={"data": BytesField()}, num_workers=0, verify=True)


def unset(name):
    """An entry of a feature that holds nothing of any kind, as TFX writes what is missing."""
    entry = b"\x0a" + bytes([len(name)]) + name + b"\x12\0"
    return b"\x0a" + bytes([len(entry) + 2]) + b"\x0a" + bytes([len(entry)]) + entry


@pytest.mark.parametrize("count", [3, 200])
def test_features_without_values(tmp_path, count):
    """Two messages one after the other are one, with the entries of both."""
    with TFRecordWriter(tmp_path / "x.tfrecord") as writer:
        for i in range(count):
            some = encode_example({"some": i} if i % 2 else {}) + (unset(b"some") if not i % 2 else b"")
            writer.write(encode_example({"a": i}) + unset(b"never") + some)
    convert(tmp_path / "x.tfrecord", tmp_path / "out", num_workers=0, verify=True)
    found = result(tmp_path / "out")
    assert [*found[0]] == ["a", "some"] and [each["a"] for each in found] == [*range(count)]
    assert [each["some"].tolist() for each in found] == [[i] if i % 2 else [] for i in range(count)]


def test_a_feature_of_two_kinds(tmp_path):
    """Named, wherever it is found; not made bytes in silence."""
    for name, place, count in (("few", 3, 5), ("late", 150, 300)):
        with TFRecordWriter(tmp_path / f"{name}.tfrecord") as writer:
            for i in range(count):
                writer.write(encode_example({"x": 0.5 if i == place else i}))
        with pytest.raises(
            (FeatureKindError, WorkerError), match=rf"{name}\.tfrecord: record {place}: feature 'x'.* int64"
        ):
            convert(tmp_path / f"{name}.tfrecord", tmp_path / "out", num_workers=0)
        assert not (tmp_path / "out").exists()
        convert(tmp_path / f"{name}.tfrecord", tmp_path / name, fields={"data": BytesField()}, num_workers=0)


def test_records_that_are_kept_as_bytes_are_told(tmp_path, caplog):
    with TFRecordWriter(tmp_path / "wide.tfrecord") as writer:
        for i in range(5):
            writer.write(encode_example({"n" * 5000: 1} if i == 3 else {"x": i}))
    convert(tmp_path / "wide.tfrecord", tmp_path / "wide", num_workers=0, verify=True)
    assert [*result(tmp_path / "wide")[0]] == ["data"]
    assert "wide.tfrecord: " in caplog.text and "stored as bytes" in caplog.text


SEQUENCE = b"\x12\x06\x0a\x04\x0a\x00\x12\x00"  # with a list whose name is empty


@pytest.mark.parametrize("count", [2, 5, 300])
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("other", [b"no example", b"\x0a\x0c\x0a\x08", SEQUENCE, b"\0"], ids=repr)
def test_a_record_that_is_no_example_is_damage(tmp_path, count, place, other):
    """It does not make the whole source bytes; wherever it is, and whether it was looked at."""
    place %= count
    for file in "ab":
        with TFRecordWriter(tmp_path / f"{file}.tfrecord") as writer:
            for i in range(count):
                writer.write(other if (file, i) == ("b", place) else encode_example({"x": i}))
    source = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    named = rf"[Ss]ample {count + place}: .*b\.tfrecord: record {place}: "
    with pytest.raises((FormatError, WorkerError), match=named) as caught:
        convert(source, tmp_path / "out", num_workers=0)
    if count < 30:  # it was looked at
        assert f"{2 * count - 1} of {2 * count} records" in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert convert(source, tmp_path / "skipped", num_workers=0, max_skipped=1).samples == 2 * count - 1
    assert [each["x"] for each in result(tmp_path / "skipped")][:2] == ([1, 0] if count == 1 else [0, 1])
    convert(source, tmp_path / "bytes", num_workers=0, fields={"data": BytesField()})
    assert bytes(result(tmp_path / "bytes")[count + place]["data"]) == other


@pytest.mark.parametrize("records", [[b"", b"text", b"more"], [b"\x0a\x00", b"text"], [b"text"] * 3, [b"", b""]])
def test_records_that_show_no_features_are_bytes_or_empty(tmp_path, records):
    """An empty record is an Example, too, and says nothing about the others."""
    with TFRecordWriter(tmp_path / "x.tfrecord") as writer:
        for record in records:
            writer.write(record)
    convert(tmp_path / "x.tfrecord", tmp_path / "out", num_workers=0, verify=True)
    found = result(tmp_path / "out")
    assert len(found) == len(records)
    if any(records):
        assert [bytes(each["data"]) for each in found] == records


def test_files_that_tensorflow_calls_so(tmp_path):
    """A directory of shards, empty ones among them."""
    for number, count in enumerate((0, 3, 2)):
        for stem in ("a/x.tfrecord", "b/train"):
            path = tmp_path / f"{stem}-{number:05}-of-00003"
            path.parent.mkdir(exist_ok=True)
            with TFRecordWriter(path) as writer:
                for i in range(count):
                    writer.write(encode_example({"x": 10 * number + i}))
    for name in "ab":
        convert(tmp_path / name, tmp_path / f"{name}.out", num_workers=0, verify=True)
        assert [each["x"] for each in result(tmp_path / f"{name}.out")] == [10, 11, 12, 20, 21]
        with ffrecord.open(tmp_path / name, features="infer") as reader:
            assert len(reader) == 5 and reader.sample(3)["x"] == 20


@pytest.mark.parametrize("kind", ["nothing", "fifo", "directory", "other number"])
def test_a_shard_that_is_not_there(tmp_path, caplog, kind):
    """It is no error, as one may want a part of a dataset; but it is told."""
    for number in range(3):
        with TFRecordWriter(tmp_path / f"x.tfrecord-{number:05}-of-00003") as writer:
            writer.write(encode_example({"x": number}))
    with ffrecord.open(tmp_path) as reader:
        assert len(reader) == 3
    assert not caplog.text
    gone = tmp_path / "x.tfrecord-00001-of-00003"
    gone.unlink()
    if kind == "fifo":
        os.mkfifo(gone)
    elif kind == "directory":
        gone.mkdir()
    elif kind == "other number":
        (tmp_path / "x.tfrecord-00000-of-00003").rename(tmp_path / "x.tfrecord-00000-of-00004")
    with ffrecord.open(tmp_path) as reader:
        assert len(reader) == 2
    count = "1 file" if kind == "other number" else "2 files"
    assert f"{tmp_path}: it has {count} called x.tfrecord-…-of-00003, expected 3" in caplog.text


@pytest.mark.parametrize("workers", [0, 2])
def test_classes_whose_names_are_no_utf_8(tmp_path, caplog, workers):
    for name in (b"caf\xe9", b"cat"):
        folder = os.path.join(os.fsencode(tmp_path / "in"), name)
        os.makedirs(folder)
        with open(os.path.join(folder, b"1.jpg"), "wb") as file:
            file.write(b"\xff\xd8\xff")
    convert(tmp_path / "in", tmp_path / "out", num_workers=workers, verify=True)
    assert [each["key"] for each in result(tmp_path / "out")] == [b"caf\xe9/1.jpg", b"cat/1.jpg"]
    with FileReader(tmp_path / "out") as reader:
        assert schema_of(reader).fields["label"] == LabelField(["caf\\xe9", "cat"])
    assert "is not UTF-8, so it is called 'caf\\\\xe9'" in caplog.text
    for source in ("in", "out"):
        ffrecord.export(tmp_path / source, tmp_path / f"{source}.folder", "folder", verify=True, progress=False)
        assert json.loads((tmp_path / f"{source}.folder/classes.json").read_text()) == {"label": ["caf\\xe9", "cat"]}
    (tmp_path / "in" / "caf\\xe9").mkdir()
    with pytest.raises(FormatError, match=r"two classes would be called 'caf.*rename a directory"):
        convert(tmp_path / "in", tmp_path / "again", num_workers=0)


def test_a_class_that_utf_8_does_not_hold():
    with pytest.raises(ValueError, match=r"names.*: UTF-8 cannot encode character"):
        LabelField(["a", "\udce9"])


def sequence_example(i):
    """The Example {"a": i} with a list, as a SequenceExample has one: field 2, its map entry, key and value."""
    return encode_example({"a": i}) + b"\x12\x09\x0a\x07\x0a\x03tok\x12\x00"


def test_lists_of_sequence_examples_are_not_lost(tmp_path):
    records = [sequence_example(i) for i in range(3)]
    with TFRecordWriter(tmp_path / "x.tfrecord") as writer:
        for record in records:
            writer.write(record)
    convert(tmp_path / "x.tfrecord", tmp_path / "out", num_workers=0, verify=True)
    assert [bytes(each["data"]) for each in result(tmp_path / "out")] == records
    with TFRecordWriter(tmp_path / "late.tfrecord") as writer:
        for i in range(200):
            writer.write(encode_example({"a": i}) if i != 150 else sequence_example(i))
    with pytest.raises(WorkerError, match=r"late\.tfrecord: record 150: it has the list 'tok' of a SequenceExample"):
        convert(tmp_path / "late.tfrecord", tmp_path / "late", num_workers=0)


def test_mds(golden):
    for found, expected in zip(golden("mds"), MANIFEST["mds"]["samples"], strict=True):
        assert (sha256(found["x"]), found["y"], found["t"]) == (expected["x_sha256"], expected["y"], expected["t"])


def test_beton(golden):
    for found, expected in zip(golden("mixed.beton"), MANIFEST["mixed.beton"]["samples"], strict=True):
        assert (found["label"], found["score"], found["meta"]) == tuple(
            expected[key] for key in ("label", "score", "meta")
        )
        assert sha256(found["vec"]) == expected["vec_sha256"] and sha256(found["blob"]) == expected["blob_sha256"]
        assert sha256(found["img"]) == expected["img_sha256"]


def test_an_image_folder_keeps_its_classes(tmp_path):
    source = FORMATS["image folder"][1](tmp_path)
    convert(source, tmp_path / "out", num_workers=0, verify=True)
    with FileReader(tmp_path / "out") as reader:
        field = schema_of(reader).fields["label"]
    assert isinstance(field, LabelField) and field.names == ("class0", "class1")
    assert [each["label"] for each in result(tmp_path / "out")] == [0, 0, 0, 1, 1, 1]


def test_a_list_of_paths_and_numbers(tmp_path):
    source = FORMATS["path list"][1](tmp_path)
    convert(source, tmp_path / "out", format="path list", num_workers=0, verify=True)
    with FileReader(tmp_path / "out") as reader:
        assert isinstance(schema_of(reader).fields["label"], IntField)
    assert [each["label"] for each in result(tmp_path / "out")] == list(range(6))

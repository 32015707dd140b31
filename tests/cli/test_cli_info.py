"""`ffrecord info`: the facts of datasets, in words and as JSON, without reading them."""

import json
import os
import re
import zipfile

import builders
import numpy as np
import pytest
from cli_runs import run

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.fields import LabelField, NDArrayField, Schema
from ffrecord.fields.spec import field_from_spec


@pytest.fixture
def dataset(tmp_path):
    """30 typed samples in 3 shards."""
    path = tmp_path / "train"
    samples = [{"x": np.full(3, i, np.float32), "label": i % 5} for i in range(30)]
    DatasetWriter(path, samples_per_shard=10, num_workers=1, progress=False).from_indexed_dataset(samples)
    return path


def facts(*arguments):
    ran = run("info", *arguments, "--json")
    assert ran.err == ""
    return ran.code, json.loads(ran.out)


def test_a_dataset(dataset):
    code, found = facts(dataset)
    with ffrecord.FileReader(dataset) as reader:
        assert found["samples"] == reader.n == 30
    sizes = [os.path.getsize(path) for path in dataset.glob("*.ffr")]
    assert (code, found["files"], found["bytes"]) == (0, 3, sum(sizes))
    assert found["format"] == "ffrecord"
    assert set(found["schema"]) == {"x", "label"}
    assert found["writer"].startswith("ffrecord ")
    assert found["wrong"] == []


def test_a_shard_that_is_missing_and_one_that_was_cut(dataset):
    first, second, _ = sorted(dataset.glob("*.ffr"))
    first.unlink()
    os.truncate(second, 100)
    code, found = facts(dataset)
    assert code == 1
    assert found["wrong"][0] == f"{first.name} is missing"
    assert "has 100 bytes, expected" in found["wrong"][1]


def test_one_file_in_words(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", builders.small())
    ran = run("info", path)
    assert (ran.code, ran.err) == (0, "")
    lines = dict(re.split("  +", line, maxsplit=1) for line in ran.out.splitlines())
    assert (lines["format"], lines["samples"], lines["bytes"]) == ("ffrecord", "8", "404")


def test_another_format(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.txt", "1")
        archive.writestr("two.txt", "22")
    code, found = facts(tmp_path / "a.zip")
    assert (code, found["format"], found["samples"], found["names"], found["checksum"]) == (0, "zip", 2, True, "CRC-32")


def test_files_of_an_image_folder_are_not_looked_at(tmp_path):
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "1.jpg").write_bytes(b"\xff\xd8\xff")
    code, found = facts(tmp_path / "photos")
    assert (code, found["samples"], found["bytes"], found["size"]) == (0, 1, None, None)
    assert (found["files"], found["classes"]) == (1, ["cat"])
    for i in range(12):
        (tmp_path / "photos" / f"dog {i}").mkdir()
    said = run("info", tmp_path / "photos").out
    assert "\nclasses      cat, dog 0, dog 1, dog 10, " in said and ", and 3 more\n" in said


def test_sizes_and_fields_for_programs_and_for_people(tmp_path):
    schema = Schema.of({"x": NDArrayField("uint8", (8, 8)), "label": LabelField(["cat", "dog"])})
    samples = [{"x": np.zeros((8, 8), np.uint8), "label": i % 2} for i in range(100)]
    DatasetWriter(tmp_path / "a", schema, num_workers=0, progress=False).from_indexed_dataset(samples)
    _, found = facts(tmp_path / "a")
    assert found["bytes"] == found["size"] == found["bytes per sample"] * 100
    assert found["schema"]["label"] == {"kind": "label", "names": ["cat", "dog"]}
    assert field_from_spec(found["schema"]["x"]) == NDArrayField("uint8", (8, 8))
    lines = dict(line.split("  ", 1) for line in run("info", tmp_path / "a").out.splitlines())
    assert lines["bytes per sample"].endswith(" B")
    assert lines["schema"].strip() == "x NDArrayField('uint8', (8, 8)), label LabelField(['cat', 'dog'])"


def test_a_first_shard_whose_header_is_damaged(dataset):
    first = min(dataset.glob("*.ffr"))
    data = bytearray(first.read_bytes())
    data[4:12] = (2**40).to_bytes(8, "little")
    first.write_bytes(data)
    code, found = facts(dataset)
    assert (code, found["samples"], found["files"]) == (1, 30, 3)
    (wrong,) = found["wrong"]
    assert f"{first.name}: {2**40} samples do not fit" in wrong


def test_what_a_shard_says_of_itself_where_the_first_is_missing(dataset):
    min(dataset.glob("*.ffr")).unlink()
    assert facts(dataset)[1]["writer"].startswith("ffrecord ")


def test_a_file_without_extension_block_that_was_cut(tmp_path):
    samples = [bytes([i]) * 1000 for i in range(8)]
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    assert facts(path)[1]["wrong"] == []
    os.truncate(path, 4000)
    code, found = facts(path)
    assert (code, found["samples"]) == (1, 8)
    (wrong,) = found["wrong"]
    assert wrong == f"{path} was cut: it has 4000 bytes, its last record begins at 7108"


def test_a_manifest_that_was_cut(dataset):
    os.truncate(dataset / "dataset.json", 20)
    for command in ("info", "head"):
        ran = run(command, dataset)
        assert (ran.code, ran.err.count("\n")) == (3, 1)
        assert "run `ffrecord verify` to check the shards without it" in ran.err
    assert json.loads(run("verify", dataset, "--json").out)["records"] == 30


def test_a_damaged_one(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", builders.small())
    with open(path, "r+b") as file:
        file.truncate(50)
    ran = run("info", path)
    assert (ran.code, ran.out) == (3, "")
    assert str(path) in ran.err

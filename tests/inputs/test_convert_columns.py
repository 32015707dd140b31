"""Which fields columns get: as the source has them, as they are asked for."""

import io
import pickle
import tarfile
from decimal import Decimal
from importlib.util import find_spec

import numpy as np
import pytest
from mds_twin import write_mds
from test_convert import JPEGS, fields, samples, tarred, zipped

import ffrecord
from ffrecord import DatasetWriter, FileReader, WorkerError
from ffrecord.conversion import convert
from ffrecord.errors import ArgumentError
from ffrecord.fields import (
    BytesField,
    DecimalField,
    FloatField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
    ListField,
    NDArrayField,
    OptionalField,
    StrField,
    ZstdField,
)
from ffrecord.inputs.columns import loose_field
from ffrecord.inputs.passthrough import open_records
from ffrecord.reading.store import Store
from ffrecord.sources import TFRecordWriter, encode_example


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_other_fields_for_some_columns_of_typed_shards(tmp_path):
    """The others stay what they are, byte for byte."""
    torch = pytest.importorskip("torch")
    given = [
        {"image": JPEGS[i], "label": i % 2, "x": np.zeros(i, np.uint8), "t": torch.ones(2), "n": {"a": b"%d" % i}}
        for i in range(9)
    ]
    columns = {
        "image": JPEGField(),
        "label": LabelField(["a", "b"]),
        "x": NDArrayField("uint8", (None,)),
        "t": ffrecord.fields.TensorField("float32", (2,)),
        "n": {"a": ZstdField(BytesField()) if find_spec("zstandard") else BytesField()},
    }
    DatasetWriter(tmp_path / "one", columns, num_workers=0).from_indexed_dataset(given)
    wanted = {"label": FloatField()}
    convert(tmp_path / "one", tmp_path / "two", fields=wanted, num_workers=0, verify=True)
    before, after = fields(tmp_path / "one"), fields(tmp_path / "two")
    assert after == {**before, "label": FloatField()}
    for mine, other in zip(samples(tmp_path / "two"), samples(tmp_path / "one"), strict=True):
        assert mine["image"] == other["image"] and mine["n"] == other["n"] and mine["label"] == other["label"]
        assert np.array_equal(mine["x"], other["x"]) and np.array_equal(mine["t"], other["t"])
    with FileReader(tmp_path / "one") as reader:
        dataset = pickle.loads(pickle.dumps(open_records(reader, wanted)))
        record = FileReader(tmp_path / "two").read_one(3).tobytes()
        assert dataset.columns.schema.encode(dataset[3]) == record
    convert(tmp_path / "one", tmp_path / "three", fields={}, num_workers=0, verify=True)
    assert fields(tmp_path / "three") == before
    convert(tmp_path / "one", tmp_path / "four", fields={"image": BytesField()}, num_workers=0, verify=True)
    assert [each["image"] for each in samples(tmp_path / "four")] == JPEGS[:9]
    with pytest.raises(ArgumentError, match="fields has 'y', expected some of the columns image, label"):
        convert(tmp_path / "one", tmp_path / "five", fields={"y": IntField()}, num_workers=0)


def test_a_reader_of_a_class_of_ones_own(tmp_path):
    class Mine(FileReader):
        pass

    DatasetWriter(tmp_path / "one", {"image": JPEGField()}, num_workers=0).from_indexed_dataset(
        [{"image": data} for data in JPEGS]
    )
    with Mine(tmp_path / "one") as store:
        convert(store, tmp_path / "two", num_workers=0, verify=True)
    assert fields(tmp_path / "two") == {"image": JPEGField()} and samples(tmp_path / "two") == samples(tmp_path / "one")


def test_decoded_arrays_stay_arrays(tmp_path):
    arrays = [np.arange(3 + i, dtype=np.float32) for i in range(4)]
    files = {
        f"{i}.{end}": data
        for i in range(4)
        for end, data in (("npy", npy(arrays[i])), ("x.npy", npy(np.arange(i, dtype="u1"))), ("bin", b"b"))
    }
    source = tarred(tmp_path / "source.tar", files)
    convert(source, tmp_path / "out", format="webdataset", decode=True, num_workers=0, verify=True)
    found = samples(tmp_path / "out")
    assert all(np.array_equal(each["npy"], array) for each, array in zip(found, arrays, strict=True))
    assert found[0]["npy"].dtype == np.float32 and found[3]["x.npy"].tolist() == [0, 1, 2] and found[0]["bin"] == b"b"


def test_vectors_of_uint8_of_mds(tmp_path):
    (tmp_path / "mds").mkdir()
    rows = [{"v": np.arange(3 + i % 3, dtype=np.uint8), "b": b"x" * i} for i in range(6)]
    write_mds(tmp_path / "mds", {"v": "ndarray", "b": "bytes"}, rows)
    convert(tmp_path / "mds", tmp_path / "out", num_workers=0, verify=True)
    assert fields(tmp_path / "out") == {"b": BytesField(), "v": NDArrayField("uint8", (None,))}
    assert all(np.array_equal(each["v"], row["v"]) for each, row in zip(samples(tmp_path / "out"), rows, strict=True))


class Drifting(Store):
    """Bytes, but for one sample that none looks at first."""

    format = "drifting"

    def _load(self, positions):
        return [np.zeros(1, np.uint8) for _ in positions]

    def _decode(self, positions, records):
        return [
            {"data": np.zeros((2, 2), np.float32) if i == 501 else np.zeros(3 + i % 2, np.uint8)} for i in positions
        ]

    def fingerprint(self):
        return "0" * 64


def test_what_is_no_bytes_later_is_not_made_bytes(tmp_path):
    with pytest.raises(WorkerError, match=r"501.*data: a .*float32.*, expected"):
        convert(Drifting(["x"], 1003), tmp_path / "out", num_workers=0)


def test_a_field_that_takes_arrays_gets_them(tmp_path):
    source = zipped(tmp_path / "source", {"a": b"abc", "b": b"defg"})
    wanted = {"data": NDArrayField("uint8", (None,))}
    convert(source, tmp_path / "out", fields=wanted, num_workers=0, verify=True)
    assert fields(tmp_path / "out")["data"] == wanted["data"]
    assert [each["data"].tobytes() for each in samples(tmp_path / "out")] == [b"abc", b"defg"]


def test_names_of_an_image_folder(tmp_path):
    for i, data in enumerate(JPEGS):
        path = tmp_path / "images" / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    convert(tmp_path / "images", tmp_path / "out", num_workers=0, verify=True)
    found = {each["key"]: (each["image"], each["label"]) for each in samples(tmp_path / "out")}
    assert found == {f"{'ab'[i % 2]}/{i}.jpg": (data, i % 2) for i, data in enumerate(JPEGS)}


def test_a_column_that_is_missing_later(tmp_path):
    files = {f"{i:03}.{end}": b"x" for i in range(200) for end in ("a", "b") if (i, end) != (100, "a")}
    with pytest.raises(WorkerError, match=r"sample 100 \(.*x\.tar: sample '100'\): ValueError: sample: key 'a' is m"):
        convert(tarred(tmp_path / "x.tar", files), tmp_path / "out", format="webdataset", num_workers=0)


# Columns that some samples do not have, and lists


def web_tar(path, n, labelled, mode="w"):
    """Samples of WebDataset with a text, some of them with a class."""
    with tarfile.open(path, mode) as archive:
        for i in range(n):
            for name, data in [("txt", b"t%d" % i), *([("cls", b"%d" % i)] if i in labelled else [])]:
                member = tarfile.TarInfo(f"{i:04d}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
@pytest.mark.parametrize("workers", [0, 2])
def test_fields_of_webdataset_that_some_samples_lack(tmp_path, name, workers):
    source = web_tar(tmp_path / name, 12, {1, 2, 11}, "w:gz" if name.endswith("gz") else "w")
    convert(source, tmp_path / "out", format="webdataset", num_workers=workers, verify=True)
    assert fields(tmp_path / "out") == {
        "__key__": StrField(),
        "txt": BytesField(),
        "cls": OptionalField(BytesField()),
    }
    assert [each["cls"] for each in samples(tmp_path / "out")] == [
        b"%d" % i if i in (1, 2, 11) else None for i in range(12)
    ]
    # And back: as the source has them.
    ffrecord.export(tmp_path / "out", tmp_path / "back.tar", "webdataset", progress=False, verify=True)
    with tarfile.open(source) as before, tarfile.open(tmp_path / "back.tar") as after:
        assert after.getnames() == before.getnames()
        for each in before.getmembers():
            assert after.extractfile(each.name).read() == before.extractfile(each).read()


@pytest.mark.parametrize("kind", ["zip", "tfrecord"])
def test_a_first_sample_that_has_only_bytes(tmp_path, kind):
    """Others have more, and nothing of it is lost."""
    given = [{"data": b"first", "mask": None}, {"data": b"second", "mask": b"m"}]
    columns = {"data": BytesField(), "mask": OptionalField(BytesField())}
    DatasetWriter(tmp_path / "in", columns, num_workers=0).from_indexed_dataset(given)
    out = tmp_path / f"out.{kind}"
    ffrecord.export(tmp_path / "in", out, kind, progress=False, verify=True)
    with ffrecord.open(out, **({"features": "infer"} if kind == "tfrecord" else {})) as reader:
        if kind == "zip":
            assert [bytes(each) for each in reader] == [b"first", b"null", b"second", b"m"]
        else:
            assert [sample["data"] for sample in reader.samples([0, 1])] == [b"first", b"second"]


def test_decoded_fields_that_some_samples_lack(tmp_path):
    source = web_tar(tmp_path / "a.tar", 5, {3})
    convert(source, tmp_path / "out", format="webdataset", decode=True, num_workers=0, verify=True)
    assert fields(tmp_path / "out")["cls"] == JSONField()
    assert [each["cls"] for each in samples(tmp_path / "out")] == [None, None, None, 3, None]


def test_a_field_that_first_turns_up_late(tmp_path):
    source = web_tar(tmp_path / "a.tar", 300, {150})
    with pytest.raises(WorkerError, match=r"sample 150 \(.*: sample '0150'\): ValueError: .*: unexpected key 'cls'"):
        convert(source, tmp_path / "out", format="webdataset", num_workers=0)
    wanted = {"cls": OptionalField(BytesField())}
    convert(source, tmp_path / "out", format="webdataset", fields=wanted, num_workers=0, verify=True)
    assert [i for i, each in enumerate(samples(tmp_path / "out")) if each["cls"] is not None] == [150]
    with pytest.raises(ArgumentError, match="fields has 'cls', expected some of the columns __key__, txt"):
        convert(source, tmp_path / "two", format="webdataset", fields={"cls": BytesField()}, num_workers=0)


def test_decimals_and_large_numbers_of_mds(tmp_path):
    rows = [{"sd": Decimal(f"1.{i}0"), "si": 10 ** (15 + i)} for i in range(10)]
    write_mds(tmp_path / "mds", {"sd": "str_decimal", "si": "str_int"}, rows)
    convert(tmp_path / "mds", tmp_path / "out", num_workers=0, verify=True)
    assert fields(tmp_path / "out") == {"sd": DecimalField(), "si": JSONField()}
    assert samples(tmp_path / "out") == rows
    assert [str(each["sd"]) for each in samples(tmp_path / "out")][1] == "1.10"


@pytest.mark.parametrize("options", [{}, {"features": "infer"}])
def test_strings_of_examples_in_any_number(tmp_path, options):
    rows = [{"a": i, "s": [b"x%d" % i] * (i % 3)} for i in range(10)]
    with TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for row in rows:
            writer.write(encode_example(row))
    convert(tmp_path / "a.tfrecord", tmp_path / "out", num_workers=0, verify=True, **options)
    assert fields(tmp_path / "out") == {"a": IntField(), "s": ListField(BytesField())}
    assert samples(tmp_path / "out") == rows
    ffrecord.export(tmp_path / "out", tmp_path / "back.tfrecord", "tfrecord", progress=False, verify=True)
    with ffrecord.open(tmp_path / "back.tfrecord", features="infer") as reader:
        assert [each["s"].tolist() for each in reader.samples(range(10))] == [row["s"] for row in rows]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, 1], JSONField()),
        ([None, b"a"], OptionalField(BytesField())),
        ([None, Decimal(1)], OptionalField(DecimalField())),
        ([None, np.zeros((2, 3)), np.zeros((4, 3))], OptionalField(NDArrayField("f8", (None, None)))),
        ([[b"a"], [], None], OptionalField(ListField(BytesField()))),
        ([[b"a", None], []], ListField(OptionalField(BytesField()))),
        ([[[b"a"], []], []], ListField(ListField(BytesField()))),
        ([2**63, 1], JSONField()),
        ([{"a": 1}, {"b": None}], JSONField()),
        ([[], []], JSONField()),
        ([[b"a"], [1]], None),
        ([None, b"a", 1], None),
        ([b"a", {"b": b""}], None),
        ([1, 2], None),
    ],
)
def test_loose_field(values, expected):
    found = loose_field(values)
    assert found == expected
    for value in values if found else []:
        found.encode(value)

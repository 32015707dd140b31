"""Parquet files and Hugging Face datasets."""

import datetime
import errno
import gc
import os
import pickle
import signal
import warnings
from decimal import Decimal
from pathlib import Path

import children
import numpy as np
import pytest

from ffrecord import FileReader
from ffrecord.conversion import convert
from ffrecord.conversion.parquet import ParquetDataset
from ffrecord.errors import ArgumentError, FormatError, WorkerError
from ffrecord.fields import (
    BytesField,
    DecimalField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
    ListField,
    NDArrayField,
    OptionalField,
    ScalarField,
    StrField,
    schema_of,
)
from ffrecord.inputs.rows import TableRows

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: Parquet files are not converted")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [
    {
        "int": i - 3,
        "float": i / 3,
        "text": f"é{i}",
        "bytes": bytes(range(i % 7)),
        "flag": i % 2 == 0,
        "list": list(range(i % 5)),
        "pair": [i / 2, -1.0],
        "maybe": None if i == 40 else i,
        "nested": {"a": [i, None], "b": str(i)},
        "file": {"bytes": b"x" * i, "path": None},
        "time": datetime.datetime(2020, 1, 1) + datetime.timedelta(microseconds=i),
        "class": i % 3,
    }
    for i in range(100)
]
TYPES = pa.schema(
    [
        ("int", pa.int32()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("flag", pa.bool_()),
        ("list", pa.list_(pa.int16())),
        ("pair", pa.list_(pa.float32(), 2)),
        ("maybe", pa.int64()),
        ("nested", pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())])),
        ("file", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("time", pa.timestamp("us")),
        ("class", pa.int64()),
    ]
)


def check(found: list[dict], rows: list[dict]) -> None:
    assert len(found) == len(rows)
    for mine, row in zip(found, rows, strict=True):
        expected = {**row, "file": row["file"]["bytes"], "time": np.datetime64(row["time"], "us")}
        expected["list"] = np.array(row["list"], np.int16)
        expected["pair"] = np.array(row["pair"], np.float32)
        assert mine.keys() == expected.keys()
        for name, value in expected.items():
            assert np.array_equal(mine[name], value) and type(mine[name]) is type(value), name
            assert not isinstance(value, np.ndarray) or mine[name].dtype == value.dtype


def result(path: Path) -> list[dict]:
    with FileReader(path) as reader:
        return reader.samples(range(len(reader)))


def fields(path: Path) -> dict:
    with FileReader(path) as reader:
        return dict(schema_of(reader).fields)


@pytest.fixture
def parquet(tmp_path):
    """Two files, ten row groups."""
    (tmp_path / "tables").mkdir()
    for name, rows in (("a", ROWS[:70]), ("b", ROWS[70:])):
        pq.write_table(pa.Table.from_pylist(rows, TYPES), tmp_path / "tables" / f"{name}.parquet", row_group_size=10)
    return tmp_path / "tables"


@pytest.mark.parametrize("workers", [0, 2])
def test_parquet(parquet, workers):
    convert(parquet, parquet.parent / "out", num_workers=workers, verify=True)
    check(result(parquet.parent / "out"), ROWS)
    found = fields(parquet.parent / "out")
    assert found["list"] == NDArrayField("int16", (None,)) and found["pair"] == NDArrayField("float32", (2,))
    assert found["maybe"] == found["nested"] == JSONField()


def test_files_are_closed_at_once(parquet):
    """Not when the next collection of garbage comes; also after an error."""
    gc.disable()
    try:
        convert(parquet, parquet.parent / "out", num_workers=0)
        with pytest.raises(ArgumentError):
            convert(parquet, parquet.parent / "other", num_workers=0, fields={"not there": IntField()})
        assert not [path for path in children.descriptors().values() if path.endswith(".parquet")]
    finally:
        gc.enable()


def test_one_file_in_any_order(parquet):
    dataset = ParquetDataset([parquet / "a.parquet"])
    for again in (dataset, pickle.loads(pickle.dumps(dataset))):
        check(again.__getitems__([69, 0, 35, 35, 1]), [ROWS[i] for i in (69, 0, 35, 35, 1)])
        check([again[68]], [ROWS[68]])


def test_other_columns_are_refused(parquet):
    pq.write_table(pa.table({"int": [1]}), parquet / "c.parquet")
    with pytest.raises(
        FormatError, match=r"c\.parquet: its columns differ from those of .*a\.parquet: 'float' is only in"
    ):
        convert(parquet, parquet.parent / "out", num_workers=0)


def test_damaged_parquet(parquet):
    data = (parquet / "a.parquet").read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for damaged in (
        data[:-8] + b"\xff" * 4 + data[-4:],
        data[:footer] + bytes(40) + data[footer + 40 :],
        data[:4] + bytes(2000) + data[2004:],
    ):
        (parquet / "a.parquet").write_bytes(damaged)
        with pytest.raises((FormatError, WorkerError), match=r"a\.parquet: "):
            convert(parquet / "a.parquet", parquet.parent / "out", num_workers=0)
        assert not (parquet.parent / "out").exists()


@pytest.mark.parametrize("displace", [False, True])
def test_parquet_cut_in_place(tmp_path, displace):
    """It is mapped: neither killed nor given zeros."""
    path = tmp_path / "a.parquet"
    rows = pa.table({"x": [bytes(10_000)] * 100})
    pq.write_table(rows, path, row_group_size=10, compression="none", use_dictionary=False)

    def refused() -> bool:
        dataset = ParquetDataset([path])
        if displace:
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
        os.truncate(path, 450_000)
        with pytest.raises(OSError, match=r"a\.parquet: a part of row group 7 could not be read") as error:
            dataset[75]
        for size in (450_000, 0):  # opened again, it has no end
            os.truncate(path, size)
            with pytest.raises(FormatError, match=r"a\.parquet: "):
                dataset[75]
        return error.value.errno == errno.EIO

    assert children.in_child(refused) == 0


def test_parquet_cut_within_a_page(tmp_path):
    """No page is lost, but what was behind the cut reads as zeros."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"x": [b"\7" * 10_000] * 100}), path, row_group_size=10, compression="none", use_dictionary=False
    )
    column = pq.ParquetFile(path).metadata.row_group(7).column(0)
    end = column.data_page_offset + column.total_compressed_size
    dataset = ParquetDataset([path])
    assert dataset[35]["x"] == b"\7" * 10_000
    os.truncate(path, end // 4096 * 4096 + 1)
    with pytest.raises(OSError, match=r"a\.parquet: a part of row group 7 could not be read"):
        dataset[79]


def test_parquet_where_faults_would_kill(parquet):
    """Read by calls."""

    def found() -> bool:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
        dataset = ParquetDataset([parquet / "a.parquet"])
        check(dataset.__getitems__(range(30)), ROWS[:30])
        os.truncate(parquet / "a.parquet", 4000)
        with pytest.raises((OSError, FormatError), match=r"a\.parquet"):
            dataset.__getitems__([69])
        return True

    assert children.in_child(found) == 0


@pytest.mark.parametrize("name", ["filesystem_type", "Mapping"])
def test_parquet_that_cannot_be_mapped(parquet, monkeypatch, name):
    def refuse(*_: object) -> int:
        if name == "Mapping":
            raise OSError(errno.ENOMEM, "no room")
        return 0x6969  # nfs

    monkeypatch.setattr(f"ffrecord.conversion.parquet.{name}", refuse)
    check(ParquetDataset([parquet]).__getitems__(range(len(ROWS))), ROWS)


def test_rows_are_not_views_of_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {"x": [bytes([i]) * 5000 for i in range(40)], "y": np.arange(40.0), "z": [[i] * 9 for i in range(40)]}
    )
    pq.write_table(table, path, compression="none", use_dictionary=False)
    dataset = ParquetDataset([path])
    had = dataset.__getitems__(range(10))
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    found = [*had, *dataset.__getitems__(range(10, 40))]
    assert [(each["x"], each["y"], each["z"].tolist()) for each in found] == [
        tuple(row.values()) for row in table.to_pylist()
    ]


def test_empty_parquet(tmp_path):
    pq.write_table(pa.Table.from_pylist([], TYPES), tmp_path / "a.parquet")
    assert convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0).samples == 0


def test_files_beside_a_parquet_file_are_not_read(tmp_path):
    """A table made by others may name any file of this machine."""
    (tmp_path / "mine").write_bytes(b"secret")
    table = pa.Table.from_pylist(
        [{"file": {"bytes": None, "path": str(tmp_path / "mine")}}], pa.schema([TYPES.field("file")])
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"no bytes of a file, only its path '.*mine'"):
        convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0)


def test_what_is_missing_where_a_file_does_not_say(tmp_path):
    columns = {"v": pa.array([[1]] * 150 + [None]), "w": pa.array([[1]] * 99 + [[1, None]] + [[2]] * 51)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", write_statistics=False)
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0, verify=True)
    found = result(tmp_path / "out")
    assert found[-1] == {"v": None, "w": [2]} and found[99] == {"v": np.array([1]), "w": [1, None]}


TIME = datetime.time(1, 2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([TIME], r"time64\[us\]"),
        ([TIME, None], r"time64\[us\]"),
        ([[TIME]], r"list<.*time64\[us\]>"),
        ([{"a": TIME}], r"struct<a: time64\[us\]>"),
    ],
)
def test_values_that_no_field_holds(tmp_path, values, words):
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=rf"a\.parquet: column 'x' has type {words}, which no field can hold: leave"):
        convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0)
    assert not (tmp_path / "out").exists()


def duration(microseconds: int) -> np.timedelta64:
    return np.timedelta64(microseconds, "us")


@pytest.mark.parametrize(
    ("values", "expected", "field"),
    [
        (pa.array([Decimal("1.10"), Decimal("-2.00")], pa.decimal128(5, 2)), None, DecimalField()),
        (pa.array([Decimal("1.10"), None]), None, OptionalField(DecimalField())),
        (pa.array([1, 2**63 + 1], pa.uint64()), [np.uint64(1), np.uint64(2**63 + 1)], ScalarField("uint64")),
        (pa.array([1, None], pa.uint64()), None, JSONField()),
        (pa.array([3, 4], pa.duration("us")), [duration(3), duration(4)], ScalarField("<m8[us]")),
        (pa.array([b"a", None, b""]), None, OptionalField(BytesField())),
        (pa.array([[b"a", b""], [], [b"bc"]]), None, OptionalField(ListField(BytesField()))),
        (pa.array([[b"a", b""], None]), None, OptionalField(ListField(BytesField()))),
        (pa.array([[["a"]], [[], ["b"]]]), None, JSONField()),
        (pa.array([[[b"a"]], [[], [b"b"]]]), None, OptionalField(ListField(ListField(BytesField())))),
        (
            pa.array([[("k", 1), ("k", 2)], []], pa.map_(pa.string(), pa.int64())),
            [[["k", 1], ["k", 2]], []],
            JSONField(),
        ),
        (pa.array([[(1, 2)], None], pa.map_(pa.int64(), pa.int64())), [[[1, 2]], None], JSONField()),
    ],
    ids=str,
)
def test_a_column_for_each_type(tmp_path, values, expected, field):
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0, verify=True)
    found = [sample["x"] for sample in result(tmp_path / "out")]
    assert found == (values.to_pylist() if expected is None else expected)
    with FileReader(tmp_path / "out") as reader:
        assert schema_of(reader).fields == {"x": field}


def test_values_of_a_dictionary_come_as_those_of_python():
    """Parquet gives them decoded; tables of others do not."""
    table = pa.table({"x": pa.array([1, 7, 1], pa.uint64()).dictionary_encode(), "y": pa.array(["a", "b", "a"])})
    rows = TableRows(table.schema, {}, {})
    assert rows.fields == {"x": ScalarField("uint64"), "y": StrField()}
    assert rows.samples(table) == table.to_pylist()


def test_numbers_that_json_does_not_have(tmp_path):
    rows = [{"x": {"a": 1.0, "b": [1.0, float("nan")]}}, {"x": {"a": None, "b": [None, float("inf")]}}, {"x": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0, verify=True)
    assert str(result(tmp_path / "out")) == str(rows)


def test_a_time_zone_that_is_not_kept_is_told(tmp_path, caplog):
    times = pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("us", "Europe/Paris"))
    pq.write_table(pa.table({"x": times}), tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0)
    assert "column 'x': times are stored in UTC, without their zone Europe/Paris" in caplog.text


def test_columns_of_one_name(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"a\.parquet: 2 columns are called 'a'"):
        convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0)


@pytest.mark.parametrize("spelled", ["*.parquet", "file://"])
def test_parquet_however_it_is_named(parquet, spelled):
    source = f"{parquet}/{spelled}" if spelled[0] == "*" else f"file://{parquet}/a.parquet"
    assert convert(source, parquet.parent / "out", num_workers=0).samples == (100 if spelled[0] == "*" else 70)


# Hugging Face


@pytest.fixture(scope="module")
def datasets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("datasets", reason="datasets is not installed: Hugging Face's are not converted")


@pytest.fixture
def dataset(datasets):
    return datasets.Dataset.from_list(ROWS, datasets.Features.from_arrow_schema(TYPES))


@pytest.mark.parametrize("workers", [0, 2])
def test_hugging_face(tmp_path, dataset, workers):
    convert(dataset, tmp_path / "out", num_workers=workers, verify=True)
    check(result(tmp_path / "out"), ROWS)


def test_rows_selected_and_shuffled(tmp_path, dataset):
    chosen = dataset.shuffle(seed=1).select(range(30))
    convert(chosen.with_format("arrow"), tmp_path / "out", num_workers=0, verify=True)
    check(result(tmp_path / "out"), list(chosen))


def doubled(batch: dict) -> dict:
    return {"twice": [2 * value for value in batch["int"]]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_is_what_samples_are(tmp_path, dataset, workers):
    convert(dataset.with_transform(doubled), tmp_path / "out", num_workers=workers, verify=True)
    assert result(tmp_path / "out") == [{"twice": 2 * row["int"]} for row in ROWS]


def test_columns_of_a_format(tmp_path, dataset):
    for i, chosen in enumerate((dataset.with_format(None, columns=["text"]), dataset.with_format("arrow", ["text"]))):
        convert(chosen, tmp_path / f"{i}", num_workers=0, verify=True)
        assert result(tmp_path / f"{i}") == [{"text": row["text"]} for row in ROWS]
    convert(dataset.with_format(None, ["text"], output_all_columns=True), tmp_path / "all", num_workers=0)
    check(result(tmp_path / "all"), ROWS)


@pytest.mark.parametrize("format", ["numpy", "pandas"])
def test_a_format_that_changes_values(tmp_path, dataset, format):
    with pytest.raises(FormatError, match=rf"format '{format}', which changes values.*with_format\(None\)"):
        convert(dataset.with_format(format), tmp_path / "out")


def test_files_whose_classes_differ_are_refused(tmp_path, datasets):
    """The same number would mean two classes."""
    for name, names in {"a": ["c", "d"], "b": ["d", "c"]}.items():
        features = datasets.Features({"x": datasets.ClassLabel(names=names)})
        datasets.Dataset.from_list([{"x": 0}], features).to_parquet(tmp_path / "in" / f"{name}.parquet")
    told = r"b.parquet: the classes of column 'x' are \('d', 'c'\), and in .*a.parquet \('c', 'd'\)"
    with pytest.raises(FormatError, match=told):
        convert(tmp_path / "in", tmp_path / "out", num_workers=0)


def test_photographs_and_classes(tmp_path, datasets):
    simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    jpegs = [simplejpeg.encode_jpeg(np.full((8, 8 + i, 3), i, np.uint8)) for i in range(9)]
    (tmp_path / "beside.jpg").write_bytes(jpegs[8])
    rows = [
        {"image": {"bytes": data, "path": None}, "label": i % 2, "other": i % 3 - 1} for i, data in enumerate(jpegs[:8])
    ]
    rows += [{"image": {"bytes": None, "path": str(tmp_path / "beside.jpg")}, "label": 0, "other": 0}]
    classes = datasets.ClassLabel(names=["cat", "dog"])
    features = datasets.Features({"image": datasets.Image(), "label": classes, "other": classes})
    given = datasets.Dataset.from_list(rows, features)
    convert(given, tmp_path / "out", num_workers=0, verify=True)
    found = fields(tmp_path / "out")
    assert found["image"] == JPEGField() and found["label"] == LabelField(["cat", "dog"])
    assert found["other"] == IntField()  # -1: an unknown class
    with FileReader(tmp_path / "out") as reader:
        schema = schema_of(reader).replace({"image": JPEGField(as_bytes=True)})
        assert [schema.decode(record)["image"] for record in reader] == jpegs
    given.select(range(8)).to_parquet(tmp_path / "x.parquet")
    convert(tmp_path / "x.parquet", tmp_path / "again", fields={"image": BytesField()}, num_workers=0, verify=True)
    assert fields(tmp_path / "again")["label"] == LabelField(["cat", "dog"])


def test_several_datasets(tmp_path, datasets, dataset):
    with pytest.raises(ArgumentError, match="DatasetDict has several datasets: pass one of 'train', 'test'"):
        convert(datasets.DatasetDict(train=dataset, test=dataset), tmp_path / "out")


def test_one_after_the_other(tmp_path, dataset):
    given = dataset.select_columns(["int", "text"])
    convert(given.to_iterable_dataset(), tmp_path / "out", num_workers=0, verify=True)
    assert result(tmp_path / "out") == [{"int": row["int"], "text": row["text"]} for row in ROWS]


# Row groups, which cost their decoding as a whole


@pytest.fixture
def decoded(tmp_path, monkeypatch) -> Path:
    """A file that gets a line for each row group that is decoded, by whatever process."""
    path, read = tmp_path / "decoded.txt", pq.ParquetFile.read_row_group

    def counted(self, i, **options):
        with path.open("a") as file:
            file.write(f"{i}\n")
        return read(self, i, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_row_groups_are_decoded_by_few(tmp_path, decoded, workers):
    table = pa.table({"x": [b"%d" % i * 2000 for i in range(3000)], "y": range(3000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=250)
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=workers)
    assert result(tmp_path / "out") == table.to_pylist()
    # Three to see the columns; each by every worker at most; none to look at samples beforehand.
    found = [int(line) for line in decoded.read_text().split()]
    assert set(found) == set(range(12)) and found[:3] == [0, 5, 11] and len(found) <= 3 + 12 * max(workers, 1)


def test_tasks_end_with_row_groups(tmp_path):
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "a.parquet", row_group_size=30)
    dataset = ParquetDataset([tmp_path / "a.parquet"])
    for first, stop, expected in [(0, 20, 20), (0, 30, 30), (0, 50, 30), (10, 95, 80), (60, 100, 40), (31, 59, 28)]:
        assert dataset.samples_of_task(np.arange(first, stop)) == expected
    assert dataset.samples_of_task(np.array([40, 10, 30])) == 3


def test_rows_that_follow_each_other_in_another_process(tmp_path, decoded):
    """A forked process has what its parent has decoded, for slices; else it decodes the group itself."""
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "a.parquet", row_group_size=50)
    dataset = ParquetDataset([tmp_path / "a.parquet"])
    before = len(decoded.read_text().split())
    assert children.in_child(lambda: [each["x"] for each in dataset.__getitems__([60, 61, 62])] == [60, 61, 62]) == 0
    assert len(decoded.read_text().split()) == before
    assert children.in_child(lambda: [each["x"] for each in dataset.__getitems__([70, 60, 3])] == [70, 60, 3]) == 0
    assert len(decoded.read_text().split()) == before + 2
    assert dataset.samples_to_look_at(8) == [50, 57, 64, 71, 78, 85, 92, 99]

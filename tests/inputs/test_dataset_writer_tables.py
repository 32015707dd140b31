"""DatasetWriter of tables: DataFrames, tables of Arrow and dicts of columns are rows; what is none is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import FormatError
from ffrecord.fields import (
    FloatField,
    IntField,
    JSONField,
    NDArrayField,
    OptionalField,
    ScalarField,
    StrField,
    schema_of,
)


def writer(path: Path, fields: Any = None, **options: Any) -> DatasetWriter:
    return DatasetWriter(path, fields, **{"num_workers": 0, "progress": False, **options})


def found(path: Path) -> tuple[Any, list[Any]]:
    with FileReader(path) as reader:
        return dict(schema_of(reader).fields), reader.samples(range(reader.n))  # type: ignore[union-attr]


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    columns = {
        "number": [1, 2, 3],
        "text": ["x", "y", None],
        "tokens": [[1, 2], [3], [4, 5]],
        "ratio": [1.5, float("nan"), 2],
        "kind": pandas.Categorical(["u", "v", "u"]),
        "count": pandas.array([1, None, 2**60 + 1], dtype="Int64"),
    }
    return pandas.DataFrame(columns, index=[7, 8, 9])


def arrow() -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({"number": [1, 2, 3], "tokens": [[1], [2, 3], []], "text": ["x", "y", "z"]})


def columns() -> Any:
    return {
        "number": [1, 2, 3],
        "x": np.arange(6.0).reshape(3, 2),
        "tokens": [[1], [2, 3], []],
        "text": ["x", "y", "z"],
    }


TOKENS = NDArrayField("int64", (None,))
EXPECTED: Any = {
    frame: {
        "number": ScalarField("int64"),
        "text": JSONField(),
        "tokens": TOKENS,
        "ratio": ScalarField("float64"),
        "kind": StrField(),
        "count": JSONField(),
    },
    arrow: {"number": IntField(), "tokens": TOKENS, "text": StrField()},
    columns: {"number": IntField(), "x": NDArrayField("f8", (2,)), "tokens": TOKENS, "text": StrField()},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [frame, arrow, columns])
def test_rows_are_samples(tmp_path: Path, make: Any, workers: int) -> None:
    table = make()
    writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(table)
    writer(tmp_path / "b", num_workers=workers).from_iterable(table, length=3)
    ffrecord.convert(table, tmp_path / "c", num_workers=workers, verify=True)
    fields, samples = found(tmp_path / "a")
    assert fields == EXPECTED[make]
    assert [sample["number"] for sample in samples] == [1, 2, 3]
    assert [sample["tokens"].tolist() for sample in samples][:2] in ([[1, 2], [3]], [[1], [2, 3]])
    assert str([fields, samples]) == str([*found(tmp_path / "b")]) == str([*found(tmp_path / "c")])


def test_what_is_missing_stays_missing(tmp_path: Path) -> None:
    writer(tmp_path / "a").from_indexed_dataset(frame())
    _, samples = found(tmp_path / "a")
    assert [sample["text"] for sample in samples] == ["x", "y", None]
    assert [sample["count"] for sample in samples] == [1, None, 2**60 + 1]
    assert np.isnan(samples[1]["ratio"])


def test_fields_of_some_columns(tmp_path: Path) -> None:
    writer(tmp_path / "a", {"text": OptionalField(StrField())}).from_indexed_dataset(frame(), indices=[2, 0])
    fields, samples = found(tmp_path / "a")
    assert fields == EXPECTED[frame] | {"text": OptionalField(StrField())}
    assert [sample["text"] for sample in samples] == [None, "x"]


def test_a_dataframe_of_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    writer(tmp_path / "a").from_indexed_dataset(polars.DataFrame({"number": [1, 2], "tokens": [[1], [2, 3]]}))
    fields, samples = found(tmp_path / "a")
    assert fields == {"number": IntField(), "tokens": TOKENS}
    assert samples[1]["tokens"].tolist() == [2, 3]


def test_a_serializer_gets_rows(tmp_path: Path) -> None:
    writer(tmp_path / "a", serializer=lambda row: row["text"].encode()).from_indexed_dataset(columns())
    with FileReader(tmp_path / "a") as reader:
        assert [record.tobytes() for record in reader] == [b"x", b"y", b"z"]


def test_samples_by_number_are_a_dataset_as_ever(tmp_path: Path) -> None:
    writer(tmp_path / "a").from_indexed_dataset({0: {"x": 1}, 1: {"x": 2}})
    assert found(tmp_path / "a") == ({"x": IntField()}, [{"x": 1}, {"x": 2}])


def test_no_rows(tmp_path: Path) -> None:
    assert writer(tmp_path / "a").from_indexed_dataset({"x": [], "y": []}).samples == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"a": [1, 2], "b": [1]}, "columns of different lengths: 'a' 2, 'b' 1; .* pass one sample as"),
        (
            {"a": 1, "b": [2]},
            r"'a' of the source, a dict, is int .*, expected a column of values; pass one sample as \[sample\]",
        ),
        ({"a": "text", "b": "more"}, "'a' of the source, a dict, is str .*, expected a column of values"),
        ({"a": {"b": 1}}, "'a' of the source, a dict, is a dict.*, expected a column of values"),
        ({1: {"x": 1}, 2: {"x": 1}}, "1 of the source, a dict, is a dict.*, expected a column of values"),
    ],
)
def test_other_dicts_are_refused(tmp_path: Path, source: Any, words: str) -> None:
    """Before, it was `KeyError: 0`, or the keys were written as samples."""
    for call in ("from_indexed_dataset", "from_iterable"):
        with pytest.raises(ValueError, match=words):
            getattr(writer(tmp_path / "a"), call)(source)
    with pytest.raises(ValueError, match=words):
        ffrecord.convert(source, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_float_column_by_name(tmp_path: Path) -> None:
    writer(tmp_path / "a", {"number": FloatField()}).from_iterable(columns())
    assert found(tmp_path / "a")[0]["number"] == FloatField()


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """Only the last of them would be written."""
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    array = pyarrow.array([1])
    for table in (
        pandas.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        pyarrow.Table.from_arrays([array, array, array], names=["a", "b", "a"]),
        pyarrow.RecordBatch.from_arrays([array, array, array], names=["a", "b", "a"]),
    ):
        with pytest.raises(FormatError, match="2 columns are called 'a'"):
            DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset(table)
        with pytest.raises(FormatError, match="2 columns are called 'a'"):
            ffrecord.convert(table, tmp_path / "set", num_workers=0)


def test_an_index_that_is_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [1, 2, 3]})
    for number, (table, told) in enumerate(
        [(frame, False), (frame[frame.a > 1], False), (frame.set_axis(["x", "y", "z"]), True),
         (frame.rename_axis("id"), True), (frame.rename_axis("id").reset_index(), False)]
    ):  # fmt: skip
        caplog.clear()
        DatasetWriter(tmp_path / f"{number}", num_workers=0).from_indexed_dataset(table)
        assert ("index of the DataFrame is left out" in caplog.text) == told, number


def test_a_batch_of_arrow_is_a_table(tmp_path: Path) -> None:
    batch = pytest.importorskip("pyarrow").record_batch({"a": [1, None], "b": ["x", "y"]})
    ffrecord.convert(batch, tmp_path / "set", num_workers=0)
    with FileReader(tmp_path / "set") as reader:
        assert reader.samples([0, 1]) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]

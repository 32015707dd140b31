"""Blocks of Arrow to records: which fields types say, what is refused, and that nothing is lost. No Ray is started."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from ray.data.extensions import ArrowPythonObjectArray, ArrowTensorArray, ArrowVariableShapedTensorArray
from ray_builders import KINDS, flat, kinds

from ffrecord.fields import (
    BoolField,
    BytesField,
    FloatField,
    IntField,
    JPEGField,
    JSONField,
    LabelField,
    MsgpackField,
    NDArrayField,
    NoneField,
    ScalarField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
)
from ffrecord.ray import records
from ffrecord.ray.columns import schema_of_types
from ffrecord.ray.records import ArrowRecords, schema_of_arrays
from ffrecord.ray.to_arrow import arrow_type, column_array


def encoded(schema: Any, block: Any) -> list[bytes]:
    found: list[bytes] = []
    for data, offsets in ArrowRecords(None if schema is None else Schema.of(schema)).records(block):
        found += [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    return found


def decoded(schema: Any, block: Any) -> list[Any]:
    return [Schema.of(schema).decode(record) for record in encoded(schema, block)]


def tensors(array: Any) -> Any:
    """Of Ray, made when a test asks for them: its first use of its own settings warns."""
    return lambda: ArrowTensorArray.from_numpy(array)


def ragged() -> Any:
    return ArrowVariableShapedTensorArray.from_numpy([np.zeros((2, 3), "u1"), np.zeros((1, 3), "u1")])


def made(values: Any) -> Any:
    return values() if callable(values) else values


@pytest.mark.parametrize(
    "values, field",
    [
        (pa.array([1, 2]), IntField()),
        (pa.array([1, 2], pa.uint8()), ScalarField("uint8")),
        (pa.array([1.5]), FloatField()),
        (pa.array([1.5], pa.float32()), ScalarField("float32")),
        (pa.array([True]), BoolField()),
        (pa.array(["a"]), StrField()),
        (pa.array(["a"], pa.large_string()), StrField()),
        (pa.array([b"a"]), BytesField()),
        (pa.array([b"ab"], pa.binary(2)), BytesField()),
        (pa.nulls(2), NoneField()),
        (pa.array([1], pa.timestamp("ms")), ScalarField("datetime64[ms]")),
        (pa.array([1], pa.duration("us")), ScalarField("timedelta64[us]")),
        (pa.array([[1, 2], [3]]), NDArrayField("int64", (None,))),
        (pa.array([["a"], []]), JSONField()),
        (pa.array([{"a": 1, "b": [1.5]}]), JSONField()),
        (pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())), JSONField()),
        (pa.array([{"a": [(1, "x")]}], pa.struct([("a", pa.map_(pa.int64(), pa.string()))])), JSONField()),
        (tensors(np.zeros((2, 3, 4), "f4")), NDArrayField("float32", (3, 4))),
        (ragged, NDArrayField("uint8", (None, None))),
    ],
)
def test_types_say_fields(values, field):
    values = made(values)
    assert schema_of_types({"x": values.type}).fields["x"] == field
    assert len(encoded({"x": field}, pa.table({"x": values}))) == len(values)


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal128(5),
        pa.timestamp("s", "UTC"),
        pa.date32(),
        pa.struct([("a", pa.binary())]),
        pa.map_(pa.binary(), pa.int8()),
    ],
    ids=str,
)
def test_types_that_say_none(kind):
    with pytest.raises(TypeError, match=r"column 'x' .*: declare its field in schema="):
        schema_of_types({"x": kind})


def test_python_objects_say_none():
    with pytest.raises(TypeError, match="column 'x' holds Python objects: declare its field"):
        schema_of_types({"x": ArrowPythonObjectArray.from_objects([object]).type})


def test_no_columns_say_nothing():
    with pytest.raises(ValueError, match="the dataset has no columns"):
        schema_of_types({})


def test_bytes_called_data_are_records():
    assert schema_of_types({"data": pa.binary()}) is None
    table = pa.table({"data": pa.chunked_array([[b"", b"abc"], [b"d" * 9]])})
    assert encoded(None, table) == [b"", b"abc", b"d" * 9]
    assert encoded(None, table.slice(1, 2)) == [b"abc", b"d" * 9]
    assert encoded(None, table.slice(0, 0)) == []
    assert encoded(None, pd.DataFrame({"data": [b"x"]})) == [b"x"]


def test_several_chunks_some_of_them_empty():
    table = pa.table({"a": pa.chunked_array([["x"], [], ["yz", ""]]), "b": pa.chunked_array([[1, 2], [], [3]])})
    found = decoded({"a": StrField(), "b": IntField()}, table)
    assert found == [{"a": "x", "b": 1}, {"a": "yz", "b": 2}, {"a": "", "b": 3}]
    assert decoded({"a": StrField(), "b": IntField()}, table.slice(1, 1)) == found[1:2]


@pytest.mark.parametrize("size", [0, 3, 20_000])
@pytest.mark.parametrize("count", [1, 7])
def test_records_of_parts_of_any_size(size, count):
    """Whether Arrow puts them together, or they are copied."""
    fields = {"a": BytesField(), "n": IntField(), "b": StrField(), "c": NDArrayField("u1", (None,))}
    rows = [
        {"a": bytes([i]) * (size * i), "n": i, "b": "é" * (i % 3), "c": np.full(size // (i + 1), i, "u1")}
        for i in range(count)
    ]
    columns = {
        "a": pa.chunked_array([[row["a"]] for row in rows]),
        "n": [row["n"] for row in rows],
        "b": [row["b"] for row in rows],
        "c": [row["c"] for row in rows],
    }
    assert encoded(fields, pa.table(columns)) == [Schema.of(fields).encode(row) for row in rows]


def test_no_object_for_a_row(monkeypatch):
    """Bytes and text go from array to array."""
    schema = {"a": BytesField(), "n": IntField(), "b": StrField()}
    table = pa.table({"a": [b"x", b""], "n": [1, 2], "b": ["", "y"]})
    monkeypatch.setattr(records.ArrowColumn, "payloads", None)
    assert len(encoded(schema, table)) == 2


def test_records_larger_than_what_is_put_together_at_once():
    values = [bytes([i]) * (3 << 20) for i in range(5)]
    assert encoded({"x": BytesField()}, pa.table({"x": values})) == [
        Schema.of({"x": BytesField()}).encode({"x": value}) for value in values
    ]


def test_every_kind_of_field_has_one_type_in_all_blocks():
    schema = schema_of_arrays(KINDS)
    for name, field in schema.fields.items():
        for numbers in (range(1), range(3, 17)):
            rows = [flat(kinds(i), schema)[name] for i in numbers]
            column = schema.decode_columns(*packed([schema.encode(kinds(i)) for i in numbers]))[name]
            array = column_array(field, column)
            assert array.type == arrow_type(field), name
            assert len(array) == len(rows)


def packed(records: list[bytes]) -> tuple[Any, Any]:
    return np.frombuffer(b"".join(records), np.uint8), np.cumsum([0, *map(len, records)])


@pytest.mark.parametrize(
    "field, values, wanted",
    [
        (IntField(), pa.array([1, 2], pa.int8()), [1, 2]),
        (FloatField(), pa.array([1.5, 2], pa.float32()), [1.5, 2]),
        (FloatField(), pa.array([1, 2]), [1.0, 2.0]),
        (LabelField(["a", "b"]), pa.array(["b", "a"]), [1, 0]),
        (LabelField(["a", "b"]), pa.array([1, 0]), [1, 0]),
        (JSONField(), pa.array([1, None]), [1, None]),
        (MsgpackField(), pa.array([[1.5, None], None]), [[1.5, None], None]),
        (JSONField(), pa.array([{"a": [1]}, None]), [{"a": [1]}, None]),
        (ZstdField(IntField()), pa.array([1, 2]), [1, 2]),
        (ScalarField("datetime64[s]"), pa.array([3], pa.timestamp("s")), [np.datetime64(3, "s")]),
    ],
)
def test_what_fields_take(field, values, wanted):
    assert [each["x"] for each in decoded({"x": field}, pa.table({"x": values}))] == wanted


@pytest.mark.parametrize(
    "field, values, message",
    [
        (IntField(), pa.array([1, None]), r"column 'x': 1 values are missing, which IntField\(\) cannot hold"),
        (IntField(), pa.array([True]), "x: .*, expected an int"),
        (IntField(), pa.array([1.5]), "x: .*, expected an int"),
        (IntField(), pa.array([2**63], pa.uint64()), "x: .*, expected an int in"),
        (FloatField(), pa.array([2**53 + 1]), "x: .*float64 cannot hold it exactly"),
        (LabelField(["a", "b"]), pa.array([1, 2]), r"x: .*, expected an int in \[0, 2\)"),
        (LabelField(["a", "b"]), pa.array(["c"]), "x: there is no class 'c'"),
        (ScalarField("float32"), pa.array([1.5]), "x: .*, expected a numpy float32 scalar"),
        (ScalarField("int64"), pa.array([1], pa.int32()), "x: .*, expected a numpy int64 scalar"),
        (
            ScalarField("datetime64[ns]"),
            pa.array([2**40], pa.timestamp("s")),
            r"x: .*, expected a numpy datetime64\[ns\]",
        ),
        (ScalarField("datetime64[ms]"), pa.array([5], pa.timestamp("s")), r"x: .*, expected a numpy datetime64\[ms\]"),
        (
            ScalarField("timedelta64[ns]"),
            pa.array([2**40], pa.duration("s")),
            r"x: .*, expected a numpy timedelta64\[ns\]",
        ),
        (StrField(), pa.array([b"a"]), "x: .*, expected a str"),
        (NDArrayField("f4", (2,)), tensors(np.zeros((3, 3), "f4")), "x: .*, expected a float32 array"),
        (NDArrayField("f4", (2,)), tensors(np.zeros((3, 2))), "x: .*, expected a float32 array"),
        (NDArrayField("f4", (2,)), pa.array([b"a"]), "x: .*, expected a float32 array"),
    ],
)
def test_what_fields_refuse(field, values, message):
    with pytest.raises((TypeError, ValueError), match=message):
        encoded({"x": field}, pa.table({"x": made(values)}))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_a_block_of_empty_lists_has_no_type_of_items(dtype):
    for field in (NDArrayField(dtype, (None,)), TensorField(dtype, (None,))):
        found = decoded({"x": field}, pa.table({"x": pa.array([[], []], pa.list_(pa.null()))}))
        assert [(each["x"].shape, str(each["x"].dtype)) for each in found] == [((0,), dtype)] * 2


def test_missing_and_other_columns():
    table = pa.table({"a": [1], "b": [2]})
    with pytest.raises(ValueError, match="a column 'c', which is missing in the dataset; the dataset has a, b"):
        encoded({"a": IntField(), "c": IntField()}, table)
    with pytest.raises(
        ValueError,
        match="a column 'b', which is missing in the schema; the schema has a; leave it out with drop_columns",
    ):
        encoded({"a": IntField()}, table)
    with pytest.raises(TypeError, match="data: 1 values are missing"):
        encoded(None, pa.table({"data": [b"", None]}))
    with pytest.raises(TypeError, match="data has type int64, expected bytes"):
        encoded(None, pa.table({"data": [1]}))


def test_rows_of_fixed_size_are_those_that_the_schema_writes():
    schema = {"a": IntField(), "b": NDArrayField(">u2", (3,)), "c": BoolField(), "d": ScalarField("float16")}
    arrays = np.arange(15, dtype=np.uint16).reshape(5, 3)
    table = pa.table(
        {
            "d": pa.array(np.arange(5, dtype=np.float16)),
            "a": pa.array(range(5)),
            "b": ArrowTensorArray.from_numpy(arrays),
            "c": pa.array([i % 2 == 0 for i in range(5)]),
        }
    )
    rows = [{"a": i, "b": arrays[i].astype(">u2"), "c": i % 2 == 0, "d": np.float16(i)} for i in range(5)]
    assert encoded(schema, table) == [Schema.of(schema).encode(row) for row in rows]
    assert encoded(schema, table.slice(2, 2)) == [Schema.of(schema).encode(row) for row in rows[2:4]]


def test_grey_pixels_stay_grey():
    pytest.importorskip("PIL", reason="JPEGs are made with Pillow")
    grey = np.full((8, 8), 7, np.uint8)
    column = column_array(JPEGField(), [grey, np.stack([grey] * 3, axis=2)])
    found = [each["x"].shape for each in decoded({"x": JPEGField()}, pa.table({"x": column}))]
    assert found == [(8, 8), (8, 8, 3)]


def test_tensors_of_torch():
    torch = pytest.importorskip("torch", reason="makes tensors")
    values = [torch.arange(2, dtype=torch.float32), torch.ones(3)]
    table = pa.table({"x": ArrowPythonObjectArray.from_objects(values)})
    found = [each["x"].tolist() for each in decoded({"x": TensorField("float32", (None,))}, table)]
    assert found == [[0, 1], [1, 1, 1]]

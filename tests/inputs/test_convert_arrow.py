"""Every type of Arrow, missing or not, nested or not: there and back, or refused by name."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ffrecord import DatasetWriter, FileReader
from ffrecord.conversion import convert
from ffrecord.conversion.parquet import ParquetDataset
from ffrecord.errors import FFRecordError, FormatError
from ffrecord.fields import BytesField, JSONField, MsgpackField, NDArrayField, OptionalField, schema_of
from ffrecord.inputs.arrow_values import RowError, count_missing
from ffrecord.inputs.columns import ColumnFacts, choose_columns
from ffrecord.inputs.rows import TableRows
from ffrecord.inputs.tables import table_of

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: Arrow tables are not converted")
pc = pytest.importorskip("pyarrow.compute")
pq = pytest.importorskip("pyarrow.parquet")

SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Kind:
    """A type, values for `pa.array`, and what they are to come back as."""

    type: Any
    values: st.SearchStrategy[Any]
    expected: Callable[[Any], Any] = lambda value: value


def integers(kind: Any, low: int, high: int) -> Kind:
    return Kind(kind, st.integers(low, high))


def times(kind: Any, name: str, low: int = -(10**12)) -> Kind:
    dtype = np.dtype(name)
    return Kind(kind, st.integers(low, 10**12), lambda value: np.array(value, "i8").view(dtype)[()])


FLOATS = [
    Kind(pa.float16(), st.floats(width=16).map(np.float16), float),
    Kind(pa.float32(), st.floats(width=32)),
    Kind(pa.float64(), st.floats()),
]
INTS = [integers(getattr(pa, f"int{bits}")(), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)]
INTS += [integers(getattr(pa, f"uint{bits}")(), 0, 2**bits - 1) for bits in (8, 16, 32, 64)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIMES = [
    *(times(pa.timestamp(unit), f"M8[{unit}]") for unit in ("s", "ms", "us", "ns")),
    *(times(pa.duration(unit), f"m8[{unit}]") for unit in ("s", "ms", "us", "ns")),
    Kind(pa.date32(), st.integers(-10_000, 10_000), lambda value: np.datetime64(value, "D")),
    Kind(pa.date64(), st.integers(-99, 99).map(lambda n: n * 86_400_000), lambda value: np.datetime64(value, "ms")),
]
DECIMALS = [
    Kind(make(7, 2), st.integers(-(10**7) + 1, 10**7 - 1).map(lambda n: Decimal(n).scaleb(-2)))
    for make in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
]
BYTES = [Kind(make(), st.binary(max_size=4)) for make in (pa.binary, pa.large_binary, pa.binary_view)]
BYTES += [Kind(pa.binary(2), st.binary(min_size=2, max_size=2))]
LEAVES = [
    Kind(pa.bool_(), st.booleans()),
    *(Kind(make(), TEXT) for make in (pa.string, pa.large_string, pa.string_view)),
    *(FLOATS + INTS + TIMES + DECIMALS + BYTES),
    Kind(pa.null(), st.none()),
]
# What an extension means to others is stored; here are those of Arrow itself.
STORED = [
    Kind(pa.uuid(), st.binary(min_size=16, max_size=16)),
    Kind(pa.json_(), TEXT.map(lambda text: f'"{len(text)}"')),
    Kind(pa.bool8(), st.integers(-1, 1)),
    Kind(pa.opaque(pa.int32(), "t", "v"), st.integers(0, 9)),
]


def missing(kind: Kind) -> st.SearchStrategy[Any]:
    return st.none() | kind.values


def several(kind: Kind, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(missing(kind), max_size=most)


def listed(kind: Kind) -> st.SearchStrategy[Kind]:
    def made(make: Callable[[Any], Any]) -> Kind:
        return Kind(make(kind.type), several(kind), lambda value: [back(kind, each) for each in value])

    sized = Kind(
        pa.list_(kind.type, 2),
        st.lists(missing(kind), min_size=2, max_size=2),
        lambda value: [back(kind, each) for each in value],
    )
    makers = st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
    return makers.map(made) | st.just(sized)


def structs(kinds: list[Kind]) -> Kind:
    names = [f"f{i}.x" for i in range(len(kinds))]
    return Kind(
        pa.struct([(name, kind.type) for name, kind in zip(names, kinds, strict=True)]),
        st.fixed_dictionaries({name: missing(kind) for name, kind in zip(names, kinds, strict=True)}),
        lambda value: {name: back(kind, value[name]) for name, kind in zip(names, kinds, strict=True)},
    )


def mapped(key: Kind, item: Kind) -> Kind:
    return Kind(
        pa.map_(key.type, item.type),
        st.lists(st.tuples(key.values, missing(item)), max_size=2),
        lambda value: [[back(key, one), back(item, two)] for one, two in value],
    )


def back(kind: Kind, value: Any) -> Any:
    return None if value is None else kind.expected(value)


def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    keys = st.sampled_from([Kind(pa.string(), TEXT), INTS[2], FLOATS[2]])
    return inner.flatmap(listed) | st.lists(inner, max_size=3).map(structs) | st.builds(mapped, keys, inner)


KINDS = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


def same(found: Any, expected: Any) -> bool:
    """Whether values are the same: arrays as lists, numbers of numpy as Python's, times with their unit."""
    if isinstance(found, np.ndarray):
        found = list(found) if found.dtype.kind in "mM" else found.tolist()
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return isinstance(found, dict) and [*found] == [*expected] and all(map(same, found.values(), expected.values()))
    if isinstance(expected, np.datetime64 | np.timedelta64):
        return (
            type(found) is type(expected) and found.dtype == expected.dtype and found.view("i8") == expected.view("i8")
        )
    if isinstance(expected, float):
        return not isinstance(found, bool) and (found == expected or (math.isnan(found) and math.isnan(expected)))
    if isinstance(expected, int) and not isinstance(expected, bool):
        return not isinstance(found, bool) and isinstance(found, int | np.integer) and int(found) == expected
    return type(found) is type(expected) and found == expected


def there_and_back(samples: list[Any], fields: Any) -> list[Any]:
    columns = choose_columns(samples, None, ColumnFacts(fields=fields))
    schema = columns.schema
    return [schema.decode(memoryview(schema.encode(columns.prepare(sample))))["x"] for sample in samples]


def check_table(table: Any, expected: list[Any]) -> None:
    rows = TableRows(table.schema, {"x": count_missing(table.column("x"))}, {})
    found = there_and_back(rows.samples(table), rows.fields)
    assert same(found, expected), (found, expected, table.schema, rows.fields)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Kind, list[Any]]:
    kind = draw(KINDS)
    return kind, draw(st.lists(missing(kind), min_size=1, max_size=5))


@SETTINGS
@given(tables(), st.integers(0, 2))
def test_a_table_there_and_back(case, cut):
    """In chunks, and in slices of what is longer."""
    kind, values = case
    array = pa.array(values * 3, kind.type)
    check_table(
        pa.table({"x": array.slice(cut, len(values))}), [back(kind, v) for v in (values * 3)[cut:][: len(values)]]
    )
    chunks = pa.chunked_array([array.slice(0, cut), array.slice(cut)], kind.type)
    check_table(pa.table({"x": chunks}), [back(kind, v) for v in values * 3])


@SETTINGS
@given(tables(), st.booleans())
def test_a_parquet_file_there_and_back(tmp_path, case, statistics):
    kind, values = case
    path = tmp_path / "a.parquet"
    table = pa.table({"x": pa.array(values, kind.type)})
    try:
        pq.write_table(table, path, write_statistics=statistics, row_group_size=2)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return  # a type that Parquet does not have
    expected = [back(kind, value) for value in values]
    stored = pq.read_schema(path).field("x").type
    if stored != kind.type:  # of less precise seconds, for one
        return
    dataset = ParquetDataset([path])
    found = dataset.__getitems__(range(len(values)))
    schema = dataset.columns.schema
    found = [schema.decode(memoryview(schema.encode(sample)))["x"] for sample in found]
    assert same(found, expected), (found, expected, schema)


@pytest.mark.parametrize("kind", LEAVES + STORED, ids=lambda kind: str(kind.type))
@pytest.mark.parametrize("encoded", ["plain", "dictionary", "runs", "inside"])
def test_each_leaf_however_it_is_encoded(kind, encoded):
    values = _few(kind)
    storage = getattr(kind.type, "storage_type", None)
    array = pa.array(values, storage or kind.type)
    try:
        if encoded == "dictionary":
            array = array.dictionary_encode()
        elif encoded == "runs":
            array = pc.run_end_encode(array)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pytest.skip("Arrow does not encode this type so")
    if storage is not None and encoded in ("plain", "inside"):
        array = pa.ExtensionArray.from_storage(kind.type, array)
    expected = [back(kind, value) for value in values]
    if encoded == "inside":
        array, expected = pa.ListArray.from_arrays([0, len(array), len(array)], array), [expected, []]
    check_table(pa.table({"x": array}), expected)
    places = list(range(len(expected)))[::-1]
    written = table_of(pa.table({"x": array})).dataset(None)  # what `convert` and `DatasetWriter` take rows of
    found = there_and_back(written.__getitems__(places), written.columns.schema.fields)
    assert same(found, expected[::-1])


def _few(kind: Kind) -> list[Any]:
    """Two values of a type, and one that is missing; the same each time."""
    simplest: list[Any] = []

    @settings(max_examples=2, derandomize=True, database=None, deadline=None)
    @given(kind.values)
    def draw(value):
        simplest.append(value)

    draw()
    return [simplest[0], None, simplest[-1]]


TIME, INTERVAL = pa.time64("us"), pa.month_day_nano_interval()


@pytest.mark.parametrize(
    "kind",
    [
        *(TIME, pa.time32("s"), INTERVAL, pa.list_(TIME), pa.map_(pa.string(), pa.list_(INTERVAL))),
        *(pa.struct([("a", TIME)]), pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.dictionary(pa.int8(), TIME)),
        pa.sparse_union([pa.field("a", pa.int8())]),
    ],
    ids=str,
)
def test_what_no_field_holds_is_refused_by_name(kind):
    with pytest.raises(FormatError, match=r"column 'x' has type .*, which no field can hold"):
        TableRows(pa.schema([("x", kind)]), {}, {})


def test_a_refusal_names_the_file(tmp_path):
    pq.write_table(pa.table({"x": pa.array([1], TIME)}), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"a\.parquet: column 'x' has type time64\[us\], which no field can hold"):
        convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0)
    assert not (tmp_path / "out").exists()


def test_tensors():
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0])
    storage = pa.array([[1, 2, 3, 4, 5, 6], None, [7] * 6], pa.list_(pa.int32(), 6))
    table = pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)})
    rows = TableRows(table.schema, {"x": count_missing(table.column("x"))}, {})
    assert rows.fields == {"x": OptionalField(NDArrayField("int32", (3, 2)))}
    found = there_and_back(rows.samples(table), rows.fields)
    assert found[1] is None and found[0].tolist() == [[1, 4], [2, 5], [3, 6]] and found[2].shape == (3, 2)


@pytest.mark.parametrize(
    ("values", "kind", "field"),
    [
        ([1.5, None], pa.float32(), "OptionalField(FloatField())"),
        ([1.5, 2.5], pa.float32(), "FloatField()"),
        ([[1.5], None], pa.list_(pa.float32()), "OptionalField(NDArrayField('float32', (None,)))"),
        ([[1.5], []], pa.list_(pa.float32()), "NDArrayField('float32', (None,))"),
        ([[1.5, None]], pa.list_(pa.float32()), "MsgpackField()"),
        ([[1, None]], pa.list_(pa.int32()), "JSONField()"),
        ([[1], [2]], pa.list_(pa.timestamp("us")), "NDArrayField('datetime64[us]', (None,))"),
        ([5, None], pa.duration("ns"), "OptionalField(ScalarField('timedelta64[ns]'))"),
        ([[b"a", None]], pa.list_(pa.binary()), "MsgpackField()"),
        ([{"a": b"x"}], pa.struct([("a", pa.binary())]), "MsgpackField()"),
        ([[{"a": 1.0}]], pa.list_(pa.struct([("a", pa.float64())])), "MsgpackField()"),
        ([{"bytes": b"x", "path": None}, None], pa.struct([("bytes", pa.binary()), ("path", pa.string())]), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("statistics", [False, True])
def test_fields_follow_what_is_missing(tmp_path, values, kind, field, statistics):
    pq.write_table(pa.table({"x": pa.array(values, kind)}), tmp_path / "a.parquet", write_statistics=statistics)
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0, verify=True)
    with FileReader(tmp_path / "out") as reader:
        expected = repr(OptionalField(BytesField())) if field is None else field
        assert repr(schema_of(reader).fields["x"]) == expected


def test_a_file_that_says_wrongly_that_nothing_is_missing():
    table = pa.table({"v": pa.array([1, None]), "w": pa.array([[1], [None]])})
    for name, words in (("v", r"column 'v': a value is missing.*declare OptionalField"), ("w", "declare MsgpackField")):
        part = table.select([name])
        with pytest.raises(RowError, match=words) as error:
            TableRows(part.schema, {}, {}).samples(part)
        assert error.value.place == 1


@pytest.mark.parametrize("declared", [JSONField(), MsgpackField(), OptionalField(JSONField())], ids=str)
def test_maps_at_any_depth_into_a_field_of_the_users(tmp_path, declared):
    kind = pa.list_(pa.map_(pa.string(), pa.map_(pa.int8(), pa.string())))
    value = [[("a", [(1, "b"), (1, None)])], []]
    pq.write_table(pa.table({"x": pa.array([value], kind)}), tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "out", fields={"x": declared}, num_workers=0, verify=True)
    with FileReader(tmp_path / "out") as reader:
        assert reader.sample(0)["x"] == [[["a", [[1, "b"], [1, None]]]], []]


def test_nested_zones_are_told(tmp_path, caplog):
    kind = pa.list_(pa.timestamp("us", "Asia/Tokyo"))
    pq.write_table(pa.table({"x": pa.array([[5]], kind)}), tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0)
    assert "column 'x': times are stored in UTC, without their zone Asia/Tokyo" in caplog.text


def test_dots_in_names_of_columns(tmp_path):
    """What a file says of `a.b` is not said of what is in `a`."""
    table = pa.table({"a.b": [1, None], "a": [{"b": 1, "c": 2.0}, None], "l.list.element": [None, "x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "out", num_workers=0, verify=True)
    with FileReader(tmp_path / "out") as reader:
        assert reader.samples(range(2)) == table.to_pylist()


# Several files


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def samples(path: Path) -> list[Any]:
    with FileReader(path) as reader:
        return reader.samples(range(len(reader)))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"a": pa.array([1], pa.int32()), "b": ["x"]},
            r"c\.parquet: the types of its columns differ from those of .*a\.parquet: 'a' is int32",
        ),
        ({"a": [1]}, r"c\.parquet: its columns differ from those of .*a\.parquet: 'b' is only in .*a\.parquet"),
        ({"a": [1], "b": ["x"], "c": [1]}, r"'c' is only in .*c\.parquet"),
    ],
)
def test_files_that_differ_are_told_by_column(tmp_path, other, words):
    write(tmp_path / "in" / "a.parquet", a=[1], b=["x"])
    write(tmp_path / "in" / "c.parquet", **other)
    with pytest.raises(FormatError, match=words):
        convert(tmp_path / "in", tmp_path / "out", num_workers=0)


def test_files_in_which_a_column_is_all_missing(tmp_path):
    """Pandas writes such a column with a type of its own; and columns may be in another order."""
    write(tmp_path / "in" / "a.parquet", a=[None, None], b=["x", "y"])
    write(tmp_path / "in" / "b.parquet", b=["z"], a=[1.5])
    write(tmp_path / "in" / "c.parquet", a=[None], b=[None])
    convert(tmp_path / "in", tmp_path / "out", num_workers=0, verify=True)
    found = [{"a": None, "b": "x"}, {"a": None, "b": "y"}, {"a": 1.5, "b": "z"}, {"a": None, "b": None}]
    assert samples(tmp_path / "out") == found


def test_partitions(tmp_path):
    """As Hive, Spark and pyarrow write them."""
    root = tmp_path / "in"
    write(root / "year=2024" / "where=a%2Fb" / "part-0.parquet", n=[1, 2])
    write(root / "year=2024" / "where=__HIVE_DEFAULT_PARTITION__" / "part-0.parquet", n=[3])
    write(root / "year=2025" / "where=c" / "part-0.parquet", n=[4])
    (root / "_SUCCESS").touch()
    convert(root, tmp_path / "out", num_workers=0, verify=True)
    assert [tuple(each.values()) for each in samples(tmp_path / "out")] == [
        (3, 2024, None),
        (1, 2024, "a/b"),
        (2, 2024, "a/b"),
        (4, 2025, "c"),
    ]
    pq.write_to_dataset(pa.table({"n": [1, 2], "k": ["x", "01"]}), tmp_path / "by_arrow", partition_cols=["k"])
    convert(tmp_path / "by_arrow", tmp_path / "again", num_workers=0)
    assert samples(tmp_path / "again") == [{"n": 2, "k": "01"}, {"n": 1, "k": "x"}]


def test_partitions_that_are_odd(tmp_path, caplog):
    """Nothing is left out without a word."""
    for number, value in enumerate(("", "%FE", "%FF", "a=b")):
        write(tmp_path / "in" / f"k={value}" / "x.parquet", n=[number])
    convert(tmp_path / "in", tmp_path / "out", num_workers=0)
    assert samples(tmp_path / "out") == [
        {"n": 0, "k": ""}, {"n": 1, "k": "%FE"}, {"n": 2, "k": "%FF"}, {"n": 3, "k": "a=b"},
    ]  # fmt: skip
    assert not caplog.text
    for directory in (tmp_path / "in", tmp_path / "in" / "k=a=b"):
        write(directory / "more" / "y.parquet", n=[4])
        convert(tmp_path / "in", tmp_path / f"{directory.name}.out", num_workers=0)
        assert len(samples(tmp_path / f"{directory.name}.out")) == 4
        assert f"{directory / 'more'}: its name is not that of a partition" in caplog.text
        caplog.clear()


def test_partitions_that_differ(tmp_path):
    write(tmp_path / "in" / "a=1" / "x.parquet", n=[1])
    write(tmp_path / "in" / "b=1" / "x.parquet", n=[1])
    with pytest.raises(FormatError, match=r"its partitions are \['b'\], those of .* are \['a'\]"):
        convert(tmp_path / "in", tmp_path / "out", num_workers=0)


def test_a_column_that_is_in_the_files_too(tmp_path, caplog):
    """That of the files is taken, and that is told."""
    write(tmp_path / "in" / "n=7" / "x.parquet", n=[1, 2])
    convert(tmp_path / "in", tmp_path / "out", num_workers=0)
    assert samples(tmp_path / "out") == [{"n": 1}, {"n": 2}]
    said = "x.parquet: column 'n' is in the files, so its values in the names of directories are left out"
    assert said in caplog.text


def test_a_shard_of_a_partition_that_is_not_there(tmp_path, caplog):
    """Each partition has its own shards, even if their names are the same."""
    for partition in ("k=1", "k=2"):
        for number in range(2):
            write(tmp_path / "in" / partition / f"x-{number:05}-of-00002.parquet", n=[number])
    convert(tmp_path / "in", tmp_path / "whole", num_workers=0)
    assert not caplog.text
    (tmp_path / "in" / "k=2" / "x-00001-of-00002.parquet").unlink()
    convert(tmp_path / "in", tmp_path / "part", num_workers=0)
    assert len(samples(tmp_path / "part")) == 3
    found = f"{tmp_path / 'in' / 'k=2'}: it has 1 file called x-…-of-00002.parquet, expected 2"
    assert [record.getMessage() for record in caplog.records] == [found]


def test_text_that_is_no_utf_8(tmp_path):
    offsets = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"ab\xff")])
    with pytest.raises(FFRecordError, match=r"row 2: column 'a': its text is not UTF-8.*cast it to binary"):
        DatasetWriter(tmp_path / "out", num_workers=0, progress=False).from_indexed_dataset(pa.table({"a": text}))


def test_a_path_beside_bytes_is_told_to_be_left_out(tmp_path, caplog):
    table = pa.table({"a": [{"bytes": b"x", "path": "p"}]})
    DatasetWriter(tmp_path / "out", num_workers=0, progress=False).from_indexed_dataset(table)
    assert "column 'a': its bytes are read as files, its path is left out" in caplog.text
    caplog.clear()
    said = json.dumps({"info": {"features": {"a": {"_type": "Image"}}}}).encode()
    declared = table.replace_schema_metadata({b"huggingface": said})
    DatasetWriter(tmp_path / "images", num_workers=0, progress=False).from_indexed_dataset(declared)
    assert "left out" not in caplog.text

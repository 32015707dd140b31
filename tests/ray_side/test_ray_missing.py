"""Every field, with what is missing, within lists and beside them, in every kind of Arrow, goes there and back."""

import datetime
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from ray.data.extensions import ArrowPythonObjectArray
from ray_builders import same

from ffrecord import FileReader
from ffrecord.fields import (
    BoolField,
    BytesField,
    DecimalField,
    Field,
    FloatField,
    IntField,
    JSONField,
    LabelField,
    ListField,
    MsgpackField,
    NDArrayField,
    NoneField,
    OptionalField,
    ScalarField,
    Schema,
    StrField,
    ZstdField,
)
from ffrecord.ray.records import ArrowRecords
from ffrecord.ray.to_arrow import column_array

NAN = float("nan")
WORDS = pa.dictionary(pa.int32(), pa.string())
PRICES = [Decimal("1.50"), Decimal("0.00"), Decimal("-3.25")]
TREES = [{"a": 1, "b": ["x"]}, {"a": None, "b": None}, {"a": 2**53 + 1, "b": []}]
MOMENT = datetime.datetime(2024, 2, 3, 4, 5, 6)

# Field, kinds of Arrow, values in Python, and what comes back of them if that is something else.
SCALARS: list[tuple[Field, list[Any], list[Any], list[Any] | None]] = [
    (IntField(), [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32()], [7, 0, 100], None),
    (IntField(), [pa.int64()], [2**53 + 1, -(2**63), 2**63 - 1], None),
    (FloatField(), [pa.float16(), pa.float32(), pa.float64()], [1.5, NAN, -0.0], None),
    (ScalarField("uint64"), [pa.uint64()], [2**64 - 1, 1, 0], None),
    (ScalarField("float32"), [pa.float32()], [1.5, NAN, -0.0], None),
    (BoolField(), [pa.bool_()], [True, False, True], None),
    (StrField(), [pa.string(), pa.large_string(), pa.string_view(), WORDS], ["a", "", "ü"], None),
    (BytesField(), [pa.binary(), pa.large_binary(), pa.binary_view()], [b"a", b"", b"\0\xff"], None),
    (BytesField(), [pa.binary(2)], [b"ab", b"cd", b"\0\xff"], None),
    (LabelField(["x", "y"]), [pa.int64(), pa.int8()], [1, 0, 1], None),
    (LabelField(["x", "y"]), [pa.string(), WORDS], ["y", "x", "y"], [1, 0, 1]),
    (DecimalField(), [pa.decimal128(10, 2), pa.decimal256(10, 2)], PRICES, None),
    (JSONField(), [pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])], TREES, None),
    (JSONField(), [pa.list_(pa.int64())], [[1, None], [], [2**53 + 1]], None),
]  # fmt: skip
# Of times a value that is missing is NaT, unless their field is an OptionalField.
TIMES: list[tuple[Field, list[Any], list[Any], list[Any] | None]] = [
    (ScalarField("datetime64[us]"), [pa.timestamp("us")], [MOMENT, MOMENT], [np.datetime64(MOMENT)] * 2),
    (ScalarField("datetime64[D]"), [pa.date32()], [MOMENT.date()] * 2, [np.datetime64(MOMENT.date())] * 2),
    (ScalarField("timedelta64[ms]"), [pa.duration("ms")], [datetime.timedelta(1)] * 2, [np.timedelta64(1, "D")] * 2),
]  # fmt: skip
EACH = [
    pytest.param(field, kind, values, values if back is None else back, id=f"{type(field).__name__} {kind}")
    for field, kinds, values, back in (*SCALARS, *TIMES)
    for kind in kinds
]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def encoded(field: Field, array: Any) -> list[bytes]:
    found: list[bytes] = []
    block = array if isinstance(array, pd.DataFrame) else pa.table({"x": array})
    for data, offsets in ArrowRecords(Schema.of({"x": field})).records(block):
        found += [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    return found


def there(field: Field, array: Any) -> list[Any]:
    """Values that are written and read."""
    return [Schema.of({"x": field}).decode(record)["x"] for record in encoded(field, array)]


def back(field: Field, array: Any) -> list[Any]:
    """The same, once more by way of the block that reading makes of them."""
    values = there(field, array)
    again = there(field, column_array(field, column_of(field, values)))
    assert alike(again, values)
    return values


def column_of(field: Field, values: list[Any]) -> Any:
    schema = Schema.of({"x": field})
    records = [schema.encode({"x": value}) for value in values]
    offsets = np.cumsum([0, *map(len, records)])
    return schema.decode_columns(np.frombuffer(b"".join(map(bytes, records)), np.uint8), offsets)["x"]


def alike(found: Any, expected: Any) -> bool:
    """The same values: None is None, NaN is NaN, numbers have not become others, and lists are lists."""
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(alike, found, expected))
    if expected is None or found is None:
        return found is None and expected is None
    if isinstance(expected, float | np.floating) and np.isnan(expected):
        return bool(np.isnan(found))
    return same(found, expected)


@pytest.mark.parametrize(("field", "kind", "values", "expected"), EACH)
def test_there_and_back(field: Field, kind: Any, values: list[Any], expected: list[Any]) -> None:
    assert alike(back(field, pa.array(values, kind)), expected)
    assert alike(back(ZstdField(field), pa.array(values, kind)), expected)


@pytest.mark.parametrize(("field", "kind", "values", "expected"), EACH)
def test_missing_values(field: Field, kind: Any, values: list[Any], expected: list[Any]) -> None:
    """None stays None, whatever is around it; all of them, none, in several chunks, and sliced."""
    around: list[Field] = [OptionalField(field), ZstdField(OptionalField(field)), OptionalField(ZstdField(field))]
    for optional in around:
        for given, wanted in (
            ([None, *values, None], [None, *expected, None]),
            (values, expected),
            ([None, None], [None, None]),
        ):
            array = pa.array(given, kind)
            assert alike(back(optional, array), wanted)
            assert alike(there(optional, pa.chunked_array([array, array[:0], array])), [*wanted, *wanted])
            assert alike(there(optional, array[1:]), wanted[1:])
    if not isinstance(field, JSONField) and kind not in [each for _, kinds, _, _ in TIMES for each in kinds]:
        with pytest.raises(TypeError, match=r"column 'x': 1 values are missing, which .*; declare OptionalField"):
            encoded(field, pa.array([*values, None], kind))


@pytest.mark.parametrize(("field", "kind", "values", "expected"), EACH)
def test_lists(field: Field, kind: Any, values: list[Any], expected: list[Any]) -> None:
    for made in LISTS:
        array = pa.array([values, [], values[:1]], made(kind))
        wanted = [expected, [], expected[:1]]
        assert alike(back(ListField(field), array), wanted)
        assert alike(there(ListField(field), array[1:]), wanted[1:])
        nested = pa.array([[values, []], []], made(made(kind)))
        assert alike(back(ListField(ListField(field)), nested), [[expected, []], []])
        missing = pa.array([[values[0], None], None, []], made(kind))
        optional = OptionalField(ListField(OptionalField(field)))
        assert alike(back(optional, missing), [[expected[0], None], None, []])
        deep = pa.array([[[None, values[0]], None], None], made(made(kind)))
        deepest = OptionalField(ListField(optional))
        assert alike(back(deepest, deep), [[[None, expected[0]], None], None])
        with pytest.raises(TypeError, match="column 'x': 1 values are missing"):
            encoded(ListField(OptionalField(field)), missing)
        if not isinstance(field, JSONField) and not pa.types.is_temporal(kind):
            with pytest.raises(TypeError, match="column 'x': 1 values are missing"):
                encoded(OptionalField(ListField(field)), missing)
    of_two = pa.array([values[:2], values[:2]], pa.list_(kind, 2))
    assert alike(back(ListField(field), of_two), [expected[:2]] * 2)


@pytest.mark.parametrize(("field", "kind", "values", "expected"), EACH)
def test_python_objects(field: Field, kind: Any, values: list[Any], expected: list[Any]) -> None:
    first = there(field, pa.array(values, kind))[0]  # of numpy, where its field gives such
    array = ArrowPythonObjectArray.from_objects([[first, None], None, []])
    assert alike(back(OptionalField(ListField(OptionalField(field))), array), [[expected[0], None], None, []])


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8", "float64"])
def test_arrays(dtype: str) -> None:
    field = NDArrayField(dtype, (None,))
    arrays = [np.arange(3, dtype=dtype), np.arange(0, dtype=dtype)]
    kind = pa.list_(pa.from_numpy_dtype(np.dtype(dtype)))
    found = back(OptionalField(field), pa.array([*arrays, None], kind))
    assert found[2] is None and all(map(np.array_equal, found, arrays))
    assert [each.dtype for each in found[:2]] == [np.dtype(dtype)] * 2
    lists = back(ListField(field), pa.array([[each.tolist() for each in arrays], []], pa.list_(kind)))
    assert all(map(np.array_equal, lists[0], arrays)) and lists[1] == []
    for inside in (field, OptionalField(field)):
        with pytest.raises(TypeError, match="column 'x': 1 values are missing"):
            encoded(inside, pa.array([[1, None]], kind))


def test_times_that_are_missing() -> None:
    for field, kinds, values, _ in TIMES:
        found = there(field, pa.array([*values, None], kinds[0]))
        assert np.isnat(found[-1]) and not np.isnat(found[0])


def test_none_alone() -> None:
    assert back(NoneField(), pa.nulls(2)) == [None, None]
    assert back(OptionalField(IntField()), pa.nulls(2)) == [None, None]
    assert back(ListField(NoneField()), pa.array([[None], []], pa.list_(pa.null()))) == [[None], []]


def test_pandas() -> None:
    """NaN of a column of floats is NaN; what is missing is told by a column of objects, or of pandas' own types."""
    floats = pd.DataFrame({"x": [1.5, NAN]})
    for field in (FloatField(), OptionalField(FloatField())):
        assert alike(there(field, floats), [1.5, NAN])
    assert alike(
        there(OptionalField(FloatField()), pd.DataFrame({"x": pd.Series([1.5, None], dtype=object)})), [1.5, None]
    )
    numbers = pd.DataFrame({"x": pd.Series([2**53 + 1, None], dtype="Int64")})
    assert there(OptionalField(IntField()), numbers) == [2**53 + 1, None]
    assert there(OptionalField(StrField()), pd.DataFrame({"x": ["a", None]})) == ["a", None]
    assert there(ListField(StrField()), pd.DataFrame({"x": [["a", "b"], []]})) == [["a", "b"], []]


@pytest.mark.long
def test_by_way_of_ray(started_ray: None, tmp_path: Any) -> None:
    """As users write it: rows of Python, and what is read of them written once more."""
    import ray

    import ffrecord.ray

    rows = [
        {"i": 0, "number": 7, "share": 1.5, "tags": ["a", "b"], "scores": [1, 2], "deep": [[1], []], "day": None},
        {"i": 1, "number": None, "share": None, "tags": ["c"], "scores": [3], "deep": [], "day": None},
        {"i": 2, "number": 2**53 + 1, "share": NAN, "tags": [], "scores": [], "deep": [[2, 3]], "day": "x"},
    ]
    schema = {
        "i": IntField(),
        "number": OptionalField(IntField()),
        "share": OptionalField(FloatField()),
        "tags": ListField(StrField()),
        "scores": ListField(IntField()),
        "deep": ListField(ListField(IntField())),
        "day": OptionalField(StrField()),
    }
    ffrecord.ray.write(ray.data.from_items(rows, override_num_blocks=1), tmp_path / "a", schema=schema)
    ffrecord.ray.write(ffrecord.ray.read(str(tmp_path / "a")), tmp_path / "b", schema=schema)
    for name in ("a", "b"):
        with FileReader(tmp_path / name) as reader:
            found = sorted(reader.samples(range(3)), key=lambda sample: sample["i"])
        for sample, row in zip(found, rows, strict=True):
            assert all(alike(sample[key], row[key]) for key in row), (sample, row)


PAIRS = pa.map_(pa.string(), pa.int64())
MAPS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "maps": (PAIRS, [[("a", 1), ("a", None)], [], None], [[["a", 1], ["a", None]], [], None]),
    "of ints": (pa.map_(pa.int64(), pa.float64()), [[(1, 0.5)], None], [[[1, 0.5]], None]),
    "in lists": (pa.list_(PAIRS), [[[("a", 1)], None], [], None], [[[["a", 1]], None], [], None]),
    "in structs": (
        pa.struct([("m", PAIRS)]),
        [{"m": [("a", 1)]}, {"m": None}, None],
        [{"m": [["a", 1]]}, {"m": None}, None],
    ),
    "in maps": (pa.map_(pa.string(), PAIRS), [[("a", [("b", 1)])], None], [[["a", [["b", 1]]]], None]),
}
ANY = [JSONField(), MsgpackField(), ZstdField(JSONField()), OptionalField(JSONField()), OptionalField(MsgpackField())]


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("field", [*ANY, OptionalField(ZstdField(JSONField()))], ids=repr)
def test_maps_become_lists_of_pairs(name: str, field: Field) -> None:
    """As in `convert`: their keys may repeat, and need not be text."""
    kind, values, expected = MAPS[name]
    array = pa.array(values, kind)
    assert back(field, array) == expected
    # Pieces of a longer array, which the keys and items of a map do not know.
    assert back(field, pa.chunked_array([array[1:], array[:1]])) == [*expected[1:], expected[0]]


@pytest.mark.parametrize("inner", [JSONField(), OptionalField(JSONField()), MsgpackField()], ids=repr)
def test_lists_of_pairs_of_maps(inner: Field) -> None:
    kind, values, expected = MAPS["in lists"]
    for outer in (OptionalField(ListField(inner)), ListField(OptionalField(ListField(inner)))):
        there = [value for value in expected if value is not None or isinstance(outer, OptionalField)]
        given = [value for value in values if value is not None or isinstance(outer, OptionalField)]
        assert back(outer, pa.array(given, kind)) == there
    with pytest.raises(TypeError, match=r"column 'x': 1 values are missing, which ListField.* declare OptionalField"):
        encoded(ListField(inner), pa.array(values, kind))

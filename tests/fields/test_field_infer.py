"""Columns from probe samples."""

import datetime
import fractions
import math
import re
import sys
import types
from typing import Any

import numpy as np
import pytest

import ffrecord.fields
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import (
    BoolField,
    BytesField,
    FloatField,
    IntField,
    JSONField,
    ListField,
    NDArrayField,
    NoneField,
    ScalarField,
    Schema,
    StrField,
)
from ffrecord.system.values import is_image, is_tensor


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (1, IntField()),
        (1.0, FloatField()),
        (True, BoolField()),
        ("x", StrField()),
        (b"x", BytesField()),
        (bytearray(b"x"), BytesField()),
        (memoryview(b"x"), BytesField()),
        (None, NoneField()),
        (np.float32(1), ScalarField("float32")),
        (np.float64(1), ScalarField("float64")),
        (np.bool_(True), ScalarField("bool")),
        (np.datetime64("2000-01-01"), ScalarField("datetime64[D]")),
        (np.str_("x"), StrField()),
        (np.bytes_(b"x"), BytesField()),
        (np.zeros((2, 3), "f4"), NDArrayField("float32", (2, 3))),
        (np.zeros((), ">i2"), NDArrayField(">i2", ())),
    ],
)
def test_kinds(value: Any, field: Any) -> None:
    assert Schema.infer([value]).fields == {"value": field}
    assert Schema.infer((value, value)) == Schema.of(field)


def array(dtype: str, *shape: int | None) -> NDArrayField:
    return NDArrayField(dtype, shape)


@pytest.mark.parametrize(
    ("lists", "field"),
    [
        ([[1, 2, 3]], array("int64", 3)),
        ([[1, 2], [3, 4, 5], []], array("int64", None)),
        ([[0.5, 1.5]], array("float64", 2)),
        ([[0.5, 1], [2, 3]], array("float64", 2)),
        ([[1, 2], [0.5, 1.5]], array("float64", 2)),
        ([[True, False]], array("bool", 2)),
        ([[np.float32(1), np.float32(2)]], array("float32", 2)),
        ([[[1, 2], [3, 4]]], array("int64", 2, 2)),
        ([[(1, 2), (3, 4)], [(5, 6)]], array("int64", None, 2)),
        ([[[0.5, 1, 2, 3]], []], array("float64", None, 4)),
        ([[], [[0.5, 1, 2, 3]]], array("float64", None, 4)),
        ([[[1], [2]], [3]], NDArrayField("int64", None)),
        ([["a", "b"], []], ListField(StrField())),
        ([["a"]], ListField(StrField())),
        ([[b"a"], [b"b", b"c"]], ListField(BytesField())),
        ([[np.zeros(2)], [np.zeros(2)] * 2], ListField(array("float64", 2))),
        ([[]], JSONField()),
        ([[[1], [2, 3]]], JSONField()),
        ([[1, None]], JSONField()),
        ([[2**64]], JSONField()),
        ([[{"box": [1, 2]}], []], JSONField()),
        ([["a", 1], ["b"]], JSONField()),
        ([["a", 1], [2, "b"]], JSONField()),
    ],
)
def test_lists(lists: list[Any], field: Any) -> None:
    """Numbers are arrays, texts lists of any length, what JSON alone holds is JSON."""
    probes = [{"x": each, "y": 1} for each in lists]
    schema = Schema.infer(probes)
    assert schema.fields == {"x": field, "y": IntField()}
    assert Schema.infer([{"meta": (each, 1)} for each in lists]).fields == {"meta[0]": field, "meta[1]": IntField()}
    for probe in probes:
        back = schema.decode(schema.encode(probe))["x"]
        assert np.array_equal(back, np.array(probe["x"]).reshape(back.shape)) if isinstance(back, np.ndarray) else True
        assert isinstance(back, np.ndarray) or isinstance(field, ListField) or back == probe["x"]


@pytest.mark.parametrize(
    ("samples", "fields"),
    [
        ([{"x": [np.zeros(2), 3]}], {"x[0]": array("float64", 2), "x[1]": IntField()}),
        ([["text", 3], ["other", 4]], {"[0]": StrField(), "[1]": IntField()}),
        ([[True, 3]], {"[0]": BoolField(), "[1]": IntField()}),
        ([[0.5, 3], [1.5, 4]], {"[0]": FloatField(), "[1]": IntField()}),
        ([([1, 2], 3)], {"[0]": array("int64", 2), "[1]": IntField()}),
        ([(1, 2)], {"[0]": IntField(), "[1]": IntField()}),
        ([{"x": [{"a": np.zeros(2)}]}], {"x[0].a": array("float64", 2)}),
    ],
)
def test_structures(samples: list[Any], fields: Any) -> None:
    """Tuples, and lists of values of several kinds, keep a column for each."""
    assert Schema.infer(samples).fields == fields


def test_records_of_lists_as_columns_are_read_and_written_as_ever() -> None:
    """So were lists of numbers inferred before."""
    schema = Schema.of({"x": [IntField(), IntField()]})
    assert schema.decode(schema.encode({"x": [1, 2]})) == {"x": [1, 2]}
    assert Schema.from_builtins(schema.to_builtins()).columns == ("x[0]", "x[1]")


@pytest.mark.parametrize(
    ("shapes", "shape"),
    [
        ([(2, 3), (2, 3)], (2, 3)),
        ([(2, 3), (4, 3)], (None, 3)),
        ([(2, 3), (4, 3), (4, 5)], (None, None)),
        ([(2, 3), (2,)], None),
        ([(2,), (2, 3), (2,)], None),
        ([(), (0,)], None),
    ],
)
def test_shapes_that_differ(shapes: list[tuple[int, ...]], shape: Any) -> None:
    probes = [{"x": np.zeros(each, "u1")} for each in shapes]
    schema = Schema.infer(probes)
    assert schema.fields == {"x": NDArrayField("u1", shape)}
    assert [schema.decode(schema.encode(probe))["x"].shape for probe in probes] == shapes


def test_tensor_shapes_that_differ() -> None:
    torch = pytest.importorskip("torch")
    schema = Schema.infer([torch.zeros(2, 3), torch.zeros(2, 4)])
    assert repr(schema.fields["value"]) == "TensorField('float32', (2, None))"


def test_keys_in_another_order() -> None:
    schema = Schema.infer([{"a": np.zeros(1), "b": 1}, {"b": 1, "a": np.zeros(2)}])
    assert schema.columns == ("a", "b")
    assert schema.fields["a"] == NDArrayField("f8", (None,))


@pytest.mark.parametrize(
    ("probes", "error", "words"),
    [
        ([], ValueError, "no sample to infer columns from"),
        ([{"x": {1, 2}}], TypeError, "^x: no field holds a set; fields hold int, float"),
        ([(1, fractions.Fraction(1))], TypeError, r"^\[1\]: no field holds a fractions.Fraction"),
        ([datetime.date(2000, 1, 1)], TypeError, "^sample: no field holds a datetime.date"),
        ([2**63], ValueError, r"^sample: int 9223372036854775808, expected an int in \[-2\*\*63"),
        ([{"x": np.array([None])}], ValueError, "^x: dtype object holds Python objects"),
        ([np.longdouble(1)], ValueError, "^sample: dtype .* differs between machines"),
        ([np.zeros(2, "i4,f4")], ValueError, "^sample: dtype .* structured"),
        (
            [{"size": 1}, {"size": "1"}],
            TypeError,
            "^size is an int in the first sample, a str in sample 1 of those looked at; convert one",
        ),
        (
            [{"x": [b"", 2.0]}, {"x": [b"", 2]}],
            TypeError,
            r"^x\[1\] is a float in the first sample, an int in sample 1",
        ),
        (
            [{"x": [b"", 2.0]}, {"x": [b""]}],
            ValueError,
            "^x is a list of 2 in the first sample, a list of 1 in sample 1 of those looked at; decl",
        ),
        ([{"x": [1, 2]}, {"x": 3}], TypeError, "^x is a list of 2 in the first sample, an int in sample 1"),
        ([{"x": (1, 2)}, {"x": [1, 2]}], TypeError, "^x is a tuple of 2 in the first sample, a list of 2 in sample 1"),
        (
            [1, None],
            TypeError,
            r"an int in the first sample, None in sample 1 of those looked at; .*JSONField\(\) any JSON",
        ),
        ([1, 1, True], TypeError, "an int in the first sample, a bool in sample 2"),
        (
            [1, np.int64(1)],
            TypeError,
            r"a numpy int64 scalar in sample 1 of those looked at; .*IntField\(\) numpy integers",
        ),
        ([np.zeros(1, "f4"), np.zeros(1)], TypeError, r"a float32 array of shape \(1,\) .* a float64 array"),
        ([np.zeros(1), [0.0]], TypeError, "a float64 array of shape .* a list of 1 in sample 1"),
        ([(1,), [1]], TypeError, "a tuple of 1 in the first sample, a list of 1 in sample 1"),
        (
            [(1,), (1, 2)],
            ValueError,
            r"a tuple of 1 in the first sample, a tuple of 2 in sample 1 of those looked at; make .* JSONField\(\)",
        ),
        (
            [{"m": {"a": 1}}, {"m": {"b": 1}}],
            ValueError,
            r"^m is a dict of 1 .* only one of them has key 'a'; every sample needs the key: .* OptionalField",
        ),
        ([{1: 2}], ArgumentTypeError, "^sample: a key is int 1, expected str keys"),
    ],
)
def test_refused(probes: list[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.infer(probes)


@pytest.mark.parametrize(
    ("lists", "advice"),
    [
        ([[None, math.nan], [2.0]], "ListField(OptionalField(FloatField()))"),
        ([[None, 1, math.nan], []], "ListField(OptionalField(FloatField()))"),
        ([[None, b"1"], [b"2"]], "ListField(OptionalField(BytesField()))"),
        ([[b"", 2.0], [b""]], "MsgpackField()"),
        ([[b"", (1,)], [b""]], None),
    ],
)
def test_what_is_advised_for_lists_helps(lists: list[Any], advice: str | None) -> None:
    with pytest.raises(ArgumentError, match=r"^x is a list of") as caught:
        Schema.infer([{"x": each} for each in lists])
    said = str(caught.value).partition("; declare ")[2]
    if advice is None:
        assert said.startswith("ListField(...) with a field that holds every item")
        return
    assert said == advice
    schema = Schema.of({"x": eval(advice, vars(ffrecord.fields))})
    for each in lists:
        assert repr(schema.decode(schema.encode({"x": each}))["x"]) in (repr(each), repr([*map(_as_float, each)]))


@pytest.mark.parametrize(
    ("item", "instead", "advice"),
    [
        (
            {"xy": np.zeros(2, "f4"), "n": 1},
            lambda items: {key: [item[key] for item in items] for key in ("xy", "n")},
            "give a dict of lists, {'xy': [...], 'n': [...]}, instead of a list of dicts, or lists in place of arrays",
        ),
        (
            {"xy": np.zeros(2, "f4")},
            lambda items: [{"xy": item["xy"].tolist()} for item in items],
            "give a dict of lists, {'xy': [...]}, instead of a list of dicts, or lists in place of arrays",
        ),
        ((1, "a"), lambda items: [*map(list, items)], "give lists instead of tuples, or a tuple of lists"),
        ((1, "a"), lambda items: ([item[0] for item in items], [item[1] for item in items]), "or a tuple of lists"),
    ],
)
def test_what_is_advised_for_lists_of_dicts_and_tuples_helps(item: Any, instead: Any, advice: str) -> None:
    lists = [[], [item], [item, item]]
    with pytest.raises(ArgumentError, match=re.escape(advice)):
        Schema.infer([{"x": each} for each in lists])
    changed = [{"x": instead(each)} for each in lists]
    schema = Schema.infer(changed)
    for each in changed:
        assert len(schema.encode(each)) > 0


def _as_float(item: Any) -> Any:
    return float(item) if isinstance(item, int) else item


@pytest.mark.parametrize("name", ["PIL.Image", "torch"])
def test_a_package_that_another_thread_is_importing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is there, but not its classes; so no value is of them."""
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert not is_image(b"file") and not is_tensor(b"file")


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (datetime.date(2020, 1, 2), "store np.datetime64(value)"),
        (datetime.datetime(2020, 1, 2, 3), "store np.datetime64(value)"),
        (datetime.timedelta(hours=1), "store np.timedelta64(value)"),
        (
            datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            "store its time in UTC, np.datetime64(value.astimezone(datetime.timezone.utc).replace(tzinfo=None))",
        ),
    ],
)
def test_the_advice_for_dates_works(value, advice):
    with pytest.raises(TypeError, match=re.escape(f"when: no field holds a datetime.{type(value).__name__}; {advice}")):
        Schema.infer([{"when": value}])
    expression = advice.rpartition(", ")[2].removeprefix("store ")
    stored = eval(expression, {"np": np, "datetime": datetime, "value": value})
    schema = Schema.infer([{"when": stored}])
    assert schema.decode(schema.encode({"when": stored}))["when"] == stored

"""Columns from probe samples."""

import datetime
import fractions
from typing import Any

import numpy as np
import pytest

from ffrecord.fields import (
    BoolField,
    BytesField,
    FloatField,
    IntField,
    NDArrayField,
    NoneField,
    ScalarField,
    Schema,
    StrField,
)


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
        ([{"x": {1, 2}}], TypeError, "^x: no field for a builtins.set; there are fields for int, float"),
        ([(1, fractions.Fraction(1))], TypeError, r"^\[1\]: no field for a fractions.Fraction"),
        ([datetime.date(2000, 1, 1)], TypeError, "^sample: no field for a datetime.date"),
        ([2**63], ValueError, r"^sample: expected an int in \[-2\*\*63"),
        ([{"x": np.array([None])}], ValueError, "^x: dtype object holds Python objects"),
        ([np.longdouble(1)], ValueError, "^sample: dtype .* differs between machines"),
        ([np.zeros(2, "i4,f4")], ValueError, "^sample: dtype .* structured"),
        (
            [{"size": 1}, {"size": "1"}],
            TypeError,
            "^size: an int in the first sample, a str in probe 1; a column has one kind",
        ),
        ([{"x": [1, 2.0]}, {"x": [1, 2]}], TypeError, r"^x\[1\]: a float in the first sample, an int in probe 1"),
        ([1, None], TypeError, r"an int in the first sample, None in probe 1; .*JSONField\(\) what JSON holds"),
        ([1, 1, True], TypeError, "an int in the first sample, a bool in probe 2"),
        ([1, np.int64(1)], TypeError, r"a numpy int64 scalar in probe 1; .*IntField\(\) numpy integers"),
        ([np.zeros(1, "f4"), np.zeros(1)], TypeError, r"a float32 array of shape \(1,\) .* a float64 array"),
        ([np.zeros(1), [0.0]], TypeError, "a float64 array of shape .* a list of 1 in probe 1"),
        ([(1,), [1]], TypeError, "a tuple of 1 in the first sample, a list of 1 in probe 1"),
        (
            [(1,), (1, 2)],
            ValueError,
            r"a tuple of 1 in the first sample, a tuple of 2 in probe 1; declare JSONField\(\)",
        ),
        ([{"m": {"a": 1}}, {"m": {"b": 1}}], ValueError, "^m: a dict of 1 .* key 'a' is in one only"),
    ],
)
def test_refused(probes: list[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.infer(probes)

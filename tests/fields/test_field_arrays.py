"""Numpy arrays."""

from typing import Any

import numpy as np
import pytest
from field_cases import pack, same

from ffrecord.errors import FormatError
from ffrecord.fields import IntField, NDArrayField, Schema

VALUES = np.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "dtype",
    [
        "?",
        "u1",
        "i8",
        ">i2",
        "f2",
        ">f8",
        "c16",
        "S5",
        "U3",
        ">U2",
        "M8[ns]",
        ">m8[25s]",
        "M8[D]",
        "uint64",
        float,
        np.int32,
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (1, 2, 2)])
def test_dtypes_and_shapes(dtype: Any, shape: tuple[int, ...]) -> None:
    value = np.ones(shape, dtype) if np.dtype(dtype).kind not in "SU" else np.full(shape, "ab", dtype)
    for field in (NDArrayField(dtype, shape), NDArrayField(dtype, [None] * len(shape)), NDArrayField(dtype, None)):
        schema = Schema.of((field,))
        back = schema.decode(schema.encode((value,)))[0]
        assert same(back, value) and back.flags.writeable and back.flags.aligned
        assert eval(repr(field), {"NDArrayField": NDArrayField}) == field
        assert Schema.from_builtins(schema.to_builtins()) == schema
    assert same(Schema.infer([value]).decode(value.tobytes()), value)


@pytest.mark.parametrize(
    "value",
    [
        VALUES[:, ::2],
        VALUES.T,
        np.asfortranarray(VALUES),
        VALUES[::-1],
        np.broadcast_to(np.arange(3), (2, 3)),
        np.frombuffer(VALUES.tobytes(), np.uint8),
    ],
    ids=["strided", "transposed", "fortran", "reversed", "broadcast", "read-only"],
)
def test_any_strides(value: Any) -> None:
    schema = Schema.infer([value])
    back = schema.decode(schema.encode(value))
    assert same(back, np.ascontiguousarray(value)) and back.flags.writeable and back.flags.c_contiguous


def test_subclasses_come_back_as_arrays(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "x", np.uint8, "w+", shape=(2, 3))
    schema = Schema.infer([mapped])
    assert same(schema.decode(schema.encode(mapped)), np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize("shape", [(40, 1024), (40_000, 1, 4), (300_000,)])
def test_large_arrays(shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(0).integers(0, 1000, shape)
    schema = Schema.infer([(value, 1)])
    samples = [(value + i, i) for i in range(5)]
    data, offsets = pack([schema.encode(sample) for sample in samples], b"abc")
    assert same(schema.decode_batch(data, offsets), samples)
    columns = schema.decode_columns(data, offsets)
    assert same(columns["[0]"], np.stack([sample[0] for sample in samples]))


def test_payload_of_varying_shapes() -> None:
    value = np.array([[1, 2, 3]], "<u2")
    words = lambda *numbers: b"".join(number.to_bytes(8, "little") for number in numbers)  # noqa: E731
    assert NDArrayField("<u2", (1, 3)).encode(value) == b"\1\0\2\0\3\0"
    assert NDArrayField("<u2", (None, 3)).encode(value) == words(1) + b"\1\0\2\0\3\0"
    assert NDArrayField("<u2", (None, None)).encode(value) == words(1, 3) + b"\1\0\2\0\3\0"
    assert NDArrayField("<u2", None).encode(value) == words(2, 1, 3) + b"\1\0\2\0\3\0"


@pytest.mark.parametrize(
    ("field", "value", "error", "words"),
    [
        (
            NDArrayField("u1", (32, 32, 3)),
            np.zeros((32, 33, 3), "u1"),
            ValueError,
            r"image: a uint8 array of shape \(32, 33, 3\), expected a uint8 array of shape \(32, 32, 3\); "
            r"NDArrayField\('uint8', \(32, None, 3\)\) holds both",
        ),
        (NDArrayField("u1", (2,)), np.zeros((2, 2), "u1"), ValueError, r"NDArrayField\('uint8', None\) holds both"),
        (NDArrayField("u1", (None, 3)), np.zeros((2, 4), "u1"), ValueError, r"\(None, None\)\) holds both"),
        (
            NDArrayField("f4", (2,)),
            np.zeros(2),
            TypeError,
            "a float64 array .*, expected a float32 array .*astype",
        ),
        (NDArrayField("<f4", (2,)), np.zeros(2, ">f4"), TypeError, "a >f4 array .*, expected a float32 array .*"),
        (NDArrayField("M8[s]", ()), np.zeros((), "M8[D]"), TypeError, r"datetime64\[s\]"),
        (NDArrayField("f4", ()), np.float32(1), TypeError, "numpy float32"),
        (
            NDArrayField("f4", (2,)),
            [1.0, 0.1],
            TypeError,
            r"a list of 2, .* np.asarray\(value, 'float32'\) rounds",
        ),
        (
            NDArrayField("f4", (2,)),
            [1.0],
            ValueError,
            r"a list of shape \(1,\), expected .*; NDArrayField\('float32', \(None,\)\)",
        ),
        (NDArrayField("i8", (None,)), [1, 2.0], TypeError, "a list with float 2.0"),
        (NDArrayField("i8", (None,)), [1, True], TypeError, "a list with True, expected an int64 array"),
        (NDArrayField("i8", (None,)), ["a", "b"], TypeError, r"a list with str 'a', expected .*JSONField\(\) holds"),
        (NDArrayField("f8", (None,)), [1.5, None], TypeError, "a list with None, expected a float64 array"),
        (NDArrayField("f8", (None,)), [1.5, True], TypeError, "a list with True, expected a float64 array"),
        (NDArrayField("i8", (2,)), [np.int8(1), np.bool_(True)], TypeError, "a list with numpy bool_? True"),
        (NDArrayField("f4", (None,)), [np.float64(0.1)], TypeError, r"np.asarray\(value, 'float32'\) rounds"),
        (NDArrayField("u1", (None,)), [1, 256], TypeError, "a list of 2"),
        (NDArrayField("u8", (None,)), [-1], TypeError, "a list of 1"),
        (NDArrayField("i8", (None, None)), [[1], [2, 3]], TypeError, "a list of 2"),
        (NDArrayField("U1", (None,)), ["a"], TypeError, "a list of 1, expected .*; pass an array"),
        (NDArrayField("bool", (None,)), [0, 1], TypeError, "a list with int 0, expected a bool array"),
        (NDArrayField("f8", (None,)), [2**53 + 1], TypeError, "a list of 1"),
        (NDArrayField("f8", (2,)), (1.0, 2.0), TypeError, "a tuple of 2"),
        (NDArrayField("f4", (2,)), np.ma.zeros(2, "f4"), TypeError, "its mask would be lost"),
        (NDArrayField("f4", None), np.zeros([1] * 33, "f4"), ValueError, "at most 32 axes"),
    ],
)
def test_refused(field: NDArrayField, value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of({"image": field}).encode({"image": value})


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("O", "holds Python objects"),
        (np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else "O", "holds Python objects"),
        ("i4,f8", "structured or void; store a dict of arrays"),
        (np.dtype([("a", "O")]), "holds Python objects"),
        ("V8", "structured or void"),
        ("S0", "of fixed size"),
        (np.longdouble, "differs between machines"),
        (np.clongdouble, "differs between machines"),
    ],
)
def test_dtypes_refused(dtype: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NDArrayField(dtype, (2,))


def test_dtype_without_metadata() -> None:
    dtype = np.dtype("f4", metadata={"unit": "m"})
    assert NDArrayField(dtype, ()).dtype.metadata is None


@pytest.mark.parametrize(
    ("shape", "error", "words"),
    [
        ((-1,), ValueError, "shape has an axis of -1, expected >= 0"),
        ((1.5,), TypeError, "an axis of shape is float 1.5, expected an int"),
        ((True,), TypeError, "an axis of shape is True, expected an int"),
        ("23", TypeError, "shape is str '23', expected a tuple of ints"),
        (3, TypeError, "iterable"),
        ([1] * 33, ValueError, "33 axes, expected at most 32"),
        ((2**62, 2), ValueError, "have more than"),
        ((0, 2**62, 2**62), ValueError, "have more than"),
    ],
)
def test_shapes_refused(shape: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        NDArrayField("u8", shape)


def payload(*numbers: int, items: bytes = b"") -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers) + items


@pytest.mark.parametrize(
    ("shape", "data", "words"),
    [
        (None, b"", "0 bytes and 0 axes, expected at least 8 bytes"),
        (None, payload(33), "8 bytes and 33 axes"),
        (None, payload(2**64 - 1), "8 bytes and 18446744073709551615 axes"),
        (None, payload(2, 1), "8 bytes, expected at least 16"),
        (None, payload(1, 2, items=b"1234"), "4 bytes of uint32 items, expected shape .2,."),
        (None, payload(1, 2**62), "0 bytes of uint32 items"),
        (None, payload(2, 0, 2**63), "0 bytes of uint32 items"),
        (None, payload(2, 2**32, 2**32), "0 bytes of uint32 items"),
        ((None,), payload(1, items=b"12345678"), "8 bytes of uint32 items"),
        ((None, 3), b"1234", "4 bytes, expected at least 8 for the lengths of its axes"),
        ((None, 0), payload(2**64 - 1), "0 bytes of uint32 items"),
    ],
)
def test_hostile_payloads(shape: Any, data: bytes, words: str) -> None:
    schema = Schema.of(NDArrayField("<u4", shape))
    with pytest.raises(FormatError, match=rf"value \(NDArrayField\): the array has {words}"):
        schema.decode(payload(len(data), items=data))


def test_bytes_that_are_no_bools() -> None:
    for shape, data in (((2,), b"\1\2"), ((None,), payload(10, 2, items=b"\1\2"))):
        schema = Schema.of(NDArrayField("?", shape))
        with pytest.raises(FormatError, match=r"value \(NDArrayField\): a bool is byte 2"):
            schema.decode(data)
        with pytest.raises(FormatError, match=r"record 0 of the batch: value \(NDArrayField\): a bool is byte 2"):
            schema.decode_columns(*pack([data]))


@pytest.mark.parametrize("order", ["<", ">"])
def test_bytes_that_are_no_characters(order: str) -> None:
    good = np.array([["a", "\U0010ffff"], ["", "ab"]], f"{order}U2")
    beyond = (0x110000).to_bytes(4, "little" if order == "<" else "big")
    for shape, head in (((2, 2), b""), ((None, 2), payload(8 + good.nbytes, 2))):
        schema = Schema.of(NDArrayField(f"{order}U2", shape))
        assert same(schema.decode(head + good.tobytes()), good)
        damaged = head + good.tobytes()[:-4] + beyond
        for decode in (lambda: schema.decode(damaged), lambda: schema.decode_columns(*pack([damaged]))):  # noqa: B023
            with pytest.raises(FormatError, match=r"value \(NDArrayField\): a character has number 1114112"):
                decode()
    assert Schema.of(NDArrayField("U3", ())).decode(np.array("abc").tobytes()) == "abc"


def test_samples_of_a_batch_are_independent() -> None:
    schema = Schema.of((NDArrayField("u1", (4,)), NDArrayField("f8", ())))
    data, offsets = pack([schema.encode((np.full(4, i, "u1"), np.array(float(i)))) for i in range(3)])
    original = data.copy()
    first, *others = schema.decode_batch(data, offsets)
    first[0][:] = 9
    first[1][()] = 9
    assert [(list(a), float(b)) for a, b in others] == [([1] * 4, 1.0), ([2] * 4, 2.0)]
    assert (data == original).all()


@pytest.mark.parametrize(
    ("field", "value", "shape"),
    [
        (NDArrayField("i8", (3,)), [1, 2, 3], (3,)),
        (NDArrayField("u1", (None,)), [0, 255], (2,)),
        (NDArrayField("u8", (None,)), [2**64 - 1, 0], (2,)),
        (NDArrayField("f4", (2, 2)), [[1, 2.5], (3, float("inf"))], (2, 2)),
        (NDArrayField("f8", (None,)), [float("nan"), -0.0], (2,)),
        (NDArrayField("bool", (2,)), [True, False], (2,)),
        (NDArrayField("i4", (None,)), [np.int64(7)], (1,)),
        (NDArrayField("f8", (None, 4)), [], (0, 4)),
        (NDArrayField("f8", (None, None, 3)), [], (0, 0, 3)),
        (NDArrayField("f8", (None,)), [], (0,)),
        (NDArrayField("f8", None), [[], []], (2, 0)),
    ],
)
def test_lists_of_numbers(field: NDArrayField, value: Any, shape: Any) -> None:
    schema = Schema.of({"x": field, "y": IntField()})
    record = schema.encode({"x": value, "y": 1})
    assert same(schema.decode(record)["x"], np.array(value, field.dtype).reshape(shape))
    assert schema.encode({"x": np.array(value, field.dtype).reshape(shape), "y": 1}) == record


def test_a_list_of_floats_in_a_column_of_ints():
    told = (
        r"a list with float 1\.5, expected an int64 array of shape \(2,\); NDArrayField\('float64', \(2,\)\) holds both"
    )
    with pytest.raises(TypeError, match=told):
        NDArrayField("int64", (2,)).encode([1, 1.5])

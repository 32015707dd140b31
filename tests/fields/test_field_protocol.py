"""Fields that users make, as docs/fields.md says."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from field_cases import pack, same

from ffrecord.errors import FormatError
from ffrecord.fields import Field, Fixed, IntField, Schema, StrField, field, register


@register
@dataclass(frozen=True)
class DateField(Field):
    """Dates, as int32 days: a field of fixed size that gives only what it must."""

    kind: ClassVar[str] = "test.date"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("<i4"))

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, date):
            raise TypeError(f"{value!r}, expected a date")
        return value.toordinal().to_bytes(4, "little")

    def decode(self, data: memoryview) -> date:
        try:
            return date.fromordinal(int.from_bytes(data, "little"))
        except (ValueError, OverflowError) as error:
            raise FormatError(f"not a date: {error}") from None


@register
@dataclass(frozen=True)
class Zipped(Field):
    """Another field, compressed: a field with a field as its parameter."""

    kind: ClassVar[str] = "test.zipped"
    inner: Field
    level: int = 6

    def encode(self, value: Any) -> bytes:
        return zlib.compress(self.inner.encode(value), self.level)

    def decode(self, data: memoryview) -> Any:
        return self.inner.decode(memoryview(zlib.decompress(data)))

    def spec(self) -> dict[str, Any]:
        return {"inner": {"kind": self.inner.kind, **self.inner.spec()}, "level": self.level}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Zipped":
        inner = dict(spec["inner"])
        return cls(field.KINDS[inner.pop("kind")].from_spec(inner), spec["level"])


def test_fixed_size() -> None:
    schema = Schema.of((DateField(), StrField()))
    samples = [(date(2000, 1, i), "x") for i in (1, 2, 3)]
    data, offsets = pack([schema.encode(sample) for sample in samples])
    assert same([schema.decode(data[a:b]) for a, b in pairwise(offsets)], samples)
    assert same(schema.decode_batch(data, offsets), samples)
    assert same(schema.decode_columns(data, offsets)["[0]"], np.array([730120, 730121, 730122], np.int32))
    assert schema.decode_batch(data, offsets[:1]) == []
    assert Schema.from_builtins(schema.to_builtins()) == schema


def test_errors_name_the_column() -> None:
    schema = Schema.of({"day": DateField()})
    with pytest.raises(TypeError, match=r"^day: 5, expected a date"):
        schema.encode({"day": 5})
    with pytest.raises(FormatError, match=r"^day \(DateField\): not a date"):
        schema.decode(bytes(4))
    with pytest.raises(FormatError, match=r"^record 0 of the batch: day \(DateField\): not a date"):
        schema.decode_batch(*pack([bytes(4)]))
    assert schema.decode_columns(*pack([bytes(4)]))["day"].tolist() == [0]  # columns are what is stored


def test_parameters() -> None:
    schema = Schema.of(Zipped(StrField(), level=9))
    assert schema.decode(schema.encode("x" * 100)) == "x" * 100
    assert len(schema.encode("x" * 100)) < 50
    assert Schema.from_builtins(schema.to_builtins()) == schema
    with pytest.raises(FormatError, match=r"sample: test\.zipped: 'inner'"):
        Schema.from_builtins({"version": 1, "sample": {"kind": "test.zipped"}})


def test_base_class_says_what_is_missing() -> None:
    class Half(Field):
        kind = "test.half"

    assert Half().expects.startswith("a value of ") and Half().expects.endswith("Half()")
    with pytest.raises(NotImplementedError, match=r"Half\.encode"):
        Half().encode(1)
    with pytest.raises(NotImplementedError, match=r"Half\.decode"):
        Half().decode(memoryview(b""))
    assert Half().fixed is None and Half().torch_dtype is None and Half().spec() == {}


def test_unregistered() -> None:
    class Unknown(IntField):
        kind = "test.unknown"

    with pytest.raises(ValueError, match=r"^a: .*Unknown is not registered, so no file with it"):
        Schema.of({"a": Unknown()})


def test_wrong_fixed_size() -> None:
    @register
    @dataclass(frozen=True)
    class Liar(Field):
        kind: ClassVar[str] = "test.liar"

        @property
        def fixed(self) -> Fixed:
            return Fixed(np.dtype("<i4"))

        def encode(self, value: Any) -> bytes:
            return b"123"

        def decode(self, data: memoryview) -> None:
            raise FormatError("never encoded")

    for tree, sample in (((Liar(),), (1,)), ((Liar(), StrField()), (1, "x"))):
        with pytest.raises(ValueError, match=r"^\[0\]: .*Liar\(\) encoded 3 bytes, expected its fixed size, 4"):
            Schema.of(tree).encode(sample)


@register
@dataclass(frozen=True)
class Raw(Field):
    """Gives whatever it gets."""

    kind: ClassVar[str] = "test.raw"

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)


@pytest.mark.parametrize(
    "value, words",
    [
        (None, "returned None, expected bytes"),
        ("text", "returned str 'text', expected bytes"),
        (5, "returned int 5, expected bytes"),
        ([b"x"], "returned a list of 1, expected bytes"),
        (np.zeros(3, "<i4"), r"returned an int32 array of shape \(3,\), expected flat bytes"),
        (np.zeros((2, 2), np.uint8), r"returned a uint8 array of shape \(2, 2\), expected flat bytes"),
        (np.zeros(6, np.uint8)[::2], "returned .*, expected flat bytes"),
        (memoryview(np.zeros(3, "<i4")), "returned .*, expected flat bytes"),
    ],
)
def test_what_is_no_bytes_is_refused_and_the_column_named(value: Any, words: str) -> None:
    """Sizes that are not counted in bytes would make records that nobody can read."""
    for tree, sample in (((StrField(), Raw()), ("x", value)), ((IntField(), Raw(), DateField()), (1, value, date.max))):
        with pytest.raises(TypeError, match=rf"^\[1\]: .*Raw\(\)\.encode {words}"):
            Schema.of(tree).encode(sample)


@pytest.mark.parametrize("value", [b"ab", bytearray(b"ab"), memoryview(b"ab"), np.frombuffer(b"ab", np.uint8)])
def test_bytes_of_any_kind(value: Any) -> None:
    schema = Schema.of([Raw()])
    assert schema.decode(schema.encode([value])) == [b"ab"]


@register
@dataclass(frozen=True)
class Flaky(Field):
    """Fails every other time, so that looking for the column finds none."""

    kind: ClassVar[str] = "test.flaky"
    calls: ClassVar[list[int]] = []

    def encode(self, value: Any) -> bytes:
        self._fail(ValueError)
        return b"x"

    def decode(self, data: memoryview) -> Any:
        self._fail(FormatError)

    def _fail(self, error: type[Exception]) -> None:
        self.calls.append(1)
        if len(self.calls) % 2:
            raise error("only sometimes")


@register
@dataclass(frozen=True)
class FlakyFixed(Flaky):
    kind: ClassVar[str] = "test.flaky_fixed"

    @property
    def fixed(self) -> Fixed:
        return Fixed(np.dtype("u1"))


@pytest.mark.parametrize("flaky", [Flaky(), FlakyFixed()])
def test_errors_that_do_not_come_again_are_not_lost(flaky: Flaky) -> None:
    schema = Schema.of(flaky)
    record = b"x" if schema.record_size == 1 else b"\1\0\0\0\0\0\0\0x"
    flaky.calls.clear()
    with pytest.raises(ValueError, match=r"^only sometimes$"):
        schema.encode(1)
    with pytest.raises(FormatError, match=r"^only sometimes$"):
        schema.decode(record)
    with pytest.raises(FormatError, match=r"^only sometimes$"):
        schema.decode_batch(*pack([record]))


@pytest.mark.parametrize("kind", [None, "", 5, "dict", "tuple", "list", "int"])
def test_kinds_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="kind"):
        register(type("Other", (Field,), {"kind": kind} if kind is not None else {}))


def test_not_a_dataclass_refused() -> None:
    class Scaled(IntField):
        kind: ClassVar[str] = "test.scaled"

        def __init__(self, scale: int) -> None:
            object.__setattr__(self, "scale", scale)

    with pytest.raises(TypeError, match=r"Scaled is not a frozen dataclass, so its parameters would be missing"):
        register(Scaled)
    assert "test.scaled" not in field.KINDS


@pytest.mark.parametrize("missing", [("encode",), ("decode",), ("encode", "decode")])
def test_missing_methods_refused(missing: tuple[str, ...]) -> None:
    members = {name: getattr(DateField, name) for name in ("encode", "decode") if name not in missing}
    half = dataclass(frozen=True)(type("Half", (Field,), {"kind": "test.half", **members}))
    with pytest.raises(TypeError, match=rf"Half does not define {' and '.join(missing)}, which"):
        register(half)
    assert "test.half" not in field.KINDS


def test_the_same_class_twice() -> None:
    names = {"__module__": __name__, "__qualname__": "DateField"}
    again = dataclass(frozen=True)(type("DateField", (DateField,), names))
    try:
        assert register(again) is again
        assert field.KINDS["test.date"] is again
    finally:
        register(DateField)

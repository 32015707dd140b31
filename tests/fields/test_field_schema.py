"""Schema as an object: declared, compared, shown, pickled, found in a file."""

import copy
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from field_cases import pack, same

from ffrecord import FileReader, FileWriter
from ffrecord.errors import FormatError
from ffrecord.fields import (
    FloatField,
    IntField,
    JPEGField,
    NDArrayField,
    NoneField,
    Schema,
    Slot,
    StrField,
    schema_of,
)
from ffrecord.format.extension import Extension


def test_declared() -> None:
    assert Schema.of({"a": IntField(), "b": (None, [StrField()])}).fields == {
        "a": IntField(),
        "b[0]": NoneField(),
        "b[1][0]": StrField(),
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"a": IntField},
            r"^a is an? .*ype, expected a Field, or a dict, tuple or list of them; write IntField\(\)$",
        ),
        ({"a": "int"}, "^a is str 'int', expected a Field, .*$"),
        (5, "^sample is int 5, expected a Field"),
    ],
)
def test_not_fields(fields: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Schema.of(fields)


def test_not_a_tree() -> None:
    wrong: Any = {"a": IntField()}
    with pytest.raises(TypeError, match=r"^tree is a dict.*, expected a tree of fields; call Schema\.of"):
        Schema(wrong)


def test_equality() -> None:
    schema = Schema.of({"a": IntField(), "b": NDArrayField("f4", [2])})
    assert schema == Schema.of({"a": IntField(), "b": NDArrayField("float32", (2,))})
    for other in (
        Schema.of({"b": NDArrayField("f4", (2,)), "a": IntField()}),
        Schema.of((IntField(), NDArrayField("f4", (2,)))),
        Schema.of({"a": FloatField(), "b": NDArrayField("f4", (2,))}),
        Schema.of({"a": IntField(), "b": NDArrayField("f4", (3,))}),
        "schema",
    ):
        assert schema != other
    assert len({schema, Schema.of({"a": IntField(), "b": NDArrayField("f4", (2,))})}) == 1


def test_slots() -> None:
    schema = Schema.of({"a": StrField(), "b": NDArrayField(">f4", (2, 3)), "c": IntField()})
    assert schema.slots == {
        "b": Slot(0, 24, np.dtype(">f4"), (2, 3)),
        "c": Slot(24, 8, np.dtype("<i8"), ()),
    }


def test_repr() -> None:
    schema = Schema.of({"image": NDArrayField("uint8", (32, 32, 3)), "meta": {"name": StrField()}})
    assert repr(schema).splitlines() == [
        "Schema of samples that are a dict: 2 columns, records of varying size",
        "  column     field                               bytes",
        "  image      NDArrayField('uint8', (32, 32, 3))  3072",
        "  meta.name  StrField()                          varying",
    ]
    assert repr(Schema.of(IntField())).startswith(
        "Schema of samples that are one value: 1 column, records of 8 bytes\n"
    )


def test_copies() -> None:
    schema = Schema.of({"a": [IntField(), StrField()]})
    sample = {"a": [1, "x"]}
    for other in (pickle.loads(pickle.dumps(schema)), copy.deepcopy(schema)):
        assert other == schema and other.decode(schema.encode(sample)) == sample


def test_replace() -> None:
    schema = Schema.of({"a": [JPEGField()], "b": IntField()})
    other = schema.replace({"a[0]": JPEGField(as_bytes=True)})
    assert other.replace({"a[0]": JPEGField()}) == schema
    assert other.fields == {"a[0]": JPEGField(as_bytes=True), "b": IntField()}
    assert other.decode(other.encode({"a": [b"\xff\xd8\xff"], "b": 1})) == {"a": [b"\xff\xd8\xff"], "b": 1}
    with pytest.raises(KeyError, match="c"):
        schema.replace({"c": IntField()})
    with pytest.raises(ValueError, match=r"^b: FloatField\(\) cannot read values that IntField\(\) wrote"):
        schema.replace({"b": FloatField()})


def test_threads() -> None:
    schema = Schema.of((NDArrayField("u1", (100,)), StrField()))
    samples = [(np.full(100, i, "u1"), str(i)) for i in range(50)]
    wrong = []

    def work() -> None:
        for _ in range(20):
            data, offsets = pack([schema.encode(sample) for sample in samples])
            if not same(schema.decode_batch(data, offsets), samples):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_file_carries_its_schema(tmp_path: Any) -> None:
    samples = [{"image": np.full((4, 4), i, "u1"), "name": "x" * i} for i in range(20)]
    schema = Schema.infer(samples[:1])
    with FileWriter(tmp_path / "a.ffr", len(samples), extension=Extension(schema=schema.to_builtins())) as writer:
        for sample in samples:
            writer.write_one(schema.encode(sample))
    with FileReader(tmp_path / "a.ffr") as opened:
        found = schema_of(opened)
        assert found == schema
        assert same([found.decode(record) for record in opened.read([3, 3, 19])], [samples[3], samples[3], samples[19]])
        assert same(found.decode_batch(*opened.read_packed(list(range(20)))), samples)


def reader(schema: Any) -> Any:
    return SimpleNamespace(extension=SimpleNamespace(schema=schema), fnames=["train/0.ffr"])


def test_schema_of_a_reader() -> None:
    schema = Schema.of({"a": IntField()})
    assert schema_of(reader(schema.to_builtins())) == schema
    assert schema_of(reader(None)) is None
    assert schema_of(SimpleNamespace(extension=None)) is None
    with pytest.raises(FormatError, match=r"^train/0.ffr: schema has version 9"):
        schema_of(reader({"version": 9}))

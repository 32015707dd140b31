"""What holds for every schema and every sample."""

import json
import pickle
from typing import Any

import msgspec
import numpy as np
from field_cases import pack, same, samples, schemas_and_samples, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.errors import FormatError
from ffrecord.fields import JSONField, ListField, MsgpackField, NoneField, OptionalField, Schema, ZstdField

quick = settings(deadline=None, max_examples=settings().max_examples // 2)


def plain(tree: Any) -> Any:
    """`tree` without compression, and without fields whose values nothing tells from other structure."""
    if isinstance(tree, ZstdField):
        return plain(tree.inner)
    if isinstance(tree, JSONField | MsgpackField | OptionalField | ListField):
        return NoneField()
    if isinstance(tree, dict):
        return {key: plain(child) for key, child in tree.items()}
    return type(tree)(map(plain, tree)) if isinstance(tree, (list, tuple)) else tree


@quick
@given(schemas_and_samples())
def test_declared_round_trip(case: Any) -> None:
    tree, found = case
    schema = Schema.of(tree)
    for sample in found:
        record = schema.encode(sample)
        assert same(schema.decode(np.frombuffer(record, np.uint8)), sample)
        assert schema.record_size in (None, len(record))


@quick
@given(trees().map(plain).flatmap(lambda tree: st.lists(samples(tree), min_size=1, max_size=4)))
def test_inferred_round_trip(found: list[Any]) -> None:
    schema = Schema.infer(found)
    for sample in found:
        assert same(listed(schema.decode(schema.encode(sample)), sample), sample)


def listed(back: Any, sample: Any) -> Any:
    """What came back, where arrays were lists of numbers as these."""
    if isinstance(sample, dict):
        return {key: listed(each, sample[key]) for key, each in back.items()}
    if isinstance(sample, tuple | list) and isinstance(back, tuple | list):
        return type(back)(map(listed, back, sample))
    if not isinstance(sample, list):
        return back
    # Ints among floats come back as floats, numpy's scalars as they were; empty lists may have got axes.
    return [_like(*pair) for pair in zip(back, sample, strict=True)]


def _like(item: Any, wanted: Any) -> Any:
    if isinstance(item, np.ndarray):
        return type(wanted)(_like(*pair) for pair in zip(item, wanted, strict=True))
    return item if isinstance(wanted, np.generic) else type(wanted)(item.item())


@quick
@given(schemas_and_samples(), st.binary(max_size=3), st.binary(max_size=3))
def test_batch_is_one_by_one(case: Any, before: bytes, after: bytes) -> None:
    tree, found = case
    schema = Schema.of(tree)
    data, offsets = pack([schema.encode(sample) for sample in found], before, after)
    assert same(schema.decode_batch(data, offsets), found)


@quick
@given(schemas_and_samples())
def test_columns_are_stacked_samples(case: Any) -> None:
    tree, found = case
    schema = Schema.of(tree)
    data, offsets = pack([schema.encode(sample) for sample in found])
    columns = schema.decode_columns(data, offsets)
    assert tuple(columns) == schema.columns
    for i, sample in enumerate(found):
        assert same(schema.unflatten([_item(schema, name, columns[name], i) for name in columns]), sample)


def _item(schema: Schema, name: str, column: Any, i: int) -> Any:
    if isinstance(column, list):
        return column[i]
    field = schema.fields[name]
    plain_field = field.inner if isinstance(field, ZstdField) else field
    assert plain_field.fixed and column.flags.writeable and column.flags.aligned
    return plain_field.unstack(column)[i]


@quick
@given(trees())
def test_schema_round_trip(tree: Any) -> None:
    schema = Schema.of(tree)
    for copy in (
        Schema.from_builtins(schema.to_builtins()),
        Schema.from_builtins(msgspec.msgpack.decode(msgspec.msgpack.encode(schema.to_builtins()))),
        Schema.from_builtins(json.loads(json.dumps(schema.to_builtins()))),
        pickle.loads(pickle.dumps(schema)),
    ):
        assert copy == schema and hash(copy) == hash(schema)
        assert copy.fingerprint() == schema.fingerprint()
        assert repr(copy) == repr(schema)
        assert len(set(copy.columns)) == len(copy.columns)


@quick
@given(schemas_and_samples(), st.data())
def test_damaged_records(case: Any, data: st.DataObject) -> None:
    """A damaged record is decoded or refused; nothing else may happen, and a batch does the same."""
    tree, found = case
    schema = Schema.of(tree)
    record = bytearray(schema.encode(found[0]))
    if record:
        for _ in range(data.draw(st.integers(1, 3))):
            record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(record) + 1))
    damaged = bytes(record) if cut > len(record) else bytes(record[:cut])
    assert _outcome(lambda: [schema.decode(damaged)]) == _outcome(lambda: schema.decode_batch(*pack([damaged])))


def _outcome(decode: Any) -> str:
    try:
        return repr(decode())
    except FormatError as error:
        return str(error).removeprefix("record 0 of the batch: ")


BROKEN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["dict", "tuple", "list", "int", "ndarray", "tensor", "jpeg", "image", "rgb", "zstd", "<f4", "|S9999999999"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "items", "dtype", "shape", "quality", "inner", "level", "version"])
            | st.text(max_size=3),
            inner,
        )
    ),
    max_leaves=8,
)


@quick
@given(BROKEN)
def test_broken_schemas(node: Any) -> None:
    for spec in (node, {"version": 1, "sample": node}):
        try:
            schema = Schema.from_builtins(spec)
        except FormatError:
            continue
        assert Schema.from_builtins(schema.to_builtins()) == schema


@quick
@given(trees(), BROKEN, st.data())
def test_schemas_with_a_broken_part(tree: Any, part: Any, data: st.DataObject) -> None:
    spec = Schema.of(tree).to_builtins()
    node = spec
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = part
    try:
        schema = Schema.from_builtins(spec)
    except FormatError:
        return
    assert Schema.from_builtins(schema.to_builtins()) == schema

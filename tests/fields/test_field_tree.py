"""The structure around the fields: names of columns, and samples of another structure."""

from collections import OrderedDict, UserDict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from field_cases import pack, same

from ffrecord.fields import IntField, Schema, StrField

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("sample", "columns"),
    [
        (1, ("value",)),
        ((1, 2), ("[0]", "[1]")),
        (["x", 1], ("[0]", "[1]")),
        ({"image": 1, "label": 2}, ("image", "label")),
        (
            {"meta": {"size": (1, 2), "tags": [3, "x"]}},
            ("meta.size[0]", "meta.size[1]", "meta.tags[0]", "meta.tags[1]"),
        ),
        (({"a": 1}, [(2, b"x")]), ("[0].a", "[1][0][0]", "[1][0][1]")),
        ({"a.b": 1, "a": {"b": 2}, "": 3, "[0]": 4}, ("['a.b']", "a.b", "['']", "['[0]']")),
        ({}, ()),
        ((), ()),
        ({"a": {}, "b": (), "c": 1}, ("c",)),
    ],
)
def test_columns(sample: Any, columns: tuple[str, ...]) -> None:
    schema = Schema.infer([sample])
    assert schema.columns == columns == tuple(schema.fields)
    assert same(schema.decode(schema.encode(sample)), sample)
    assert same(schema.decode_batch(*pack([schema.encode(sample)] * 3)), [sample] * 3)


@pytest.mark.parametrize(
    ("sample", "back"),
    [
        (Point(1, 2), {"x": 1, "y": 2}),
        (OrderedDict(y=2, x=1), {"x": 1, "y": 2}),
        (UserDict(x=1, y=2), {"x": 1, "y": 2}),
        (MappingProxyType({"x": 1, "y": 2}), {"x": 1, "y": 2}),
        ({"y": 2, "x": 1}, {"x": 1, "y": 2}),
    ],
)
def test_other_mappings_come_back_as_dicts(sample: Any, back: Any) -> None:
    schema = Schema.of({"x": IntField(), "y": IntField()})
    assert same(schema.decode(schema.encode(sample)), back)
    assert set(Schema.infer([sample]).columns) == {"x", "y"}


def test_namedtuples_are_tuples_where_a_tuple_is_declared() -> None:
    schema = Schema.of((IntField(), IntField()))
    assert same(schema.decode(schema.encode(Point(1, 2))), (1, 2))


NESTED = {"id": IntField(), "meta": {"size": (IntField(), IntField()), "tags": [StrField()]}}
GOOD: Any = {"id": 1, "meta": {"size": (2, 3), "tags": ["x"]}}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda s: s.pop("id"), ValueError, "^sample: key 'id' is missing, expected keys 'id', 'meta'$"),
        (lambda s: s.update(extra=1), ValueError, "^sample: unexpected key 'extra', expected keys 'id', 'meta'$"),
        (lambda s: s["meta"].pop("tags"), ValueError, "^meta: key 'tags' is missing"),
        (lambda s: s["meta"].update({5: 1}), ValueError, "^meta: unexpected key 5"),
        (
            lambda s: s["meta"].update(size=(1, 2, 3)),
            ValueError,
            "^meta.size: a tuple of 3, expected a tuple of 2; declare JSON",
        ),
        (lambda s: s["meta"].update(size=[1, 2]), TypeError, "^meta.size: a list of 2, expected a tuple of 2$"),
        (lambda s: s["meta"].update(size=(1, "2")), TypeError, r"^meta.size\[1\]: str '2', expected an int$"),
        (lambda s: s["meta"].update(tags=[]), ValueError, "^meta.tags: a list of 0, expected a list of 1"),
        (lambda s: s["meta"].update(tags="x"), TypeError, "^meta.tags: str 'x', expected a list of 1$"),
        (lambda s: s.update(meta=None), TypeError, "^meta: None, expected a dict of 2$"),
        (lambda s: s.update(id=None), TypeError, "^id: None, expected an int$"),
    ],
)
def test_other_structures_are_refused(change: Any, error: type[Exception], words: str) -> None:
    schema = Schema.of(NESTED)
    sample = {**GOOD, "meta": dict(GOOD["meta"])}
    schema.encode(sample)
    change(sample)
    with pytest.raises(error, match=words):
        schema.encode(sample)


@pytest.mark.parametrize("sample", [(1,), (1, 2, 3), [1, 2], {"a": 1}, 1, None])
def test_flat_tuple_of_another_structure(sample: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"sample: .*, expected a tuple of 2"):
        Schema.of((IntField(), IntField())).encode(sample)


def test_many_keys_are_cut_in_the_message() -> None:
    schema = Schema.of({f"k{i}": IntField() for i in range(20)})
    with pytest.raises(ValueError, match=r"'k7' and 12 more$"):
        schema.encode({})


@pytest.mark.parametrize("make", [Schema.of, lambda tree: Schema.infer([tree])])
@pytest.mark.parametrize(
    ("tree", "error", "words"),
    [
        ({1: None}, TypeError, "sample: a key is int 1, expected str keys"),
        ({"a": {("x",): None}}, TypeError, "a: a key is a tuple of 1"),
        ({"k" * 257: None}, ValueError, "sample: a key has 257 characters, expected at most 256"),
        ({"a\ud800": None}, ValueError, "UTF-8 cannot encode character 1"),
        ((None,) * 5000, ValueError, "more than 4096 columns; store a list of numbers as one array"),
    ],
)
def test_structures_refused(make: Any, tree: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make(tree)


@pytest.mark.parametrize("make", [Schema.of, lambda tree: Schema.infer([tree])])
def test_depth_is_bounded(make: Any) -> None:
    tree: Any = None
    for _ in range(32):
        tree = (tree,)
    schema = make(tree)
    assert schema.decode(schema.encode(tree)) == tree
    with pytest.raises(ValueError, match="nested more than 32 levels deep"):
        make((tree,))
    tree = []
    tree.append(tree)
    with pytest.raises(ValueError, match="nested more than 32 levels deep"):
        make(tree)


def test_unflatten() -> None:
    schema = Schema.of(NESTED)
    columns = schema.decode_columns(*pack([schema.encode(GOOD)] * 2))
    batch = schema.unflatten(list(columns.values()))
    assert same(batch["meta"]["size"][1], np.array([3, 3]))
    assert batch["meta"]["tags"] == [["x", "x"]]
    with pytest.raises(ValueError, match="values has 3 items, expected 4"):
        schema.unflatten([1, 2, 3])

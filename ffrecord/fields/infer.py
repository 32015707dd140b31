"""Inference of the tree of fields that holds all probe samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from os import PathLike
from typing import Any

import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields.arrays import NDArrayField, TensorField
from ffrecord.fields.blobs import BytesField, JSONField, MsgpackField, StrField
from ffrecord.fields.dtypes import array_dtype, array_of_lists
from ffrecord.fields.field import Field
from ffrecord.fields.images.image import ImageField
from ffrecord.fields.inner import ListField, OptionalField
from ffrecord.fields.scalars import BoolField, DecimalField, FloatField, IntField, NoneField, ScalarField
from ffrecord.fields.shapes import common_shape
from ffrecord.fields.tree import Node, NodeCount, Tree, as_mapping, check_key, child_paths, key_path, label
from ffrecord.system.values import describe, is_image, is_tensor, tensor_shape, torch_dtype_name

SUPPORTED = (
    "int, float, bool, str, bytes, None, decimals, numpy scalars and arrays, torch tensors, PIL images, and dicts, "
    "tuples and lists of these; write a field for other types, or pass serializer=pickle.dumps"
)
KEYS_SHOWN = 4  # keys in a message
MISSING = "every sample needs the key: where it has no value, give it None, and declare OptionalField(...) for it"
TUPLES = "make lists of tuples of varying length: ListField(...), JSONField() and MsgpackField() hold them"


@dataclass(frozen=True)
class _Lists:
    """The lists that several samples have at the same place. Only all of them together show their kind.

    Attributes:
        values: the list of each sample.
        depth: depth of the place below the root.
    """

    values: tuple[list[Any], ...]
    depth: int


@dataclass(frozen=True)
class _Branch:
    """A dict or tuple with children that are not inferred yet. Its attributes are those of `Node`."""

    kind: str
    keys: tuple[str, ...]
    children: tuple["_Inferred", ...]


_Inferred = Field | _Branch | _Lists  # a node inferred from some samples; lists stay open until all samples are seen


def infer_tree(samples: Sequence[Any], names: Sequence[str] | None = None) -> Tree:
    """Infer the tree that holds all `samples`, with varying shapes where their shapes differ.

    Args:
        samples: one or more.
        names: the name of each for messages, such as "sample 7"; None if only their order is known.

    Raises:
        TypeError: no field holds a value; or two samples have different kinds in a column.
        ValueError: there are no samples; a value is out of its field's range; or structures have different lengths or
            keys.
    """
    if not len(samples):
        raise ArgumentError("there is no sample to infer columns from; pass explicit fields")
    names = [f"sample {probe} of those looked at" for probe in range(len(samples))] if names is None else names
    return _tree_of(samples, names, "", 0, NodeCount())


def _tree_of(values: Sequence[Any], names: Sequence[str], path: str, depth: int, nodes: NodeCount) -> Tree:
    """Infer the tree of the values that samples, which have these names, have at `path`."""
    nodes.add(path, depth)
    # Each sample counts anew: the limit is for one structure.
    seen = _inspect(values[0], path, depth, NodeCount())
    for probe in range(1, len(values)):
        seen = _merge(seen, _inspect(values[probe], path, depth, NodeCount()), path, names[probe])
    return _decide(seen, names, path, nodes)


def _inspect(value: Any, path: str, depth: int, nodes: NodeCount) -> _Inferred:
    nodes.add(path, depth)
    mapping = as_mapping(value)
    if mapping is not None:
        # Keys in the order of the first sample.
        keys = tuple(check_key(key, path) for key in mapping)
        children = [_inspect(mapping[key], key_path(path, key), depth + 1, nodes) for key in keys]
        return _Branch("dict", keys, tuple(children))
    if isinstance(value, tuple):
        children = [_inspect(each, f"{path}[{i}]", depth + 1, nodes) for i, each in enumerate(value)]
        return _Branch("tuple", (), tuple(children))
    # Lists wait for the other samples: one alone does not tell an array from a structure.
    if isinstance(value, list):
        return _Lists((value,), depth)
    return _leaf(value, path)


def _decide(seen: _Inferred, names: Sequence[str], path: str, nodes: NodeCount) -> Tree:
    """Return the tree of a node, with its lists decided."""
    if isinstance(seen, Field):
        return seen
    if isinstance(seen, _Lists):
        return _decide_lists(seen.values, names, path, seen.depth, nodes)
    children = []
    for child, child_path in zip(seen.children, child_paths(seen, path), strict=True):
        nodes.add(child_path, 0)
        children.append(_decide(child, names, child_path, nodes))
    return Node(seen.kind, seen.keys, tuple(children))


def _decide_lists(values: Sequence[list[Any]], names: Sequence[str], path: str, depth: int, nodes: NodeCount) -> Tree:
    """Decide the kind of lists: an array of numbers, a list of any number of texts, JSON, or a structure of columns."""
    # Numbers first: arrays are the fastest in batches.
    array = None if _are_rows(values, path) else array_of_lists(values)
    if array is not None:
        return NDArrayField(*array)
    # Lengths may differ, so the items of all samples together decide.
    items = [item for value in values for item in value]
    text = _field_of_texts(items)
    if text is not None:
        return ListField(text)
    nested = any(item is None or as_mapping(item) is not None or isinstance(item, list) for item in items)
    # Before a structure of columns, which would fix the length.
    if (nested or not items) and _are_json(values):
        return JSONField()
    # Equal lengths everywhere: the places are columns.
    if len(set(map(len, values))) == 1:
        return _structure(values, names, path, depth, nodes)
    inner = _field_of_all(items)
    if inner is not None:
        return ListField(inner)
    if _are_json(values):
        return JSONField()
    raise _length_error(values, names, path)


def _are_rows(values: Sequence[list[Any]], path: str) -> bool:
    """Tell whether samples are lists with an int here and a float there, such as a number and its label.

    Such lists become columns, not an array.
    """
    # Only the sample itself, not a list inside of it.
    if path or len(set(map(len, values))) != 1 or any(not isinstance(item, (int, float)) for item in values[0]):
        return False
    kinds = [{type(value[i]) for value in values} for i in range(len(values[0]))]
    return all(len(kind) == 1 for kind in kinds) and len(set().union(*kinds)) > 1


def _structure(values: Sequence[list[Any]], names: Sequence[str], path: str, depth: int, nodes: NodeCount) -> Tree:
    """Return a list of columns; JSON if the kinds of a column differ between samples, and JSON holds them."""
    try:
        children = [
            _tree_of([value[i] for value in values], names, f"{path}[{i}]", depth + 1, nodes)
            for i in range(len(values[0]))
        ]
    # Columns of mixed kinds: JSON may hold the whole list.
    except (TypeError, ValueError):
        if _are_json(values):
            return JSONField()
        raise
    return Node("list", (), tuple(children))


def _field_of_texts(items: Sequence[Any]) -> Field | None:
    """Return the field of each item, if all are texts, bytes or decimals."""
    for kinds, field in (
        ((str,), StrField()),
        ((bytes, bytearray, memoryview), BytesField()),
        ((Decimal,), DecimalField()),
    ):
        if items and all(isinstance(item, kinds) for item in items):
            return field
    return None


def _field_of_all(items: Sequence[Any]) -> Field | None:
    """Return the field that holds each item, or None. There is none for lists of tensors."""
    try:
        tree = infer_tree(items)
    except (TypeError, ValueError):
        return None
    # Lists of tensors could not be told from arrays in batches.
    return tree if isinstance(tree, Field) and tree.torch_dtype is None else None


def _are_json(values: Sequence[Any]) -> bool:
    return _are_held(JSONField(), values)


def _length_error(values: Sequence[list[Any]], names: Sequence[str], path: str) -> ValueError:
    probe = next(probe for probe, value in enumerate(values) if len(value) != len(values[0]))
    return ArgumentError(
        f"{label(path)} is a list of {len(values[0])} in the first sample, a list of {len(values[probe])} in "
        f"{names[probe]}; {_advise(values)}"
    )


def _advise(values: Sequence[list[Any]]) -> str:
    """Return what to declare for lists of varying length that JSON does not hold."""
    items = [item for value in values for item in value]
    there = [item for item in items if item is not None]
    # FloatField takes ints as well.
    numbers = all(type(item) in (int, float) for item in there)
    inner = (FloatField() if numbers else _field_of_all(there)) if there else None
    optional = None if inner is None else ListField(OptionalField(inner))
    # The first that holds all values, by trying.
    for field in (optional, MsgpackField()):
        if field is not None and _are_held(field, values):
            return f"declare {field!r}"
    if there and all(isinstance(item, dict) for item in there):
        keys = ", ".join(f"{key!r}: [...]" for key in list(there[0])[:KEYS_SHOWN])
        return (
            f"give a dict of lists, {{{keys}}}, instead of a list of dicts, or lists in place of arrays: array.tolist()"
        )
    if there and all(isinstance(item, tuple) for item in there):
        return "give lists instead of tuples, or a tuple of lists instead of a list of tuples"
    return "declare ListField(...) with a field that holds every item, or convert the items to one kind"


def _are_held(field: Field, values: Sequence[Any]) -> bool:
    try:
        for value in values:
            field.encode(value)
    except (TypeError, ValueError):
        return False
    return True


def _leaf(value: Any, path: str) -> Field:
    try:
        field = _infer_field(value)
        if isinstance(field, IntField):  # the range of ints is the field's business
            field.encode(value)  # raises now if the value is out of range, instead of at a later sample
    except ValueError as error:
        raise ArgumentError(f"{label(path)}: {error}") from error
    if field is None:
        # A path is often meant as the file that it names.
        advice = "; of a path, JPEGField() or ImageFileField() stores the file" if isinstance(value, PathLike) else ""
        if isinstance(value, date | timedelta):
            raise ArgumentTypeError(f"{label(path)}: no field holds {describe(value)}; store {_advise_time(value)}")
        raise ArgumentTypeError(f"{label(path)}: no field holds {describe(value)}{advice}; fields hold {SUPPORTED}")
    return field


def _advise_time(value: date | timedelta) -> str:
    """Return the expression that makes a value of numpy of a date, time or span; one with a zone is kept in UTC."""
    if isinstance(value, timedelta):
        return "np.timedelta64(value)"
    if getattr(value, "tzinfo", None) is None:
        return "np.datetime64(value)"
    return (
        "its time in UTC, np.datetime64(value.astimezone(datetime.timezone.utc).replace(tzinfo=None)); of a column of "
        "pandas, column.dt.tz_convert('UTC').dt.tz_localize(None)"
    )


def _infer_field(value: Any) -> Field | None:
    """Return the field that stores a value without loss; None if there is none."""
    if value is None:
        return NoneField()
    # numpy has subclasses of str, bytes and float. A ScalarField keeps the dtype of floats, but not of str and bytes.
    if isinstance(value, str):
        return StrField()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BytesField()
    if isinstance(value, Decimal):
        return DecimalField()
    # Before bool, int and float, as np.float64 is a float.
    if isinstance(value, np.generic):
        return ScalarField(value.dtype)
    # bool before int, which it is as well.
    for cls, field in ((bool, BoolField()), (int, IntField()), (float, FloatField())):
        if isinstance(value, cls):
            return field
    return _infer_array_field(value)


def _infer_array_field(value: Any) -> Field | None:
    if isinstance(value, np.ndarray):
        return NDArrayField(array_dtype(value.dtype), value.shape)
    if is_tensor(value):
        return TensorField(torch_dtype_name(value), tensor_shape(value))
    return ImageField() if is_image(value) else None


def _merge(tree: _Inferred, other: _Inferred, path: str, name: str) -> _Inferred:
    """Return the node that holds the values of `tree` and of `other`, which comes from the sample called `name`."""
    if isinstance(tree, Field) and isinstance(other, Field):
        merged = _widen(tree, other)
        if merged is None:
            raise _kind_error(path, tree.expects, other.expects, name)
        return merged
    if isinstance(tree, _Lists) and isinstance(other, _Lists):
        # Only collected; `_decide_lists` sees all of them.
        return _Lists((*tree.values, *other.values), tree.depth)
    if isinstance(tree, _Branch) and isinstance(other, _Branch) and tree.kind == other.kind:
        return _merge_branches(tree, other, path, name)
    raise _kind_error(path, _describe_node(tree), _describe_node(other), name)


def _merge_branches(tree: _Branch, other: _Branch, path: str, name: str) -> _Branch:
    if len(tree.children) != len(other.children) or set(tree.keys) != set(other.keys):
        changed = sorted(set(tree.keys) ^ set(other.keys))
        detail = f", only one of them has key {changed[0]!r}; {MISSING}" if changed else f"; {TUPLES}"
        raise ArgumentError(
            f"{label(path)} is {_describe_node(tree)} in the first sample, {_describe_node(other)} in {name}{detail}"
        )
    # Samples may have their keys in another order.
    order = [other.keys.index(key) for key in tree.keys] or range(len(other.children))
    children = [
        _merge(child, other.children[i], child_path, name)
        for child, i, child_path in zip(tree.children, order, child_paths(tree, path), strict=True)
    ]
    return _Branch(tree.kind, tree.keys, tuple(children))


def _widen(field: Field, other: Field) -> Field | None:
    if field == other:
        return field
    if isinstance(field, NDArrayField) and isinstance(other, NDArrayField) and field.dtype == other.dtype:
        # Shapes that differ become axes that vary.
        return NDArrayField(field.dtype, common_shape(field.shape, other.shape))
    if isinstance(field, TensorField) and isinstance(other, TensorField) and field.dtype == other.dtype:
        return TensorField(field.dtype, common_shape(field.shape, other.shape))
    return None


def _describe_node(tree: _Inferred) -> str:
    if isinstance(tree, Field):
        return tree.expects
    return f"a list of {len(tree.values[0])}" if isinstance(tree, _Lists) else f"a {tree.kind} of {len(tree.children)}"


def _kind_error(path: str, one: str, other: str, name: str) -> TypeError:
    return ArgumentTypeError(
        f"{label(path)} is {one} in the first sample, {other} in {name}; convert one of them, "
        "or declare the field of the column: FloatField() also takes exact ints, IntField() numpy integers, "
        "JSONField() any JSON, OptionalField(...) None"
    )

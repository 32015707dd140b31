"""Probe samples -> the tree of fields that holds them all."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields.arrays import NDArrayField
from ffrecord.fields.blobs import BytesField, StrField
from ffrecord.fields.decimals import DecimalField
from ffrecord.fields.describe import describe, is_image, is_tensor, tensor_shape, torch_dtype_name
from ffrecord.fields.dtypes import array_dtype
from ffrecord.fields.field import Field
from ffrecord.fields.images import ImageField
from ffrecord.fields.scalars import BoolField, FloatField, IntField, NoneField, ScalarField
from ffrecord.fields.shapes import common
from ffrecord.fields.tensors import TensorField
from ffrecord.fields.tree import Node, NodeCount, Tree, as_mapping, check_key, child_paths, key_path, label

SUPPORTED = (
    "int, float, bool, str, bytes, None, decimals, numpy scalars and arrays, torch tensors, PIL images, and dicts, "
    "tuples and lists of these; other types need a field of their own, or serializer=pickle.dumps"
)


def infer_tree(samples: Sequence[Any]) -> Tree:
    """The tree that holds all `samples`, with varying shapes where theirs differ.

    Raises:
        TypeError: a value that no field holds; or a column that is of different kinds in two samples.
        ValueError: no samples; a value out of its field's range; structures of different lengths or keys.
    """
    if not len(samples):
        raise ArgumentError("no sample to infer columns from; pass explicit fields")
    tree = _infer(samples[0], "", 0, NodeCount())
    for probe in range(1, len(samples)):
        tree = _merge(tree, _infer(samples[probe], "", 0, NodeCount()), "", probe)
    return tree


def _infer(value: Any, path: str, depth: int, nodes: NodeCount) -> Tree:
    nodes.add(path, depth)
    mapping = as_mapping(value)
    if mapping is not None:
        keys = tuple(check_key(key, path) for key in mapping)
        children = [_infer(mapping[key], key_path(path, key), depth + 1, nodes) for key in keys]
        return Node("dict", keys, tuple(children))
    if isinstance(value, (tuple, list)):
        children = [_infer(each, f"{path}[{i}]", depth + 1, nodes) for i, each in enumerate(value)]
        return Node("tuple" if isinstance(value, tuple) else "list", (), tuple(children))
    return _leaf(value, path)


def _leaf(value: Any, path: str) -> Field:
    try:
        field = _field(value)
        if isinstance(field, IntField):
            field.encode(value)  # out of range: better said now than at some sample later
    except ValueError as error:
        raise ArgumentError(f"{label(path)}: {error}") from error
    if field is None:
        raise ArgumentTypeError(f"{label(path)}: no field for {describe(value)}; there are fields for {SUPPORTED}")
    return field


def _field(value: Any) -> Field | None:
    if value is None:
        return NoneField()
    # str, bytes and float have numpy subclasses; those of str and bytes have no dtype worth keeping.
    if isinstance(value, str):
        return StrField()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BytesField()
    if isinstance(value, Decimal):
        return DecimalField()
    if isinstance(value, np.generic):
        return ScalarField(value.dtype)
    for cls, field in ((bool, BoolField()), (int, IntField()), (float, FloatField())):
        if isinstance(value, cls):
            return field
    return _array_field(value)


def _array_field(value: Any) -> Field | None:
    if isinstance(value, np.ndarray):
        return NDArrayField(array_dtype(value.dtype), value.shape)
    if is_tensor(value):
        return TensorField(torch_dtype_name(value), tensor_shape(value))
    return ImageField() if is_image(value) else None


def _merge(tree: Tree, other: Tree, path: str, probe: int) -> Tree:
    """The tree that holds what `tree` and `other` hold, the latter of sample number `probe`."""
    if isinstance(tree, Field) and isinstance(other, Field):
        merged = _widen(tree, other)
        if merged is None:
            raise _different(path, tree.expects, other.expects, probe)
        return merged
    if isinstance(tree, Field) or isinstance(other, Field) or tree.kind != other.kind:
        raise _different(path, _words(tree), _words(other), probe)
    return _merge_nodes(tree, other, path, probe)


def _merge_nodes(tree: Node, other: Node, path: str, probe: int) -> Node:
    if len(tree.children) != len(other.children) or set(tree.keys) != set(other.keys):
        changed = sorted(set(tree.keys) ^ set(other.keys))
        detail = f", key {changed[0]!r} is in one only" if changed else ""
        raise ArgumentError(
            f"{label(path)}: {_words(tree)} in the first sample, {_words(other)} in probe {probe}{detail}; declare "
            "JSONField() or ListField(...) for what varies in length, or an array of varying shape"
        )
    order = [other.keys.index(key) for key in tree.keys] or range(len(other.children))
    children = [
        _merge(child, other.children[i], child_path, probe)
        for child, i, child_path in zip(tree.children, order, child_paths(tree, path), strict=True)
    ]
    return Node(tree.kind, tree.keys, tuple(children))


def _widen(field: Field, other: Field) -> Field | None:
    if field == other:
        return field
    if isinstance(field, NDArrayField) and isinstance(other, NDArrayField) and field.dtype == other.dtype:
        return NDArrayField(field.dtype, common(field.shape, other.shape))
    if isinstance(field, TensorField) and isinstance(other, TensorField) and field.dtype == other.dtype:
        return TensorField(field.dtype, common(field.shape, other.shape))
    return None


def _words(tree: Tree) -> str:
    return tree.expects if isinstance(tree, Field) else f"a {tree.kind} of {len(tree.children)}"


def _different(path: str, one: str, other: str, probe: int) -> TypeError:
    return ArgumentTypeError(
        f"{label(path)}: {one} in the first sample, {other} in probe {probe}; a column has one kind: convert, or "
        "declare its field (FloatField() takes exact ints, IntField() numpy integers, JSONField() what JSON holds, "
        "OptionalField(...) None, too)"
    )

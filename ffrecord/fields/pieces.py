"""Records of a schema in pieces, for whoever copies them to their place at once."""

from collections.abc import Callable
from typing import Any

from ffrecord.fields.arrays import NDArrayField
from ffrecord.fields.blobs import BytesField, StrField
from ffrecord.fields.field import Field
from ffrecord.fields.scalars import BoolField, FloatField, IntField
from ffrecord.fields.tree import CLASSES, Tree
from ffrecord.kernels._records import Branch, Leaf, Pieces

# By class itself: a field derived from one of these may encode otherwise.
KINDS: dict[type[Field], str] = {
    IntField: "int",
    FloatField: "float",
    BoolField: "bool",
    BytesField: "bytes",
    StrField: "str",
}


def in_pieces(tree: Tree, encode: Callable[[Any], bytes], explain: Callable[[list[Any]], None]) -> Pieces:
    """A function like `encode`, of samples like `tree`, whose records are the same bytes but in pieces.

    Args:
        explain: see `Layout.explain`.
    """
    leaves: list[Leaf] = []
    return Pieces(_node(tree, leaves), leaves, encode, explain)


def _node(tree: Tree, leaves: list[Leaf]) -> Leaf | Branch:
    if not isinstance(tree, Field):
        return Branch(CLASSES[tree.kind], tree.keys, tuple(_node(child, leaves) for child in tree.children))
    leaf = _leaf(tree)
    leaves.append(leaf)
    return leaf


def _leaf(field: Field) -> Leaf:
    fixed = field.fixed
    if type(field) is NDArrayField and fixed is not None:
        return Leaf("array", field.encode, fixed.size, fixed.dtype, fixed.shape)
    return Leaf(KINDS.get(type(field), "other"), field.encode, None if fixed is None else fixed.size)

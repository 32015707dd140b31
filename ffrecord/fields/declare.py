"""Trees of explicitly declared fields."""

from collections.abc import Mapping
from typing import Any

from ffrecord.fields.describe import describe
from ffrecord.fields.field import KINDS, Field
from ffrecord.fields.scalars import NoneField
from ffrecord.fields.tree import Node, NodeCount, Tree, check_key, child_paths, label


def declare_tree(fields: Any) -> Tree:
    """Return the tree of `fields`: a Field, None, or a dict, tuple or list of these, nested.

    Raises:
        TypeError: something else is in `fields`.
        ValueError: a field's class is not registered, or there are too many columns.
    """
    return _tree(fields, "", 0, NodeCount())


def _tree(fields: Any, path: str, depth: int, nodes: NodeCount) -> Tree:
    nodes.add(path, depth)
    if fields is None:
        return NoneField()
    if isinstance(fields, Field):
        return _check_registered(fields, path)
    if isinstance(fields, Mapping):
        node, children = Node("dict", tuple(check_key(key, path) for key in fields), ()), list(fields.values())
    elif isinstance(fields, (tuple, list)):
        node, children = Node("tuple" if isinstance(fields, tuple) else "list", (), tuple(fields)), list(fields)
    else:
        call = f"; write {fields.__name__}()" if isinstance(fields, type) and issubclass(fields, Field) else ""
        raise TypeError(
            f"{label(path)}: expected a Field, or a dict, tuple or list of them, found {describe(fields)}{call}"
        )
    paths = child_paths(node, path)
    trees = [_tree(child, child_path, depth + 1, nodes) for child, child_path in zip(children, paths, strict=True)]
    return Node(node.kind, node.keys, tuple(trees))


def _check_registered(field: Field, path: str) -> Field:
    if KINDS.get(field.kind) is not type(field):
        raise ValueError(
            f"{label(path)}: {type(field).__qualname__} is not registered, so no file with it could be read; put "
            "@ffrecord.fields.register before its class"
        )
    return field

"""Conversion of trees of fields to plain builtins that msgpack holds, as files keep them, and back.

{"version": 1, "sample": node}
node:  {"kind": "dict", "items": [[key, node], ...]}
       {"kind": "tuple" or "list", "items": [node, ...]}
       {"kind": name of a field, and its parameters}
"""

from collections.abc import Mapping
from typing import Any

from ffrecord.errors import FormatError, describe_version
from ffrecord.fields.field import KINDS, Field
from ffrecord.fields.tree import Node, NodeCount, Tree, check_key, child_paths, label
from ffrecord.system.values import describe, describe_wrong

VERSION = 1


def to_spec(tree: Tree) -> dict[str, Any]:
    """Return the builtins of `tree`."""
    return {"version": VERSION, "sample": _node_spec(tree)}


def _node_spec(tree: Tree) -> dict[str, Any]:
    if isinstance(tree, Field):
        return field_spec(tree)
    items: list[Any] = [_node_spec(child) for child in tree.children]
    if tree.kind == "dict":
        items = [[key, item] for key, item in zip(tree.keys, items, strict=True)]
    return {"kind": tree.kind, "items": items}


def from_spec(spec: Any) -> Tree:
    """Return the tree of `spec`, in which anything may be wrong.

    Raises:
        FormatError: `to_spec` makes no such spec, its version is a later one, or a field is unknown here.
    """
    version = spec.get("version") if isinstance(spec, Mapping) else None
    # Exactly int: True would pass as version 1.
    if type(version) is not int:
        raise FormatError(f"schema is {describe(spec)}, expected a dict with a version")
    if version != VERSION:
        raise FormatError(describe_version("schema", version, VERSION))
    try:
        return _node(spec.get("sample"), "", 0, NodeCount())
    except FormatError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"schema: {error}") from error


def _node(spec: Any, path: str, depth: int, nodes: NodeCount) -> Tree:
    # Counted from the root: a hostile schema may be wide or deep.
    nodes.add(path, depth)
    if not isinstance(spec, Mapping) or not all(isinstance(key, str) for key in spec):
        raise ValueError(describe_wrong(label(path), spec, "a dict with a kind"))
    kind = spec.get("kind")
    if kind == "dict":
        return _dict(spec, path, depth, nodes)
    if kind in ("tuple", "list"):
        items = _items(spec, path)
        children = [_node(item, f"{path}[{i}]", depth + 1, nodes) for i, item in enumerate(items)]
        return Node(kind, (), tuple(children))
    return _field(spec, path)


def _items(spec: Mapping[str, Any], path: str) -> Any:
    items = spec.get("items")
    # Another entry may be of a later version, with a meaning.
    if not isinstance(items, (list, tuple)) or len(spec) != 2:
        raise ValueError(
            f"{label(path)}: items of the {spec['kind']} is {describe(items)}, expected a list and no other entry"
        )
    return items


def _dict(spec: Mapping[str, Any], path: str, depth: int, nodes: NodeCount) -> Node:
    pairs = _items(spec, path)
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{label(path)}: items of the dict are not pairs of key and node")
    keys = tuple(check_key(pair[0], path) for pair in pairs)
    # Of a double key one value would be lost.
    if len(set(keys)) != len(keys):
        raise ValueError(f"{label(path)}: {len(keys)} keys, {len(set(keys))} of them different, expected each key once")
    paths = child_paths(Node("dict", keys, ()), path)
    children = [_node(pair[1], child, depth + 1, nodes) for pair, child in zip(pairs, paths, strict=True)]
    return Node("dict", keys, tuple(children))


def _field(spec: Mapping[str, Any], path: str) -> Field:
    try:
        return field_from_spec(spec)
    except FormatError as error:
        raise FormatError(f"schema: {label(path)}: {error}") from error
    # Whatever the parameters caused becomes one kind of error.
    except (TypeError, ValueError, OverflowError, LookupError) as error:
        raise ValueError(f"{label(path)}: {spec['kind']}: {error}") from error


def field_spec(field: Field) -> dict[str, Any]:
    """Return the builtins of one field."""
    return {"kind": field.kind, **field.spec()}


def field_from_spec(spec: Mapping[str, Any]) -> Field:
    """Return the field of `spec`, in which anything may be wrong.

    Raises:
        FormatError: the kind is not registered in this process.
        TypeError, ValueError, OverflowError, LookupError: parameters are unknown, wrong or missing.
    """
    kind = spec.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        shown = repr(kind[:60]) if isinstance(kind, str) else describe(kind)
        raise FormatError(
            f"field kind {shown} is unknown here; import the module that registers it with ffrecord.fields.register, "
            "or use a release that has it. FileReader reads the records as bytes without it"
        )
    return cls.from_spec({key: value for key, value in spec.items() if key != "kind"})

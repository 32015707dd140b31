"""The structure around the fields: dict, tuple and list. It is taken apart into a flat row of values, and rebuilt.

The leaves of a tree, from left to right, are the columns. The name of a column is its path: `label`, `meta.size[1]`,
`[0]`, or `value` for a sample that is one value. A key that could be mistaken for a path is quoted: `['a.b']`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields.field import Field
from ffrecord.system.values import REPR_MAX, describe, explain_surrogate

NODES_MAX = 4096  # columns and containers; each costs Python work per sample, and more should be an array
DEPTH_MAX = 32
KEY_MAX = 256  # characters, so that paths stay short

ROOT = "value"  # name of the column of a sample that is one value
VARYING = "declare JSONField() or ListField(...) for lists of varying length, or an array of varying shape"
_PLAIN_KEY = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True)
class Node:
    """A dict, tuple or list of children.

    Attributes:
        kind: "dict", "tuple" or "list".
        keys: keys of a dict in order, one for each child; empty for tuples and lists.
        children: nodes and fields.
    """

    kind: str
    keys: tuple[str, ...]
    children: tuple["Node | Field", ...]


CLASSES: dict[str, Any] = {"dict": dict, "tuple": tuple, "list": list}

Tree = Node | Field
Values = Sequence[Any]


def key_path(path: str, key: str) -> str:
    """Return the path of child `key` of the dict at `path`."""
    # A key with a dot or bracket looks like a path.
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


class Container(Protocol):
    """The attributes of a node that decide the paths of its children."""

    @property
    def kind(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def children(self) -> tuple[Any, ...]: ...


def child_paths(node: Container, path: str) -> list[str]:
    """Return the paths of the children of the node at `path`."""
    if node.kind == "dict":
        return [key_path(path, key) for key in node.keys]
    return [f"{path}[{i}]" for i in range(len(node.children))]


def label(path: str) -> str:
    """Return `path` for messages; the root has no path of its own."""
    return path or "sample"


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Field]]:
    """Yield (name, field) of each column, in order."""
    if isinstance(tree, Field):
        yield path or ROOT, tree
        return
    for child, child_path in zip(tree.children, child_paths(tree, path), strict=True):
        yield from leaves(child, child_path)


def check_key(key: Any, path: str) -> str:
    """Check that `key` can be the key of a dict in a schema, and return it.

    Raises:
        TypeError: it is not a str.
        ValueError: it is too long, or UTF-8 does not hold it.
    """
    if not isinstance(key, str):
        raise ArgumentTypeError(
            f"{label(path)}: a key is {describe(key)}, expected str keys; convert it, as by str(key), or "
            "frame.columns = frame.columns.map(str) of a DataFrame"
        )
    if len(key) > KEY_MAX:
        raise ArgumentError(f"{label(path)}: a key has {len(key)} characters, expected at most {KEY_MAX}")
    try:
        # Lone surrogates are no text for UTF-8.
        key.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{label(path)}: key {describe(key)}: {explain_surrogate(error)}") from None
    return key


class NodeCount:
    """Counter of the nodes of a tree, which refuses more nodes than a schema may have."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, path: str, depth: int) -> None:
        """Count the node at `path`, which is below `depth` others.

        Raises:
            ValueError: there are too many nodes, or they are nested too deep.
        """
        self.count += 1
        # A list of numbers would become thousands of columns; the advice is an array.
        if self.count > NODES_MAX:
            raise ArgumentError(
                f"{label(path)}: there are more than {NODES_MAX} columns; store a list of numbers as one array, other "
                "lists as JSONField()"
            )
        if depth > DEPTH_MAX:
            raise ArgumentError(
                f"{label(path)} is nested more than {DEPTH_MAX} levels deep; declare JSONField() for deep structures"
            )


class _IrregularSample(Exception):
    """A sample whose structure is not made of plain dicts, tuples and lists of the right sizes."""


def flattener(tree: Tree) -> Callable[[Any], Values]:
    """Return a function from a sample to its values in column order, quick for plain dicts, tuples and lists.

    The function raises TypeError or ValueError, with the path, if a sample has another structure.
    """
    if isinstance(tree, Field):
        return lambda sample: (sample,)
    # Flat tuples and lists are their values already.
    take = _flat_taker(tree) if tree.kind != "dict" and _is_flat(tree) else _nested_taker(tree)

    def flatten(sample: Any) -> Values:
        try:
            return take(sample)
        # The long way takes mappings and namedtuples, and names what is wrong.
        except (_IrregularSample, KeyError):
            values: list[Any] = []
            _walk(tree, sample, "", values)
            return values

    return flatten


def _is_flat(tree: Node) -> bool:
    return all(isinstance(child, Field) for child in tree.children)


def _flat_taker(tree: Node) -> Callable[[Any], Values]:
    cls, count = CLASSES[tree.kind], len(tree.children)

    def take(sample: Any) -> Values:
        # Exact classes: a namedtuple is a tuple, too.
        if type(sample) is not cls or len(sample) != count:
            raise _IrregularSample
        values: Values = sample
        return values

    return take


def _nested_taker(tree: Node) -> Callable[[Any], Values]:
    taker = _taker(tree)

    def take(sample: Any) -> Values:
        values: list[Any] = []
        taker(sample, values)
        return values

    return take


def _taker(tree: Node) -> Callable[[Any, list[Any]], None]:
    cls, count, keys = CLASSES[tree.kind], len(tree.children), tree.keys
    takers = [None if isinstance(child, Field) else _taker(child) for child in tree.children]
    flat = _is_flat(tree)

    def take(sample: Any, values: list[Any]) -> None:
        if type(sample) is not cls or len(sample) != count:
            raise _IrregularSample
        # In the order of the schema, whatever the order of the sample's keys.
        children = [sample[key] for key in keys] if keys else sample
        # A leaf each: no loop is needed.
        if flat:
            values += children
            return
        for taker, child in zip(takers, children):  # noqa: B905  # hot; counted above
            if taker is None:  # the child is a leaf
                values.append(child)
            else:
                taker(child, values)

    return take


def _walk(tree: Tree, sample: Any, path: str, values: list[Any]) -> None:
    if isinstance(tree, Field):
        values.append(sample)
        return
    if tree.kind == "dict":
        children: Values = _dict_children(tree, sample, path)
    else:
        children = _sequence_children(tree, sample, path)
    for child, value, child_path in zip(tree.children, children, child_paths(tree, path), strict=True):
        _walk(child, value, child_path, values)


def as_mapping(value: Any) -> Mapping[Any, Any] | None:
    """Return `value` if it is a mapping, the dict of a namedtuple's names, or None for other values."""
    if isinstance(value, (dict, Mapping)):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names: Any = value
        return dict(zip(names._fields, value, strict=True))
    return None


def _dict_children(node: Node, sample: Any, path: str) -> list[Any]:
    mapping = as_mapping(sample)
    if mapping is None:
        _refuse(node, sample, path)  # raises
    missing = [key for key in node.keys if key not in mapping]
    if missing:
        raise ValueError(f"{label(path)}: key {missing[0]!r} is missing, expected keys {_keys(node.keys)}")
    # Only the number is compared, since no key is missing.
    if len(mapping) != len(node.keys):
        extra = next(key for key in mapping if key not in node.keys)
        raise ValueError(f"{label(path)}: unexpected key {repr(extra)[:REPR_MAX]}, expected keys {_keys(node.keys)}")
    return [mapping[key] for key in node.keys]


def _keys(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:8])
    return shown if len(keys) <= 8 else f"{shown} and {len(keys) - 8} more"


def _sequence_children(node: Node, sample: Any, path: str) -> Values:
    if not isinstance(sample, tuple if node.kind == "tuple" else list) or len(sample) != len(node.children):
        _refuse(node, sample, path)
    return sample


def _refuse(node: Node, sample: Any, path: str) -> NoReturn:
    message = f"{label(path)}: {describe(sample)}, expected a {node.kind} of {len(node.children)}"
    # The right class, so the length is wrong: say how to declare that.
    if isinstance(sample, CLASSES[node.kind]):
        raise ValueError(f"{message}; {VARYING}")
    raise TypeError(message)


def replace_fields(tree: Tree, fields: Iterator[Field]) -> Tree:
    """Return `tree` with `fields` instead of its own, from left to right."""
    if isinstance(tree, Field):
        return next(fields)
    return Node(tree.kind, tree.keys, tuple(replace_fields(child, fields) for child in tree.children))


def select(tree: Tree, wanted: Iterator[bool]) -> Tree | None:
    """Return `tree` with the fields for which `wanted`, from left to right, is True; None if nothing is left.

    Nodes that lose all of their children are left out too. Nodes without children stay.
    """
    if isinstance(tree, Field):
        return tree if next(wanted) else None
    children = [select(child, wanted) for child in tree.children]
    # Children that are gone leave no hole.
    kept = tuple(child for child in children if child is not None)
    if children and not kept:
        return None
    keys = tuple(key for key, child in zip(tree.keys, children, strict=False) if child is not None)
    return Node(tree.kind, keys, kept)


def builder(tree: Tree) -> Callable[[Values], Any]:
    """Return a function from the values of a sample, in column order, to the sample."""
    if isinstance(tree, Field):
        return lambda values: values[0]
    if not _is_flat(tree):
        # Nested samples are built recursively; flat ones by one call.
        return lambda values: _build(tree, iter(values))
    keys = tree.keys
    if tree.kind == "dict":
        return lambda values: dict(zip(keys, values))  # noqa: B905  # hot; both come from one schema
    return tuple if tree.kind == "tuple" else list


def _build(tree: Tree, values: Iterator[Any]) -> Any:
    if isinstance(tree, Field):
        return next(values)
    children = [_build(child, values) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.keys, children, strict=True))
    return tuple(children) if tree.kind == "tuple" else children

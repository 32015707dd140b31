"""Trees of explicitly declared fields, completed with fields that samples show for the other columns."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ffrecord.fields.field import KINDS, Field
from ffrecord.fields.infer import infer_tree
from ffrecord.fields.scalars import NoneField
from ffrecord.fields.tree import Node, NodeCount, Tree, as_mapping, check_key, child_paths, label
from ffrecord.system.values import describe_wrong


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
        # The class instead of a field is the usual mistake.
        call = f"write {fields.__name__}()" if isinstance(fields, type) and issubclass(fields, Field) else ""
        raise TypeError(describe_wrong(label(path), fields, "a Field, or a dict, tuple or list of them", call))
    paths = child_paths(node, path)
    trees = [_tree(child, child_path, depth + 1, nodes) for child, child_path in zip(children, paths, strict=True)]
    return Node(node.kind, node.keys, tuple(trees))


def _check_registered(field: Field, path: str) -> Field:
    # A subclass inherits the kind of its base, so look for the class itself.
    if KINDS.get(field.kind) is not type(field):
        raise ValueError(
            f"{label(path)}: {type(field).__qualname__} is not registered, so no file with it could be read; put "
            "@ffrecord.fields.register before its class"
        )
    return field


def lacks(declared: Tree, sample: Any) -> bool:
    """Tell whether a sample has keys that no field is declared for."""
    mapping = as_mapping(sample)
    if isinstance(declared, Field) or declared.kind != "dict" or mapping is None:
        return False
    named = zip(declared.keys, declared.children, strict=True)
    return bool(mapping.keys() - set(declared.keys)) or any(
        key in mapping and lacks(child, mapping[key]) for key, child in named
    )


def complete_tree(declared: Tree, samples: Sequence[Any], names: Sequence[str] | None = None) -> Tree:
    """Return the declared tree, with inferred fields for the keys that it leaves out.

    If keys were left out, the columns follow the order of the first sample's keys; else the declared order.

    Args:
        declared: the declared fields.
        samples: samples that show the other keys.
        names: see `infer_tree`.

    Raises:
        TypeError, ValueError: no field holds the values of a key that was left out.
    """
    # The usual case: everything is declared.
    if not any(lacks(declared, sample) for sample in samples):
        return declared
    # `lacks` is true of dicts only.
    node = cast(Node, declared)
    found = [as_mapping(each) for each in samples]
    mappings = [each for each in found if each is not None]
    if names is not None:
        # Names belong to the samples that have a mapping here.
        names = [name for name, each in zip(names, found, strict=True) if each is not None]
    children = {}
    for key, child in zip(node.keys, node.children, strict=True):
        # A key may be missing in some samples; only the others show what is below.
        having = [i for i, each in enumerate(mappings) if key in each]
        called = None if names is None else [names[i] for i in having]
        children[key] = complete_tree(child, [mappings[i][key] for i in having], called)
    rest = [{key: value for key, value in each.items() if key not in children} for each in mappings]
    if any(rest):
        inferred = cast(Node, infer_tree(rest, names))
        children |= dict(zip(inferred.keys, inferred.children, strict=True))
    # The order of the first sample, as users see their columns.
    keys = tuple(dict.fromkeys([*(key for key in mappings[0] if key in children), *children]))
    return Node("dict", keys, tuple(children[key] for key in keys))


def covers(tree: Tree, declared: Tree) -> bool:
    """Tell whether a tree has all the keys that fields are declared for."""
    if isinstance(tree, Field) or isinstance(declared, Field) or tree.kind != "dict" or declared.kind != "dict":
        # Fields and other structures have no keys to compare.
        return True
    known = dict(zip(tree.keys, tree.children, strict=True))
    named = zip(declared.keys, declared.children, strict=True)
    return all(key in known and covers(known[key], child) for key, child in named)


def overlay_fields(tree: Tree, declared: Tree) -> Tree:
    """Return a tree whose fields are replaced by the declared ones, where there are any.

    A field read from a file need not equal the declared one: its spec may leave out how the field writes.
    """
    if isinstance(tree, Field) or isinstance(declared, Field):
        # A declared field wins over the stored one.
        return declared
    if tree.kind != "dict" or declared.kind != "dict":
        return declared
    known = dict(zip(declared.keys, declared.children, strict=True))
    children = zip(tree.keys, tree.children, strict=True)
    return Node(
        "dict",
        tree.keys,
        tuple(overlay_fields(child, known[key]) if key in known else child for key, child in children),
    )

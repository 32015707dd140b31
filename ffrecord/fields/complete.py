"""Fields that are declared for some columns, completed by what samples show of the others."""

from collections.abc import Sequence
from typing import Any, cast

from ffrecord.fields.field import Field
from ffrecord.fields.infer import infer_tree
from ffrecord.fields.tree import Node, Tree, as_mapping


def lacks(declared: Tree, sample: Any) -> bool:
    """Tell whether a sample has keys that no field is declared for."""
    mapping = as_mapping(sample)
    if isinstance(declared, Field) or declared.kind != "dict" or mapping is None:
        return False
    named = zip(declared.keys, declared.children, strict=True)
    return bool(mapping.keys() - set(declared.keys)) or any(
        key in mapping and lacks(child, mapping[key]) for key, child in named
    )


def completed(declared: Tree, samples: Sequence[Any]) -> Tree:
    """Return the declared tree, with fields for the keys that it leaves out, as the samples show them.

    Columns are in the order of the first sample's keys if something was left out, else as declared.

    Raises:
        TypeError, ValueError: no field holds what was left out.
    """
    if not any(lacks(declared, sample) for sample in samples):
        return declared
    node = cast(Node, declared)
    mappings = [each for each in map(as_mapping, samples) if each is not None]
    children = {
        key: completed(child, [each[key] for each in mappings if key in each])
        for key, child in zip(node.keys, node.children, strict=True)
    }
    rest = [{key: value for key, value in each.items() if key not in children} for each in mappings]
    if any(rest):
        inferred = cast(Node, infer_tree(rest))
        children |= dict(zip(inferred.keys, inferred.children, strict=True))
    keys = tuple(dict.fromkeys([*(key for key in mappings[0] if key in children), *children]))
    return Node("dict", keys, tuple(children[key] for key in keys))


def covers(tree: Tree, declared: Tree) -> bool:
    """Tell whether a tree has all the keys that fields are declared for."""
    if isinstance(tree, Field) or isinstance(declared, Field) or tree.kind != "dict" or declared.kind != "dict":
        return True
    known = dict(zip(tree.keys, tree.children, strict=True))
    named = zip(declared.keys, declared.children, strict=True)
    return all(key in known and covers(known[key], child) for key, child in named)


def overlaid(tree: Tree, declared: Tree) -> Tree:
    """Return a tree with the fields that are declared for some of its keys, as the objects that they are.

    What comes from the description in a file need not be equal: a field may not describe how it writes.
    """
    if isinstance(tree, Field) or isinstance(declared, Field):
        return declared
    if tree.kind != "dict" or declared.kind != "dict":
        return declared
    known = dict(zip(declared.keys, declared.children, strict=True))
    children = zip(tree.keys, tree.children, strict=True)
    return Node(
        "dict", tree.keys, tuple(overlaid(child, known[key]) if key in known else child for key, child in children)
    )

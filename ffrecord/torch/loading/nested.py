"""Columns inside of nested samples, such as `target.boxes` and `[1].boxes`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Path", "parse_path", "pick_columns", "picked_path", "replace_value", "tree_of", "value_at"]

Path = tuple[str | int, ...]
Tree = dict[str | int, Any]  # of the parts of paths; None where a path ends
PART = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")


def parse_path(name: str) -> Path:
    """Return the keys and places that the name of a column leads through; (name,) if it is no such path."""
    found: list[str | int] = []
    end = 0
    for part in PART.finditer(name):
        if part.start() != end:
            return (name,)
        place, key = part.groups()
        found.append(key if place is None else int(place))
        end = part.end()
    return tuple(found) if found and end == len(name) else (name,)


def value_at(sample: Any, path: Path) -> Any:
    """Return the value at a path of a sample.

    Raises:
        LookupError: there is none.
    """
    for part in path:
        if not isinstance(sample, Mapping if isinstance(part, str) else tuple | list):
            raise LookupError(part)
        container: Any = sample
        sample = container[part]
    return sample


def replace_value(sample: Any, path: Path, value: Any) -> Any:
    """Return a sample with another value at a path; what is beside the path is shared."""
    if not path:
        return value
    part = path[0]
    inner = replace_value(sample[part], path[1:], value)
    if isinstance(sample, Mapping):
        return {**sample, part: inner}
    items = [inner if place == part else item for place, item in enumerate(sample)]
    return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)


def tree_of(paths: Iterable[Path]) -> Tree:
    """Return what paths lead to: a dict of parts, in which None means all that is there."""
    tree: Tree = {}
    for path in sorted(paths, key=len):  # a shorter path holds the longer ones that begin with it
        inner: Tree | None = tree
        for part in path[:-1]:
            inner = inner.setdefault(part, {}) if inner is not None else None
        if inner is not None:
            inner.setdefault(path[-1], None)
    return tree


def pick_columns(sample: Any, tree: Tree | None) -> Any:
    """Return a sample with the columns of a tree only; tuples and lists have fewer items then."""
    if tree is None:
        return sample
    if isinstance(sample, Mapping):
        return {key: pick_columns(value, tree[key]) for key, value in sample.items() if key in tree}
    kept = [pick_columns(item, tree[place]) for place, item in enumerate(sample) if place in tree]
    return kept if isinstance(sample, list) else tuple(kept)


def picked_path(path: Path, tree: Tree | None) -> Path:
    """Return the path, in what `pick_columns` returns, of the value at `path` of a sample."""
    found: list[str | int] = []
    for part in path:
        if tree is not None:
            found.append(part if isinstance(part, str) else sum(isinstance(k, int) and k < part for k in tree))
            tree = tree[part]
        else:
            found.append(part)
    return tuple(found)

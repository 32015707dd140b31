"""The structure of samples: dicts, tuples and lists whose leaves are names of columns."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["builder", "pruned"]

Structure = Any  # a name, or a dict, tuple or list of structures
Build = Callable[[Sequence[Any]], Any]


def pruned(structure: Structure, wanted: set[str]) -> Structure | None:
    """`structure` with the wanted names only, without the containers that this empties; None if nothing is left."""
    if isinstance(structure, str):
        return structure if structure in wanted else None
    if not structure:
        return structure
    if isinstance(structure, dict):
        children = {key: pruned(child, wanted) for key, child in structure.items()}
        return {key: child for key, child in children.items() if child is not None} or None
    kept = [child for child in (pruned(child, wanted) for child in structure) if child is not None]
    return type(structure)(kept) if kept else None


def builder(structure: Structure) -> Build:
    """A function from values, in the order of the names, to a sample or batch of that structure."""
    if isinstance(structure, str):
        return lambda values: values[0]
    children = list(structure.values() if isinstance(structure, dict) else structure)
    if not all(isinstance(child, str) for child in children):
        return lambda values: _build(structure, iter(values))
    if isinstance(structure, dict):
        keys = list(structure)
        return lambda values: dict(zip(keys, values))  # noqa: B905  # hot; one value for each name
    return type(structure)


def _build(structure: Structure, values: Iterator[Any]) -> Any:
    if isinstance(structure, str):
        return next(values)
    if isinstance(structure, dict):
        return {key: _build(child, values) for key, child in structure.items()}
    return type(structure)(_build(child, values) for child in structure)

"""The class names that sources have, and the numbers of their classes → names, where fields number them otherwise."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Field
from ffrecord.fields.labels import class_names_of
from ffrecord.fields.tree import Tree
from ffrecord.inputs.arrow_types import is_list, types
from ffrecord.inputs.arrow_values import decode
from ffrecord.system.values import describe

FILE_FEATURES = ("Image", "Audio", "Video", "Pdf", "Nifti")  # of Hugging Face: what has bytes and a path
# The class names of numbers, also of those in lists, to any depth; or of what is inside of a dict, by key.
Classes: TypeAlias = tuple[str, ...] | Mapping[str, "Classes"]
# The class names of the numbers to replace; or of what is inside of a dict, list or tuple, by key or place.
Renamed: TypeAlias = tuple[str, ...] | Mapping[str | int, "Renamed"]


def classes_of_features(features: Any) -> Classes | None:
    """Return the class names in features of Hugging Face, as their `to_dict` has them; None if there are none.

    Raises:
        AttributeError, TypeError, RecursionError: they are no such features.
    """
    if isinstance(features, list):  # a list of something, as older versions write it
        return classes_of_features(features[0]) if len(features) == 1 else None
    if not isinstance(features, Mapping):
        return None
    kind = features.get("_type")
    if kind == "ClassLabel":
        return tuple(map(str, features.get("names") or ())) or None
    # "Sequence", "List" and others have what is inside as `feature`.
    if isinstance(kind, str):
        return classes_of_features(features.get("feature"))
    inside = {str(name): classes_of_features(each) for name, each in features.items()}
    # A dict without any class has none.
    return {name: each for name, each in inside.items() if each is not None} or None


def classes_of_schema(schema: Any) -> dict[str, Classes]:
    """Return the class names that the library of Hugging Face left in a schema of Arrow; {} if there are none."""
    try:
        return classes_of_columns(_features_of_schema(schema))
    # Metadata may be of any program; names are only a help.
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}


def declared_files(schema: Any) -> set[str]:
    """Return the columns that the library of Hugging Face declared as files, such as images, in a schema of Arrow."""
    try:
        features = _features_of_schema(schema).items()
        return {name for name, each in features if isinstance(each, dict) and each.get("_type") in FILE_FEATURES}
    except (ValueError, AttributeError, TypeError, RecursionError):
        return set()


def _features_of_schema(schema: Any) -> Any:
    said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    return said.get("info", {}).get("features", {})


def classes_of_columns(features: Mapping[str, Any]) -> dict[str, Classes]:
    """Return the class names in columns, from features as for `classes_of_features`."""
    found = {name: classes_of_features(each) for name, each in features.items()}
    return {name: classes for name, classes in found.items() if classes is not None}


def are_classes(column: Any, classes: Classes) -> bool:
    """Tell whether every integer of an Arrow column, nested lists included, is a valid class number."""
    if not isinstance(classes, tuple):
        return False
    for chunk in column.chunks:
        values = decode(chunk)
        while is_list(values.type):  # lists in lists
            values = decode(values.flatten())
        if not types().is_integer(values.type):
            return False
        numbers = values.drop_null().to_numpy(zero_copy_only=False)
        # -1 stands for "no label" in many datasets, and is no class.
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(classes)):
            return False
    return True


def find_renamed(classes: Classes, tree: Tree) -> Renamed | None:
    """Return the source's class names wherever a tree has other names, or another order; None if it has none there.

    There the same number means another class.
    """
    if isinstance(tree, Field):
        wanted = class_names_of(tree)
        # None: the field is not of classes, so numbers stay numbers.
        return classes if isinstance(classes, tuple) and wanted not in (None, classes) else None
    found: dict[str | int, Renamed] = {}
    places: Sequence[str | int] = tree.keys or range(len(tree.children))
    for place, child in zip(places, tree.children, strict=True):
        # By key in a dict, and the same for each item of a list or tuple.
        inner = classes.get(str(place)) if tree.keys and isinstance(classes, Mapping) else classes
        renamed = None if inner is None else find_renamed(inner, child)
        if renamed is not None:
            found[place] = renamed
    return found or None


def name_classes(value: Any, renamed: Renamed) -> Any:
    """Return a value with the names of its classes in place of their numbers. None, and names, stay.

    Raises:
        FormatError: it has a number of no class, or a value that is no number.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(renamed, Mapping):
        if isinstance(value, Mapping):
            return {key: name_classes(each, renamed[key]) if key in renamed else each for key, each in value.items()}
        if isinstance(value, list | tuple):
            named = (name_classes(each, renamed[i]) if i in renamed else each for i, each in enumerate(value))
            return type(value)(named)
        return value  # no field of a dict or list takes it
    if isinstance(value, int | np.integer):
        # A negative number would count from the end.
        if not 0 <= value < len(renamed):
            raise FormatError(
                f"the class is {value}, expected 0 to {len(renamed) - 1} as in the source: give it a class, or None"
            )
        return renamed[value]
    if isinstance(value, np.ndarray):  # ints of Python, for `isinstance` below
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [name_classes(each, renamed) for each in value]
    raise FormatError(f"{describe(value)}, expected the number of a class, or a list of them")

"""Names for samples: the names of their classes, and of the files that they come from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ffrecord.cli.format_values import columns_of
from ffrecord.cli.sources import FILE_EACH
from ffrecord.errors import FormatError
from ffrecord.fields import LabelField, Schema, schema_of
from ffrecord.reading.store import Store

Classes = Mapping[str, Sequence[str]]


def schema_if_any(store: Store) -> Schema | None:
    """Return the schema of a store's files, or None if it has none that this program can read."""
    if not hasattr(store, "extension"):
        return None
    try:
        return schema_of(store)
    except FormatError:
        return None


def classes_of(store: Store, schema: Schema | None = None) -> dict[str, list[str]]:
    """Return the class names of each column that holds class numbers.

    They come from the schema, or from the directories of an image folder.

    Args:
        store: the samples.
        schema: their schema, if you have it already.

    Returns:
        Column → names of the classes, by number.
    """
    schema = schema_if_any(store) if schema is None else schema
    if schema is not None:
        return {name: list(field.names) for name, field in schema.fields.items() if isinstance(field, LabelField)}
    names: Sequence[str] = getattr(store, "classes", None) or []
    return {"label": list(names)} if names else {}


def class_of(names: Sequence[str] | None, value: Any) -> str | None:
    """Return the name of a class, or None if `value` is not the number of a class."""
    if names is None or isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return names[int(value)] if 0 <= value < len(names) else None


def columns_at(store: Store, place: int) -> dict[str, Any]:
    """Return the columns of a sample. A sample that is a file has its name as column "key".

    Args:
        store: the samples.
        place: index of the sample in the store.

    Raises:
        The errors of `Store.sample`.
    """
    key = {"key": store.keys()[place]} if store.format in FILE_EACH else {}
    return {**key, **columns_of(store.sample(place))}

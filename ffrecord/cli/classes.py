"""What samples do not say of themselves: the names of their classes, and of files their own."""

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
    """The schema of the files; None where there is none, or none that this program can read."""
    if not hasattr(store, "extension"):
        return None
    try:
        return schema_of(store)
    except FormatError:
        return None


def classes_of(store: Store, schema: Schema | None = None) -> dict[str, list[str]]:
    """Column → names of the classes, by number: of its schema, or of the directories of an image folder."""
    schema = schema_if_any(store) if schema is None else schema
    if schema is not None:
        return {name: list(field.names) for name, field in schema.fields.items() if isinstance(field, LabelField)}
    names: Sequence[str] = getattr(store, "classes", None) or []
    return {"label": list(names)} if names else {}


def class_of(names: Sequence[str] | None, value: Any) -> str | None:
    """What a number is called; None for what is no number of a class."""
    if names is None or isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return names[int(value)] if 0 <= value < len(names) else None


def columns_at(store: Store, place: int) -> dict[str, Any]:
    """The columns of a sample; of one that is a file, its name as well.

    Raises:
        As `Store.sample`.
    """
    key = {"key": store.keys()[place]} if store.format in FILE_EACH else {}
    return {**key, **columns_of(store.sample(place))}

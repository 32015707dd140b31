"""Datasets that are joined: whether the same number means the same class in all of them."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from torch.utils.data import ConcatDataset as TorchConcatDataset
from torch.utils.data import Subset as TorchSubset

from ffrecord.errors import FormatError, name_files
from ffrecord.fields import Field, IntField, NDArrayField, ScalarField, TensorField, schema_of
from ffrecord.fields.labels import class_names_of, describe_other_class
from ffrecord.inputs.huggingface import classes_of_dataset
from ffrecord.reader import FileReader
from ffrecord.reading.store import Store

__all__ = ["ClassColumns", "check_class_names", "class_columns"]

LABEL = "label"  # the column of image folders


class ClassColumns(NamedTuple):
    """The columns of classes of some files.

    Attributes:
        files: name of the files, for messages.
        names: column → names of its classes, by number.
        described: column → words for it, for messages; without an entry, its names.
        numbers: column of numbers without names → words for it.
    """

    files: str
    names: Mapping[str, Sequence[str]]
    described: Mapping[str, str]
    numbers: Mapping[str, str] = MappingProxyType({})


def class_columns(store: Store[Any], fields: Sequence[str] | Mapping[str, Field | None] | None = None) -> ClassColumns:
    """Return the columns of classes of a store.

    Args:
        fields: columns to look at, with fields to read them with, as for `Dataset`.
    """
    files = name_files(store.fnames)
    if not isinstance(store, FileReader):
        names = getattr(store, "classes", None)
        return ClassColumns(files, {LABEL: tuple(names)} if names and (fields is None or LABEL in fields) else {}, {})
    schema = schema_of(store)
    known: dict[str, Field] = {} if schema is None else dict(schema.fields)
    if fields is not None:
        given = fields if isinstance(fields, Mapping) else dict.fromkeys(fields)
        known = {name: given[name] or field for name, field in known.items() if name in given}
    found = {name: names for name, field in known.items() if (names := class_names_of(field)) is not None}
    numbers = {name: repr(field) for name, field in known.items() if name not in found and _holds_ints(field)}
    return ClassColumns(files, found, {name: repr(known[name]) for name in found}, numbers)


def _holds_ints(field: Any) -> bool:
    """Tell whether a field, or the one inside of it, to any depth, holds ints, which may be classes without names."""
    while (inner := getattr(field, "inner", None)) is not None:
        field = inner
    if isinstance(field, ScalarField | NDArrayField | TensorField):
        name = str(getattr(field.dtype, "name", field.dtype))  # that of numpy or torch
        return name.removeprefix("u").startswith("int")
    return isinstance(field, IntField)


def check_class_names(source: Any) -> None:
    """Check that the datasets that a source joins name their classes alike: mixed, a number would mean two classes.

    Datasets whose samples are made by methods of the user are not looked at.

    Raises:
        FormatError: a column has other class names in two of them, or another order; or in one of them, none.
    """
    first: dict[str, ClassColumns] = {}
    parts = [*_all_class_columns(source)]
    for each in parts:
        for name, here in each.names.items():
            known = first.setdefault(name, each)
            there = known.names[name]
            if here != there:
                raise FormatError(
                    f"{each.files}: its schema differs from that of {known.files}: column {name!r} is "
                    f"{each.described.get(name, here)}, there {known.described.get(name, there)}"
                    f"{describe_other_class(here, there)}"
                )
    for each in parts:
        for name in each.numbers.keys() & first.keys():
            known = first[name]
            raise FormatError(
                f"{each.files}: its schema differs from that of {known.files}: column {name!r} is "
                f"{each.numbers[name]}, there {known.described.get(name, known.names[name])}; write the numbers "
                "again with class names: ffrecord.DatasetWriter(path, fields=...)"
            )


def _all_class_columns(source: Any) -> Iterable[ClassColumns]:
    if isinstance(source, Store):
        yield class_columns(source)
    elif type(source) is TorchSubset:
        yield from _all_class_columns(source.dataset)
    elif type(source) is TorchConcatDataset:
        for member in source.datasets:
            yield from _all_class_columns(member)
    elif hasattr(type(source), "_class_columns"):
        yield from source._class_columns()
    else:
        classes = classes_of_dataset(source)
        names = {name: each for name, each in classes.items() if isinstance(each, tuple)}
        yield ClassColumns(type(source).__name__, names, {})

"""Rows of Arrow tables as samples, and the fields that hold the types of their columns."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields import (
    BoolField,
    BytesField,
    DecimalField,
    FloatField,
    IntField,
    JSONField,
    LabelField,
    ListField,
    NDArrayField,
    OptionalField,
    ScalarField,
    StrField,
)
from ffrecord.fields.field import Field
from ffrecord.system.optional import require

_log = logging.getLogger("ffrecord")

Values = list[Any]
ADVICE = "declare JSONField() for this column"
Take = Callable[[Any], Values]  # column of Arrow → its values


class RowError(ValueError):
    """A row that is no sample.

    Attributes:
        place: of the row in the table.
    """

    def __init__(self, place: int, what: str) -> None:
        super().__init__(what)
        self.place = place


class Rows:
    """How the columns of a table become samples. Pickles.

    Args:
        schema: of Arrow.
        nulls: column → how many of its values are missing.
        classes: column → names of its classes, by number.
        wanted: what the user declares, by column.
        beside: whether files that a row only names are read, too; not of tables that anybody may have written.

    Attributes:
        fields: column → Field; without an entry, values show it.

    Raises:
        FormatError: two columns of one name, or values missing among such as no field takes None with.
    """

    def __init__(
        self,
        schema: Any,
        nulls: Mapping[str, int],
        classes: Mapping[str, Sequence[str]],
        wanted: Any = None,
        *,
        beside: bool = False,
    ) -> None:
        self.names = list(schema.names)
        _check_names(self.names)
        declared = wanted if isinstance(wanted, Mapping) else {}
        self.fields: dict[str, Any] = {}
        self._takes: dict[str, str] = {}
        for each in schema:
            field, take = _of_type(each.type)
            if isinstance(declared.get(each.name), JSONField):
                field, take = JSONField(), "list"
            elif nulls.get(each.name):
                field, take = _with_nulls(each.type, field, take)
            if take == "none" and each.name not in declared:
                missing = f" with {nulls[each.name]} values missing" if nulls.get(each.name) else ""
                raise FormatError(
                    f"column {each.name!r}: {each.type}{missing}, which no field holds: leave it or these rows out, or "
                    "give them another value"
                )
            if each.name in classes and isinstance(field, IntField):
                field = LabelField(classes[each.name])
            if getattr(each.type, "tz", None):
                _log.warning(
                    "column %r: times are kept as those of UTC, without their zone %s", each.name, each.type.tz
                )
            if field is not None:
                self.fields[each.name] = field
            self._takes[each.name] = "file beside" if take == "file" and beside else take

    def samples(self, table: Any) -> list[dict[str, Any]]:
        """The rows of a table with this schema."""
        columns = [self._values(name, table.column(name).combine_chunks()) for name in self.names]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _values(self, name: str, column: Any) -> Values:
        take = self._takes[name]
        if take not in ("list", "maps", "none") and column.null_count:
            place = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise RowError(place, f"column {name!r}: a value is missing, which was not said in advance; {ADVICE}")
        try:
            return TAKES[take](column)
        except RowError as error:
            raise RowError(error.place, f"column {name!r}: {error}") from None


def _check_names(names: Sequence[str]) -> None:
    name, count = max(Counter(names).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise FormatError(f"{count} columns are called {name!r}")


def _is_json(kind: Any) -> bool:
    """Whether a `JSONField` holds values of this type."""
    types = require("pyarrow.types", "parquet", "reading Arrow tables")
    if types.is_dictionary(kind) or _is_list(types, kind):
        return _is_json(kind.value_type)
    if types.is_map(kind):
        return _is_json(kind.key_type) and _is_json(kind.item_type)
    if types.is_struct(kind):
        return all(_is_json(each.type) for each in kind)
    return _is_number(types, kind) or bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind))


def _with_nulls(kind: Any, field: Any, take: str) -> tuple[Any, str]:
    """The field of a type of which values are missing, and how they are taken: "none" for not at all."""
    types = require("pyarrow.types", "parquet", "reading Arrow tables")
    if _is_json(kind):
        return JSONField(), "maps" if types.is_map(kind) else "list"
    inner = _item(types, kind)
    return (field, "none") if inner is None else (OptionalField(inner), "list")


def _item(types: Any, kind: Any) -> Field | None:
    """A field for values of a type as Python has them, in lists or where some are missing; None: there is none."""
    if _is_bytes(types, kind):
        return BytesField()
    if types.is_decimal(kind):
        return DecimalField()
    if _is_list(types, kind):
        inner = JSONField() if _is_json(kind.value_type) else _item(types, kind.value_type)
        return None if inner is None else ListField(inner)
    return None


def _is_bytes(types: Any, kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _of_type(kind: Any) -> tuple[Any, str]:
    """The field of a type, None for as values show it; and how values are taken."""
    types = require("pyarrow.types", "parquet", "reading Arrow tables")
    if types.is_dictionary(kind):
        field = _of_type(kind.value_type)[0]
        return (None if isinstance(field, ScalarField) else field), "list"  # its values come as Python's
    if types.is_uint64(kind):
        return ScalarField("uint64"), "scalars"  # half of them are no int64
    if _is_bytes(types, kind):
        return None, "list"  # values show whether they are JPEGs
    plain = (
        (types.is_boolean, BoolField()),
        (types.is_integer, IntField()),
        (types.is_floating, FloatField()),
        (types.is_string, StrField()),
        (types.is_large_string, StrField()),
        (types.is_decimal, DecimalField()),
    )
    for fits, field in plain:
        if fits(kind):
            return field, "list"
    return _of_nested(types, kind)


def _of_nested(types: Any, kind: Any) -> tuple[Any, str]:
    if types.is_struct(kind) and {each.name for each in kind} == {"bytes", "path"}:
        return None, "file"
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_duration(kind):
        return None, "scalars"
    if types.is_fixed_size_list(kind) and _is_number(types, kind.value_type):
        return NDArrayField(kind.value_type.to_pandas_dtype(), (kind.list_size,)), "arrays"
    if (types.is_list(kind) or types.is_large_list(kind)) and _is_number(types, kind.value_type):
        return NDArrayField(kind.value_type.to_pandas_dtype(), (None,)), "arrays"
    if hasattr(kind, "storage_type"):
        return None, "extension"
    if _is_json(kind):
        return JSONField(), "maps" if types.is_map(kind) else "list"
    field = _item(types, kind)
    # Files do not say whether lists are missing.
    return (None, "none") if field is None else (OptionalField(field), "list")


def _is_number(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _list(column: Any) -> Values:
    values: Values = column.to_pylist()
    return values


def _maps(column: Any) -> Values:
    """As lists of pairs, which are lists too: keys may repeat, and need not be text."""
    return [None if value is None else [list(pair) for pair in value] for value in column.to_pylist()]


def _scalars(column: Any) -> Values:
    return list(column.to_numpy(zero_copy_only=False))


def _arrays(column: Any) -> Values:
    """Each list of numbers as an array of its own."""
    flat = column.flatten()
    if flat.null_count:
        place = next(place for place, value in enumerate(column.to_pylist()) if None in value)
        raise RowError(place, f"a list of numbers with a value missing; {ADVICE}")
    sizes = require("pyarrow.compute", "parquet", "reading Arrow tables").list_value_length(column).to_numpy()
    numbers = flat.to_numpy(zero_copy_only=False)
    return [part.copy() for part in np.split(numbers, np.cumsum(sizes)[:-1])] if len(sizes) else []


def _extensions(column: Any) -> Values:
    """Arrays of several dimensions, as Hugging Face stores them."""
    dtype = np.dtype(getattr(column.type, "value_type", None) or "float64")
    return [np.asarray(value, dtype) for value in column.to_pylist()]


def _file(column: Any) -> Values:
    """Bytes of a file that is in the table."""
    values = column.to_pylist()
    for place, value in enumerate(values):
        if value["bytes"] is None:
            raise RowError(place, f"a file that is not in the table, but at {value['path']!r}")
    return [value["bytes"] for value in values]


def _file_beside(column: Any) -> Values:
    """The same, or of one that it names."""
    return [value["bytes"] if value["bytes"] is not None else _read(value["path"]) for value in column.to_pylist()]


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


TAKES: dict[str, Take] = {
    "list": _list,
    "none": _list,  # into a field of the user's
    "maps": _maps,
    "scalars": _scalars,
    "arrays": _arrays,
    "extension": _extensions,
    "file": _file,
    "file beside": _file_beside,
}

"""Rows of Arrow tables as samples, and the fields for the types of their columns."""

import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from ffrecord.errors import FormatError
from ffrecord.fields import IntField, JSONField, LabelField, ListField, MsgpackField, OptionalField, Schema
from ffrecord.inputs.arrow_types import (
    FILES,
    HOLD_NONE,
    PYTHON,
    ArrowPlan,
    Missing,
    has_files_inside,
    plan_column,
    zones,
)
from ffrecord.inputs.arrow_values import TAKES, RowError, Values, file_values_beside, with_files_beside

_log = logging.getLogger("ffrecord")


class TableRows:
    """The conversion of a table's rows into samples. Pickles.

    Args:
        schema: schema of Arrow.
        missing: column → its missing values; without an entry, none are missing.
        classes: column → names of its classes, by number.
        wanted: fields from the user, by column, or a Schema.
        beside: whether to read files that a row only names; not for tables that anybody may have written.

    Attributes:
        fields: column → Field; without an entry, values show it.

    Raises:
        FormatError: two columns of one name, or a type that no field stores.
    """

    def __init__(
        self,
        schema: Any,
        missing: Mapping[str, Missing],
        classes: Mapping[str, Sequence[str]],
        wanted: Any = None,
        *,
        beside: bool = False,
    ) -> None:
        self.names = list(schema.names)
        check_names(self.names)
        declared = wanted.fields if isinstance(wanted, Schema) else wanted if isinstance(wanted, Mapping) else {}
        self.fields: dict[str, Any] = {}
        self._takes: dict[str, str] = {}
        self._beside = beside
        self._files_inside = frozenset(each.name for each in schema if beside and has_files_inside(each.type))
        for each in schema:
            plan = _plan_of(each, missing.get(each.name, Missing()), declared.get(each.name))
            field = plan.field
            if each.name in classes and isinstance(field, IntField):
                field = LabelField(classes[each.name])
            for zone in dict.fromkeys(zones(each.type)):
                _log.warning("column %r: times are stored in UTC, without their zone %s", each.name, zone)
            if field is not None:
                self.fields[each.name] = field
            self._takes[each.name] = plan.take
        held = {**self.fields, **declared}
        self._whole = frozenset(name for name in self.names if not isinstance(held.get(name), HOLD_NONE))

    def samples(self, table: Any) -> list[dict[str, Any]]:
        """Return the rows of a table with this schema."""
        columns = [self._values(name, table.column(name)) for name in self.names]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _values(self, name: str, column: Any) -> Values:
        take = self._takes[name]
        get = file_values_beside if take == FILES and self._beside else TAKES[take]
        if name in self._files_inside and take == PYTHON:
            get = with_files_beside
        values: Values = []
        for chunk in column.chunks:
            try:
                values += get(chunk)
            except RowError as error:
                raise RowError(len(values) + error.place, f"column {name!r}: {error}") from None
        place = -1 if name not in self._whole else next((i for i, value in enumerate(values) if value is None), -1)
        if place >= 0:
            advice = "declare OptionalField(...) or MsgpackField() for this column"
            raise RowError(
                place,
                f"column {name!r}: a value is missing, but the column was declared without missing values; {advice}",
            )
        return values


def _plan_of(column: Any, missing: Missing, declared: Any) -> ArrowPlan:
    """Return the plan for a column.

    Raises:
        FormatError: no field stores its values, and the user declares none.
    """
    inner = declared.inner if isinstance(declared, OptionalField) else declared
    if isinstance(inner, JSONField | MsgpackField | ListField):
        return ArrowPlan(declared, PYTHON)
    found = plan_column(column.type, missing)
    if found is None and declared is None:
        raise FormatError(
            f"column {column.name!r} has type {column.type}, which no field can hold: leave it out, or give it another "
            "type"
        )
    return ArrowPlan(None, PYTHON) if found is None else found


def check_names(names: Iterable[Hashable]) -> None:
    """Check that no two columns have one name: only the last of them would be written.

    Raises:
        FormatError: two have.
    """
    name, count = max(Counter(names).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise FormatError(f"{count} columns are called {name!r}, expected different names: rename them")

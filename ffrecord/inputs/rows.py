"""Rows of Arrow tables as samples, and the fields for the types of their columns."""

import logging
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields import Field, JSONField, LabelField, ListField, MsgpackField, OptionalField, Schema
from ffrecord.inputs.arrow_memory import SharedColumn, shared_columns, shared_lists, shared_numbers, shared_texts
from ffrecord.inputs.arrow_types import (
    ARRAYS,
    FILES,
    HOLD_NONE,
    PYTHON,
    SCALARS,
    ArrowPlan,
    Missing,
    dtype_in_python,
    dtype_of,
    has_files_inside,
    is_list,
    plain_type,
    plan_column,
    types,
    zones,
)
from ffrecord.inputs.arrow_values import (
    TAKES,
    RowError,
    Values,
    file_values_beside,
    find_bad_text,
    numbers_of,
    with_files_beside,
)
from ffrecord.inputs.classes import Classes, declared_files

_log = logging.getLogger("ffrecord")

LISTS_MOST = 3  # lists around classes, each of which may take two of the fields that may be around each other


class TableRows:
    """The conversion of a table's rows into samples. Pickles.

    Args:
        schema: schema of Arrow.
        missing: column → its missing values; without an entry, none are missing.
        classes: column → names of the classes in it, by number.
        fits: columns whose numbers are all those of classes.
        wanted: fields from the user, by column, or a Schema.
        beside: whether to read files that a row only names; not for tables that anybody may have written.

    Attributes:
        fields: column → Field; without an entry, values show it.
        classes: the argument.
        numbers: column of numbers or times → their dtype in a batch.

    Raises:
        FormatError: two columns of one name, or a type that no field stores.
    """

    def __init__(
        self,
        schema: Any,
        missing: Mapping[str, Missing],
        classes: Mapping[str, Classes],
        wanted: Any = None,
        *,
        fits: Collection[str] = (),
        beside: bool = False,
    ) -> None:
        self.names = list(schema.names)
        # Rows are dicts, which would keep only one of them.
        check_names(self.names)
        declared = wanted.fields if isinstance(wanted, Schema) else wanted if isinstance(wanted, Mapping) else {}
        self.fields: dict[str, Any] = {}
        files = declared_files(schema)
        self.classes = classes
        self._takes: dict[str, str] = {}
        self.numbers: dict[str, Any] = {}
        self._beside = beside
        # Found once: each row would have to be searched otherwise.
        self._files_inside = frozenset(each.name for each in schema if beside and has_files_inside(each.type))
        for each in schema:
            plan = _plan_of(each, missing.get(each.name, Missing()), declared.get(each.name))
            # The user's own fields are left as they are.
            if each.name in classes and each.name not in declared:
                plan = _with_classes(plan, each, missing.get(each.name, Missing()), classes[each.name], fits)
            field = plan.field
            # Once for each zone.
            for zone in dict.fromkeys(zones(each.type)):
                _log.warning("column %r: times are stored in UTC, without their zone %s", each.name, zone)
            if field is not None:
                self.fields[each.name] = field
            if plan.take == FILES and each.name not in files and each.name not in declared:
                _log.warning(
                    "column %r: its bytes are read as files, its path is left out; rename one of them to keep both",
                    each.name,
                )
            self._takes[each.name] = plan.take
            dtype_by = {SCALARS: dtype_of, PYTHON: dtype_in_python}.get(plan.take)
            if dtype_by is not None and (dtype := dtype_by(plain_type(each.type))) is not None:
                self.numbers[each.name] = dtype
        held = {**self.fields, **declared}
        # Fields that hold None need no check for missing values.
        self._whole = frozenset(name for name in self.names if not isinstance(held.get(name), HOLD_NONE))

    def samples(self, table: Any) -> list[dict[str, Any]]:
        """Return the rows of a table with this schema."""
        columns = [self._values(name, table.column(name)) for name in self.names]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def shared(self, table: Any) -> dict[str, SharedColumn]:
        """Return those columns of a table, some or all of this schema, that can be read in its own memory."""
        return shared_columns({name: table.column(name) for name in table.column_names}, self._share)

    def _share(self, name: str, column: Any) -> SharedColumn | None:
        if name in self.numbers:
            return shared_numbers(column)
        if self._takes[name] == ARRAYS:
            return shared_lists(column, np.array)
        return shared_texts(column) if self._takes[name] == PYTHON and name not in self._files_inside else None

    def columns(self, table: Any) -> dict[str, Any]:
        """Return the columns of a table, some or all of this schema: an array of numbers, or a list of values."""
        found: dict[str, Any] = {}
        for name in table.column_names:
            column = table.column(name)
            numbers = numbers_of(column, self.numbers[name]) if name in self.numbers else None
            found[name] = self._values(name, column) if numbers is None else numbers
        return found

    def _values(self, name: str, column: Any) -> Values:
        take = self._takes[name]
        # Only for datasets of the user's own machine.
        get = file_values_beside if take == FILES and self._beside else TAKES[take]
        if name in self._files_inside and take == PYTHON:
            get = with_files_beside
        values: Values = []
        for chunk in column.chunks:
            try:
                values += get(chunk)
            except RowError as error:
                # Rows of earlier chunks count, too.
                raise RowError(len(values) + error.place, f"column {name!r}: {error}") from None
            except UnicodeDecodeError as error:
                place = len(values) + find_bad_text(chunk)
                raise RowError(
                    place,
                    f"column {name!r}: its text is not UTF-8: {error}; cast it to binary to keep the bytes",
                ) from None
        place = -1 if name not in self._whole else next((i for i, value in enumerate(values) if value is None), -1)
        if place >= 0:
            # Columns are declared by the first files; later rows may differ.
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
    # These fields take Python's values; all others take NumPy's.
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


def _with_classes(plan: ArrowPlan, column: Any, missing: Missing, classes: Classes, fits: Collection[str]) -> ArrowPlan:
    """Return the plan that keeps the class names of a column; the same plan if there is none, and log that."""
    field = _field_of_classes(column.type, missing, classes)
    # -1 and the like have no name, so numbers stay numbers.
    if field is not None and column.name in fits:
        return ArrowPlan(field, PYTHON)
    why = "some numbers may be those of no class, such as -1"
    if field is None:
        why = f"no field of whole columns has them for the type {column.type}"
    _log.warning("column %r: its class names are not kept, because %s", column.name, why)
    return plan


def _field_of_classes(kind: Any, missing: Missing, classes: Classes) -> Field | None:
    """Return the field of classes, or of lists of them, of which some may be missing; None for other types."""
    depth, kind = 0, plain_type(kind)
    while is_list(kind):
        depth, kind = depth + 1, plain_type(kind.value_type)
    # A field of whole columns goes no deeper.
    if not isinstance(classes, tuple) or not types().is_integer(kind) or depth > LISTS_MOST:
        return None
    field: Field = LabelField(classes)
    for _ in range(depth):
        field = ListField(OptionalField(field) if missing.inside else field)
    return OptionalField(field) if missing.values else field


def check_names(names: Iterable[Hashable]) -> None:
    """Check that no two columns have one name: only the last of them would be written.

    Raises:
        FormatError: two have.
    """
    # 0: a table without columns is fine.
    name, count = max(Counter(names).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise FormatError(f"{count} columns are called {name!r}, expected different names: rename them")

"""Rows of tables as samples: DataFrames of pandas and polars, tables of Arrow, dicts of columns of equal length."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ffrecord.errors import ArgumentError, FormatError, plural
from ffrecord.inputs.arrow_values import RowError, missing_in
from ffrecord.inputs.columns import ColumnFacts, chosen
from ffrecord.inputs.rows import TableRows
from ffrecord.inputs.stores import spread


class TableDataset:
    """The rows of a table. Pickles as that does.

    Args:
        table: of the rows.
        fields: that the user asks for, see `columns.chosen`.

    Attributes:
        columns: of the result; None where there are no rows.
    """

    def __init__(self, table: "Table", fields: Any) -> None:
        self._table = table
        samples = table.samples(spread(len(table)))
        facts = ColumnFacts(fields=table.fields(fields), arrays=True)
        self.columns = chosen(samples, fields, facts) if samples else None

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError(f"{plural(len(self), 'row')}")
        return [self.columns.prepared(sample) for sample in self._table.samples(indices)]


class Table:
    """A table whose columns have their values by index.

    Args:
        columns: name → values.
        rows: how many each has.
    """

    fingerprint: str | None = None
    serializer: str | None = None

    def __init__(self, columns: Mapping[Any, Any], rows: int) -> None:
        self._columns, self._rows = dict(columns), rows

    def __len__(self) -> int:
        return self._rows

    def dataset(self, fields: Any, *, skips: bool = False) -> TableDataset:
        """Return the rows by index; see `recognised.Input`."""
        return TableDataset(self, fields)

    def fields(self, wanted: Any) -> Mapping[str, Any]:
        """Return the fields that the table says."""
        return {}

    def samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at `indices`."""
        return [{name: column[index] for name, column in self._columns.items()} for index in indices]


class PolarsTable(Table):
    """A DataFrame of polars."""

    def __init__(self, frame: Any) -> None:
        super().__init__({}, len(frame))
        self._frame = frame

    def samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [self._frame.row(index, named=True) for index in indices]


class ArrowTable(Table):
    """A table of Arrow."""

    def __init__(self, table: Any) -> None:
        super().__init__({}, len(table))
        self._table = table
        self._known: TableRows | None = None

    def fields(self, wanted: Any) -> Mapping[str, Any]:
        missing = {name: missing_in(self._table.column(name)) for name in self._table.column_names}
        self._known = TableRows(self._table.schema, missing, {}, wanted)
        return self._known.fields

    def samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        if self._known is None:
            self.fields(None)
        try:
            return self._known.samples(self._table.take(list(indices))) if len(indices) else []  # type: ignore[union-attr]
        except RowError as error:
            raise FormatError(f"row {indices[error.place]}: {error}") from None


def table_of(source: Any) -> Table | None:
    """Return the table that an object is; None for anything else.

    Raises:
        ValueError: a dict of columns of different lengths, or of what are no columns.
    """
    if _is(source, "pandas", "DataFrame"):
        return Table({name: _of_pandas(source.iloc[:, i]) for i, name in enumerate(source.columns)}, len(source))
    if _is(source, "polars", "DataFrame"):
        return PolarsTable(source)
    if _is(source, "pyarrow", "Table"):
        return ArrowTable(source)
    return _of_mapping(source) if isinstance(source, Mapping) else None


def _is(source: Any, module: str, kind: str) -> bool:
    """Tell whether an object is of a class of a package: of none that was not imported."""
    found = getattr(sys.modules.get(module), kind, None)
    return found is not None and isinstance(source, found)


def _of_pandas(series: Any) -> Any:
    """Return the values of a column by index: numpy's scalars, or objects as they are, None where one is missing."""
    if isinstance(series.dtype, np.dtype):
        return series.to_numpy()
    values = series.to_numpy(dtype=object)
    values[series.isna().to_numpy()] = None
    return values


def _of_mapping(source: Mapping[Any, Any]) -> Table | None:
    """Return the columns of a dict; None for one of samples by number, which is a dataset like any other."""
    if set(source) == set(range(len(source))):
        return None
    lengths = {}
    for name, column in source.items():
        if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__getitem__") or not _has_length(column):
            raise ArgumentError(
                f"source is a dict, and {name!r} is {type(column).__name__}, no column of values; write one sample "
                "as [sample], several as a list of dicts"
            )
        lengths[name] = len(column)
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ArgumentError(
            f"source is a dict of columns of different lengths: {told}; columns of one length are a table, one "
            "sample is written as [sample]"
        )
    columns = {name: _of_pandas(each) if _is(each, "pandas", "Series") else each for name, each in source.items()}
    return Table(columns, next(iter(lengths.values())))


def _has_length(column: Any) -> bool:
    try:
        return len(column) >= 0
    except TypeError:
        return False

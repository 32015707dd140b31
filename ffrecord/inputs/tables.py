"""Rows of tables as samples: DataFrames of pandas and polars, Arrow tables, dicts of columns of equal length."""

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.inputs.arrow_memory import SharedColumn
from ffrecord.inputs.arrow_values import RowError, count_missing, take_rows
from ffrecord.inputs.classes import Classes, are_classes, classes_of_schema
from ffrecord.inputs.columns import ColumnFacts, choose_columns
from ffrecord.inputs.rows import TableRows, check_names
from ffrecord.inputs.stores import PROBES
from ffrecord.reading.indices import spread_indices
from ffrecord.system.forks import Once
from ffrecord.system.values import class_of, describe, describe_wrong, is_tensor

logger = logging.getLogger("ffrecord")


class TableDataset:
    """The rows of a table. It pickles like the table.

    Args:
        table: table of the rows.
        fields: fields from the user, see `columns.choose_columns`.

    Attributes:
        columns: columns of the result; None if there are no rows.
    """

    def __init__(self, table: "Table", fields: Any) -> None:
        self._table = table
        # Lists in a table are arrays, all of one meaning.
        facts = ColumnFacts(fields=table.fields(fields), classes=table.classes, arrays=True)
        indices = spread_indices(len(table), PROBES)
        samples = table.samples(indices)
        self.columns = choose_columns(samples, fields, facts, [f"row {i}" for i in indices]) if samples else None

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError("the table has no rows")
        return [self.columns.prepare(sample) for sample in self._table.samples(indices)]


class Table:
    """A table whose columns give their values by index.

    Args:
        columns: name → values.
        rows: number of values in each.
    """

    fingerprint: str | None = None
    serializer: str | None = None
    classes: Mapping[str, Classes] = {}

    def __init__(self, columns: Mapping[Any, Any], rows: int) -> None:
        self._columns, self._rows = dict(columns), rows

    def __len__(self) -> int:
        return self._rows

    def dataset(self, fields: Any, *, skips: bool = False) -> TableDataset:
        """Return the rows by index; see `recognise.Input`."""
        return TableDataset(self, fields)

    def fields(self, wanted: Any) -> Mapping[str, Any]:
        """Return the fields that the table itself determines."""
        return {}

    def samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at `indices`."""
        columns = [_values_at(column, indices) for column in self._columns.values()]
        if not columns:
            return [{} for _ in indices]
        names = list(self._columns)
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def prepare(self) -> None:
        """Look at the types of the columns, which else happens when samples are first asked for.

        Raises:
            FormatError: no field can hold a column.
        """

    def select(self, names: Collection[Any]) -> "Table":
        """Return a table of these columns; this one if it lacks any of them."""
        if not set(names) <= self._columns.keys():
            return self
        return Table({name: column for name, column in self._columns.items() if name in names}, self._rows)

    def take(self, indices: Sequence[int]) -> dict[str, Any] | None:
        """Return the columns of the rows at `indices`: a new array or tensor [k, …], or a list of k values.

        None if there are no columns, or this kind of table has only rows.
        """
        places = np.asarray(indices, np.int64)
        return {name: take_from(column, places) for name, column in self._columns.items()} or None

    def copy_samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows at `indices`. Rows of arrays and tensors are not in the memory of the table."""
        columns = self.take(indices)
        if columns is None:
            return self.samples(indices)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class PolarsTable(Table):
    """A DataFrame of polars."""

    def __init__(self, frame: Any) -> None:
        super().__init__({}, len(frame))
        self._frame = frame

    def samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [self._frame.row(index, named=True) for index in indices]

    def select(self, names: Collection[Any]) -> Table:
        there = self._frame.columns
        if not set(names) <= set(there):
            return self
        return PolarsTable(self._frame.select([name for name in there if name in names]))

    def take(self, indices: Sequence[int]) -> dict[str, Any] | None:
        return None


class ArrowTable(Table):
    """A table of Arrow."""

    def __init__(self, table: Any) -> None:
        super().__init__({}, len(table))
        self._table = table
        self._known: TableRows | None = None
        self._divided = Once(self._divide)

    def __getstate__(self) -> dict[str, Any]:
        # The columns would be pickled once more.
        return {name: value for name, value in self.__dict__.items() if name != "_divided"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._divided = Once(self._divide)

    def fields(self, wanted: Any) -> Mapping[str, Any]:
        # The library of Hugging Face leaves class names in the schema's metadata.
        found = classes_of_schema(self._table.schema)
        self.classes = {name: names for name, names in found.items() if name in self._table.column_names}
        self._known = self._rows_with(wanted)
        return self._known.fields

    def _rows_with(self, wanted: Any) -> TableRows:
        missing = {name: count_missing(self._table.column(name)) for name in self._table.column_names}
        fits = [name for name, names in self.classes.items() if are_classes(self._table.column(name), names)]
        return TableRows(self._table.schema, missing, self.classes, wanted, fits=fits)

    def samples(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        # No rows: nothing to take.
        return self._convert(self._table, indices, self._conversion.samples) if len(indices) else []

    copy_samples = samples  # Arrow's values are always converted

    def prepare(self) -> None:
        self._known = self._known or self._rows_with(None)

    def select(self, names: Collection[Any]) -> Table:
        there = self._table.column_names
        if not set(names) <= set(there):
            return self
        return ArrowTable(self._table.select([name for name in there if name in names]))

    def take(self, indices: Sequence[int]) -> dict[str, Any] | None:
        rows, names = self._conversion, self._table.column_names
        shared, others = self._divided.get()
        places = np.asarray(indices, np.int64)
        try:
            found = {name: column.take(places) for name, column in shared.items()}
        except UnicodeDecodeError:
            named: dict[str, Any] = self._convert(self._table, places, rows.columns)  # Arrow's way names the row
            return named
        for name in found.keys() & rows.numbers.keys():
            found[name] = found[name].astype(rows.numbers[name], copy=False)
        if others.num_columns:
            found |= self._convert(others, places, rows.columns)
        return {name: found[name] for name in names} or None

    def _divide(self) -> tuple[dict[str, SharedColumn], Any]:
        """Return the columns that are read in the table's memory, and a table of the others."""
        shared = self._conversion.shared(self._table)
        return shared, self._table.select([name for name in self._table.column_names if name not in shared])

    @property
    def _conversion(self) -> TableRows:
        self.prepare()
        return cast(TableRows, self._known)

    def _convert(self, table: Any, indices: Any, convert: Callable[[Any], Any]) -> Any:
        try:
            return convert(take_rows(table, np.asarray(indices, np.int64)))
        except RowError as error:
            raise FormatError(f"row {indices[error.place]}: {error}") from None


def is_table(source: Any) -> bool:
    """Tell whether an object is a table, which has columns and no samples by index."""
    frames = class_of("pandas", "DataFrame"), class_of("polars", "DataFrame")
    return isinstance(source, (Mapping, *frames, class_of("pyarrow", "Table"), class_of("pyarrow", "RecordBatch")))


def table_of(source: Any) -> Table | None:
    """Return the table that an object is; None for anything else.

    Raises:
        FormatError: several columns have one name.
        ArgumentError: a dict has columns of different lengths, or objects that are not columns.
    """
    if isinstance(source, class_of("pandas", "DataFrame")):
        check_names(source.columns)
        # A plain running number is no information.
        if source.index.dtype.kind not in "iu" or any(name is not None for name in source.index.names):
            logger.warning("the index of the DataFrame is left out: frame.reset_index() makes columns of it")
        return Table({name: _pandas_values(source.iloc[:, i]) for i, name in enumerate(source.columns)}, len(source))
    if isinstance(source, class_of("polars", "DataFrame")):
        return PolarsTable(source)
    if isinstance(source, class_of("pyarrow", "RecordBatch")):
        source = sys.modules["pyarrow"].Table.from_batches([source])  # a batch is a table of one chunk
    if isinstance(source, class_of("pyarrow", "Table")):
        check_names(source.column_names)
        return ArrowTable(source)
    return _mapping_table(source) if isinstance(source, Mapping) else None


def take_from(column: Any, places: npt.NDArray[np.int64]) -> Any:
    """Return the rows of a column at `places` by one call, if it is an array or a tensor; else a list of its values."""
    # Subclasses may give other rows, but for memory maps.
    if type(column) in (np.ndarray, np.memmap):
        return np.asarray(column).take(places, axis=0)
    if type(column) is class_of("torch", "Tensor") and str(column.layout) == "torch.strided":
        try:
            return column[places].contiguous()
        except (RuntimeError, NotImplementedError):  # types of fewer than 8 bits
            pass
    return _values_at(column, places.tolist())


def _values_at(column: Any, indices: Sequence[int]) -> list[Any]:
    """Return values of a column: of an array of one axis by one call, of others one by one, so that rows are views."""
    if isinstance(column, np.ndarray) and column.ndim == 1:
        return list(column[np.asarray(indices, np.int64)])
    return [column[index] for index in indices]


def _pandas_values(series: Any) -> Any:
    """Return the values of a column by index: NumPy scalars, or unchanged objects, with None for missing ones."""
    # NumPy's own dtypes have no missing values but NaN.
    if isinstance(series.dtype, np.dtype):
        return series.to_numpy()
    # pandas' dtypes have their own object for a missing value.
    values = series.to_numpy(dtype=object)
    values[series.isna().to_numpy()] = None
    return values


def _mapping_table(source: Mapping[Any, Any]) -> Table | None:
    """Return the table of a dict of columns; None for a dict of samples by number, which is a dataset like any
    other.
    """
    # {0: …, 1: …} is a dataset by index.
    if set(source) == set(range(len(source))):
        return None
    lengths = {}
    for name, column in source.items():
        if is_arrow_column(column):
            raise ArgumentTypeError(
                f"{name!r} of the source, a dict, is of type {type(column).__name__}, a column of Arrow: pass "
                "pyarrow.table(source)"
            )
        if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__getitem__") or not _has_length(column):
            raise ArgumentError(
                describe_wrong(
                    f"{name!r} of the source, a dict,",
                    column,
                    "a column of values",
                    "pass one sample as [sample], several as a list of dicts",
                )
            )
        lengths[name] = len(column)
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ArgumentError(
            f"source is a dict of columns of different lengths: {told}; give all columns one length, or pass one "
            "sample as [sample]"
        )
    columns = {
        name: _pandas_values(each) if isinstance(each, class_of("pandas", "Series")) else each
        for name, each in source.items()
    }
    return Table(columns, next(iter(lengths.values())))


def _has_length(column: Any) -> bool:
    try:
        # Some objects have `__len__` and raise; a nested tensor raises RuntimeError.
        return len(column) >= 0
    except (TypeError, RuntimeError):
        return False


def values_of(source: Any) -> Any:
    """Return the values of a pandas Series, also inside torch's wrappers, which then go by position, not by label.

    Anything else is returned as it is.

    Raises:
        ArgumentTypeError: the source is a single column of Arrow, or a nested tensor.
    """
    if is_arrow_column(source):
        raise ArgumentTypeError(
            f"the source is of type {type(source).__name__}, a column of Arrow without a name: pass a table, such as "
            "pyarrow.table({'x': column})"
        )
    if is_tensor(source) and source.is_nested:
        raise ArgumentTypeError(
            f"the source is {describe(source)}, which has no rows by index: pass list(source.unbind())"
        )
    if isinstance(source, class_of("pandas", "Series")):
        return _pandas_values(source)
    if type(source) is class_of("torch.utils.data", "Subset"):
        inner = values_of(source.dataset)
        return source if inner is source.dataset else type(source)(inner, source.indices)
    if type(source) is class_of("torch.utils.data", "ConcatDataset"):
        members = [values_of(each) for each in source.datasets]
        same = all(each is other for each, other in zip(members, source.datasets, strict=True))
        return source if same else type(source)(members)
    return source


def is_arrow_column(value: Any) -> bool:
    """Tell whether a value is an array of Arrow, whose items are Arrow's own objects."""
    return isinstance(value, (class_of("pyarrow", "Array"), class_of("pyarrow", "ChunkedArray")))

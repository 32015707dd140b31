"""One column of many samples, read in the cheapest way."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.cli.format_values import values_by_column
from ffrecord.cli.viewer.cells import NAMES, is_label
from ffrecord.cli.viewer.records import Columns, Unreadable, ViewedRecords, format_reason
from ffrecord.fields import BoolField, FloatField, IntField, ScalarField
from ffrecord.fields.batch import Batch
from ffrecord.fields.layout import RecordLayout

Values = list[Any] | npt.NDArray[Any]

NUMBERS = (BoolField, FloatField, IntField, ScalarField)  # including LabelField, which is an IntField
LOOKED_AT = 8  # samples from which the columns are known


def columns_to_filter(records: ViewedRecords) -> list[dict[str, Any]]:
    """Return the columns for which a filter makes sense: "name", and "classes", names to choose from or None."""
    found: dict[str, None] = {"key": None} if records.named else {}
    for columns in records.columns(range(min(LOOKED_AT, records.store.n))):
        if not isinstance(columns, Exception):
            found |= {name: None for name, value in columns.items() if isinstance(value, str) or is_label(value)}
    found |= {name: None for name in records.classes if name in records.fields or is_in_memory(records, name)}
    return [{"name": name, "classes": records.classes.get(name)} for name in found]


def is_in_memory(records: ViewedRecords, column: str) -> bool:
    """Tell whether the column is known without reading records."""
    return (column in NAMES and records.named) or (column == "label" and _labels(records) is not None)


def values_of(records: ViewedRecords, column: str, start: int, stop: int) -> Values:
    """Return the values of a column for the samples in [start, stop).

    A sample without the column gives None, a damaged one gives Unreadable. If all values are numbers and none is
    damaged, they are one array.
    """
    if column in NAMES and records.named:
        names = records.store.keys()
        return [names[index] for index in range(start, stop)]
    labels = _labels(records)
    if column == "label" and labels is not None:
        return labels[start:stop] if isinstance(labels, np.ndarray) else list(labels[start:stop])
    try:
        return _read_values(records, column, np.arange(start, stop))
    except Exception:  # one is damaged: read one by one to find it
        return [_read_one(records, column, index) for index in range(start, stop)]


def value_of(records: ViewedRecords, column: str, index: int, columns: Columns | Exception) -> Any:
    """Return the value of a column for one sample.

    Args:
        records: the dataset.
        column: name of the column.
        index: index of the sample.
        columns: its columns, if they were read; or the error.
    """
    if is_in_memory(records, column):
        return values_of(records, column, index, index + 1)[0]
    return Unreadable(format_reason(columns)) if isinstance(columns, Exception) else columns.get(column)


def _read_one(records: ViewedRecords, column: str, index: int) -> Any:
    try:
        return _read_values(records, column, np.array([index]))[0]
    except Exception as error:  # a field of the user's own may raise anything
        return Unreadable(format_reason(error))


def _read_values(records: ViewedRecords, column: str, indices: Any) -> Values:
    if records.layout is None:
        return [_column_of_sample(sample, column) for sample in records.store.samples(indices)]
    if column not in records.fields:
        return [None] * len(indices)
    return _decode_column(records.layout, column, *records.store.read_packed(indices))


def _decode_column(layout: RecordLayout, column: str, data: Any, offsets: Any) -> Values:
    """Decode this column only. Photographs in other columns are not decoded."""
    position, field = next((i, field) for i, (name, field) in enumerate(layout.columns) if name == column)
    batch = Batch(layout, data, offsets)
    numbers: Values = batch.column(position) if isinstance(field, NUMBERS) else []
    if isinstance(numbers, np.ndarray) and numbers.dtype.kind in "biuf":
        return numbers
    return batch.values(position)


def _column_of_sample(sample: Any, column: str) -> Any:
    return values_by_column(sample).get(column)


def _labels(records: ViewedRecords) -> Any:
    return getattr(records.store, "labels", None)

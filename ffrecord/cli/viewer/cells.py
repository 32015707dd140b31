"""A sample as the page shows it: text and numbers only, for JSON."""

from contextlib import suppress
from typing import Any

import numpy as np

from ffrecord.cli import format_values
from ffrecord.cli.terminal.output import truncate
from ffrecord.cli.viewer.records import Columns, Unreadable, ViewedRecords, damage_of
from ffrecord.reading.pictures import bytes_of, is_picture

COLUMNS_MOST = 6  # columns in a cell
TEXT_CELL = 160  # characters of a value in a cell
TEXT_WHOLE = 20_000  # characters of a value in the panel
VALUES_WHOLE = 1000  # values of an array in the panel
BYTES_WHOLE = 512  # bytes of a value in the panel
LABELS = ("label", "labels", "class", "target", "y", "category", "cls", "fine_label")
NAMES = ("key", "__key__")


def cell(records: ViewedRecords, index: int, columns: Columns | Exception) -> dict[str, Any]:
    """Describe a sample for the grid.

    Args:
        records: the dataset.
        index: index of the sample.
        columns: its columns, or the error that reading them raised.

    Returns:
        "at", "name", "label", "error", "pictures" (names of columns) and "fields" ([column, value] pairs).
    """
    told: dict[str, Any] = {"at": index, "name": _name_or_none(records, index)}
    error = damage_of(columns)
    if isinstance(columns, Exception):
        return told | {"pictures": [], "fields": [], "error": error and truncate(error, 1000)}
    named = next((columns[name] for name in NAMES if isinstance(columns.get(name), str)), told["name"])
    label = label_column(records, columns)
    shown_ones = [name for name in columns if name not in NAMES][:COLUMNS_MOST]
    return {
        "at": index,
        "name": named,
        "pictures": [name for name, value in columns.items() if is_picture(value)],
        "label": None if label is None else format_cell_value(records, label, columns[label]),
        "fields": [[name, format_cell_value(records, name, columns[name])] for name in shown_ones],
        "error": error and truncate(error, 1000),
    }


def whole(records: ViewedRecords, index: int, columns: Columns | Exception) -> dict[str, Any]:
    """Describe a sample for the panel: all columns with long values, and the place of the record."""
    told = cell(records, index, columns)
    if not isinstance(columns, Exception):
        told["fields"] = [
            [name, format_cell_value(records, name, value, whole=True)] for name, value in columns.items()
        ]
    with suppress(Exception):  # the place of a damaged record may be unknown; `cell` reports the damage
        told["file"], told["place"] = records.store.locate(index)
        size = int(records.store.record_sizes([index])[0])
        told |= {"bytes": size} if size >= 0 else {}  # negative: unknown, as the record cannot be read
    return told


def label_column(records: ViewedRecords, columns: Columns) -> str | None:
    """Return the column that best labels a sample, or None."""
    named = [name for name in records.classes if name in columns]
    if named:
        return named[0]
    plain = [name for name, value in columns.items() if is_label(value) and name not in NAMES]
    return next((name for name in LABELS if name in plain), plain[0] if len(plain) == 1 else None)


def is_label(value: Any) -> bool:
    """Tell whether a value may be a label: a number, a word, or bytes of a word."""
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return True
    text = value if isinstance(value, str) else short_text(value)
    return text is not None and len(text) <= 64


def short_text(value: Any) -> str | None:
    """Return bytes as text, or None if they are no short text.

    Formats without types store numbers and names as bytes.
    """
    data = bytes_of(value)
    if data is None or not 0 < len(data) <= 1024:
        return None
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\r\t" for each in text) else None


def format_cell_value(records: ViewedRecords, name: str, value: Any, *, whole: bool = False) -> str:
    """Format a value for people: names for classes, text without quotes, arrays with their values.

    Args:
        records: the dataset.
        name: name of the column.
        value: the value.
        whole: whether to format it for the panel, at length.
    """
    if isinstance(value, Unreadable):
        return truncate(value.why, TEXT_CELL)
    classes = records.classes.get(name)
    if classes is not None and isinstance(value, int | np.integer) and 0 <= value < len(classes):
        return f"{classes[value]} ({value})" if whole else classes[value]
    text = value if isinstance(value, str) else short_text(value)
    if text is not None:
        return truncate(text, TEXT_WHOLE if whole else TEXT_CELL)
    if not whole or is_picture(value):
        return truncate(format_values.format_value(value), TEXT_CELL)
    return truncate(_format_long(value), TEXT_WHOLE)


def _format_long(value: Any) -> str:
    data = bytes_of(value)
    if data is not None:
        more = " …" if len(data) > BYTES_WHOLE else ""
        return f"{format_values.format_value(bytes(data[: 1 << 16]))}\n{data[:BYTES_WHOLE].hex(' ')}{more}"
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype} {list(value.shape)}"
        return f"{kind}\n{np.array2string(value, precision=6, separator=', ', threshold=VALUES_WHOLE)}"
    if isinstance(value, dict | list | tuple):
        return "\n".join(
            f"{name}: {format_values.format_value(each)}"
            for name, each in format_values.values_by_column(value).items()
        )
    return str(value)


def _name_or_none(records: ViewedRecords, index: int) -> str | None:
    try:
        return records.name(index)
    except Exception:  # names are read from files, too, which may be damaged
        return None

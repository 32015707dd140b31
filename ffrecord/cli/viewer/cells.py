"""What the page tells of a sample: all of it text and numbers, for JSON."""

from contextlib import suppress
from typing import Any

import numpy as np

from ffrecord.cli import format_values
from ffrecord.cli.terminal.output import cut
from ffrecord.cli.viewer.pictures import bytes_of, is_picture
from ffrecord.cli.viewer.records import Columns, Unreadable, ViewedRecords, trouble_of

COLUMNS_MOST = 6  # told in a cell
TEXT_CELL = 160  # characters of a value in a cell
TEXT_WHOLE = 20_000  # and of one that was asked for
VALUES_WHOLE = 1000  # of an array
BYTES_WHOLE = 512
LABELS = ("label", "labels", "class", "target", "y", "category", "cls", "fine_label")
NAMES = ("key", "__key__")


def cell(records: ViewedRecords, index: int, columns: Columns | Exception) -> dict[str, Any]:
    """For the grid: "at"; "name", "label" and "error" where there are such; "pictures", "fields": [column, value]."""
    told: dict[str, Any] = {"at": index, "name": _name(records, index)}
    error = trouble_of(columns)
    if isinstance(columns, Exception):
        return told | {"pictures": [], "fields": [], "error": error and cut(error, 1000)}
    named = next((columns[name] for name in NAMES if isinstance(columns.get(name), str)), told["name"])
    label = label_column(records, columns)
    shown_ones = [name for name in columns if name not in NAMES][:COLUMNS_MOST]
    return {
        "at": index,
        "name": named,
        "pictures": [name for name, value in columns.items() if is_picture(value)],
        "label": None if label is None else words(records, label, columns[label]),
        "fields": [[name, words(records, name, columns[name])] for name in shown_ones],
        "error": error and cut(error, 1000),
    }


def whole(records: ViewedRecords, index: int, columns: Columns | Exception) -> dict[str, Any]:
    """For the panel: as `cell`, of all columns and with long values; and where the record lies."""
    told = cell(records, index, columns)
    if not isinstance(columns, Exception):
        told["fields"] = [[name, words(records, name, value, whole=True)] for name, value in columns.items()]
    with suppress(Exception):  # what is damaged, which `cell` tells, may not know where it is
        told["file"], told["place"] = records.store.locate(index)
        size = int(records.store.record_sizes([index])[0])
        told |= {"bytes": size} if size >= 0 else {}  # of what cannot be read nobody knows
    return told


def label_column(records: ViewedRecords, columns: Columns) -> str | None:
    """The column that says best what a sample is, if any does."""
    named = [name for name in records.classes if name in columns]
    if named:
        return named[0]
    plain = [name for name, value in columns.items() if is_label(value) and name not in NAMES]
    return next((name for name in LABELS if name in plain), plain[0] if len(plain) == 1 else None)


def is_label(value: Any) -> bool:
    """Whether people would call a value a label: a number, a word, or their bytes."""
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return True
    text = value if isinstance(value, str) else short_text(value)
    return text is not None and len(text) <= 64


def short_text(value: Any) -> str | None:
    """The text that some bytes are; None for all else. Formats without types have numbers and names as such."""
    data = bytes_of(value)
    if data is None or not 0 < len(data) <= 1024:
        return None
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\r\t" for each in text) else None


def words(records: ViewedRecords, name: str, value: Any, *, whole: bool = False) -> str:
    """A value as people read it: the name of a class, text without quotes, arrays with their values."""
    if isinstance(value, Unreadable):
        return cut(value.why, TEXT_CELL)
    classes = records.classes.get(name)
    if classes is not None and isinstance(value, int | np.integer) and 0 <= value < len(classes):
        return f"{classes[value]} ({value})" if whole else classes[value]
    text = value if isinstance(value, str) else short_text(value)
    if text is not None:
        return cut(text, TEXT_WHOLE if whole else TEXT_CELL)
    if not whole or is_picture(value):
        return cut(format_values.in_words(value), TEXT_CELL)
    return cut(_long(value), TEXT_WHOLE)


def _long(value: Any) -> str:
    data = bytes_of(value)
    if data is not None:
        more = " …" if len(data) > BYTES_WHOLE else ""
        return f"{format_values.in_words(bytes(data[: 1 << 16]))}\n{data[:BYTES_WHOLE].hex(' ')}{more}"
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype} {list(value.shape)}"
        return f"{kind}\n{np.array2string(value, precision=6, separator=', ', threshold=VALUES_WHOLE)}"
    if isinstance(value, dict | list | tuple):
        return "\n".join(
            f"{name}: {format_values.in_words(each)}" for name, each in format_values.columns_of(value).items()
        )
    return str(value)


def _name(records: ViewedRecords, index: int) -> str | None:
    try:
        return records.name(index)
    except Exception:  # names are read from files as well
        return None

"""Values of samples as text for people and as JSON, and samples printed one after the other."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ffrecord.cli.partial import PartialDataset
from ffrecord.cli.sources import FILE_EACH
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, format_size, truncate
from ffrecord.errors import FFRecordError, FormatError
from ffrecord.fields import LabelField, Schema, schema_of
from ffrecord.reading.store import Store

Classes = Mapping[str, Sequence[str]]


def schema_if_any(store: Store) -> Schema | None:
    """Return the schema of a store's files, or None if it has none that this program can read."""
    if not hasattr(store, "extension"):
        return None
    try:
        return schema_of(store)
    except FormatError:
        return None


def classes_of(store: Store, schema: Schema | None = None) -> dict[str, list[str]]:
    """Return the class names of each column that holds class numbers.

    They come from the schema, or from the directories of an image folder.

    Args:
        store: the samples.
        schema: their schema, if you have it already.

    Returns:
        Column → names of the classes, by number.
    """
    schema = schema_if_any(store) if schema is None else schema
    if schema is not None:
        return {name: list(field.names) for name, field in schema.fields.items() if isinstance(field, LabelField)}
    names: Sequence[str] = getattr(store, "classes", None) or []
    return {"label": list(names)} if names else {}


def class_of(names: Sequence[str] | None, value: Any) -> str | None:
    """Return the name of a class, or None if `value` is not the number of a class."""
    if names is None or isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return names[int(value)] if 0 <= value < len(names) else None


def columns_at(store: Store, place: int) -> dict[str, Any]:
    """Return the columns of a sample. A sample that is a file has its name as column "key".

    Args:
        store: the samples.
        place: index of the sample in the store.

    Raises:
        The errors of `Store.sample`.
    """
    key = {"key": store.keys()[place]} if store.format in FILE_EACH else {}
    return {**key, **values_by_column(store.sample(place))}


VALUES_MOST = 8  # values of an array that are shown
TEXT_MOST = 60  # characters
JSON_MOST = 64  # arrays of up to so many values are written out in JSON
BYTES_MOST = 16  # bytes of a value that are shown


def values_by_column(sample: Any) -> dict[str, Any]:
    """Return a sample of any structure as column → value. A value without structure is column "value"."""
    if isinstance(sample, Mapping):
        return {str(name): value for name, value in sample.items()}
    if isinstance(sample, list | tuple):
        return {str(place): value for place, value in enumerate(sample)}
    return {"value": sample}


def format_value(value: Any) -> str:
    """Format a value in one line."""
    if isinstance(value, np.ndarray):
        return _format_array(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _format_bytes(bytes(value))
    if isinstance(value, str):
        return repr(truncate(value, TEXT_MOST))
    if isinstance(value, Mapping | list | tuple):
        parts = values_by_column(value)
        return truncate(", ".join(f"{name}: {format_value(each)}" for name, each in parts.items()), 2 * TEXT_MOST)
    return str(value)


def _format_array(array: np.ndarray[Any, Any]) -> str:
    kind = f"{array.dtype} {list(array.shape)}"
    if array.dtype == np.uint8 and array.ndim == 1:
        return _format_bytes(array[: 1 << 16].tobytes(), array.size)
    if array.size <= VALUES_MOST:
        return f"{kind} {np.array2string(array, precision=4, separator=', ', max_line_width=10**6)}".replace("\n", "")
    if array.dtype.kind in "fiu":
        return f"{kind}, {array.min():.4g} to {array.max():.4g}, mean {_mean(array):.4g}"
    return kind


def _mean(array: np.ndarray[Any, Any]) -> float:
    # An array with inf and -inf has no mean: the text says "nan", and a warning would only disturb.
    with np.errstate(invalid="ignore", over="ignore"):
        return float(array.mean())


def _format_bytes(data: bytes, size: int | None = None) -> str:
    size = len(data) if size is None else size
    picture = picture_kind(data)
    if picture:
        return f"{picture}, {format_size(size)}"
    if size <= 1 << 16 and data and _is_text(data):
        return f"{format_size(size)} of text, {truncate(data.decode(), TEXT_MOST)!r}"
    start = data[:BYTES_MOST].hex(" ")
    return f"{format_size(size)}{', ' if start else ''}{start}{' …' if size > BYTES_MOST else ''}"


def picture_kind(value: Any) -> str:
    """Return the kind of image file that some bytes are, by their first bytes; "" for other values.

    Args:
        value: any value. Bytes, or flat uint8 arrays (as records have them), may be image files.
    """
    if isinstance(value, np.ndarray):
        value = value[:BYTES_MOST].tobytes() if value.dtype == np.uint8 and value.ndim == 1 else b""
    data = bytes(value[:BYTES_MOST]) if isinstance(value, bytes | bytearray | memoryview) else b""
    kinds = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF", b"II*\0": "TIFF", b"MM\0*": "TIFF"}
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return next((name for magic, name in kinds.items() if data.startswith(magic)), "")


def _is_text(data: bytes) -> bool:
    try:
        return all(each.isprintable() or each in "\n\r\t" for each in data.decode())
    except UnicodeDecodeError:
        return False


def to_json_value(value: Any) -> Any:
    """Convert a value to types that `json` can write.

    Arrays of up to JSON_MOST values become lists. Longer arrays and bytes are described by a few facts.
    """
    picture = picture_kind(value)
    if picture:
        return {"kind": picture, "bytes": len(value), "begins": bytes(value[:BYTES_MOST]).hex()}
    if isinstance(value, np.ndarray):
        facts: dict[str, Any] = {"dtype": str(value.dtype), "shape": list(value.shape)}
        if value.size <= JSON_MOST and value.dtype.kind in "fiub":
            facts["values"] = value.tolist()
        elif value.dtype.kind in "fiu":
            facts |= {"min": value.min().item(), "max": value.max().item(), "mean": _mean(value)}
        return facts
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value), "begins": bytes(value[:BYTES_MOST]).hex()}
    if isinstance(value, Mapping):
        return {str(name): to_json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


OURS = {"index", "error", "columns"}  # names that the JSON output uses itself


def print_samples(partial: PartialDataset, indices: Iterable[int], out: Output) -> int:
    """Print samples. An unreadable sample is reported in its place.

    Args:
        partial: the dataset.
        indices: indices of the samples in the dataset.
        out: output of the command.

    Returns:
        The exit code; BAD_NEWS if a sample cannot be read.
    """
    code, found, classes = exit_codes.DONE, [], classes_of(partial.store)
    for index in indices:
        place = index
        try:
            place = partial.place(index)
            columns = columns_at(partial.store, place)
            told = _columns_for_json(columns) if out.json else _format_columns(columns, classes)
        except (FFRecordError, OSError) as error:
            if isinstance(error, IndexError):
                raise
            code, told = exit_codes.BAD_NEWS, {"error": partial.describe_error(error, place)}
        if out.json:
            found.append({"index": index, **told})
        else:
            _print_sample(index, told, out)
    if out.json:
        out.data(found)
    return code


def _columns_for_json(columns: dict[str, Any]) -> dict[str, Any]:
    """Convert columns to JSON values.

    If a column has a name that the output uses itself, all are nested below "columns". A column is then never mistaken
    for the index or an error.
    """
    told = {name: to_json_value(value) for name, value in columns.items()}
    return {"columns": told} if OURS & told.keys() else told


def _format_columns(columns: dict[str, Any], classes: Classes) -> dict[str, str]:
    """Format each column as text, with the names of classes."""
    told = {name: format_value(value) for name, value in columns.items()}
    called = {name: class_of(classes.get(name), value) for name, value in columns.items()}
    return {name: words if called[name] is None else f"{called[name]} ({words})" for name, words in told.items()}


def _print_sample(index: int, words: dict[str, str], out: Output) -> None:
    out.line(f"[{index}]")
    left = max(map(len, words), default=0)
    for name, text in words.items():
        line = f"  {name:{left}}  {text}"
        out.line(truncate(line, out.width) if out.tty else line)

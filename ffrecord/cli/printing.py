"""Printing of samples, one after the other."""

from collections.abc import Iterable
from typing import Any

from ffrecord.cli.classes import Classes, class_of, classes_of, columns_at
from ffrecord.cli.format_values import format_value, to_json_value
from ffrecord.cli.partial import PartialDataset
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output, truncate
from ffrecord.errors import FFRecordError

OURS = {"index", "error", "columns"}  # names that the JSON output uses itself


def print_samples(rest: PartialDataset, indices: Iterable[int], out: Output) -> int:
    """Print samples. An unreadable sample is reported in its place.

    Args:
        rest: the dataset.
        indices: indices of the samples in the dataset.
        out: output of the command.

    Returns:
        The exit code; BAD_NEWS if a sample cannot be read.
    """
    code, found, classes = exit_codes.DONE, [], classes_of(rest.store)
    for index in indices:
        place = index
        try:
            place = rest.place(index)
            columns = columns_at(rest.store, place)
            told = _columns_for_json(columns) if out.json else _format_columns(columns, classes)
        except (FFRecordError, OSError) as error:
            if isinstance(error, IndexError):
                raise
            code, told = exit_codes.BAD_NEWS, {"error": rest.describe_error(error, place)}
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

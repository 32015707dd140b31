"""Output of the commands: facts, tables and progress, for people or for programs."""

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from ffrecord import errors
from ffrecord.errors import escape_unprintable
from ffrecord.system.sizes import format_size as format_size

GAP = 2  # spaces between columns
TEXT_LEAST = 16  # least characters of a shortened text: shorter ones are not recognizable


def align_table(cells: Sequence[Sequence[str]], width: int | None, shorten: int | None) -> list[str] | None:
    """Align the cells of a table, with numbers to the right.

    Args:
        cells: rows; the first one has the names of the columns.
        width: columns of the terminal; None without a terminal.
        shorten: number of a column whose texts may lose their middles to fit; None for none.

    Returns:
        Lines, or None if the table does not fit.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    over = 0 if width is None else sum(widths) + GAP * (len(widths) - 1) - width
    if over > 0:
        if shorten is None or widths[shorten] - over < TEXT_LEAST:
            return None
        widths[shorten] -= over
    numbers = [_are_numbers(column[1:]) for column in zip(*cells, strict=True)]
    return [_align_row(row, widths, numbers) for row in cells]


def _align_row(row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    parts = (shorten_middle(cell, width) for cell, width in zip(row, widths, strict=True))
    told = (f"{p:>{w}}" if right else f"{p:{w}}" for p, w, right in zip(parts, widths, numbers, strict=True))
    return (" " * GAP).join(told).rstrip()


def _are_numbers(cells: Iterable[str]) -> bool:
    return all(cell.replace(",", "").replace(".", "").lstrip("-").isdigit() or cell == "-" for cell in cells)


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text that is too long to its two ends. The longer part is the end, which tells most about a path."""
    if len(text) <= width:
        return text
    left = (width - 1) // 3
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"


PIPED_WIDTH = 80
NARROW = 10  # terminals of fewer schema_of_fields get no wrapped lines


class Output:
    """The output of a command.

    Args:
        json: whether facts and tables are JSON.
        quiet: whether progress bars and remarks are left out.
        stream: stream for results; stdout by default.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.json, self.quiet = json, quiet
        self._stream = sys.stdout if stream is None else stream

    @property
    def tty(self) -> bool:
        """True if the stream is a terminal."""
        return self._stream.isatty()

    @property
    def width(self) -> int:
        """Columns of the terminal; PIPED_WIDTH without a terminal."""
        return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if self.tty else PIPED_WIDTH

    def line(self, text: str = "") -> None:
        """Write a line of the result."""
        self._write(make_printable(text) + "\n")

    def raw(self, data: Any) -> None:
        """Write bytes of the result."""
        with _name_standard_output():
            self._stream.buffer.write(data)

    def flush(self) -> None:
        """Flush the results that are written so far."""
        with _name_standard_output():
            self._stream.flush()

    def _write(self, text: str) -> None:
        with _name_standard_output():
            self._stream.write(text)

    def remark(self, text: str) -> None:
        """Write a line for people to stderr, unless --quiet was given."""
        if not self.quiet:
            with suppress(OSError):
                sys.stderr.write(make_printable(text) + "\n")

    def data(self, value: Any) -> None:
        """Write a JSON document."""
        self._write(self._as_json(value) + "\n")

    def items(self, values: Iterable[Any]) -> None:
        """Write a list as a JSON document, item by item: the list need not fit into memory."""
        between, end = (",", "\n]\n") if self.tty else (", ", "]\n")
        lead = "["
        for value in values:
            self._write(lead + self._as_json([value])[1:-1].rstrip("\n"))
            lead = between
        self._write("[]\n" if lead == "[" else end)

    def _as_json(self, value: Any) -> str:
        return to_json(value, indent=1 if self.tty else None)

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Write one JSON object, or one line per fact: its name, and its value in words.

        Facts that are None are left out of the lines.
        """
        if self.json:
            self.data(dict(facts))
            return
        shown = {name: format_fact(value) for name, value in facts.items() if value is not None}
        left = max(map(len, shown), default=0)
        for name, text in shown.items():
            self.wrap(f"{name:{left}}  ", text)

    def wrap(self, label: str, text: str) -> None:
        """Write a line, wrapped below its own text at the terminal's width.

        Without a terminal it stays one line.
        """
        room = self.width - len(label)
        pieces = textwrap.wrap(text, room) if self.tty and room >= NARROW else [text]
        for number, piece in enumerate(pieces or [""]):
            self.line(f"{label if number == 0 else ' ' * len(label)}{piece}".rstrip())

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, shorten: str | None = None) -> None:
        """Write a list of JSON objects, or aligned columns.

        If the terminal is too narrow, the texts of the column `shorten` lose their middles. If that is not enough, each
        row becomes lines of a name and a value. Numbers are never cut: a cut number would look like another one.
        """
        if self.json:
            self.data([dict(zip(columns, row, strict=True)) for row in rows])
            return
        cells = [[make_printable(format_fact(value)) for value in row] for row in rows]
        place = None if shorten is None else list(columns).index(shorten)
        lines = align_table([columns, *cells], self.width if self.tty else None, place)
        if lines is None:
            self._one_by_one(columns, cells)
        for line in lines or []:
            self.line(line)

    def _one_by_one(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for number, row in enumerate(rows):
            if number:
                self.line()
            for name, cell in zip(columns, row, strict=True):
                self.wrap(f"{name}: " if name else "", cell)

    def progress(self, total: int | None, unit: str, label: str) -> Any:
        """Return a progress bar for `with` and `update`.

        It is silent with --quiet, with --json or without a terminal.
        """
        from ffrecord.dataset_writer.progress import Bar

        silent = self.quiet or self.json or not sys.stderr.isatty()
        return Bar(total=total, unit=unit, desc=label, unit_scale=True, disable=silent, leave=False)


class StandardOutputError(OSError):
    """Standard output could not be written."""


@contextmanager
def _name_standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StandardOutputError(error.errno, error.strerror, "standard output") from None


def format_count(check_count: int, what: str) -> str:
    """Format a number of things, in the plural if needed."""
    return errors.plural(check_count, what, commas=True)


def to_json(value: Any, indent: int | None = None) -> str:
    """Encode a value as JSON. Numbers that JSON lacks become text, so that every browser reads it."""
    return json.dumps(_replace_non_finite(value), indent=indent, default=str, allow_nan=False)


def _replace_non_finite(value: Any) -> Any:
    """Replace numbers that JSON lacks by text: "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _replace_non_finite(each) for name, each in value.items()}
    return [_replace_non_finite(each) for each in value] if isinstance(value, list | tuple) else value


def make_printable(text: str) -> str:
    """Escape characters that would move the cursor or that cannot be encoded. Names of files may hold anything."""
    clean = escape_unprintable(text).replace("\n", "\\n")
    return clean.encode(sys.stdout.encoding or "utf-8", "backslashreplace").decode(sys.stdout.encoding or "utf-8")


def truncate(text: str, width: int) -> str:
    """Shorten a text that is too long to its beginning and an ellipsis."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def format_fact(value: Any) -> str:
    """Format a value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(map(format_fact, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_fact(each)}" for name, each in value.items())
    return "-" if value is None else str(value)


def silence(stream: TextIO) -> None:
    """Redirect a stream that nobody reads to /dev/null, so that Python's own flush at exit does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

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
from ffrecord.system.sizes import in_bytes as in_bytes

GAP = 2  # spaces between columns
TEXT_LEAST = 16  # characters of a text without its middle: of fewer nobody can tell what it was


def aligned(cells: Sequence[Sequence[str]], width: int | None, shorten: int | None) -> list[str] | None:
    """The lines of a table, numbers to the right; None if it does not fit.

    Args:
        cells: rows, of which the first one is the names of the columns.
        width: of the terminal; None where there is none.
        shorten: a column of texts that may lose their middles, so that it fits; None if there is none.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    over = 0 if width is None else sum(widths) + GAP * (len(widths) - 1) - width
    if over > 0:
        if shorten is None or widths[shorten] - over < TEXT_LEAST:
            return None
        widths[shorten] -= over
    numbers = [_are_numbers(column[1:]) for column in zip(*cells, strict=True)]
    return [_line(row, widths, numbers) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    parts = (without_middle(cell, width) for cell, width in zip(row, widths, strict=True))
    told = (f"{p:>{w}}" if right else f"{p:{w}}" for p, w, right in zip(parts, widths, numbers, strict=True))
    return (" " * GAP).join(told).rstrip()


def _are_numbers(cells: Iterable[str]) -> bool:
    return all(cell.replace(",", "").replace(".", "").lstrip("-").isdigit() or cell == "-" for cell in cells)


def without_middle(text: str, width: int) -> str:
    """Both ends of a text that is too long, and an ellipsis: of a path the end says most."""
    if len(text) <= width:
        return text
    left = (width - 1) // 3
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"


PIPED_WIDTH = 80
NARROW = 10  # columns in which nothing is wrapped any more


class Output:
    """Where a command writes to.

    Args:
        json: facts and tables as JSON.
        quiet: no bars, no remarks.
        stream: for what was asked for; stdout.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.json, self.quiet = json, quiet
        self._stream = sys.stdout if stream is None else stream

    @property
    def tty(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    @property
    def width(self) -> int:
        """Columns of the terminal; PIPED_WIDTH where there is none."""
        return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if self.tty else PIPED_WIDTH

    def line(self, text: str = "") -> None:
        """A line of what was asked for."""
        self._write(printable(text) + "\n")

    def raw(self, data: Any) -> None:
        """Bytes of what was asked for."""
        with _naming_standard_output():
            self._stream.buffer.write(data)

    def flush(self) -> None:
        """Give away what was said so far."""
        with _naming_standard_output():
            self._stream.flush()

    def _write(self, text: str) -> None:
        with _naming_standard_output():
            self._stream.write(text)

    def remark(self, text: str) -> None:
        """A line for people, on stderr; not with --quiet."""
        if not self.quiet:
            with suppress(OSError):
                sys.stderr.write(printable(text) + "\n")

    def data(self, value: Any) -> None:
        """A JSON document."""
        self._write(self._as_json(value) + "\n")

    def items(self, values: Iterable[Any]) -> None:
        """A list as a JSON document: each item is written as it comes, so that all of them need not fit in memory."""
        between, end = (",", "\n]\n") if self.tty else (", ", "]\n")
        lead = "["
        for value in values:
            self._write(lead + self._as_json([value])[1:-1].rstrip("\n"))
            lead = between
        self._write("[]\n" if lead == "[" else end)

    def _as_json(self, value: Any) -> str:
        return json_of(value, indent=1 if self.tty else None)

    def facts(self, facts: Mapping[str, Any]) -> None:
        """One JSON object, or a line for each: its name, and its value in words. None is left out for people."""
        if self.json:
            self.data(dict(facts))
            return
        shown = {name: in_words(value) for name, value in facts.items() if value is not None}
        left = max(map(len, shown), default=0)
        for name, text in shown.items():
            self.wrapped(f"{name:{left}}  ", text)

    def wrapped(self, label: str, text: str) -> None:
        """A line that goes on below its own beginning where the terminal ends; a single one where there is none."""
        room = self.width - len(label)
        pieces = textwrap.wrap(text, room) if self.tty and room >= NARROW else [text]
        for number, piece in enumerate(pieces or [""]):
            self.line(f"{label if number == 0 else ' ' * len(label)}{piece}".rstrip())

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, shorten: str | None = None) -> None:
        """A list of JSON objects, or aligned columns.

        Where the terminal is too narrow for it, the texts of the column `shorten` lose their middles; where that is not
        enough, each row becomes lines of a name and a value. So no number is cut, which would look like another one.
        """
        if self.json:
            self.data([dict(zip(columns, row, strict=True)) for row in rows])
            return
        cells = [[printable(in_words(value)) for value in row] for row in rows]
        place = None if shorten is None else list(columns).index(shorten)
        lines = aligned([columns, *cells], self.width if self.tty else None, place)
        if lines is None:
            self._one_by_one(columns, cells)
        for line in lines or []:
            self.line(line)

    def _one_by_one(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for number, row in enumerate(rows):
            if number:
                self.line()
            for name, cell in zip(columns, row, strict=True):
                self.wrapped(f"{name}: " if name else "", cell)

    def progress(self, total: int | None, unit: str, label: str) -> Any:
        """A bar of tqdm on stderr, for `with` and `update`; silent with --quiet, --json or without a terminal."""
        from ffrecord.dataset_writer.progress import Bar

        silent = self.quiet or self.json or not sys.stderr.isatty()
        return Bar(total=total, unit=unit, desc=label, unit_scale=True, disable=silent, leave=False)


class StandardOutputError(OSError):
    """What was asked for could not be given away."""


@contextmanager
def _naming_standard_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StandardOutputError(error.errno, error.strerror, "standard output") from None


def counted(count: int, what: str) -> str:
    """How many of something, with the plural that it needs."""
    return errors.plural(count, what, commas=True)


def json_of(value: Any, indent: int | None = None) -> str:
    """A JSON document; what JSON has no numbers for, and no browser reads, is text in it."""
    return json.dumps(_finite(value), indent=indent, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    """What JSON has no numbers for, as text: "NaN", "Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def printable(text: str) -> str:
    """Without what would move the cursor or cannot be encoded: names of files may hold anything."""
    clean = escape_unprintable(text).replace("\n", "\\n")
    return clean.encode(sys.stdout.encoding or "utf-8", "backslashreplace").decode(sys.stdout.encoding or "utf-8")


def cut(text: str, width: int) -> str:
    """The beginning of a text that is too long, and an ellipsis."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def in_words(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(map(in_words, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items())
    return "-" if value is None else str(value)


def silence(stream: TextIO) -> None:
    """Where nobody reads any more, let Python's own flush at the end write to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

"""Lists of paths and labels: files anywhere as records."""

import csv
import io as streams
import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from errno import ENOENT, ENOTDIR
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    NotAFolderError,
    add_file_to_errors,
    file_error,
)
from ffrecord.format.ffr_layout import hint_of
from ffrecord.reading.paths import PathLike
from ffrecord.reading.store import OnError, reopening
from ffrecord.sources.files import check_file
from ffrecord.sources.images.file_store import FileStore
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.names import Names
from ffrecord.system import filesystems
from ffrecord.system.values import describe_wrong, path_text

SUFFIXES = (".txt", ".csv")
DIGITS_MOST = 18  # most digits of a label that is a number
# Words in a first line that has the titles of columns.
PATH_TITLES = {"path", "file", "filename", "file_name", "image", "image_path", "img"}
LABEL_TITLES = {"label", "class", "target", "y", "category"}

Pair = tuple[str, str | int | None]

logger = logging.getLogger("ffrecord")


class PathListReader(FileStore):
    """The files that a list names, as records.

    `samples` gives {"image": bytes as uint8 [size], "label": int or str}.

    A list has a line `path label` for each file. The label is the text behind the last white space, so paths may
    contain spaces. In a `.csv` it is the text behind the last comma, and a first line such as `path,label` is left out.
    Labels are ints if all of them are whole numbers, else strings. Empty lines are left out.

    Args:
        source: a list in UTF-8, `.csv` or with any other name; several lists, in a list or tuple; or an iterable of
            (path, label) or of paths.
        check_data, io, index_cache: without effect, see `ImageFolderReader`.
        on_error: see `FileReader`.
        root: directory that the paths are relative to; None for the working directory. Absolute paths stay as they are.
        labels: False for lists without labels: each line is a path.

    Attributes:
        labels: int64 [n] or a list of n strings; None without labels.

    Raises:
        FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError (each also an AssertionError), TypeError:
            `source`, `root`.
        FormatError: a line has no label, or is not UTF-8; with its number.
        OSError: a list cannot be read. Files are not looked at before they are read.
    """

    __slots__ = ("_lines", "_lists")

    format: ClassVar[str] = "path list"

    def __init__(
        self,
        source: PathLike | Iterable[Any],
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        root: PathLike | None = None,
        labels: bool = True,
    ) -> None:
        if not isinstance(labels, bool):
            raise ArgumentTypeError(describe_wrong("labels", labels, "True or False"))
        directory = filesystems.absolute_path("." if root is None else path_text("root", root))
        if not os.path.isdir(directory):
            raise NotAFolderError(ENOTDIR, f"{directory} is not a directory", directory)
        self._lists, self._lines, pairs = _read_source(source, labels)
        names = Names.of(path for path, _ in pairs)
        found = _labels([label for _, label in pairs])
        if isinstance(found, list):
            _warn_of_texts(pairs)
        fnames = self._lists or [directory]
        settings = {"root": directory, "labels": labels}
        super().__init__(fnames, directory, names, found, check_data, io=io, on_error=on_error, settings=settings)

    def _error(self, index: int, what: str, errno: int, size: int, found: int) -> Exception:
        place = self._find_line(index) if errno == ENOENT else None
        if place is None:
            return super()._error(index, what, errno, size, found)
        path, number = place
        form = "path,label" if path.lower().endswith(".csv") else "path label"
        advice = f"a line is {form if self.labels is not None else 'path'}"
        name = self._names[index]
        header = "; is it a header?" if index == 0 and "." not in os.path.basename(name) else ""
        told = f"Sample {index}: {path}: line {number}: no file {name!r}"
        return file_error(errno, told, os.path.join(self.root, name), f"{advice}{header}")

    def _find_line(self, index: int) -> tuple[str, int] | None:
        """Return the list and the line that record `index` is from; None if it is from no list."""
        for path, numbers in zip(self._lists, self._lines, strict=True):
            if index < len(numbers):
                return path, int(numbers[index])
            index -= len(numbers)
        return None

    def _source(self) -> Any:
        if self._lists:
            return self._lists
        return list(self._names) if self.labels is None else list(zip(self._names, self.labels, strict=True))


def _read_source(
    source: PathLike | Iterable[Any], labelled: bool
) -> tuple[list[str], list[npt.NDArray[np.int64]], list[Pair]]:
    """Return the paths of the lists, the numbers of their lines, and their pairs; or only the pairs in `source`."""
    if isinstance(source, str | os.PathLike):
        source = [source]
        lists = True
    else:
        source = list(source)
        # Images do not have these suffixes.
        lists = all(
            isinstance(each, str | os.PathLike) and os.fspath(each).lower().endswith(SUFFIXES) for each in source
        )
    if not lists or not source:
        return [], [], [_pair(each) for each in source]
    paths = [path_text("source", each) for each in source]
    for path in paths:
        check_file(path)
    lines: list[npt.NDArray[np.int64]] = []
    pairs: list[Pair] = []
    for path in paths:
        numbers = array("q")
        for number, pair in _read(path, labelled):
            numbers.append(number)
            pairs.append(pair)
        lines.append(np.array(numbers, np.int64))
    return paths, lines, pairs


def _pair(given: Any) -> Pair:
    """Return (path, label) from an item of `source`, which is a pair or a path."""
    path, label = given if isinstance(given, tuple | list) and len(given) == 2 else (given, None)
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None  # other paths fail when they are read
    if not isinstance(name, str):
        raise ArgumentTypeError(f"an item of source is {given!r}, expected a path, or (path, label)")
    # To numpy, a timedelta64 is an integer.
    if isinstance(label, np.integer) and not isinstance(label, np.timedelta64):
        label = int(label)
    if isinstance(label, bool) or not isinstance(label, str | int | None):
        raise ArgumentTypeError(describe_wrong(f"{given!r}: a label", label, "int or str"))
    return name, label


def _read(path: str, labelled: bool) -> Iterator[tuple[int, Pair]]:
    """Go through the lines of a list: (number of the line from 1, its pair)."""
    with add_file_to_errors("reading it", path), open(path, "rb") as file:
        data = file.read()
    hint = hint_of(data)
    # A pointer has lines that could be paths and labels.
    if hint:
        raise FormatError(f"{path} is not a list of paths{hint}")
    try:
        # Editors on Windows put a mark at the start of a file.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}") from None
    # Not `splitlines`, which also splits at characters that names may contain.
    lines = _rows(path, text) if path.lower().endswith(".csv") else enumerate(text.split("\n"), 1)
    for number, line in lines:
        if not line or (isinstance(line, str) and not line.strip()):
            continue
        pair = _split_line(line, labelled)
        if pair is None:
            raise FormatError(f"{path}: line {number} is {_show_line(line)}, expected a path and a label")
        yield number, pair


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    # csv wants line ends as they are, since a cell may contain some.
    reader = csv.reader(streams.StringIO(text, newline=""), strict=True)
    try:
        for i, row in enumerate(reader):
            if i > 0 or not _is_title(row):
                yield reader.line_num, row
    except csv.Error as error:
        raise FormatError(f"{path}: line {reader.line_num}: {error}") from None


def _is_title(row: Sequence[str]) -> bool:
    named = [each.strip().lower() for each in row]
    return bool(named) and named[0] in PATH_TITLES and (len(named) == 1 or named[-1] in LABEL_TITLES)


def _split_line(line: str | Sequence[str], labelled: bool) -> Pair | None:
    """Return path and label of a line, or of the cells of a row; None if there are not both."""
    if isinstance(line, str):
        line = line.strip()
        parts = line.rsplit(None, 1) if labelled else [line]
    elif labelled:
        parts = [",".join(line[:-1]).strip(), line[-1].strip()]
    else:
        parts = [",".join(line).strip()]
    if not all(parts) or len(parts) != 1 + labelled:
        return None
    return parts[0], parts[1] if labelled else None


def _show_line(line: str | Sequence[str]) -> str:
    return repr(line if isinstance(line, str) else ",".join(line))[:200]


def _labels(found: Sequence[str | int | None]) -> npt.NDArray[np.int64] | list[str] | None:
    """Return all labels as ints, or else as strings; None if there are none.

    Raises:
        ArgumentError: some paths have a label, and others none.
    """
    missing = sum(label is None for label in found)
    if missing == len(found):
        return None
    if missing:
        raise ArgumentError(f"{missing} of {len(found)} paths have no label: give all of them one, or none")
    if all(_is_number(label) for label in found):
        return np.array([int(label) for label in found], np.int64)  # type: ignore[arg-type]
    return [str(label) for label in found]


def _warn_of_texts(pairs: Sequence[Pair]) -> None:
    """Log that all labels are text because some are, if most are whole numbers: that may be a slip."""
    others = [pair for pair in pairs if not _is_number(pair[1])]
    if 2 * len(others) < len(pairs) and not reopening.get():
        path, label = others[0]
        logger.warning(
            "%d of %d labels are not whole numbers, so all are text; the first is %r of %s",
            len(others),
            len(pairs),
            label,
            path,
        )


def _is_number(label: str | int | None) -> bool:
    if isinstance(label, int):
        return -(1 << 63) <= label < 1 << 63
    digits = str(label).removeprefix("-")
    # `isdigit` alone accepts digits of any script.
    return digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MOST

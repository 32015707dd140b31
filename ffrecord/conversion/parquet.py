"""Rows of Parquet files by index."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EIO, ENODEV
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord import filesystems
from ffrecord.engine._engine import filesystem_type
from ffrecord.errors import FormatError, file_error
from ffrecord.inputs.columns import Facts, chosen
from ffrecord.inputs.rows import RowError, Rows
from ffrecord.inputs.stores import readable, spread
from ffrecord.kernels._memory import Mapping
from ffrecord.sources.files import expand
from ffrecord.sources.suffixes import SUFFIXES
from ffrecord.system.optional import require

UNKNOWN = (-1, -1)  # numbers, none of which is a class
FEW, GROUPS = 64, 3  # rows of a few row groups that show the columns


class ParquetDataset:
    """Rows of Parquet files, one after the other, by index. Pickles by name.

    A process keeps the row group that it read last, decoded: rows in order are cheap, others cost a row group each.

    Args:
        paths: files, directories or patterns of such.
        fields: that the user asks for, see `columns.chosen`.
        skips: as for `StoreDataset`.

    Attributes:
        columns: of the result.

    Raises:
        FileNotFoundError: no such file.
        FormatError: no Parquet file, a damaged one, or columns other than in the first file.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, paths: Sequence[Any], fields: Any = None, *, skips: bool = False) -> None:
        self._paths = expand(list(paths), SUFFIXES["parquet"])
        self._kept: tuple[int, int, Any] | None = None
        self._opened: _Opened | None = None
        groups: list[tuple[int, int, int]] = []  # (file, row group, rows)
        schema, nulls = None, {}  # type: ignore[var-annotated]
        bounds: dict[str, tuple[int, int]] = {}
        for number, path in enumerate(self._paths):
            with _naming(path):
                file = self._file(number).file
                schema = file.schema_arrow if schema is None else schema
                if not file.schema_arrow.equals(schema):
                    raise FormatError(f"{path}: columns {file.schema_arrow.names}, {self._paths[0]}: {schema.names}")
                groups += [(number, i, file.metadata.row_group(i).num_rows) for i in range(file.num_row_groups)]
                for name, count in _nulls(file).items():
                    nulls[name] = nulls.get(name, 0) + count
                _widen(bounds, file)
        self._groups = groups
        self._ends = np.cumsum([rows for _, _, rows in groups], dtype=np.int64)
        with _naming(self._paths[0]):
            self._rows = Rows(schema, nulls, _fitting(_classes(schema), bounds), fields)
        samples = self._few(skips)
        facts = Facts(fields=self._rows.fields)
        self.columns = chosen(samples, fields, facts) if samples else None

    def _few(self, skips: bool) -> list[dict[str, Any]]:
        """Rows of three row groups at most: each costs its decoding."""
        indices: list[int] = []
        for group in spread(len(self._groups), GROUPS):
            indices += self._spread(group, FEW // GROUPS)
        return readable(indices, self._read, skips)

    @property
    def fingerprint(self) -> str:
        """What tells these rows from others: 64 hexadecimal digits, of the sizes and times of the files."""
        status = [os.stat(path) for path in self._paths]
        return hashlib.sha256(repr([(each.st_size, each.st_mtime_ns) for each in status]).encode()).hexdigest()

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """How many of the first of these rows one worker is to have: up to the end of the last row group that ends
        among them, if one does, or another worker would decode the next one, too."""
        ended = int(np.searchsorted(self._ends, indices[-1] + 1, side="right"))
        if not ended or not _follow(indices):
            return len(indices)
        count = int(self._ends[ended - 1]) - int(indices[0])
        return count if count > 0 else len(indices)

    def samples_to_look_at(self, count: int) -> list[int]:
        """Up to `count` rows of the row group that `_few` read last, which forked processes have, too."""
        groups = spread(len(self._groups), GROUPS)
        return self._spread(groups[-1], count) if groups else []

    def _spread(self, group: int, count: int) -> list[int]:
        """Indices of up to `count` rows of a group."""
        end, rows = int(self._ends[group]), self._groups[group][2]
        return [end - rows + i for i in spread(rows, count)]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError(f"{self._paths[0]}: no rows")
        return [self.columns.prepared(sample) for sample in self._read(indices)]

    def _read(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        wanted = np.asarray(indices, np.int64)
        groups = np.searchsorted(self._ends, wanted, side="right")
        found: list[dict[str, Any]] = []
        for part in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(groups)) + 1):
            if len(part):
                found += self._of_group(int(groups[part[0]]), wanted[part])
        return found

    def _of_group(self, group: int, indices: Any) -> list[dict[str, Any]]:
        number, row_group, rows = self._groups[group]
        with _naming(self._paths[number]):
            places = indices - (int(self._ends[group]) - rows)
            table = self._decoded(group, number, row_group, places)
            try:
                return self._rows.samples(_sliced(table, places) if _follow(places) else table.take(places))
            except RowError as error:
                before = sum(size for file, other, size in self._groups if file == number and other < row_group)
                raise FormatError(f"row {before + int(places[error.place])}: {error}") from None

    def _decoded(self, group: int, number: int, row_group: int, places: Any) -> Any:
        """The table of a group; of what a parent has decoded, only for a slice of it."""
        kept = self._kept
        if kept is not None and kept[1] == group and (kept[0] == os.getpid() or _follow(places)):
            return kept[2]
        self._kept = kept = None  # not two of them in memory
        opened = self._file(number)
        try:
            # Without threads: a pool of theirs does not survive a fork.
            table = opened.file.read_row_group(row_group, use_threads=False)
        finally:
            if opened.mapped is not None and not opened.mapped.is_whole():
                self._opened = None
                path = self._paths[number]
                raise file_error(EIO, f"{path}: a part of row group {row_group} could not be read", path)
        if opened.mapped is not None:
            opened.mapped.mapping.let_go()  # its pages would be counted as this process's memory
        self._kept = os.getpid(), group, table
        return table

    def _file(self, number: int) -> "_Opened":
        """A file, opened by this process; the one used last."""
        opened = self._opened
        if opened is None or opened[:2] != (os.getpid(), number) or not opened.is_safe():
            with _naming(self._paths[number]):
                self._opened = opened = _open(os.getpid(), number, self._paths[number])
        return opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None, "_opened": None}


class _Opened(NamedTuple):
    """A file.

    Attributes:
        process, number: who opened it, and which it is.
        file: as pyarrow has it.
        mapped: what it is read from; None: it is read by calls.
    """

    process: int
    number: int
    file: Any
    mapped: "_Mapped | None"

    def is_safe(self) -> bool:
        """Whether a page that cannot be had does not kill this thread's process."""
        return self.mapped is None or self.mapped.mapping.guarded


class _Mapped:
    """All of a file. Pages that cannot be had, because it was cut since, read as zeros.

    Raises:
        OSError, ValueError: it cannot be mapped, or is empty.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._size = os.fstat(self._fd).st_size
        if filesystems.of_type(filesystem_type(self._fd)).network:
            raise OSError(ENODEV, "page faults that wait for a server")
        self.mapping = Mapping(self._fd, self._size)

    def is_whole(self) -> bool:
        """Whether what was read until now is what the file had; of a page that was cut in two nothing else tells."""
        return not self.mapping.lost and os.fstat(self._fd).st_size >= self._size

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


def _open(process: int, number: int, path: str) -> _Opened:
    """Mapped, which saves a copy of every row group, where that is safe; what pyarrow gives are copies of its own."""
    module = require("pyarrow.parquet", "parquet", "reading Parquet files")
    mapped = None
    with suppress(OSError, ValueError):  # who reads it by calls is told why it cannot be opened
        mapped = _Mapped(path)
    if mapped is not None and not mapped.mapping.guarded:
        mapped = None
    source = (
        path if mapped is None else require("pyarrow", "parquet", "reading Parquet files").py_buffer(mapped.mapping)
    )
    try:
        file = module.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
    finally:
        if mapped is not None and not mapped.is_whole():
            raise file_error(EIO, f"{path}: its footer could not be read", path)
    return _Opened(process, number, file, mapped)


def _follow(places: Any) -> bool:
    """Whether rows follow each other, as they do in a conversion."""
    return bool((np.diff(places) == 1).all())


def _sliced(table: Any, places: Any) -> Any:
    """Such rows, without a copy."""
    return table.slice(int(places[0]), len(places))


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of pyarrow as ours, with the file's name."""
    base = require("pyarrow", "parquet", "reading Parquet files").ArrowException
    try:
        yield
    except (base, UnicodeDecodeError, OSError, FormatError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        if str(error).startswith(f"{path}: "):
            raise
        raise FormatError(f"{path}: {error}") from error


def _chunks(file: Any) -> Iterator[tuple[str, Any]]:
    """(column, statistics or None) of each piece of a column; not of those inside of lists and structs."""
    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            if "." not in column.path_in_schema:
                yield column.path_in_schema, column.statistics


def _nulls(file: Any) -> dict[str, int]:
    """How many values of each column are missing, as far as the file says."""
    found: dict[str, int] = {}
    for name, statistics in _chunks(file):
        if statistics is not None:
            found[name] = found.get(name, 0) + (statistics.null_count or 0)
    return found


def _widen(bounds: dict[str, tuple[int, int]], file: Any) -> None:
    """Take in the least and the greatest number of each column of integers; without an entry, nobody knows."""
    for name, statistics in _chunks(file):
        low, high = UNKNOWN
        if statistics is not None and statistics.has_min_max and isinstance(statistics.min, int):
            low, high = statistics.min, statistics.max
        before = bounds.get(name, (low, high))
        bounds[name] = min(low, before[0]), max(high, before[1])


def _fitting(classes: dict[str, list[str]], bounds: dict[str, tuple[int, int]]) -> dict[str, list[str]]:
    """Classes of columns of which all numbers are one: -1 for an unknown one is not."""
    return {
        name: names
        for name, names in classes.items()
        if bounds.get(name, UNKNOWN)[0] >= 0 and bounds.get(name, UNKNOWN)[1] < len(names)
    }


def _classes(schema: Any) -> dict[str, list[str]]:
    """Names of classes, where Hugging Face's library wrote the file and left them."""
    try:
        said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = said.get("info", {}).get("features", {})
        return {
            name: [str(each) for each in feature["names"]]
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}

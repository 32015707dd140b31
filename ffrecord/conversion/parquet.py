"""Rows of Parquet files by index."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EIO, ENODEV
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.conversion import partitions
from ffrecord.conversion.parquet_footers import Nulls, classes_of, fitting, joined, widen
from ffrecord.engine._engine import filesystem_type
from ffrecord.errors import FormatError, file_error
from ffrecord.inputs.arrow_types import Missing, pyarrow
from ffrecord.inputs.arrow_values import RowError
from ffrecord.inputs.columns import ColumnFacts, chosen
from ffrecord.inputs.rows import TableRows, check_names
from ffrecord.inputs.stores import readable, spread
from ffrecord.kernels._memory import Mapping
from ffrecord.sources.suffixes import SUFFIXES
from ffrecord.system import filesystems
from ffrecord.system.optional import require

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
        found = partitions.expand(list(paths), SUFFIXES["parquet"])
        self._paths = [each.path for each in found]
        self._kept: tuple[int, int, Any] | None = None
        self._opened: _Opened | None = None
        groups: list[tuple[int, int, int]] = []  # (file, row group, rows)
        schema: Any = None
        nulls = Nulls(skips)
        bounds: dict[str, tuple[int, int]] = {}
        for number, path in enumerate(self._paths):
            with _naming(path):
                file = self._file(number).file
                kinds = file.schema_arrow
                check_names(kinds.names)
                schema = kinds if schema is None else joined(schema, kinds, self._paths[0], path)
                groups += [(number, i, file.metadata.row_group(i).num_rows) for i in range(file.num_row_groups)]
                widen(bounds, file)
                nulls.add(kinds, file)
        self._partitions = partitions.columns(found, schema.names)
        for name, values in self._partitions.items():
            schema = schema.append(pyarrow().field(name, values.type))
            nulls.found[name] = Missing(values.null_count)
        self._types = {each.name: each.type for each in schema}
        self._groups = groups
        self._ends = np.cumsum([rows for _, _, rows in groups], dtype=np.int64)
        with _naming(self._paths[0]):
            self._rows = TableRows(schema, nulls.found, fitting(classes_of(schema), bounds), fields)
        samples = self._few(skips)
        facts = ColumnFacts(fields=self._rows.fields)
        self.columns = chosen(samples, fields, facts) if samples else None

    def _few(self, skips: bool) -> list[dict[str, Any]]:
        """Rows of three row groups at most: each costs its decoding."""
        indices: list[int] = []
        for group in spread(len(self._groups), GROUPS):
            indices += self._spread(group, FEW // GROUPS)
        return readable(indices, self._read, skips)

    @property
    def fingerprint(self) -> str:
        """What tells these rows from others: 64 hexadecimal digits, of the sizes and times of the files,
        and of the partitions that they are in."""
        status = [os.stat(path) for path in self._paths]
        told = repr([(each.st_size, each.st_mtime_ns) for each in status])
        if self._partitions:
            told += repr({name: values.to_pylist() for name, values in self._partitions.items()})
        return hashlib.sha256(told.encode()).hexdigest()

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
                rows = _sliced(table, places) if _follow(places) else _taken(table, places)
                return self._rows.samples(self._whole(rows, number))
            except RowError as error:
                before = sum(size for file, other, size in self._groups if file == number and other < row_group)
                raise FormatError(f"row {before + int(places[error.place])}: {error}") from None

    def _whole(self, table: Any, number: int) -> Any:
        """Return rows of a file with the types of all files, and with what the names of its directories say."""
        for place, column in enumerate(table.schema):
            if column.type != self._types[column.name]:  # of nulls only
                table = table.set_column(place, column.name, table.column(place).cast(self._types[column.name]))
        for name, values in self._partitions.items():
            table = table.append_column(name, values.take(pyarrow().array([number] * len(table), "int64")))
        return table

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
    mapped: "_MappedTable | None"

    def is_safe(self) -> bool:
        """Whether a page that cannot be had does not kill this thread's process."""
        return self.mapped is None or self.mapped.mapping.guarded


class _MappedTable:
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
        mapped = _MappedTable(path)
    if mapped is not None and not mapped.mapping.guarded:
        mapped = None
    source = path if mapped is None else pyarrow().py_buffer(mapped.mapping)
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


def _taken(table: Any, places: Any) -> Any:
    """Return any rows of a table."""
    try:
        return table.take(places)
    except pyarrow().ArrowNotImplementedError:  # of views of text or bytes
        return pyarrow().concat_tables([table.slice(int(place), 1) for place in places])


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of pyarrow as ours, with the file's name."""
    base = pyarrow().ArrowException
    try:
        yield
    except (base, UnicodeDecodeError, OSError, FormatError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        if str(error).startswith(f"{path}: "):
            raise
        raise FormatError(f"{path}: {error}") from error

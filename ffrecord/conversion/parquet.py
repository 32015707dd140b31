"""Rows of Parquet files by index: footers, hive partitions, values."""

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EIO, ENODEV
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import filesystem_type
from ffrecord.errors import ArgumentError, FormatError, add_place_to_memory_errors, file_error
from ffrecord.inputs.arrow_types import Missing, children, depends_on_nulls, leaves, plain_type, pyarrow
from ffrecord.inputs.arrow_values import RowError, are_consecutive, count_missing, take_rows
from ffrecord.inputs.classes import Classes, classes_of_schema
from ffrecord.inputs.columns import ColumnFacts, choose_columns
from ffrecord.inputs.rows import TableRows, check_names
from ffrecord.inputs.stores import read_probes
from ffrecord.kernels._memory import Mapping
from ffrecord.reading.indices import spread_indices
from ffrecord.reading.paths import check_type, resolve_directory
from ffrecord.sources import files
from ffrecord.sources.files import add_hint_to_errors
from ffrecord.sources.registry import SUFFIXES, ends_as, partition_of
from ffrecord.system import filesystems
from ffrecord.system.requirements import require

logger = logging.getLogger("ffrecord")

MISSING = "__HIVE_DEFAULT_PARTITION__"
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # numbers without leading zeros, which int() would lose


class PartitionFile(NamedTuple):
    """A file, and the partition that the names of its directories give.

    Attributes:
        path: path of the file.
        values: column → value as text; None: missing.
    """

    path: str
    values: dict[str, str | None]


def expand(source: Sequence[Any], suffixes: Sequence[str]) -> list[PartitionFile]:
    """Return the files of `source`: paths, patterns, and directories with or without partitions.

    Raises:
        FormatError: files of one directory have different partition columns.
        The errors of `files.expand`.
    """
    found: list[PartitionFile] = []
    for each in source:
        # The link is followed once, so that all files come from one directory.
        parts = list(_find_files(resolve_directory(check_type(each)), {}, suffixes)) if os.path.isdir(each) else []
        # Without partitions, the usual rules for paths hold.
        if not any(part.values for part in parts):
            parts = [PartitionFile(path, {}) for path in files.expand(each, suffixes)]
        else:
            files.warn_of_missing([part.path for part in parts])
        found += parts
    if not found:
        raise ArgumentError(f"there is nothing to open in {source!r}")
    # A file of another layout has other columns.
    for part in found:
        if part.values.keys() != found[0].values.keys():
            raise FormatError(
                f"{part.path}: its partitions are {list(part.values)}, those of {found[0].path} are "
                f"{list(found[0].values)}; convert these files separately"
            )
    return found


def _find_files(directory: str, values: dict[str, str | None], suffixes: Sequence[str]) -> Iterator[PartitionFile]:
    """Yield the files in a directory and in its partitions, in string order."""
    for name in sorted(os.listdir(directory)):
        path, partition = os.path.join(directory, name), partition_of(name)
        if partition is not None and os.path.isdir(path):
            # `__HIVE_DEFAULT_PARTITION__` is how Hive and Spark write a missing value.
            key, text = map(_unquote, partition)
            yield from _find_files(path, {**values, key: None if text == MISSING else text}, suffixes)
        # Spark and others keep their own files under names with "." or "_".
        elif ends_as(name, suffixes) and not name.startswith((".", "_")) and os.path.isfile(path):
            yield PartitionFile(path, values)
        elif not name.startswith((".", "_")) and _holds_files(path, suffixes):
            logger.warning("%s: its name is not that of a partition, such as year=2024: its files are left out", path)


def _unquote(text: str) -> str:
    """Return a text without %-escapes; as it is if they are not of UTF-8, so that different ones stay different."""
    with suppress(UnicodeDecodeError):
        return unquote(text, errors="strict")
    return text


def _holds_files(directory: str, suffixes: Sequence[str]) -> bool:
    """Tell whether a path is a directory with files that end in one of `suffixes`."""
    with suppress(OSError):
        return any(ends_as(name, suffixes) for name in os.listdir(directory))
    return False


def partition_columns(parts: Sequence[PartitionFile], there: Sequence[str]) -> dict[str, Any]:
    """Return the columns that the names of directories give, one value for each file: numbers if all are, else text.

    Args:
        parts: the files.
        there: columns of the files themselves; they take precedence over the names of directories, which is logged.
    """
    arrow = require("pyarrow", "parquet", "reading Parquet files")
    found = {}
    for name in parts[0].values:
        if name in there:
            said = "is in the files, so its values in the names of directories are left out"
            logger.warning("%s: column %r %s", parts[0].path, name, said)
            continue
        values = [part.values[name] for part in parts]
        # At least one value: nothing but None has no numbers.
        numbers = all(value is None or NUMBER.fullmatch(value) for value in values) and any(values)
        held = [value if value is None or not numbers else int(value) for value in values]
        found[name] = arrow.array(held, arrow.int64() if numbers else arrow.string())
    return found


UNKNOWN = (-1, -1)  # bounds of a column without statistics: -1 is no number of a class


class Nulls:
    """The missing values of the columns of files: from statistics, or by reading where these are incomplete.

    Args:
        skips: whether row groups that cannot be read are left out.

    Attributes:
        found: column → number of missing values.
    """

    def __init__(self, skips: bool) -> None:
        self.found: dict[str, Missing] = {}
        self._skips = skips

    def add(self, schema: Any, file: Any) -> None:
        """Add the missing values of a file with this schema."""
        spans = _spans_of_columns(file)
        for each in schema:
            # Statistics are of the writer's choice, and may be missing for each row group.
            said = [_null_count(file, i, spans.get(each.name)) for i in range(file.num_row_groups)]
            if _is_null(each.type):
                # The type says it all: each value is missing.
                said = [file.metadata.num_rows]
            # Statistics of nested columns count the leaves, not which level is missing.
            unknown = [i for i, count in enumerate(said) if count is None or (count and not _is_flat(each.type))]
            total = Missing(sum(count or 0 for count in said) if _is_flat(each.type) else 0)
            # The schema forbids missing values, so nothing is read.
            if _is_required(each):
                unknown = []
            before = self.found.get(each.name, Missing())
            # Not read if the field would be the same, or both counts are known to be more than zero.
            if unknown and depends_on_nulls(each.type) and not (before.values and before.inside):
                total = _add(total, self._count(file, each.name, unknown))
            self.found[each.name] = _add(before, total)

    def _count(self, file: Any, name: str, groups: list[int]) -> Missing:
        """Read a column of some row groups and count its missing values."""
        total = Missing()
        for i in groups:
            try:
                # Without threads: a thread pool of Arrow does not survive a fork.
                table = file.read_row_group(i, columns=[name], use_threads=False)
            except (pyarrow().ArrowException, OSError) as error:
                if not self._skips or isinstance(error, MemoryError):
                    raise
                # A row group of which no row can be read shows nothing.
                continue
            total = _add(total, count_missing(table.column(name)))
        return total


def _add(one: Missing, other: Missing) -> Missing:
    """Add up missing values."""
    return Missing(one.values + other.values, one.inside + other.inside)


def _is_flat(kind: Any) -> bool:
    """Tell whether values of a type have no values inside."""
    return leaves(kind) == 1 and not children(plain_type(kind))


def _is_required(column: Any) -> bool:
    """Tell whether neither a value of a column nor a value inside it may be missing."""
    kind = plain_type(column.type)
    inside = [kind.field(i) for i in range(kind.num_fields)] if children(kind) else []
    return not column.nullable and all(map(_is_required, inside))


def _spans_of_columns(file: Any) -> dict[str, range]:
    """Return the flat columns of a file that make up each column; {} if their numbers do not match."""
    found, start = {}, 0
    for each in file.schema_arrow:
        found[each.name] = range(start, start + leaves(each.type))
        start = found[each.name].stop
    # An unusual schema: better read than count the wrong column.
    return found if start == file.metadata.num_columns else {}


def _null_count(file: Any, group: int, span: range | None) -> int | None:
    """Return the number of missing values that the statistics of a row group give for a column; None if they do not."""
    if span is None:
        return None
    statistics = [file.metadata.row_group(group).column(i).statistics for i in span]
    if any(each is None or not each.has_null_count for each in statistics):
        return None
    return sum(int(each.null_count) for each in statistics)


def join_schemas(schema: Any, other: Any, first: str, path: str) -> Any:
    """Return the common schema of two files. A column of nulls only takes the type of the other file.

    Args:
        schema: schema of the files so far.
        other: schema of another file.
        first: path of the first file, for messages.
        path: path of the other file.

    Raises:
        FormatError: columns have other names, types or classes; names them.
    """
    names, others = list(schema.names), list(other.names)
    # Order does not matter: rows are read by name.
    if sorted(names) != sorted(others):
        strange = [f"{name!r} is only in {first}" for name in names if name not in others]
        strange += [f"{name!r} is only in {path}" for name in others if name not in names]
        raise FormatError(
            f"{path}: its columns differ from those of {first}: {'; '.join(strange)}; give them the same columns, or "
            "convert these files separately"
        )
    kinds = [(each, other.field(each.name)) for each in schema]
    wrong = [
        f"{one.name!r} is {two.type} here and {one.type} there"
        for one, two in kinds
        # A file whose column is all null says nothing about its type.
        if one.type != two.type and not (_is_null(one.type) or _is_null(two.type))
    ]
    if wrong:
        raise FormatError(
            f"{path}: the types of its columns differ from those of {first}: {'; '.join(wrong)}; give them one type, "
            "or convert these files separately"
        )
    classes, here = classes_of_schema(schema), classes_of_schema(other)
    strange = [name for name in names if name in classes and here.get(name, classes[name]) != classes[name]]
    if strange:
        raise FormatError(
            f"{path}: the classes of column {strange[0]!r} are {here[strange[0]]}, and in {first} "
            f"{classes[strange[0]]}; convert these files separately, with one LabelField for both in fields="
        )
    for one, two in kinds:
        if _is_null(one.type):  # the type comes from the file that has values
            schema = schema.set(schema.get_field_index(one.name), two)
    return schema


def _is_null(kind: Any) -> bool:
    return bool(kind == pyarrow().null())


def widen_bounds(bounds: dict[str, tuple[int, int]], file: Any) -> None:
    """Widen the bounds of each integer column by those of a file. A column without statistics becomes UNKNOWN."""
    spans = _spans_of_columns(file)
    for i in range(file.num_row_groups):
        for name, span in spans.items():
            statistics = file.metadata.row_group(i).column(span.start).statistics if len(span) == 1 else None
            low, high = UNKNOWN
            # Statistics may be bytes or floats; only ints can be numbers of classes.
            if statistics is not None and statistics.has_min_max and isinstance(statistics.min, int):
                low, high = statistics.min, statistics.max
            before = bounds.get(name, (low, high))
            bounds[name] = min(low, before[0]), max(high, before[1])


def _are_inside(bounds: tuple[int, int], classes: Classes) -> bool:
    """Tell whether all numbers of a column are those of classes. A -1 for "no class" is not."""
    return isinstance(classes, tuple) and bounds[0] >= 0 and bounds[1] < len(classes)


FEW, GROUPS = 64, 3  # rows that decide the columns, and row groups they come from


class ParquetDataset:
    """Rows of Parquet files, one file after the other, by index. It is pickled by the names of the files.

    A process keeps the row group that it read last, decoded. Rows in order are cheap; a row elsewhere costs the
    decoding of its row group.

    Args:
        paths: files, directories or patterns of such.
        fields: fields that the user asks for, see `columns.chosen`.
        skips: as for `StoreDataset`.

    Attributes:
        columns: columns of the result.

    Raises:
        FileNotFoundError: a file does not exist.
        FormatError: a file is no Parquet file, is damaged, or has other columns than the first file.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, paths: Sequence[Any], fields: Any = None, *, skips: bool = False) -> None:
        found = expand(list(paths), SUFFIXES["parquet"])
        self._paths = [each.path for each in found]
        self._kept: tuple[int, int, Any] | None = None  # (process, number of the row group, its table)
        self._opened: _OpenedParquet | None = None
        groups: list[tuple[int, int, int]] = []  # (file, row group, rows)
        schema: Any = None
        nulls = Nulls(skips)
        bounds: dict[str, tuple[int, int]] = {}
        # Each footer is read now: a file of other columns is found before anything is written.
        for number, path in enumerate(self._paths):
            with _translate_errors(path):
                file = self._file(number).file
                kinds = file.schema_arrow
                check_names(kinds.names)
                schema = kinds if schema is None else join_schemas(schema, kinds, self._paths[0], path)
                groups += [(number, i, file.metadata.row_group(i).num_rows) for i in range(file.num_row_groups)]
                # Only statistics, so no row is decoded.
                widen_bounds(bounds, file)
                nulls.add(kinds, file)
        self._partitions = partition_columns(found, schema.names)
        # The partition's columns are as real as those in the files.
        for name, values in self._partitions.items():
            schema = schema.append(pyarrow().field(name, values.type))
            nulls.found[name] = Missing(values.null_count)
        self._types = {each.name: each.type for each in schema}
        self._groups = groups
        self._ends = np.cumsum([rows for _, _, rows in groups], dtype=np.int64)  # int64: more rows than fit in 32 bits
        with _translate_errors(self._paths[0]):
            classes = {name: each for name, each in classes_of_schema(schema).items() if name in schema.names}
            fits = [name for name, each in classes.items() if _are_inside(bounds.get(name, UNKNOWN), each)]
            self._rows = TableRows(schema, nulls.found, classes, fields, fits=fits)
        # Values show what the types leave open, such as JPEGs in bytes.
        rows = self._probe_rows(skips)
        samples = [sample for _, sample in rows]
        names = [self._describe_row(index) for index, _ in rows]
        facts = ColumnFacts(fields=self._rows.fields, classes=self._rows.classes)
        self.columns = choose_columns(samples, fields, facts, names) if samples else None

    def _probe_rows(self, skips: bool) -> list[tuple[int, dict[str, Any]]]:
        """Read (index, row) of at most three row groups: each group must be decoded for it."""
        indices: list[int] = []
        for group in spread_indices(len(self._groups), GROUPS):
            indices += self._spread_indices(group, FEW // GROUPS)
        return read_probes(indices, lambda wanted: zip(wanted, self._read(wanted), strict=True), skips)

    def _describe_row(self, index: int) -> str:
        """Return the name of a row for messages, with its file and its number there."""
        number = self._groups[int(np.searchsorted(self._ends, index, side="right"))][0]
        before = sum(rows for file, _, rows in self._groups if file < number)
        return f"row {index - before} of {self._paths[number]}"

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the rows, 64 hexadecimal digits.

        It depends on the sizes and times of the files, and on the partitions that they are in.
        """
        # Size and time: Parquet has no checksum of the whole file.
        status = [os.stat(path) for path in self._paths]
        told = repr([(each.st_size, each.st_mtime_ns) for each in status])
        if self._partitions:
            told += repr({name: values.to_pylist() for name, values in self._partitions.items()})
        return hashlib.sha256(told.encode()).hexdigest()

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of these rows one worker should take.

        A task ends with the last row group that ends in it. Otherwise two workers would decode the same row group.
        """
        # Row groups that end at or before the last row.
        ended = int(np.searchsorted(self._ends, indices[-1] + 1, side="right"))
        # Rows of a shuffled order lie in many row groups anyway.
        if not ended or not are_consecutive(indices):
            return len(indices)
        # The last row group that ends here is whole; the rest belongs to the next task.
        count = int(self._ends[ended - 1]) - int(indices[0])
        return count if count > 0 else len(indices)

    def samples_to_look_at(self, count: int) -> list[int]:
        """Return up to `count` rows of the row group that `_probe_rows` read last. Forked processes have it decoded."""
        groups = spread_indices(len(self._groups), GROUPS)
        return self._spread_indices(groups[-1], count) if groups else []

    def _spread_indices(self, group: int, count: int) -> list[int]:
        """Return the indices of up to `count` rows of a group."""
        end, rows = int(self._ends[group]), self._groups[group][2]
        return [end - rows + i for i in spread_indices(rows, count)]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError(f"{self._paths[0]}: the files have no rows")
        return [self.columns.prepare(sample) for sample in self._read(indices)]

    def _read(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        wanted = np.asarray(indices, np.int64)
        groups = np.searchsorted(self._ends, wanted, side="right")
        found: list[dict[str, Any]] = []
        # Each stretch of one row group is decoded once.
        for part in np.split(np.arange(len(wanted)), np.flatnonzero(np.diff(groups)) + 1):
            if len(part):
                found += self._rows_of_group(int(groups[part[0]]), wanted[part])
        return found

    def _rows_of_group(self, group: int, indices: Any) -> list[dict[str, Any]]:
        number, row_group, rows = self._groups[group]
        with _translate_errors(self._paths[number]):
            places = indices - (int(self._ends[group]) - rows)
            table = self._load_group(group, number, row_group, places)
            try:
                rows = take_rows(table, places)
                return self._rows.samples(self._complete_columns(rows, number))
            except RowError as error:
                # The number of the row in its file, as other programs count.
                before = sum(size for file, other, size in self._groups if file == number and other < row_group)
                raise FormatError(f"row {before + int(places[error.place])}: {error}") from None

    def _complete_columns(self, table: Any, number: int) -> Any:
        """Return rows with the types that all files have in common, and with the columns of the file's partition."""
        for place, column in enumerate(table.schema):
            # All rows need the types of the common schema.
            if column.type != self._types[column.name]:  # this file has only nulls in the column
                table = table.set_column(place, column.name, table.column(place).cast(self._types[column.name]))
        for name, values in self._partitions.items():
            table = table.append_column(name, values.take(pyarrow().array([number] * len(table), "int64")))
        return table

    def _load_group(self, group: int, number: int, row_group: int, places: Any) -> Any:
        """Return the decoded table of a group.

        A table that the parent process has decoded is used only for consecutive rows, which are a slice of it.
        """
        kept = self._kept
        if kept is not None and kept[1] == group and (kept[0] == os.getpid() or are_consecutive(places)):
            return kept[2]
        self._kept = kept = None  # free the old table first: two may not fit in memory
        opened = self._file(number)
        try:
            # Without threads: a thread pool of Arrow does not survive a fork.
            table = opened.file.read_row_group(row_group, use_threads=False)
        # A lost page read as zeros, which pyarrow may take for data.
        finally:
            if opened.mapped is not None and not opened.mapped.is_whole():
                # The next row opens it again; the file may be whole then.
                self._opened = None
                path = self._paths[number]
                raise file_error(EIO, f"{path}: a part of row group {row_group} could not be read", path)
        if opened.mapped is not None:
            opened.mapped.mapping.drop_pages()  # the kernel counts mapped pages as memory of this process
        self._kept = os.getpid(), group, table
        return table

    def _file(self, number: int) -> "_OpenedParquet":
        """Return a file that this process has opened. The file used last stays open."""
        # A forked child, or a thread without the guard, opens the file anew.
        opened = self._opened
        if opened is None or opened[:2] != (os.getpid(), number) or not opened.is_safe():
            with _translate_errors(self._paths[number]):
                self._opened = opened = _open_parquet(os.getpid(), number, self._paths[number])
        return opened

    def close(self) -> None:
        """Close the file that is open. The next row opens it again."""
        self._kept = self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        # Tables and open files do not pickle; the copy reads its own.
        return {**self.__dict__, "_kept": None, "_opened": None}


class _OpenedParquet(NamedTuple):
    """An open file.

    Attributes:
        process, number: process that opened it, and number of the file.
        file: the file of pyarrow.
        mapped: its mapping; None if it is read by system calls.
    """

    process: int
    number: int
    file: Any
    mapped: "_MappedTable | None"

    def is_safe(self) -> bool:
        """Tell whether a page that cannot be read leaves this thread's process alive."""
        return self.mapped is None or self.mapped.mapping.guarded


class _MappedTable:
    """A mapping of a whole file. Pages that cannot be read, as the file was cut, read as zeros.

    Raises:
        OSError, ValueError: the file cannot be mapped, or is empty.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._size = os.fstat(self._fd).st_size
        if filesystems.from_type(filesystem_type(self._fd)).network:
            raise OSError(ENODEV, "not mapped, as a page fault would wait for a server")
        self.mapping = Mapping(self._fd, self._size)

    def is_whole(self) -> bool:
        """Tell whether everything read so far was in the file.

        Only the size shows that a page was cut in the middle.
        """
        # The last page is filled with zeros behind a cut, without any error.
        return not self.mapping.lost and os.fstat(self._fd).st_size >= self._size

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


def _open_parquet(process: int, number: int, path: str) -> _OpenedParquet:
    """Open a file, mapped if that is safe, which saves a copy of every row group.

    The tables of pyarrow are copies in any case.
    """
    module = require("pyarrow.parquet", "parquet", "reading Parquet files")
    mapped = None
    with suppress(OSError, ValueError):  # reading by system calls raises the error again, if there is one
        mapped = _MappedTable(path)
    # Without a guard a lost page would kill the process.
    if mapped is not None and not mapped.mapping.guarded:
        mapped = None
    source = path if mapped is None else pyarrow().py_buffer(mapped.mapping)
    try:
        # `pre_buffer` would read whole row groups ahead, in threads of Arrow.
        file = module.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
    finally:
        # Also if pyarrow refused the zeros of a lost page with a message of its own.
        if mapped is not None and not mapped.is_whole():
            raise file_error(EIO, f"{path}: its footer could not be read", path)
    return _OpenedParquet(process, number, file, mapped)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Raise errors of pyarrow as FormatError, with the file's name."""
    base = pyarrow().ArrowException
    try:
        with add_place_to_memory_errors(lambda: path):
            yield
    except MemoryError:  # that of pyarrow is an ArrowException, too, but no fault of the file
        raise
    except (base, UnicodeDecodeError, OSError, FormatError) as error:
        # With an errno it is an error of the system, not of the format.
        if isinstance(error, OSError) and error.errno:
            raise
        if str(error).startswith(f"{path}: "):
            raise
        with add_hint_to_errors(path):
            raise FormatError(f"{path}: {error}") from error

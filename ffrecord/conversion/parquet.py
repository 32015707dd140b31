"""Rows of Parquet files by index: footers, hive partitions, values."""

import hashlib
import json
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
from ffrecord.errors import ArgumentError, FormatError, file_error
from ffrecord.inputs.arrow_types import Missing, children, depends_on_nulls, leaves, plain_type, pyarrow
from ffrecord.inputs.arrow_values import RowError, count_missing
from ffrecord.inputs.columns import ColumnFacts, choose_columns
from ffrecord.inputs.rows import TableRows, check_names
from ffrecord.inputs.stores import read_probes, spread_indices
from ffrecord.kernels._memory import Mapping
from ffrecord.reading.paths import check_type
from ffrecord.sources import files
from ffrecord.sources.registry import SUFFIXES, ends_as, partition_of
from ffrecord.system import filesystems
from ffrecord.system.optional import require

MISSING = "__HIVE_DEFAULT_PARTITION__"
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as numbers are written: leading zeros would be lost


class PartitionFile(NamedTuple):
    """A file, and what the directories around it say.

    Attributes:
        path: of the file.
        values: column → value as text; None: missing.
    """

    path: str
    values: dict[str, str | None]


def expand(source: Sequence[Any], suffixes: Sequence[str]) -> list[PartitionFile]:
    """Return the files that `source` stands for, as `files.expand` finds them, also in partitioned directories.

    Raises:
        FormatError: files of one directory have other partitions.
        As `files.expand`.
    """
    found: list[PartitionFile] = []
    for each in source:
        parts = list(_below(check_type(each), {}, suffixes)) if os.path.isdir(each) else []
        if not any(part.values for part in parts):
            parts = [PartitionFile(path, {}) for path in files.expand(each, suffixes)]
        found += parts
    if not found:
        raise ArgumentError(f"nothing to open in {source!r}")
    for part in found:
        if part.values.keys() != found[0].values.keys():
            raise FormatError(
                f"{part.path}: partitions {list(part.values)}, {found[0].path}: {list(found[0].values)}; convert these "
                "files apart"
            )
    return found


def _below(directory: str, values: dict[str, str | None], suffixes: Sequence[str]) -> Iterator[PartitionFile]:
    """Yield the files in a directory and in its partitions, in string order."""
    for name in sorted(os.listdir(directory)):
        path, partition = os.path.join(directory, name), partition_of(name)
        if partition is not None and os.path.isdir(path):
            key, text = map(unquote, partition)
            yield from _below(path, {**values, key: None if text == MISSING else text}, suffixes)
        elif ends_as(name, suffixes) and not name.startswith((".", "_")) and os.path.isfile(path):
            yield PartitionFile(path, values)


def columns(parts: Sequence[PartitionFile], there: Sequence[str]) -> dict[str, Any]:
    """Return the columns that the names of directories are, one value for each file: numbers if all are, else text.

    Args:
        there: columns that the files have themselves; directories do not say these.
    """
    arrow = require("pyarrow", "parquet", "reading Parquet files")
    found = {}
    for name in parts[0].values:
        if name in there:
            continue
        values = [part.values[name] for part in parts]
        numbers = all(value is None or NUMBER.fullmatch(value) for value in values) and any(values)
        held = [value if value is None or not numbers else int(value) for value in values]
        found[name] = arrow.array(held, arrow.int64() if numbers else arrow.string())
    return found


UNKNOWN = (-1, -1)  # numbers, none of which is a class


class Nulls:
    """What is missing in the columns of files: by what the files say, or by looking where that does not tell.

    Args:
        skips: whether to do without row groups that cannot be read.

    Attributes:
        found: column → what is missing.
    """

    def __init__(self, skips: bool) -> None:
        self.found: dict[str, Missing] = {}
        self._skips = skips

    def add(self, schema: Any, file: Any) -> None:
        """Add what is missing in a file of this schema."""
        spans = _spans_of_columns(file)
        for each in schema:
            said = [_said(file, i, spans.get(each.name)) for i in range(file.num_row_groups)]
            if _is_null(each.type):
                said = [file.metadata.num_rows]
            unknown = [i for i, count in enumerate(said) if count is None or (count and not _is_flat(each.type))]
            total = Missing(sum(count or 0 for count in said) if _is_flat(each.type) else 0)
            if _is_required(each):
                unknown = []
            before = self.found.get(each.name, Missing())
            if unknown and depends_on_nulls(each.type) and not (before.values and before.inside):
                total = _plus(total, self._counted(file, each.name, unknown))
            self.found[each.name] = _plus(before, total)

    def _counted(self, file: Any, name: str, groups: list[int]) -> Missing:
        """Look into a column of some row groups."""
        total = Missing()
        for i in groups:
            try:
                # Without threads: a pool of theirs does not survive a fork.
                table = file.read_row_group(i, columns=[name], use_threads=False)
            except (pyarrow().ArrowException, OSError):
                if not self._skips:
                    raise
                continue
            total = _plus(total, count_missing(table.column(name)))
        return total


def _plus(one: Missing, other: Missing) -> Missing:
    """Add up what is missing."""
    return Missing(one.values + other.values, one.inside + other.inside)


def _is_flat(kind: Any) -> bool:
    """Tell whether values have no values inside."""
    return leaves(kind) == 1 and not children(plain_type(kind))


def _is_required(column: Any) -> bool:
    """Tell whether no value of a column, nor what is inside of one, may be missing."""
    kind = plain_type(column.type)
    inside = [kind.field(i) for i in range(kind.num_fields)] if children(kind) else []
    return not column.nullable and all(map(_is_required, inside))


def _spans_of_columns(file: Any) -> dict[str, range]:
    """Return which columns of a file, which are flat, make up each of those that users know; {} if nobody knows."""
    found, start = {}, 0
    for each in file.schema_arrow:
        found[each.name] = range(start, start + leaves(each.type))
        start = found[each.name].stop
    return found if start == file.metadata.num_columns else {}


def _said(file: Any, group: int, span: range | None) -> int | None:
    """Return how many values a row group says are missing in the flat columns of one; None: it does not say."""
    if span is None:
        return None
    statistics = [file.metadata.row_group(group).column(i).statistics for i in span]
    if any(each is None or not each.has_null_count for each in statistics):
        return None
    return sum(int(each.null_count) for each in statistics)


def joined(schema: Any, other: Any, first: str, path: str) -> Any:
    """Return the schema of files that have one or the other; a column of nulls only takes any type.

    Raises:
        FormatError: columns of other names or types; names them.
    """
    names, others = list(schema.names), list(other.names)
    if sorted(names) != sorted(others):
        strange = [f"{name!r} is only in {first}" for name in names if name not in others]
        strange += [f"{name!r} is only in {path}" for name in others if name not in names]
        raise FormatError(
            f"{path}: other columns than in {first}: {'; '.join(strange)}; give them the same, or convert these files "
            "apart"
        )
    kinds = [(each, other.field(each.name)) for each in schema]
    wrong = [
        f"{one.name!r} is {two.type} here and {one.type} there"
        for one, two in kinds
        if one.type != two.type and not (_is_null(one.type) or _is_null(two.type))
    ]
    if wrong:
        raise FormatError(
            f"{path}: columns of other types than in {first}: {'; '.join(wrong)}; give them one type, or convert these "
            "files apart"
        )
    for one, two in kinds:
        if _is_null(one.type):
            schema = schema.set(schema.get_field_index(one.name), two)
    return schema


def _is_null(kind: Any) -> bool:
    return bool(kind == pyarrow().null())


def widen(bounds: dict[str, tuple[int, int]], file: Any) -> None:
    """Take in the least and the greatest number of each column of integers; without an entry, nobody knows."""
    spans = _spans_of_columns(file)
    for i in range(file.num_row_groups):
        for name, span in spans.items():
            statistics = file.metadata.row_group(i).column(span.start).statistics if len(span) == 1 else None
            low, high = UNKNOWN
            if statistics is not None and statistics.has_min_max and isinstance(statistics.min, int):
                low, high = statistics.min, statistics.max
            before = bounds.get(name, (low, high))
            bounds[name] = min(low, before[0]), max(high, before[1])


def fitting(classes: dict[str, list[str]], bounds: dict[str, tuple[int, int]]) -> dict[str, list[str]]:
    """Return the classes of columns of which all numbers are one: -1 for an unknown one is not."""
    return {
        name: names
        for name, names in classes.items()
        if bounds.get(name, UNKNOWN)[0] >= 0 and bounds.get(name, UNKNOWN)[1] < len(names)
    }


def classes_of(schema: Any) -> dict[str, list[str]]:
    """Return the names of classes, where Hugging Face's library wrote the file and left them."""
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
        found = expand(list(paths), SUFFIXES["parquet"])
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
        self._partitions = columns(found, schema.names)
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
        self.columns = choose_columns(samples, fields, facts) if samples else None

    def _few(self, skips: bool) -> list[dict[str, Any]]:
        """Rows of three row groups at most: each costs its decoding."""
        indices: list[int] = []
        for group in spread_indices(len(self._groups), GROUPS):
            indices += self._spread(group, FEW // GROUPS)
        return read_probes(indices, self._read, skips)

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
        groups = spread_indices(len(self._groups), GROUPS)
        return self._spread(groups[-1], count) if groups else []

    def _spread(self, group: int, count: int) -> list[int]:
        """Indices of up to `count` rows of a group."""
        end, rows = int(self._ends[group]), self._groups[group][2]
        return [end - rows + i for i in spread_indices(rows, count)]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError(f"{self._paths[0]}: no rows")
        return [self.columns.prepare(sample) for sample in self._read(indices)]

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
            opened.mapped.mapping.drop_pages()  # its pages would be counted as this process's memory
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
        if filesystems.from_type(filesystem_type(self._fd)).network:
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

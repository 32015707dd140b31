"""Reader of one or many `.ffr` files as one sequence of samples."""

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.errors import (
    ArgumentError,
    ClosedError,
    FFRecordError,
    FormatError,
    SampleIndexError,
    TruncatedError,
    escape_unprintable,
    name_files,
)
from ffrecord.fields import Schema, schema_of
from ffrecord.fields.labels import class_names_of, describe_other_class
from ffrecord.format.extension import Extension
from ffrecord.reading import paths, shard_list
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.record_reader import RecordReader, check_io
from ffrecord.reading.store import Indices, OnError, check_on_error
from ffrecord.system.sample_types import Sample_co
from ffrecord.system.values import whole_number

PIECES_AHEAD = 3  # pieces read ahead in a sequence of remote files; a piece has 4 MiB and is one request
SHOWN = 8  # names of columns in a message
LEGACY_WARNING = "warning: you are using an old version ffrecord file, please update the file"


class FileReader(RecordReader[Sample_co]):
    """Reader of one or many files whose samples share one numbering.

    Args:
        fname: a file; a directory (the shards of its dataset.json, else its `*.ffr` in string order); a glob pattern;
            or a list or tuple of these, in order. It may also be the URL of a `.ffr` file or of a dataset with a
            dataset.json, or a list of URLs: see `docs/remote.md`.
        check_data: compare the CRC-32 of the tables on opening, and of every sample on reading.
        io: how to read. "auto" learns from batch to batch what is cached, and reads accordingly (see `stats`).
            "pread" makes one plain read after the other. "direct" bypasses the page cache with Linux AIO, where the
            file system allows it. "mmap" maps the files and checks samples in place: `read` returns read-only views
            and copies nothing. But if a page cannot be read, because the disk fails or somebody truncates the file,
            the process is killed by SIGBUS.
        on_error: how `read` and `read_packed` treat a sample that cannot be read. "raise" raises the error. "skip"
            leaves the sample out and counts it in `skipped`. A callable gets the exception and returns the bytes to
            use instead, as a buffer or array. Each such sample is logged, and after SKIPPED_MOST of them the next one
            raises. A lack of memory is always raised, and so is a failure of the network or the storage, which hits
            all samples.
        storage_options: for URLs: credentials, addresses and limits.
        cache_dir: for URLs: a directory, made if need be, that keeps the data read, for later epochs and other
            processes. No path may begin with `~`, which only the shell expands: take os.path.expanduser.
        cache_limit: maximum bytes in `cache_dir`, as an int or a text such as "100GB"; None for no limit.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `fname` is wrong.
        FormatError: a file is damaged, unfinished or not an FFRecord file.
        ChecksumError: the tables of a file do not match their CRC-32.
        RemoteError: the object of a URL cannot be read.

    Threads may share a reader. You may fork at any time. You may pickle it: the copy opens the same paths again.
    It holds at most 1,024 files open, or a quarter of the soft limit of descriptors if that is less. It opens other
    files when you read them.

    Type checkers know the type of its samples if you declare it: `reader: FileReader[Picture] = FileReader(path)`.
    """

    # No attributes of our own in __dict__: it holds those of subclasses, and is pickled.
    __slots__ = ("_given", "_remote", "_schema")

    format: ClassVar[str] = "ffrecord"
    checksum = "CRC-32"

    def __init__(
        self,
        fname: paths.Source | paths.Pinned,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: paths.PathLike | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        check_on_error(on_error)
        check_io(io)
        self._schema: list[Schema | None] = []
        files: list[Any]
        engine = self._remote = None
        self._given: str | None = None
        if isinstance(fname, paths.Pinned) or paths.is_remote(fname):
            from ffrecord.remote import opening

            self._remote = opening.Remote(fname, storage_options, cache_dir, cache_limit)
            files, engine = self._remote.open(check=bool(check_data), io=io)
        else:
            files = shard_list.open_all(fname, check=bool(check_data), whole=io == "mmap")
            self._given = _find_link(fname, files[0].path)
        super().__init__(files, check_data, io=io, on_error=on_error, engine=engine)
        if self._check_data:
            self._warn_legacy()

    # Properties

    @property
    def extension(self) -> Extension | None:
        """Extension block of the files: their schema and metadata; None if they have none.

        Raises:
            FormatError: the files have different schemas.
        """
        first: Extension | None = self._files[0].extension
        # For remote datasets, compare one shard of each: the others cost a request each, and the writer of dataset.json
        # made sure that they agree.
        others = self._files if self._remote is None else [self._files[i] for i in self._remote.firsts]
        for opened in others[1:]:
            if not (opened.extension or Extension()).has_same_schema(first):
                where = _describe_difference(opened.extension or Extension(), first or Extension())
                raise FormatError(f"{opened.path}: its schema differs from that of {self._fnames[0]}{where}")
        return first

    @property
    def file_sizes(self) -> list[int]:
        """Size of each file in bytes when it was opened; for a URL, the size in its dataset.json."""
        return [opened.size for opened in self._files]

    @property
    def last_offsets(self) -> list[int]:
        """Offset of the last sample of each file in bytes; 0 for a file without samples.

        An offset beyond the file's size shows that the file was truncated. It is read from the tables. The list is
        empty for URLs, because it would need the tables of all files.
        """
        return [int(opened.offsets[-1]) if opened.n else 0 for opened in self._files] if self._remote is None else []

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> Indices:
        """Return the sizes of the samples at `indices` in bytes: int64 [k].

        The sizes come from the tables and are not checked. A sample beyond the end of a truncated file has size -1.
        Raises the same errors as `read`.
        """
        positions = self._normalize_indices(indices)
        sizes = super().record_sizes(positions)
        empty = np.flatnonzero(sizes == 0)
        if len(empty) and self._remote is None:
            sizes[empty[self._find_misplaced(positions[empty])]] = -1
        return sizes

    def _find_misplaced(self, positions: Indices) -> npt.NDArray[np.bool_]:
        """Return a mask of the samples at `positions` that end before they begin, or beyond the end of their file."""
        starts = np.cumsum([0, *(opened.n for opened in self._files)])
        numbers = np.searchsorted(starts, positions, side="right") - 1
        found = np.zeros(len(positions), np.bool_)
        for number in np.unique(numbers):
            mine, opened = numbers == number, self._file(number)
            local, offsets = positions[mine] - starts[number], opened.offsets
            ends = np.where(local + 1 < opened.n, offsets[np.minimum(local + 1, opened.n - 1)], opened.size)
            found[mine] = (ends > opened.size) | (offsets[local] > ends)
            opened.check_all_there()
        return found

    def fingerprint(self, shards: SupportsIndex | None = None) -> str:
        """Return 64 hexadecimal digits that identify these samples, wherever the files are.

        They are the SHA-256 of (samples, size in bytes, CRC-32 of the tables) of each file in order, as little-endian
        int64. The tables contain the CRC-32 of each sample. Nothing is read. Old files have no CRC-32 of their tables,
        so only their numbers and sizes count.

        Args:
            shards: number of files to include, 0 <= shards <= number of files; all by default. Files that are added
                after them do not change the result.

        Raises:
            ValueError, TypeError: `shards` is out of range, or no int.
        """
        count = len(self._files) if shards is None else whole_number("shards", shards)
        if not 0 <= count <= len(self._files):
            raise ArgumentError(f"shards is {count}, expected 0 to {len(self._files)}")
        numbers = [(opened.n, opened.size, opened.crc) for opened in self._files[:count]]
        return hashlib.sha256(np.array(numbers, "<i8").tobytes()).hexdigest()

    @property
    def _pieces_ahead(self) -> int:
        # One piece at a time would not keep all allowed connections busy.
        return super()._pieces_ahead if self._remote is None else PIECES_AHEAD

    @property
    def _foresees(self) -> bool:
        return self._remote is not None

    def _forecast(self) -> Any:
        return None if self._remote is None else self._engine.forecast()

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        """Decode records by the schema of the files, if they have one."""
        if not self._schema:
            self._schema.append(schema_of(self))
        schema = self._schema[0]
        if schema is None:
            return super()._decode(positions, records)
        return [schema.decode(record) for record in records]

    def _column_types(self) -> Mapping[str, str]:
        schema = schema_of(self)
        return {} if schema is None else {name: repr(field) for name, field in schema.fields.items()}

    # Tables

    def validate(self) -> None:
        """Check the tables of all files against their CRC-32 again. It also works after `close`.

        Raises:
            ChecksumError: a table does not match.
        """
        for i in range(len(self._files)):
            self._file(i).check_header()
        self._warn_legacy()

    def _warn_legacy(self) -> None:
        for opened in self._files:
            if opened.crc == 0:
                warnings.warn(escape_unprintable(f"{opened.path}: {LEGACY_WARNING}"), UserWarning, stacklevel=3)

    def _file(self, file_index: SupportsIndex) -> OpenedFile:
        i = whole_number("file_index", file_index)
        if not -len(self._files) <= i < len(self._files):
            raise SampleIndexError(
                f"file_index is {i}, expected {-len(self._files)} <= file_index < {len(self._files)}"
            )
        opened: OpenedFile = self._files[i]
        size = self._engine.size_now(i % len(self._files))
        # Beyond the end of a truncated file, its mapped tables would read as zeros.
        if size is not None and size < opened.data_start:
            raise TruncatedError(
                f"{opened.path}: the file was cut to {size} bytes, its tables alone have {opened.data_start}"
            )
        return opened

    def get_offsets(self, file_index: SupportsIndex) -> npt.NDArray[np.int64]:
        """Return the offsets of the samples of a file: int64 [n_file + 1], bytes; the last entry is the file's size."""
        opened = self._file(file_index)
        offsets = np.append(opened.offsets, np.int64(opened.size))
        opened.check_all_there()
        return offsets

    def get_checksums(self, file_index: SupportsIndex) -> npt.NDArray[np.uint32]:
        """Return the stored CRC-32 of the samples of a file: uint32 [n_file]."""
        opened = self._file(file_index)
        checksums = opened.checksums.copy()
        opened.check_all_there()
        return checksums

    def loc(self, indices: Iterable[SupportsIndex]) -> tuple[list[int], list[int]]:
        """Return (offsets, sizes) in bytes of samples; the reader must have exactly one file.

        Raises:
            ValueError: the reader has several files.
            IndexError: an index is out of range.
        """
        if len(self._files) != 1:
            raise ValueError(f"loc reads one file, this reader has {len(self._files)}; use get_offsets(file_index)")
        table, positions = self.get_offsets(0), self._normalize_indices(indices)
        return table[positions].tolist(), (table[positions + 1] - table[positions]).tolist()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"FileReader has been closed. {name_files(self._fnames)}")

    # Pickling

    def _options(self) -> dict[str, Any]:
        return super()._options() | ({} if self._remote is None else self._remote.options)

    def __reduce__(self) -> tuple[Any, ...]:
        source = self._fnames if self._remote is None else paths.Pinned(self._remote.source, self._remote.counts)
        return (
            _reopen,
            (type(self), source, self._check_data, self._options(), self.fingerprint(), self._given),
            self.__dict__ or None,
        )


def _reopen(
    cls: type[FileReader],
    fnames: paths.Source | paths.Pinned,
    check_data: bool,
    options: dict[str, Any],
    fingerprint: str,
    given: str | None = None,
) -> FileReader:
    """Unpickle a reader: open the same files by path. A subclass gets its own attributes back afterwards.

    Args:
        given: the directory as the user gave it, if its path contains a link. On another machine the link may lead
            elsewhere.
    """
    reader = cls.__new__(cls)
    if given is not None and not isinstance(fnames, paths.Pinned) and not os.path.exists(_first_path(fnames)):
        fnames = given
    FileReader.__init__(reader, fnames, check_data, **options)
    if reader.fingerprint() != fingerprint:
        reader.close()
        raise FFRecordError(
            f"{name_files(reader.fnames)}: the files differ from those that this reader was pickled with"
        )
    return reader


def _first_path(fnames: paths.Source) -> paths.PathLike:
    return fnames[0] if isinstance(fnames, list | tuple) else fnames  # type: ignore[return-value]


def _find_link(fname: paths.Source, first: str) -> str | None:
    """Return the directory as it was given, if its first file was found through a link."""
    if not isinstance(fname, str | os.PathLike) or not os.path.isdir(fname):
        return None
    path = os.path.abspath(os.fspath(fname))
    return None if os.path.dirname(os.path.abspath(first)) == path else path


def _describe_difference(one: Extension, other: Extension) -> str:
    """Return a text that names the first column in which two schemas differ, or the order of columns.

    It is "" if neither differs, or a schema cannot be decoded.
    """
    try:
        schemas = [Schema.from_builtins(each.schema).fields if each.schema else {} for each in (one, other)]
    except FormatError:
        return ""
    here, there = schemas
    for name in [*here, *there]:
        if here.get(name) != there.get(name):
            return f": column {name!r} is {here.get(name, 'missing')}, there {there.get(name, 'missing')}" + (
                describe_other_class(class_names_of(here.get(name)), class_names_of(there.get(name)))
            )
    orders = [*here], [*there]
    at = next((i for i, pair in enumerate(zip(*orders, strict=True)) if pair[0] != pair[1]), None)
    if at is None:
        return ""
    ours, theirs = (", ".join(map(repr, names[at : at + SHOWN])) for names in orders)
    return (
        f": the same columns in another order, from column {at} on {ours}, there {theirs}; ffrecord.convert gives it "
        "that order with fields=ffrecord.fields.schema_of(reader), where `reader` reads the other"
    )

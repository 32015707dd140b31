"""Readers of MosaicML's MDS datasets, in place."""

import logging
import os
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, SupportsIndex

import numpy as np

from ffrecord.engine._engine import PACKED
from ffrecord.errors import DAMAGE, ArgumentError, FormatError, name_files
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.reading.paths import check_type, local_path, resolve_directory
from ffrecord.reading.record_reader import RecordReader, check_io
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices, OnError, Store
from ffrecord.sources.files import add_hint_to_errors
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.mds.encodings import MDSLayout
from ffrecord.sources.mds.index import NAME, MDSShard, distinct, read_index, shard_offsets
from ffrecord.sources.mds.unpacked import UNPACKERS, ShardFile, UnpackedShards, check_hash, shard_file
from ffrecord.system import filesystems
from ffrecord.system.closing import open_all
from ffrecord.system.sizes import Size, parse_size

CACHE_BYTES = 8 << 30
SHARD = re.compile(rf"shard\.\d+\.mds(\.({'|'.join(UNPACKERS)}))?")  # the name that streaming gives to shards
Directories = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

logger = logging.getLogger("ffrecord")


class MDSReader(Store):
    """Samples of MDS datasets, version 2, as MosaicML's streaming writes them.

    Shards that are not compressed are read in place. A compressed one is decompressed when you read a sample of it.

    The record of a sample, as `read` gives it, is its bytes in the shard: sizes of values that vary, then all values.

    Args:
        source: a directory with index.json, or a list of these, one after the other.
        check_data: when opening, compare the columns in the shards with the index. There are no checksums of samples;
            see `validate_hash`.
        io, on_error: see `FileReader`.
        index_cache: accepted as for other formats, but not needed: shards begin with their index.
        decode: decode JPEG and PNG to arrays; otherwise they stay bytes, and nothing is lost.
        columns: names of the wanted columns, in this order; all by default.
        allow_pickle: load pickles in columns of encoding "pkl", which may run any code. Otherwise `samples` raises if
            such a column is wanted.
        validate_hash: algorithm of the hashes in the index to compare, as "sha1" or "xxh64": of all files, read whole
            when opening; of compressed shards when they are decompressed.
        cache_dir: directory for decompressed shards, for other processes and for later; nothing there is ever removed.
            By default, each process decompresses the shards that it reads into unnamed files in the directory for
            temporary files.
        cache_bytes: most bytes of these unnamed files, also as text such as "8GB"; the one in use is always kept. The
            least recently used one is dropped first, and decompressed again if you read it again.

    Raises:
        FileNotFoundError: no index.json, or a shard is missing.
        FormatError: not such a dataset, cut short, or inconsistent.
        ChecksumError: a hash does not match.
        ValueError: `columns` names a column that does not exist.
        ImportError: a shard needs a package that is not installed.
    """

    format = "mds"

    def __new__(cls, source: Directories = (), *args: Any, **options: Any) -> "MDSReader":
        """Make a reader in place if no shard is compressed."""
        found = _find_shards(source) if cls is MDSReader else []
        if found and not any(each.packed for each in found):
            # It is a subclass, so Python calls `__init__` on it, too.
            return super().__new__(MDSInPlaceReader)  # pyright: ignore[reportArgumentType]  # it is one
        return super().__new__(cls)

    def __init__(
        self,
        source: Directories,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        decode: bool = False,
        columns: Sequence[str] | None = None,
        allow_pickle: bool = False,
        validate_hash: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_bytes: Size = CACHE_BYTES,
    ) -> None:
        check_io(io)
        self._directories = _directories(source)
        self._shards = _find_shards(source)
        settings: dict[str, Any] = {
            "io": io,
            "decode": bool(decode),
            "columns": None if columns is None else list(columns),
            "allow_pickle": bool(allow_pickle),
            "validate_hash": validate_hash,
            "cache_dir": None if cache_dir is None else local_path("cache_dir", cache_dir),
            "cache_bytes": parse_size("cache_bytes", cache_bytes, least=0),
        }
        self._layouts, self._kind = _layouts(self._shards, columns, bool(decode), bool(allow_pickle))
        self._firsts = np.cumsum([0, *(each.shard.samples for each in self._shards)], dtype=np.int64)
        if validate_hash is not None:
            _check_hashes(self._shards, validate_hash)
        self._begin_reading(check_data, on_error, settings)

    def _begin_reading(self, check_data: object, on_error: OnError, settings: dict[str, Any]) -> None:
        check, io = bool(check_data), settings["io"]

        def open_shard(path: str, found: ShardFile) -> RecordReader:
            return _ShardReader([_open(path, found, check, io == "mmap")], check_data, io=io)

        limits = settings["cache_dir"], settings["cache_bytes"], settings["validate_hash"]
        self._unpacked = UnpackedShards(*limits, open_shard)
        # A dataset without shards has only its index.
        paths = [each.path for each in self._shards] or [os.path.join(each, NAME) for each in self._directories]
        super().__init__(paths, int(self._firsts[-1]), check_data, on_error=on_error, settings=settings)

    @property
    def io(self) -> str:
        """The way of reading: "auto", "pread", "direct" or "mmap"."""
        return str(self._settings["io"])

    def columns(self, indices: Iterable[SupportsIndex]) -> dict[str, Any]:
        """Read the samples at `indices` by columns.

        There is no Python object for each value that is a number or an array.

        Args:
            indices: see `read`.

        Returns:
            Name → array [k, ...] for numbers, and for arrays whose dtype and shape the encoding says; a list of k
            values, as in `samples`, for others.

        Raises:
            The exceptions of `samples`; ValueError: the samples are from shards with different columns.
        """
        (data, offsets), positions = self._read_with_positions(PACKED, indices)
        # An empty batch has the columns of the first shard.
        kinds = np.unique(self._kind_of(positions)) if len(positions) else np.zeros(1, np.int64)
        if len(kinds) > 1:
            raise ArgumentError(
                f"{name_files(self._fnames)}: the samples are from shards with different columns; use `samples` instead"
            )
        if not self._layouts:
            return {}
        layout = self._layouts[kinds[0]]
        bounds, wrong = layout.starts(data, offsets)
        if wrong >= 0:
            # Decode the wrong sample alone, which raises the error with its index.
            self._decode(positions[wrong : wrong + 1], [data[offsets[wrong] : offsets[wrong + 1]]])
        return {layout.names[place]: self._column(layout, place, data, bounds, positions) for place in layout.wanted}

    def _column(self, layout: MDSLayout, place: int, data: Array, bounds: Indices, positions: Indices) -> Any:
        whole = layout.column(place, data, bounds)
        if whole is not None:
            return whole
        values = []
        for cut, position in zip(layout.cuts(place, data, bounds), positions.tolist(), strict=True):
            try:
                values.append(layout.value(place, cut))
            except FormatError as error:
                raise self._name_error(error, position) from None
        return values

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        position = self._normalize_index(index)
        number = int(np.searchsorted(self._firsts, position, "right")) - 1
        return self._fnames[number], position - int(self._firsts[number])

    # Methods for Store

    def _load(self, positions: Indices) -> list[Array | Exception]:
        numbers = np.searchsorted(self._firsts, positions, "right") - 1
        # Errors at first, so that no record can be missed silently.
        records: list[Array | Exception] = [FormatError("it was not read; please report this")] * len(positions)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            for place, record in zip(places.tolist(), self._of_shard(number, positions[places]), strict=True):
                records[place] = record
        return records

    def _of_shard(self, number: int, positions: Indices) -> list[Array | Exception]:
        try:
            shard = self._unpacked.get(self._shards[number])
            records: list[Array | Exception] = shard._load(positions - self._firsts[number])
        # Records of other shards may still be good.
        except (FormatError, OSError) as error:
            return [self._name_error(error, position) for position in positions.tolist()]
        return records

    def _release(self) -> None:
        self._unpacked.clear()

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        return self._decode_columns(positions, records, None)

    def _decode_columns(self, positions: Indices, records: list[Array], wanted: Collection[str] | None) -> list[Any]:
        samples = []
        for position, kind, record in zip(positions.tolist(), self._kind_of(positions).tolist(), records, strict=True):
            try:
                samples.append(self._layouts[kind].sample(record, wanted))
            except FormatError as error:
                raise self._name_error(error, position) from None
        return samples

    def _varies(self, column: str) -> bool:
        layouts = [layout for layout in self._layouts if column in layout.names]
        return any(layout.encodings[layout.names.index(column)].size is None for layout in layouts)

    def _source(self) -> Any:
        return self._directories

    def _kind_of(self, positions: Indices) -> Indices:
        """Return which set of columns each sample has."""
        kinds: Indices = self._kind[np.searchsorted(self._firsts, positions, "right") - 1]
        return kinds

    def _name_error(self, error: Exception, position: int) -> Exception:
        """Return `error` with its sample in the message."""
        path, local = self.locate(position)
        message = str(error)
        where = f"Sample {position}: " + ("" if message.startswith(path) else f"{path}: sample {local}: ")
        if isinstance(error, OSError) and error.errno:
            return type(error)(error.errno, where + str(error.strerror), error.filename)
        return type(error)(where + message)


class _ShardReader(RecordReader):
    """One decompressed shard."""

    format = "mds"


class MDSInPlaceReader(MDSReader, RecordReader):
    """An `MDSReader` of shards that are not compressed: all of them are read through the batch engine."""

    def _begin_reading(self, check_data: object, on_error: OnError, settings: dict[str, Any]) -> None:
        io = settings["io"]
        files = open_all(_open(each.path, each, bool(check_data), io == "mmap") for each in self._shards)
        RecordReader.__init__(self, files, check_data, io=io, on_error=on_error, settings=settings)

    # Not the methods of `MDSReader`, which go shard by shard.
    locate = RecordReader.locate  # pyright: ignore[reportAssignmentType]  # it is one
    _load = RecordReader._load  # pyright: ignore[reportAssignmentType]
    # It has no `_unpacked` to clear.
    _release = Store._release


def _open(path: str, found: ShardFile, check: bool, whole: bool) -> SpanFile:
    """Open an uncompressed shard."""
    with add_hint_to_errors(found.path), add_path_to_errors(found.path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            offsets = shard_offsets(fd, status.st_size, found.shard, check)
        finally:
            os.close(fd)
    return SpanFile(path, offsets[:-1], np.diff(offsets), whole=whole, status=status)


def _directories(source: Directories) -> list[str]:
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths = [check_type(each) for each in given]
    if not paths:
        raise ArgumentError(f"there is nothing to open: the {type(source).__name__} is empty")
    # A path of index.json stands for its directory.
    return [os.path.dirname(each) or "." if os.path.basename(each) == NAME else each for each in paths]


def _find_shards(source: Directories) -> list[ShardFile]:
    # Links are resolved once, so that index and shards are of one directory.
    directories = list(map(resolve_directory, _directories(source)))
    shards: list[list[MDSShard]] = [read_index(directory) for directory in directories]
    for directory, each in zip(directories, shards, strict=True):
        _log_unlisted(directory, each)
    return list(chain.from_iterable(
        [_find_shard(directory, shard) for shard in each] for directory, each in zip(directories, shards, strict=True)
    ))  # fmt: skip


def _log_unlisted(directory: str, shards: list[MDSShard]) -> None:
    """Log the shards of a directory that its index.json does not list, as before streaming's `merge_index`."""
    listed = {file.basename for shard in shards for file in (shard.raw_data, shard.zip_data) if file is not None}
    try:
        names = filesystems.list_names(directory)
    except OSError:  # its files may be read all the same
        return
    found = sorted(name for name in names if SHARD.fullmatch(name) and name not in listed)
    if found:
        logger.warning(
            "%s: %s not in its %s, such as %s, and not read: merge the indexes, or convert the directories one by one",
            directory,
            "1 shard is" if len(found) == 1 else f"{len(found)} shards are",
            NAME,
            found[0],
            extra=DAMAGE,
        )


def _find_shard(directory: str, shard: MDSShard) -> ShardFile:
    packed = shard.raw_data if shard.zip_data is None else shard.zip_data
    with add_hint_to_errors(os.path.join(directory, packed.basename)):
        return shard_file(directory, shard)


def _layouts(
    shards: list[ShardFile], columns: Sequence[str] | None, decode: bool, allow_pickle: bool
) -> tuple[list[MDSLayout], Indices]:
    """Return the distinct sets of columns, and which of them each shard has: int64 [shards]."""
    kinds, which = distinct([each.shard for each in shards])
    layouts = []
    for number, kind in enumerate(kinds):
        # The first shard with these columns.
        with add_path_to_errors(shards[int(np.argmax(which == number))].path):
            layouts.append(MDSLayout(kind, columns, decode, allow_pickle))
    return layouts, which


def _check_hashes(shards: list[ShardFile], algorithm: str) -> None:
    """Compare uncompressed shards with the hashes in the index.

    Compressed ones are compared when they are decompressed.
    """
    for each in shards:
        if not each.packed:
            check_hash(each.path, each.shard.raw_data, algorithm)

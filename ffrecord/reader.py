"""Read one or many `.ffr` files as one sequence of samples."""

import logging
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ffrecord import _engine, manifest, paths
from ffrecord._crc import crc32
from ffrecord.buffers import as_bytes
from ffrecord.errors import ClosedError, FFRecordError, FormatError, SampleIndexError, TruncatedError
from ffrecord.extension import Extension
from ffrecord.failures import failure_error
from ffrecord.indices import as_indices, as_int64
from ffrecord.manifest import Shard
from ffrecord.opened import OpenedFile

Array = npt.NDArray[np.uint8]
OnError = str | Callable[[Exception], Array]
T = TypeVar("T")

LEGACY_WARNING = "warning: you are using an old version ffrecord file, please update the file"
CHUNK_BYTES = 4 << 20  # iteration reads about this much at a time
CHUNK_MOST = 1024
SKIPPED_MOST = 10_000  # samples of one reader; a dataset with more of them bad is to be mended, not trained on

logger = logging.getLogger("ffrecord")


class FileReader:
    """Samples of one or many files, numbered through.

    Args:
        fname: a file; a list or tuple of files; a directory (the shards of its dataset.json, else its `*.ffr` in string
            order); or a glob pattern.
        check_data: compare CRC-32 of tables when opening and of every sample when reading.
        io: "auto" takes from the page cache what is there and waits for the rest; "pread" reads one run after the
            other; "direct" reads around the page cache with Linux AIO where the file system allows.
        on_error: what a sample that cannot be read does to `read` and `read_packed`: "raise"; "skip", left out and
            counted in `skipped`; or a callable that gets the exception and returns the bytes to use instead, as a
            buffer or array. Each is logged, and after SKIPPED_MOST of them the next one raises.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `fname`.
        FormatError: a file is damaged, unfinished or none of ours.
        ChecksumError: the tables of a file do not match their CRC-32.

    A reader may be shared by threads, forked at any time, and pickled (by name: it opens its files again).
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_check_data",
        "_engine",
        "_files",
        "_fnames",
        "_io",
        "_on_error",
        "_warned",
        "skipped",
    )

    def __init__(
        self,
        fname: paths.Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
    ) -> None:
        if io not in _engine.MODES:
            raise ValueError(f"io is {io!r}, expected one of {', '.join(_engine.MODES)}")
        if not callable(on_error) and on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is {on_error!r}, expected 'raise', 'skip' or a callable")
        self._fnames, shards = paths.expand(fname)
        self._check_data = bool(check_data)
        self._io = io
        self._on_error = on_error
        self._warned = False
        self.skipped = 0
        self._files: list[OpenedFile] = []
        try:
            for path in self._fnames:
                self._files.append(OpenedFile(path, check=self._check_data))
            for opened, shard in zip(self._files, shards or (), strict=bool(shards)):
                _compare(opened, shard)
            self._engine = _engine.Files([(f.fd, f.size, f.n, f.data_start, f.mapping) for f in self._files])
        except BaseException:
            for opened in self._files:
                os.close(opened.fd)
            raise
        if self._check_data:
            self._warn_legacy()

    # What it is

    @property
    def n(self) -> int:
        """Number of samples in all files."""
        return self._engine.n

    @property
    def fnames(self) -> list[str]:
        """The files, as given or found."""
        return list(self._fnames)

    @property
    def check_data(self) -> bool:
        """Whether checksums are compared."""
        return self._check_data

    @property
    def io(self) -> str:
        """How it reads: "auto", "pread" or "direct"."""
        return self._io

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._engine.closed

    @property
    def extension(self) -> Extension | None:
        """What the files say about themselves; None if they say nothing.

        Raises:
            FormatError: they have different schemas.
        """
        first = self._files[0].extension
        for opened in self._files[1:]:
            if not (opened.extension or Extension()).same_schema(first):
                raise FormatError(f"{opened.path}: its schema differs from that of {self._fnames[0]}")
        return first

    def __len__(self) -> int:
        return self._engine.n

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<{type(self).__name__} of {self.n} samples in {len(self._fnames)} files, {self._fnames[0]!r} …{state}>"

    # Reading

    def read(self, indices: Iterable[SupportsIndex]) -> list[Array]:
        """The samples at `indices`, all read in one batch.

        Args:
            indices: [k] ints in [-n, n), negative ones from the end; repeats allowed; order kept.

        Returns:
            k writable 1-D uint8 arrays that share no bytes. A small one keeps up to 512 KiB of its batch alive: copy
            what you keep for long.

        Raises:
            IndexError: an index is out of range; nothing was read.
            TypeError: not a sequence of ints.
            ChecksumError: a sample's bytes do not match; .path, .index, .stored, .computed.
            FormatError: a sample's bytes are not there (also an OSError), or its offsets contradict the file.
            OSError: the read failed.
            RuntimeError (also ValueError): closed.
        """
        positions = as_indices(indices)
        arrays, failures = self._run(self._engine.read, positions)
        return self._without(failures, positions, arrays) if failures else arrays

    def read_packed(self, indices: Iterable[SupportsIndex]) -> tuple[Array, npt.NDArray[np.int64]]:
        """The samples at `indices`, back to back: no Python object per sample.

        Args:
            indices: as for `read`.

        Returns:
            (data, offsets): uint8 [sum of sizes] and int64 [k + 1]; sample j is `data[offsets[j]:offsets[j + 1]]`.

        Raises:
            As for `read`.
        """
        positions = as_indices(indices)
        data, offsets, failures = self._run(self._engine.read_packed, positions)
        if not failures:
            return data, offsets
        arrays = [data[low:high] for low, high in pairwise(offsets)]
        arrays = self._without(failures, positions, arrays)
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return np.concatenate([*arrays, np.empty(0, np.uint8)]), offsets

    def read_one(self, index: SupportsIndex) -> Array:
        """Sample `index`; arguments and errors as for `read`. "skip" raises here: there is nothing else to return."""
        positions = np.array([as_int64(index)], np.int64)
        arrays, failures = self._run(self._engine.read, positions)
        if failures and not callable(self._on_error):
            raise self._error(failures[0], positions)
        return (self._without(failures, positions, arrays) if failures else arrays)[0]

    @overload
    def __getitem__(self, index: SupportsIndex) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSlice": ...
    @overload
    def __getitem__(self, index: Iterable[SupportsIndex]) -> list[Array]: ...

    def __getitem__(self, index: Any) -> Any:
        """One sample for an int, a lazy `SampleSlice` for a slice, `read(index)` for several indices."""
        if isinstance(index, slice):
            return SampleSlice(self, range(self.n)[index])
        if isinstance(index, SupportsIndex) and not getattr(index, "shape", ()):
            return self.read_one(index)
        return self.read(index)

    def __iter__(self) -> Iterator[Array]:
        return self._iterate(range(self.n))

    def _iterate(self, indices: range) -> Iterator[Array]:
        mean = max(1, sum(f.size for f in self._files) // max(self.n, 1))
        step = min(max(CHUNK_BYTES // mean, 1), CHUNK_MOST)
        for start in range(0, len(indices), step):
            part = indices[start : start + step]
            yield from self.read(np.arange(part.start, part.stop, part.step))

    def _run(self, read: Callable[..., T], positions: npt.NDArray[np.int64]) -> T:
        try:
            result = read(positions, _engine.MODES[self._io], self._check_data, self._on_error != "raise")
        except ClosedError as error:
            raise ClosedError(f"{error} {self._fnames[0]} …") from None
        except IndexError as error:
            index, n = positions[error.args[0]], self.n
            raise SampleIndexError(
                f"index >= number of samples ({index} >= {n}): {self._fnames[0]} …"
                if index >= n
                else f"index {index}, expected {-n} <= index < {n}: {self._fnames[0]} …"
            ) from None
        if self._engine.aio_error and not self._warned:
            self._warned = True
            logger.warning("Linux AIO refused (%s)%s; reading without it", *_refusal(self._engine.aio_error))
        return result

    # Failures

    def _without(
        self, failures: list[_engine.Failure], positions: npt.NDArray[np.int64], arrays: list[Array]
    ) -> list[Array]:
        """`arrays` with the failed ones left out or replaced, as `on_error` says."""
        if self._on_error == "raise":
            raise self._error(failures[0], positions)
        result: list[Array | None] = list(arrays)
        for failure in failures:
            error = self._error(failure, positions)
            if self.skipped >= SKIPPED_MOST:
                raise error
            self.skipped += 1
            logger.warning("skipped or replaced: %s", error)
            result[failure.order] = _replacement(self._on_error(error)) if callable(self._on_error) else None
        return [array for array in result if array is not None]

    def _error(self, failure: _engine.Failure, positions: npt.NDArray[np.int64]) -> Exception:
        index = int(positions[failure.order])
        index += self.n if index < 0 else 0
        number, local = self._engine.locate(index)
        return failure_error(failure, self._files[number], index, local)

    # Tables

    def validate(self) -> None:
        """Check the tables of all files against their CRC-32, again; also after `close`.

        Raises:
            ChecksumError: they differ.
        """
        for i in range(len(self._files)):
            self._file(i).check_header()
        self._warn_legacy()

    def _warn_legacy(self) -> None:
        for opened in self._files:
            if opened.crc == 0:
                warnings.warn(f"{opened.path}: {LEGACY_WARNING}", UserWarning, stacklevel=3)

    def _file(self, file_index: SupportsIndex) -> OpenedFile:
        i = operator.index(file_index)
        if not -len(self._files) <= i < len(self._files):
            raise SampleIndexError(f"file {i}, expected {-len(self._files)} <= file_index < {len(self._files)}")
        opened, size = self._files[i], self._engine.size_now(i % len(self._files))
        # Looking at a table that is no longer there would kill the process.
        if size is not None and size < opened.data_start:
            raise TruncatedError(f"{opened.path}: cut to {size} bytes, its tables alone have {opened.data_start}")
        return opened

    def get_offsets(self, file_index: SupportsIndex) -> npt.NDArray[np.int64]:
        """Where the samples of a file start: int64 [n_file + 1], bytes; the last entry is the file's size."""
        opened = self._file(file_index)
        return np.append(opened.offsets, np.int64(opened.size))

    def get_checksums(self, file_index: SupportsIndex) -> npt.NDArray[np.uint32]:
        """Stored CRC-32 of the samples of a file: uint32 [n_file]."""
        return self._file(file_index).checksums.copy()

    def loc(self, indices: Iterable[SupportsIndex]) -> tuple[list[int], list[int]]:
        """(offsets, sizes) in bytes of samples of a reader of one file.

        Raises:
            ValueError: several files.
            IndexError: an index is out of range.
        """
        if len(self._files) != 1:
            raise ValueError(f"loc is for one file, this reader has {len(self._files)}")
        table = self.get_offsets(0)
        positions = as_indices(indices)
        bad = positions[(positions < -self.n) | (positions >= self.n)]
        if len(bad):
            raise SampleIndexError(f"index {bad[0]}, expected {-self.n} <= index < {self.n}: {self._fnames[0]}")
        positions = np.where(positions < 0, positions + self.n, positions)
        return table[positions].tolist(), (table[positions + 1] - table[positions]).tolist()

    # Life

    def close(self) -> None:
        """Close the files. A read in progress in another thread ends first; tables stay readable. May be repeated."""
        self._engine.close()

    def __enter__(self) -> "FileReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _identity(self) -> int:
        """One number that changes with any file's samples."""
        return crc32(np.array([(f.crc, f.n, f.size) for f in self._files], np.int64).tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"io": self._io, "on_error": self._on_error}
        return _reopen, (type(self), self._fnames, self._check_data, options, self._identity()), self.__dict__ or None


def _reopen(
    cls: type[FileReader], fnames: list[str], check_data: bool, options: dict[str, Any], identity: int
) -> FileReader:
    """Unpickle: open the same files by name; a subclass gets its own attributes back afterwards."""
    reader = cls.__new__(cls)
    FileReader.__init__(reader, fnames, check_data, **options)
    if reader._identity() != identity:
        raise FFRecordError(f"{fnames[0]} …: the files differ from those this reader was pickled with")
    return reader


class SampleSlice(Sequence[Array]):
    """A slice of a reader: reads when looked at, holds nothing. Slices of it are slices."""

    def __init__(self, reader: FileReader, indices: range) -> None:
        self._reader, self._indices = reader, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleSlice": ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return SampleSlice(self._reader, self._indices[index])
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise SampleIndexError(f"index {i} of a slice, expected {-len(self)} <= index < {len(self)}")
        return self._reader.read_one(self._indices[i])

    def __iter__(self) -> Iterator[Array]:
        return self._reader._iterate(self._indices)

    def __repr__(self) -> str:
        return f"<{self._indices} of {self._reader!r}>"


def _replacement(data: Any) -> Array:
    """What an `on_error` callable gave, as an array of its own."""
    return np.frombuffer(as_bytes(data), np.uint8).copy()


def _compare(opened: OpenedFile, shard: Shard) -> None:
    """Raise FormatError unless a shard is the one that dataset.json lists."""
    found, listed = (opened.n, opened.size, opened.crc), (shard.samples, shard.size, shard.crc)
    if found != listed:
        raise FormatError(f"{opened.path}: (samples, size, CRC-32 of tables) {found}, {manifest.NAME} says {listed}")


def _refusal(errno: int) -> tuple[str, str]:
    hint = ": fs.aio-max-nr is used up" if errno == 11 else ""
    return os.strerror(errno), hint

"""One or many `.ffr` files, opened and numbered through: what they are, before anything of their samples is read."""

import hashlib
import operator
import warnings
from collections.abc import Iterable
from errno import EMFILE, ENFILE
from types import TracebackType
from typing import SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord import _engine, manifest, paths
from ffrecord.errors import ArgumentError, FormatError, SampleIndexError, TruncatedError
from ffrecord.extension import Extension
from ffrecord.indices import as_indices, as_int64
from ffrecord.limits import descriptors
from ffrecord.manifest import Shard
from ffrecord.opened import OpenedFile

T = TypeVar("T", bound="FileSet")

LEGACY_WARNING = "warning: you are using an old version ffrecord file, please update the file"


class FileSet:
    """The files of a `FileReader`, which says what the arguments are and what they raise."""

    __slots__ = ("_check_data", "_engine", "_files", "_fnames", "_io")

    def __init__(self, fname: paths.Source, check_data: object, *, io: str) -> None:
        if io not in _engine.MODES:
            raise ValueError(f"io is {io!r}, expected one of {', '.join(_engine.MODES)}")
        self._fnames, shards = paths.expand(fname)
        self._check_data = bool(check_data)
        self._io = io
        self._files: list[OpenedFile] = []
        held_most = descriptors()
        try:
            for path in self._fnames:
                self._files.append(self._open(path, whole=io == "mmap"))
                if len(self._files) > held_most:
                    self._files[-1].close()
            for opened, shard in zip(self._files, shards, strict=True):
                if shard is not None:
                    _compare(opened, shard)
            self._engine = _engine.Files(self._files, io, held_most)
        except BaseException:
            for opened in self._files:
                opened.close()
            raise

    def _open(self, path: str, *, whole: bool) -> OpenedFile:
        try:
            return OpenedFile(path, check=self._check_data, whole=whole)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE):
                raise
            # Other readers have the rest: this one does with what it holds, and opens its files when it reads them.
            for opened in self._files:
                opened.close()
            return OpenedFile(path, check=self._check_data, whole=whole)

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
        """How it reads: "auto", "pread", "direct" or "mmap"."""
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

    def fingerprint(self, shards: SupportsIndex | None = None) -> str:
        """What tells these samples from others, wherever the files are: 64 hexadecimal digits.

        SHA-256 of (samples, size in bytes, CRC-32 of the tables, which hold that of each sample) of each file in order,
        as little-endian int64. Nothing is read for it. Old files, without a CRC-32 of their tables, are told by numbers
        and sizes only.

        Args:
            shards: of the first so many files, 0 <= shards <= number of files; all of them by default. Files added
                after them do not change it.

        Raises:
            ValueError: `shards` is out of range.
        """
        count = len(self._files) if shards is None else operator.index(shards)
        if not 0 <= count <= len(self._files):
            raise ArgumentError(f"shards is {count}, expected 0 to {len(self._files)}")
        numbers = [(opened.n, opened.size, opened.crc) for opened in self._files[:count]]
        return hashlib.sha256(np.array(numbers, "<i8").tobytes()).hexdigest()

    def __len__(self) -> int:
        return self._engine.n

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<{type(self).__name__} of {self.n} samples in {len(self._fnames)} files, {self._fnames[0]!r} …{state}>"

    def locate(self, index: SupportsIndex) -> tuple[str, int]:
        """Where sample `index` is, -n <= index < n: (name of its file, its index in that file).

        Raises:
            IndexError: out of range.
        """
        position = as_int64(index)
        if not -self.n <= position < self.n:
            raise SampleIndexError(f"index {position}, expected {-self.n} <= index < {self.n}: {self._fnames[0]} …")
        number, local = self._engine.locate(position % self.n)
        return self._fnames[number], local

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
        # What is no longer there would be read as zeros.
        if size is not None and size < opened.data_start:
            raise TruncatedError(f"{opened.path}: cut to {size} bytes, its tables alone have {opened.data_start}")
        return opened

    def get_offsets(self, file_index: SupportsIndex) -> npt.NDArray[np.int64]:
        """Where the samples of a file start: int64 [n_file + 1], bytes; the last entry is the file's size."""
        opened = self._file(file_index)
        offsets = np.append(opened.offsets, np.int64(opened.size))
        opened.check_all_there()
        return offsets

    def get_checksums(self, file_index: SupportsIndex) -> npt.NDArray[np.uint32]:
        """Stored CRC-32 of the samples of a file: uint32 [n_file]."""
        opened = self._file(file_index)
        checksums = opened.checksums.copy()
        opened.check_all_there()
        return checksums

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

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _compare(opened: OpenedFile, shard: Shard) -> None:
    """Raise FormatError unless a shard is the one that dataset.json lists."""
    found, listed = (opened.n, opened.size, opened.crc), (shard.samples, shard.size, shard.crc)
    if found != listed:
        raise FormatError(f"{opened.path}: (samples, size, CRC-32 of tables) {found}, {manifest.NAME} says {listed}")

"""Members of zip archives, read in place."""

import io
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord._columns import Slots
from ffrecord._crc import crc32
from ffrecord._memory import pooled
from ffrecord.errors import ArgumentError, ArgumentTypeError, ChecksumError, FFRecordError, FormatError
from ffrecord.failures import Array, Outcome
from ffrecord.indices import as_indices
from ffrecord.member_file import Checked, PulledRaw, SpanRaw, reopen
from ffrecord.paths import Source
from ffrecord.read_stats import ReadStats
from ffrecord.record_reader import RecordReader
from ffrecord.sources.files import expand
from ffrecord.sources.gathered import columns_of
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.named_files import NamedFiles
from ffrecord.sources.names import Names, joined
from ffrecord.sources.zip_codecs import ENCRYPTED, STORED, check_ratio, inflate, inflating, refusal, translated
from ffrecord.sources.zip_index import ZipIndex
from ffrecord.span_file import SpanFile
from ffrecord.store import THREADS, Form, Indices, OnError, Out, Store

SUFFIXES = (".zip",)
SUMMED = ("batches", "records", "bytes", "requests", "cached_bytes", "io_seconds", "crc_seconds", "waits", "open_files")
MAX_RATIO = 2000.0


class ZipReader(NamedFiles, RecordReader):
    """The members of zip archives, directories left out, as records and as files.

    Stored members are read in place by the batch engine. Deflated ones (zlib), bzip2 and LZMA (standard library) and
    zstd (`zstandard`) are decompressed. ZIP64, archive and member comments, data descriptors and bytes before the
    archive are understood; names are UTF-8 or code page 437, as each says.

    Args:
        path: an archive; a directory, whose `.zip` files are taken; a glob pattern; or a list of such. The members of
            several are numbered through, in the order of each directory.
        check_data: compare the directory's CRC-32 with what is read.
        io, on_error: as for `RecordReader`.
        index_cache: where to keep what opening found; see `ffrecord.sources.index_file.cached`.
        max_ratio: refuse to decompress what is said to be more than so many times its compressed size, when it is read;
            content of 16 MiB at most is always decompressed. Deflate cannot exceed 1032. None for no limit but what
            the directory says, beyond which nothing is decompressed in any case.

    Attributes:
        names, sizes, compressed_sizes, crcs, times, modes, methods, flags: of the members; see `ZipIndex`.

    Raises:
        FormatError: no zip archive, a damaged directory, or members that overlap. What concerns one member only, such
            as encryption, an unknown method or a damaged local header, is raised when it is read.
        OSError: a file cannot be opened.
    """

    format = "zip"
    checksum = "CRC-32"

    def __init__(
        self,
        path: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        max_ratio: float | None = MAX_RATIO,
    ) -> None:
        _check_ratio_option(max_ratio)
        paths = expand(path, SUFFIXES)
        status = [os.stat(each) for each in paths]
        indexes = [ZipIndex(each, index_cache) for each in paths]
        self._set_members(indexes)
        self._index_cache, self._max_ratio = index_cache, max_ratio
        super().__init__(_open(indexes, status, io), check_data, io=io, on_error=on_error)
        self._compressed: _Compressed | None = None
        if self._special is not None:
            try:
                self._compressed = _Compressed(_open(indexes, status, "auto", raw=True), False, io=_unmapped(io))
            except BaseException:
                super().close()
                raise

    def _set_members(self, indexes: list[ZipIndex]) -> None:
        self.names = joined([each.names for each in indexes])
        self._folder_names = joined([each.folders for each in indexes])
        self._starts = np.cumsum([0, *(len(each) for each in indexes)])
        self._data: npt.NDArray[np.int64] = _joined([each.data for each in indexes])
        self.sizes: npt.NDArray[np.int64] = _joined([each.sizes for each in indexes])
        self.compressed_sizes: npt.NDArray[np.int64] = _joined([each.compressed for each in indexes])
        self.crcs: npt.NDArray[np.uint32] = _joined([each.crcs for each in indexes])
        self.times: npt.NDArray[np.uint32] = _joined([each.times for each in indexes])
        self.modes: npt.NDArray[np.uint16] = _joined([each.modes for each in indexes])
        self.methods: npt.NDArray[np.uint16] = _joined([each.methods for each in indexes])
        self.flags: npt.NDArray[np.uint16] = _joined([each.flags for each in indexes])
        special = (self.methods != STORED) | (self.flags & ENCRYPTED != 0)
        special |= (self._data < 0) | (self.sizes != self.compressed_sizes)
        self._special = special if special.any() else None

    # What a store of named files gives

    def keys(self) -> Names:
        """The name of each member, in order."""
        return self.names

    def _folders(self) -> Names:
        return self._folder_names

    def _content_sizes(self) -> npt.NDArray[np.int64]:
        return self.sizes

    def _sizes(self, positions: Indices) -> Indices:
        return self.sizes[positions]

    def _record_name(self, file: int, local: int) -> str:
        return f"member {self.names[int(self._starts[file]) + local]!r}"

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "index_cache": self._index_cache, "max_ratio": self._max_ratio}

    def stats(self) -> ReadStats:
        """As of any `RecordReader`; of members that are compressed it counts the compressed bytes."""
        stats = super().stats()
        if self._compressed is None:
            return stats
        more = self._compressed.stats()
        known = [each for each in (stats, more) if each.cache_hit_share == each.cache_hit_share]
        share = sum(each.cache_hit_share * each.records for each in known) / max(1, sum(e.records for e in known))
        sums = {name: getattr(stats, name) + getattr(more, name) for name in SUMMED}
        return stats._replace(**sums, cache_hit_share=share if known else float("nan"))

    def close(self) -> None:
        self._background.close()
        super().close()
        if self._compressed is not None:
            self._compressed.close()

    # Batches

    def _now(self, form: Form, indices: Iterable[SupportsIndex], out: Out = None, go_on: bool = False) -> Outcome:
        positions = as_indices(indices)
        if self._all_plain(positions):
            return super()._now(form, positions, out, go_on)
        return Store._now(self, form, positions, out, go_on)

    def _begin(
        self,
        form: Form,
        indices: Iterable[SupportsIndex],
        out: Out = None,
        *,
        threads: int = THREADS,
        sequential: bool = False,
        go_on: bool = False,
    ) -> Callable[[], Outcome]:
        positions = as_indices(indices)
        if self._all_plain(positions):
            return super()._begin(form, positions, out, threads=threads, sequential=sequential, go_on=go_on)
        return Store._begin(self, form, positions, out, threads=threads, sequential=sequential, go_on=go_on)

    def _all_plain(self, positions: Indices) -> bool:
        """Whether the engine alone reads these; it also is who refuses indices out of range."""
        special = self._special
        if special is None or not len(positions):
            return True
        if positions.min() < -self.n or positions.max() >= self.n:
            return True
        return not special[positions].any()

    def _loaded(self, form: Form, positions: Indices, out: Out) -> Outcome:
        if isinstance(form, Slots):
            return Outcome(*columns_of(self._load(positions), form, out))
        return super()._loaded(form, positions, out)

    def _load(self, positions: Indices) -> list[Array | Exception]:
        special = np.zeros(len(positions), bool) if self._special is None else self._special[positions]
        result: list[Any] = [None] * len(positions)
        plain = np.flatnonzero(~special)
        for place, record in zip(plain, super()._load(positions[plain]), strict=True):
            result[place] = record
        packed = np.flatnonzero(special)
        if len(packed) and self._compressed is not None:
            for place, data in zip(packed, self._compressed._load(positions[packed]), strict=True):
                result[place] = self._content(int(positions[place]), data)
        return result

    def _content(self, index: int, data: Array | Exception) -> Array | Exception:
        """The content of a member that is not simply stored, from its compressed bytes."""
        try:
            self._check_readable(index)
            if isinstance(data, Exception):
                raise data
            out = self._inflated(index, data)
        except (FFRecordError, OSError, ImportError, MemoryError) as error:
            return error if isinstance(error, OSError) else self._about(index, error)
        return out

    def _inflated(self, index: int, data: Array) -> Array:
        size = int(self.sizes[index])
        check_ratio(size, len(data), self._max_ratio)
        content = inflate(int(self.methods[index]), data.data, size)
        out: Array = pooled(size)
        out[:] = np.frombuffer(content, np.uint8)
        stored = int(self.crcs[index])
        computed = crc32(out.data) if self.check_data else stored
        if computed != stored:
            raise ChecksumError(
                f"checksum mismached! CRC-32 {computed:#010x} of its {size} bytes of content, stored {stored:#010x}",
                stored=stored,
                computed=computed,
            )
        return out

    def _about(self, index: int, error: Exception) -> Exception:
        """The error with archive and member in its message."""
        number = int(np.searchsorted(self._starts, index, "right")) - 1
        message = f"Sample {index}: {self._fnames[number]}: member {self.names[index]!r}: {error}"
        if isinstance(error, ChecksumError):
            path = self._fnames[number]
            return ChecksumError(message, path=path, index=index, stored=error.stored, computed=error.computed)
        made = type(error)(message)
        made.__cause__ = error.__cause__
        return made

    def _check_readable(self, index: int) -> None:
        """Raise FormatError of a member that its own headers or this reader rule out."""
        method, size, compressed = int(self.methods[index]), int(self.sizes[index]), int(self.compressed_sizes[index])
        reason = refusal(method, int(self.flags[index]))
        if reason is None and self._data[index] < 0:
            reason = "where the directory says it is, there is no local header with its name"
        if reason is None and method == STORED and size != compressed:
            reason = f"it is stored, yet {size} bytes are said to be in {compressed}"
        if reason is not None:
            raise FormatError(reason)

    # Files

    def _open_index(self, index: int) -> io.RawIOBase:
        number = int(np.searchsorted(self._starts, index, "right")) - 1
        name, size = self.names[index], int(self.sizes[index])
        try:
            self._check_readable(index)
            check_ratio(size, int(self.compressed_sizes[index]), self._max_ratio)
        except FormatError as error:
            raise self._about(index, error) from None
        stored = int(self.crcs[index]) if self.check_data else None
        checked = Checked(self._fnames[number], f"member {name!r}", size, stored)
        if self.methods[index] == STORED:
            return SpanRaw(reopen(self._files[number]), int(self._data[index]), checked)
        span = Checked(checked.path, checked.name, int(self.compressed_sizes[index]), None)
        raw = SpanRaw(reopen(self._files[number]), int(self._data[index]), span)
        try:
            return PulledRaw(partial(self._pulling, index, raw), checked, raw.close)
        except BaseException:
            raw.close()
            raise

    def _pulling(self, index: int, raw: SpanRaw) -> Callable[[int], bytes]:
        """What reads the content of a member from its start, out of its compressed bytes."""
        raw.seek(0)
        try:
            read = inflating(int(self.methods[index]), raw.read, int(self.sizes[index]))
        except (FormatError, ImportError) as error:
            raise self._about(index, error) from None
        return partial(self._translated, index, read)

    def _translated(self, index: int, read: Callable[[int], bytes], most: int) -> bytes:
        try:
            with translated():
                return read(most)
        except FormatError as error:
            raise self._about(index, error) from error.__cause__


class _Compressed(RecordReader):
    """The members as they lie there, compressed."""

    format = "zip"


def _open(indexes: Sequence[ZipIndex], status: Sequence[os.stat_result], io: str, raw: bool = False) -> list[SpanFile]:
    files: list[SpanFile] = []
    try:
        for index, each in zip(indexes, status, strict=True):
            crcs, kind = (None, None) if raw else (index.crcs, "crc32")
            sizes = index.compressed
            files.append(SpanFile(index.path, index.data, sizes, crcs, kind, whole=io == "mmap", status=each))
    except BaseException:
        for file in files:
            file.close()
        raise
    return files


def _unmapped(io: str) -> str:
    return "auto" if io == "mmap" else io


def _joined(arrays: list[Any]) -> Any:
    """One after the other; a single one as it is, which may be a mapping."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _check_ratio_option(max_ratio: object) -> None:
    if max_ratio is None:
        return
    if isinstance(max_ratio, bool) or not isinstance(max_ratio, int | float):
        raise ArgumentTypeError(f"max_ratio must be a number or None, not {type(max_ratio).__name__}")
    if not max_ratio >= 1:
        raise ArgumentError(f"max_ratio is {max_ratio}, expected at least 1")

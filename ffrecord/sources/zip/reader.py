"""Readers of zip archives, in place."""

# Records are also read by name, so parameters have other names than in `Store`.
# pyright: reportIncompatibleMethodOverride=false

import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.folders.member_file import PulledRaw, RunningChecksum, SpanRaw, reopen
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.fallback_reader import FallbackReader
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.named_files import NamedFiles
from ffrecord.sources.names import Names
from ffrecord.sources.registry import SUFFIXES
from ffrecord.sources.zip.codecs import STORED, content_reader, translate_errors
from ffrecord.sources.zip.index import ZipIndex, ZipMembers
from ffrecord.system.closing import close_unless_done, open_all
from ffrecord.system.values import describe_wrong

MAX_RATIO = 2000.0


class ZipReader(NamedFiles, FallbackReader):
    """The members of zip archives, without directories, as records and as files.

    The batch engine reads stored members in place. Members compressed by deflate (zlib), bzip2 and LZMA (standard
    library) and zstd (`zstandard`) are decompressed. The reader understands ZIP64, comments of archives and members,
    data descriptors, and bytes before the archive. Names are UTF-8 or code page 437, as each entry says.

    Args:
        source: an archive; a directory, whose `.zip` files are read; a glob pattern; or a list of these. The members of
            several archives are numbered through, in the order of each directory.
        check_data: compare the CRC-32 of the directory with the content.
        io, on_error: see `RecordReader`.
        index_cache: place to keep the index; see `ffrecord.open`.
        max_ratio: refuse to decompress a member whose content is said to be more than so many times its compressed
            size. Content of at most 16 MiB is always decompressed. Deflate cannot exceed 1032. None for no such limit.
            Never is more decompressed than the directory says.

    Attributes:
        members: the facts in the directories; see `ZipMembers`.

    Raises:
        FormatError: not a zip archive, a damaged directory, or members that overlap. Problems of one member, such as
            encryption, an unknown method or a damaged local header, are raised when you read it.
        OSError: a file cannot be opened.
    """

    format = "zip"
    checksum = "CRC-32"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        max_ratio: float | None = MAX_RATIO,
    ) -> None:
        _check_ratio_option(max_ratio)
        paths = expand(source, SUFFIXES["zip"])
        # Before the indexes are made, so that a change meanwhile shows when the file is opened.
        status = [os.stat(each) for each in paths]
        indexes = [ZipIndex(each, index_cache) for each in paths]
        self.members = ZipMembers(indexes, max_ratio)
        settings = {"index_cache": index_cache, "max_ratio": max_ratio}
        super().__init__(_open(indexes, status, io), check_data, io=io, on_error=on_error, settings=settings)
        if self.members.special is not None:
            with close_unless_done([self]):
                self._inner = _Compressed(self.members, _open(indexes, status), "auto" if io == "mmap" else io)

    # Methods of a store of named files

    def keys(self) -> Names:
        """Return the name of each member, in order."""
        return self.members.names

    def _folders(self) -> Names:
        return self.members.folders

    def _content_sizes(self) -> npt.NDArray[np.int64]:
        return self.members.sizes

    def _sizes(self, positions: Indices) -> Indices:
        return self.members.sizes[positions]

    def _record_name(self, file: int, local: int) -> str:
        return self.members.name(file, local)

    # Batches

    def _find_special(self, positions: Indices) -> npt.NDArray[np.bool_] | None:
        special = self.members.special
        return None if special is None else special[positions]

    def _load_special(self, positions: Indices) -> list[Array | Exception]:
        result: list[Any] = [self.members.problem(index) for index in positions.tolist()]
        # A member with a problem is not read at all.
        packed = [place for place, problem in enumerate(result) if problem is None]
        if packed and self._inner is not None:
            for place, data in zip(packed, self._inner._load(positions[packed]), strict=True):
                if not isinstance(data, Exception):
                    data = self.members.content(int(positions[place]), data, self.check_data)
                result[place] = data
        return result

    # Files

    def _open_index(self, index: int) -> io.RawIOBase:
        members, number = self.members, self.members.archive(index)
        problem = members.problem(index)
        if problem is not None:
            raise problem
        path, name = self._fnames[number], f"member {members.names[index]!r}"
        checked = RunningChecksum(
            path, name, int(members.sizes[index]), int(members.crcs[index]) if self.check_data else None
        )
        offset = int(members.data[index])
        if members.methods[index] == STORED:
            return SpanRaw(reopen(self._files[number]), offset, checked)
        raw = SpanRaw(
            reopen(self._files[number]), offset, RunningChecksum(path, name, int(members.compressed[index]), None)
        )
        try:
            return PulledRaw(partial(self._content_reader, index, raw), checked, raw.close)
        # `PulledRaw` has not taken it over.
        except BaseException:
            raw.close()
            raise

    def _content_reader(self, index: int, raw: SpanRaw) -> Callable[[int], bytes]:
        """Return a function that reads the content of a member from its start, out of its compressed bytes."""
        raw.seek(0)
        try:
            method, flags = int(self.members.methods[index]), int(self.members.flags[index])
            read = content_reader(method, flags, raw.read, int(self.members.sizes[index]))
        except (FormatError, ImportError) as error:
            raise self.members.name_error(index, error) from None
        return partial(self._read_translated, index, read)

    def _read_translated(self, index: int, read: Callable[[int], bytes], most: int) -> bytes:
        try:
            with translate_errors():
                return read(most)
        except FormatError as error:
            raise self.members.name_error(index, error) from error.__cause__


class _Compressed(RecordReader):
    """The compressed bytes of members, as records."""

    format = "zip"

    def __init__(self, members: ZipMembers, files: list[SpanFile], io: str) -> None:
        self._members = members
        # Checksums of a zip are those of the content, not of these bytes.
        super().__init__(files, False, io=io)

    def _record_name(self, file: int, local: int) -> str:
        return self._members.name(file, local)


def _open(indexes: Sequence[ZipIndex], status: Sequence[os.stat_result], io: str | None = None) -> list[SpanFile]:
    """Open the archives, to be read by `io`; None means without checksums."""
    kind, whole = None if io is None else "crc32", io == "mmap"
    return open_all(
        SpanFile(each.path, each.data, each.compressed, each.crcs if kind else None, kind, whole=whole, status=then)
        for each, then in zip(indexes, status, strict=True)
    )


def _check_ratio_option(max_ratio: object) -> None:
    if max_ratio is None:
        return
    if isinstance(max_ratio, bool) or not isinstance(max_ratio, int | float):
        raise ArgumentTypeError(describe_wrong("max_ratio", max_ratio, "a number or None"))
    # `not`, since every comparison with NaN is False.
    if not max_ratio >= 1:
        raise ArgumentError(f"max_ratio is {max_ratio}, expected at least 1")

"""Readers of tar archives, in place."""

# Records are also read by name, so parameters have other names than in `Store`.
# pyright: reportIncompatibleMethodOverride=false

import io as streams
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import DAMAGE, FormatError
from ffrecord.folders.member_file import RunningChecksum, SpanRaw, reopen
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import Source
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.fallback_reader import FallbackReader
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.named_files import NamedFiles
from ffrecord.sources.names import Names, concatenate_names
from ffrecord.sources.registry import SUFFIXES
from ffrecord.sources.tar.index import Members, members_of, sparse_error
from ffrecord.system.closing import open_all

logger = logging.getLogger("ffrecord")


class TarReader(NamedFiles, FallbackReader):
    """The regular files of tar archives in stored order, as records and as files; their names are `keys()`.

    The reader understands archives of POSIX (ustar, pax), GNU, star and the seventh edition of Unix. A hard link has
    the bytes of its target. Directories, symbolic links, devices and FIFOs are left out. The format has checksums of
    headers, which are compared when the index is made, but none of data: `checksum` is None.

    Args:
        source: an archive; a directory of archives; a glob pattern; or a list or tuple of these, in the given order.
        check_data: without effect: there is nothing to compare.
        io: see `FileReader`.
        on_error: see `FileReader`. Unless it is "raise", you can open an archive whose end is missing. That is logged,
            and the member that was cut is a record that cannot be read.
        index_cache: place to keep the index: True for beside each archive, or a directory; None for nowhere. No index
            is kept if `on_error` is not "raise".
        ignore_zeros: go on after blocks of zeros, for archives that were joined by `cat`. Otherwise a block of zeros is
            the end, and the rest of the file is ignored. The log warns you when the index is made, if more than zeros
            follows soon after it.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `source`.
        FormatError: not an archive, a compressed one, a damaged header, or a hard link without a target. Sparse members
            raise it when they are read.
        TruncatedError (a FormatError): an archive ends inside a member or header. If only the zeros at the end are
            missing, there is no error.
        OSError: an archive cannot be read.
    """

    __slots__ = ("_folder_names", "_names", "_sparse", "_starts")

    format: ClassVar[str] = "tar"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        ignore_zeros: bool = False,
    ) -> None:
        settings: dict[str, Any] = {"index_cache": index_cache, "ignore_zeros": bool(ignore_zeros)}
        archives = members_of(expand(source, SUFFIXES["tar"]), cut=cut_handler(on_error), **settings)
        self._names = concatenate_names([archive.names for archive in archives])
        self._folder_names = concatenate_names([archive.folders for archive in archives])
        sparse: npt.NDArray[np.bool_] = np.concatenate([archive.sparse for archive in archives]).astype(bool)
        # None tells the base class that the engine alone can read each batch.
        self._sparse = sparse if sparse.any() else None
        self._starts = np.cumsum([0, *(len(archive.names) for archive in archives)])
        files = open_archives(archives, io, [(archive.offsets, archive.sizes) for archive in archives])
        super().__init__(files, check_data, io=io, on_error=on_error, settings=settings)

    def keys(self) -> Names:
        """Return the name of each member, as stored. Names may repeat; `keys().find(name)` is the last one."""
        return self._names

    def _folders(self) -> Names:
        return self._folder_names

    def _content_sizes(self) -> npt.NDArray[np.int64]:
        return np.concatenate([file.sizes for file in self._files])

    def _open_index(self, index: int) -> streams.RawIOBase:
        if self._sparse is not None and self._sparse[index]:
            raise self._sparse_error(index)
        number, local = self._engine.locate(index)
        file = self._files[number]
        # None, since a tar has no checksums of data.
        checked = RunningChecksum(file.path, f"member {self._names[index]!r}", int(file.sizes[local]), None)
        # A descriptor of its own, since the object may outlive this reader.
        return SpanRaw(reopen(file), int(file.offsets[local]), checked)

    def _find_special(self, positions: Indices) -> npt.NDArray[np.bool_] | None:
        return None if self._sparse is None else self._sparse[positions]

    def _load_special(self, positions: Indices) -> list[Array | Exception]:
        return [self._sparse_error(index) for index in positions.tolist()]

    def _sparse_error(self, index: int) -> FormatError:
        path, _ = self.locate(index)
        return sparse_error(f"Sample {index}: {path}: member {self._names[index]!r}")

    def _record_name(self, file: int, local: int) -> str:
        return f"member {self._names[int(self._starts[file]) + local]!r}"


def cut_handler(on_error: OnError) -> Callable[[str], None] | None:
    """Return the `cut` function of `members_of` for an `on_error`: one that logs, or None to raise."""
    return None if on_error == "raise" else _log_cut


def _log_cut(message: str) -> None:
    logger.warning("%s; everything before it can be read", message, extra=DAMAGE)


def open_archives(archives: Sequence[Members], io: str, spans: Sequence[tuple[Any, Any]]) -> list[SpanFile]:
    """Open the archives as files of records; `spans` has (offsets, sizes) for each."""
    return open_all(
        # With its status: the file must be the one that was scanned.
        SpanFile(archive.path, offsets, sizes, whole=io == "mmap", status=archive.status)
        for archive, (offsets, sizes) in zip(archives, spans, strict=True)
    )

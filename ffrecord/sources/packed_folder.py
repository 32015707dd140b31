"""Packed folders as stores of named files."""

# Records are also read by name, so parameters have other names than in `Store`.
# pyright: reportIncompatibleMethodOverride=false

import io
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ffrecord.folders.folder import PackedFolder
from ffrecord.folders.member_file import RunningChecksum, SpanRaw, reopen
from ffrecord.format.folder_index import walk
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.named_files import NamedFiles
from ffrecord.sources.names import Names
from ffrecord.system.closing import open_all


class PackedFolderReader(NamedFiles, RecordReader):
    """The files of a packed folder in stored order, as records and as files. The index itself is not among them.

    `PackedFolder` reads the same files, with the methods of ffrecord 1.x.

    Args:
        source: see `PackedFolder`.
        check_data, io, on_error: see `RecordReader`.
        index_cache: without effect: the folder has its own index.

    Attributes:
        sizes: int64 [n], bytes of each file.

    Raises:
        The exceptions of `PackedFolder`.
    """

    format = "packed folder"
    checksum = "CRC-32"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: object = None,
    ) -> None:
        # Only its index is needed: the files are opened anew, each with its table.
        with PackedFolder(source, check_data) as folder:
            found = dict(walk(folder.structure))
            files = open_all(_open_files(folder, io == "mmap"))
        named = {index: name for name, index in found.items() if isinstance(index, int)}
        self.names = Names.of([named[index] for index in range(len(named))])
        self._folder_names = Names.of([f"{name}/" for name, child in found.items() if not isinstance(child, int)])
        self._starts = np.cumsum([0, *(file.n for file in files)])
        self.sizes: npt.NDArray[np.int64] = np.concatenate([file.sizes for file in files])
        super().__init__(files, check_data, io=io, on_error=on_error)

    def keys(self) -> Names:
        """Return the path of each file, in stored order."""
        return self.names

    def _folders(self) -> Names:
        return self._folder_names

    def _content_sizes(self) -> npt.NDArray[np.int64]:
        return self.sizes

    def _sizes(self, positions: Indices) -> Indices:
        return self.sizes[positions]

    def _record_name(self, file: int, local: int) -> str:
        return f"file {self.names[int(self._starts[file]) + local]!r}"

    def _open_index(self, index: int) -> io.RawIOBase:
        number, local = self._engine.locate(index)
        file = self._files[number]
        stored = int(file.checksums[local]) if self.check_data else None
        checked = RunningChecksum(file.path, f"file {self.names[index]!r}", int(self.sizes[index]), stored)
        return SpanRaw(reopen(file), int(file.offsets[local]), checked)


def _open_files(folder: PackedFolder, whole: bool) -> Iterator[SpanFile]:
    """Yield the files of the folder, each with the table of its samples.

    The last sample of all, the index, is left out.
    """
    reader, left = folder.reader, folder.num_files()
    for number, fname in enumerate(reader.fnames):
        offsets = reader.get_offsets(number)
        n = min(left, len(offsets) - 1)
        left -= n
        sizes, checksums = np.diff(offsets[: n + 1]), reader.get_checksums(number)[:n]
        yield SpanFile(fname, offsets[:n], sizes, checksums, "crc32", whole=whole, status=os.stat(fname))

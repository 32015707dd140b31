"""One open file of any format, with a table of the spans of its records, by which the engine reads them."""

import os
import stat
from errno import EISDIR, ESTALE
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import Spans, filesystem_type
from ffrecord.errors import ArgumentError, NotAFileError, add_file_to_errors, file_error
from ffrecord.kernels._memory import Mapping
from ffrecord.system import filesystems, resources

Column = npt.NDArray[Any]
CHECKSUMS = {"crc32": "CRC-32", "crc32c": "CRC-32C", None: None}


class SpanFile:
    """File with a table of spans. Its content is not read before a record is read.

    Args:
        path: path of the file.
        offsets: int64 [n], offset of each record, bytes; in any order, with gaps and overlaps allowed.
        sizes: int64 [n], bytes of each record.
        checksums: uint32 [n], checksum of each record; None if there are none.
        kind: kind of the checksums: "crc32", "crc32c" (Castagnoli, not masked), or None.
        whole: map the whole file now, for io="mmap".
        status: status of the file when the table was made: the file must be unchanged.

    Contiguous arrays are not copied, and mapped ones stay mapped; nobody may write to them. A span outside the file is
    an error of its record when that is read. If the file is closed meanwhile to save descriptors, and then replaced or
    changed, reading its records is an error, too.

    Attributes:
        path, size, n: path, bytes, records.
        fd: descriptor; -1 if it is opened when needed, after `close`, or when another object took it over.
        device, inode, mtime_ns: st_dev, st_ino and st_mtime_ns of the file.
        filesystem: kind of its file system.
        spans: the table.
        offsets, sizes, checksums: the arrays of the table.
        checksum: "CRC-32", "CRC-32C" or None.
        whole: the mapping of the whole file, or None.

    Raises:
        OSError: the file cannot be opened, or is no longer that of `status`.
        ArgumentError: it is no regular file, the arrays have different lengths, or the kind is unknown.
    """

    mapping = None  # the file contains no tables
    data_start = 0

    def __init__(
        self,
        path: str,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        checksums: npt.NDArray[np.uint32] | None = None,
        kind: str | None = None,
        *,
        whole: bool = False,
        status: os.stat_result | None = None,
    ) -> None:
        if kind not in CHECKSUMS:
            raise ArgumentError(f"kind is {kind!r}, expected 'crc32', 'crc32c' or None")
        self.path, self.checksum = path, CHECKSUMS[kind]
        self.offsets: Column = _column(offsets, np.int64)
        self.sizes: Column = _column(sizes, np.int64)
        # Without a kind, checksums mean nothing.
        self.checksums: Column | None = None if checksums is None or kind is None else _column(checksums, np.uint32)
        self.spans = Spans(self.offsets, self.sizes, self.checksums, kind)
        self.n = self.spans.n
        self.whole: Mapping | None = None
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with add_file_to_errors("opening it", path):
                self._identify(status)
                filesystems.set_blocking(self.fd)
                if whole and self.size > 0:
                    self.whole = Mapping(self.fd, self.size, protected=False)
        except BaseException:
            self.close()
            raise
        if self.fd >= resources.descriptors():
            self.close()  # many files are open; the engine opens this one again by its path when it is read

    def _identify(self, expected: os.stat_result | None) -> None:
        status = os.fstat(self.fd)
        if stat.S_ISDIR(status.st_mode):
            raise NotAFileError(EISDIR, f"{self.path} is not a file", self.path)
        if not stat.S_ISREG(status.st_mode):
            raise ArgumentError(f"{self.path} is not a file")
        # The spans of another version would cut it in wrong places.
        if expected is not None and identity(status) != identity(expected):
            raise file_error(
                ESTALE, f"{self.path}: the file changed while its index was made; open it again", self.path
            )
        self.device, self.inode, self.size, self.mtime_ns = identity(status)
        self.filesystem = filesystems.from_type(filesystem_type(self.fd))

    def close(self) -> None:
        """Close the descriptor; the table stays."""
        fd, self.fd = self.fd, -1  # before the close: even a failed close has closed the descriptor
        if fd >= 0:
            with add_file_to_errors("closing it", self.path):
                os.close(fd)


def mapping_of(array: object) -> Mapping | None:
    """Return the file mapping that an array is part of; None if the array is in memory."""
    # Views of views: the mapping is at the end of the chain.
    while array is not None and not isinstance(array, Mapping):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return the numbers that identify a version of a file: device, inode, size, time of change."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _column(values: npt.NDArray[Any], dtype: type[np.generic]) -> Column:
    # Not converted silently: a cast would copy a mapped table into memory.
    array = np.ascontiguousarray(values)
    if array.dtype != dtype or array.ndim != 1:
        raise ArgumentError(f"a table is {array.dtype} {list(array.shape)}, expected {np.dtype(dtype)} [n]")
    return array

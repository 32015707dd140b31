"""One file of any format, opened, with a table of where its records lie: what the engine reads them by."""

import os
import stat
from errno import ESTALE
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import Spans, filesystem_type
from ffrecord.errors import ArgumentError, NotAFileError, doing, file_error
from ffrecord.kernels._memory import Mapping
from ffrecord.system import filesystems, resources

Column = npt.NDArray[Any]
CHECKSUMS = {"crc32": "CRC-32", "crc32c": "CRC-32C", None: None}


class SpanFile:
    """A file with a table of spans. Nothing in it is looked at before a record is read.

    Args:
        path: of the file.
        offsets: int64 [n], where each record begins, bytes; in any order, gaps and overlaps allowed.
        sizes: int64 [n], bytes of each record.
        checksums: uint32 [n], of each record; None if there are none.
        kind: what they are: "crc32", "crc32c" (Castagnoli, not masked), or None.
        whole: map all of the file now, for io="mmap".
        status: of the file that the table was made from: it must still be that one.

    The arrays are kept as they are if they are contiguous, mapped ones stay mapped; nobody may write to them. A span
    that is not within the file is an error of its record, when that is read. So is a file that was replaced or
    changed after it was opened, where it was closed meanwhile, for want of descriptors.

    Attributes:
        path, size, n: name, bytes, records.
        fd: descriptor, or -1 if it is opened when it is needed, after `close`, or when another took it over.
        device, inode, mtime_ns: of the file, st_dev, st_ino and st_mtime_ns.
        filesystem: that it is on.
        spans: the table.
        offsets, sizes, checksums: its arrays.
        checksum: "CRC-32", "CRC-32C" or None.
        whole: the mapping of the whole file, or None.

    Raises:
        OSError: the file cannot be opened; or it is not the one of `status` any more.
        ArgumentError: no file; arrays of different lengths; an unknown kind.
    """

    mapping = None  # of tables in the file
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
        self.checksums: Column | None = None if checksums is None or kind is None else _column(checksums, np.uint32)
        self.spans = Spans(self.offsets, self.sizes, self.checksums, kind)
        self.n = self.spans.n
        self.whole: Mapping | None = None
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with doing("opening it", path):
                self._identify(status)
                filesystems.let_wait(self.fd)
                if whole and self.size > 0:
                    self.whole = Mapping(self.fd, self.size, protected=False)
        except BaseException:
            self.close()
            raise
        if self.fd >= resources.descriptors():
            self.close()  # there are many files; the engine opens it again by name when it is read

    def _identify(self, expected: os.stat_result | None) -> None:
        status = os.fstat(self.fd)
        if stat.S_ISDIR(status.st_mode):
            raise NotAFileError(21, f"{self.path} is not a file", self.path)
        if not stat.S_ISREG(status.st_mode):
            raise ArgumentError(f"{self.path} is not a file")
        if expected is not None and identity(status) != identity(expected):
            raise file_error(ESTALE, f"{self.path}: the file changed while its records were looked for", self.path)
        self.device, self.inode, self.size, self.mtime_ns = identity(status)
        self.filesystem = filesystems.of_type(filesystem_type(self.fd))

    def close(self) -> None:
        """Close the descriptor; the table stays."""
        fd, self.fd = self.fd, -1  # first: even a close that fails has closed it
        if fd >= 0:
            with doing("closing it", self.path):
                os.close(fd)


def mapping_of(array: object) -> Mapping | None:
    """The mapping of a file that an array is in; None if it is in memory."""
    while array is not None and not isinstance(array, Mapping):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """What tells a file, as it was then, from others: device, inode, size, time of change."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _column(values: npt.NDArray[Any], dtype: type[np.generic]) -> Column:
    array = np.ascontiguousarray(values)
    if array.dtype != dtype or array.ndim != 1:
        raise ArgumentError(f"an array of {array.dtype} {list(array.shape)}, expected {np.dtype(dtype)} [n]")
    return array

"""One open `.ffr` file: its header is checked, its tables are mapped, or share memory with those of very many files."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.engine._engine import filesystem_type
from ffrecord.errors import (
    ArgumentError,
    ChecksumError,
    FormatError,
    NotAFileError,
    TruncatedError,
    file_error,
    plural,
)
from ffrecord.format import extension, ffr_layout
from ffrecord.kernels._memory import Mapping
from ffrecord.system import filesystems, resources
from ffrecord.system.atomic_file import read_up_to

CHUNK = 16 << 20  # bytes of memory that tables of several files share; unused pages of it are never touched
LARGE = 256 << 10  # bytes; tables of this size or more are mapped, as long as there are not too many
ALIGNMENT = 64
CHECKED_AT_ONCE = 1 << 20  # bytes of the tables
TABLES_KEPT = 8 << 20  # bytes; the pages of larger tables are released after the check


class TableRoom:
    """Memory for the tables of each file of a reader.

    The tables of the first files, and large tables, are mapped, so that all processes share their pages. Other tables
    are copied side by side into memory that only forked children share.
    """

    def __init__(self) -> None:
        self._files = self._mapped = 0
        self._chunk: Mapping | None = None
        self._used = self._size = 0  # used and total bytes of the chunk

    def place(self, fd: int, size: int, network: bool) -> Mapping:
        """Return the first bytes of a file, mapped or copied.

        Args:
            fd: descriptor of the file.
            size: number of bytes, > 0.
            network: whether the file is on a network file system, where pages of a mapping may be lost.

        Raises:
            OSError, EOFError: the same as for `Mapping`.
        """
        self._files += 1
        # A process has some 65,000 mappings, so only the first files get one for certain.
        few = self._files <= resources.MAPPED_FEW
        # On a network a page fault can fail, so tables are copied there.
        if few or (size >= LARGE and not network and self._mapped < resources.mappings()):
            self._mapped += 1
            return Mapping(fd, size, network)
        if self._chunk is None or self._used + size > self._size:
            self._size, self._used = max(CHUNK, size), 0
            self._chunk = Mapping(-1, self._size, True)
        # Aligned, so that offsets and checksums of each file lie well for the CPU.
        at, self._used = self._used, self._used + -(-size // ALIGNMENT) * ALIGNMENT
        return Mapping(fd, size, True, True, self._chunk, at)


@contextmanager
def add_path_to_errors(path: str) -> Iterator[None]:
    """Context manager that adds the path to a FormatError, and to an OSError without a file name; the class stays."""
    try:
        yield
    except FormatError as error:
        raised = TruncatedError if isinstance(error, TruncatedError) else FormatError
        raise raised(f"{path}: {error}") from None
    except OSError as error:
        if error.filename is not None or not error.errno:  # an error without a number has a message of its own
            raise
        raise file_error(error.errno, f"{path}: reading header and tables failed", path) from None


class OpenedFile:
    """Descriptor, tables and numbers of one file. The owner closes `fd`.

    Args:
        path: path of the file.
        check: compare the CRC-32 of the tables, and check that reserved space is zeros.
        whole: map the whole file, not only its tables.
        room: memory for its tables; None to map them.

    Attributes:
        path, size, n: path, bytes, samples.
        fd: descriptor, -1 after `close` or when another object took it over.
        device, inode, mtime_ns: st_dev, st_ino and st_mtime_ns of the file.
        filesystem: kind of its file system.
        crc: stored CRC-32 of the tables; 0 in old files without one.
        data_start: offset of the first sample, bytes.
        mapping: bytes [0, tables_end(n)) of the file. It is a copy on a network file system, where a page fault can
            fail, and for readers of very many files.
        whole: the mapping of the whole file, or None.
        checksums, offsets: uint32 [n] and int64 [n], read-only views of the mapping.
        extension: content of the extension block, or None.

    Raises:
        OSError: the file cannot be opened or read.
        FormatError: it is no FFR file, unfinished, or its numbers contradict each other.
        ChecksumError: tables or extension block do not match their CRC-32.
    """

    # A reader may have a million of these objects.
    __slots__ = (
        *("path", "fd", "size", "n", "device", "inode", "mtime_ns", "filesystem"),
        *("crc", "data_start", "mapping", "whole", "extension"),
    )
    spans = None  # the engine uses the tables in the file
    checksum = "CRC-32"

    def __init__(self, path: str, *, check: bool, whole: bool = False, room: TableRoom | None = None) -> None:
        self.path = path
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with add_path_to_errors(path):
                self._identify()
                filesystems.set_blocking(self.fd)
                self._map(room or TableRoom())
                self.whole = Mapping(self.fd, self.size, protected=False) if whole else None
                self.extension = self._read_gap(check)
            if check:
                self.check_header()
                if ffr_layout.tables_end(self.n) > TABLES_KEPT:
                    self.mapping.drop_pages()
            if self.crc == 0:
                # Without a checksum, only this check distinguishes an old file from garbage.
                with add_path_to_errors(path):
                    ffr_layout.check_offsets(self.offsets, self.size)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptor; the tables stay readable."""
        fd, self.fd = self.fd, -1  # before the close: even a failed close has closed the descriptor
        if fd >= 0:
            os.close(fd)

    def _identify(self) -> None:
        status = os.fstat(self.fd)
        if stat.S_ISDIR(status.st_mode):
            raise NotAFileError(errno.EISDIR, f"{self.path} is not a file", self.path)
        if not stat.S_ISREG(status.st_mode):
            raise ArgumentError(f"{self.path} is not a file")
        self.size, self.device, self.inode = status.st_size, status.st_dev, status.st_ino
        self.mtime_ns = status.st_mtime_ns
        self.filesystem = filesystems.from_type(filesystem_type(self.fd))

    def _map(self, room: TableRoom) -> None:
        self.crc, self.n = ffr_layout.unpack_prefix(read_up_to(self.fd, ffr_layout.HEAD_SIZE, 0), self.size)
        self.data_start = self.size
        if self.n > 0:
            # This read rejects sparse files and zeros before anything is mapped or allocated according to n.
            first = read_up_to(self.fd, ffr_layout.OFFSET.itemsize, ffr_layout.offsets_start(self.n))
            # Numbers in the file count for nothing until they agree with its size.
            self.data_start = int.from_bytes(first, "little", signed=True)
            ffr_layout.check_first_offset(self.data_start, self.n, self.size)
        self.mapping = room.place(self.fd, ffr_layout.tables_end(self.n), self.filesystem.network)

    @property
    def checksums(self) -> npt.NDArray[np.uint32]:
        """CRC-32 of each sample."""
        return np.frombuffer(memoryview(self.mapping), ffr_layout.CRC, self.n, ffr_layout.PREFIX.size)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Offset of each sample in the file, bytes."""
        return np.frombuffer(memoryview(self.mapping), ffr_layout.OFFSET, self.n, ffr_layout.offsets_start(self.n))

    def check_all_there(self) -> None:
        """Check that no page of the tables was unreadable and read as zeros. Call it after reading tables.

        Raises:
            OSError: a page was unreadable.
        """
        if self.mapping.lost:
            raise file_error(errno.EIO, f"{self.path}: a part of its tables could not be read", self.path)

    def check_header(self) -> None:
        """Compare the tables with their CRC-32. Old files have none, so there is nothing to compare.

        Raises:
            ChecksumError: they differ.
        """
        # Reading all of the tables also shows whether a page of them is unreadable.
        computed = crc32(memoryview(self.mapping)[ffr_layout.CHECKED_FROM :])
        self.check_all_there()
        # 0 marks files of before the checksum.
        if self.crc not in (0, computed):
            raise ChecksumError(
                f"{self.path}: checksum of metadata mismatch: CRC-32 {computed:#010x} of the tables "
                f"of {plural(self.n, 'sample')}, stored {self.crc:#010x}",
                path=self.path,
                stored=self.crc,
                computed=computed,
            )

    def _read_gap(self, check: bool) -> extension.Extension | None:
        """Read the gap between tables and samples: one extension block, or None if there is no gap."""
        start = ffr_layout.tables_end(self.n)
        gap = self.data_start - start
        if gap == 0:
            return None
        data = read_up_to(self.fd, ffr_layout.BLOCK.size, start)
        header = ffr_layout.unpack_block_header(data, gap, self.size)
        # At most the block's size, which was compared with the gap.
        payload = read_up_to(self.fd, header.payload_size, start + ffr_layout.BLOCK.size)
        if len(payload) != header.payload_size:
            raise FormatError(
                f"the payload of the extension block has {plural(len(payload), 'byte')}, expected {header.payload_size}"
            )
        if check:
            self._check_zeros(start + ffr_layout.BLOCK.size + header.payload_size, self.data_start)
        return extension.decode(header, payload, self.path)

    def _check_zeros(self, start: int, stop: int) -> None:
        """Check that reserved space contains only zeros, so that every byte of the file is accounted for."""
        # In pieces: a gap may have many megabytes, and the file may be somebody's trap.
        for offset in range(start, stop, CHECKED_AT_ONCE):
            data = read_up_to(self.fd, min(CHECKED_AT_ONCE, stop - offset), offset)
            # No data: the file was cut meanwhile.
            if data.count(0) != len(data) or not data:
                raise FormatError(f"the reserved space at offsets {start} to {stop} has bytes that are not 0")

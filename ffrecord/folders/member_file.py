"""Part of a file as a Python file object."""

import io
import os
from collections.abc import Callable
from errno import ESTALE
from typing import TYPE_CHECKING

from ffrecord._crc import crc32
from ffrecord.errors import REOPEN, REPLACED, ChecksumError, FormatError, TruncatedError, add_file_to_errors, file_error
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.span_file import SpanFile
from ffrecord.system.atomic_file import read_into

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 128 << 10


class RunningChecksum:
    """The CRC-32 of content that is read in order from its start; compared at its end.

    Args:
        path, name: path of the file and name of the content, for messages.
        size: size of the content, bytes.
        stored: its CRC-32; None to compare nothing.
    """

    def __init__(self, path: str, name: str, size: int, stored: int | None) -> None:
        self.path, self.name, self.size = path, name, size
        self._stored, self._value, self._next = stored, 0, 0

    def add(self, offset: int, data: memoryview | bytes) -> None:
        """Add `data`, read at `offset` of the content.

        Raises:
            ChecksumError: this is the end of content that was read in order, and its CRC-32 differs.
        """
        # A jump ahead leaves a gap, so the rest is not compared; bytes seen before are not counted twice.
        if self._stored is None or offset > self._next or (self.size and offset + len(data) <= self._next):
            return
        # Only the new part, as a reader may have gone back a little.
        self._value = crc32(data[self._next - offset :], self._value)
        self._next = offset + len(data)
        if self._next == self.size and self._value != self._stored:
            raise ChecksumError(
                f"{self.path}: {self.name}: checksum mismatch: CRC-32 {self._value:#010x}, stored {self._stored:#010x}",
                path=self.path,
                stored=self._stored,
                computed=self._value,
            )

    def empty(self) -> None:
        """Compare the CRC-32 of content without bytes, since nothing of it is ever read.

        Raises:
            ChecksumError: it differs.
        """
        # Without this, content of no bytes would never be compared.
        if self.size == 0:
            self.add(0, b"")


def reopen(file: OpenedFile | SpanFile) -> int:
    """Return a new descriptor of a file that a reader has open, or had.

    Raises:
        OSError: it cannot be opened, or its name leads to another file by now (ESTALE).
    """
    # O_NONBLOCK: the name may lead to a FIFO by now.
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with add_file_to_errors("opening it again", file.path):
            status = os.fstat(fd)
        # Not the time of change, which copying and touching alter as well.
        if (status.st_dev, status.st_ino, status.st_size) != (file.device, file.inode, file.size):
            raise file_error(ESTALE, f"{file.path}: {REPLACED}", file.path, REOPEN)
    except BaseException:
        os.close(fd)
        raise
    return fd


class _ContentRaw(io.RawIOBase):
    """Content of a known size; seekable.

    Args:
        checked: checksum that learns of all bytes read.
    """

    def __init__(self, checked: RunningChecksum) -> None:
        self._checked, self._position = checked, 0
        self.name = checked.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        self._position = seek_position(offset, whence, self._position, self._checked.size)
        return self._position

    def tell(self) -> int:
        self._check_open()
        return self._position

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _room(self, buffer: "WriteableBuffer") -> memoryview:
        """Return the part of a buffer that the rest of the content can fill."""
        # Beyond the end there is nothing to read.
        return memoryview(buffer).cast("B")[: max(0, self._checked.size - self._position)]


class SpanRaw(_ContentRaw):
    """The bytes [offset, offset + size) of a file, read in place; seekable. It owns `fd` and closes it.

    Args:
        fd: descriptor of the file.
        checked: checksum that learns of all bytes read.
    """

    def __init__(self, fd: int, offset: int, checked: RunningChecksum) -> None:
        super().__init__(checked)
        self._fd, self._offset = fd, offset

    def readinto(self, buffer: "WriteableBuffer") -> int:
        self._check_open()
        position, out = self._position, self._room(buffer)
        # Both the end of the content and an empty buffer come here.
        if not len(out):
            self._checked.empty()
            return 0
        got = read_into(self._fd, out, self._offset + position)
        # The span is inside the file, so no bytes means that the file is shorter now.
        if got == 0:
            raise TruncatedError(
                f"{self._checked.path}: {self._checked.name} ends after {position} bytes, expected "
                f"{self._checked.size}: the file was cut"
            )
        self._checked.add(position, out[:got])
        self._position = position + got
        return got

    def close(self) -> None:
        if not self.closed:  # `close` may be repeated, and the number be another file's by then
            os.close(self._fd)
        super().close()


class PulledRaw(_ContentRaw):
    """Content that can be read only from its start on; a seek reads the bytes between, or starts again.

    Args:
        begin: function that starts from the beginning; it returns a function to read up to n bytes, b"" at the end.
        checked: checksum that learns of all bytes read.
        release: called by `close`.
    """

    def __init__(
        self, begin: Callable[[], Callable[[int], bytes]], checked: RunningChecksum, release: Callable[[], object]
    ) -> None:
        super().__init__(checked)
        self._begin, self._release = begin, release
        self._read = begin()
        self._at = 0  # position of `_read`; that of the caller is `_position`

    def readinto(self, buffer: "WriteableBuffer") -> int:
        self._check_open()
        # It only goes forward: to go back, begin again.
        if self._position < self._at:
            self._read, self._at = self._begin(), 0
        # Bytes in between are read and dropped; behind the end there is nothing to read.
        while self._at < min(self._position, self._checked.size):
            self._pull(min(BUFFER, self._position - self._at))
        out = self._room(buffer)
        if not len(out):
            # Content that should be empty may hold bytes, which nobody would ask for.
            if not self._checked.size:
                self._see_end(0)
            self._checked.empty()
            return 0
        piece = self._pull(len(out))
        out[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _pull(self, most: int) -> bytes:
        piece = self._read(most)
        if not piece:
            raise TruncatedError(
                f"{self._checked.path}: {self._checked.name} has {self._at} bytes of content, "
                f"expected {self._checked.size}"
            )
        end = self._at + len(piece)
        self._see_end(end)
        self._checked.add(self._at, piece)
        self._at = end
        return piece

    def _see_end(self, at: int) -> None:
        # One byte more shows content that is longer than it says.
        if at == self._checked.size and self._read(1):
            raise FormatError(
                f"{self._checked.path}: {self._checked.name} has more than {at} bytes of content, expected {at}"
            )

    def close(self) -> None:
        if not self.closed:
            self._release()
        super().close()


def seek_position(offset: int, whence: int, position: int, size: int) -> int:
    """Return the position that `seek(offset, whence)` asks for.

    Raises:
        ValueError: it is negative, or `whence` is not 0, 1 or 2.
    """
    if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
        raise ValueError(f"whence is {whence}, expected 0, 1 or 2")
    wanted = offset + (0, position, size)[whence]
    if wanted < 0:
        raise ValueError(f"the new position is {wanted}, expected >= 0")
    return wanted

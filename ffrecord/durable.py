"""Write files so that a path holds nothing, or the old file, or a complete new one.

Temporary name in the same directory → data → fsync → rename → fsync of the directory. A crash leaves at most a file or
directory named `.NAME.<random>.part`, which no reader opens.
"""

import contextlib
import ctypes
import errno
import io
import os
import secrets
import stat

from ffrecord.errors import file_error

PART_SUFFIX = ".part"
FALLOC_FL_INSERT_RANGE = 0x20  # <linux/falloc.h>
COPY_CHUNK = 8 << 20
NAME_BYTES = 200  # of the target's in the temporary name, which must stay under NAME_MAX, 255


def part_name(target: str) -> str:
    """A fresh temporary path beside `target`; it does not end in `.ffr`, or directory readers would open it."""
    directory, name = os.path.split(target)
    name = os.fsdecode(os.fsencode(name)[:NAME_BYTES])
    return os.path.join(directory, f".{name}.{secrets.token_hex(6)}{PART_SUFFIX}")


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all of `data` (1-D bytes) at `offset`, however often the kernel stops short.

    Raises:
        OSError: of the failed call; ENOSPC also if the kernel takes nothing.
    """
    while len(data):
        written = os.pwrite(fd, data, offset)
        if written <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, offset = data[written:], offset + written


def fsync_directory(directory: str) -> None:
    """Make renames and new names inside `directory` survive a crash."""
    fd = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def reserve(fd: int, size: int) -> None:
    """Give bytes [0, size) of an empty file their place on the disk, as zeros, so that a full one shows now.

    Raises:
        OSError: ENOSPC for instance.
    """
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL) or size <= 0:
            raise
        for offset in range(0, size, COPY_CHUNK):
            write_all(fd, memoryview(bytes(min(COPY_CHUNK, size - offset))), offset)


def read_all(fd: int, size: int, offset: int) -> bytes:
    """Exactly `size` bytes at `offset`, however often the kernel stops short.

    Raises:
        OSError: of the failed call; EIO if the file ends before.
    """
    parts = []
    while size:
        part = os.pread(fd, size, offset)
        if not part:
            raise OSError(errno.EIO, f"{size} bytes missing at offset {offset}")
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


def insert_space(fd: int, start: int, size: int, end: int) -> None:
    """Move bytes [start, end) of a file back by `size`, leaving zeros in between.

    Args:
        start, size: multiples of 4096. File systems that can (ext4, xfs) insert space in their maps instead of copying.
        end: size of the file, bytes.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    # FALLOC_FL_INSERT_RANGE refuses to insert at or after the end.
    if fallocate and start < end:
        at, length = ctypes.c_int64(start), ctypes.c_int64(size)
        if fallocate(fd, FALLOC_FL_INSERT_RANGE, at, length) == 0:
            return
    for offset in range(start + (end - start) // COPY_CHUNK * COPY_CHUNK, start - 1, -COPY_CHUNK):
        data = read_all(fd, min(COPY_CHUNK, end - offset), offset)
        write_all(fd, memoryview(data), offset + size)
    for offset in range(start, start + size, COPY_CHUNK):
        write_all(fd, memoryview(bytes(min(COPY_CHUNK, start + size - offset))), offset)


class PartFile:
    """A file under a temporary name that `publish` gives its final one; owned by the process that made it.

    Args:
        target: the final path; a symbolic link is followed. Missing or replaced whole.

    Raises:
        OSError (also a RuntimeError): the file cannot be created.
    """

    def __init__(self, target: str) -> None:
        self.target = os.path.realpath(target)
        if os.path.isdir(self.target):
            raise file_error(errno.EISDIR, f"Failed to open file {target}", target)
        self.path = part_name(self.target)
        self._owner = os.getpid()
        self._published = False
        try:
            # Mode 0666 less the umask. A file object, since no signal gets between its closing and its knowing so.
            self._file = io.FileIO(self.path, "x+")
        except OSError as error:
            raise file_error(error.errno or errno.EIO, f"Failed to open file {target}", target) from None
        try:
            # A replaced file keeps its mode.
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(self.fd, stat.S_IMODE(os.stat(self.target).st_mode))
        except OSError as error:
            self.discard()
            sentence = f"{target}: giving the new file the mode of the old one"
            raise file_error(error.errno or errno.EIO, sentence, target) from None

    @property
    def fd(self) -> int:
        """Its descriptor, open for reading and writing.

        Raises:
            ValueError: published or discarded.
        """
        return self._file.fileno()

    @property
    def owned(self) -> bool:
        """Whether this process made it, not a fork of that."""
        return self._owner == os.getpid()

    def publish(self) -> None:
        """Put the file, durable, under its final name.

        Raises:
            OSError (also a RuntimeError): a step failed. The target is as before, unless only the directory's fsync
                failed: then the new file is in place and the message says that its durability is unknown.
        """
        step = "fsync"
        try:
            os.fsync(self.fd)
            step = "close"
            self._file.close()
            step = "rename"
            os.rename(self.path, self.target)
            self._published = True
        except OSError as error:
            self.discard()
            sentence = f"{self.target}: {step} failed, nothing was published"
            raise file_error(error.errno or errno.EIO, sentence, self.target) from None
        try:
            fsync_directory(os.path.dirname(self.target))
        except OSError as error:
            sentence = f"{self.target}: the file is in place, but fsync of its directory failed and a crash may undo it"
            raise file_error(error.errno or errno.EIO, sentence, self.target) from None

    def discard(self) -> None:
        """Remove the temporary file; may be repeated. A forked child only forgets it."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self.owned and not self._published:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

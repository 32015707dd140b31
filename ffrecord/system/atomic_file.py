"""Write files so that a path holds nothing, or the old file, or a complete new one.

Temporary name in the same directory → data → fsync → rename → fsync of the directory. A crash leaves at most a file or
directory named `.NAME.<random>.part`, which no reader opens. A file of that name is locked for as long as its writer
lives.
"""

import contextlib
import errno
import fcntl
import io
import os
import secrets
import shutil
import stat
import sys
import weakref
from collections.abc import Callable

from ffrecord.errors import file_error
from ffrecord.system import access, filesystems, untrusted
from ffrecord.system._calls import fallocate
from ffrecord.system.forks import call_in_children
from ffrecord.system.untrusted import Refused

PART_SUFFIX = ".part"
FALLOC_FL_INSERT_RANGE = 0x20  # <linux/falloc.h>
# What a kernel, a container or a file system says of a call that it does not have, or does not allow.
REFUSED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM)
COPY_CHUNK = 8 << 20
LOCK_TRIES = 3  # new files, each of which somebody might take for a leftover before it is locked
NAME_BYTES = 200  # of the target's in the temporary name, which must stay under NAME_MAX, 255


def part_prefix(target: str) -> str:
    """What the names begin with that `part_name` gives for `target`; those of other long names may, too."""
    directory, name = os.path.split(target)
    return os.path.join(directory, f".{os.fsdecode(os.fsencode(name)[:NAME_BYTES])}.")


def part_name(target: str) -> str:
    """A fresh temporary path beside `target`; it does not end in `.ffr`, or directory readers would open it."""
    return f"{part_prefix(target)}{secrets.token_hex(6)}{PART_SUFFIX}"


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


def remove_tree(path: str) -> None:
    """Remove a directory with all in it, as far as that can be done; links in it are not followed."""
    try:
        os.rmdir(path)  # first: this needs no descriptor, of which there may be none
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def reserve(fd: int, size: int) -> None:
    """Give bytes [0, size) of an empty file their place on the disk, as zeros, so that a full one shows now.

    Raises:
        OSError: ENOSPC for instance.
    """
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in REFUSED or size <= 0:
            raise
        write_zeros(fd, 0, size)


def write_zeros(fd: int, start: int, end: int) -> None:
    """Make bytes [start, end) zeros."""
    for offset in range(start, end, COPY_CHUNK):
        write_all(fd, memoryview(bytes(min(COPY_CHUNK, end - offset))), offset)


def read_all(fd: int, size: int, offset: int) -> bytes:
    """Exactly `size` bytes at `offset`, however often the kernel stops short.

    Raises:
        OSError: of the failed call; EIO if the file ends before.
    """
    data = read_up_to(fd, size, offset)
    if len(data) < size:
        raise OSError(errno.EIO, f"{size - len(data)} bytes missing at offset {offset + len(data)}")
    return data


def read_into(fd: int, out: memoryview, offset: int) -> int:
    """Read bytes of a file into memory; fewer at the end of the file, or where the kernel stops short.

    Returns:
        How many.

    Raises:
        OSError: of the failed call.
    """
    try:
        return os.preadv(fd, [out], offset)  # of which Python makes preadv2(2), which some containers refuse
    except OSError as error:
        if error.errno not in REFUSED:
            raise
    data = os.pread(fd, len(out), offset)
    out[: len(data)] = data
    return len(data)


def read_up_to(fd: int, size: int, offset: int) -> bytes:
    """The same, but fewer bytes at the end of the file.

    Raises:
        OSError: of the failed call.
    """
    data = os.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    while data:
        size, offset = size - len(data), offset + len(data)
        data = os.pread(fd, size, offset) if size else b""
        parts.append(data)
    return b"".join(parts)


def insert_range(fd: int, start: int, size: int, end: int) -> bool:
    """Move bytes [start, end) of a file back by `size` in the maps of the file system; whether that can (ext4, xfs).

    Args:
        start, size: multiples of 4096.
        end: size of the file, bytes.

    Raises:
        OSError: the disk is full or broken, for instance.
    """
    # FALLOC_FL_INSERT_RANGE refuses to insert at or after the end.
    while start < end:
        try:
            fallocate(fd, FALLOC_FL_INSERT_RANGE, start, size)
            return True
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno in REFUSED:
                return False
            raise
    return False


def insert_space(fd: int, start: int, size: int, end: int) -> None:
    """The same on any file system: where it cannot, by copying, and with zeros in between."""
    if not insert_range(fd, start, size, end):
        move_range(fd, start, end, start + size)


def move_range(fd: int, start: int, end: int, target: int) -> None:
    """Move bytes [start, end) to `target` by copying them, zeros to where they come from; the file then ends with them.

    Args:
        end: size of the file, bytes.

    Raises:
        OSError: of the failed call; EIO if the file ends before `end`. What was to be moved is lost.
    """
    steps = range(start, end, COPY_CHUNK)
    # In the direction in which no step overwrites what is still to be moved.
    for offset in steps if target < start else reversed(steps):
        copy_range(fd, offset, min(COPY_CHUNK, end - offset), fd, target + offset - start)
    if target < start:
        os.ftruncate(fd, target + end - start)
    else:
        write_zeros(fd, start, target)


def copy_range(source: int, offset: int, size: int, fd: int, to: int) -> None:
    """Copy bytes [offset, offset + size) of one file to another, at `to`; within one file, up to COPY_CHUNK at a time.

    Raises:
        OSError: of the failed call; EIO if the source ends before.
    """
    for done in range(0, size, COPY_CHUNK):
        data = read_all(source, min(COPY_CHUNK, size - done), offset + done)
        write_all(fd, memoryview(data), to + done)


def lock(fd: int, path: str) -> bool:
    """Lock an open file against others of any process; False if it is locked, or `path` is another file by now.

    The lock ends with the process, and with those forks of it that did not close the descriptor.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


_open_parts: "weakref.WeakSet[PartFile]" = weakref.WeakSet()


def _forget_parts() -> None:
    """In a forked child, whose copies of the descriptors would keep the locks when the parent is killed."""
    for part in list(_open_parts):
        part.discard()


call_in_children(_forget_parts)


class PartFile:
    """A file under a temporary name that `publish` gives its final one; owned by the process that made it.

    Args:
        target: the final path. Missing or replaced whole.
        left: an existing part file whose writer is gone, to go on with; only `publish` removes its name.
        beside: an existing file that the new one will be used with, wherever it is; who may read that may read this.
            None: the file at the target, which it replaces.
        follow: a symbolic link at `target`; otherwise it is replaced.
        own: refuse a `left` of another user.

    Attributes:
        in_doubt: whether it is under its final name, and a crash may undo that.

    Raises:
        OSError (also a RuntimeError): the file cannot be created, or `left` be opened (EBUSY: its writer lives; EPERM:
            it is a link, or another kind of file, or has another name, too).
    """

    def __init__(
        self,
        target: str,
        left: str | None = None,
        *,
        follow: bool = True,
        own: bool = False,
        beside: str | None = None,
    ) -> None:
        directory, name = os.path.split(target)
        self.target = filesystems.real(target) if follow else os.path.join(filesystems.real(directory), name)
        self._is_own = own
        self._check_target(target, follow)
        self._owner = os.getpid()
        self._published = False
        self.in_doubt = False
        self._keeps = left is not None
        self.path = left or part_name(self.target)
        try:
            self._make(target, left)
            if beside or not os.path.islink(self.target):  # a link that is replaced says nothing
                access.keep(self.fd, beside or self.target, target, adds=beside is not None)
        except BaseException:
            self.discard()  # not only once it is let go of: a debugger keeps what a signal's handler has raised
            raise

    def _make(self, target: str, left: str | None) -> None:
        try:
            self._open(left)
        except OSError as error:
            sentence = f"Failed to open file {left or target}"
            if error.errno == errno.EBUSY:
                sentence += ", its writer lives"
            if isinstance(error, Refused):
                sentence += f": {error.strerror}. No writer of this user has left it: it stays as it is"
            raise file_error(error.errno or errno.EIO, sentence, left or target) from None
        _open_parts.add(self)

    def _check_target(self, target: str, follow: bool) -> None:
        """Replace nothing but files, and links unless they are followed; a name that is too long shows here, too."""
        try:
            mode = (os.stat if follow else os.lstat)(self.target).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise file_error(error.errno or errno.EIO, f"Failed to open file {target}", target) from None
        if stat.S_ISDIR(mode):
            raise file_error(errno.EISDIR, f"Failed to open file {target}", target)
        if not stat.S_ISREG(mode) and not (stat.S_ISLNK(mode) and not follow):
            raise file_error(errno.EEXIST, f"{target} is there and no regular file, so it is not replaced", target)

    def _open(self, left: str | None) -> None:
        for tries_left in reversed(range(LOCK_TRIES)):
            # Mode 0666 less the umask. A file object, since no signal gets between its closing and its knowing so.
            try:
                self._file = io.FileIO(self.path, "r+", opener=self._opened) if left else io.FileIO(self.path, "x+")
            except FileExistsError:
                self._keeps = True  # it is not ours
                raise
            try:
                if lock(self.fd, self.path):
                    return
            except OSError:
                if not left:
                    return  # no locks here: nobody will take it for a leftover
                self._file.close()
                raise
            if not left and not tries_left:
                return  # nor are there any where each is refused, or no path ever leads to the file that was opened
            self._file.close()
            if left:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            # It was taken for a leftover between its making and its locking, and is gone or about to be: another one.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            self.path = part_name(self.target)

    def _opened(self, left: str, flags: int) -> int:
        """Open a part file that was left, if it can be one."""
        with untrusted.directory_of(left) as (directory, name):
            owner = untrusted.user_of(name, directory) if self._is_own else None
            return untrusted.open_file(name, os.O_RDWR, directory=directory, owner=owner, links=self._names_of(left))

    def _names_of(self, left: str) -> int:
        """How many names it may have: two, if its writer was killed between the two last steps of `publish`."""
        with contextlib.suppress(OSError):
            if left != self.target and os.path.samestat(os.lstat(left), os.lstat(self.target)):
                return 2
        return 1

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

    def publish(self, *, replace: bool = True) -> None:
        """Put the file, durable, under its final name.

        Args:
            replace: the file that is there; otherwise it stays, and its being there is an error (EEXIST).

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
            if replace:
                os.rename(self.path, self.target)
            else:
                os.link(self.path, self.target)
            self._published = True
        except OSError as error:
            self.discard()
            sentence = f"{self.target}: {step} failed, nothing was published"
            raise file_error(error.errno or errno.EIO, sentence, self.target) from None
        try:
            fsync_directory(os.path.dirname(self.target))
        except OSError as error:
            self.in_doubt = True
            sentence = f"{self.target}: the file is in place, but fsync of its directory failed and a crash may undo it"
            raise file_error(error.errno or errno.EIO, sentence, self.target) from None
        finally:
            if not replace:
                # Not before: a power cut might undo the link and not this.
                with contextlib.suppress(OSError):
                    os.unlink(self.path)

    def discard(self) -> None:
        """Remove the temporary file; may be repeated. A forked child only forgets it."""
        with contextlib.suppress(OSError, AttributeError):
            self._file.close()
        if self.owned and not self._published and not self._keeps:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # After an exception of a signal handler, nobody else may have hold of it, or not even it of the file it made.
        # At the end of the interpreter our modules are gone; what is left then is recognised as every leftover is.
        if hasattr(self, "path") and not finalizing():
            self.discard()

    def leave(self) -> None:
        """Close it and leave it where it is, as a killed writer would."""
        self._keeps = True
        self.discard()

    def remove(self) -> None:
        """Discard it, also if it was left by another writer."""
        self._keeps = False
        self.discard()

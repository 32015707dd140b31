"""Atomic writing of files: a path holds nothing, the old file, or a complete new one.

The steps are: temporary name in the same directory → data → fsync → rename → fsync of the directory. A crash leaves
at most a file or directory named `.NAME.<random>.part`, which no reader opens. Its writer keeps such a file locked
while it lives.
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

from ffrecord.errors import REFUSED, file_error
from ffrecord.system import access, filesystems, named_calls, untrusted
from ffrecord.system._calls import fallocate
from ffrecord.system.forks import call_in_children
from ffrecord.system.untrusted import Refused

PART_SUFFIX = ".part"
FALLOC_FL_INSERT_RANGE = 0x20  # <linux/falloc.h>
COPY_CHUNK = 8 << 20
LOCK_TRIES = 3  # new files to try: somebody may remove one as a leftover before it is locked
NAME_BYTES = 200  # bytes of the target's name in the temporary name, which must not exceed NAME_MAX, 255


def part_prefix(target: str) -> str:
    """Return the common prefix of all names that `part_name` gives for `target`. Other targets with long names may
    share it.
    """
    directory, name = os.path.split(target)
    return os.path.join(directory, f".{os.fsdecode(os.fsencode(name)[:NAME_BYTES])}.")


def part_name(target: str) -> str:
    """Return a fresh temporary path beside `target`. It does not end in `.ffr`, because directory readers would open
    that.
    """
    return f"{part_prefix(target)}{secrets.token_hex(6)}{PART_SUFFIX}"


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all of `data` (1-D bytes) at `offset`, with as many calls as the kernel needs.

    Raises:
        OSError: a call failed; ENOSPC also if the kernel accepts no bytes.
    """
    while len(data):
        written = named_calls.pwrite(fd, data, offset)
        if written <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, offset = data[written:], offset + written


def fsync_directory(directory: str) -> None:
    """Make renames and new names inside `directory` survive a crash."""
    fd = named_calls.open_directory(directory or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        named_calls.fsync(fd)
    finally:
        os.close(fd)


def remove_tree(path: str) -> None:
    """Remove a directory and its contents as far as possible, without following links."""
    try:
        os.rmdir(path)  # try this first: unlike rmtree it needs no descriptor, and none may be left
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def reserve(fd: int, size: int) -> None:
    """Allocate bytes [0, size) of an empty file on the disk, as zeros, so that a full disk fails now and not later.

    Raises:
        OSError: the allocation failed, for instance with ENOSPC.
    """
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in REFUSED or size <= 0:
            raise
        write_zeros(fd, 0, size)


def write_zeros(fd: int, start: int, end: int) -> None:
    """Write zeros to bytes [start, end)."""
    for offset in range(start, end, COPY_CHUNK):
        write_all(fd, memoryview(bytes(min(COPY_CHUNK, end - offset))), offset)


def read_all(fd: int, size: int, offset: int) -> bytes:
    """Read exactly `size` bytes at `offset`, with as many calls as the kernel needs.

    Raises:
        OSError: a call failed; EIO if the file ends too early.
    """
    data = read_up_to(fd, size, offset)
    if len(data) < size:
        raise OSError(errno.EIO, f"{size - len(data)} bytes are missing at offset {offset + len(data)}")
    return data


def read_into(fd: int, out: memoryview, offset: int) -> int:
    """Read bytes of a file into memory: fewer at the end of the file, or if the kernel stops short.

    Returns:
        Number of bytes read.

    Raises:
        OSError: the call failed.
    """
    try:
        return os.preadv(fd, [out], offset)  # Python calls preadv2(2) here, which some containers refuse
    except OSError as error:
        if error.errno not in REFUSED:
            raise
    data = named_calls.pread(fd, len(out), offset)
    out[: len(data)] = data
    return len(data)


def read_up_to(fd: int, size: int, offset: int) -> bytes:
    """Read `size` bytes at `offset`, or all bytes up to the end of the file if there are fewer.

    Raises:
        OSError: a call failed.
    """
    data = named_calls.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    while data:
        size, offset = size - len(data), offset + len(data)
        data = named_calls.pread(fd, size, offset) if size else b""
        parts.append(data)
    return b"".join(parts)


def insert_range(fd: int, start: int, size: int, end: int) -> bool:
    """Move bytes [start, end) of a file back by `size` in the block map of the file system, without copying (ext4,
    xfs).

    Args:
        fd: descriptor of the file.
        start, size: multiples of 4096.
        end: size of the file, bytes.

    Returns:
        Whether the file system supports it.

    Raises:
        OSError: for instance, the disk is full or broken.
    """
    # FALLOC_FL_INSERT_RANGE refuses to insert at or after the end; then there is nothing to move either.
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
    """Move bytes [start, end) back by `size` on any file system: in its block map, or by copying, with zeros in the
    gap.
    """
    if not insert_range(fd, start, size, end):
        move_range(fd, start, end, start + size)


def move_range(fd: int, start: int, end: int, target: int) -> None:
    """Move bytes [start, end) to `target` by copying them. Zero the gap, or truncate the file behind the moved bytes.

    Args:
        fd: descriptor of the file.
        start, target: bytes.
        end: size of the file, bytes.

    Raises:
        OSError: a call failed; EIO if the file ends before `end`. The bytes to be moved are then lost.
    """
    steps = range(start, end, COPY_CHUNK)
    # Copy in the direction in which no step overwrites bytes that are still to be moved.
    for offset in steps if target < start else reversed(steps):
        copy_range(fd, offset, min(COPY_CHUNK, end - offset), fd, target + offset - start)
    if target < start:
        named_calls.ftruncate(fd, target + end - start)
    else:
        write_zeros(fd, start, target)


def copy_range(source: int, offset: int, size: int, fd: int, to: int) -> None:
    """Copy bytes [offset, offset + size) of one file to another at `to`; within one file, at most COPY_CHUNK bytes.

    Raises:
        OSError: a call failed; EIO if the source ends too early.
    """
    for done in range(0, size, COPY_CHUNK):
        data = read_all(source, min(COPY_CHUNK, size - done), offset + done)
        write_all(fd, memoryview(data), to + done)


def lock(fd: int, path: str) -> bool:
    """Lock an open file against all other processes; return False if it is locked, or `path` leads to another file by
    now.

    The lock ends with the process and with those of its forks that still have the descriptor.

    Raises:
        OSError: the file system supports no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


_open_parts: "weakref.WeakSet[PartFile]" = weakref.WeakSet()


def _forget_parts() -> None:
    """Close the part files in a forked child: its descriptors would keep the locks after the parent was killed."""
    for part in list(_open_parts):
        part.discard()


call_in_children(_forget_parts)


class PartFile:
    """File under a temporary name; `publish` gives it its final name. It belongs to the process that created it.

    Args:
        target: the final path. A file there is replaced as a whole.
        left: path of a part file to continue, whose writer is gone; only `publish` removes its name.
        beside: path of a file that the new one belongs to: everybody who may read it may read the new one. None: the
            file at the target, which the new one replaces.
        follow: follow a symbolic link at `target`; otherwise replace the link.
        own: refuse a `left` of another user.

    Attributes:
        in_doubt: whether the file has its final name, but a crash may undo that.

    Raises:
        OSError (also a RuntimeError): the file cannot be created, or `left` cannot be opened (EBUSY: its writer lives;
            EPERM: it is a link, another kind of file, or has a second name).
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
        self.target = filesystems.real_path(target) if follow else os.path.join(filesystems.real_path(directory), name)
        self._is_own = own
        self._check_target(target, follow)
        self._owner = os.getpid()
        self._published = False
        self.in_doubt = False
        self._keeps = left is not None
        self.path = left or part_name(self.target)
        try:
            self._make(target, left)
            if beside or not os.path.islink(self.target):  # the mode of a link that is replaced means nothing
                access.keep(self.fd, beside or self.target, target, adds=beside is not None)
        except BaseException:
            self.discard()  # not only in __del__: a debugger keeps the exception of a signal handler, and its frames
            raise

    def _make(self, target: str, left: str | None) -> None:
        try:
            self._open(left)
        except OSError as error:
            sentence = f"Failed to open file {left or target}"
            if error.errno == errno.EBUSY:
                sentence += ", its writer lives"
            if isinstance(error, Refused):
                sentence += f": {error.strerror}; it was not left by a writer of this user, so it stays as it is"
            raise file_error(error.errno or errno.EIO, sentence, left or target, call="open") from None
        _open_parts.add(self)

    def _check_target(self, target: str, follow: bool) -> None:
        """Refuse a target that is neither a regular file nor a link to be replaced. A name that is too long also fails
        here.
        """
        try:
            mode = (os.stat if follow else os.lstat)(self.target).st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise file_error(error.errno or errno.EIO, f"Failed to open file {target}", target) from None
        if stat.S_ISDIR(mode):
            raise file_error(errno.EISDIR, f"Failed to open file {target}", target)
        if not stat.S_ISREG(mode) and not (stat.S_ISLNK(mode) and not follow):
            raise file_error(errno.EEXIST, f"{target} exists and is not a regular file, so it is not replaced", target)

    def _open(self, left: str | None) -> None:
        for tries_left in reversed(range(LOCK_TRIES)):
            # The mode is 0666 less the umask. A file object, not a descriptor: it closes and notes that it is closed in
            # one step, between which no signal handler can run.
            try:
                self._file = io.FileIO(self.path, "r+", opener=self._open_left) if left else io.FileIO(self.path, "x+")
            except FileExistsError:
                self._keeps = True  # it is not ours
                raise
            try:
                if lock(self.fd, self.path):
                    return
            except OSError:
                if not left:
                    return  # the file system has no locks, so nobody will take the file for a leftover
                self._file.close()
                raise
            if not left and not tries_left:
                return  # also without locks if every one is refused, or if a path never leads to the file just opened
            self._file.close()
            if left:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            # Somebody took the file for a leftover before it was locked, and removes it: create another one.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            self.path = part_name(self.target)

    def _open_left(self, left: str, flags: int) -> int:
        """Open a part file that was left, if it is a regular file that nobody else can have put there."""
        with untrusted.enter_parent(left) as (directory, name):
            owner = untrusted.user_of(name, directory) if self._is_own else None
            return untrusted.open_file(name, os.O_RDWR, directory=directory, owner=owner, links=self._count_names(left))

    def _count_names(self, left: str) -> int:
        """Return how many names the file may have: two if its writer was killed between the last steps of `publish`."""
        with contextlib.suppress(OSError):
            if left != self.target and os.path.samestat(os.lstat(left), os.lstat(self.target)):
                return 2
        return 1

    @property
    def fd(self) -> int:
        """Descriptor of the file, open for reading and writing.

        Raises:
            ValueError: the file was published or discarded.
        """
        return self._file.fileno()

    @property
    def owned(self) -> bool:
        """True in the process that created the file, False in a fork of it."""
        return self._owner == os.getpid()

    def publish(self, *, replace: bool = True) -> None:
        """Make the file durable and give it its final name.

        Args:
            replace: replace a file that is there; otherwise that file stays, and the call fails with EEXIST.

        Raises:
            OSError (also a RuntimeError): a step failed. The target is unchanged, unless only the fsync of the
                directory
                failed: then the new file is in place, and the message says that its durability is unknown.
        """
        step = "fsync"
        try:
            named_calls.fsync(self.fd)
            step = "close"
            self._file.close()
            step = "rename"
            if replace:
                named_calls.rename(self.path, self.target)
            else:
                named_calls.give_free_name(self.path, self.target)
            self._published = True
        except OSError as error:
            self.discard()
            sentence = f"{self.target}: {step} failed, nothing was published"
            raise file_error(error.errno or errno.EIO, sentence, self.target) from None
        try:
            fsync_directory(os.path.dirname(self.target))
        except OSError as error:
            self.in_doubt = True
            sentence = f"{self.target}: it is in place, but fsync of its directory failed and a crash may undo it"
            raise file_error(error.errno or errno.EIO, sentence, self.target) from None
        finally:
            if not replace:
                # Only after the fsync of the directory: a power cut could undo the link but keep the unlink.
                with contextlib.suppress(OSError):
                    os.unlink(self.path)

    def discard(self) -> None:
        """Remove the temporary file. You may call it again. A forked child only closes its descriptor."""
        with contextlib.suppress(OSError, AttributeError):
            self._file.close()
        if self.owned and not self._published and not self._keeps:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # After an exception of a signal handler, nobody else may refer to this object, or it may not have its file yet.
        # At the exit of the interpreter our modules are gone; the next writer recognises the leftover file.
        if hasattr(self, "path") and not finalizing():
            self.discard()

    def leave(self) -> None:
        """Close the file and leave it in place, as a killed writer would."""
        self._keeps = True
        self.discard()

    def remove(self) -> None:
        """Remove the file, even if another writer left it."""
        self._keeps = False
        self.discard()


def save_file(data: bytes, path: str) -> None:
    """Write a whole file, complete and durable or not at all. It replaces a file of the same name.

    Args:
        data: the whole content.
        path: path of the file.

    Raises:
        OSError: writing failed; names `path`. An older file stays unchanged.
    """
    part = PartFile(path)
    try:
        write_all(part.fd, memoryview(data), 0)
        part.publish()
    except OSError as error:
        if isinstance(error, RuntimeError):
            raise  # the message names the file already
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        part.discard()

"""Atomic publication of a directory: write it under a temporary name, make it durable, rename it."""

import ctypes
import errno
import os
from collections.abc import Sequence

from ffrecord.errors import REFUSED, file_error
from ffrecord.system import access, named_calls
from ffrecord.system.atomic_file import fsync_directory

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def publish(source: str, target: str) -> None:
    """Make a directory and everything in it durable, then give it its final name.

    Args:
        source: a directory on the file system of `target`. Nobody may write to it any more.
        target: a path without a file, or with an empty directory; the mode, group and access list of that directory
            stay.

    Raises:
        OSError (also a RuntimeError): a step failed. The target is unchanged, unless the message says that only its
            durability is unknown.
    """
    try:
        sync(source)
        replace(source, target)
    except OSError as error:
        if isinstance(error, RuntimeError):
            raise
        raise file_error(
            error.errno or errno.EIO, f"{target}: moving it into place failed, nothing was published", target
        ) from None
    try:
        fsync_directory(os.path.dirname(target))
    except OSError as error:
        sentence = f"{target}: it is in place, but fsync of its directory failed and a crash may undo it"
        raise file_error(error.errno or errno.EIO, sentence, target) from None


def replace(source: str, target: str, directory: int | None = None) -> None:
    """Give a directory its final name. The name is free, or taken by an empty directory, whose mode and group stay.

    Args:
        source: its temporary path, or its name in `directory`.
        target: its final path.
        directory: descriptor of the directory that contains `source`; None if `source` is a path.

    Raises:
        OSError: the rename was refused; nothing was changed.
    """
    if os.path.lexists(target):
        fd = os.open(source, DIRECTORY, dir_fd=directory)
        try:
            access.keep(fd, target, target)
        finally:
            os.close(fd)
    named_calls.rename(source, target, directory)


def sync(directory: str) -> None:
    """Flush a directory and all files below it to the disk, by one syncfs of the file system where that call exists.

    Raises:
        OSError (also a RuntimeError): the disk refused. The message names the file or directory.
    """
    fd = os.open(directory, DIRECTORY)
    try:
        code = _syncfs(fd)
    finally:
        os.close(fd)
    if code in REFUSED:
        _sync_each(directory)
    elif code:
        raise file_error(code, f"{directory}: syncfs failed", directory)


def _syncfs(fd: int) -> int:
    """Call syncfs(2); return 0 or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        return errno.ENOSYS
    return ctypes.get_errno() if libc.syncfs(fd) else 0


def _sync_each(top: str) -> None:
    for path, _, files, fd in os.fwalk(top):
        _sync_files(fd, path, files)
        try:
            named_calls.fsync(fd)
        except OSError as error:
            raise file_error(error.errno or errno.EIO, f"{path}: fsync of the directory failed", path) from None


def _sync_files(directory: int, path: str, names: Sequence[str]) -> None:
    for name in names:
        try:
            fd = os.open(name, FILE, dir_fd=directory)
            try:
                named_calls.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            file = os.path.join(path, name)
            raise file_error(error.errno or errno.EIO, f"{file}: fsync failed", file) from None

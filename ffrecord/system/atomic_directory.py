"""Publish a directory of files: it is written under a temporary name, made durable, and renamed."""

import ctypes
import errno
import os
from collections.abc import Sequence

from ffrecord.errors import file_error
from ffrecord.system import access
from ffrecord.system.atomic_file import REFUSED, fsync_directory

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def publish(source: str, target: str) -> None:
    """Make a directory with all that is in it durable, and give it its final name.

    Args:
        source: a directory on the file system of `target`. Nobody writes to it any more.
        target: a path where nothing or an empty directory is; that one's mode, group and access list stay.

    Raises:
        OSError (also a RuntimeError): a step failed. The target is as before, unless the message says that only its
            durability is unknown.
    """
    try:
        sync(source)
        replace(source, target)
    except OSError as error:
        if isinstance(error, RuntimeError):
            raise
        raise file_error(error.errno or errno.EIO, f"{target}: nothing was published", target) from None
    try:
        fsync_directory(os.path.dirname(target))
    except OSError as error:
        sentence = f"{target}: all is in place, but fsync of the directory that it is in failed and a crash may undo it"
        raise file_error(error.errno or errno.EIO, sentence, target) from None


def replace(source: str, target: str, directory: int | None = None) -> None:
    """Give a directory its final name, where nothing or an empty directory is; that one's mode and group stay.

    Args:
        directory: a descriptor of the one that `source` is a name in, if it is no path.

    Raises:
        OSError: refused; nothing was changed.
    """
    if os.path.lexists(target):
        fd = os.open(source, DIRECTORY, dir_fd=directory)
        try:
            access.keep(fd, target, target)
        finally:
            os.close(fd)
    os.rename(source, target, src_dir_fd=directory)


def sync(directory: str) -> None:
    """Bring a directory and all files below it to the disk: by one call for the whole file system, if there is one.

    Raises:
        OSError (also a RuntimeError): the disk refused. Names the file or directory.
    """
    fd = os.open(directory, DIRECTORY)
    try:
        code = _syncfs(fd)
    finally:
        os.close(fd)
    if code in REFUSED:
        _sync_each(directory)
    elif code:
        raise file_error(code, f"{directory}: syncfs", directory)


def _syncfs(fd: int) -> int:
    """0, or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        return errno.ENOSYS
    return ctypes.get_errno() if libc.syncfs(fd) else 0


def _sync_each(top: str) -> None:
    for path, _, files, fd in os.fwalk(top):
        _sync_files(fd, path, files)
        try:
            os.fsync(fd)
        except OSError as error:
            raise file_error(error.errno or errno.EIO, f"{path}: fsync of the directory", path) from None


def _sync_files(directory: int, path: str, names: Sequence[str]) -> None:
    for name in names:
        try:
            fd = os.open(name, FILE, dir_fd=directory)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            file = os.path.join(path, name)
            raise file_error(error.errno or errno.EIO, f"{file}: fsync", file) from None

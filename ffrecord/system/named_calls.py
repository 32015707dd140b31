"""System calls that a write needs, and whose names belong to the error if a container or file system refuses one.

A refused call is told by its errno only, such as EPERM: without its name nobody finds the rule that refuses it. An
OSError of these functions has the name as its attribute `call`, which `errors.file_error` puts into the message.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from ffrecord.errors import REFUSED

NOREPLACE = 1  # RENAME_NOREPLACE
AT_FDCWD = -100
# The links that a file may have are used up, the file system has none, or a container refuses the call.
WITHOUT_LINKS = (*REFUSED, errno.EMLINK)


@contextlib.contextmanager
def naming(call: str) -> Iterator[None]:
    """Context manager that gives an OSError the name of the call inside, unless it has one."""
    try:
        yield
    except OSError as error:
        error.call = getattr(error, "call", call)  # type: ignore[attr-defined]
        raise


def fsync(fd: int) -> None:
    """Do as `os.fsync`."""
    with naming("fsync"):
        os.fsync(fd)


def ftruncate(fd: int, size: int) -> None:
    """Do as `os.ftruncate`."""
    with naming("ftruncate"):
        os.ftruncate(fd, size)


def pwrite(fd: int, data: Any, offset: int) -> int:
    """Do as `os.pwrite`."""
    with naming("pwrite"):
        return os.pwrite(fd, data, offset)


def pread(fd: int, size: int, offset: int) -> bytes:
    """Do as `os.pread`."""
    with naming("pread"):
        return os.pread(fd, size, offset)


def mkdir(path: str, mode: int = 0o777, directory: int | None = None) -> None:
    """Do as `os.mkdir`; `directory` is its `dir_fd`."""
    with naming("mkdir"):
        os.mkdir(path, mode, dir_fd=directory)


def rename(source: str, target: str, source_directory: int | None = None, target_directory: int | None = None) -> None:
    """Do as `os.rename`; the directories are its `src_dir_fd` and `dst_dir_fd`."""
    with naming("rename"):
        if source_directory is None and target_directory is None:
            os.rename(source, target)
        else:
            os.rename(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory)


def open_directory(path: str, flags: int, directory: int | None = None) -> int:
    """Do as `os.open` with O_DIRECTORY; `directory` is its `dir_fd`."""
    with naming("open"):
        return os.open(path, flags | os.O_DIRECTORY, dir_fd=directory)


def listdir(path: str | int) -> list[str]:
    """Do as `os.listdir`."""
    with naming("getdents64"):
        return os.listdir(path)


def give_free_name(source: str, target: str) -> None:
    """Give a file a name that is free.

    Where the file system has no links, or the call is refused, the file is renamed: then it has no other name after.

    Raises:
        FileExistsError: the name is taken; nothing was changed.
        OSError: refused.
    """
    with naming("link"):
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in WITHOUT_LINKS:
                raise
            code = _rename_to_free_name(source, target)
            if code == errno.EEXIST:
                raise FileExistsError(code, os.strerror(code), target) from None
            if code:
                raise


def _rename_to_free_name(source: str, target: str) -> int:
    """Call renameat2(2) with RENAME_NOREPLACE; return 0 or the errno."""
    import ctypes  # takes milliseconds, and only file systems without links need it

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return errno.ENOSYS
    names = (AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target))
    return ctypes.get_errno() if libc.renameat2(*names, NOREPLACE) else 0

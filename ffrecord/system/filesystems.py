"""Absolute paths, the kinds of file systems as statfs(2) reports them, and whether O_DIRECT needs alignment."""

import contextlib
import errno
import fcntl
import os
import struct
from typing import NamedTuple, SupportsIndex

from ffrecord.errors import file_error
from ffrecord.system import named_calls
from ffrecord.system.values import whole_number

GONE = "the working directory of this process was removed; pass an absolute path, or change to another directory"


def absolute_path(path: str) -> str:
    """Return the absolute form of a path.

    Raises:
        FileNotFoundError (also a RuntimeError): the path is relative, and the working directory is gone.
    """
    try:
        return os.path.abspath(path)
    except OSError as error:
        raise file_error(error.errno or errno.ENOENT, f"{path}: {GONE}", path) from None


def real_path(path: str) -> str:
    """Return the absolute path without symbolic links. Errors are those of `absolute_path`."""
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise file_error(error.errno or errno.ENOENT, f"{path}: {GONE}", path) from None


def working_directory() -> str | None:
    """Return the working directory without symbolic links; None if it is gone."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return None


def list_names(path: str) -> list[str]:
    """Return the names in a directory, in any order.

    Raises:
        OSError (also a RuntimeError): it is no directory, or cannot be listed.
    """
    try:
        return named_calls.listdir(path)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"{path}: the directory cannot be listed", path) from None


def remark(path: str) -> str:
    """Return an addition to a message that a path does not exist: "" or that the working directory is gone."""
    return f"; {GONE}" if not os.path.isabs(path) and working_directory() is None else ""


class Filesystem(NamedTuple):
    """Kind of a file system.

    Attributes:
        name: its name for mount(8), or the type in hex.
        network: reads wait for a server or a user process: threads keep many in flight, and a page fault may fail.
        memory: files are in memory; reads never wait.
    """

    name: str
    network: bool = False
    memory: bool = False


_KINDS = {
    0xEF53: Filesystem("ext4"),
    0x58465342: Filesystem("xfs"),
    0x9123683E: Filesystem("btrfs"),
    0xF2F52010: Filesystem("f2fs"),
    0x2FC12FC1: Filesystem("zfs"),
    0xCA451A4E: Filesystem("bcachefs"),
    0x794C7630: Filesystem("overlay"),
    0x73717368: Filesystem("squashfs"),
    0xE0F5E1E2: Filesystem("erofs"),
    0x01021994: Filesystem("tmpfs", memory=True),
    0x858458F6: Filesystem("ramfs", memory=True),
    0x6969: Filesystem("nfs", network=True),
    0x517B: Filesystem("smb", network=True),
    0xFE534D42: Filesystem("smb2", network=True),
    0xFF534D42: Filesystem("cifs", network=True),
    0x00C36400: Filesystem("ceph", network=True),
    0x0BD00BD0: Filesystem("lustre", network=True),
    0x47504653: Filesystem("gpfs", network=True),
    0x19830326: Filesystem("beegfs", network=True),
    0x5346414F: Filesystem("afs", network=True),
    0x01021997: Filesystem("9p", network=True),
    0x6B414653: Filesystem("afs", network=True),
    0x73757245: Filesystem("coda", network=True),
    0x20030528: Filesystem("orangefs", network=True),
    0xAAD7AAEA: Filesystem("panfs", network=True),
    0x01161970: Filesystem("gfs2", network=True),
    0x7461636F: Filesystem("ocfs2", network=True),
    0x786F4256: Filesystem("vboxsf", network=True),
    0x65735546: Filesystem("fuse", network=True),
}


def from_type(number: int) -> Filesystem:
    """Return the kind with this f_type; an unknown type counts as a local file system."""
    return _KINDS.get(number, Filesystem(hex(number)))


def set_blocking(fd: int) -> None:
    """Clear O_NONBLOCK of a regular file.

    It was opened with that flag because it could have been a FIFO. For regular files the flag makes no difference to
    reads, so a system that refuses to clear it does no harm.
    """
    with contextlib.suppress(OSError):
        os.set_blocking(fd, True)


# _IOR('f', 100, int). Only the file system of the authors of 1.x is known to answer it.
_CHECK_FS_ALIGN = 0x80046664
_ANSWER = struct.Struct("=I")
_YES = 1


def checkFsAlign(fd: SupportsIndex, /) -> bool:  # noqa: N802, the original's name
    """Tell whether the file system of an open file says that O_DIRECT needs no alignment.

    Args:
        fd: a file descriptor; a bad one is no error.

    Raises:
        TypeError: `fd` is not an integer.
    """
    descriptor, answer = whole_number("fd", fd), bytearray(_ANSWER.size)
    try:
        fcntl.ioctl(descriptor, _CHECK_FS_ALIGN, answer)
    except (OSError, ValueError, OverflowError):
        return False
    return bool(_ANSWER.unpack(answer)[0] == _YES)

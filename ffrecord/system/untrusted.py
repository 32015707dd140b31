"""Files and names that somebody else may have made.

Treat whatever a killed writer seems to have left as a stranger's until you have looked at it. An archive, or another
user of a shared directory, can have put a link, a FIFO, a device, a hard link of another file or a file of terabytes
there. Such a file is opened by `open_file` and nowhere else. A name that was read from a file is checked by `is_plain`,
mostly through `check_name`, before it becomes a path. Names of several parts, as in archives, go through
`safe_unpack.safe_parts`.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from errno import ENXIO, EPERM

from ffrecord.errors import FormatError, escaped

SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # opening a FIFO must not wait for a writer
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SPARSE = 1000  # times the room that a file takes of the disk: beyond this it is no compression, but holes
SPARSE_FROM = 64 << 20  # bytes, up to which nobody asks

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class Refused(PermissionError):
    """The error of a name of ours at which something is that is not ours to use. Its `strerror` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(EPERM, escaped(reason))


# Names


def is_plain(name: str, suffix: str = "") -> bool:
    """Tell whether a name is one of a file in a directory, and leads nowhere else.

    Args:
        suffix: that it must end in, after something.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    return name.endswith(suffix) and name != suffix


def check_name(name: str, suffix: str, what: str) -> None:
    """Refuse a name, read from a file, that is not one of a file in a directory.

    Args:
        suffix: that it must end in.
        what: the name is, for the message.

    Raises:
        FormatError: as said; without the path of the file that it was read from.
    """
    if not is_plain(name, suffix):
        raise FormatError(f"{what} {name[:200]!r}, expected a plain file name that ends in {suffix}")


# Files


def kind_of(mode: int) -> str:
    """Return what a `st_mode` is of, in words."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a file")


def open_file(name: str, flags: int, *, directory: int | None = None, owner: int | None = None, links: int = 1) -> int:
    """Open a regular file that nobody else can have put there to lead elsewhere.

    Args:
        name: its path, or its name in `directory`.
        flags: of open(2). Where they have O_CREAT, its mode is 0666 less the umask.
        directory: a descriptor.
        owner: the user that it must belong to; None for any.
        links: how many names it may have.

    Returns:
        its descriptor.

    Raises:
        Refused: something else is there. It was not opened, or closed at once.
        OSError: of the failed call.
    """
    if not flags & os.O_EXCL:
        # Not only afterwards: the mere opening of some devices has effects.
        with contextlib.suppress(FileNotFoundError):
            _check(os.stat(name, dir_fd=directory, follow_symlinks=False), owner, links)
    fd = os.open(name, flags | SAFE, 0o666, dir_fd=directory)
    try:
        _check(os.fstat(fd), owner, links)
        os.set_blocking(fd, True)
    except BaseException:
        _close(fd)
        raise
    return fd


def _close(fd: int) -> None:
    """Close a descriptor through which nothing was written: a close that fails has closed it, and says nothing else."""
    with contextlib.suppress(OSError):
        os.close(fd)


def _check(status: os.stat_result, owner: int | None, links: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"it is {kind_of(status.st_mode)}, expected a regular file")
    if owner is not None and status.st_uid != owner:
        raise Refused(f"it belongs to user {status.st_uid}, expected {owner}")
    if status.st_nlink > links:
        raise Refused(f"it has {status.st_nlink} names (hard links), expected {links}")


def is_own(name: str, *, directory: int | None = None, owner: int | None = None) -> bool:
    """Tell whether `open_file` would take what is there; a directory of the same owner for a name that ends in "/"."""
    try:
        status = os.stat(name.rstrip("/"), dir_fd=directory, follow_symlinks=False)
        if name.endswith("/"):
            return stat.S_ISDIR(status.st_mode) and owner in (None, status.st_uid)
        _check(status, owner, 1)
    except OSError:
        return False
    return True


def read_file(name: str, most: int | None, *, directory: int | None = None, owner: int | None = None) -> bytes:
    """Return the first bytes of a file, as `open_file` finds it.

    Args:
        most: bytes, beyond which nothing is read; None for all.

    Raises:
        Refused: as `open_file`; or there is less to read than its size says, see `is_sparse`.
        OSError: of opening or reading.
    """
    with open(open_file(name, os.O_RDONLY, directory=directory, owner=owner), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if is_sparse(file.fileno()):
            raise Refused(f"its {size} bytes are holes")
        # Room is made for as much as is asked for, so that is no more than there is.
        return file.read(size if most is None else min(size, most))


def is_sparse(fd: int) -> bool:
    """Tell whether an open file takes so little room of the disk that its size, which may be terabytes, says nothing.

    Its offset is 0 afterwards.
    """
    status = os.fstat(fd)
    if status.st_size <= SPARSE_FROM:
        return False
    if status.st_blocks:
        return status.st_size > SPARSE * 512 * status.st_blocks
    try:
        os.lseek(fd, 0, os.SEEK_DATA)  # some file systems in user space say of no file how much room it takes
    except OSError as error:
        return error.errno == ENXIO
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return False


# Owners


@contextlib.contextmanager
def opened_directory(name: str, *, directory: int | None = None) -> Iterator[int]:
    """Open a directory that is not a link to one; give its descriptor, and close that at the end.

    Raises:
        Refused: something else is there.
        OSError: of the failed call.
    """
    fd = open_directory(name, directory=directory)
    try:
        yield fd
    finally:
        _close(fd)


@contextlib.contextmanager
def directory_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the directory that a file is in, which the user has named and may be a link; give also the file's name.

    Raises:
        OSError: of the failed call.
    """
    parent, name = os.path.split(path)
    fd = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd, name
    finally:
        _close(fd)


def open_directory(name: str, *, directory: int | None = None) -> int:
    """Open a directory that is not a link to one; the caller closes it.

    Raises:
        Refused: something else is there.
        OSError: of the failed call.
    """
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
    except NotADirectoryError:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        raise Refused(f"it is {kind_of(mode)}, expected a directory") from None


def owner_of(directory: int) -> int:
    """Return the user that an open directory, and what this process makes in it, belong to.

    Mostly that is the user of this process, but not where a server or a mount gives all files to another one.

    Raises:
        Refused: the directory belongs to somebody else.
    """
    owner = os.fstat(directory).st_uid
    if owner != os.geteuid() and user_of_new(directory) != owner:
        raise Refused(f"it belongs to another user ({owner})")
    return owner


def user_of(name: str, directory: int) -> int:
    """Return the user that a file in an open directory must belong to if this user has made it.

    Raises:
        OSError: it is not there.
    """
    user = os.geteuid()
    if os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid == user:
        return user
    new = user_of_new(directory)
    return user if new is None else new


def is_ours(path: str) -> bool:
    """Tell whether a path is of a regular file of this user, without another name."""
    with contextlib.suppress(OSError), directory_of(path) as (directory, name):
        return is_own(name, directory=directory, owner=user_of(name, directory))
    return False


def user_of_new(directory: int) -> int | None:
    """Return the user that what this process makes in a directory belongs to; None if it can make nothing there."""
    name = f".{secrets.token_hex(6)}.part"
    try:
        os.mkdir(name, dir_fd=directory)
        try:
            return os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid
        finally:
            os.rmdir(name, dir_fd=directory)
    except OSError:
        return None

"""Safe handling of files and names that somebody else may have created.

Treat everything that a killed writer seems to have left as untrusted until you have checked it. An archive, or another
user of a shared directory, can have put a link, a FIFO, a device, a hard link of another file or a file of terabytes
there. Only `open_file` opens such a file. A name read from a file is checked by `is_plain`, usually through
`check_name`, before it becomes a path. Names with several parts, as in archives, go through `safe_unpack.safe_parts`.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from errno import ENXIO, EPERM

from ffrecord.errors import FormatError, escape_unprintable
from ffrecord.system import named_calls

SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # opening a FIFO must not wait for a writer
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SPARSE = 1000  # ratio of size to disk usage beyond which a file has holes: no compression reaches it
SPARSE_FROM = 64 << 20  # bytes; smaller files are not checked

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class Refused(PermissionError):
    """Error of a file of ours whose name is taken by something that is not ours to use. Its `strerror` names the
    reason.
    """

    is_ours = True  # no system call was refused, see `errors.file_error`

    def __init__(self, reason: str) -> None:
        super().__init__(EPERM, escape_unprintable(reason))


# Names


def is_plain(name: str, suffix: str = "") -> bool:
    """Tell whether a name is a plain name of a file in a directory, which leads nowhere else.

    Args:
        name: the name.
        suffix: required ending; other characters must precede it.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    return name.endswith(suffix) and name != suffix


def check_name(name: str, suffix: str, what: str) -> None:
    """Refuse a name, read from a file, that is not a plain file name.

    Args:
        name: the name.
        suffix: required ending.
        what: description of the name, for the message.

    Raises:
        FormatError: the name is not plain. The message lacks the path of the file that it was read from.
    """
    if not is_plain(name, suffix):
        raise FormatError(f"{what} is {name[:200]!r}, expected a plain file name that ends in {suffix}")


# Files


def describe_kind(mode: int) -> str:
    """Return the kind of file that a `st_mode` describes, in words."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a file")


def open_file(name: str, flags: int, *, directory: int | None = None, owner: int | None = None, links: int = 1) -> int:
    """Open a regular file, and refuse everything that somebody else may have put there to lead elsewhere.

    Args:
        name: its path, or its name in `directory`.
        flags: flags of open(2). With O_CREAT, the mode is 0666 less the umask.
        directory: descriptor of its directory.
        owner: user id that it must belong to; None for any.
        links: maximum number of its names (hard links).

    Returns:
        Its descriptor.

    Raises:
        Refused: something else is there. It was not opened, or closed at once.
        OSError: a call failed.
    """
    if not flags & os.O_EXCL:
        # Check before opening too: opening some devices already has side effects.
        with contextlib.suppress(FileNotFoundError):
            _check(os.stat(name, dir_fd=directory, follow_symlinks=False), owner, links)
    with named_calls.naming("open"):
        fd = os.open(name, flags | SAFE, 0o666, dir_fd=directory)
    try:
        _check(os.fstat(fd), owner, links)
        os.set_blocking(fd, True)
    except BaseException:
        _close(fd)
        raise
    return fd


def _close(fd: int) -> None:
    """Close a descriptor that nothing was written through. Ignore the error of a failed close: it closes too."""
    with contextlib.suppress(OSError):
        os.close(fd)


def _check(status: os.stat_result, owner: int | None, links: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"it is {describe_kind(status.st_mode)}, expected a regular file")
    if owner is not None and status.st_uid != owner:
        raise Refused(f"it belongs to user {status.st_uid}, expected {owner}")
    if status.st_nlink > links:
        raise Refused(f"it has {status.st_nlink} names (hard links), expected {links}")


def is_own(name: str, *, directory: int | None = None, owner: int | None = None) -> bool:
    """Tell whether `open_file` would open a file. For a name that ends in "/": whether it is a directory of the same
    owner.
    """
    try:
        status = os.stat(name.rstrip("/"), dir_fd=directory, follow_symlinks=False)
        if name.endswith("/"):
            return stat.S_ISDIR(status.st_mode) and owner in (None, status.st_uid)
        _check(status, owner, 1)
    except OSError:
        return False
    return True


def read_file(name: str, most: int | None, *, directory: int | None = None, owner: int | None = None) -> bytes:
    """Return the first bytes of a file, opened by `open_file`.

    Args:
        name: its path, or its name in `directory`.
        most: maximum number of bytes; None for all.
        directory: descriptor of its directory.
        owner: user id that it must belong to; None for any.

    Raises:
        Refused: `open_file` refuses the file, or it is mostly holes (see `is_sparse`).
        OSError: opening or reading failed.
    """
    with open(open_file(name, os.O_RDONLY, directory=directory, owner=owner), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if is_sparse(file.fileno()):
            raise Refused(f"its {size} bytes are a hole, expected data")
        # read() allocates as many bytes as requested, so request no more than the file has.
        return file.read(size if most is None else min(size, most))


def is_sparse(fd: int) -> bool:
    """Tell whether an open file uses so little disk space that its size, which may be terabytes, is not credible.

    Its offset is 0 afterwards.
    """
    status = os.fstat(fd)
    if status.st_size <= SPARSE_FROM:
        return False
    if status.st_blocks:
        return status.st_size > SPARSE * 512 * status.st_blocks
    try:
        os.lseek(fd, 0, os.SEEK_DATA)  # some file systems in user space report 0 blocks for every file
    except OSError as error:
        return error.errno == ENXIO
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return False


# Owners


@contextlib.contextmanager
def enter_directory(name: str, *, directory: int | None = None) -> Iterator[int]:
    """Context manager that opens a directory, not a link to one, and gives its descriptor.

    Raises:
        Refused: something else is there.
        OSError: a call failed.
    """
    fd = open_directory(name, directory=directory)
    try:
        yield fd
    finally:
        _close(fd)


@contextlib.contextmanager
def enter_parent(path: str) -> Iterator[tuple[int, str]]:
    """Context manager that opens the directory of a file, and gives its descriptor and the file's name.

    The user has named the directory, so it may be a link.

    Raises:
        OSError: a call failed.
    """
    parent, name = os.path.split(path)
    fd = named_calls.open_directory(parent or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd, name
    finally:
        _close(fd)


def open_directory(name: str, *, directory: int | None = None) -> int:
    """Open a directory, not a link to one, and return its descriptor; the caller closes it.

    Raises:
        Refused: something else is there.
        OSError: a call failed.
    """
    try:
        return named_calls.open_directory(name, DIRECTORY, directory)
    except NotADirectoryError:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        raise Refused(f"it is {describe_kind(mode)}, expected a directory") from None


def owner_of(directory: int) -> int:
    """Return the user id of an open directory; files that this process creates in it belong to the same user.

    Usually that is the user of this process, unless a server or a mount assigns all files to another user.

    Raises:
        Refused: the directory belongs to somebody else.
    """
    owner = os.fstat(directory).st_uid
    if owner != os.geteuid() and user_of_new(directory) != owner:
        raise Refused(f"it belongs to another user ({owner})")
    return owner


def user_of(name: str, directory: int) -> int:
    """Return the user id that a file in an open directory has if this user has created it.

    Raises:
        OSError: the file does not exist.
    """
    user = os.geteuid()
    if os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid == user:
        return user
    new = user_of_new(directory)
    return user if new is None else new


def is_ours(path: str) -> bool:
    """Tell whether a path leads to a regular file of this user that has no second name."""
    with contextlib.suppress(OSError), enter_parent(path) as (directory, name):
        return is_own(name, directory=directory, owner=user_of(name, directory))
    return False


def user_of_new(directory: int) -> int | None:
    """Return the user id of files that this process creates in a directory; None if it can create nothing there."""
    name = f".{secrets.token_hex(6)}.part"
    try:
        named_calls.mkdir(name, directory=directory)
        try:
            return os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid
        finally:
            os.rmdir(name, dir_fd=directory)
    except OSError:
        return None

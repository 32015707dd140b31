"""Who may read and write a file or directory: mode, group and access list stay when another one takes its place."""

import contextlib
import errno
import os
import stat

from ffrecord.errors import file_error

ACCESS_LIST = "system.posix_acl_access"
READ = 0o444
GROUP_WRITES = 0o020


def keep(fd: int, old: str, label: str, *, adds: bool = False) -> bool:
    """Give a new file or directory the mode, group and access list of the one whose place it takes.

    The old one may belong to somebody else, who must not choose who may use ours: then only what both modes allow is
    allowed. Bits that make a file run as another user are left out. If this process may not set the group or the list,
    the group may do no more than everybody else.

    Args:
        fd: of the new one, open.
        old: path of the old one; a link is followed. If nothing is there, nothing is done.
        label: what messages call the new one.
        adds: whether the new file becomes a part of what the old one is a part of. Then whoever may read the old one
            may read the new one, even if it belongs to somebody else.

    Returns:
        Whether something of it was changed, which an fsync makes durable.

    Raises:
        OSError (also a RuntimeError): the mode cannot be changed.
    """
    try:
        return _keep(fd, old, adds)
    except FileNotFoundError:
        return False
    except OSError as error:
        sentence = f"{label}: giving the new file the mode of the old one ({old})"
        raise file_error(error.errno or errno.EIO, sentence, label) from None


def _keep(fd: int, old: str, adds: bool) -> bool:
    before, now = os.stat(old), os.fstat(fd)
    mode = stat.S_IMODE(before.st_mode) & (0o7777 if stat.S_ISDIR(now.st_mode) else 0o777)
    own = before.st_uid == now.st_uid
    if not own:
        mode &= now.st_mode | (READ if adds else 0)
        mode &= ~GROUP_WRITES if before.st_gid != now.st_gid else 0o7777
    if (own or adds) and not (_give_group(fd, before, now) and _give_list(fd, old, own)):
        mode &= 0o7707 | (mode & 0o7) << 3
    if mode != stat.S_IMODE(os.fstat(fd).st_mode):
        os.fchmod(fd, mode)
    return os.fstat(fd) != now


def _give_group(fd: int, before: os.stat_result, now: os.stat_result) -> bool:
    """Whether the file belongs to the group that the old one had."""
    if before.st_gid == now.st_gid:
        return True
    with contextlib.suppress(OSError):
        os.fchown(fd, -1, before.st_gid)
        return True
    return False


def _give_list(fd: int, old: str, own: bool) -> bool:
    """Whether the file has the access list of the old one, or that has none."""
    listed = _list(old)
    if listed is None or listed == _list(fd):
        return True
    with contextlib.suppress(OSError):
        if own:
            os.setxattr(fd, ACCESS_LIST, listed)
            return True
    return False


def _list(file: str | int) -> bytes | None:
    with contextlib.suppress(OSError):
        return os.getxattr(file, ACCESS_LIST)
    return None  # no list, or no file system that has any

"""Access rights of a file or directory: a replacement keeps the mode, group and access list of the old one."""

import contextlib
import errno
import os
import stat

from ffrecord.errors import file_error
from ffrecord.system import named_calls

ACCESS_LIST = "system.posix_acl_access"
READ = 0o444
GROUP_WRITES = 0o020


def keep(fd: int, old: str, label: str, *, adds: bool = False) -> bool:
    """Give a new file or directory the mode, group and access list of the one that it replaces.

    The old one may belong to somebody else, who must not decide who may use ours. In that case the new mode allows only
    what both modes allow. Bits that make a file run as another user are dropped. If this process may not set the group
    or the list, the group gets no more rights than everybody else.

    Args:
        fd: descriptor of the new file or directory.
        old: path of the old one; a link is followed. If nothing is there, nothing is done.
        label: name of the new one in messages.
        adds: whether the new file joins the dataset of the old one. Then everybody who may read the old file may read
            the new one, even if the old one belongs to somebody else.

    Returns:
        Whether anything was changed. An fsync makes the change durable.

    Raises:
        OSError (also a RuntimeError): the mode cannot be changed.
    """
    try:
        return _keep(fd, old, adds)
    except FileNotFoundError:
        return False
    except OSError as error:
        sentence = f"{label}: giving the new file the mode of the old one ({old}) failed"
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
        with named_calls.naming("fchmod"):
            os.fchmod(fd, mode)
    return os.fstat(fd) != now


def _give_group(fd: int, before: os.stat_result, now: os.stat_result) -> bool:
    """Set the group of the old file; return whether the new file has it."""
    if before.st_gid == now.st_gid:
        return True
    with contextlib.suppress(OSError):
        os.fchown(fd, -1, before.st_gid)
        return True
    return False


def _give_list(fd: int, old: str, own: bool) -> bool:
    """Set the access list of the old file; return whether the new file has it, or the old one has none."""
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
    return None  # there is no list, or the file system supports none

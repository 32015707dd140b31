"""The directory of this machine where shards for a URL are made.

It is either one that the same call finds again, or one of this process alone.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ffrecord.errors import file_error
from ffrecord.reading.paths import local_path
from ffrecord.remote.connecting import identity_of
from ffrecord.system import filesystems, untrusted, urls
from ffrecord.system.atomic_file import LOCK_TRIES, lock, remove_tree

SHOWN = 60  # characters of the URL's last part in the directory's name


def staging_path(url: str, storage_options: Mapping[str, Any] | None, staging: str | os.PathLike[str] | None) -> str:
    """Return the path whose part directory belongs to a URL. Nothing is created at the path itself.

    Args:
        staging: parent directory; None for one of this user below the system's temporary directory.
    """
    root = _root("staging") if staging is None else Path(local_path("staging", staging))
    # Another bucket, account or endpoint must not find the shards of this one.
    told = identity_of(url, storage_options)
    # A name for people; the hash alone tells URLs apart.
    name = urls.name_of(url)[-SHOWN:] or urls.split_url(urls.redact(url))[1][-SHOWN:]
    return str(
        Path(filesystems.absolute_path(os.fspath(root)))
        / f"{name}-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"
    )


def _root(purpose: str) -> Path:
    """Return a directory of this user in the system's temporary one."""
    # The number keeps users of one machine apart, who share the temporary directory.
    return Path(tempfile.gettempdir()) / f"ffrecord-{purpose}-{os.geteuid()}"


def make_staging(target: str, *, own: bool) -> None:
    """Make the directory of `target`, for this user alone.

    Args:
        own: whether anybody could have used its name before us.

    Raises:
        OSError (also a RuntimeError): it cannot be made, or is not ours alone.
    """
    directory = os.path.dirname(target)
    try:
        # 0700: shards may be private, and the temporary directory is everybody's.
        os.makedirs(directory, 0o700, exist_ok=True)
        # Not `stat`: somebody may have put a link there first.
        status = os.lstat(directory)
    except OSError as error:
        raise file_error(
            error.errno or errno.EIO, f"{directory}: the staging directory could not be created", directory
        ) from None
    # A directory that the user has named may belong to a group.
    if not own:
        return
    others = stat.S_IMODE(status.st_mode) & 0o077
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or others:
        sentence = f"{directory} is not a directory of this user alone; pass staging= for another one"
        raise file_error(errno.EPERM, sentence, directory)


class ScratchDirectory:
    """A directory of this process, removed when it is closed. This user's next one removes those of killed processes.

    Args:
        purpose: purpose, part of the parent directory's name.

    Attributes:
        path: path of the directory.

    Raises:
        OSError (also a RuntimeError): it cannot be made, or its parent does not belong to this user alone.
    """

    def __init__(self, purpose: str) -> None:
        root = _root(purpose)
        make_staging(str(root / "any"), own=True)
        # A lock that is free belongs to a process that was killed.
        for name in os.listdir(root):
            _remove_if_left(str(root / name))
        for _ in range(LOCK_TRIES):
            self.path = str(root / secrets.token_hex(8))
            self._fd = _create_locked(self.path)
            if self._fd >= 0:
                return
        raise file_error(
            errno.EBUSY, f"{root}: another process removes each directory that is created there", str(root)
        )

    def close(self) -> None:
        """Remove it; may be repeated."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # Removed while locked, so that nobody takes it for a leftover in the middle.
            remove_tree(self.path)
            os.close(fd)


def _create_locked(path: str) -> int:
    """Create and lock a directory; return its descriptor.

    Return -1 if another process took it for a leftover before it was locked, and removed it.
    """
    os.mkdir(path)
    try:
        fd = untrusted.open_directory(path)
    except FileNotFoundError:
        return -1
    except OSError:
        os.rmdir(path)
        raise
    try:
        if lock(fd, path):
            return fd
    except OSError:
        return fd  # no locks on this file system: no other process will take it for a leftover
    os.close(fd)
    return -1


def _remove_if_left(path: str) -> None:
    """Remove the directory of a process that has ended, which gave up its lock."""
    with contextlib.suppress(OSError), untrusted.enter_directory(path) as fd:
        if lock(fd, path):
            remove_tree(path)

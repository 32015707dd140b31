"""A hidden directory in one that others may write to.

It is found once, locked, and from then on used by its descriptor: somebody may put another one, or a link, at its name.
Its content is a stranger's until it was looked at (see untrusted.py): the directory itself may be from an archive.
"""

import contextlib
import fcntl
import io
import logging
import os
import stat
import time
from errno import EEXIST, ENOENT, ENOTEMPTY, ESTALE, EWOULDBLOCK
from pathlib import Path

from ffrecord.system import untrusted
from ffrecord.system.atomic_file import fsync_directory, write_all
from ffrecord.system.untrusted import Refused

PATIENCE = 1.0  # seconds for the processes of a writer that was killed to end, and its lock with them
PAUSE = 0.02
PASSING = (EWOULDBLOCK, ENOENT, ESTALE)  # while the one who had the lock tidies up
OTHERS = stat.S_IWGRP | stat.S_IWOTH
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL

_log = logging.getLogger("ffrecord")


class LockedDirectory:
    """A hidden directory that this process has made, or taken over, and locked. Only its user may write to it.

    Args:
        path: where, under its real name. Missing parents are made, each durable in its own.
        lock: name of the file in it that is locked, and made if it is not there; None: the directory is locked.

    Attributes:
        fd: its descriptor, -1 once it is closed.
        file: the open lock file; None without one.
        owner: the user that it and what this process makes in it belong to.

    Raises:
        BlockingIOError: somebody else has it.
        Refused: what is there is not ours to use. Nothing in it was touched.
        OSError: it cannot be had. What was made is removed.
    """

    def __init__(self, path: str, lock: str | None = None) -> None:
        self.path, self._lock = path, lock
        self._made: list[str] = []  # directories, parents first
        self.fd = -1
        self.file: io.FileIO | None = None
        try:
            self._wait()
        except BaseException:
            self.remove_made()
            raise

    def _make_parents(self) -> None:
        missing = [parent for parent in Path(self.path).parents if not parent.exists()]
        for parent in reversed(missing):
            with contextlib.suppress(FileExistsError):
                parent.mkdir()
                self._made.append(str(parent))
            fsync_directory(str(parent.parent))

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._make_parents()
                return self._take()
            except OSError as error:
                if error.errno not in PASSING or time.monotonic() >= deadline:
                    raise
            time.sleep(PAUSE)

    def _take(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o755)
            self._made.append(self.path)
        try:
            self.fd = untrusted.open_directory(self.path)
            self.owner = untrusted.owner_of(self.fd)
            self._keep_others_out()
            if self._lock is None:
                with contextlib.suppress(_NoLocks):  # directories cannot be locked on NFS; the datasets in them are
                    _flock(self.fd)
            else:
                self._lock_file(self._lock)
            if not self._is_there():
                raise OSError(ESTALE, os.strerror(ESTALE))
        except BaseException as error:
            self.close()
            if isinstance(error, Refused):
                raise Refused(f"{self.path}: {error.strerror}") from None
            raise

    def _keep_others_out(self) -> None:
        """Let nobody else write to it: what is looked at once must stay what it is."""
        mode = stat.S_IMODE(os.fstat(self.fd).st_mode)
        if mode & OTHERS:
            with contextlib.suppress(OSError):  # mounts without modes
                os.fchmod(self.fd, mode & ~OTHERS)

    def _lock_file(self, name: str) -> None:
        self.file = io.FileIO(name, "r+", opener=self._opened)
        fd = self.file.fileno()
        try:
            _flock(fd)
        except _NoLocks as error:
            # Lustre mounted without -o flock says ENOSYS, NFS without its lock service ENOLCK.
            path = os.path.join(self.path, name)
            _log.warning("%s: no locks here (%s): two writers of one target would not notice each other", path, error)
        # The one who had it may have removed it, or published all.
        if not os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=self.fd, follow_symlinks=False)):
            raise OSError(ESTALE, os.strerror(ESTALE))

    def _opened(self, name: str, flags: int) -> int:
        try:
            return untrusted.open_file(name, os.O_RDWR | os.O_CREAT, directory=self.fd, owner=self.owner)
        except Refused as error:
            raise Refused(f"{name}: {error.strerror}") from None

    def remove_made(self) -> None:
        """Remove the directories that were made for nothing, but those in which somebody has put something."""
        while self._made:
            with contextlib.suppress(OSError):
                os.rmdir(self._made.pop())

    def _is_there(self) -> bool:
        """Tell whether it is still what is at its path.

        Raises:
            OSError: nobody can tell.
        """
        try:
            return os.path.samestat(os.fstat(self.fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """Raise PermissionError if something else is at its path.

        Raises:
            OSError: nobody can tell.
        """
        if not self._is_there():
            raise Refused(f"{self.path} was replaced by something else meanwhile")

    # What is in it

    def names(self) -> set[str]:
        """Return the names of what is in it."""
        return set(os.listdir(self.fd))

    def holds(self, name: str) -> bool:
        """Tell whether something of that name is in it."""
        return name in self.names()

    def has_directory(self, name: str) -> bool:
        """Tell whether a directory of our own, not a link to one, has that name in it."""
        return untrusted.is_own(f"{name}/", directory=self.fd, owner=self.owner)

    def make_directory(self, name: str) -> None:
        """Make a directory in it, unless one of ours is there.

        Raises:
            Refused: something else is there, as a link.
            OSError: refused.
        """
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.fd)
        if not self.has_directory(name):
            mode = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode
            found = "another user's directory" if stat.S_ISDIR(mode) else untrusted.kind_of(mode)
            raise Refused(f"{os.path.join(self.path, name)}: it is {found}, expected a directory of this user")

    def read(self, name: str, most: int) -> bytes:
        """Return the first bytes of a file, `most` of them.

        Raises:
            OSError: it is not there, not ours, or cannot be read.
        """
        return untrusted.read_file(name, most, directory=self.fd, owner=self.owner)

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file, durably: what was there is there, or all of this.

        Raises:
            OSError: refused. Names the file.
        """
        beside = f".{name}"
        try:
            self.remove(beside)
            fd = untrusted.open_file(beside, NEW, directory=self.fd, owner=self.owner)
            try:
                write_all(fd, memoryview(data), 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(beside, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            os.fsync(self.fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, os.path.join(self.path, name)) from None

    def remove(self, name: str) -> None:
        """Remove what has that name, if it is there, with all in it; links are not followed."""
        remove(name, self.fd)

    def remove_all_but(self, names: set[str], inside: str) -> None:
        """Remove all that is in a directory in it, but what has these names."""
        with untrusted.opened_directory(inside, directory=self.fd) as fd:
            for name in set(os.listdir(fd)) - names:
                remove(name, fd)

    def discard(self) -> None:
        """Remove all in it, and the directory itself if nothing else is at its path."""
        for name in self.names():
            self.remove(name)
        self.remove_itself()

    def remove_itself(self) -> None:
        """Remove the directory, which is empty, if nothing else is at its path."""
        if self._is_there():
            os.rmdir(self.path)

    def close(self) -> None:
        """Unlock it; may be repeated."""
        file, self.file = self.file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the lock is gone even so, and what is in it was synced
                file.close()
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def remove(name: str, directory: int) -> None:
    """Remove what has a name in an open directory, if it is there, with all in it; links are not followed.

    Raises:
        OSError: something could not be removed.
    """
    try:
        # First: an empty directory goes without another descriptor, of which there may be none.
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in (ENOTEMPTY, EEXIST):
            raise
        _empty(name, directory)
        os.rmdir(name, dir_fd=directory)


def _empty(name: str, directory: int) -> None:
    """Remove all that is below a directory.

    Raises:
        OSError: something could not be removed.
    """
    failed: list[OSError] = []
    for _, folders, files, fd in os.fwalk(name, topdown=False, onerror=failed.append, dir_fd=directory):
        for each in files:
            os.unlink(each, dir_fd=fd)
        for each in folders:
            remove(each, fd)
    if failed:
        raise failed[0]


class _NoLocks(Exception):
    """The file system has no locks; says its error."""


def _flock(fd: int) -> None:
    """Lock a file or directory.

    Raises:
        BlockingIOError: another process has it locked.
        _NoLocks: it cannot be locked.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _NoLocks(str(error)) from None

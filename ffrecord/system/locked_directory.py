"""Locked hidden directory inside a directory that others may write to.

It is opened once, locked, and then used only by its descriptor, because somebody may put another directory or a link at
its name. Its content is untrusted until it was checked (see untrusted.py): the directory may come from an archive.
"""

import contextlib
import fcntl
import io
import logging
import os
import stat
import time
from errno import EEXIST, EIO, ENOENT, ENOTEMPTY, ESTALE, EWOULDBLOCK
from pathlib import Path

from ffrecord.errors import file_error
from ffrecord.system import named_calls, untrusted
from ffrecord.system.atomic_file import fsync_directory, write_all
from ffrecord.system.untrusted import Refused

PATIENCE = 1.0  # seconds to wait for the processes of a killed writer to end, which frees its lock
PAUSE = 0.02
PASSING = (EWOULDBLOCK, ENOENT, ESTALE)  # temporary errors while the previous owner of the lock cleans up
OTHERS = stat.S_IWGRP | stat.S_IWOTH
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL

_log = logging.getLogger("ffrecord")


def _reason_of(error: OSError) -> str:
    """Return the reason of an error of our own checks, as the end of a sentence; "" for errors of the system."""
    return f": {error.strerror}" if isinstance(error, Refused) else ""


class LockedDirectory:
    """Hidden directory that this process has created or taken over, and locked. Only its user may write to it.

    Args:
        path: its path, without symbolic links. Missing parents are created; each is made durable.
        lock: name of the file in it to lock, created if missing; None to lock the directory itself.

    Attributes:
        fd: descriptor of the directory, -1 once it is closed.
        file: the open lock file; None without one.
        owner: user id that the directory and the files that this process creates in it belong to.

    Raises:
        BlockingIOError: another process has locked it.
        Refused: the file or directory at `path` is not ours to use. Nothing in it was touched.
        OSError: it cannot be created or locked. Directories created on the way are removed.
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
                named_calls.mkdir(str(parent))
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
            named_calls.mkdir(self.path, 0o755)
            self._made.append(self.path)
        try:
            self.fd = untrusted.open_directory(self.path)
            self.owner = untrusted.owner_of(self.fd)
            self._keep_others_out()
            if self._lock is None:
                with contextlib.suppress(_NoLocks):  # NFS cannot lock directories; the datasets in them are locked
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
        """Remove write permission for others: after a check, the content must not change."""
        mode = stat.S_IMODE(os.fstat(self.fd).st_mode)
        if mode & OTHERS:
            with contextlib.suppress(OSError):  # some mounts have no modes
                os.fchmod(self.fd, mode & ~OTHERS)

    def _lock_file(self, name: str) -> None:
        self.file = io.FileIO(name, "r+", opener=self._open_lock)
        fd = self.file.fileno()
        try:
            _flock(fd)
        except _NoLocks as error:
            # Lustre mounted without -o flock fails with ENOSYS, NFS without its lock service with ENOLCK.
            path = os.path.join(self.path, name)
            _log.warning(
                "%s: the file system has no locks (%s), so two writers of one target would not notice each other",
                path,
                error,
            )
        # The previous owner may have removed the lock file, or published the directory, between our open and lock.
        if not os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=self.fd, follow_symlinks=False)):
            raise OSError(ESTALE, os.strerror(ESTALE))

    def _open_lock(self, name: str, flags: int) -> int:
        try:
            return untrusted.open_file(name, os.O_RDWR | os.O_CREAT, directory=self.fd, owner=self.owner)
        except Refused as error:
            raise Refused(f"{name}: {error.strerror}") from None

    def remove_made(self) -> None:
        """Remove the directories that were created in vain, except those in which somebody has put something."""
        while self._made:
            with contextlib.suppress(OSError):
                os.rmdir(self._made.pop())

    def _is_there(self) -> bool:
        """Tell whether its path still leads to this directory.

        Raises:
            OSError: the path cannot be examined.
        """
        try:
            return os.path.samestat(os.fstat(self.fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """Raise PermissionError if its path leads to something else by now.

        Raises:
            OSError: the path cannot be examined.
        """
        if not self._is_there():
            raise Refused(f"{self.path} was replaced after it was locked; repeat the call")

    # Content

    def names(self) -> set[str]:
        """Return the names of the files and directories in it."""
        return set(named_calls.listdir(self.fd))

    def holds(self, name: str) -> bool:
        """Tell whether it contains that name."""
        return name in self.names()

    def has_directory(self, name: str) -> bool:
        """Tell whether it contains a directory of our own, not a link, under that name."""
        return untrusted.is_own(f"{name}/", directory=self.fd, owner=self.owner)

    def make_directory(self, name: str) -> None:
        """Create a directory in it, unless we already have one of that name.

        Raises:
            Refused: something else has the name, for instance a link.
            OSError: the directory cannot be created.
        """
        with contextlib.suppress(FileExistsError):
            named_calls.mkdir(name, directory=self.fd)
        if not self.has_directory(name):
            mode = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode
            found = "another user's directory" if stat.S_ISDIR(mode) else untrusted.describe_kind(mode)
            raise Refused(f"{os.path.join(self.path, name)} is {found}, expected a directory of this user")

    def read(self, name: str, most: int) -> bytes:
        """Return at most the first `most` bytes of a file in it.

        Raises:
            OSError: the file is missing, not ours, or cannot be read.
        """
        return untrusted.read_file(name, most, directory=self.fd, owner=self.owner)

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file in it atomically and durably.

        Raises:
            OSError: the write failed. The error names the file.
        """
        beside = f".{name}"
        try:
            self.remove(beside)
            fd = untrusted.open_file(beside, NEW, directory=self.fd, owner=self.owner)
            try:
                write_all(fd, memoryview(data), 0)
                named_calls.fsync(fd)
            finally:
                os.close(fd)
            named_calls.rename(beside, name, self.fd, self.fd)
            named_calls.fsync(self.fd)
        except OSError as error:
            path = os.path.join(self.path, name)
            raise file_error(error.errno or EIO, f"{path} could not be written{_reason_of(error)}", path) from None

    def remove(self, name: str) -> None:
        """Remove the file or directory of that name with all its content, if it exists, without following links.

        Raises:
            OSError: something could not be removed. The error names the file.
        """
        try:
            with named_calls.naming("unlinkat"):
                remove(name, self.fd)
        except OSError as error:
            path = os.path.join(self.path, name)
            raise file_error(error.errno or EIO, f"{path} could not be removed{_reason_of(error)}", path) from None

    def remove_all_but(self, names: set[str], inside: str) -> None:
        """Remove everything from its subdirectory `inside`, except these names."""
        with untrusted.enter_directory(inside, directory=self.fd) as fd:
            for name in set(os.listdir(fd)) - names:
                remove(name, fd)

    def discard(self) -> None:
        """Remove all content, and then the directory itself if its path still leads to it."""
        for name in self.names():
            self.remove(name)
        self.remove_itself()

    def remove_itself(self) -> None:
        """Remove the empty directory if its path still leads to it."""
        if self._is_there():
            os.rmdir(self.path)

    def close(self) -> None:
        """Unlock the directory. You may call it again."""
        file, self.file = self.file, None
        if file is not None:
            with contextlib.suppress(OSError):  # a failed close frees the lock too, and the content was synced
                file.close()
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def remove(name: str, directory: int) -> None:
    """Remove the file or directory of a name in an open directory with all its content, without following links.

    Nothing is done if the name does not exist.

    Raises:
        OSError: something could not be removed.
    """
    try:
        # Try this first: removing an empty directory needs no further descriptor, and none may be left.
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
    """Remove everything below a directory.

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
    """Error of a file system without locks; its text is the error of flock(2)."""


def _flock(fd: int) -> None:
    """Lock a file or directory.

    Raises:
        BlockingIOError: another process has locked it.
        _NoLocks: the file system cannot lock it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _NoLocks(str(error)) from None

"""A hidden directory of ours, in one that others may write to: found once, locked, and from then on used by its
descriptor, since somebody may have put another one, or a link, at its name meanwhile."""

import contextlib
import fcntl
import os
import stat
import time
from errno import EPERM, ESTALE, EWOULDBLOCK

from ffrecord.durable import read_all, write_all
from ffrecord.errors import escaped

PATIENCE = 1.0  # seconds for the workers of a command that was killed to end, and its lock with them
PAUSE = 0.02
PASSING = (EWOULDBLOCK, ESTALE)  # while the one who had the lock tidies up
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class HiddenDirectory:
    """Made, or taken over, and locked.

    Args:
        path: where, under its real name; missing parents are made.
        owner: what an error names.

    Attributes:
        fd: its descriptor.

    Raises:
        OSError: it cannot be had; BlockingIOError: somebody else has it. Names `owner`.
    """

    def __init__(self, path: str, owner: str) -> None:
        self.path, self._owner = path, owner
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                os.makedirs(path, exist_ok=True)
                self.fd = self._locked()
                return
            except OSError as error:
                if error.errno not in PASSING or time.monotonic() >= deadline:
                    raise type(error)(error.errno, error.strerror, owner) from None
            time.sleep(PAUSE)

    def _locked(self) -> int:
        try:
            fd = os.open(self.path, DIRECTORY)
        except NotADirectoryError:
            raise PermissionError(EPERM, escaped(f"{self.path} is a symbolic link, or no directory")) from None
        try:
            if os.fstat(fd).st_uid != os.geteuid():  # nothing in it is ours to remove
                raise PermissionError(EPERM, escaped(f"{self.path} belongs to another user"))
            _flock(fd)
            if not self._is(fd):
                raise OSError(ESTALE, os.strerror(ESTALE))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _is(self, fd: int) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(fd), os.lstat(self.path))
        return False

    def check(self) -> None:
        """Raise PermissionError if something else is at its name."""
        if not self._is(self.fd):
            raise PermissionError(EPERM, escaped(f"{self.path} was replaced by something else meanwhile"), self._owner)

    def names(self) -> set[str]:
        """Of what is in it."""
        return set(os.listdir(self.fd))

    def holds(self, name: str) -> bool:
        """Whether something of that name is in it."""
        return name in self.names()

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            OSError: it cannot be read.
        """
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            return read_all(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file, durably: what was there is there, or all of this.

        Raises:
            OSError: refused. Names the file.
        """
        try:
            fd = os.open(f".{name}", NEW, 0o666, dir_fd=self.fd)
            try:
                write_all(fd, memoryview(data), 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(f".{name}", name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            os.fsync(self.fd)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, os.path.join(self.path, name)) from None

    def remove(self, name: str) -> None:
        """Remove what has that name, if it is there, with all in it; links are not followed."""
        if not self.holds(name):
            return
        if _is_directory(name, self.fd):
            for _, directories, files, fd in os.fwalk(name, topdown=False, dir_fd=self.fd):
                for each in (*files, *directories):
                    _remove(each, fd)
        _remove(name, self.fd)

    def discard(self) -> None:
        """Remove all in it, and the directory itself if nothing else is at its name."""
        for name in self.names():
            self.remove(name)
        if self._is(self.fd):
            os.rmdir(self.path)

    def close(self) -> None:
        """Unlock it."""
        os.close(self.fd)


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _remove(name: str, parent: int) -> None:
    """A file, a link or a directory that is empty."""
    if _is_directory(name, parent):
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _flock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(EWOULDBLOCK, "another process splits into it") from None
    except OSError:
        pass  # directories cannot be locked there, as on NFS; the datasets in them are

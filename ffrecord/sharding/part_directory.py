"""A directory of shards that appears whole: written under a temporary name, then renamed.

The target may be missing or empty; then one rename publishes everything. Where the target cannot be replaced (it holds
other files, is a mount point or the working directory, or its parent is not ours to write to) the files are made in a
hidden directory inside it and renamed into it one by one.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from ffrecord import format, manifest
from ffrecord.durable import PART_SUFFIX, fsync_directory, part_name
from ffrecord.errors import file_error


def check_vacant(path: str) -> None:
    """Raise FileExistsError, which is also a RuntimeError, unless nothing or an empty directory is at `path`."""
    _check_directory(path)
    there = sorted(os.listdir(path)) if os.path.isdir(path) else []
    if there:
        some = ", ".join(there[:3]) + (", …" if len(there) > 3 else "")
        raise file_error(errno.EEXIST, f"{path} is not empty, it holds {some}", path)


def check_no_shards(path: str) -> None:
    """Raise FileExistsError, which is also a RuntimeError, if `path` is no directory or one that holds shards."""
    _check_directory(path)
    there = sorted(os.listdir(path)) if os.path.isdir(path) else []
    for name in there:
        if name.endswith(format.SUFFIX) or name == manifest.NAME:
            raise file_error(errno.EEXIST, f"{path} holds {name}, which a reader would mix with what is written", path)


def _check_directory(path: str) -> None:
    if os.path.lexists(path) and not os.path.isdir(path):
        raise file_error(errno.EEXIST, f"{path} is there and no directory", path)


class PartDirectory:
    """A directory under a temporary name, and its way to the final one.

    Args:
        target: the final path; missing parents are made. A symbolic link is followed.
        among_others: whether other files may be there.

    Attributes:
        path: the temporary directory; there after `create`.
    """

    def __init__(self, target: str, *, among_others: bool = False) -> None:
        self._target = os.path.realpath(target)
        others = among_others and os.path.isdir(self._target) and bool(os.listdir(self._target))
        self._inside = others or _irreplaceable(self._target)
        inside = str(Path(self._target) / f".{secrets.token_hex(6)}{PART_SUFFIX}")
        self.path = inside if self._inside else part_name(self._target)

    def create(self) -> None:
        """Make the directory.

        Raises:
            OSError (also a RuntimeError): refused.
        """
        try:
            _make_parents(self.path)
            os.mkdir(self.path)
        except OSError as error:
            raise file_error(
                error.errno or errno.EIO, f"Failed to create directory {self._target}", self._target
            ) from None

    def publish(self, names: Sequence[str], guard: manifest.Manifest | None = None) -> None:
        """Put everything, durable, under its final name.

        Args:
            names: of all files in the directory, the one that must not be missing while others are first.
            guard: for files without a manifest: one that is there while they are moved in one by one, so that a
                directory left half done says what is missing and is not read as a smaller dataset.

        Raises:
            FileExistsError: something came to be at the target meanwhile.
            OSError (also a RuntimeError): a step failed. The target is as before, unless the message says that only its
                durability is unknown.
        """
        try:
            fsync_directory(self.path)
            self._move_inside(names, guard) if self._inside else self._replace()
        except OSError as error:
            sentence = f"{self._target}: nothing was published"
            raise file_error(_as_exists(error.errno), sentence, self._target) from None
        try:
            fsync_directory(self._target if self._inside else os.path.dirname(self._target))
        except OSError as error:
            sentence = f"{self._target}: all is in place, but fsync of a directory failed and a crash may undo it"
            raise file_error(error.errno or errno.EIO, sentence, self._target) from None

    def _replace(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.chmod(self.path, stat.S_IMODE(os.stat(self._target).st_mode))
        os.rename(self.path, self._target)

    def _move_inside(self, names: Sequence[str], guard: manifest.Manifest | None) -> None:
        moved: list[Path] = []
        if guard is not None:
            manifest.save(self.path, guard)
            names = [manifest.NAME, *names]
        try:
            for name in names:
                place = Path(self._target) / name
                if os.path.lexists(place):
                    raise FileExistsError(errno.EEXIST, f"{place} came to be meanwhile")
                os.rename(Path(self.path) / name, place)
                moved.append(place)
        except BaseException:
            for place in reversed(moved):
                place.unlink(missing_ok=True)
            raise
        if guard is not None:
            fsync_directory(self._target)
            (Path(self._target) / manifest.NAME).unlink()
        self.discard()

    def discard(self) -> None:
        """Remove what is still under the temporary name; may be repeated."""
        shutil.rmtree(self.path, ignore_errors=True)


def _irreplaceable(target: str) -> bool:
    """Whether a directory that is there cannot, or should not, become another one by a rename."""
    if not os.path.isdir(target):
        return False
    with contextlib.suppress(OSError):  # the working directory may be gone, or closed to us
        if os.path.realpath(os.getcwd()) == target:
            return True
    return os.path.ismount(target) or not os.access(os.path.dirname(target), os.W_OK | os.X_OK)


def _as_exists(code: int | None) -> int:
    """Some file systems say ENOTEMPTY, some EEXIST, and ENOTDIR is a file in the way."""
    return errno.EEXIST if code in (errno.ENOTEMPTY, errno.ENOTDIR) else code or errno.EIO


def _make_parents(path: str) -> None:
    """Make the missing parents of `path`, each durable in its own parent."""
    missing = [parent for parent in Path(path).parents if not parent.exists()]
    for parent in reversed(missing):
        with contextlib.suppress(FileExistsError):
            parent.mkdir()
        fsync_directory(str(parent.parent))

"""The directory of a cache, and the names of its files.

    NAME.KEY.part   a copy that is being filled: a sparse file in the layout of the shard
    NAME.KEY.have   one byte for each record, 1 if it is stored; its modification time is the time of last use
    NAME.KEY.ffr    a complete copy: every record was compared with its CRC-32, and all of it is on the disk
    NAME.KEY.json   the dataset.json of a dataset: see listings.py
    evicting.lock   locked by the process that makes room

NAME is the shard's name, for people. KEY identifies the shard: it is a hash of its URL, size, number of samples and the
CRC-32 of its tables. So a shard that is replaced at its source gets another key.
"""

import errno
import hashlib
import os
import re
import stat
from typing import NamedTuple

from ffrecord.errors import NotAFolderError, file_error
from ffrecord.reading.paths import local_path
from ffrecord.remote.tables import ShardFacts
from ffrecord.system import filesystems

WHOLE, PART, HAVE = ".ffr", ".part", ".have"
LOCK = "evicting.lock"
ENTRY = re.compile(r"(.*\.[0-9a-f]{32})\.(?:ffr|part|have)")
PLAIN = re.compile(r"[^A-Za-z0-9_-]+")
NAME_MOST = 80


def directory_of(given: str | os.PathLike[str]) -> str:
    """Return the absolute path of the directory in the argument `cache_dir`.

    Raises:
        TypeError, ValueError: it is not a path, or not a local one.
    """
    return filesystems.absolute_path(local_path("cache_dir", given))


def usable_directory(given: str | os.PathLike[str]) -> str:
    """Return the directory for copies; make it if it is missing.

    It is the given directory, unless everybody may write to that. Then each user gets a subdirectory: CRC-32 detects
    damage, not malice.

    Raises:
        NotADirectoryError (also an AssertionError): it is a file.
        OSError (also a RuntimeError): it cannot be made, or the user's subdirectory belongs to somebody else.
    """
    path = directory_of(given)
    _make(path, 0o777)
    # The sticky bit does not matter: whoever may write can make a file first.
    if not os.stat(path).st_mode & stat.S_IWOTH:
        return path
    own = os.path.join(path, f"user-{os.geteuid()}")
    _make(own, 0o700)
    # `lstat`: a link would lead to a directory of somebody else's choice.
    status = os.lstat(own)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        raise file_error(
            errno.EPERM, f"cache_dir {path}: everybody may write to it, and {own} belongs to another user", own
        )
    return own


def _make(path: str, mode: int) -> None:
    try:
        # Another process may make it at the same time.
        os.makedirs(path, mode, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotAFolderError(errno.ENOTDIR, f"cache_dir {path} is not a directory", path) from None
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"cache_dir {path} could not be created", path) from None


def entry_path(directory: str, name: str, facts: ShardFacts) -> str:
    """Return the stem of a shard's copy: the common start of its paths.

    Args:
        name: the shard's URL, without secrets.
        facts: facts of the shard.
    """
    n, size, crc = facts
    return f"{directory}/{stem_of(name, f'{name}{chr(0)}{size}{chr(0)}{crc}{chr(0)}{n}')}"


def stem_of(name: str, key: str) -> str:
    """Return the start of file names: a readable part, and a hash of `key`, which makes it unique."""
    # For people; the hash alone makes it unique.
    people = PLAIN.sub("_", name.rpartition("/")[2].removesuffix(WHOLE))[:NAME_MOST]
    return f"{people}.{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}"


class CopyOnDisk(NamedTuple):
    """A copy on the disk.

    Attributes:
        stem: common start of its paths.
        bytes: space that it takes on the disk; less than its size if the file is sparse.
        used: time of last use, ns since 1970.
    """

    stem: str
    bytes: int
    used: int


def list_copies(directory: str) -> list[CopyOnDisk]:
    """Return all copies in a directory. Other files are ignored.

    Raises:
        OSError: it cannot be listed.
    """
    copies = (_look_up_copy(f"{directory}/{stem}") for stem in _stems(directory))
    return [each for each in copies if each is not None]


def _look_up_copy(stem: str) -> CopyOnDisk | None:
    """Return a copy with its size and time; None if it was removed meanwhile."""
    # PART before WHOLE: a copy that is renamed meanwhile is found by one name at least, and counted once by its inode.
    there = [status for status in map(_status, (stem + PART, stem + WHOLE, stem + HAVE)) if status is not None]
    if not there:
        return None
    # By inode, as a renamed copy was perhaps found twice. Blocks, since the file is sparse.
    size = sum({(each.st_dev, each.st_ino): each.st_blocks * 512 for each in there}.values())
    return CopyOnDisk(stem, size, max(each.st_mtime_ns for each in there))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def complete_names(directory: str) -> set[str]:
    """Return the stems of all complete copies; an empty set if the directory cannot be listed."""
    # A cache that cannot be listed is like an empty one.
    try:
        names = os.listdir(directory)
    except OSError:
        return set()
    return {f"{directory}/{name.removesuffix(WHOLE)}" for name in names if name.endswith(WHOLE)}


def _stems(directory: str) -> set[str]:
    """Return the stems of all copies, without the directory."""
    return {found[1] for found in map(ENTRY.fullmatch, os.listdir(directory)) if found}

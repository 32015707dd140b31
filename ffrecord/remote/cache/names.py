"""Where the copies of shards are: the directory of a cache, and the names in it.

    NAME.KEY.part   a copy that is being filled: a sparse file of the shard's own layout
    NAME.KEY.have   one byte for each record of it, 1 for those that were stored; its time of change is when the copy
                    was last used
    NAME.KEY.ffr    a complete copy: every record compared with its CRC-32, and all of it on the disk
    NAME.KEY.json   the dataset.json of a dataset: see cache_listings.py
    evicting.lock   locked by the process that makes room

NAME is that of the shard, for people. KEY tells the shard from all others: it is made of its URL, size, number of
samples and the CRC-32 of its tables. So a shard that is replaced at its source has another one.
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
    """Return the absolute path of the directory that an argument `cache_dir` names.

    Raises:
        TypeError, ValueError: it is no path, or not on this machine.
    """
    return filesystems.absolute_path(local_path("cache_dir", given))


def usable_directory(given: str | os.PathLike[str]) -> str:
    """The directory that copies go into; made if it is not there.

    That is the one given. But of one that everybody may write to, each user has a part of its own: CRC-32 finds damage,
    not malice.

    Raises:
        NotADirectoryError (also an AssertionError): it is a file.
        OSError (also a RuntimeError): it is not there and cannot be made; the user's own part belongs to somebody else.
    """
    path = directory_of(given)
    _make(path, 0o777)
    if not os.stat(path).st_mode & stat.S_IWOTH:
        return path
    own = os.path.join(path, f"user-{os.geteuid()}")
    _make(own, 0o700)
    status = os.lstat(own)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        raise file_error(errno.EPERM, f"cache_dir {path}: everybody may write to it, and {own} is not this user's", own)
    return own


def _make(path: str, mode: int) -> None:
    try:
        os.makedirs(path, mode, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotAFolderError(errno.ENOTDIR, f"cache_dir {path} is not a directory", path) from None
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"cache_dir {path}: it could not be made", path) from None


def entry_path(directory: str, name: str, facts: ShardFacts) -> str:
    """What the paths of one shard's copy begin with.

    Args:
        name: the shard's URL, without anything secret.
        facts: of the shard.
    """
    n, size, crc = facts
    return f"{directory}/{stem_of(name, f'{name}{chr(0)}{size}{chr(0)}{crc}{chr(0)}{n}')}"


def stem_of(name: str, key: str) -> str:
    """Return what the names of files begin with: something for people, and a hash of `key`, which tells them apart."""
    people = PLAIN.sub("_", name.rpartition("/")[2].removesuffix(WHOLE))[:NAME_MOST]
    return f"{people}.{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}"


class Held(NamedTuple):
    """A copy as it is on the disk.

    Attributes:
        stem: what its paths begin with.
        bytes: that it takes of the disk; a sparse file has fewer than its size.
        used: when it was last used, ns since 1970.
    """

    stem: str
    bytes: int
    used: int


def held(directory: str) -> list[Held]:
    """All copies in a directory. What is none is left out.

    Raises:
        OSError: it cannot be listed.
    """
    copies = (_held(f"{directory}/{stem}") for stem in _stems(directory))
    return [each for each in copies if each is not None]


def _held(stem: str) -> Held | None:
    """A copy; None if it was removed meanwhile."""
    # In this order: one that is made complete meanwhile is missed by neither name, and counted once.
    there = [status for status in map(_status, (stem + PART, stem + WHOLE, stem + HAVE)) if status is not None]
    if not there:
        return None
    size = sum({(each.st_dev, each.st_ino): each.st_blocks * 512 for each in there}.values())
    return Held(stem, size, max(each.st_mtime_ns for each in there))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def complete_names(directory: str) -> set[str]:
    """What the paths of complete copies begin with; none where the directory cannot be listed."""
    try:
        names = os.listdir(directory)
    except OSError:
        return set()
    return {f"{directory}/{name.removesuffix(WHOLE)}" for name in names if name.endswith(WHOLE)}


def _stems(directory: str) -> set[str]:
    """What the names of copies begin with."""
    return {found[1] for found in map(ENTRY.fullmatch, os.listdir(directory)) if found}

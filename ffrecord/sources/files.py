"""What a reader of another format is given → the files it reads."""

import glob
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ffrecord.errors import ArgumentError, MissingFileError, NotAFileError
from ffrecord.reading.paths import PathLike, Source, check_type
from ffrecord.sources import hints
from ffrecord.sources.suffixes import ends_as
from ffrecord.system import filesystems

T = TypeVar("T")


def expand(source: Source, suffixes: Sequence[str]) -> list[str]:
    """The files that `source` stands for.

    Args:
        source: a file, whatever its name; a directory: its files whose names end in one of `suffixes`, in string order;
            a glob pattern: what matches, in string order; or a list or tuple of such, one after the other, order and
            repeats kept.
        suffixes: with their dots, compared without regard to case.

    Raises:
        TypeError: of another type.
        FileNotFoundError, IsADirectoryError, ValueError (also AssertionError): missing, no regular file, or nothing to
            open.
    """
    given: list[PathLike] = list(source) if isinstance(source, list | tuple) else [source]  # type: ignore[list-item]
    files = [path for each in given for path in _expand_one(check_type(each), suffixes)]
    if not files:
        raise ArgumentError(f"nothing to open: the {type(source).__name__} is empty")
    for path in files:
        check_file(path)
    return files


def _expand_one(path: str, suffixes: Sequence[str]) -> list[str]:
    if os.path.isdir(path):
        found = with_suffix(path, suffixes)
        if not found:
            raise ArgumentError(f"{path}: no file in this directory ends in {' or '.join(suffixes)}")
        return found
    if glob.has_magic(path) and not os.path.exists(path):
        found = sorted(glob.glob(path))
        if not found:
            raise MissingFileError(2, f"no file matches {path!r}{filesystems.remark(path)}", path)
        return found
    return [path]


def with_suffix(directory: str, suffixes: Sequence[str]) -> list[str]:
    """The files of a directory whose names end in one of `suffixes`, hidden ones left out, in string order."""
    with os.scandir(directory) as entries:
        return sorted(
            entry.path
            for entry in entries
            if ends_as(entry.name, suffixes) and not entry.name.startswith(".") and entry.is_file()
        )


def each_of(look: Callable[[str], T], paths: Sequence[str], threads: int) -> list[T]:
    """What `look` finds in each of the files, one at least; up to `threads` of them are looked at at once."""
    if len(paths) == 1:
        return [look(paths[0])]
    with ThreadPoolExecutor(min(threads, len(paths)), "ffrecord index") as pool:
        return list(pool.map(look, paths))


def check_file(path: str) -> None:
    """Raise unless `path` is a regular file."""
    try:
        mode = os.stat(path).st_mode  # once: others may replace it meanwhile
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise MissingFileError(2, f"{path} does not exist{hints.of_missing(path)}", path) from None
    if stat.S_ISDIR(mode):
        raise NotAFileError(21, f"{path} is not a file", path)
    if not stat.S_ISREG(mode):
        raise ArgumentError(f"{path} is not a file")

"""The files that the `source` of a reader of another format stands for."""

import glob
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ffrecord.errors import ArgumentError, MissingFileError, NotAFileError
from ffrecord.reading.paths import PathLike, Source, check_type
from ffrecord.sources import hints
from ffrecord.sources.registry import ends_as
from ffrecord.system import filesystems

T = TypeVar("T")


def expand(source: Source, suffixes: Sequence[str]) -> list[str]:
    """Return the files that `source` stands for.

    Args:
        source: a file with any name; a directory, which stands for its files with one of `suffixes`, in string order; a
            glob pattern, which stands for its matches, in string order; or a list or tuple of these, in the given
            order, repeats kept.
        suffixes: suffixes with their dots, compared without regard to case.

    Raises:
        TypeError: `source` has another type.
        FileNotFoundError, IsADirectoryError, ValueError (also AssertionError): a file is missing or not regular, or
            there is nothing to open.
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
    """Return the files of a directory with one of `suffixes`, in string order, without hidden ones."""
    with os.scandir(directory) as entries:
        return sorted(
            entry.path
            for entry in entries
            if ends_as(entry.name, suffixes) and not entry.name.startswith(".") and entry.is_file()
        )


def each_of(look: Callable[[str], T], paths: Sequence[str], threads: int) -> list[T]:
    """Return the result of `look` for each file, at least one. Up to `threads` files are looked at at once."""
    if len(paths) == 1:
        return [look(paths[0])]
    with ThreadPoolExecutor(min(threads, len(paths)), "ffrecord index") as pool:
        return list(pool.map(look, paths))


def check_file(path: str) -> None:
    """Raise unless `path` is a regular file."""
    try:
        mode = os.stat(path).st_mode  # once for all checks: another process may replace the file between two calls
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise MissingFileError(2, f"{path} does not exist{hints.missing_hint(path)}", path) from None
    if stat.S_ISDIR(mode):
        raise NotAFileError(21, f"{path} is not a file", path)
    if not stat.S_ISREG(mode):
        raise ArgumentError(f"{path} is not a file")

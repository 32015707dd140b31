"""What a reader is given → the files it reads."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ffrecord import manifest
from ffrecord.errors import ArgumentError, MissingFileError, NotAFileError
from ffrecord.format import SUFFIX

PathLike: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = PathLike | Sequence[PathLike]


def check_type(fname: object) -> str:
    """The path as typed.

    Raises:
        TypeError: not a str or os.PathLike of one.
    """
    path = os.fspath(fname) if isinstance(fname, str | os.PathLike) else None
    if not isinstance(path, str):
        raise TypeError(f"fname must be str, os.PathLike, list or tuple, not {type(fname).__name__}")
    return path


class Expanded(NamedTuple):
    """Files in reading order, and what a dataset.json says of each if there is one."""

    files: list[str]
    shards: list[manifest.Shard] | None


def expand(fname: Source) -> Expanded:
    """The files that `fname` stands for.

    Args:
        fname: a file, a list or tuple of files (order and repeats kept), a directory, or a glob pattern. A directory
            with a dataset.json is the shards that lists; without one, its `*.ffr` sorted as strings.

    Raises:
        TypeError: of another type.
        FileNotFoundError, IsADirectoryError, ValueError (also AssertionError): missing, a directory where a file is
            needed, no `.ffr` suffix, or nothing to open.
    """
    if isinstance(fname, list | tuple):
        expanded = Expanded([check_type(each) for each in fname], None)
    else:
        expanded = _expand_one(check_type(fname))
    if not expanded.files:
        raise ArgumentError(f"At least one .ffr file as input, {fname!r} has none")
    for path in expanded.files:
        check_file(path)
    return expanded


def _expand_one(path: str) -> Expanded:
    if os.path.isdir(path):
        listed = manifest.load(path)
        if listed is not None:
            return Expanded([os.path.join(path, shard.name) for shard in listed.shards], list(listed.shards))
        return Expanded(sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(SUFFIX)), None)
    if glob.has_magic(path) and not os.path.exists(path):
        return Expanded(sorted(glob.glob(path)), None)
    return Expanded([path], None)


def check_file(path: str) -> None:
    """Raise unless `path` exists, is no directory and ends in `.ffr`."""
    if not os.path.exists(path):
        raise MissingFileError(2, f"{path} does not exist", path)
    if os.path.isdir(path):
        raise NotAFileError(21, f"{path} is not a file", path)
    if not os.path.isfile(path):
        raise ArgumentError(f"{path} is not a file")
    if Path(path).suffix != SUFFIX:
        raise ArgumentError(f"{path} does not end with {SUFFIX}")

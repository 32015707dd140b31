"""A check for `convert` and `export`: they must not write into what they read."""

import os
from typing import Any

from ffrecord.errors import ArgumentError
from ffrecord.sources.images.image_folder import ImageFolderReader
from ffrecord.system import filesystems, urls


def check_outside(source: Any, out: str | os.PathLike[str]) -> None:
    """Refuse to write into a directory that is read. The next reader would find the result among the samples.

    Args:
        source: source of `convert`. Of open stores only image folders matter, as other stores have a list of files.
        out: path to write.

    Raises:
        ArgumentError: `out` is inside a directory of `source`; names both.
    """
    if urls.is_remote(out):
        return
    written = filesystems.real_path(urls.local_path(os.fspath(out)))
    for directory in _directories(source):
        read = filesystems.real_path(directory)
        if written != read and os.path.commonpath([written, read]) == read:
            raise ArgumentError(f"{os.fspath(out)} is inside {directory}, which is read: choose a place outside of it")


def _directories(source: Any) -> list[str]:
    """Return the directories of this machine that a source reads."""
    if isinstance(source, ImageFolderReader):
        return [source.root]
    several = source if isinstance(source, list | tuple) else [source]
    if not all(isinstance(each, str | os.PathLike) for each in several):
        return []
    paths = [os.fspath(each) for each in several]
    local = [urls.local_path(path) for path in paths if isinstance(path, str) and not urls.is_remote(path)]
    return [path for path in local if os.path.isdir(path)]

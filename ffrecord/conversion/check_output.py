"""Where `convert` and `export` may write: nowhere inside of what they read."""

import os
from typing import Any

from ffrecord.errors import ArgumentError
from ffrecord.sources.images.image_folder import ImageFolderReader
from ffrecord.system import filesystems, urls


def check_outside(source: Any, out: str | os.PathLike[str]) -> None:
    """Refuse to write into a directory that is read: whoever reads it next would find the result among the samples.

    Args:
        source: as of `convert`; of open stores only image folders are looked at, as others keep to their files.

    Raises:
        ArgumentError: `out` is inside a directory of `source`; names both.
    """
    if urls.is_remote(out):
        return
    written = filesystems.real_path(urls.local_path(os.fspath(out)))
    for directory in _directories(source):
        read = filesystems.real_path(directory)
        if written != read and os.path.commonpath([written, read]) == read:
            raise ArgumentError(
                f"{os.fspath(out)} is inside {directory}, which is read: expected a place outside of the source"
            )


def _directories(source: Any) -> list[str]:
    if isinstance(source, ImageFolderReader):
        return [source.root]
    several = source if isinstance(source, list | tuple) else [source]
    if not all(isinstance(each, str | os.PathLike) for each in several):
        return []
    paths = [os.fspath(each) for each in several]
    local = [urls.local_path(path) for path in paths if isinstance(path, str) and not urls.is_remote(path)]
    return [path for path in local if os.path.isdir(path)]

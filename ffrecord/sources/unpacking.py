"""`unpack`: the files of an archive written to a new directory, safely."""

import errno
import os
from collections.abc import Callable, Iterable

import numpy as np

from ffrecord.errors import ArgumentTypeError, MissingFileError, name_files
from ffrecord.folders.folder import PackedFolder
from ffrecord.folders.safe_unpack import UnpackedFiles, unpack_files
from ffrecord.reading.paths import PathLike, check_several
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.store import Store
from ffrecord.sources.named_files import NamedFiles
from ffrecord.sources.opening import open as open_store


def unpack(
    source: PathLike | Store | PackedFolder,
    target: PathLike,
    *,
    max_size: int | str | None = None,
    paths: Iterable[PathLike] | None = None,
    on_file: Callable[[int, int], object] | None = None,
) -> UnpackedFiles:
    """Write the files of an archive as files of a new directory; all of them or none, and nothing outside it.

    Every name is looked at before anything is written. What is written lies in a directory beside the target until all
    is there, which is then renamed. Links are not followed, and none are made: a symbolic link that a zip has becomes a
    file with the text that it is. Modes, owners and times are not kept.

    Args:
        source: a zip archive, packed folder or tar; or a reader of one, or of any records in files that have names.
        target: the directory, missing or empty; its parent is there.
        max_size: refuse, before anything is written, what is more than so many bytes in all, >= 0; None for no limit.
        paths: only these files; None for all. Of a directory, name its files: `reader.list(path, recursive=True,
            list_dir=False)` gives their paths below it.
        on_file: called after each file with how many are written, and how many there are.

    Returns:
        (path, files, size): of the directory, absolute; how many files were written, and their bytes.

    Raises:
        FormatError: a name that is absolute, has `..`, a drive letter or NUL; more than `max_size` bytes; as reading.
        FileExistsError: the target is there and not an empty directory; or two names are the same on this file system,
            as "a" and "A" are on some, or one is a file where the other one needs a directory. Of members of the
            same path, also "a" and "./a", the last is written.
        FileNotFoundError: one of `paths`; the target's parent.
        IsADirectoryError: one of `paths` is a directory.
        TypeError: `paths` is one path; ValueError: `max_size` is negative.
        MissingNamesError: the source's format has no names.
        As reading, and OSError.
    """
    if isinstance(source, str | os.PathLike):
        with open_store(source) as opened:
            return unpack(opened, target, max_size=max_size, paths=paths, on_file=on_file)
    if isinstance(source, NamedFiles | PackedFolder):
        return source.unpack(target, max_size=max_size, paths=paths, on_file=on_file)
    if not isinstance(source, RecordReader):
        raise ArgumentTypeError(f"source must be a path or a reader of an archive, not {type(source).__name__}")
    return _unpack_records(source, target, max_size, paths, on_file)


def _unpack_records(
    reader: RecordReader,
    target: PathLike,
    max_size: int | str | None,
    paths: Iterable[PathLike] | None,
    on_file: Callable[[int, int], object] | None,
) -> UnpackedFiles:
    """Of a reader that has names, but opens none of them as a file."""
    check_several("paths", paths)
    names = {name: index for index, name in enumerate(reader.keys())}
    wanted = list(names) if paths is None else [os.fspath(path) for path in paths]
    for name in wanted:
        if name not in names:
            raise MissingFileError(errno.ENOENT, f"{name} does not exist in {reader.fnames[0]}", name)
    indices = [names[name] for name in wanted]
    sizes = reader._sizes(np.array(indices, np.int64)).tolist()
    files = list(zip(wanted, sizes, indices, strict=True))
    label = name_files(reader.fnames)
    return unpack_files(files, [], reader.read, None, target, label=label, max_size=max_size, on_file=on_file)

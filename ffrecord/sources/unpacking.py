"""`unpack`: the files of an archive, written safely to a new directory."""

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
from ffrecord.system.values import describe_wrong


def unpack(
    source: PathLike | Store | PackedFolder,
    target: PathLike,
    *,
    max_size: int | str | None = None,
    paths: Iterable[PathLike] | None = None,
    on_file: Callable[[int, int], object] | None = None,
) -> UnpackedFiles:
    """Write the files of an archive to a new directory: all of them or none, and nothing outside it.

    Every name is checked before anything is written. The files are written to a directory beside the target, which is
    renamed when all are there. Links are neither followed nor made: a symbolic link in a zip becomes a file with its
    text. Modes, owners and times are not kept.

    Args:
        source: a zip archive, packed folder or tar; or a reader of one, or of any records in files that have names.
        target: the directory, missing or empty; its parent must exist.
        max_size: refuse, before anything is written, more than so many bytes in all, >= 0; None for no limit.
        paths: only these files; None for all. For a directory, name its files: `reader.list(path, recursive=True,
            list_dir=False)` gives their paths below it.
        on_file: called after each file with the number of written files, and the number of all.

    Returns:
        (path, files, size): absolute path of the directory, number of files written, and their bytes.

    Raises:
        FormatError: a name is absolute, or has `..`, a drive letter or NUL; or there are more than `max_size` bytes; or
            the source is damaged.
        FileExistsError: the target exists and is not an empty directory; or two names are the same on this file system,
            as "a" and "A" are on some; or one is a file where another needs a directory. If members have the same path,
            also "a" and "./a", the last is written.
        FileNotFoundError: one of `paths`, or the target's parent, does not exist.
        IsADirectoryError: one of `paths` is a directory.
        TypeError: `paths` is one path; ValueError: `max_size` is negative.
        MissingNamesError: the source's format has no names.
        OSError, and the exceptions of the reader.
    """
    if isinstance(source, str | os.PathLike):
        with open_store(source) as opened:
            return unpack(opened, target, max_size=max_size, paths=paths, on_file=on_file)
    if isinstance(source, NamedFiles | PackedFolder):
        return source.unpack(target, max_size=max_size, paths=paths, on_file=on_file)
    if not isinstance(source, RecordReader):
        raise ArgumentTypeError(describe_wrong("source", source, "a path or a reader of an archive"))
    return _unpack_records(source, target, max_size, paths, on_file)


def _unpack_records(
    reader: RecordReader,
    target: PathLike,
    max_size: int | str | None,
    paths: Iterable[PathLike] | None,
    on_file: Callable[[int, int], object] | None,
) -> UnpackedFiles:
    """Unpack the records of a reader that has names, but cannot open them as files."""
    check_several("paths", paths)
    # Of equal names, the last one counts.
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

"""Paths: find the files of a reader's source."""

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from errno import EISDIR, ENOENT
from typing import NamedTuple, TypeAlias

from ffrecord.errors import UNFINISHED, ArgumentError, ArgumentTypeError, FormatError, MissingFileError, NotAFileError
from ffrecord.format import leftovers, manifest
from ffrecord.format.ffr_layout import SUFFIX
from ffrecord.system import filesystems, urls
from ffrecord.system.values import describe_wrong, path_text

PathLike: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = PathLike | Sequence[PathLike]


def check_several(argument: str, given: object, expected: str = "paths") -> None:
    """Refuse one path where a list is expected: its letters would be taken for paths.

    Raises:
        TypeError: the message names the argument, and shows how to write the list.
    """
    if isinstance(given, str | bytes | os.PathLike):
        raise ArgumentTypeError(describe_wrong(argument, given, f"a list of {expected}", f"write [{given!r}]"))


def check_type(fname: object, name: str = "fname") -> str:
    """Return the path as a str; `name` is its name for messages.

    Raises:
        TypeError: it is not a str or an os.PathLike of one.
        ValueError: it is a URL that went through pathlib.Path, and no file has that name.
    """
    path = path_text(name, fname, "str, os.PathLike, list or tuple" if name == "fname" else "str or os.PathLike")
    # A file of that name may exist, and a pattern may match one.
    if urls.is_mistaken(path) and not os.path.lexists(path) and not glob.glob(path):
        raise urls.mistaken_url_error(path)
    return path


def check_types(fname: object) -> list[str]:
    """Return the paths of a source, which may be a list or a tuple; as `check_type`, which names the item."""
    if isinstance(fname, list | tuple):
        return [check_type(each, f"fname[{i}]") for i, each in enumerate(fname)]
    return [check_type(fname)]


def local_path(argument: str, given: PathLike) -> str:
    """Return the path of a local file or directory that an argument names; the argument may be a `file://` URL.

    Raises:
        TypeError: it is no path.
        ValueError: it is a URL of something else, which the system would take for a name with slashes.
    """
    path = path_text(argument, given)
    if urls.is_mistaken(path) and not os.path.lexists(path.partition("/")[0]):
        raise urls.mistaken_url_error(path)
    if urls.is_remote(path) and not os.path.lexists(path):
        raise ArgumentError(f"{argument} is {urls.redact(path)}, expected a path on this machine")
    return urls.local_path(path)


class Pinned(NamedTuple):
    """Arguments to open a reader of URLs again: its source, and the number of files of each URL."""

    source: Source
    counts: tuple[int, ...]


def is_remote(fname: object) -> bool:
    """Tell whether a source is a URL, or a list of URLs.

    Raises:
        ValueError: a list contains both URLs and local paths.
    """
    items = fname if isinstance(fname, list | tuple) else [fname]
    # A list is opened by one reader, which reads URLs or files.
    remote = [each for each in items if urls.is_remote(each)]
    if remote and len(remote) < len(items):
        here = next(each for each in items if not urls.is_remote(each))
        raise ArgumentError(f"{urls.redact(str(remote[0]))} is a URL, {here} is on this machine; open them separately")
    return bool(remote)


def redact_source(fname: Source) -> Source:
    """Return a source for messages, with the secrets of URLs removed."""
    if isinstance(fname, list | tuple):
        return [urls.redact(each) if isinstance(each, str) else each for each in fname] if is_remote(fname) else fname
    return urls.redact(fname) if isinstance(fname, str) else fname


class Expanded(NamedTuple):
    """Files in reading order, and the entry of each in a dataset.json, or None."""

    files: list[str]
    shards: list[manifest.Shard | None]


def resolve_directory(directory: str) -> str:
    """Return the current target directory of a path: the path itself, unless it contains a symbolic link.

    Use the result to look for several files in a directory: a link may lead to another directory a moment later.
    """
    found = filesystems.real_path(directory)
    return directory if found == filesystems.absolute_path(directory) else found


def check_outside(sources: Iterable[PathLike], out: PathLike) -> None:
    """Refuse to write into a directory that is read. The next reader would find the result among the samples.

    Args:
        sources: paths that are read; only directories of this machine matter.
        out: path or URL to write.

    Raises:
        ArgumentError: `out` is inside one of `sources`; names both.
    """
    if urls.is_remote(out):
        return
    for source in sources:
        if urls.is_remote(source):
            continue
        directory = urls.local_path(os.fspath(source))
        # Links resolved on both sides, as either path may lead into the other.
        read = filesystems.real_path(directory)
        if os.path.isdir(directory):
            written = filesystems.real_path(urls.local_path(os.fspath(out)))
            # The same directory is allowed here; `append` and `create` have checks of their own.
            if written != read and os.path.commonpath([written, read]) == read:
                raise ArgumentError(
                    f"{os.fspath(out)} is inside {directory}, which is read: choose a place outside of it"
                )


Generation: TypeAlias = dict[str, tuple[str, int, int] | None]


def identify_directories(fname: Source) -> Generation:
    """Return the identity of each directory in which the files of a source are looked for.

    It is (path, device, inode) by the given path, None for a missing directory. It shows whether another directory
    takes its place.
    """
    items = [urls.local_path(path) for path in check_types(fname)]
    found: Generation = {}
    for path in items:
        # Do not call isdir for each file of a long list.
        # With the suffix, an item of a list is almost surely a file.
        whole = (len(items) == 1 or not path.endswith(SUFFIX)) and os.path.isdir(path)
        directory = path if whole else os.path.dirname(path) or "."
        if directory not in found:
            # With links followed, so that a link that changes shows as another directory.
            found[directory] = _identity(filesystems.real_path(directory))
    return found


def _identity(path: str) -> tuple[str, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_dev, status.st_ino


def is_in_place(found: Generation) -> bool:
    """Tell whether the directories are still in their places, whatever links lead to by now."""
    return all(each is None or _identity(each[0]) == each for each in found.values())


def expand(fname: Source, *, resolve: bool = False) -> Expanded:
    """Return the files of a source.

    Args:
        fname: a file, a directory, or a glob pattern; or a list or tuple of these, whose order and repeats are kept. A
            directory with a dataset.json stands for the shards listed there, one without for its `*.ffr`, sorted as
            strings.
        resolve: follow links to a directory now, so that all files come from the same directory.

    Raises:
        TypeError: `fname` has another type.
        FileNotFoundError, IsADirectoryError, ValueError (also AssertionError): a file is missing, is a directory, or
            has no `.ffr` suffix, or there are no files.
        FormatError: a write of a directory was interrupted, or its dataset.json is damaged.
    """
    if isinstance(fname, list | tuple):
        # Paths first: a wrong type anywhere in the list is reported before any directory is read.
        items = [_expand_item(path, resolve) for path in [_local_path(each) for each in check_types(fname)]]
    else:
        items = [_expand_one(_local_path(fname), resolve)]
    expanded = Expanded([path for each in items for path in each.files], [s for each in items for s in each.shards])
    if not expanded.files:
        raise ArgumentError(_no_files_message(fname))
    # Each file now, so that a missing one is an error of opening and not of a batch.
    for path in expanded.files:
        check_file(path)
    return expanded


def _local_path(fname: object) -> str:
    """Return a local path, which may be given as a `file://` URL."""
    path = check_type(fname)
    # A file may be named like a URL.
    if urls.is_remote(path) and not os.path.exists(path):
        raise ArgumentError(f"{urls.redact(path)} is a URL, expected a path on this machine")
    return urls.local_path(path)


def _expand_item(path: str, resolve: bool) -> Expanded:
    """Return the files of one item of a list. An item without files is kept as a path, so that it is reported."""
    found = _expand_one(path, resolve)
    # As a path it fails in `check_file`, which names it.
    return found if found.files else Expanded([path], [None])


def _expand_one(path: str, resolve: bool) -> Expanded:
    files = [path]
    if os.path.isdir(path):
        return _expand_directory(resolve_directory(path) if resolve else path)
    # A file whose name has brackets is no pattern.
    if glob.has_magic(path) and not os.path.exists(path):
        directory, pattern = os.path.split(path)
        if resolve and directory and not glob.has_magic(directory):
            # Only the directory is resolved: the pattern must still match in it.
            path = os.path.join(glob.escape(resolve_directory(directory)), pattern)
        # `glob` gives no order.
        files = sorted(glob.glob(path))
        check_matches(path, files)
    return Expanded(files, [None] * len(files))


def _expand_directory(path: str) -> Expanded:
    listed = manifest.load(path)
    names: list[str] = []
    if listed is None:
        # Without a manifest: the files that are there, unless a write of them was interrupted.
        names = filesystems.list_names(path)
        try:
            leftovers.check_bare(path, names)
        except FormatError:
            # A write may have begun meanwhile. It writes the manifest first, so look for it once more.
            listed = manifest.load(path)
            if listed is None:
                raise
    if listed is not None:
        return Expanded([os.path.join(path, shard.name) for shard in listed.shards], list(listed.shards))
    # As ffrecord 1.x: sorted as strings.
    files = sorted(os.path.join(path, name) for name in names if name.endswith(SUFFIX))
    return Expanded(files, [None] * len(files))


def _unfinished_remark(path: str) -> str:
    """Return an addition to a message about a missing dataset: whether a write of it is unfinished, or ""."""
    gone = filesystems.remark(path)
    if gone:
        return gone
    # The hidden directory of a write tells why the dataset is missing.
    directory, name = os.path.split(filesystems.absolute_path(path))
    if os.path.isdir(os.path.join(directory, f".{name}.part")):
        return f"; {UNFINISHED}"
    return leftovers.remark(directory)


def _no_files_message(fname: Source) -> str:
    """Return the message for a source without files: the given source and the expected one."""
    expected = "; pass a file, a list of files, a directory with .ffr files, or a pattern such as 'data/*.ffr'"
    if isinstance(fname, list | tuple):
        given = f"the {type(fname).__name__} is empty"
    elif os.path.isdir(_local_path(fname)):
        given = f"{fname!r} is a directory without one"
        if os.path.exists(os.path.join(_local_path(fname), manifest.NAME)):
            given += f", whose {manifest.NAME} is not ffrecord's manifest"
        expected = f"; ffrecord.open opens other formats{expected}"
    else:
        given = f"no file matches {fname!r}"
    # If a write was interrupted, or the working directory is gone, that alone is the reason.
    return f"At least one .ffr file as input is needed, and {given}{_remark(fname) or expected}"


def _remark(fname: Source) -> str:
    """Return an addition to a message about a directory without shards: an unfinished write, or ""."""
    if isinstance(fname, list | tuple):
        return ""
    path = check_type(fname)
    return leftovers.remark(path) + filesystems.remark(path)


def check_matches(pattern: str, found: Sequence[str]) -> None:
    """Refuse a pattern that finds a directory first: as a list, the directories would be datasets.

    Raises:
        IsADirectoryError (also an AssertionError): it does; the message shows how to write the list.
    """
    if found and os.path.isdir(found[0]):
        raise NotAFileError(
            EISDIR,
            f"the pattern found the directory {found[0]}; pass the list sorted(glob.glob({pattern!r}))",
            found[0],
        )


def check_file(path: str) -> None:
    """Raise unless `path` exists, is a regular file and ends in `.ffr`."""
    try:
        mode = os.stat(path).st_mode  # only one call: others may replace the file between two
    except (OSError, ValueError):  # ValueError: a null character in the path
        raise MissingFileError(ENOENT, f"{path} does not exist{_unfinished_remark(path)}", path) from None
    if stat.S_ISDIR(mode):
        raise NotAFileError(EISDIR, f"{path} is not a file", path)
    if not stat.S_ISREG(mode):
        raise ArgumentError(f"{path} is not a file")
    if os.path.splitext(path)[1] != SUFFIX:
        if os.path.basename(path) == manifest.NAME:
            raise ArgumentError(f"{path} lists the shards of a dataset; pass {os.path.dirname(path) or '.'!r}")
        raise ArgumentError(f"{path} does not end with {SUFFIX}; ffrecord.open opens others")

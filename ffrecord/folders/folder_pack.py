"""Pack a folder into one `.ffr` file: its files depth first, children by name in each directory, then the index."""

import contextlib
import errno
import os
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, NotAFolderError, OutOfMemoryError, file_error
from ffrecord.format.folder_index import Tree, encode_index, walk
from ffrecord.reading.paths import PathLike, local_path
from ffrecord.system import filesystems, named_calls, signals
from ffrecord.writing.file_writer import FileWriter

_KINDS = (
    (stat.S_ISDIR, "a directory now"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def pack_folder(
    folder: PathLike, out_file: PathLike, verbose: bool = False, *, on_file: Callable[[int, int], object] | None = None
) -> None:
    """Pack all files of a folder into one file, which `PackedFolder` reads.

    Symbolic links are followed. Names, contents and empty directories are kept; modes, owners and times are not. Each
    file is held in memory while it is written.

    Args:
        folder: path of a directory.
        out_file: path that ends in `.ffr`; it appears, or is replaced, only when all is written.
        verbose: whether to print a line `index/total path` per file.
        on_file: called after each file with (number of files written, number of all files).

    Raises:
        NotADirectoryError (also an AssertionError): `folder`.
        TypeError, ValueError (also AssertionErrors): `out_file`; or the index of the folder takes more than 256 MiB, or
            is too deep to be pickled.
        OSError (also a RuntimeError): of the path it names: neither a regular file nor a directory, a loop of symbolic
            links, unreadable, changed while it was packed, not writable. Nothing was published.
    """
    # Absolute: the working directory may change while files are packed.
    root = Path(filesystems.absolute_path(local_path("folder", folder)))
    try:
        is_directory = root.is_dir()
    except OSError as error:
        raise _read_error(str(root), error) from None
    if not is_directory:
        raise NotAFolderError(errno.ENOTDIR, f"{os.fspath(folder)} is not a directory", os.fspath(folder))
    structure: Tree = OrderedDict()
    links: set[int] = set()
    count = _scan(str(root), structure, 0, links)
    # Encoded before anything is written: a tree that is too deep fails now.
    index = encode_index(structure, str(root))

    def write() -> None:
        with FileWriter(out_file, count + 1) as writer:  # files, and the index
            _write_files(writer, root, structure, 0, verbose, count, links, on_file)
            writer.write_one(index)

    signals.exit_on_signals(write)


def dump_structure(folder: PathLike, structure: Tree, counter: int) -> int:
    """Put the tree of a folder into `structure`, its files numbered from `counter`; see `pack_folder`.

    Returns:
        The next free file number.

    Raises:
        OSError (also a RuntimeError): a file or directory cannot be looked at.
    """
    return _scan(str(Path(folder)), structure, counter, set())


def dump_files(writer: FileWriter, prefix: PathLike, structure: Tree, counter: int, verbose: bool, n: int) -> int:
    """Write the files that `structure` names, below the directory `prefix`; see `pack_folder`.

    Args:
        writer: writer that gets one sample per file.
        prefix: path of the directory.
        structure: tree from `dump_structure`; its files are numbered from `counter` in order.
        counter: number of the first file.
        verbose: whether to print a line per file.
        n: number of files, for those lines.

    Returns:
        The number after that of the last file.

    Raises:
        ValueError (also an AssertionError): the numbers are not in order.
        OSError (also a RuntimeError): as `pack_folder`.
    """
    return _write_files(writer, Path(prefix), structure, counter, verbose, n, None)


# The names


class _Directory(NamedTuple):
    """A directory on the way from the root to the current place of the scan."""

    identity: tuple[int, int]
    entries: Iterator[os.DirEntry[str]]
    names: Tree


def _scan(folder: str, structure: Tree, counter: int, links: set[int]) -> int:
    """Scan a folder as `dump_structure` does, and add the numbers of symbolic links to `links`."""
    # A list of its own, as deep trees would exceed Python's limit of recursion.
    way = [_enter(folder, structure, [])]
    while way:
        for entry in way[-1].entries:
            # Equal names are one object, as in the original: pickle then writes references, and the bytes are equal.
            name, names = sys.intern(entry.name), way[-1].names
            if _is_directory(entry):
                below: Tree = OrderedDict()
                names[name] = below
                way.append(_enter(entry.path, below, way))
                # The loop over the entries above goes on when this directory is done.
                break
            if entry.is_symlink():
                links.add(counter)
            names[name] = counter
            counter += 1
        else:
            way.pop()
    return counter


def _enter(path: str, names: Tree, way: list[_Directory]) -> _Directory:
    """List a directory, unless it is on the way to itself."""
    try:
        status = os.stat(path)
        with named_calls.naming("getdents64"), os.scandir(path) as found:
            # Sorted: the order of `scandir` differs from disk to disk.
            entries = sorted(found, key=attrgetter("name"))
    except OSError as error:
        raise _read_error(path, error) from None
    identity = status.st_dev, status.st_ino
    # Only directories on the way can form a loop; the same one may be linked twice elsewhere.
    if any(above.identity == identity for above in way):
        raise file_error(errno.ELOOP, f"{path} leads back to a directory above it", path)
    return _Directory(identity, iter(entries), names)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a directory, not a file; refuse anything else."""
    try:
        # `is_dir` and `is_file` mostly need no system call, and follow links.
        if entry.is_dir():
            return True
        if entry.is_file():
            return False
        mode = os.stat(entry.path).st_mode
    except OSError as error:
        raise _read_error(entry.path, error) from None
    raise _kind_error(entry.path, mode)


def _read_error(path: str, error: OSError) -> OSError:
    return file_error(error.errno or errno.EIO, f"{path} cannot be packed", path)


def _kind_error(path: str, mode: int) -> OSError:
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "of another kind")
    return file_error(errno.EOPNOTSUPP, f"{path} is {kind}, expected a regular file or a directory", path)


# The files


def _write_files(
    writer: FileWriter,
    prefix: Path,
    structure: Tree,
    counter: int,
    verbose: bool,
    n: int,
    links: set[int] | None,
    on_file: Callable[[int, int], object] | None = None,
) -> int:
    """Write files as `dump_files` does.

    Args:
        links: numbers of the files that may be symbolic links, None for all.
    """
    width = len(str(n))
    for name, index in walk(structure):
        # Directories have no sample of their own.
        if not isinstance(index, int):
            continue
        path = str(prefix / name)
        if index != counter:
            raise ArgumentError(f"{path} is sample {index} of the structure, expected {counter}")
        # Names that were no links in the scan must be none now: somebody may have exchanged them.
        writer.write_one(_read_file(path, links is None or index in links))
        counter += 1
        if verbose:
            print(f"{index:0{width}d}/{n} {path}", flush=True)
        if on_file is not None:
            on_file(counter, n)
    return counter


def _read_file(path: str, follow: bool) -> npt.NDArray[np.uint8]:
    """Return all bytes of a regular file, and check that it did not change meanwhile.

    Args:
        follow: whether it may be a symbolic link.
    """
    fd = _open(path, follow)
    try:
        before = os.fstat(fd)
        # Devices and FIFOs may never end.
        data = _read_all(fd, before.st_size, path) if stat.S_ISREG(before.st_mode) else None
        after = os.fstat(fd)
    except OSError as error:
        raise _read_error(path, error) from None
    finally:
        with contextlib.suppress(OSError):  # harmless: nothing was written
            os.close(fd)
    if data is None:
        raise _kind_error(path, before.st_mode)
    # Size before, bytes read and size after: any write in between shows in one of them, or in the time below.
    if not before.st_size == len(data) == after.st_size:
        sizes = f"it had {before.st_size} bytes, {len(data)} were read, it has {after.st_size} now"
        raise file_error(errno.EBUSY, f"{path} changed while it was packed: {sizes}", path)
    if before.st_mtime_ns != after.st_mtime_ns:
        raise file_error(errno.EBUSY, f"{path} changed while it was packed: it was written to", path)
    return data


def _open(path: str, follow: bool) -> int:
    # Without O_NONBLOCK the open of a FIFO waits for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # NOCTTY: opening a terminal must not make it ours
    try:
        return os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    # ELOOP with O_NOFOLLOW: the file is a link.
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise file_error(
                errno.ELOOP, f"{path} changed while it was packed: it is a symbolic link now", path
            ) from None
        raise _read_error(path, error) from None


def _read_all(fd: int, size: int, path: str) -> npt.NDArray[np.uint8]:
    """Read a file, but at most size + 1 bytes: one too many shows that it grew."""
    # Not a mapping: a file cut short under one kills the process.
    try:
        data = np.empty(size + 1, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(f"{path}: out of memory: {size} bytes") from None
    got = 0
    # A file may be larger than the 2 GiB of one call.
    while got < len(data) and (more := os.readv(fd, [data.data[got:]])):
        got += more
    return data[:got]

"""Indexes of tar archives, made by a pass over their headers."""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import DAMAGE, FormatError, TruncatedError, add_file_to_errors, file_error
from ffrecord.format.ffr_layout import HINT_SIZE, hint_of
from ffrecord.sources.files import check_file
from ffrecord.sources.index_file import IndexCache, cached_index
from ffrecord.sources.inflated import compression_of
from ffrecord.sources.names import Names, check_members, name_as_text
from ffrecord.sources.tar import _tar
from ffrecord.system.atomic_file import read_up_to
from ffrecord.system.threads import map_in_threads

Numbers = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

logger = logging.getLogger("ffrecord")

KIND = "tar-2"  # format of the index; increase the number when its meaning changes
COLUMNS: dict[str, type[np.generic]] = {
    **dict.fromkeys(("headers", "offsets", "sizes"), np.int64),
    **dict.fromkeys(("linked", "sparse"), np.uint8),
}
THREADS = 8  # archives scanned at once
BEHIND = 1 << 20  # bytes behind the end of an archive that are looked at

SPARSE = "it is a sparse file, which is not supported: store it with its holes filled"
PROBLEMS = {
    "size": "its size is not a number >= 0",
    "pax": "a pax header has an invalid record",
    "sparse": SPARSE,
    "volume": "the file continues from another volume, which is not supported",
    "global": "a global pax header sets a name, link or size for all members, which is not supported",
    "lonely": "no member follows this extension header",
}


class Members(NamedTuple):
    """The regular files of an archive in order, including hard links to them.

    Attributes:
        path, status: path and status of the archive.
        names: name of each file.
        headers: int64 [n], offset of the first header of each file, bytes.
        offsets, sizes: int64 [n], offset and size of the data of each file, bytes; for a hard link those of its target.
        linked: uint8 [n], 1 for hard links.
        sparse: uint8 [n], 1 for files stored without their holes, which cannot be read.
        folders: names of the directories, each with a "/" at its end.
    """

    path: str
    status: os.stat_result
    names: Names
    headers: Numbers
    offsets: Numbers
    sizes: Numbers
    linked: npt.NDArray[Any]
    sparse: npt.NDArray[Any]
    folders: Names


def members_of(
    paths: Sequence[str],
    index_cache: IndexCache = None,
    *,
    ignore_zeros: bool = False,
    cut: Callable[[str], None] | None = None,
) -> list[Members]:
    """Return the members of each archive. Several archives are scanned at once.

    Args:
        paths: paths of the archives.
        index_cache: see `cached_index`.
        ignore_zeros: go on after blocks of zeros, which end an archive.
        cut: called with a message for an archive whose end is missing, whose last member may then reach beyond the end
            of the file. None to raise instead.

    Raises:
        FormatError, TruncatedError: an archive is damaged, compressed or not a tar; with path and offset.
        OSError: it cannot be read.
    """
    look = partial(_members, index_cache=index_cache, ignore_zeros=ignore_zeros, cut=cut)
    # Scans wait for the disk, and run without the GIL.
    return map_in_threads(look, paths, THREADS)


def _members(path: str, index_cache: IndexCache, ignore_zeros: bool, cut: Callable[[str], None] | None) -> Members:
    check_file(path)
    # Before the scan, so that a change meanwhile shows when the archive is opened.
    status = os.stat(path)
    build = partial(_build, path, ignore_zeros, cut)
    # With `cut`, no index is kept: it might be that of an archive that was cut.
    place = index_cache if cut is None else None
    check = partial(check_members, **COLUMNS)
    # With `ignore_zeros` there may be more members, so that index has a name of its own.
    arrays: Arrays = cached_index(path, f"{KIND}z" if ignore_zeros else KIND, build, place, check)
    columns = {name: arrays[name] for name in COLUMNS}
    names, folders = Names.from_arrays(arrays), Names(arrays["folders"], arrays["folder_offsets"])
    return Members(path, status, names, **columns, folders=folders)


def _build(path: str, ignore_zeros: bool, cut: Callable[[str], None] | None) -> Arrays:
    with add_file_to_errors("looking for members", path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size == 0:
                raise FormatError(f"{path} is not a tar archive: the file is empty")
            scan = _tar.Scan(fd, size, ignore_zeros)
            if not scan.run():
                # The first bytes tell whether it is compressed, the usual reason.
                error = _error(path, size, scan, read_up_to(fd, HINT_SIZE, 0))
                if cut is None or not isinstance(error, TruncatedError):
                    try:
                        raise error
                    finally:
                        del error  # breaks the cycle of the exception and this frame, which holds the memory of `scan`
                cut(str(error))
            elif not scan.ended:
                log_unended(path, size, scan.n)
            elif not ignore_zeros:
                log_behind(path, scan.offset, read_up_to(fd, BEHIND, scan.offset))
            return _regular(path, scan.arrays())
        finally:
            os.close(fd)


def log_unended(path: str, size: int, members: int) -> None:
    """Log that an archive lacks the zeros at its end. Nothing else shows that it was cut between two members."""
    end = "but no zeros at its end: the archive may have been cut"
    logger.warning("%s: %d members in %d bytes, %s", path, members, size, end, extra=DAMAGE)


def log_behind(path: str, offset: int, data: bytes | bytearray) -> None:
    """Log that more than zeros comes behind the end of an archive.

    Args:
        path: path of the archive.
        offset: offset of the first byte behind the zeros that end it.
        data: up to BEHIND bytes from there on.
    """
    zeros = len(data) - len(data.lstrip(b"\0"))
    if zeros < len(data):
        logger.warning(
            "%s: zeros at offset %d end the archive, so what comes behind them, from offset %d on, is left out: to "
            "read on, as in archives joined by cat, pass ignore_zeros=True",
            path,
            offset - _tar.BLOCK,
            offset + zeros,
            extra=DAMAGE,
        )


def log_left_out(path: str, count: int, first: str) -> None:
    """Log that files of an archive belong to no sample of a WebDataset.

    Args:
        path: path of the archive.
        count: number of these files.
        first: name of the first of them.
    """
    logger.warning(
        "%s: %s left out, such as %r: the last part of a name needs a dot before its field, as in 0001.txt; "
        'format="tar" reads all files',
        path,
        "1 file is" if count == 1 else f"{count} files are",
        first,
    )


def log_repeated_keys(path: str, count: int, first: str) -> None:
    """Log that keys of a WebDataset come again after other samples: their files may belong together.

    Args:
        path: path of the archive.
        count: number of samples with the key of an earlier one.
        first: the first such key.
    """
    logger.warning(
        "%s: %s the key of an earlier one, such as %r: the files of a sample must follow each other, so sort the "
        "archive by name if these belong together",
        path,
        "1 sample has" if count == 1 else f"{count} samples have",
        first,
    )


def is_metadata(name: str) -> bool:
    """Return whether a member of a WebDataset belongs to no sample by its name at the top level, such as `__info__`."""
    top = name.partition("/")[0]
    return len(top) >= 4 and top.startswith("__") and top.endswith("__")


def _error(path: str, size: int, scan: _tar.Scan, begins: bytes) -> Exception:
    """Return the error for a pass that stopped early."""
    if scan.problem == "failed":
        # 0 stands for the end of the file, where a moment before there was more.
        if scan.failure:
            return file_error(
                scan.failure, f"{path}: reading headers failed at offset {scan.offset}", path, call="pread"
            )
        return TruncatedError(
            f"{path}: the file was cut while it was read: it had {size} bytes, now none at offset {scan.offset}"
        )
    # A compressed archive may be smaller than a header, and so is a Git LFS pointer.
    small = scan.problem == "cut header" and bool(compression_of(begins) or hint_of(begins))
    # At any other place than the start, a bad checksum means damage.
    if (scan.problem == "checksum" or small) and scan.n == 0 and scan.offset == 0:
        return not_tar_error(path, begins)
    headers = scan.headers
    if scan.problem and scan.problem.startswith("cut"):
        return TruncatedError(f"{path}: {_cut(scan, size)}; the file ends at {size}")
    return header_error(path, scan.offset, headers, scan.problem)


def _cut(scan: _tar.Scan, size: int) -> str:
    headers, data = scan.headers, scan.offset + _tar.BLOCK
    if scan.problem == "cut header":
        return f"cut in a header at offset {scan.offset}, of {_tar.BLOCK} bytes"
    if scan.problem == "cut extension":
        return f"cut in an extension header at offset {scan.offset}, with {headers.size} bytes from {data} on"
    name = name_as_text(headers.name)
    return f"cut in member {name!r}: it has {headers.size} bytes from offset {data} on, {size - data} are left"


def not_tar_error(path: str, begins: bytes) -> FormatError:
    """Return the error for a file that does not begin with a header."""
    name = compression_of(begins)
    if name is not None:
        return FormatError(
            f"{path}: the archive is compressed by {name}, so its members cannot be read in place: read them in order "
            "with ffrecord.sources.iter_members, make records of them with ffrecord.convert, or decompress the archive"
        )
    return FormatError(f"{path} is not a tar archive: it begins with {begins[:8].hex(' ')}{hint_of(begins)}")


def header_error(path: str, offset: int, headers: _tar.Headers, problem: str | None) -> FormatError:
    """Return the error for a refused header at `offset`."""
    where = f"{path}: header at offset {offset}"
    if problem == "checksum":
        stored = "none" if headers.stored < 0 else f"{headers.stored:#o}"
        return FormatError(f"{where}: checksum {headers.computed:#o}, stored {stored}: damaged, or not a header")
    if problem == "long":
        if headers.size > _tar.EXTENSION_MOST:
            return FormatError(
                f"{where}: an extension has {headers.size} bytes, expected at most {_tar.EXTENSION_MOST}"
            )
        return FormatError(f"{where}: a name is too long, expected at most {_tar.NAME_MOST} bytes")
    named = f" of member {name_as_text(headers.name)!r}" if problem in ("sparse", "volume") and headers.name else ""
    return FormatError(f"{where}{named}: {PROBLEMS.get(str(problem), problem)}")


def sparse_error(where: str) -> FormatError:
    """Return the error for reading a sparse file."""
    return FormatError(f"{where}: {SPARSE}")


def _regular(path: str, found: Arrays) -> Arrays:
    """Select the files among all members. Hard links get the data of their targets."""
    kinds = found["kinds"]
    linked = (kinds == _tar.LINK).astype(np.uint8)
    kept = _files(kinds)
    if linked.any():
        kept |= _follow(path, found)
    chosen = np.flatnonzero(kept)
    names = Names.from_arrays(found)
    columns = {name: found[name][chosen] for name in ("headers", "offsets", "sizes")}
    # `_follow` has given links the kind of their targets.
    sparse = (found["kinds"] == _tar.SPARSE_FILE).astype(np.uint8)
    folders = _folders(found)
    return {
        **columns,
        "linked": linked[chosen],
        "sparse": sparse[chosen],
        **(names if len(chosen) == len(names) else names.pick(chosen)).arrays(),
        "folders": folders.blob,
        "folder_offsets": folders.offsets,
    }


def _files(kinds: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (kinds == _tar.FILE) | (kinds == _tar.SPARSE_FILE)
    return found


def _folders(found: Arrays) -> Names:
    """Return the names of the directories, each with a "/" at its end."""
    names = Names.from_arrays(found).pick(np.flatnonzero(found["kinds"] == _tar.DIRECTORY))
    # Not all programs put a "/" at the end of a directory's name.
    return Names.of([f"{name.rstrip('/')}/" for name in names])


def _follow(path: str, found: Arrays) -> npt.NDArray[np.bool_]:
    """Give hard links the data of their targets, which are earlier members. Return which links lead to files."""
    names = Names.from_arrays(found)
    links = Names(found["links"], found["link_offsets"])
    kinds, offsets, sizes = found["kinds"], found["offsets"], found["sizes"]
    files, links_of = _files(kinds), kinds == _tar.LINK
    # A copy, since `kinds` must still tell links from files below.
    what = found["kinds"] = kinds.copy()
    earlier: dict[str, int] = {}
    for i, name in enumerate(names):
        if kinds[i] == _tar.LINK:
            target = earlier.get(os.path.normpath(links[i]), -1)
            if target < 0:
                raise FormatError(
                    f"{path}: member {name!r} at offset {found['headers'][i]} is a hard link to {links[i]!r}, but no "
                    "member before it has that name"
                )
            # The target of a hard link may also be a symbolic link or a device.
            files[i], offsets[i], sizes[i] = files[target], offsets[target], sizes[target]
            what[i] = what[target] if files[target] else _tar.LINK
        # Some archives write `./a` in one place and `a` in the other.
        # An equal name replaces the earlier one, as unpacking would.
        earlier[os.path.normpath(name)] = i
    leading: npt.NDArray[np.bool_] = files & links_of
    return leading

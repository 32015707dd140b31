"""Names with "/" as a tree of files and directories. Lookups bisect the names; nothing else is stored.

Paths are compared without `.` and needless "/". That form of all names of an archive is computed at once.
"""

import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.folders.safe_unpack import DEPTH_MAX
from ffrecord.reading.paths import PathLike
from ffrecord.sources.names import Names
from ffrecord.system.values import describe_wrong

Bits: TypeAlias = npt.NDArray[np.bool_]
SLASH, DOT = b"/."


def plain_names(names: Names, folders: bool = False) -> Names:
    """Return the names without parts `.`, and without a "/" that follows another one or ends a name.

    Names stay as they are if they are absolute, contain `..`, or would become empty: no path leads to them.

    Args:
        folders: keep the "/" at the end of each name.

    Returns:
        As many names; the same object if nothing was removed.
    """
    if not _may_have_needless(names, folders):
        return names
    needless = _needless(names)
    if not folders:
        needless |= _at_end(names, needless)
    sizes = np.diff(names.offsets)
    counts = _counts(needless, names)
    stay = _counts(_leads_away(names), names).astype(bool) | (counts == sizes)
    needless &= ~np.repeat(stay, sizes)
    if not needless.any():
        return names
    offsets = np.zeros(len(names.offsets), np.int64)
    np.cumsum(sizes - np.where(stay, 0, counts), out=offsets[1:])
    return Names(names.blob[~needless], offsets)


def _may_have_needless(names: Names, folders: bool) -> bool:
    """Tell whether names may have needless bytes. This fast check of all bytes is False for usual archives."""
    blob, whole = names.blob, names.blob.tobytes()
    # A match may span two names: that only costs the slow way.
    if b"//" in whole or b"/./" in whole:
        return True
    # An empty name has no first and last byte.
    some = np.flatnonzero(np.diff(names.offsets))
    starts, lasts = names.offsets[some], names.offsets[some + 1] - 1
    alone = starts == lasts
    # `minimum`, and `maximum` below, keep to the name if it has one byte.
    before = (blob[starts] == DOT) & (alone | (blob[np.minimum(starts + 1, lasts)] == SLASH))
    behind = (blob[lasts] == DOT) & (alone | (blob[np.maximum(lasts - 1, starts)] == SLASH))
    if not folders:
        behind |= blob[lasts] == SLASH
    return bool((before | behind).any())


def _parts(names: Names) -> tuple[Bits, Bits]:
    """Return where parts of names begin, bool [bytes], and before which bytes parts end, bool [bytes + 1]."""
    slash = names.blob == SLASH
    # A part begins behind each "/", and ends before it.
    begins, ends = np.append(False, slash), np.append(slash, True)
    begins[names.offsets[:-1]] = True
    ends[names.offsets[1:]] = True
    return begins[:-1], ends


def _needless(names: Names) -> Bits:
    """Return which bytes to remove: a part `.` with the "/" behind it, or a "/" that no part precedes."""
    begins, ends = _parts(names)
    slash = names.blob == SLASH
    dot = (names.blob == DOT) & begins & ends[1:]
    needless: Bits = dot | (slash & begins)
    needless[1:] |= dot[:-1] & slash[1:]
    return needless


def _at_end(names: Names, needless: Bits) -> Bits:
    """Return which bytes are a "/" with only needless bytes behind it in its name."""
    bits = np.zeros(len(needless), bool)
    stops = names.offsets[1:]
    # The position of the last byte that is not needless, up to the end of each name.
    last = np.maximum.accumulate(np.where(needless, -1, np.arange(len(needless))))[stops[stops > 0] - 1]
    # A name without such a byte has found one of an earlier name.
    last = last[last >= names.offsets[:-1][stops > 0]]
    bits[last] = names.blob[last] == SLASH
    return bits


def _leads_away(names: Names) -> Bits:
    """Return which bytes make a name absolute, or begin a part `..`."""
    begins, ends = _parts(names)
    dot = np.append(names.blob == DOT, False)
    away: Bits = dot[:-1] & begins & ~ends[1:] & dot[1:] & np.append(ends[2:], False)
    starts = names.offsets[:-1][np.diff(names.offsets) > 0]
    away[starts] |= names.blob[starts] == SLASH
    return away


def _counts(bits: Bits, names: Names) -> npt.NDArray[np.int64]:
    """Count the bytes of each name that are set in `bits`."""
    sums = np.append(np.zeros(1, np.int64), np.cumsum(bits, dtype=np.int64))
    return sums[names.offsets[1:]] - sums[names.offsets[:-1]]


AFTER_SLASH = "0"  # the character after "/"
UNREACHABLE = ("", ".", "..")  # parts of names that no path leads to


class NameTree:
    """A tree of files by name. Its directories are the parts of names before a "/", and `folders`.

    Paths are relative: `""` and `"."` are the root, and `./x`, `x/` and `x` are the same. Absolute paths and `..` do
    not exist, unless a file has exactly that name.

    Args:
        files: names of files. If several are the same path, as `x` and `./x`, the last counts.
        folders: names of directories that may be empty, each with a "/" at its end; others are ignored.
    """

    def __init__(self, files: Names, folders: Names) -> None:
        self.files, self.folders = plain_names(files), plain_names(folders, folders=True)
        self._as_given = self.files is files

    def find(self, path: PathLike) -> int:
        """Return the index of the file with that path; -1 if there is none."""
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(describe_wrong("path", path, "str or os.PathLike of str"))
        index = self.files.find(text)  # a plain name, as most are, has no other form
        key = plain_path(text) if index < 0 else None
        return self.files.find(key) if key and key != text else index

    def find_each(self, paths: list[str]) -> npt.NDArray[np.int64]:
        """Return the index of each path. Paths that are not plain may be missed: -1."""
        # If all names are plain, so are most paths: the caller looks up missed ones one by one.
        return self.files.find_each(paths if self._as_given else [plain_path(path) or path for path in paths])

    def is_dir(self, path: PathLike) -> bool:
        """Tell whether there is a directory with that path."""
        key = plain_path(os.fspath(path))
        return key is not None and (key == "" or any(_begins(names, f"{key}/") for names in (self.files, self.folders)))

    def children(self, path: PathLike) -> dict[str, bool]:
        """Return the entries of a directory in ascending order: name → whether it is a directory.

        Empty if it does not exist.
        """
        key = plain_path(os.fspath(path))
        if key is None:
            return {}
        prefix = f"{key}/" if key else ""
        found = dict(_heads(self.files, prefix))
        found.update((name, True) for name, folder in _heads(self.folders, prefix) if folder)
        return dict(sorted(found.items()))

    def walk(self, path: PathLike) -> Iterator[tuple[str, bool]]:
        """Yield (path below the directory, whether it is a directory) for everything in a directory.

        The order is depth first, and a directory comes before its entries.

        Raises:
            FormatError: directories are more than DEPTH_MAX deep below it.
        """
        return walk_tree(self.children, plain_path(os.fspath(path)) or "")


def walk_tree(children: Callable[[str], dict[str, bool]], top: str) -> Iterator[tuple[str, bool]]:
    """Walk any tree as `NameTree.walk` does. `children` is the counterpart of `NameTree.children`."""
    # A stack of iterators: nested generators would hand each entry up through all levels.
    way = [("", iter(children(top).items()))]
    while way:
        prefix, here = way[-1]
        for name, folder in here:
            yield prefix + name, folder
            if folder:
                # A single name of 64 KiB can make 32,768 directories, whose paths take a gigabyte together.
                if len(way) > DEPTH_MAX:
                    raise FormatError(
                        f"{prefix[:60]!r} … is {len(way)} directories deep in {top!r}, expected at most {DEPTH_MAX}"
                    )
                below = f"{prefix}{name}"
                way.append((f"{below}/", iter(children(f"{top}/{below}" if top else below).items())))
                # This directory goes on, where it stopped, when the one below is done.
                break
        else:
            way.pop()


def plain_path(path: str) -> str | None:
    """Return a path in the form of names: without "." and needless "/". Return None if it leads nowhere."""
    if path.startswith("/"):
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)


def _begins(names: Names, prefix: str) -> bool:
    """Tell whether a name begins with `prefix`."""
    try:
        position = names.place(prefix)
    except ValueError:
        return False
    return position < len(names) and names[int(names.order[position])].startswith(prefix)


def _heads(names: Names, prefix: str) -> Iterator[tuple[str, bool]]:
    """Yield the next part of names that begin with `prefix`, each once, and whether a "/" follows it."""
    position = names.place(prefix)
    while position < len(names):
        name = names[int(names.order[position])]
        if not name.startswith(prefix):
            return
        head, slash, _ = name[len(prefix) :].partition("/")
        if head not in UNREACHABLE:
            yield head, bool(slash)
        # Over everything below a directory at once: it costs one bisection, however much that is.
        position = names.place(f"{prefix}{head}{AFTER_SLASH}") if slash else position + 1

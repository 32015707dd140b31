"""Names with "/" in them as a tree of files and directories, by bisection: nothing is kept but the names."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.folders.safe_unpack import DEPTH_MAX
from ffrecord.reading.paths import PathLike
from ffrecord.sources.names import Names
from ffrecord.sources.plain_names import plain_names

AFTER_SLASH = "0"  # the character after "/"
UNREACHABLE = ("", ".", "..")  # parts that no path leads to


class NameTree:
    """Files by name; directories are what names have before a "/", and those of `folders`.

    Paths are relative: `""` and `"."` are the root, `./x`, `x/` and `x` the same. Absolute paths and `..` do not exist,
    unless a file has exactly that name.

    Args:
        files: names; of several that are the same path the last counts, as of `x` and `./x`.
        folders: names of directories that may have nothing in them, each with a "/" at its end; others are ignored.
    """

    def __init__(self, files: Names, folders: Names) -> None:
        self.files, self.folders = plain_names(files), plain_names(folders, folders=True)
        self._as_given = self.files is files

    def find(self, path: PathLike) -> int:
        """The index of the file of that path; -1: there is none."""
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(f"path must be str or os.PathLike of str, not {type(path).__name__}")
        index = self.files.find(text)  # of a name that is plain, as most are, there is no other
        key = plain(text) if index < 0 else None
        return self.files.find(key) if key and key != text else index

    def find_each(self, paths: list[str]) -> npt.NDArray[np.int64]:
        """The same of many; it may miss paths that are not plain."""
        return self.files.find_each(paths if self._as_given else [plain(path) or path for path in paths])

    def is_dir(self, path: PathLike) -> bool:
        """Whether there is a directory of that path."""
        key = plain(os.fspath(path))
        return key is not None and (key == "" or any(_begins(names, f"{key}/") for names in (self.files, self.folders)))

    def children(self, path: PathLike) -> dict[str, bool]:
        """What is directly in a directory, in ascending order: name → whether a directory. Else empty."""
        key = plain(os.fspath(path))
        if key is None:
            return {}
        prefix = f"{key}/" if key else ""
        found = dict(_heads(self.files, prefix))
        found.update((name, True) for name, folder in _heads(self.folders, prefix) if folder)
        return dict(sorted(found.items()))

    def walk(self, path: PathLike) -> Iterator[tuple[str, bool]]:
        """All that is in a directory, depth first, directories before their contents: (path below it, whether one).

        Raises:
            FormatError: directories are more than DEPTH_MAX deep below it.
        """
        return walked(self.children, plain(os.fspath(path)) or "")


def walked(children: Callable[[str], dict[str, bool]], top: str) -> Iterator[tuple[str, bool]]:
    """What `NameTree.walk` gives, of any tree whose `children` are as `NameTree`'s."""
    way = [("", iter(children(top).items()))]
    while way:
        prefix, here = way[-1]
        for name, folder in here:
            yield prefix + name, folder
            if folder:
                # One name of 64 KiB would be 32,768 directories, whose paths together take a gigabyte.
                if len(way) > DEPTH_MAX:
                    raise FormatError(
                        f"{prefix[:60]!r} … is {len(way)} directories deep in {top!r}, expected at most {DEPTH_MAX}"
                    )
                below = f"{prefix}{name}"
                way.append((f"{below}/", iter(children(f"{top}/{below}" if top else below).items())))
                break
        else:
            way.pop()


def plain(path: str) -> str | None:
    """The path as names have it: without "." and needless "/". None: it leads nowhere."""
    if path.startswith("/"):
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)


def _begins(names: Names, prefix: str) -> bool:
    """Whether a name begins so."""
    try:
        position = names.place(prefix)
    except ValueError:
        return False
    return position < len(names) and names[int(names.order[position])].startswith(prefix)


def _heads(names: Names, prefix: str) -> Iterator[tuple[str, bool]]:
    """What comes next in names that begin with `prefix`, each once: up to a "/", whether there is one."""
    position = names.place(prefix)
    while position < len(names):
        name = names[int(names.order[position])]
        if not name.startswith(prefix):
            return
        head, slash, _ = name[len(prefix) :].partition("/")
        if head not in UNREACHABLE:
            yield head, bool(slash)
        position = names.place(f"{prefix}{head}{AFTER_SLASH}") if slash else position + 1

"""Names with "/" as a tree of files and directories. Lookups bisect the names; nothing else is stored."""

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
            raise TypeError(f"path must be str or os.PathLike of str, not {type(path).__name__}")
        index = self.files.find(text)  # a plain name, as most are, has no other form
        key = plain_path(text) if index < 0 else None
        return self.files.find(key) if key and key != text else index

    def find_each(self, paths: list[str]) -> npt.NDArray[np.int64]:
        """Return the index of each path. Paths that are not plain may be missed: -1."""
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
        position = names.place(f"{prefix}{head}{AFTER_SLASH}") if slash else position + 1

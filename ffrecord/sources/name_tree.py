"""Names with "/" in them as a tree of files and directories, by bisection: nothing is kept but the names."""

import os
from collections.abc import Iterator

from ffrecord.sources.names import Names

PathLike = str | os.PathLike[str]
AFTER_SLASH = "0"  # the character after "/"
UNREACHABLE = ("", ".", "..")  # parts that no path leads to


class NameTree:
    """Files by name; directories are what names have before a "/", and those of `folders`.

    Paths are relative: `""` and `"."` are the root, `./x`, `x/` and `x` the same. Absolute paths and `..` do not exist,
    unless a file has exactly that name.

    Args:
        files: names; of several that are the same the last counts.
        folders: names of directories that may have nothing in them, each with a "/" at its end; others are ignored.
    """

    def __init__(self, files: Names, folders: Names) -> None:
        self.files, self.folders = files, folders

    def find(self, path: PathLike) -> int:
        """The index of the file of that path; -1: there is none."""
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(f"path must be str or os.PathLike of str, not {type(path).__name__}")
        index = self.files.find(text)
        if index < 0:
            key = plain(text)
            index = -1 if key is None or key == text else self.files.find(key)
        return index

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
        """All that is in a directory, depth first, directories before their contents: (path below it, whether one)."""
        top = plain(os.fspath(path)) or ""
        way = [("", iter(self.children(top).items()))]
        while way:
            prefix, children = way[-1]
            for name, folder in children:
                yield prefix + name, folder
                if folder:
                    below = f"{prefix}{name}/"
                    way.append((below, iter(self.children(f"{top}/{below}" if top else below).items())))
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

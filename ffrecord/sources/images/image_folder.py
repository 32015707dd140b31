"""Folders of images in place: a directory for each class, or none."""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from errno import ENOENT, ENOTDIR
from typing import ClassVar

import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError, MissingFileError, NotAFolderError
from ffrecord.reading.paths import PathLike, check_type, resolve_directory
from ffrecord.reading.store import OnError, reopening
from ffrecord.sources._files import list_directory
from ffrecord.sources.images.file_store import FileStore
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.names import Names, concatenate_names
from ffrecord.sources.registry import IMAGES
from ffrecord.system.values import describe_wrong

DEPTH_MOST = 64  # most levels of directories
SHOWN = 5  # most classes without pictures that the log names

logger = logging.getLogger("ffrecord")


class ImageFolderReader(FileStore):
    """Image files of a directory tree as records, in the order and with the numbers of torchvision's ImageFolder.

    Each directory in `source` is a class, whatever it contains. Its files, and those of all directories below it, are
    its samples. Files beside these directories are left out. If there are no such directories, the files of `source`
    itself are records without labels. `samples` gives {"image": bytes as uint8 [size], "label": int}.

    Links to files and directories are followed, as in torchvision; a directory that contains itself by a link is
    refused. A broken link is a file that cannot be read. There are no checksums: `checksum` is None.

    Args:
        source: the directory.
        check_data: without effect: there is nothing to compare.
        io: without effect, only checked: files are read through the page cache, several at once.
        on_error: see `FileReader`.
        index_cache: without effect: names are listed each time.
        extensions: suffixes of the wanted files, with their dots, compared without regard to case.
        labels: False for all files of the tree without labels; True to refuse a directory without classes; None for
            labels if there are classes.

    Attributes:
        classes: names of the classes, in string order; empty without labels.
        class_to_idx: name → number.
        labels: int64 [n], number of the class of each record; None without labels.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError (each also an AssertionError), TypeError: an argument.
        FormatError: directories contain each other, or are more than 64 deep.
        OSError: a directory cannot be read.
    """

    __slots__ = ("_extensions", "classes")

    format: ClassVar[str] = "image folder"

    def __init__(
        self,
        source: PathLike | Sequence[PathLike],
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        extensions: Iterable[str] = IMAGES,
        labels: bool | None = None,
    ) -> None:
        if not isinstance(labels, bool | None):
            raise ArgumentTypeError(describe_wrong("labels", labels, "True, False or None"))
        root = _directory(source)
        self._extensions = _suffixes(extensions)
        self.classes: list[str] = [] if labels is False else _classes(root)
        if labels and not self.classes:
            raise ArgumentError(f"{root} has no directory in it, expected one for each class")
        if self.classes:
            parts = [list(self._files(root, name)) for name in self.classes]
            counts = [sum(map(len, part)) for part in parts]
            _check_beside(root, self.classes, sum(counts), sum(map(len, self._files(root, "", below=False))))
            _warn_of_empty(root, [name for name, count in zip(self.classes, counts, strict=True) if not count])
            numbers = np.repeat(np.arange(len(counts)), counts)
            names = concatenate_names([name for part in parts for name in part] or [Names.of([])])
        else:
            names = concatenate_names(list(self._files(root, "", below=labels is False)))
            numbers = None
        settings = {"extensions": self._extensions, "labels": labels}
        super().__init__([root], root, names, numbers, check_data, io=io, on_error=on_error, settings=settings)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: number for number, name in enumerate(self.classes)}

    def _files(self, root: str, directory: str, *, below: bool = True) -> Iterator[Names]:
        """Return names of the files of a directory and those below it, in the order of `sorted(os.walk(...))`."""
        suffixes = tuple(os.fsencode(suffix) for suffix in self._extensions)
        found: list[tuple[str, Names]] = []
        waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [(directory, ())]
        while waiting:
            name, above = waiting.pop()
            path = os.path.join(root, name) if name else root
            # Through links: a directory inside itself has the same inode again.
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            if identity in above or len(above) >= DEPTH_MOST:
                raise FormatError(f"{path} lies {len(above)} levels deep, or inside itself by a link")
            prefix = f"{name}/" if name else ""
            blob, offsets, directories = list_directory(os.fsencode(path), os.fsencode(prefix), suffixes)
            names = Names(blob, offsets)
            found.append((name, names.pick(names.order)))  # the order of UTF-8 bytes is that of strings
            if below:
                waiting += [(prefix + os.fsdecode(each), (*above, identity)) for each in directories]
        return (names for _, names in sorted(found, key=lambda pair: pair[0]))


def _directory(source: PathLike | Sequence[PathLike]) -> str:
    given = list(source) if isinstance(source, list | tuple) else [source]
    if len(given) != 1:
        raise ArgumentError(f"{len(given)} directories, expected one image folder")
    path = check_type(given[0])
    if not os.path.exists(path):
        raise MissingFileError(ENOENT, f"{path} does not exist", path)
    if not os.path.isdir(path):
        raise NotAFolderError(ENOTDIR, f"{path} is not a directory", path)
    return resolve_directory(path)


def _suffixes(extensions: Iterable[str]) -> tuple[str, ...]:
    given = (extensions,) if isinstance(extensions, str) else tuple(extensions)
    for i, suffix in enumerate(given):
        if not isinstance(suffix, str):
            raise ArgumentTypeError(describe_wrong(f"extensions[{i}]", suffix, "str"))
        # The name of a file has at most 255 bytes.
        if not 0 < len(os.fsencode(suffix)) < 256 or "/" in suffix:
            raise ArgumentError(f"extensions has {suffix!r}, which cannot end the name of a file")
    return tuple(suffix.lower() for suffix in given)


def _classes(root: str) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def _check_beside(root: str, classes: Sequence[str], inside: int, beside: int) -> None:
    """Log pictures beside the classes, which are left out, as in torchvision.

    Args:
        inside: number of pictures in the classes.
        beside: number of pictures in `root` itself.

    Raises:
        FormatError: all pictures are beside them: then the directories are hardly classes.
    """
    if not beside or reopening.get():
        return
    if not inside:
        shown = ", ".join(map(repr, classes[:SHOWN]))
        raise FormatError(
            f"{root}: its pictures ({beside}) lie beside directories that have none and would be its classes: {shown}; "
            "move one or the other elsewhere, or pass labels=False to read all pictures without labels"
        )
    logger.warning("%s: pictures beside the classes, which are left out: %d", root, beside)


def _warn_of_empty(root: str, classes: Sequence[str]) -> None:
    """Log classes without pictures: they take numbers, as in torchvision, but may be directories of another purpose."""
    # Worker processes open the folder once more, and need not say it again.
    if classes and not reopening.get():
        more = f" and {len(classes) - SHOWN} more" if len(classes) > SHOWN else ""
        logger.warning("%s: classes without pictures: %s%s", root, ", ".join(map(repr, classes[:SHOWN])), more)

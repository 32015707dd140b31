"""Directories, zip archives and packed folders as layers of one tree of files."""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, TypeAlias, overload

import numpy as np

from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    MissingFileError,
    NotAFileError,
    NotAFolderError,
)
from ffrecord.fields.images.jpeg_files import jpeg_pixels, jpeg_pixels_of
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import PathLike, check_several
from ffrecord.sources.name_tree import plain_path, walk_tree
from ffrecord.sources.named_files import NamedFiles, Paths
from ffrecord.sources.opening import detect_readable
from ffrecord.sources.packed_folder import PackedFolderReader
from ffrecord.sources.zip.reader import ZipReader
from ffrecord.system.closing import ClosedByWith, close_unless_done
from ffrecord.system.values import describe_wrong

Arrays = list[Array]  # the method `list` hides the type inside the class
Listing = list[str]
Layer: TypeAlias = "NamedFiles | str"  # an archive, or a local directory

MOUNTED: dict[str, Callable[..., NamedFiles]] = {"zip": ZipReader, "packed folder": PackedFolderReader}


class Archives(ClosedByWith):
    """Several directories, zip archives and packed folders as one read-only tree of files.

    A path is looked up in each of them, in the given order; the first that has it counts. Directories are read as they
    are at the time of a call, archives as they were when they were opened.

    Paths are relative: `""` and `"."` are the root, and `./x` and `x/` are `x`. Absolute paths and `..` lead nowhere.
    Symbolic links in a directory are followed, wherever they lead.

    You can share an object between threads, fork it and pickle it. Leaving a `with` block closes it.

    Args:
        sources: paths of directories, zip archives and packed folders; or readers of the last two, which stay open when
            this object is closed. One of these, or several.
        check_data, io: options for the archives opened here; see their readers.
        index_cache: option for zip archives; see `ZipReader`.

    Raises:
        FormatError: a file is neither a zip archive nor a packed folder.
        The exceptions of the readers.
    """

    def __init__(
        self,
        sources: PathLike | NamedFiles | Iterable[PathLike | NamedFiles] = (),
        check_data: object = True,
        *,
        io: str = "auto",
        index_cache: Any = None,
    ) -> None:
        self._options: dict[str, Any] = {"check_data": bool(check_data), "io": io, "index_cache": index_cache}
        self._layers: list[Layer] = []
        self._ours: list[NamedFiles] = []
        self._closed = False
        # Archives that are open must be closed if a later source cannot be opened.
        with close_unless_done([self]):
            # A path and a reader are iterable, too: by characters, and by records.
            for source in [sources] if isinstance(sources, str | os.PathLike | NamedFiles) else sources:
                self.mount(source)

    # Layers

    def mount(self, source: PathLike | NamedFiles, *, first: bool = False) -> None:
        """Add a directory or archive behind all others; with `first`, before them.

        Raises:
            The exceptions of the constructor.
        """
        layer: Layer
        if isinstance(source, NamedFiles):
            layer = source
        elif not isinstance(source, str | os.PathLike):
            raise ArgumentTypeError(describe_wrong("source", source, "a path or a reader of named files"))
        elif os.path.isdir(source):
            layer = os.fspath(source)
        else:
            layer = self._open(os.fspath(source))
        self._layers.insert(0 if first else len(self._layers), layer)

    def unmount(self, source: PathLike | NamedFiles) -> None:
        """Remove the first layer that is `source`: a reader, or the path by which it was opened.

        Raises:
            ValueError: it is not mounted.
        """
        for place, layer in enumerate(self._layers):
            if layer is source or (not isinstance(source, NamedFiles) and _path(layer) == os.fspath(source)):
                del self._layers[place]
                # Readers that the caller passed in stay open.
                if any(layer is each for each in self._ours):
                    layer.close()  # type: ignore[union-attr]
                return
        raise ArgumentError(f"{source!r} is not mounted; mounted are {self.mounted}")

    @property
    def mounted(self) -> Listing:
        """The paths of the layers, in the order of lookup."""
        return [_path(layer) for layer in self._layers]

    def _open(self, path: str) -> NamedFiles:
        kind = detect_readable([path])
        if kind not in MOUNTED:
            raise ArgumentError(f"{path}: format {kind} cannot be mounted, expected {' or '.join(MOUNTED)}")
        store = MOUNTED[kind](path, **self._options)
        self._ours.append(store)
        return store

    # Reading

    @overload
    def read(self, paths: PathLike) -> Array: ...
    @overload
    def read(self, paths: Paths) -> Arrays: ...
    def read(self, paths: PathLike | Paths) -> Array | Arrays:
        """Read files; those of each archive in one batch.

        Args:
            paths: [k] paths; repeats allowed, order kept. Or one path.

        Returns:
            k 1-D uint8 arrays; for one path its array.

        Raises:
            FileNotFoundError, IsADirectoryError (both also AssertionErrors): a path is not a file; nothing was read.
            OSError, and the exceptions of the readers.
        """
        if isinstance(paths, str | os.PathLike):
            return self.read_one(paths)
        places = [self._place(path) for path in paths]
        result: list[Any] = [None] * len(places)
        for layer in {id(layer): layer for layer, _ in places}.values():
            chosen = [i for i, (each, _) in enumerate(places) if each is layer]
            for i, array in zip(chosen, _read(layer, [places[i][1] for i in chosen]), strict=True):
                result[i] = array
        return result

    def read_one(self, path: PathLike) -> Array:
        """Read one file into a 1-D uint8 array."""
        layer, where = self._place(path)
        return _read(layer, [where])[0]

    def read_jpeg(self, path: PathLike, *, grey: bool = False) -> Array:
        """Read the pixels of a JPEG file; see `NamedFiles.read_jpeg`."""
        return jpeg_pixels(self.read_one(path), lambda: repr(os.fspath(path)), grey)

    def read_jpegs(self, paths: Paths, *, grey: bool = False, threads: int | None = None) -> Arrays:
        """Read the pixels of JPEG files in batches, decoded by threads; see `NamedFiles.read_jpegs`."""
        check_several("paths", paths)
        return jpeg_pixels_of(self.read(paths), lambda place: repr(paths[place]), grey, threads)

    def open(self, path: PathLike) -> io.BufferedReader:
        """Open a file as a Python file object: binary, for reading, seekable.

        Raises:
            The exceptions of `read`.
        """
        layer, where = self._place(path)
        return open(where, "rb") if isinstance(layer, str) else layer.open(where)

    def size(self, path: PathLike) -> int:
        """Return the size of a file in bytes, without reading it."""
        layer, where = self._place(path)
        return os.stat(where).st_size if isinstance(layer, str) else layer.size(where)

    # Paths

    def exists(self, path: PathLike) -> bool:
        """Tell whether there is a file or directory with that path."""
        return self.is_file(path) or self.is_dir(path)

    def is_file(self, path: PathLike) -> bool:
        """Tell whether there is a file with that path."""
        return self._find(path) is not None

    def is_dir(self, path: PathLike) -> bool:
        """Tell whether there is a directory with that path in any layer. The root always exists."""
        key = plain_path(os.fspath(path))
        return key == "" or any(_is_dir(layer, key) for layer in self._layers if key is not None)

    def list(
        self, path: PathLike | None = None, list_file: bool = True, list_dir: bool = True, recursive: bool = False
    ) -> Listing:
        """List the names in a directory, of all layers, each name once; see `NamedFiles.list`.

        A name that is a file in one layer and a directory in another is listed as a directory.

        Raises:
            FileNotFoundError, NotADirectoryError (both also AssertionErrors): `path` is not a directory.
        """
        top = "" if path is None else os.fspath(path)
        key = plain_path(top)
        if key is None or not self.is_dir(key):
            if self.is_file(top):
                raise NotAFolderError(errno.ENOTDIR, f"{top} is not a directory but a file in {self!r}", top)
            raise self._missing(top)
        found = walk_tree(self._children, key) if recursive else iter(self._children(key).items())
        return [name for name, folder in found if (list_dir if folder else list_file)]

    def _children(self, key: str) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for layer in self._layers:
            for name, folder in _children(layer, key).items():
                found[name] = folder or found.get(name, False)
        return dict(sorted(found.items()))

    def _find(self, path: PathLike) -> tuple[Layer, Any] | None:
        """Return the layer of a file, and its place there: its index in an archive, or its path in a directory."""
        if self._closed:
            raise ClosedError(f"Archives has been closed. {self.mounted}")
        text = os.fspath(path)
        key = plain_path(text)
        for layer in self._layers:
            if not isinstance(layer, str):
                index = layer.tree.find(text)
                if index >= 0:
                    return layer, index
            # The plain path: a file system would follow `..` out of the directory.
            elif key and _mode(place := os.path.join(layer, key), stat.S_ISREG):
                return layer, place
        return None

    def _place(self, path: PathLike) -> tuple[Layer, Any]:
        found = self._find(path)
        if found is not None:
            return found
        text = os.fspath(path)
        if self.is_dir(text):
            raise NotAFileError(errno.EISDIR, f"{text} is not a file but a directory in {self!r}", text)
        raise self._missing(text)

    def _missing(self, path: str) -> MissingFileError:
        return MissingFileError(errno.ENOENT, f"{path} does not exist in {self!r}", path)

    # Opening and closing

    def close(self) -> None:
        """Close the archives that were opened here. A second call does nothing."""
        self._closed = True
        # All are closed, also if closing one of them fails.
        with ExitStack() as stack:
            for store in self._ours:
                stack.callback(store.close)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and self.is_file(path)

    def __repr__(self) -> str:
        return f"<Archives of {', '.join(map(repr, self.mounted)) or 'nothing'}>"


def _path(layer: Layer) -> str:
    return layer if isinstance(layer, str) else layer.fnames[0]


def _read(layer: Layer, places: list[Any]) -> list[Array]:
    if not isinstance(layer, str):
        return layer.read(places)
    return [np.fromfile(place, np.uint8) for place in places]


def _mode(path: str, wanted: Any) -> bool:
    try:
        return bool(wanted(os.stat(path).st_mode))
    except (OSError, ValueError):  # ValueError: a NUL, or a character that the file system's encoding does not have
        return False


def _is_dir(layer: Layer, key: str) -> bool:
    return _mode(os.path.join(layer, key), stat.S_ISDIR) if isinstance(layer, str) else layer.is_dir(key)


def _children(layer: Layer, key: str) -> dict[str, bool]:
    if not isinstance(layer, str):
        return layer.tree.children(key)
    place = os.path.join(layer, key)
    if not _mode(place, stat.S_ISDIR):
        return {}
    with os.scandir(place) as entries:
        # Devices, FIFOs and broken links are neither.
        return {entry.name: entry.is_dir() for entry in entries if entry.is_dir() or entry.is_file()}

"""Stores whose records have paths: read by name, listed, and opened as files."""

# Records are also read by name, so parameters have other names than in `Store`.
# pyright: reportIncompatibleMethodOverride=false

import errno
import io
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from ffrecord.errors import MissingFileError, NotAFileError, NotAFolderError, name_files
from ffrecord.fields.images.jpeg_files import jpeg_pixels, jpeg_pixels_of
from ffrecord.folders.member_file import BUFFER
from ffrecord.folders.safe_unpack import UnpackedFiles, unpack_files
from ffrecord.reading.batch_forms import Array, Packed
from ffrecord.reading.indices import as_indices
from ffrecord.reading.paths import PathLike, check_several
from ffrecord.reading.store import Store
from ffrecord.sources.name_tree import NameTree
from ffrecord.sources.names import Names

Arrays = list[Array]  # the method `list` hides the type inside the class
Paths: TypeAlias = list[str] | list[PathLike] | tuple[PathLike, ...]
Wanted: TypeAlias = Paths | Iterable[SupportsIndex]
PATH = (str, os.PathLike)  # a constant: made once, not at each call


class NamedFiles(Store):
    """A store of files. Its methods take names and paths as well as indices, and the files form a tree.

    Paths are relative to the root: `""` and `"."` are the root, and `./x` and `x/` are `x`. Absolute paths and `..`
    lead nowhere, unless a file has exactly that name. If several files have the same name, the last one counts.

    Subclasses define `keys`, `_folders`, `_open_index`, `_content_sizes`.
    """

    __slots__ = ()  # without it, this class could not be a base beside RecordReader

    # For subclasses

    @abstractmethod
    def keys(self) -> Names:
        """Return the name of each file, in order."""

    @abstractmethod
    def _folders(self) -> Names:
        """Return the names of directories, each with a "/" at its end; at least those without files."""

    @abstractmethod
    def _open_index(self, index: int) -> io.RawIOBase:
        """Open file `index` in [0, n) for reading."""

    @abstractmethod
    def _content_sizes(self) -> npt.NDArray[np.int64]:
        """Return the bytes of each file: int64 [n]."""

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> npt.NDArray[np.int64]:
        """Return the bytes of the files at `indices` according to the archive's directory: int64 [k].

        Errors as in `read`.
        """
        return self._content_sizes()[self._normalize_indices(indices)]

    # Reading

    @overload
    def read(self, wanted: PathLike) -> Array: ...
    @overload
    def read(self, wanted: Wanted) -> Arrays: ...
    def read(self, wanted: PathLike | Wanted) -> Array | Arrays:
        """Read files, all in one batch.

        Args:
            wanted: [k] indices, as for any store; or [k] names or paths, in a list or tuple. Or one path.

        Returns:
            k 1-D uint8 arrays; for one path its array.

        Raises:
            FileNotFoundError, IsADirectoryError (both also AssertionErrors): there is no file with a name; nothing was
                read.
            The exceptions of `Store.read`.
        """
        if isinstance(wanted, PATH):
            return super().read_one(self._index(wanted))
        return super().read(self._indices(wanted))

    def read_packed(self, wanted: Wanted, out: npt.NDArray[Any] | None = None) -> Packed:
        """Read files back to back. `wanted` is several, see `read`; for results see `Store.read_packed`."""
        return super().read_packed(self._indices(wanted), out)

    def read_one(self, wanted: PathLike | SupportsIndex) -> Array:
        """Read one file, by index or path."""
        return super().read_one(self._index(wanted) if isinstance(wanted, PATH) else wanted)

    def samples(self, wanted: Wanted) -> Arrays:
        """Decode samples, by indices or a list of names; see `Store.samples`."""
        return super().samples(self._indices(wanted))

    def sample(self, wanted: PathLike | SupportsIndex) -> Any:
        """Decode one sample, by index or path; see `Store.sample`."""
        return super().sample(self._index(wanted) if isinstance(wanted, PATH) else wanted)

    def __contains__(self, path: object) -> bool:
        """Tell whether there is a file with that path. Note that iteration yields records; `keys` gives the names."""
        return isinstance(path, PATH) and self.is_file(path)

    def _indices(self, wanted: Wanted) -> Iterable[SupportsIndex]:
        check_several("wanted", wanted, "names or indices")
        # The first one decides: names and indices cannot be mixed.
        if not isinstance(wanted, list | tuple) or not wanted or not isinstance(wanted[0], PATH):
            return wanted  # type: ignore[return-value]
        paths: list[str] = [os.fspath(each) for each in cast(Sequence[Any], wanted)]
        found = self.tree.find_each(paths)
        # Names that are not in plain form, or do not exist: this finds the file or raises.
        for place in np.flatnonzero(found < 0):
            found[place] = self._index(paths[place])
        return found

    # Pictures

    def read_jpeg(self, wanted: PathLike | SupportsIndex, *, grey: bool = False) -> Array:
        """Read the pixels of a JPEG file into a new uint8 array [H, W, 3]: RGB, whatever the colours of the file are.

        Several threads may call this at once. The GIL is released while simplejpeg decodes.

        Args:
            wanted: index or path.
            grey: return the brightness, [H, W], whatever the colours of the file are.

        Raises:
            FormatError: it is not a JPEG file, or damaged.
            ImportError: neither simplejpeg nor Pillow is installed; for CMYK, Pillow is missing.
            The exceptions of `read_one`.
        """
        return jpeg_pixels(self.read_one(wanted), lambda: self._jpeg_name(wanted), grey)

    def read_jpegs(self, wanted: Wanted, *, grey: bool = False, threads: int | None = None) -> Arrays:
        """Read the pixels of JPEG files in one batch, decoded by threads; see `read_jpeg`.

        Args:
            wanted: several, see `read`.
            grey: see `read_jpeg`.
            threads: > 0; None for as many as there are CPUs, up to 8.

        Raises:
            The exceptions of `read_jpeg`; ValueError: `threads` is not positive.
        """
        indices = as_indices(self._indices(wanted))
        records = super().read(indices)
        return jpeg_pixels_of(records, lambda place: self._jpeg_name(int(indices[place])), grey, threads)

    def _jpeg_name(self, wanted: PathLike | SupportsIndex) -> str:
        name = os.fspath(wanted) if isinstance(wanted, PATH) else self.keys()[self._normalize_index(wanted)]
        return f"{name_files(self._fnames)}: {name!r}"

    # Paths

    @property
    def tree(self) -> NameTree:
        """The tree of the files."""
        # No lock: two threads at once make equal trees.
        made: NameTree = self.__dict__.get("_tree") or NameTree(self.keys(), self._folders())
        vars(self)["_tree"] = made
        return made

    def exists(self, path: PathLike) -> bool:
        """Tell whether there is a file or directory with that path."""
        return self.is_file(path) or self.is_dir(path)

    def is_file(self, path: PathLike) -> bool:
        """Tell whether there is a file with that path."""
        return self.tree.find(path) >= 0

    def is_dir(self, path: PathLike) -> bool:
        """Tell whether there is a directory with that path."""
        return self.tree.is_dir(path)

    def list(
        self, path: PathLike | None = None, list_file: bool = True, list_dir: bool = True, recursive: bool = False
    ) -> list[str]:
        """List the names in a directory, in ascending order, files and directories mixed.

        Args:
            path: the directory; None for the root.
            list_file: include files.
            list_dir: include directories.
            recursive: include the content of directories, each behind the directory's own name; names are paths below
                `path`.

        Raises:
            FileNotFoundError, NotADirectoryError (both also AssertionErrors): `path` is not a directory.
            FormatError: with `recursive`, directories are more than 255 deep.
        """
        top = "" if path is None else os.fspath(path)
        if not self.is_dir(top):
            if self.is_file(top):
                message = f"{top} is not a directory but a file in {self._fnames[0]}"
                raise NotAFolderError(errno.ENOTDIR, message, top)
            raise self._missing(top)
        found = self.tree.walk(top) if recursive else self.tree.children(top).items()
        return [name for name, folder in found if (list_dir if folder else list_file)]

    def size(self, path: PathLike | SupportsIndex) -> int:
        """Return the bytes of a file's content, by index or path, without reading it."""
        index = self._index(path) if isinstance(path, PATH) else self._normalize_index(path)
        return int(self._content_sizes()[index])

    def open(self, path: PathLike | SupportsIndex) -> io.BufferedReader:
        """Open a file as a Python file object: binary, for reading, seekable.

        Its content is compared with its checksum when you read it in order to its end. The object may outlive this
        reader.

        Args:
            path: path or index.

        Raises:
            The exceptions of `read_one`, also while you read.
        """
        index = self._index(path) if isinstance(path, PATH) else self._normalize_index(path)
        if self.closed:
            raise self._closed_error()
        return io.BufferedReader(self._open_index(index), BUFFER)

    def unpack(
        self,
        target: PathLike,
        *,
        max_size: int | str | None = None,
        paths: Iterable[PathLike] | None = None,
        on_file: Callable[[int, int], object] | None = None,
    ) -> UnpackedFiles:
        """Write files to a new directory; see `ffrecord.sources.unpack`."""
        check_several("paths", paths)
        from_names, sizes = self.keys(), self._content_sizes()
        chosen = range(self.n) if paths is None else [self._index(path) for path in paths]
        # Of equal names only the last one is written, which is the one that lookups find.
        files = [(from_names[i], int(sizes[i]), i) for i in chosen if from_names.find(from_names[i]) == i]
        folders = list(self._folders()) if paths is None else []
        read, label = super().read, name_files(self._fnames)
        return unpack_files(files, folders, read, self.open, target, label=label, max_size=max_size, on_file=on_file)

    def _index(self, path: PathLike) -> int:
        index = self.tree.find(path)
        if index >= 0:
            return index
        text = os.fspath(path)
        if self.is_dir(text):
            raise NotAFileError(errno.EISDIR, f"{text} is not a file but a directory in {self._fnames[0]}", text)
        raise self._missing(text)

    def _missing(self, path: str) -> MissingFileError:
        return MissingFileError(errno.ENOENT, f"{path} does not exist in {self._fnames[0]}", path)

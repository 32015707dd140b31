"""Records whose names are paths: read by name, listed and opened as files."""

# Records are also read by name, so parameters have other names than those of `Store`.
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
PATH = (str, os.PathLike)  # made once, not at each call


class NamedFiles(Store):
    """A store of files: what takes indices takes names or paths as well, and there is a tree of them.

    Paths are relative to the root: `""` and `"."` are the root itself, `./x` and `x/` are `x`; absolute paths and `..`
    lead nowhere, unless that is exactly a file's name. Of files of the same name the last counts.

    For subclasses to give: `keys`, `_folders`, `_open_index`, `_content_sizes`.
    """

    __slots__ = ()  # or it could not be a base beside RecordReader

    # For subclasses

    @abstractmethod
    def keys(self) -> Names:
        """The name of each file, in order."""

    @abstractmethod
    def _folders(self) -> Names:
        """Names of directories, each with the "/" it ends in: those without files at least."""

    @abstractmethod
    def _open_index(self, index: int) -> io.RawIOBase:
        """File `index` in [0, n), for reading."""

    @abstractmethod
    def _content_sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of each file: int64 [n]."""

    def record_sizes(self, indices: Iterable[SupportsIndex]) -> npt.NDArray[np.int64]:
        """Bytes of the files at `indices`: int64 [k]; what the directory says. Errors as for `read`."""
        return self._content_sizes()[self._normalize_indices(indices)]

    # Reading

    @overload
    def read(self, wanted: PathLike) -> Array: ...
    @overload
    def read(self, wanted: Wanted) -> Arrays: ...
    def read(self, wanted: PathLike | Wanted) -> Array | Arrays:
        """Files, all read in one batch.

        Args:
            wanted: [k] indices, as for any store; or [k] names or paths, in a list or tuple. Or one path.

        Returns:
            k 1-D uint8 arrays; for one path its array.

        Raises:
            FileNotFoundError, IsADirectoryError (both also AssertionErrors): no such name; nothing was read.
            As `Store.read`.
        """
        if isinstance(wanted, PATH):
            return super().read_one(self._index(wanted))
        return super().read(self._indices(wanted))

    def read_packed(self, wanted: Wanted, out: npt.NDArray[Any] | None = None) -> Packed:
        """The same, back to back; several, as for `read`; results as of `Store.read_packed`."""
        return super().read_packed(self._indices(wanted), out)

    def read_one(self, wanted: PathLike | SupportsIndex) -> Array:
        """One file, by index or path."""
        return super().read_one(self._index(wanted) if isinstance(wanted, PATH) else wanted)

    def samples(self, wanted: Wanted) -> Arrays:
        """As `Store.samples`, by indices or a list of names."""
        return super().samples(self._indices(wanted))

    def sample(self, wanted: PathLike | SupportsIndex) -> Any:
        """As `Store.sample`, by index or path."""
        return super().sample(self._index(wanted) if isinstance(wanted, PATH) else wanted)

    def __contains__(self, path: object) -> bool:
        """Whether there is a file of that path. Iteration gives records; `keys` the names."""
        return isinstance(path, PATH) and self.is_file(path)

    def _indices(self, wanted: Wanted) -> Iterable[SupportsIndex]:
        check_several("wanted", wanted, "names or indices")
        if not isinstance(wanted, list | tuple) or not wanted or not isinstance(wanted[0], PATH):
            return wanted  # type: ignore[return-value]
        paths: list[str] = [os.fspath(each) for each in cast(Sequence[Any], wanted)]
        found = self.tree.find_each(paths)
        for place in np.flatnonzero(found < 0):
            found[place] = self._index(paths[place])
        return found

    # Pictures

    def read_jpeg(self, wanted: PathLike | SupportsIndex, *, grey: bool = False) -> Array:
        """The pixels of a JPEG file: a new uint8 array [H, W, 3], RGB, whatever its colours are.

        Args:
            wanted: index or path.
            grey: give [H, W], whatever its colours are: its brightness.

        May be called by several threads at a time; the GIL is released while simplejpeg decodes.

        Raises:
            FormatError: it is no JPEG that can be read whole.
            ImportError: neither simplejpeg nor Pillow is installed; of CMYK, no Pillow.
            As `read_one`.
        """
        return jpeg_pixels(self.read_one(wanted), lambda: self._jpeg_name(wanted), grey)

    def read_jpegs(self, wanted: Wanted, *, grey: bool = False, threads: int | None = None) -> Arrays:
        """The pixels of JPEG files, read in one batch and decoded by threads: for each as `read_jpeg`.

        Args:
            wanted: several, as for `read`.
            grey: as for `read_jpeg`.
            threads: > 0; None: as many as there are CPUs, up to 8.

        Raises:
            As `read_jpeg`; ValueError: `threads`.
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
        """Where the files are."""
        made: NameTree = self.__dict__.get("_tree") or NameTree(self.keys(), self._folders())
        vars(self)["_tree"] = made
        return made

    def exists(self, path: PathLike) -> bool:
        """Whether there is a file or directory of that path."""
        return self.is_file(path) or self.is_dir(path)

    def is_file(self, path: PathLike) -> bool:
        """Whether there is a file of that path."""
        return self.tree.find(path) >= 0

    def is_dir(self, path: PathLike) -> bool:
        """Whether there is a directory of that path."""
        return self.tree.is_dir(path)

    def list(
        self, path: PathLike | None = None, list_file: bool = True, list_dir: bool = True, recursive: bool = False
    ) -> list[str]:
        """Names in a directory, in ascending order, files and directories mixed.

        Args:
            path: the directory; None for the root.
            list_file: whether to name files.
            list_dir: whether to name directories.
            recursive: also what is in its directories, each after the directory's own name: paths below `path`.

        Raises:
            FileNotFoundError, NotADirectoryError (both also AssertionErrors): `path`.
            FormatError: with `recursive`, directories more than 255 deep.
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
        """Bytes of a file's content, by index or path; nothing is read."""
        index = self._index(path) if isinstance(path, PATH) else self._normalize_index(path)
        return int(self._content_sizes()[index])

    def open(self, path: PathLike | SupportsIndex) -> io.BufferedReader:
        """A file as a Python file object: binary, for reading, seekable.

        Its content is compared with its checksum when it is read in order to its end. It may outlive this reader.

        Args:
            path: or index.

        Raises:
            As `read_one`; while reading, too.
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
        """Write files as files of a new directory; see `ffrecord.sources.unpack`."""
        check_several("paths", paths)
        from_names, sizes = self.keys(), self._content_sizes()
        chosen = range(self.n) if paths is None else [self._index(path) for path in paths]
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

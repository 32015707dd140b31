"""Packed folders: files of a directory tree as the samples of one `.ffr` file, found by their paths."""

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from ffrecord.errors import (
    ArgumentTypeError,
    FormatError,
    MissingFileError,
    NotAFileError,
    NotAFolderError,
    SampleIndexError,
    plural,
)
from ffrecord.fields.images.jpeg_files import jpeg_pixels, jpeg_pixels_of
from ffrecord.folders.folder_pack import dump_files, dump_structure, pack_folder
from ffrecord.folders.member_file import BUFFER, Checked, SpanRaw, reopen
from ffrecord.folders.safe_unpack import UnpackedFiles, unpack_files
from ffrecord.format.folder_index import INDEX_MAX, MAGIC_BYTES, decode_index, walk
from ffrecord.format.folder_pickle import Tree
from ffrecord.reader import FileReader
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import PathLike, Source, check_several

__all__ = ["MAGIC_BYTES", "PackedFolder", "dump_files", "dump_structure", "pack_folder"]

# The method `list` hides the type inside the class.
Arrays = list[Array]
Names = list[str | Path]
PathLikes = list[PathLike] | tuple[PathLike, ...]


class PackedFolder:
    """The files that `pack_folder` put into one.

    Paths are relative to the packed folder: `""` and `"."` are the folder itself, `./x` and `x/` are `x`. Absolute
    paths and `..` do not exist. Opening runs no code from the file, whatever is in it.

    Args:
        ffr_file: the file; or several, or a directory of them, as for `FileReader`: the last sample is the index.
        check_data: compare CRC-32 of the index and of every file read.
        io: as for `FileReader`.

    Attributes:
        reader: the `FileReader` of all samples, the index included.
        structure: nested `OrderedDict`: name → sample index of a file, or the tree of a directory.

    Raises:
        FormatError (also a ValueError): no packed folder, or its index is damaged.
        As `FileReader`.

    It may be shared by threads, forked and pickled, as its reader may.
    """

    reader: FileReader
    structure: Tree

    def __init__(self, ffr_file: Source, check_data: object = True, *, io: str = "auto") -> None:
        self.reader = FileReader(ffr_file, check_data, io=io)
        try:
            self.structure = _read_structure(self.reader)
        except BaseException:
            self.reader.close()
            raise

    # Reading

    def read_one(self, fname: PathLike) -> Array:
        """The bytes of a file: a writable 1-D uint8 array.

        Raises:
            FileNotFoundError, IsADirectoryError (both also AssertionErrors): `fname`.
            As `FileReader.read_one`.
        """
        return self.reader.read_one(self._index(fname))

    @overload
    def read(self, fnames: PathLike) -> Array: ...
    @overload
    def read(self, fnames: PathLikes) -> Arrays: ...
    def read(self, fnames: PathLike | PathLikes) -> Array | Arrays:
        """The bytes of files, read in one batch.

        Args:
            fnames: [k] paths, in a list or tuple; repeats allowed; order kept. Or one path.

        Returns:
            k writable 1-D uint8 arrays that share no bytes; for one path its array, like `read_one`.

        Raises:
            TypeError, FileNotFoundError, IsADirectoryError (each also an AssertionError): `fnames`; nothing was read.
            As `FileReader.read`.
        """
        if isinstance(fnames, str | os.PathLike):
            return self.read_one(fnames)
        if not isinstance(fnames, list | tuple):
            raise ArgumentTypeError(f"fnames must be a list, a tuple or one path, not {type(fnames).__name__}")
        return self.reader.read([self._index(fname) for fname in fnames])

    def close(self) -> None:
        """Close the reader; names can still be looked up. May be repeated."""
        self.reader.close()

    def __enter__(self) -> "PackedFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def read_jpeg(self, fname: PathLike, *, grey: bool = False) -> Array:
        """The pixels of a JPEG file: a new uint8 array [H, W, 3], RGB, whatever its colours are.

        Args:
            fname: its path.
            grey: give [H, W], whatever its colours are: its brightness.

        Raises:
            FormatError: it is no JPEG that can be read whole.
            ImportError: neither simplejpeg nor Pillow is installed; of CMYK, no Pillow.
            As `read_one`.
        """
        return jpeg_pixels(self.read_one(fname), lambda: f"{_path(self.reader)}: {os.fspath(fname)!r}", grey)

    def read_jpegs(self, fnames: PathLikes, *, grey: bool = False, threads: int | None = None) -> Arrays:
        """The pixels of JPEG files, read in one batch and decoded by threads: for each as `read_jpeg`.

        Args:
            fnames: as for `read`, in a list or tuple.
            grey: as for `read_jpeg`.
            threads: > 0; None: as many as this process has CPUs, up to 8.

        Raises:
            As `read_jpeg`; ValueError: `threads`.
        """
        check_several("fnames", fnames)
        records = self.read(fnames)
        return jpeg_pixels_of(records, lambda place: f"{_path(self.reader)}: {fnames[place]!r}", grey, threads)

    def open(self, fname: PathLike) -> io.BufferedReader:
        """A file as a Python file object: binary, for reading, seekable; read in place.

        Its content is compared with its CRC-32 when it is read in order to its end. It may outlive this object.

        Raises:
            As `read_one`; while reading, too.
        """
        return self._open_index(self._index(fname))

    def unpack(
        self,
        target: PathLike,
        *,
        max_size: int | str | None = None,
        paths: Iterable[PathLike] | None = None,
        on_file: Callable[[int, int], object] | None = None,
    ) -> UnpackedFiles:
        """Write the files as files of a new directory; see `ffrecord.sources.unpack`."""
        check_several("paths", paths)
        every = [(path, child) for path, child in walk(self.structure) if paths is None]
        chosen = [(os.fspath(path), self._index(path)) for path in paths or ()]
        chosen += [(path, child) for path, child in every if isinstance(child, int)]
        files = [(path, self._place(index)[2], index) for path, index in chosen]
        folders = [path for path, child in every if not isinstance(child, int)]
        read, open_one, label = self.reader.read, self._open_index, _path(self.reader)
        return unpack_files(files, folders, read, open_one, target, label=label, max_size=max_size, on_file=on_file)

    # Names

    def keys(self) -> list[str]:
        """The path of every file, in stored order."""
        return [*self]

    def size(self, fname: PathLike) -> int:
        """Bytes of a file; nothing is read.

        Raises:
            As `read_one`.
        """
        return self._place(self._index(fname))[2]

    def num_files(self) -> int:
        """How many files there are, in all directories."""
        return self.reader.n - 1

    def exists(self, path: PathLike) -> bool:
        """Whether there is a file or directory of that path. No path raises, however odd."""
        return self._find(path) is not None

    def is_file(self, path: PathLike) -> bool:
        """Whether there is a file of that path. No path raises, however odd."""
        return isinstance(self._find(path), int)

    def is_dir(self, path: PathLike) -> bool:
        """Whether there is a directory of that path. No path raises, however odd."""
        return isinstance(self._find(path), dict)

    def list(
        self, path: PathLike | None = None, list_file: bool = True, list_dir: bool = True, recursive: bool = False
    ) -> Names:
        """Names in a directory, in stored order: ascending, files and directories mixed.

        Args:
            path: the directory; None for the root.
            list_file: whether to name files.
            list_dir: whether to name directories.
            recursive: also what is in its directories, each after the directory's own name.

        Returns:
            Children as `str`; what lies deeper as `pathlib.Path` relative to `path`, as in ffrecord 1.x.

        Raises:
            FileNotFoundError, NotADirectoryError (both also AssertionErrors): `path`.
        """
        directory = self._directory("" if path is None else path)
        below = walk(directory) if recursive else directory.items()
        wanted = ((name, list_file if isinstance(child, int) else list_dir) for name, child in below)
        return [Path(name) if "/" in name else name for name, want in wanted if want]

    def __len__(self) -> int:
        """How many files there are, in all directories."""
        return self.num_files()

    def __iter__(self) -> Iterator[str]:
        """The path of every file, in stored order."""
        return (path for path, child in walk(self.structure) if isinstance(child, int))

    def __contains__(self, path: object) -> bool:
        """Whether there is a file of that path."""
        return isinstance(path, str | os.PathLike) and self.is_file(path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {plural(self.num_files(), 'file')}, {_path(self.reader)!r}>"

    # Looking up

    def _find(self, path: PathLike) -> int | Tree | None:
        """The sample index of a file, the tree of a directory, or None."""
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(f"path must be str or os.PathLike of str, not {type(path).__name__}")
        if text.startswith("/"):
            return None
        found: int | Tree | None = self.structure
        for name in text.split("/"):
            if name not in ("", "."):
                found = None if found is None or isinstance(found, int) else found.get(name)
        return found

    def _known(self, path: PathLike) -> int | Tree:
        found = self._find(path)
        if found is None:
            message = f"{os.fspath(path)} does not exist in {_path(self.reader)}"
            raise MissingFileError(errno.ENOENT, message, os.fspath(path))
        return found

    def _index(self, path: PathLike) -> int:
        found = self._known(path)
        if not isinstance(found, int):
            message = f"{os.fspath(path)} is not a file but a directory in {_path(self.reader)}"
            raise NotAFileError(errno.EISDIR, message, os.fspath(path))
        return found

    def _directory(self, path: PathLike) -> Tree:
        found = self._known(path)
        if isinstance(found, int):
            message = f"{os.fspath(path)} is not a directory but a file in {_path(self.reader)}"
            raise NotAFolderError(errno.ENOTDIR, message, os.fspath(path))
        return found

    def _place(self, index: int) -> tuple[int, int, int]:
        """(number of its file, offset there, size) of sample `index`, bytes."""
        for number in range(len(self.reader.fnames)):
            offsets = self.reader.get_offsets(number)
            if index < len(offsets) - 1:
                return number, int(offsets[index]), int(offsets[index + 1] - offsets[index])
            index -= len(offsets) - 1
        raise SampleIndexError(f"sample {index} beyond the last of {_path(self.reader)}")

    def _open_index(self, index: int) -> io.BufferedReader:
        number, offset, size = self._place(index)
        path, local = self.reader.locate(index)
        stored = int(self.reader.get_checksums(number)[local]) if self.reader.check_data else None
        checked = Checked(path, f"sample {local}", size, stored)
        return io.BufferedReader(SpanRaw(reopen(self.reader._files[number]), offset, checked), BUFFER)

    # Pickling

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "structure"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Also of pickles made by ffrecord 1.x, whose own copy of the structure is not trusted but read again."""
        self.__dict__.update(state)
        self.structure = _read_structure(self.reader)


def _path(reader: FileReader) -> str:
    """The file, for messages; the one of the index if there are several."""
    return reader.fnames[-1]


def _read_structure(reader: FileReader) -> Tree:
    """The index, which is the last sample."""
    path = _path(reader)
    size = _last_size(reader)
    if size > INDEX_MAX:
        raise FormatError(f"{path} is not a packed folder: last sample of {size} bytes, expected at most {INDEX_MAX}")
    record = reader.read_one(reader.n - 1).tobytes()
    try:
        return decode_index(record, reader.n - 1)
    except FormatError as error:
        raise FormatError(f"{path} is not a packed folder: {error}") from None


def _last_size(reader: FileReader) -> int:
    """Size of the last sample, bytes."""
    for file_index in reversed(range(len(reader.fnames))):
        offsets = reader.get_offsets(file_index)
        if len(offsets) > 1:
            return int(offsets[-1] - offsets[-2])
    raise FormatError(f"{_path(reader)} is not a packed folder: it has no samples")

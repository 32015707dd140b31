"""Packed folders: the files of a directory tree as samples of one `.ffr` file, found by their paths."""

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
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
from ffrecord.folders.member_file import BUFFER, RunningChecksum, SpanRaw, reopen
from ffrecord.folders.safe_unpack import UnpackedFiles, unpack_files
from ffrecord.format.folder_index import INDEX_MAX, MAGIC_BYTES, Tree, decode_index, walk
from ffrecord.reader import FileReader
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import PathLike, Source, check_several
from ffrecord.system.closing import ClosedByWith, close_unless_done
from ffrecord.system.values import describe_wrong

__all__ = ["MAGIC_BYTES", "PackedFolder", "dump_files", "dump_structure", "pack_folder"]

# The method `list` hides the type inside the class.
Arrays = list[Array]
Names = list[str | Path]
PathLikes = list[PathLike] | tuple[PathLike, ...]


class PackedFolder(ClosedByWith):
    """The files that `pack_folder` put into one.

    Paths are relative to the packed folder: `""` and `"."` are the folder itself, `./x` and `x/` are `x`. Absolute
    paths and `..` do not exist. Opening never runs code from the file. Threads may share it; it may be forked and
    pickled, as its reader may.

    Args:
        ffr_file: path of the file; or of several, or of a directory of them, as for `FileReader`: the last sample is
            the index.
        check_data: whether to compare the CRC-32 of the index and of every file read.
        io: as for `FileReader`.

    Attributes:
        reader: the `FileReader` of all samples, the index included.
        structure: nested `OrderedDict`: name → sample index of a file, or the tree of a directory.

    Raises:
        FormatError (also a ValueError): it is no packed folder, or its index is damaged.
        As `FileReader`.
    """

    reader: FileReader
    structure: Tree

    def __init__(self, ffr_file: Source, check_data: object = True, *, io: str = "auto") -> None:
        self.reader = FileReader(ffr_file, check_data, io=io)
        # A reader whose index is no index must not stay open.
        with close_unless_done([self.reader]):
            self.structure = _read_structure(self.reader)

    # Reading

    def read_one(self, fname: PathLike) -> Array:
        """Return the bytes of a file: a writable 1-D uint8 array.

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
        """Return the bytes of files, read in one batch.

        Args:
            fnames: [k] paths, in a list or tuple; repeats are allowed, the order is kept. Or one path.

        Returns:
            k writable 1-D uint8 arrays that share no bytes; for one path its array, like `read_one`.

        Raises:
            TypeError, FileNotFoundError, IsADirectoryError (each also an AssertionError): `fnames`; nothing was read.
            As `FileReader.read`.
        """
        if isinstance(fnames, str | os.PathLike):
            return self.read_one(fnames)
        if not isinstance(fnames, list | tuple):
            raise ArgumentTypeError(describe_wrong("fnames", fnames, "a list, a tuple or one path"))
        return self.reader.read([self._index(fname) for fname in fnames])

    def close(self) -> None:
        """Close the reader; names can still be looked up. May be repeated."""
        self.reader.close()

    def read_jpeg(self, fname: PathLike, *, grey: bool = False) -> Array:
        """Return the pixels of a JPEG file: a new uint8 array [H, W, 3] in RGB, for any colour space of the file.

        Args:
            fname: path of the file.
            grey: whether to return the brightness instead, [H, W].

        Raises:
            FormatError: it is no JPEG that can be read whole.
            ImportError: neither simplejpeg nor Pillow is installed; for CMYK, no Pillow.
            As `read_one`.
        """
        return jpeg_pixels(self.read_one(fname), lambda: f"{_label(self.reader)}: {os.fspath(fname)!r}", grey)

    def read_jpegs(self, fnames: PathLikes, *, grey: bool = False, threads: int | None = None) -> Arrays:
        """Return the pixels of JPEG files, read in one batch and decoded by threads, each as by `read_jpeg`.

        Args:
            fnames: paths, in a list or tuple, as for `read`.
            grey: as for `read_jpeg`.
            threads: number of threads, > 0; None: as many as this process has CPUs, up to 8.

        Raises:
            As `read_jpeg`; ValueError: `threads`.
        """
        check_several("fnames", fnames)
        records = self.read(fnames)
        return jpeg_pixels_of(records, lambda place: f"{_label(self.reader)}: {fnames[place]!r}", grey, threads)

    def open(self, fname: PathLike) -> io.BufferedReader:
        """Open a file as a Python file object: binary, for reading, seekable; read in place.

        If it is read in order to its end, its content is compared with its CRC-32. The file object may outlive this
        folder.

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
        # With `paths`, only these files are written, and the directories that they need.
        every = [(path, child) for path, child in walk(self.structure) if paths is None]
        chosen = [(os.fspath(path), self._index(path)) for path in paths or ()]
        chosen += [(path, child) for path, child in every if isinstance(child, int)]
        files = [(path, self._locate(index)[2], index) for path, index in chosen]
        folders = [path for path, child in every if not isinstance(child, int)]
        read, open_one, label = self.reader.read, self._open_index, _label(self.reader)
        return unpack_files(files, folders, read, open_one, target, label=label, max_size=max_size, on_file=on_file)

    # Names

    def keys(self) -> list[str]:
        """Return the path of every file, in stored order."""
        return [*self]

    def size(self, fname: PathLike) -> int:
        """Return the size of a file in bytes; nothing is read.

        Raises:
            As `read_one`.
        """
        return self._locate(self._index(fname))[2]

    def num_files(self) -> int:
        """Return the number of files in all directories."""
        # The last sample is the index.
        return self.reader.n - 1

    def exists(self, path: PathLike) -> bool:
        """Return whether there is a file or directory with that path. No path raises, however odd."""
        return self._find(path) is not None

    def is_file(self, path: PathLike) -> bool:
        """Return whether there is a file with that path. No path raises, however odd."""
        return isinstance(self._find(path), int)

    def is_dir(self, path: PathLike) -> bool:
        """Return whether there is a directory with that path. No path raises, however odd."""
        return isinstance(self._find(path), dict)

    def list(
        self, path: PathLike | None = None, list_file: bool = True, list_dir: bool = True, recursive: bool = False
    ) -> Names:
        """Return names in a directory, in stored order: ascending, files and directories mixed.

        Args:
            path: path of the directory; None for the root.
            list_file: whether to name files.
            list_dir: whether to name directories.
            recursive: whether to descend into its directories; their contents follow each directory's own name.

        Returns:
            Children as `str`; deeper paths as `pathlib.Path` relative to `path`, as in ffrecord 1.x.

        Raises:
            FileNotFoundError, NotADirectoryError (both also AssertionErrors): `path`.
        """
        directory = self._directory("" if path is None else path)
        below = walk(directory) if recursive else directory.items()
        wanted = ((name, list_file if isinstance(child, int) else list_dir) for name, child in below)
        # Names cannot have a slash, so a slash means a deeper path.
        return [Path(name) if "/" in name else name for name, want in wanted if want]

    def __len__(self) -> int:
        """Return the number of files in all directories."""
        return self.num_files()

    def __iter__(self) -> Iterator[str]:
        """Yield the path of every file, in stored order."""
        return (path for path, child in walk(self.structure) if isinstance(child, int))

    def __contains__(self, path: object) -> bool:
        """Return whether there is a file with that path."""
        return isinstance(path, str | os.PathLike) and self.is_file(path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {plural(self.num_files(), 'file')}, {_label(self.reader)!r}>"

    # Looking up

    def _find(self, path: PathLike) -> int | Tree | None:
        """Return the sample index of a file, the tree of a directory, or None."""
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(describe_wrong("path", path, "str or os.PathLike of str"))
        # Not a path of the folder, even if the rest of it exists.
        if text.startswith("/"):
            return None
        found: int | Tree | None = self.structure
        for name in text.split("/"):
            # As in a shell: "a//b" and "a/./b" are "a/b". ".." is a name like any other, and no file has it.
            if name not in ("", "."):
                found = None if found is None or isinstance(found, int) else found.get(name)
        return found

    def _find_existing(self, path: PathLike) -> int | Tree:
        found = self._find(path)
        if found is None:
            message = f"{os.fspath(path)} does not exist in {_label(self.reader)}"
            raise MissingFileError(errno.ENOENT, message, os.fspath(path))
        return found

    def _index(self, path: PathLike) -> int:
        found = self._find_existing(path)
        if not isinstance(found, int):
            message = f"{os.fspath(path)} is not a file but a directory in {_label(self.reader)}"
            raise NotAFileError(errno.EISDIR, message, os.fspath(path))
        return found

    def _directory(self, path: PathLike) -> Tree:
        found = self._find_existing(path)
        if isinstance(found, int):
            message = f"{os.fspath(path)} is not a directory but a file in {_label(self.reader)}"
            raise NotAFolderError(errno.ENOTDIR, message, os.fspath(path))
        return found

    def _locate(self, index: int) -> tuple[int, int, int]:
        """Return (number of its file, offset there, size) of sample `index`, bytes."""
        for number in range(len(self.reader.fnames)):
            offsets = self.reader.get_offsets(number)
            # Offsets have one entry more than there are samples: the end.
            if index < len(offsets) - 1:
                return number, int(offsets[index]), int(offsets[index + 1] - offsets[index])
            index -= len(offsets) - 1
        raise SampleIndexError(f"sample {index} comes after the last sample of {_label(self.reader)}")

    def _open_index(self, index: int) -> io.BufferedReader:
        number, offset, size = self._locate(index)
        path, local = self.reader.locate(index)
        # With check_data=False nothing is compared, here neither.
        stored = int(self.reader.get_checksums(number)[local]) if self.reader.check_data else None
        checked = RunningChecksum(path, f"sample {local}", size, stored)
        # A descriptor of its own, so that it may outlive the reader.
        return io.BufferedReader(SpanRaw(reopen(self.reader._files[number]), offset, checked), BUFFER)

    # Pickling

    def __getstate__(self) -> dict[str, Any]:
        # The structure can be large, and a pickle from elsewhere must not be believed.
        return {name: value for name, value in self.__dict__.items() if name != "structure"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from a pickle, also one of ffrecord 1.x.

        Its own copy of the structure is not trusted but read again.
        """
        self.__dict__.update(state)
        self.structure = _read_structure(self.reader)


def _label(reader: FileReader) -> str:
    """Return the path of the file for messages; with several, the one that has the index."""
    return reader.fnames[-1]


def _read_structure(reader: FileReader) -> Tree:
    """Read the index, which is the last sample."""
    path = _label(reader)
    size = _last_size(reader)
    # Before it is read: the last sample of another file may have any size.
    if size > INDEX_MAX:
        raise FormatError(
            f"{path} is not a packed folder: its last sample has {size} bytes, expected at most {INDEX_MAX}"
        )
    record = reader.read_one(reader.n - 1).tobytes()
    try:
        return decode_index(record, reader.n - 1)
    except FormatError as error:
        raise FormatError(f"{path} is not a packed folder: {error}") from None


def _last_size(reader: FileReader) -> int:
    """Return the size of the last sample, bytes."""
    for file_index in reversed(range(len(reader.fnames))):
        offsets = reader.get_offsets(file_index)
        if len(offsets) > 1:
            return int(offsets[-1] - offsets[-2])
    raise FormatError(f"{_label(reader)} is not a packed folder: it has no samples")

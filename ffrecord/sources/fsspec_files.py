"""fsspec file systems over zip archives and packed folders. Importing this module needs fsspec."""

import io
from errno import ENOENT, EROFS
from typing import Any, ClassVar

from ffrecord.errors import ArgumentError
from ffrecord.sources.named_files import NamedFiles
from ffrecord.sources.packed_folder import PackedFolderReader
from ffrecord.sources.zip.reader import ZipReader
from ffrecord.system.requirements import require

_AbstractFileSystem: Any = require("fsspec.spec", "fsspec", "ffrecord.sources.fsspec_files").AbstractFileSystem


class NamedFileSystem(_AbstractFileSystem):  # type: ignore[misc]
    """A read-only fsspec file system over one archive; see its subclasses.

    Args:
        fo: local path of the archive.
        check_data: compare the checksums of all reads.
        reader: further arguments of the reader.

    Raises:
        The exceptions of the reader.
    """

    reader_class: ClassVar[type[NamedFiles]]
    root_marker = ""
    # fsspec keeps instances: a process opens each archive once.
    cachable = True

    def __init__(
        self,
        fo: str = "",
        check_data: bool = True,
        reader: dict[str, Any] | None = None,
        target_protocol: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if target_protocol not in (None, "file", "local"):
            raise ArgumentError(
                f"{fo}: target_protocol is {target_protocol!r}, expected 'file', as only local archives can be read"
            )
        self.fo = fo
        self.store = self.reader_class(fo, check_data, **(reader or {}))

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path)).strip("/")

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Return the entries of a directory; for a file, the file."""
        path = self._strip_protocol(path)
        if self.store.is_file(path):
            names = [path]
        else:
            names = [f"{path}/{name}" if path else name for name in self.store.list(path)]
        return [self.info(name) for name in names] if detail else names

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return name, size in bytes and type of a path; the type is "file" or "directory"."""
        path = self._strip_protocol(path)
        if self.store.is_file(path):
            return {"name": path, "size": self.store.size(path), "type": "file"}
        if self.store.is_dir(path):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(ENOENT, f"{path} does not exist in {self.fo}", path)

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.store.exists(self._strip_protocol(path))

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BufferedReader:
        if mode != "rb":
            raise OSError(EROFS, f"mode is {mode!r}, expected 'rb': {self.fo} is read-only", path)
        return self.store.open(self._strip_protocol(path))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes of a file, or [start, end) of them, which may be negative as in a slice."""
        path = self._strip_protocol(path)
        if start is None and end is None:
            # A whole file is compared with its checksum.
            return self.store.read_one(path).tobytes()
        low, high, _ = slice(start, end).indices(self.store.size(path))
        with self.store.open(path) as file:
            file.seek(low)
            return file.read(max(0, high - low))

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Return the bytes of a file; for several files or a pattern, a dict of path → bytes, read in one batch."""
        paths = self.expand_path(path, recursive=recursive)
        several = len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)
        if not several:
            return self.cat_file(paths[0])
        if on_error != "raise":
            # File by file, since a batch fails as a whole.
            return super().cat(path, recursive=recursive, on_error=on_error, **kwargs)
        files = [each for each in paths if self.store.is_file(each)]
        return {name: data.tobytes() for name, data in zip(files, self.store.read(files), strict=True)}

    def close(self) -> None:
        """Close the archive."""
        self.store.close()


class ZipFileSystem(NamedFileSystem):
    """`ffrecord-zip`: the members of a zip archive, read by `ZipReader`."""

    protocol = "ffrecord-zip"
    reader_class = ZipReader


class PackedFolderFileSystem(NamedFileSystem):
    """`ffrecord-folder`: the files of a packed folder."""

    protocol = "ffrecord-folder"
    reader_class = PackedFolderReader

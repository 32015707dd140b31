"""The same files as a directory, a zip archive and a packed folder."""

from pathlib import Path

from zip_builders import zipped

from ffrecord import pack_folder
from ffrecord.sources.packed_folder import PackedFolderReader
from ffrecord.sources.zip.reader import ZipReader

FILES = {"a.txt": b"first", "b/x": bytes(range(256)) * 1200, "b/y/z": b"", "b.txt": b"between", "c/d/e/f": b"deep"}
EMPTY = "b/empty"


def write_tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def directory(tmp_path: Path) -> str:
    (tmp_path / "tree" / EMPTY).mkdir(parents=True, exist_ok=True)
    return str(write_tree(tmp_path / "tree", FILES))


def stored_zip(tmp_path: Path, method: int | None = 0) -> str:
    path = tmp_path / f"{method}.zip"
    path.write_bytes(zipped([*FILES.items(), (f"{EMPTY}/", b"")], method))
    return str(path)


def packed_folder(tmp_path: Path) -> str:
    pack_folder(directory(tmp_path), tmp_path / "packed.ffr")
    return str(tmp_path / "packed.ffr")


READERS = {
    "stored": lambda tmp_path, **options: ZipReader(stored_zip(tmp_path), **options),
    "deflated": lambda tmp_path, **options: ZipReader(stored_zip(tmp_path, 8), **options),
    "packed folder": lambda tmp_path, **options: PackedFolderReader(packed_folder(tmp_path), **options),
}

"""Inputs that are kept: for each target those that reach what no other reaches, and those that once broke something."""

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT, CRASHES = HERE / "corpus", HERE / "crashes"
DATE = (1980, 1, 1, 0, 0, 0)  # the same archive of the same inputs


def load(target: str) -> list[bytes]:
    """The kept inputs of a target."""
    path = KEPT / f"{target}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]


def store(target: str, inputs: Iterable[bytes]) -> int:
    """Keep these, in place of those that were kept; bytes of the archive."""
    path = KEPT / f"{target}.zip"
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for data in sorted(set(inputs), key=lambda each: (len(each), each)):
            archive.writestr(zipfile.ZipInfo(name_of(data), DATE), data, zipfile.ZIP_DEFLATED)
    return path.stat().st_size


def crashes(target: str) -> list[tuple[str, bytes]]:
    """(name, input) of what once broke a target."""
    folder = CRASHES / target
    return [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.bin"))]


def save_one(folder: Path, data: bytes) -> Path:
    """Write an input to a file that is called by what is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name_of(data)}.bin"
    path.write_bytes(data)
    return path


def found(folder: Path) -> list[bytes]:
    """The inputs in a folder that `save_one` wrote."""
    return [path.read_bytes() for path in sorted(folder.glob("*.bin"))]


def name_of(data: bytes) -> str:
    """The same for the same bytes."""
    return hashlib.sha256(data).hexdigest()[:16]

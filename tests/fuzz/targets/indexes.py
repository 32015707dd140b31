"""Index files that are kept between openings: those of each format, with what they are believed for."""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuzz.targets import Run, Scratch, Target, drain

HEAD = struct.Struct("<8sII")
FILE = re.compile(rb'"file": ?\[[^\]]*\]')


def _data() -> dict[str, bytes]:
    """A file of each format, always the same bytes."""
    from sources import tars, zip_builders
    from sources.recordio_twin import build

    from fuzz.targets import lmdbs, tfrecords

    members = [("a.txt", b"text"), ("d/", b""), ("d/b", bytes(9))]
    return {
        "zip": zip_builders.zipped(members, 0),
        "tar": tars.member(b"a.txt", b"abc") + tars.member(b"b/c.txt", b"defg") + tars.END,
        "tfrecord": tfrecords._file(),
        "recordio": build([b"a", b"two", b"three"], "B", "none", 4),
        "lmdb": next(lmdbs._environments()),
    }


def _readers() -> dict[str, Callable[..., Any]]:
    from ffrecord import sources

    return {
        "zip": sources.ZipReader,
        "tar": sources.TarReader,
        "tfrecord": sources.TFRecordReader,
        "recordio": sources.RecordIOReader,
        "lmdb": sources.LMDBReader,
    }


class _Kept:
    """The files, each old enough for its index to be kept, and where that is."""

    def __init__(self, folder: Path) -> None:
        import time

        self.paths, self.places = [], []
        self.readers = list(_readers().values())
        for name, data in _data().items():
            path = folder / name / f"data.{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.paths.append(str(path))
        time.sleep(0.05)
        for path, reader in zip(self.paths, self.readers, strict=True):
            with reader(path, index_cache=True):
                pass
            self.places.append(next(Path(path).parent.glob("*.ffindex")))


def sealed(data: memoryview, identity: tuple[int, ...]) -> bytes | None:
    """The index with a right CRC-32, and said to be of this file; None if it is none at all."""
    if len(data) < HEAD.size:
        return None
    magic, length, _ = HEAD.unpack_from(data)
    rest = bytes(data[HEAD.size :])
    described = FILE.sub(b'"file":[%d,%d,%d,%d]' % identity, rest[:length], count=1)
    described += b" " * (-(HEAD.size + len(described)) % 64)
    body = described + rest[length:]
    crc = zlib.crc32(body, zlib.crc32(struct.pack("<I", len(described))))
    return HEAD.pack(magic, len(described), crc) + body


def _prepare(scratch: Scratch) -> Run:
    import os

    from ffrecord.sources import index_file

    kept = _Kept(scratch.folder)

    def run(data: memoryview) -> None:
        """The first byte: which format it is of."""
        if not data:
            return
        number = data[0] % len(kept.paths)
        path, place = kept.paths[number], kept.places[number]
        status = os.stat(path)
        index = sealed(data[1:], index_file._identity(status))
        if index is None:
            return
        place.write_bytes(index)
        format = place.name.removeprefix(Path(path).name + ".").removesuffix(index_file.SUFFIX)
        # What is none at all is made anew, which takes long.
        if index_file._load(str(place), format, status, None) is not None:
            drain(kept.readers[number](path, io="pread", index_cache=True))

    return run


def _seeds(folder: Path) -> Iterator[bytes]:
    for number, place in enumerate(_Kept(folder / "kept").places):
        yield bytes([number]) + place.read_bytes()


MODULES = ("ffrecord.sources.index_file", "ffrecord.sources.names", "ffrecord.sources.zip.index")
CHECKS = ("ffrecord.sources.tar.index", "ffrecord.sources.tfrecord.index", "ffrecord.sources.recordio.index")
READING = ("ffrecord.sources.zip.index", "ffrecord.sources.name_tree", "ffrecord.sources.lmdb.index")
TARGETS = [Target("index_file", _prepare, _seeds, MODULES + CHECKS + READING, size_most=1 << 12)]

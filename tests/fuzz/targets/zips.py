"""Zip archives: the end records, the directory, local headers, and compressed members."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import READ_MOST, Run, Scratch, Target, drain

MEMBERS = [
    ("a.txt", b"some text, some text, some text"),
    ("d/", b""),
    ("d/ü", bytes(200)),
    ("d/b.jpg", b"\xff\xd8\xff"),
]


def _prepare_directory(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.sources.zip import _zip

    def run(data: memoryview) -> None:
        _zip.read_directory(np.frombuffer(data, np.uint8), 0, 1 << 20)

    return run


def _prepare_end(scratch: Scratch) -> Run:
    from ffrecord.sources.zip.index import read_end

    file = scratch.file("end")

    def run(data: memoryview) -> None:
        file.put(data)
        read_end(file.fd, len(data))

    return run


def _prepare_zip(scratch: Scratch) -> Run:
    from ffrecord.sources import ZipReader
    from fuzz import others
    from fuzz.targets import refused

    file = scratch.file("a.zip")

    def run(data: memoryview) -> None:
        reader = ZipReader(file.put(data), io="pread")
        try:
            for name in reader.keys()[:4]:
                reader.is_file(name)
                try:
                    with reader.open(name) as member:
                        member.read(1 << 16)
                except refused():
                    continue
            reader.list(recursive=True)
            others.agree(others.records(reader, reader.keys(), READ_MOST), others.of_zip(bytes(data)))
        finally:
            drain(reader)

    return run


def _archives() -> Iterator[bytes]:
    from sources import zip_builders as made

    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, None):
        yield made.zipped(MEMBERS, method, b"comment" if method is None else b"")
    plain = [made.Raw(name.encode(), data) for name, data in MEMBERS]
    yield made.raw(plain, zip64=True)
    yield made.raw(plain, prefix=b"#!/bin/sh\n", comment=b"PK\5\6" + bytes(18))
    extra = b"\x01\0\x1c\0" + (3).to_bytes(8, "little") * 2 + bytes(8) + bytes(4)
    large = 0xFFFFFFFF
    yield made.raw([made.Raw(b"x", b"abc", extra=extra, size=large, compressed=large, local=0), *plain])
    unicode = b"up\x09\0\x01" + bytes(4) + "ü€".encode()[:4]
    yield made.raw([made.Raw(b"\x81", b"abc", extra=unicode, local_extra=unicode, made_by=3 << 8 | 30)])
    zstd = bytes.fromhex("28b52ffd2003190000616263")
    yield made.raw([made.Raw(b"z", zstd, method=93, size=3, crc=0x352441C2), *plain])
    unmarked = made.lzma_without_mark(bytes(90) + b"end")
    yield made.raw([made.Raw(b"l", unmarked, method=14, size=93, crc=zlib.crc32(bytes(90) + b"end")), *plain])
    yield made.raw([])


def _seeds(folder: Path) -> Iterator[bytes]:
    yield from _archives()


def _directory_seeds(folder: Path) -> Iterator[bytes]:
    for archive in _archives():
        start = archive.find(b"PK\1\2")
        if start >= 0:
            yield archive[start : archive.rfind(b"PK\5\6")]


PYTHON = tuple(f"ffrecord.sources.zip.{name}" for name in ("index", "codecs", "reader"))
TARGETS = [
    Target("zip_directory", _prepare_directory, _directory_seeds, (), ("sources/zip/_zip",), size_most=1 << 12),
    Target("zip_end", _prepare_end, _seeds, ("ffrecord.sources.zip.index",), size_most=1 << 12),
    Target("zip", _prepare_zip, _seeds, PYTHON, ("sources/zip/_zip",), size_most=1 << 13),
]

"""Zip archives of all sorts: by Python's zipfile, and byte by byte for what it does not write."""

import io
import lzma
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
Members = Iterable[tuple[str, bytes]]


def zipped(members: Members, method: int | None = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    """An archive by zipfile; method None: all in turn."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of repeated names
        with zipfile.ZipFile(out, "w") as archive:
            for i, (name, data) in enumerate(members):
                archive.writestr(zipfile.ZipInfo(name), data, METHODS[i % 4] if method is None else method)
            archive.comment = comment
    return out.getvalue()


class Pipe(io.BytesIO):
    """What zipfile cannot seek in, so that it writes data descriptors."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("no position")


@dataclass
class Raw:
    """One member as it is to be written; what is None follows from the rest."""

    name: bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    crc: int | None = None
    size: int | None = None
    compressed: int | None = None
    local: int | None = None
    local_name: bytes | None = None
    local_extra: bytes = b""
    extra: bytes = b""
    comment: bytes = b""
    made_by: int = 20
    attributes: int = 0


def lzma_without_mark(data: bytes) -> bytes:
    """Content as 7-Zip and WinZip compress it by default: LZMA that ends at its size, out of one chunk of LZMA2."""
    size = 1 << 16
    filters: list[dict[str, Any]] = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": size}]
    chunk = lzma.compress(data, lzma.FORMAT_RAW, filters=filters)
    return b"\x10\x02" + struct.pack("<HBI", 5, chunk[5], size) + chunk[6:-1]


def lzma_with_mark(data: bytes) -> bytes:
    """Content as zipfile compresses it."""
    archive = zipped([("m", data)], zipfile.ZIP_LZMA)
    return archive[31 : archive.index(b"PK\1\2")]


def raw(members: list[Raw], prefix: bytes = b"", comment: bytes = b"", zip64: bool = False, **end: Any) -> bytes:
    """An archive whose every field can be made what it should not be. end: fields of the end record."""
    out, directory = bytearray(), bytearray()
    for each in members:
        local = len(out) if each.local is None else each.local
        crc = zlib.crc32(each.data) if each.crc is None else each.crc
        compressed = len(each.data) if each.compressed is None else each.compressed
        size = compressed if each.size is None else each.size
        name = each.name if each.local_name is None else each.local_name
        common = struct.pack("<HHHHIII", each.flags, each.method, 0, 0x21, crc, compressed, size)
        out += b"PK\3\4" + struct.pack("<H", 20) + common + struct.pack("<HH", len(name), len(each.local_extra))
        out += name + each.local_extra + each.data
        directory += b"PK\1\2" + struct.pack("<HH", each.made_by, 20) + common
        lengths = (len(each.name), len(each.extra), len(each.comment))
        directory += (
            struct.pack("<HHHHHII", *lengths, 0, 0, each.attributes, local) + each.name + each.extra + each.comment
        )
    start, size, count = len(out), len(directory), len(members)
    fields = {"disk": 0, "first": 0, "here": count, "entries": count, "size": size, "offset": start, **end}
    tail = b""
    if zip64:
        at = start + size
        tail += b"PK\6\6" + struct.pack(
            "<QHHII4Q", 44, 45, 45, 0, 0, *[fields[k] for k in ("here", "entries", "size", "offset")]
        )
        tail += b"PK\6\7" + struct.pack("<IQI", 0, at, 1)
        fields |= {"here": 0xFFFF, "entries": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF}
    tail += b"PK\5\6" + struct.pack("<HHHHIIH", *fields.values(), len(comment)) + comment
    return prefix + bytes(out) + bytes(directory) + tail

"""Tar archives for tests: made by tarfile, or header by header."""

import io
import tarfile
from pathlib import Path

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
END = bytes(1024)


def header(name=b"a.txt", size=0, kind=b"0", link=b"", magic=b"ustar\x0000", prefix=b"", **fields):
    """512 bytes with a right checksum. fields: bytes to lie at `at_OFFSET`."""
    block = bytearray(512)
    block[0:100] = name.ljust(100, b"\0")
    block[100:108] = b"0000644\0"
    block[124:136] = size.ljust(12, b"\0") if isinstance(size, bytes) else b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[157:257] = link.ljust(100, b"\0")
    block[257:265] = magic.ljust(8, b"\0")
    block[345:500] = prefix.ljust(155, b"\0")
    for place, data in fields.items():
        at = int(place.removeprefix("at_"))
        block[at : at + len(data)] = data
    return summed(block)


def summed(block):
    """The same header with the checksum it should have."""
    block = bytearray(block)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data):
    return data + bytes(-len(data) % 512)


def member(name=b"a.txt", data=b"", **more):
    return header(name, len(data), **more) + padded(data)


def pax(kind=b"x", **records):
    """An extension header. records: key → value, underscores for dots."""
    data = b"".join(record(key.replace("_", ".").encode(), value) for key, value in records.items())
    return member(b"PaxHeaders/x", data, kind=kind)


def record(key, value):
    size = len(key) + len(value) + 3
    while len(b"%d %s=%s\n" % (size, key, value)) != size:
        size = len(b"%d %s=%s\n" % (size, key, value))
    return b"%d %s=%s\n" % (size, key, value)


def long_name(name, kind=b"L"):
    return member(b"././@LongLink", name + b"\0", kind=kind, magic=b"ustar  \0")


def write(path, *pieces):
    """A file of these pieces; its name."""
    Path(path).write_bytes(b"".join(pieces))
    return str(path)


def archive(path, files, form="pax", mode="w", **more):
    """An archive of (name, bytes) by tarfile; its name."""
    with tarfile.open(path, mode, format=FORMATS[form], encoding="utf-8", errors="surrogateescape", **more) as tar:
        for name, data in files:
            add(tar, name, data)
    return str(path)


def add(tar, name, data=b"", kind=tarfile.REGTYPE, link="", mtime=0.0):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mtime = len(data), kind, link, mtime
    tar.addfile(info, io.BytesIO(data))


def listed(path, **more):
    """The slow, obvious twin: (name, bytes) of each regular file and hard link, by tarfile."""
    with tarfile.open(path, encoding="utf-8", errors="surrogateescape", **more) as tar:
        return [(info.name, tar.extractfile(info).read()) for info in tar if info.isreg() or info.islnk()]

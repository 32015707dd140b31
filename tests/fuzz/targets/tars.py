"""Tar archives: headers, whole archives, streams, and WebDataset's samples in them."""

import gzip
import io
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fuzz.targets import READ_MOST, Run, Scratch, Target, drain

BLOCK = 512


def summed(data: memoryview) -> bytearray:
    """The same archive with the checksums that headers should have, wherever one may be.

    A block is left as it is where its checksum begins with "x".
    """
    file = bytearray(data)
    for at in range(0, len(file) - BLOCK + 1, BLOCK):
        block = file[at : at + BLOCK]
        if block[148] != ord("x") and (block[257:262] == b"ustar" or block[149:154].isdigit()):
            total = sum(block) - sum(block[148:156]) + 8 * 32
            file[at + 148 : at + 156] = b"%06o\0 " % total
    return file


def _prepare_headers(scratch: Scratch) -> Run:
    from ffrecord.sources.tar import _tar

    def run(data: memoryview) -> None:
        file = memoryview(summed(data))
        headers, at = _tar.Headers(), 0
        while at + BLOCK <= len(file):
            found = headers.block(file[at : at + BLOCK])
            at += BLOCK
            if found == _tar.EXTENSION:
                size = headers.size
                if size > len(file) - at:
                    break
                found = headers.extension(file[at : at + size])
                at += size + -size % BLOCK
            elif found == _tar.MEMBER:
                assert headers.size >= 0 and headers.name is not None and headers.link is not None
                at += headers.size + -headers.size % BLOCK
            if found == -1:
                assert headers.problem is not None
                break

    return run


def _prepare_scan(scratch: Scratch) -> Run:
    from ffrecord.sources.tar import _tar

    file = scratch.file("scanned.tar")

    def run(data: memoryview) -> None:
        file.put(summed(data))
        for ignore in (False, True):
            scan = _tar.Scan(file.fd, len(data), ignore)
            assert scan.run() or scan.problem
            arrays = scan.arrays()
            assert len(arrays["headers"]) == scan.n == len(arrays["name_offsets"]) - 1

    return run


def _prepare_tar(scratch: Scratch) -> Run:
    from ffrecord.sources import TarReader
    from fuzz import others

    file = scratch.file("a.tar")

    def run(data: memoryview) -> None:
        given = summed(data)
        reader = TarReader(file.put(given), io="pread")
        try:
            for name in reader.keys()[:8]:
                reader.is_file(name)
            reader.list(recursive=True)
            others.agree(others.records(reader, reader.keys(), READ_MOST), others.of_tar(bytes(given)))
        finally:
            drain(reader)

    return run


def _prepare_stream(scratch: Scratch) -> Run:
    from ffrecord.sources.tar import stream as tar_stream

    file = scratch.file("a.tar.gz")

    def run(data: memoryview) -> None:
        raw = data[:2] == b"\x1f\x8b" or data[:3] == b"BZh" or data[:4] in (b"\xfd7zX", b"\x28\xb5\x2f\xfd")
        path = file.put(data if raw else summed(data))
        for sample in tar_stream.iter_samples(path, size_most=1 << 20):
            assert "__key__" in sample

    return run


def _prepare_webdataset(scratch: Scratch) -> Run:
    from ffrecord.sources import WebDatasetReader

    file = scratch.file("w.tar")

    def run(data: memoryview) -> None:
        drain(WebDatasetReader(file.put(summed(data)), io="pread", decode=True))

    return run


def _prepare_names(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.kernels import _names
    from ffrecord.sources.tar import _tar

    def run(data: memoryview) -> None:
        names = bytes(data).split(b"\n")
        blob = np.frombuffer(b"".join(names), np.uint8)
        offsets = np.cumsum([0, *map(len, names)])
        _names.check(blob, offsets)
        dots, begins = _tar.split_names(blob, offsets)
        assert len(dots) == len(begins) == len(names)
        order = _names.sort(blob, offsets)
        assert [names[i] for i in order] == sorted(names)
        assert (_names.NameOrder(blob, offsets, order).find_each([names[0], None, b"?"]) >= -1).all()

    return run


def _prepare_fields(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.sources.tar.webdataset_fields import DECODERS, decode_field

    kinds = sorted(DECODERS)

    def run(data: memoryview) -> None:
        if data:
            decode_field(kinds[data[0] % len(kinds)], np.frombuffer(data, np.uint8)[1:])

    return run


def _archives() -> Iterator[bytes]:
    from sources import tars

    samples = [("a.cls", b"7"), ("a.txt", b"hello"), ("b.JSON", b"[1]"), ("d/c.cls", b"x"), ("d/c.npy", _array())]
    for form in tars.FORMATS:
        yield _archive(samples, form)
    yield _archive([(f"{'long/' * 40}name.txt", b"1"), ("ü.txt", b"2")], "gnu")
    yield _archive([(f"{'long/' * 40}name.txt", b"1"), ("ü.txt", b"2")], "pax")
    yield tars.member(b"v7.txt", b"seventh", magic=b"") + tars.END
    yield tars.pax(path=b"other.txt", size=b"3") + tars.member(b"x", b"abc") + tars.END
    yield tars.pax(kind=b"g", comment=b"whatever") + tars.member(b"x.a", b"abc") + bytes(512) + tars.member(b"y.a")
    yield tars.pax(GNU_sparse_major=b"1", GNU_sparse_name=b"s.txt") + tars.member(b"s.txt", b"1\n0\n3\n")
    yield tars.member(b"sparse.txt", b"abc", kind=b"S", magic=b"ustar  \0") + tars.END
    yield tars.member(b"a.txt", b"abc") + tars.header(b"b.txt", kind=b"1", link=b"a.txt") + tars.END
    yield tars.header(b"dir/", kind=b"5") + tars.header(b"c", kind=b"2", link=b"dir") + tars.END
    yield tars.long_name(b"n" * 150) + tars.long_name(b"l" * 120, b"K") + tars.header(b"h", kind=b"1") + tars.END
    yield tars.header(b"big", b"\x80" + bytes(10) + b"\x05") + b"12345" + bytes(507) + tars.END
    yield tars.header(b"minus", b"\xff" * 12) + tars.END


def _archive(files: list[tuple[str, bytes]], form: str) -> bytes:
    import tarfile

    from sources import tars

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tars.FORMATS[form], bufsize=512) as archive:
        for name, data in files:
            tars.add(archive, name, data)
    return out.getvalue().rstrip(b"\0").ljust(512, b"\0") + bytes(1536)


def _array() -> bytes:
    import numpy as np

    out = io.BytesIO()
    np.save(out, np.arange(6, dtype="<i2").reshape(2, 3))
    return out.getvalue()


def _seeds(folder: Path) -> Iterator[bytes]:
    for data in _archives():
        yield data[: -(-len(data) // BLOCK) * BLOCK]


def _stream_seeds(folder: Path) -> Iterator[bytes]:
    import bz2
    import lzma

    packers = [lambda data: gzip.compress(data, mtime=0), bz2.compress, lzma.compress]
    if find_spec("zstandard"):
        import zstandard

        packers.append(zstandard.ZstdCompressor().compress)
    yield from _archives()
    for data in list(_archives())[:2]:
        for pack in packers:
            yield pack(data)


def _name_seeds(folder: Path) -> Iterator[bytes]:
    yield b"a.txt\na.cls\nb.txt\n__meta__.txt\nd/a.b.c\nd.e/f\n.x\nd/.x\n\n"
    yield b"\xff\xfe.txt\nb\nB"


def _field_seeds(folder: Path) -> Iterator[bytes]:
    import numpy as np
    from PIL import Image

    from ffrecord.fields.images.jpeg_codec import compress
    from ffrecord.sources.tar.webdataset_fields import DECODERS

    pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "png")
    by_kind = {"npy": _array(), "json": json.dumps({"a": [1, None]}).encode(), "cls": b"-12", "txt": "ü".encode()}
    by_kind |= {"jpg": compress(pixels, 90), "png": png.getvalue()}
    for number, kind in enumerate(sorted(DECODERS)):
        yield bytes([number]) + by_kind.get(kind, b"12")


PYTHON = tuple(f"ffrecord.sources.tar.{name}" for name in ("reader", "index", "stream"))
WEBDATASET = ("ffrecord.sources.tar.webdataset",)
FIELDS = ("ffrecord.sources.tar.webdataset_fields", "ffrecord.fields.images.jpeg_codec", "ffrecord.fields.images.image")
TARGETS = [
    Target("tar_headers", _prepare_headers, _seeds, (), ("sources/tar/_tar",), size_most=3 << 12),
    Target("tar_scan", _prepare_scan, _seeds, (), ("sources/tar/_tar",), size_most=3 << 12),
    Target("tar", _prepare_tar, _seeds, PYTHON[:2], ("sources/tar/_tar",), size_most=3 << 12),
    # As much as the dictionary of an xz stream may take, whatever it says.
    Target(
        "tar_stream",
        _prepare_stream,
        _stream_seeds,
        PYTHON,
        ("sources/tar/_tar",),
        size_most=3 << 12,
        memory_most=272 << 20,
    ),
    Target(
        "webdataset", _prepare_webdataset, _seeds, WEBDATASET + FIELDS[:1], ("sources/tar/_tar",), size_most=3 << 12
    ),
    Target("names", _prepare_names, _name_seeds, (), ("sources/tar/_tar", "kernels/_names"), size_most=1 << 10),
    Target("webdataset_fields", _prepare_fields, _field_seeds, FIELDS, size_most=1 << 12),
]

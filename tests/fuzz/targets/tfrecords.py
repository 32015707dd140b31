"""TFRecord: the chain of lengths, files, and files that gzip or zlib packed."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target, drain

SAMPLES = [b"", b"a", b"two", bytes(range(64)), b"x" * 700]


def _prepare_chain(scratch: Scratch) -> Run:
    from ffrecord.sources.tfrecord import _tfrecord

    chain_of = chained()

    def run(data: memoryview) -> None:
        """The first byte: the size of pieces that come one after the other."""
        if not data:
            return
        step, stream = 1 + data[0], memoryview(chain_of(data[1:]))
        chain = _tfrecord.Chain(check=data[0] % 4 != 3, size=len(stream) if data[0] % 2 else -1)
        for at in range(0, len(stream), step):
            chain.feed(stream[at : at + step])
        chain.finish()
        offsets, sizes, _ = chain.tables()
        assert len(offsets) == chain.n and (sizes >= 0).all() and (offsets + sizes <= len(stream)).all()
        _tfrecord.checksums(stream, offsets, sizes)

    return run


def chained() -> "object":
    """What gives a file right checksums of its lengths, which nothing is found behind otherwise."""
    from ffrecord._crc import crc32c, mask

    def fixed(data: memoryview) -> bytearray:
        file, at = bytearray(data), 0
        while at + 12 <= len(file):
            # Of odd ones the lowest bit says that they stay wrong, if the highest is set.
            if file[at + 8] & 0x81 != 0x81:
                struct.pack_into("<I", file, at + 8, mask(crc32c(file[at : at + 8])))
            size = struct.unpack_from("<Q", file, at)[0]
            end = at + 12 + size
            if end + 4 > len(file):
                break
            if size < 1 << 10:
                struct.pack_into("<I", file, end, mask(crc32c(file[at + 12 : end])))
            at = end + 4
        return file

    return fixed


def _prepare_file(scratch: Scratch) -> Run:
    from ffrecord.sources import TFRecordReader

    file, chain_of = scratch.file("a.tfrecord"), chained()

    def run(data: memoryview) -> None:
        path = file.put(chain_of(data))
        drain(TFRecordReader(path, io="pread"))
        drain(TFRecordReader(path, False, io="pread", on_torn="skip"))

    return run


def _prepare_packed(scratch: Scratch) -> Run:
    from ffrecord.sources import TFRecordReader

    file, chain_of = scratch.file("b.tfrecord"), chained()

    def run(data: memoryview) -> None:
        """The first byte: whether the rest is packed here, by gzip or zlib, or is so already."""
        way = data[0] % 4 if data else 3
        packed = bytes(data[1:])
        if way < 3:
            packer = zlib.compressobj(1, wbits=31 if way else 15)
            packed = packer.compress(chain_of(data[1:])) + packer.flush()
        file.put(packed[: len(packed) - way * (way == 2)])
        drain(TFRecordReader(file.path, io="pread", on_torn="skip"))

    return run


def _file() -> bytes:
    from ffrecord._crc import crc32c, mask

    found = b""
    for record in SAMPLES:
        size = struct.pack("<Q", len(record))
        found += size + struct.pack("<I", mask(crc32c(size))) + record + struct.pack("<I", mask(crc32c(record)))
    return found


def _seeds(folder: Path) -> Iterator[bytes]:
    yield _file()
    yield _file()[:-2]
    yield b""


def _chain_seeds(folder: Path) -> Iterator[bytes]:
    for step in (0, 6, 30, 255):
        yield bytes([step]) + _file()


def _packed_seeds(folder: Path) -> Iterator[bytes]:
    for way in range(3):
        yield bytes([way]) + _file()
    for bits in (15, 31):
        packer = zlib.compressobj(wbits=bits)
        yield b"\3" + packer.compress(_file()) + packer.flush()
    packer = zlib.compressobj(wbits=31)
    member = packer.compress(_file()[:40]) + packer.flush()
    yield b"\3" + member + member + bytes(3)
    yield b"\3\x1f\x8b\x08\x1f" + bytes(6) + b"\4\0extrname\0comment\0" + member[10:]


INDEX = tuple(f"ffrecord.sources.tfrecord.{name}" for name in ("reader", "index"))
PACKED = ("ffrecord.sources.tfrecord.reader", "ffrecord.sources.inflated")
TARGETS = [
    Target("tfrecord_chain", _prepare_chain, _chain_seeds, (), ("sources/tfrecord/_tfrecord",), size_most=1 << 10),
    Target("tfrecord", _prepare_file, _seeds, INDEX, ("sources/tfrecord/_tfrecord",), size_most=1 << 11),
    Target(
        "tfrecord_packed",
        _prepare_packed,
        _packed_seeds,
        INDEX + PACKED,
        ("sources/tfrecord/_tfrecord",),
        size_most=1 << 12,
    ),
]

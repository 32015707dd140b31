"""RecordIO in its three dialects, and the streams around raw snappy."""

import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import GOLDEN, Run, Scratch, Target, drain

MAGIC = b"\4\3\2\1"
SAMPLES = [b"", b"a", b"two", bytes(range(64)), b"xy" * 150]
# The words that are size and checksum.
WORDS = {"A": (4, 2), "B": (3, 1), "C": (4, 2)}


def sealed(data: memoryview, dialect: str, crc: "object") -> bytearray:
    """The same file with right checksums of its chunks; those whose lowest byte is 1 stay."""
    file, at = bytearray(data), 0
    size_word, crc_word = WORDS[dialect]
    while at + 20 <= len(file) and file[at : at + 4] == MAGIC:
        end = at + 20 + struct.unpack_from("<I", file, at + 4 * size_word)[0]
        if end > len(file):
            break
        if file[at + 4 * crc_word] != 1:
            struct.pack_into("<I", file, at + 4 * crc_word, crc(file[at + 20 : end]))  # type: ignore[operator]
        at = end
    return file


def _prepare_file(scratch: Scratch) -> Run:
    from ffrecord._crc import crc32c
    from ffrecord.sources import RecordIOReader

    file = scratch.file("a.recordio")

    def run(data: memoryview) -> None:
        """The first byte: the dialect, and whether the reader is told."""
        if not data:
            return
        dialect = "ABC"[data[0] % 3]
        path = file.put(sealed(data[1:], dialect, crc32c if dialect == "A" else zlib.crc32))
        given = dialect if data[0] & 16 else None
        drain(RecordIOReader(path, io="pread", dialect=given, on_torn="skip" if data[0] & 32 else "raise"))

    return run


def _prepare_passes(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord.sources.recordio import _recordio

    def run(data: memoryview) -> None:
        """Records of a payload, of which the first bytes say how many there are."""
        count, payload = int.from_bytes(data[:1], "little"), np.frombuffer(data, np.uint8)[1:]
        if count * 4 > len(payload):
            return
        zero, size = np.zeros(1, np.int64), np.array([len(payload)])
        offsets, sizes, wrong = _recordio.walk(payload, zero, size, np.array([count]))
        if wrong[0] < 0:
            _recordio.checksums(payload, offsets, sizes)
            out = np.empty(int(sizes.sum()), np.uint8)
            _recordio.gather(payload, offsets, sizes, np.cumsum(sizes) - sizes, out)
            assert b"".join(_recordio.copies(payload, offsets, sizes)) == out.tobytes()

    return run


def _prepare_snappy(scratch: Scratch) -> Run:
    import numpy as np

    from ffrecord import FormatError
    from ffrecord.errors import ChecksumError
    from ffrecord.sources.recordio import _recordio, snappy

    def run(data: memoryview) -> None:
        """The first byte: which stream it is, and whether it is expanded, too."""
        if not data:
            return
        stream, kind = np.frombuffer(data, np.uint8)[1:], data[0] % 3
        if kind == 2:
            cut = min(data[0], len(stream))
            bounds = np.array([0, cut, len(stream)])
            _recordio.expanded_sizes(stream, bounds[:-1], bounds[1:])
        else:
            table = _recordio.blocks(stream, bool(kind), 1 << 20)
            assert (table[:, 1] + table[:, 2] <= len(stream)).all()
        if data[0] & 128:
            with contextlib.suppress(FormatError, ChecksumError):
                snappy.expand(stream, (snappy.BLOCKS, snappy.FRAMED, snappy.RAW)[kind], 1 << 20, bool(data[0] & 64))

    return run


def _file_seeds(folder: Path) -> Iterator[bytes]:
    from sources.recordio_twin import COMPRESSORS, DIALECTS, build

    for number, dialect in enumerate(DIALECTS):
        for compressor in COMPRESSORS:
            data = build(SAMPLES, dialect, compressor, 100)
            yield bytes([number]) + data
            yield bytes([number + 48]) + data[:-3]
    for path in sorted((GOLDEN / "recordio").glob("*.recordio")):
        if path.stat().st_size < 1 << 13:
            yield b"\1" + path.read_bytes()


def _pass_seeds(folder: Path) -> Iterator[bytes]:
    yield bytes([len(SAMPLES)]) + b"".join(struct.pack("<I", len(each)) + each for each in SAMPLES)
    yield b"\0"


def _snappy_seeds(folder: Path) -> Iterator[bytes]:
    from sources.recordio_twin import blocks, framed, raw

    text = b"".join(SAMPLES) * 3
    for more in (0, 129, 192):
        for number, make in enumerate((blocks, framed, raw)):
            yield bytes([more // 3 * 3 + number]) + make(text)


PYTHON = tuple(f"ffrecord.sources.recordio.{name}" for name in ("reader", "index", "groups", "layout"))
TARGETS = [
    Target(
        "recordio",
        _prepare_file,
        _file_seeds,
        (*PYTHON, "ffrecord.sources.recordio.snappy"),
        ("sources/recordio/_recordio",),
        size_most=1 << 12,
    ),
    Target("recordio_walk", _prepare_passes, _pass_seeds, (), ("sources/recordio/_recordio",), size_most=1 << 10),
    Target(
        "snappy",
        _prepare_snappy,
        _snappy_seeds,
        ("ffrecord.sources.recordio.snappy",),
        ("sources/recordio/_recordio",),
        size_most=1 << 11,
    ),
]

"""Damaged RecordIO files: told with file, chunk and offset; or, torn at the end, read as far as they go."""

import gzip
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import children
import numpy as np
import pytest
import recordio_twin as twin
from mutations import mutants

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, TruncatedError
from ffrecord.sources.recordio import _recordio
from ffrecord.sources.recordio.reader import RecordIOReader

RECORDS = [b"%d." % i * (i % 9) for i in range(24)]
GOLDEN = Path(__file__).parents[1] / "golden"
EVERY_DAY = {("A", "snappy"), ("B", "none"), ("C", "gzip")}
kinds = pytest.mark.parametrize(
    "dialect, compressor",
    [
        pytest.param(each, compressor, marks=[] if (each, compressor) in EVERY_DAY else pytest.mark.long)
        for each in twin.DIALECTS
        for compressor in twin.COMPRESSORS
    ],
)


def everything(path, **options) -> list[bytes]:
    with RecordIOReader(path, **options) as reader:
        return [record.tobytes() for record in reader.read(range(len(reader)))]


def header(dialect: str, count: int, checksum: int, code: int, size: int) -> bytes:
    words = (checksum, code, size, count) if dialect == "B" else (count, checksum, code, size)
    return struct.pack("<5I", twin.MAGIC, *words)


@kinds
def test_torn_at_every_byte(tmp_path, dialect, compressor):
    data, path = twin.build(RECORDS, dialect, compressor, 50), tmp_path / "x"
    chunks = twin.chunks(data, dialect)
    ends = [0, *(each.start + each.size for each in chunks)]
    before = np.cumsum([0, *(each.records for each in chunks)])
    # All of the first and last chunk, and headers in between.
    sizes = {
        *range(24),
        ends[1] - 1,
        *range(ends[1], ends[1] + 25),
        *range(ends[-2] - 2, len(data), 3),
        *(end + 20 for end in ends[:-1]),
    }
    for size in sorted(sizes):
        path.write_bytes(data[:size])
        whole = int(np.searchsorted(ends, size, "right")) - 1
        if size in ends:
            assert everything(path) == RECORDS[: before[whole]]
            continue
        with pytest.raises(TruncatedError, match=rf"x: chunk {whole} at offset {ends[whole]}: {size - ends[whole]} of"):
            RecordIOReader(path)
        with RecordIOReader(path, on_torn="skip") as reader:
            torn = reader.torn[str(path)]
            assert (torn.chunk, torn.offset, torn.size) == (whole, ends[whole], size - ends[whole])
            assert [each.tobytes() for each in reader] == RECORDS[: before[whole]]


@kinds
def test_every_byte_flipped(tmp_path, dialect, compressor):
    data, path = twin.build(RECORDS[:9], dialect, compressor, 20), tmp_path / "x"
    assert len(twin.chunks(data, dialect)) > 2
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        for on_torn in ("raise", "skip"):
            try:
                found = everything(path, on_torn=on_torn)
            except FFRecordError as error:
                assert re.search(r"\bx(: | is not a RecordIO file: )", str(error))
            else:  # a last chunk that does not match is torn
                assert on_torn == "skip"
                last = twin.chunks(data, dialect)[-1]
                assert place >= last.start - 20 and found == RECORDS[: 9 - last.records]


@pytest.mark.parametrize("dialect", twin.DIALECTS)
def test_a_damaged_size_does_not_make_the_rest_a_torn_chunk(tmp_path, dialect):
    data = bytearray(twin.build(RECORDS, dialect, "none", 60))
    third = twin.chunks(bytes(data), dialect)[2].start - 20
    data[third + (12 if dialect == "B" else 16) + 2] ^= 1
    (tmp_path / "x").write_bytes(data)
    for on_torn in ("raise", "skip"):
        with pytest.raises(FormatError, match=rf"x: chunk 2 at offset {third}: .* another chunk begins at offset"):
            RecordIOReader(tmp_path / "x", on_torn=on_torn)


@pytest.mark.parametrize("dialect", twin.DIALECTS)
def test_what_looks_like_chunks_does_not_hide_those_behind_a_damaged_size(tmp_path, dialect):
    likely = header(dialect, 1, 123, 1, 4) + bytes(4)
    records = [b"first", likely * 9, b"third", b"fourth"]
    data = bytearray(twin.build(records, dialect, "none", 60))
    second = twin.chunks(bytes(data), dialect)[1].start - 20
    data[second + (12 if dialect == "B" else 16) + 3] ^= 0x7F
    (tmp_path / "x").write_bytes(data)
    for on_torn in ("raise", "skip"):
        with pytest.raises(
            FormatError, match=rf"x: chunk 1 at offset {second}: .* and 8 places after it look like another chunk"
        ):
            RecordIOReader(tmp_path / "x", on_torn=on_torn)


@pytest.mark.parametrize(
    "tail, torn", [(bytes(1), True), (bytes(5000), True), (bytes(30) + b"1", False), (b"??", False)]
)
def test_what_may_follow_the_last_chunk(tmp_path, tail, torn):
    data = twin.build(RECORDS, "B", "gzip", 60)
    (tmp_path / "x").write_bytes(data + tail)
    if torn:
        assert everything(tmp_path / "x", on_torn="skip") == RECORDS
    with pytest.raises(TruncatedError if torn else FormatError, match=rf"at offset {len(data)}: "):
        RecordIOReader(tmp_path / "x", on_torn="raise" if torn else "skip")


def test_a_last_chunk_that_does_not_match_is_torn_if_asked(tmp_path):
    data = twin.build(RECORDS, "A", "snappy", 60)
    last = twin.chunks(data, "A")[-1]
    (tmp_path / "x").write_bytes(data[:-1] + b"?")
    with RecordIOReader(tmp_path / "x") as reader, pytest.raises(ChecksumError, match=f"bytes at offset {last.start}"):
        reader.read_one(-1)
    with RecordIOReader(tmp_path / "x", on_torn="skip") as reader:
        assert [each.tobytes() for each in reader] == RECORDS[: 24 - last.records]
        assert str(reader.torn[str(tmp_path / "x")]) == f"{last.size + 20} of {last.size + 20} bytes"


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_a_count_that_is_wrong_is_seen_when_its_chunk_is_read(tmp_path, count):
    stored = twin.payload([b"one", b"two", b"three"], "B", "none")
    path = tmp_path / "x"
    path.write_bytes(twin.chunk(stored, count, "B", "none") + twin.build([b"next"], "B", "none"))
    with RecordIOReader(path) as reader:
        assert len(reader) == count + 1
        with pytest.raises(FormatError, match=rf"x: chunk 0, {len(stored)} bytes at offset 20: .*{count} records"):
            reader.read_one(0)
        with pytest.raises(FormatError):
            reader.validate()
        assert reader.read_one(-1).tobytes() == b"next"


@pytest.mark.parametrize(
    "stored",
    [b"\xff\xff\xff\xff", b"\5\0\0\0abcd", b"\1\0\0\0a\xff", b"\1\0\0\0a\4\0\0\0", b"\xf0\xff\xff\xffabcdefgh"],
)
def test_lengths_are_compared_with_what_is_there(tmp_path, stored):
    (tmp_path / "x").write_bytes(twin.chunk(stored, 1, "B", "none"))
    with (
        RecordIOReader(tmp_path / "x") as reader,
        pytest.raises(FormatError, match="decompressed bytes hold another number"),
    ):
        reader.read_one(0)


@pytest.mark.parametrize("count, code, size", [(0, 0, 8), (3, 0, 8), (1 << 31, 0, 8), (1, 3, 8), (1, 2**32 - 1, 8)])
def test_headers_that_cannot_be(tmp_path, count, code, size):
    first, payload = twin.build([b"first"], "B", "none"), bytes(size)
    (tmp_path / "x").write_bytes(first + header("B", count, zlib.crc32(payload), code, size) + payload)
    with pytest.raises(
        FormatError, match=rf"x: chunk 1 at offset {len(first)}: its header says {count} records, 8 bytes"
    ):
        RecordIOReader(tmp_path / "x")


BOMBS = {
    "gzip": ("B", gzip.compress(bytes(30_000_000))),
    "raw": ("A", b"\xff\xff\xff\xff\x0f" + b"\xfe\0\0" * 100),
    "raw beyond": ("A", twin.raw(bytes(30_000_000))),
    "framed": ("B", bytes(twin.cramjam.snappy.compress(bytes(30_000_000)))),
    "blocks": (
        "C",
        b"snappy\0" + (struct.pack(">BHI", 1, len(twin.raw(bytes(60_000))), 0) + twin.raw(bytes(60_000))) * 500,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(tmp_path, name):
    dialect, stored = BOMBS[name]
    compressor = "gzip" if name == "gzip" else "snappy"
    (tmp_path / "x").write_bytes(twin.chunk(stored, 1, dialect, compressor))
    with (
        RecordIOReader(tmp_path / "x", expanded_most=20_000_000) as reader,
        pytest.raises(FormatError, match=r"x: chunk 0, .*(decompress to|are damaged)"),
    ):
        reader.read_one(0)


@children.limits_memory
def test_a_bomb_takes_no_memory(tmp_path):
    (tmp_path / "x").write_bytes(twin.chunk(gzip.compress(bytes(64 << 20), 1), 1, "B", "gzip"))
    children.run(
        """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
from ffrecord.errors import FormatError
from ffrecord.sources.recordio.reader import RecordIOReader
reader = RecordIOReader(sys.argv[1], expanded_most=1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    reader.read_one(0)
except FormatError as error:
    assert "decompress to more than 1048576" in str(error), error
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10
""",
        tmp_path / "x",
    )


def test_what_a_compressed_chunk_claims_takes_no_memory(tmp_path):
    """A table of its records, 20 bytes each, would have 80 GB."""
    first = twin.build([b"first"], "B", "none")
    with open(tmp_path / "x", "wb") as file:
        file.write(first)
        for _ in range(16):
            file.write(header("B", 2**28 - 1, 0, 2, 1 << 20) + bytes(20))
            file.seek((1 << 20) - 20, 1)
        file.truncate(file.tell())
    with RecordIOReader(tmp_path / "x") as reader:
        assert len(reader) == 16 * (2**28 - 1) + 1 and reader.read_one(0).tobytes() == b"first"
        assert [len(column) for column in reader._table._table] == [1, 1, 1]
        with pytest.raises(ChecksumError, match="chunk 16"):
            reader.read_one(-1)


def test_chunks_that_may_expand_to_much_are_read_apart(tmp_path):
    bomb = twin.chunk(gzip.compress(bytes(4 + (1 << 20))), 1, "B", "gzip")
    (tmp_path / "x").write_bytes(bomb * 5)
    with RecordIOReader(tmp_path / "x", expanded_most=600 << 20) as reader:
        size = twin.chunks(bomb, "B")[0].size * 1032
        assert [len(piece) for piece in reader._table.cut(np.arange(5))] == [5]
        reader._table._sizes *= (500 << 20) // size  # as if each could become 500 MB
        assert max(len(piece) for piece in reader._table.cut(np.arange(5))) == 2


ZIPPED = gzip.compress(b"\0\0\0\0", mtime=0)  # else names of tests would have the time in them


@pytest.mark.parametrize("stored", [ZIPPED[:-1], ZIPPED + b"?", b"\x1f\x8b??"])
def test_gzip_that_is_none(tmp_path, stored):
    (tmp_path / "x").write_bytes(twin.chunk(stored, 1, "B", "gzip"))
    with RecordIOReader(tmp_path / "x") as reader, pytest.raises(FormatError, match=r"the gzip data"):
        reader.read_one(0)


def test_a_file_that_is_cut_while_it_is_open(tmp_path):
    path, data = tmp_path / "x", twin.build(RECORDS, "B", "none", 60)
    path.write_bytes(data)
    with RecordIOReader(path, io="pread") as reader:
        reader.read(range(10))
        path.write_bytes(data[: len(data) // 2])
        reader._groups.clear()
        with pytest.raises(TruncatedError, match="chunk"):
            reader.read_one(-1)
        assert reader.read_one(0).tobytes() == RECORDS[0]


def fuzz(tmp_path: Path, count: int) -> None:
    """Mutants are read, or refused; nothing else."""
    path = tmp_path / "x"
    sound = {(each, way): twin.build(RECORDS, each, way, 60) for each in twin.DIALECTS for way in twin.COMPRESSORS}
    read = 0
    for number, data in enumerate(sound.values()):
        for mutant in mutants(data, count // len(sound), seed=number):
            path.write_bytes(mutant)
            for options in ({}, {"check_data": False, "on_torn": "skip", "expanded_most": 1 << 20}):
                with suppress(FFRecordError):
                    read += len(everything(path, **options)) >= 0
    assert read > 0


def test_fuzz(tmp_path):
    fuzz(tmp_path, 500)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_fuzz_long(tmp_path):
    fuzz(tmp_path, 150_000)


def test_the_compiled_parts_check_their_arguments():
    data, two = np.zeros(10, np.uint8), np.array([0, 4])
    with pytest.raises(ValueError, match="of 10"):
        _recordio.walk(data, two, two + 7, np.array([1, 1]))
    with pytest.raises(ValueError, match="records in bytes"):
        _recordio.walk(data, two, two + 4, np.array([1, 2]))
    with pytest.raises(ValueError, match="1 ends"):
        _recordio.walk(data, two, two[:1], two)
    with pytest.raises(ValueError, match="7 bytes at 4 of 10"):
        _recordio.checksums(data, two, np.array([1, 7]))
    with pytest.raises(ValueError, match="4 bytes at 0 of 3"):
        _recordio.gather(data, two, np.array([4, 4]), two, np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="bytes at"):
        _recordio.copies(data, two, np.array([4, len(data)]))
    with pytest.raises(ValueError, match="size_word"):
        _recordio.hop(0, 0, 5)
    with pytest.raises(OSError, match="Bad file"):
        _recordio.hop(-1, 100, 4)

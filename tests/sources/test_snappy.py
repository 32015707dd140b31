"""Snappy in its three forms: against cramjam, python-snappy and a twin; damaged, and lying about its size."""

import struct
import zlib
from contextlib import suppress

import cramjam
import numpy as np
import pytest
import recordio_twin as twin
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutants

from ffrecord.errors import ChecksumError, FFRecordError, FormatError
from ffrecord.sources.recordio import _recordio, snappy
from ffrecord.system import requirements

MOST = 1 << 20
TEXT = b"".join(b"line %d of a text\n" % (i // 3) for i in range(100))
FORMS = {"raw": twin.raw, "framed": twin.framed, "blocks": twin.blocks}
contents = st.one_of(
    st.binary(max_size=600), st.builds(lambda part, n: part * n, st.binary(max_size=9), st.integers(0, 90))
)


def expand(data: bytes, kind: str, most: int = MOST, check: bool = True) -> bytes:
    return snappy.expand(np.frombuffer(data, np.uint8), kind, most, check).tobytes()


@given(contents, st.sampled_from(sorted(FORMS)))
def test_what_the_twin_compresses(data, kind):
    assert expand(FORMS[kind](data), kind) == data


@given(contents)
def test_what_libraries_compress_and_expand(data):
    assert expand(bytes(cramjam.snappy.compress_raw(data)), "raw") == data
    if data:  # of nothing they make nothing, which is no stream
        assert expand(bytes(cramjam.snappy.compress(data)), "framed") == data
    assert bytes(cramjam.snappy.decompress_raw(snappy.compress(data, "raw"))) == data
    assert bytes(cramjam.snappy.decompress(snappy.compress(data, "framed"))) == data


def test_python_snappy():
    theirs = pytest.importorskip("snappy")
    assert expand(theirs.compress(TEXT), "raw") == TEXT
    assert expand(theirs.StreamCompressor().compress(TEXT), "framed") == TEXT
    assert theirs.decompress(snappy.compress(TEXT, "raw")) == TEXT
    assert theirs.StreamDecompressor().decompress(snappy.compress(TEXT, "framed")) == TEXT


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_every_byte_flipped_and_every_cut(kind):
    data = FORMS[kind](TEXT[:300])
    for place in range(len(data)):
        for changed in (data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :], data[:place]):
            try:
                found = expand(changed, kind)
            except FFRecordError:
                continue
            # Raw snappy has no checksum, and that of blocks is not looked at; a stream may end after any block.
            assert kind != "framed" or TEXT.startswith(found)


def test_a_block_that_does_not_match():
    data = bytearray(twin.framed(TEXT[:300]))
    data[data.find(TEXT[200:220])] ^= 1  # the second block is stored
    with pytest.raises(ChecksumError, match="block 1 of the snappy stream: CRC-32C 0x"):
        expand(bytes(data), "framed")
    assert len(expand(bytes(data), "framed", check=False)) == 300


@pytest.mark.parametrize(
    "data, kind, words",
    [
        (b"", "raw", "missing or impossible"),
        (b"\xff\xff\xff\xff\xff", "raw", "missing or impossible"),
        (b"\xff\xff\xff\xff\x0f", "raw", "missing or impossible"),
        (b"\x40" + b"\xfe\0\0", "raw", "are damaged"),
        (b"", "framed", "is cut short"),
        (b"\0\0\0\0", "framed", "not the identifier of a stream"),
        (b"\xff\6\0\0snappy", "framed", "not the identifier of a stream"),
        (b"\xff\6\0\0sNaPpY\2\0\0\0", "framed", "an unknown kind"),
        (b"\xff\6\0\0sNaPpY\1\3\0\0abc", "framed", "is cut short"),
        (b"\xff\6\0\0sNaPpY\1\5\0\0abcd", "framed", "is cut short"),
        (b"\xff\6\0\0sNaPpY\1\5\1\1" + bytes(0x010105), "framed", "more than 65536"),
        (b"\xff\6\0\0sNaPpY\0\6\0\0abcd\xff\xff", "framed", "more|no decompressed size"),
        (b"snappy", "blocks", "not the identifier of a stream"),
        (b"snappy\0\2\0\0abcd", "blocks", "an unknown kind"),
        (b"snappy\0\0\0\2abcd?", "blocks", "is cut short"),
        (b"snappy\0\1\0\0abcd", "blocks", "no decompressed size"),
    ],
)
def test_what_is_none(data, kind, words):
    with pytest.raises(FormatError, match=words):
        expand(data, kind)


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_the_limit(kind):
    data = FORMS[kind](TEXT)
    assert expand(data, kind, len(TEXT)) == TEXT
    with pytest.raises(FormatError, match=f"expected at most {len(TEXT) - 1}"):
        expand(data, kind, len(TEXT) - 1)


def test_many_small_blocks_are_copied_at_once():
    # As the Go library writes them: the length of each record is a block, and its bytes are another.
    pieces = [struct.pack("<I", 3), b"abc"] * 50_000
    crc = {piece: struct.pack("<I", twin.masked(piece)) for piece in pieces[:2]}
    data = b"\xff\6\0\0sNaPpY" + b"".join(b"\1" + struct.pack("<I", len(p) + 4)[:3] + crc[p] + p for p in pieces)
    assert zlib.crc32(expand(data, "framed")) == zlib.crc32(b"".join(pieces))


def test_without_cramjam(monkeypatch):
    monkeypatch.setattr(requirements, "import_optional", lambda name: None)
    with pytest.raises(ImportError, match="pip install cramjam"):
        expand(twin.raw(b"abc"), "raw")


def fuzz(count: int) -> None:
    for number, (kind, compress) in enumerate(FORMS.items()):
        for mutant in mutants(compress(TEXT), count // 3, seed=number):
            with suppress(FFRecordError):
                expand(mutant, kind, 1 << 16)


def test_fuzz():
    fuzz(6000)


@pytest.mark.long
def test_fuzz_long():
    fuzz(600_000)


def test_the_table():
    table = _recordio.blocks(np.frombuffer(twin.framed(TEXT[:250]), np.uint8), True, MOST)
    assert table[:, 0].tolist() == [0, 1]
    assert table[:, 3].tolist() == [200, 50]
    assert table[1, 4] == twin.crc32c(TEXT[200:250])

"""The layout, by literals: no file, no checksum."""

import numpy as np
import pytest

from ffrecord.errors import FormatError
from ffrecord.format import ffr_layout
from ffrecord.format.ffr_layout import BLOCK_MAX, PAYLOAD_MAX, BlockHeader

I64 = np.int64


def test_prefix_bytes():
    assert ffr_layout.PREFIX.pack(0x04030201, 2) == bytes.fromhex("01020304 0200000000000000")


def test_block_header_bytes():
    header = BlockHeader(crc=0x04030201, block_size=0x50, payload_size=7, file_size=0x1000)
    assert ffr_layout.pack_block_header(header) == bytes.fromhex(
        "89 4646526578740a 01020304 01000000 5000000000000000 0700000000000000 0010000000000000"
    )


@pytest.mark.parametrize(
    ("n", "offsets", "end"), [(0, 12, 12), (1, 16, 24), (5, 32, 72), (2**40, 12 + 2**42, 12 + 12 * 2**40)]
)
def test_table_positions(n, offsets, end):
    assert (ffr_layout.offsets_start(n), ffr_layout.tables_end(n)) == (offsets, end)


def test_pack_tables_bytes():
    tables = b"".join(ffr_layout.pack_tables(np.array([1, 2], np.uint32), np.array([36, 40], I64)))
    assert tables == bytes.fromhex("00000000 0200000000000000 01000000 02000000 2400000000000000 2800000000000000")


def test_pack_tables_takes_any_byte_order():
    native = b"".join(ffr_layout.pack_tables(np.array([1, 2], np.uint32), np.array([36, 40], I64)))
    assert b"".join(ffr_layout.pack_tables(np.array([1, 2], ">u4"), np.array([36, 40], ">i8"))) == native


@pytest.mark.parametrize("size", range(12))
def test_short_prefix(size):
    with pytest.raises(FormatError, match=f"unfinished.*{size} bytes, expected at least 12"):
        ffr_layout.unpack_prefix(bytes(size), size)


@pytest.mark.parametrize(
    ("n", "size"),
    [(-1, 100), (-(2**63), 100), (2**63 - 1, 2**63 - 1), (2**60, 100), (1, 23), (8, 107), (2**64 // 12 + 1, 2**40)],
)
def test_n_that_does_not_fit(n, size):
    with pytest.raises(FormatError, match=f"{n} samples do not fit in {size} bytes"):
        ffr_layout.unpack_prefix(ffr_layout.PREFIX.pack(1, n), size)


@pytest.mark.parametrize(("n", "size"), [(0, 12), (1, 24), (8, 108), (2**40, 2**60)])
def test_n_that_fits(n, size):
    assert ffr_layout.unpack_prefix(ffr_layout.PREFIX.pack(7, n), size) == (7, n)


def test_zero_header_is_unfinished():
    with pytest.raises(FormatError, match="it is unfinished: its 13 bytes have no samples and no checksum"):
        ffr_layout.unpack_prefix(bytes(12), 13)
    assert ffr_layout.unpack_prefix(bytes(12), 12) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "good"), [(35, False), (36, True), (50, True), (51, False), (-1, False), (2**63 - 1, False)]
)
def test_first_offset(offset, good):
    if good:
        ffr_layout.check_first_offset(offset, 2, 50)
    else:
        with pytest.raises(FormatError, match=f"sample 0 is at offset {offset}, expected 36 <= offset <= 50"):
            ffr_layout.check_first_offset(offset, 2, 50)


@pytest.mark.parametrize("offsets", [[], [36, 36], [36, 50], [40, 40], [50, 50]])
def test_good_offsets(offsets):
    ffr_layout.check_offsets(np.array(offsets, I64), 50)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([35, 40], "sample 0 is at offset 35"),
        ([51, 52], "sample 0 is at offset 51"),
        ([36, 51], "sample 1 is at offset 51, but the file has 50"),
        ([40, 39], "sample 1 is at offset 39, before sample 0 at 40"),
        ([40, -1], "sample 1 is at offset -1, before sample 0 at 40"),
        ([40, 2**63 - 1], "sample 1 is at offset 9223372036854775807, but the file has 50"),
        ([40, -(2**63)], "sample 1 is at offset -9223372036854775808, before"),
    ],
)
def test_bad_offsets(offsets, message):
    with pytest.raises(FormatError, match=message):
        ffr_layout.check_offsets(np.array(offsets, I64), 50)


GOOD = BlockHeader(crc=9, block_size=64, payload_size=24, file_size=1000)


def test_block_header_round_trip():
    assert ffr_layout.unpack_block_header(ffr_layout.pack_block_header(GOOD), 64, 1000) == GOOD


@pytest.mark.parametrize(
    ("header", "gap", "message"),
    [
        (GOOD._replace(block_size=63), 64, "block has 63 bytes, expected 64"),
        (GOOD._replace(block_size=0), 64, "block has 0 bytes, expected 64"),
        (GOOD._replace(block_size=2**64 - 1), 64, "block has 18446744073709551615 bytes"),
        (GOOD._replace(payload_size=25), 64, "block of 64 bytes has a payload of 25"),
        (GOOD._replace(payload_size=2**64 - 1), 64, "payload of 18446744073709551615"),
        (GOOD._replace(block_size=BLOCK_MAX, payload_size=PAYLOAD_MAX + 1), BLOCK_MAX, "payload of"),
        (GOOD._replace(block_size=BLOCK_MAX + 1), BLOCK_MAX + 1, f"expected at most {BLOCK_MAX}"),
        (GOOD._replace(file_size=999), 64, "the file has 1 byte more than the 999 that were written; copy it again"),
        (GOOD._replace(file_size=1001), 64, "the file was cut: it has 1000 of 1001 bytes; copy it again"),
    ],
)
def test_bad_block_header(header, gap, message):
    with pytest.raises(FormatError, match=message):
        ffr_layout.unpack_block_header(ffr_layout.pack_block_header(header), gap, 1000)


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_unknown_block_version(version):
    data = bytearray(ffr_layout.pack_block_header(GOOD))
    data[12:16] = version.to_bytes(4, "little")
    with pytest.raises(FormatError, match=f"version {version}, this release of ffrecord reads version 1"):
        ffr_layout.unpack_block_header(bytes(data), 64, 1000)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 39])
def test_short_block(size):
    with pytest.raises(FormatError, match=f"{size} bytes between the tables and the first sample are not an extension"):
        ffr_layout.unpack_block_header(ffr_layout.pack_block_header(GOOD)[:size], size, 1000)


def test_other_magic():
    data = b"x" + ffr_layout.pack_block_header(GOOD)[1:]
    with pytest.raises(FormatError, match="not an extension block"):
        ffr_layout.unpack_block_header(data, 64, 1000)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "b'version https://git-lfs'; it is a Git LFS pointer"),
        (b"\n<!DOCTYPE html><html lang=en>", "b'\\n<!DOCTYPE html><html l'; it is an HTML page, so the download"),
        (b"<html><body>404</body></html>", "; it is an HTML page, so the download failed"),
        (b"\x1f\x8b\x08\x00" + bytes(4) + b"\0\x03" + b"x" * 30, "; it is compressed by gzip: run gunzip on it"),
        (b"PK\x03\x04\x14\0\0\0\x08\0" + b"x" * 30, "; it is a zip file"),
        (b"PAR1\x15\x04\x15\x10\x15\x14\x4c" + b"x" * 30, "; it is a Parquet file"),
        (b"plain words, nothing else", "it begins with b'plain words, nothing el'"),
    ],
)
def test_something_else_is_named(data: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=r"it is not an \.ffr file: it begins with") as caught:
        ffr_layout.unpack_prefix(data[: ffr_layout.HEAD_SIZE], len(data))
    assert said in str(caught.value)


def test_possible_numbers_are_never_something_else() -> None:
    """A checksum may begin like anything."""
    data = b"PK\x03\x04" + (3).to_bytes(8, "little")
    assert ffr_layout.unpack_prefix(data, 1000) == (int.from_bytes(data[:4], "little"), 3)
    damaged = b"PAR2" + (2**60).to_bytes(8, "little") + bytes(11)
    with pytest.raises(FormatError, match=f"^{2**60} samples do not fit in 404 bytes"):
        ffr_layout.unpack_prefix(damaged, 404)

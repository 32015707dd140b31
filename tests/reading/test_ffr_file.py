"""One file, opened: the checks of its header, and that nothing is left behind by a refusal."""

import os
import struct
import warnings
from contextlib import closing

import builders
import ffr_twin
import msgspec
import numpy as np
import pytest
from builders import (
    chain,
    fix_block,
    fix_checksum,
    put,
    set_block,
    set_header_crc,
    set_n,
    set_offset,
    swap_offsets,
    truncate,
)

from ffrecord.errors import ChecksumError, FormatError, TruncatedError
from ffrecord.format import extension
from ffrecord.reading.ffr_file import OpenedFile, add_path_to_errors

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")

SAMPLES = builders.small()
PLAIN = ffr_twin.build(SAMPLES)
PAYLOAD = msgspec.msgpack.encode({"writer": "test", "schema": {"a": 1}})
EXTENDED = ffr_twin.build_extended(SAMPLES, PAYLOAD, reserved=100)
TABLES = builders.BLOCK_START
RESERVED = TABLES + 40 + len(PAYLOAD)


class Closing(OpenedFile):
    def close(self) -> None:
        os.close(self.fd)


def opened(path, data: bytes, *, check: bool = True) -> "closing[Closing]":
    return closing(Closing(builders.write(path / "a.ffr", data), check=check))


@pytest.mark.parametrize("check", [True, False])
def test_numbers_and_tables(tmp_path, check):
    with opened(tmp_path, PLAIN, check=check) as file:
        assert (file.n, file.size, file.data_start) == (8, 404, 108)
        assert file.crc == struct.unpack_from("<I", PLAIN)[0]
        assert file.extension is None
        assert file.checksums.tolist() == list(struct.unpack_from("<8I", PLAIN, 12))
        assert file.offsets.tolist() == list(struct.unpack_from("<8q", PLAIN, 44))
        assert (file.checksums.dtype, file.offsets.dtype) == (np.uint32, np.int64)


def test_tables_are_read_only_and_outlive_the_file(tmp_path):
    with opened(tmp_path, PLAIN) as file:
        offsets, checksums = file.offsets, file.checksums
    del file
    assert not offsets.flags.writeable
    assert not checksums.flags.writeable
    assert offsets.tolist() == list(struct.unpack_from("<8q", PLAIN, 44))


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_odd_and_even_counts(tmp_path, n):
    """The offset table is 8-byte aligned in the file only when n is odd."""
    samples = builders.records(range(n))
    with opened(tmp_path, ffr_twin.build(samples)) as file:
        assert np.diff(file.offsets).tolist() == list(range(n - 1))


@pytest.mark.parametrize("reserved", [0, 1, 100, 3 << 20])
@pytest.mark.parametrize("payload", [b"", PAYLOAD], ids=["no payload", "payload"])
@pytest.mark.parametrize("samples", [[], SAMPLES], ids=["n = 0", "n = 8"])
def test_extension_block(tmp_path, samples, payload, reserved):
    with opened(tmp_path, ffr_twin.build_extended(samples, payload, reserved)) as file:
        wanted = extension.Extension(writer="test", schema={"a": 1}) if payload else extension.Extension()
        assert file.extension == wanted
        assert file.n == len(samples)


def test_an_empty_file(tmp_path):
    with opened(tmp_path, ffr_twin.build([])) as file:
        assert (file.n, file.size, file.data_start, file.extension) == (0, 12, 12, None)
        assert file.checksums.tolist() == file.offsets.tolist() == []


HIDDEN = b"hidden" * 10
# (number of the check and field, file, damage, error, message, at which values of check_data)
ALWAYS, IF_CHECKED = (True, False), (True,)
REFUSED = [
    ("1 size", PLAIN, truncate(0), FormatError, "0 bytes, expected at least 12", ALWAYS),
    ("1 size", PLAIN, truncate(11), FormatError, "11 bytes, expected at least 12", ALWAYS),
    ("2 n", PLAIN, set_n(-1), FormatError, "-1 samples do not fit in 404 bytes", ALWAYS),
    ("2 n", PLAIN, set_n(33), FormatError, "33 samples do not fit in 404 bytes", ALWAYS),
    ("2 n", PLAIN, set_n(2**63 - 1), FormatError, "do not fit", ALWAYS),
    ("3 offset 0", PLAIN, set_offset(0, 107), FormatError, "sample 0 is at offset 107, expected 108", ALWAYS),
    ("3 offset 0", PLAIN, set_offset(0, 405), FormatError, "sample 0 is at offset 405", ALWAYS),
    ("3 offset 0", PLAIN, set_offset(0, -1), FormatError, "sample 0 is at offset -1", ALWAYS),
    ("3 zeros", bytes(404), set_n(20), FormatError, "sample 0 is at offset 0", ALWAYS),
    ("4 cut tables", PLAIN, truncate(107), FormatError, "8 samples do not fit in 107", ALWAYS),
    ("5 gap", ffr_twin.build(SAMPLES, b"\0"), bytes, FormatError, "1 bytes between the tables", ALWAYS),
    ("5 gap", ffr_twin.build(SAMPLES, bytes(100)), bytes, FormatError, "100 bytes between the tables", ALWAYS),
    ("5 gap", ffr_twin.build(SAMPLES, HIDDEN), bytes, FormatError, "60 bytes between the tables", ALWAYS),
    ("5 gap", ffr_twin.build([], HIDDEN), bytes, FormatError, "60 bytes between the tables", ALWAYS),
    ("5 magic", EXTENDED, set_block("magic", b"\x89FFRexu\n"), FormatError, "not an extension block", ALWAYS),
    ("5 crc", EXTENDED, set_block("crc", 0), ChecksumError, "extension block: checksum", ALWAYS),
    ("5 version", EXTENDED, set_block("version", 2), FormatError, "extension block has version 2", ALWAYS),
    ("5 size", EXTENDED, set_block("block_size", 80), FormatError, "block has 80 bytes, expected", ALWAYS),
    ("5 payload", EXTENDED, set_block("payload_size", 2**63), FormatError, "payload of 9223372036854775808", ALWAYS),
    ("5 payload", EXTENDED, chain(set_block("payload_size", 3), fix_block), FormatError, "block|reserved", ALWAYS),
    ("5 file size", EXTENDED, builders.append(b"x"), FormatError, "has 1 byte more than the", ALWAYS),
    ("5 file size", EXTENDED, truncate(-1), FormatError, "the file was cut: it has", ALWAYS),
    ("5 reserved", EXTENDED, put(RESERVED, "<B", 1), FormatError, "reserved space .* that are not 0", IF_CHECKED),
    ("5 reserved", EXTENDED, put(RESERVED + 99, "<B", 1), FormatError, "reserved space", IF_CHECKED),
    ("6 n = 0", bytes(13), bytes, FormatError, "it is unfinished: its 13 bytes have no samples and no", ALWAYS),
    ("6 n = 0", bytes(1000), bytes, FormatError, "it is unfinished", ALWAYS),
    ("7 checksum", PLAIN, set_header_crc(1), ChecksumError, "metadata mismatch: .* 0x00000001", IF_CHECKED),
    ("7 checksum", PLAIN, builders.set_checksum(3, 1), ChecksumError, "checksum of metadata mismatch:", IF_CHECKED),
    ("9 offsets", PLAIN, chain(swap_offsets(3, 5), set_header_crc(0)), FormatError, "sample 4 is at offset", ALWAYS),
    ("9 offsets", PLAIN, chain(set_offset(7, 405), set_header_crc(0)), FormatError, "sample 7 is at .* 405", ALWAYS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "damage", "kind", "message", "when"),
    [row[1:] for row in REFUSED],
    ids=[f"{row[0]} {row[4][:24]}" for row in REFUSED],
)
@pytest.mark.parametrize("check", [True, False])
def test_refused(tmp_path, data, damage, kind, message, when, check):
    path = builders.write(tmp_path / "a.ffr", damage(data))
    if check not in when:
        os.close(OpenedFile(path, check=check).fd)
        return
    with pytest.raises(kind, match=message) as caught:
        OpenedFile(path, check=check)
    assert str(caught.value).startswith(path)


def test_rows_cover_every_check():
    """8 and 10 are about what is accepted: test_old_file, and the reader's tests of replaced files."""
    assert {row[0].split()[0] for row in REFUSED} == {"1", "2", "3", "4", "5", "6", "7", "9"}


@pytest.mark.parametrize("check", [True, False])
def test_old_file(tmp_path, check):
    with opened(tmp_path, set_header_crc(0)(PLAIN), check=check) as file:
        assert (file.crc, file.n) == (0, 8)


def test_decreasing_offsets_under_a_right_checksum_wait_for_their_use(tmp_path):
    """A pass over all offsets is not paid at every open; each span is checked when it is read."""
    with opened(tmp_path, chain(swap_offsets(3, 5), fix_checksum)(PLAIN)) as file:
        assert file.n == 8


def test_opening_warns_of_nothing(tmp_path):
    """Warnings about old files are the reader's, once per file."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(tmp_path, set_header_crc(0)(PLAIN)):
            pass


@pytest.mark.parametrize(
    ("kind", "error"), [("directory", IsADirectoryError), ("fifo", ValueError), ("device", ValueError)]
)
def test_no_regular_file(tmp_path, kind, error):
    path = tmp_path / "a.ffr"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(error, match="is not a file") as caught:
        OpenedFile(str(path), check=True)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("kind", [FormatError, TruncatedError])
def test_an_error_that_is_given_a_name_stays_of_its_kind(kind):
    with (
        pytest.raises(FormatError, match=r"^some file: 3 bytes, expected 4$") as caught,
        add_path_to_errors("some file"),
    ):
        raise kind("3 bytes, expected 4")
    assert type(caught.value) is kind

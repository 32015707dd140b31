"""TFRecord files that are cut, damaged or made to harm: refused with typed errors, or read as far as they are good."""

import logging
import os
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import mutations
import pytest
import tfrecord_twin as twin

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, TruncatedError
from ffrecord.sources.tfrecord.reader import TFRecordReader

RECORDS = [b"first", b"", b"the third one", b"4th", b"fifth and last"]
DATA = twin.encode(RECORDS)
ENDS = [len(twin.encode(RECORDS[:i])) for i in range(len(RECORDS) + 1)]
packed_kinds = pytest.mark.parametrize("kind", ["gzip", "zlib"])


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def write(folder, data):
    path = folder / "x.tfrecord"
    path.write_bytes(data)
    return str(path)


def outcome(path, **options):
    """Records that can be read, each None if it is not good; or the error of opening."""
    try:
        with TFRecordReader(path, **options) as reader:
            found = [None] * len(reader)
            for i in range(len(reader)):
                try:
                    found[i] = bytes(reader.read_one(i))
                except FFRecordError as error:
                    assert "record" in str(error) and path in str(error)
            return found
    except FFRecordError as error:
        assert path in str(error)
        return error


def test_every_cut(tmp_path):
    for size in range(len(DATA)):
        path = write(tmp_path, DATA[:size])
        good = [record for record, end in zip(RECORDS, ENDS[1:], strict=True) if end <= size]
        if size in ENDS:
            assert outcome(path) == good
            continue
        with pytest.raises(
            TruncatedError, match=rf"record {len(good)} at offset {ENDS[len(good)]}: .*{size - ENDS[len(good)]} "
        ):
            TFRecordReader(path)
        with TFRecordReader(path, on_torn="skip") as reader:
            assert [bytes(each) for each in reader] == good
            torn = reader.torn[path]
            assert (torn.record, torn.offset) == (len(good), ENDS[len(good)])


def test_a_cut_file_says_what_reads_it(tmp_path, caplog):
    path = write(tmp_path, DATA[:-1])
    with pytest.raises(TruncatedError, match=r"; pass on_torn='skip' to read everything before it$"):
        TFRecordReader(path)
    caplog.set_level(logging.WARNING)
    TFRecordReader(path, on_torn="skip").close()
    assert "left out" in caplog.text and "on_torn" not in caplog.text
    with pytest.raises(FormatError, match=r"not a TFRecord file, or damaged at its start$"):  # which no option mends
        TFRecordReader(write(tmp_path, b"\xff" * 40))


@packed_kinds
def test_cuts_of_a_compressed_file(tmp_path, kind):
    whole = twin.PACK[kind](DATA)
    for size in range(2, len(whole), 3):
        path = write(tmp_path, whole[:size])
        given = zlib.decompressobj(47).decompress(whole[:size])
        good = [record for record, end in zip(RECORDS, ENDS[1:], strict=True) if end <= len(given)]
        with pytest.raises(TruncatedError, match=r"end too early|are left"):
            TFRecordReader(path, compression=kind)
        with TFRecordReader(path, compression=kind, on_torn="skip") as reader:
            assert [bytes(each) for each in reader] == good
            assert reader.torn[path].record == len(good)


def test_every_byte_flipped(tmp_path):
    """Of a record, that one is refused; of a length, all that follow are unknown."""
    for at in range(len(DATA)):
        changed = bytearray(DATA)
        changed[at] ^= 0x10
        path = write(tmp_path, changed)
        number = next(i for i, (_, end) in enumerate(pairwise(ENDS)) if at < end)
        found = outcome(path)
        if at >= ENDS[number] + 12:
            assert found == [None if i == number else record for i, record in enumerate(RECORDS)]
            continue
        assert type(found) is (ChecksumError if number else FormatError)
        assert f"record {number} at offset {ENDS[number]}: CRC-32C 0x" in str(found)
        if number:
            assert (found.path, found.stored == found.computed) == (path, False)
            assert outcome(path, on_torn="skip") == RECORDS[:number]


@packed_kinds
def test_every_byte_of_a_compressed_file_flipped(tmp_path, kind):
    whole = twin.PACK[kind](DATA)
    refused = 0
    for at in range(2, len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        path = write(tmp_path, changed)
        found = outcome(path, compression=kind)
        refused += isinstance(found, FFRecordError)
        assert found == RECORDS or isinstance(found, FormatError | ChecksumError)
    assert refused > len(whole) - 12  # some bytes of gzip's header, as its time, mean nothing


@pytest.mark.parametrize("length", [2**31, 2**40, 2**63 - 29, 2**63 - 1, 2**63, 2**64 - 16, 2**64 - 1])
@pytest.mark.parametrize("kind", twin.PACK)
def test_lengths_beyond_the_file(tmp_path, length, kind):
    path = write(tmp_path, twin.PACK[kind](twin.encode([b"one"]) + twin.header(length) + b"data"))
    with pytest.raises(
        TruncatedError, match=f"record 1 at offset 19: it has {length} bytes, {length + 16} with.* but 16 are left"
    ):
        TFRecordReader(path)
    assert outcome(path, on_torn="skip") == [b"one"]
    assert isinstance(outcome(path, check_data=False), TruncatedError)


def test_zeros_after_the_last_record(tmp_path):
    """As a power cut leaves them: not twelve bytes of a header, for the checksum of 0 is not 0."""
    path = write(tmp_path, DATA + bytes(100))
    with pytest.raises(ChecksumError, match=f"record 5 at offset {len(DATA)}"):
        TFRecordReader(path)
    assert outcome(path, on_torn="skip") == RECORDS


def test_other_files(tmp_path):
    for data in (
        b"PK\3\4" + bytes(40),
        b"hello, this is a text",
        bytes(4096),
        b"\x1f\x8b" + bytes(30),
        b"\x1f\x8b\x08",
    ):
        path = write(tmp_path, data)
        with pytest.raises(FormatError):
            TFRecordReader(path)
    for data in (b"PK\3\4" + bytes(40), b"\x1f\x8b" + bytes(30)):
        # Not taken for an empty one either.
        with pytest.raises(FormatError, match="record 0"):
            TFRecordReader(write(tmp_path, data), on_torn="skip")


def test_what_follows_compressed_data(tmp_path):
    assert outcome(write(tmp_path, twin.PACK["members"](DATA) + bytes(1000))) == RECORDS
    for kind, tail in (("gzip", b"tail"), ("zlib", b"tail"), ("zlib", twin.PACK["zlib"](DATA)), ("gzip", b"\0\0x")):
        path = write(tmp_path, twin.PACK[kind](DATA) + tail)
        with pytest.raises(
            FormatError, match=rf"record 5 at offset {len(DATA)}: the {kind} data are damaged at offset \d+ of"
        ):
            TFRecordReader(path)
        assert outcome(path, on_torn="skip") == RECORDS


def test_a_file_cut_after_it_was_opened(tmp_path):
    path = write(tmp_path, DATA)
    with TFRecordReader(path) as reader:
        os.truncate(path, ENDS[2])
        assert bytes(reader[0]) == RECORDS[0]
        with pytest.raises(FormatError, match="record 4"):
            reader.read_one(4)


@pytest.mark.parametrize("kind", ["gzip", "members"])
def test_a_compressed_file_replaced_after_it_was_opened(tmp_path, kind):
    path = write(tmp_path, twin.PACK[kind](DATA))
    with TFRecordReader(path) as reader:
        Path(path).rename(tmp_path / "old")
        write(tmp_path, twin.PACK[kind](DATA[::-1]))
        with pytest.raises(OSError, match=r"replaced or removed after it was opened.*; open it again"):
            reader.read_one(4)


def agrees(path, data):
    """With the twin, about what is good; nothing but our errors is raised."""
    for check in (True, False):
        records, good, end = twin.decode(data, check)
        expected = [record if fine or not check else None for record, fine in zip(records, good, strict=True)]
        found = outcome(path, check_data=check, compression="none", on_torn="skip")
        if isinstance(found, FormatError):
            assert end == 0 and check
        else:
            assert found == expected
        assert (end is not None) == isinstance(outcome(path, check_data=check, compression="none"), FFRecordError)


def fuzz(folder, count, seed):
    for number, data in enumerate(mutations.mutants(DATA, count, seed)):
        path = write(folder, data)
        agrees(path, data)
        if number % 4 == 0:
            outcome(write(folder, twin.PACK["gzip"](data)), on_torn="skip")
    for kind in ("gzip", "zlib", "members"):
        for data in mutations.mutants(twin.PACK[kind](DATA), count // 4, seed):
            found = outcome(write(folder, data), on_torn="skip")
            assert isinstance(found, FFRecordError) or set(found) <= {*RECORDS, None}


def test_mutants(tmp_path):
    fuzz(tmp_path, 100, 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_many_mutants(tmp_path, seed):
    fuzz(tmp_path, 20_000, 100 + seed)


def test_numbers_of_headers_are_those_of_the_format():
    assert twin.header(0) == struct.pack("<Q", 0) + bytes.fromhex("29039807")
    assert twin.encode([b""])[-4:] == (0xA282EAD8).to_bytes(4, "little")

"""Where the directory of a zip archive is: comments, prefixes, ZIP64, many entries; and what contradicts itself."""

import io
import struct
import time
import zipfile

import pytest
from zip_builders import Raw, raw, zipped

from ffrecord.errors import FormatError
from ffrecord.sources.zip.reader import ZipReader

MEMBERS = [("a", b"first"), ("d/b", b"second")]
RAW = [Raw(name.encode(), data) for name, data in MEMBERS]


def contents(path, data):
    path.write_bytes(data)
    with ZipReader(path) as reader:
        return list(zip(reader.keys(), (each.tobytes() for each in reader), strict=True))


@pytest.mark.parametrize(
    "comment",
    [
        b"",
        b"a comment",
        bytes(65_535),
        b"PK\5\6",  # too short to be an end record
        b"PK\5\6" + bytes(18),  # an archive without entries
        b"PK\5\6" + bytes(19),  # ends before the file
        b"PK\5\6" * 9 + b"PK\6\6" + b"PK\1\2",
        struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 9, 9, 460, 0, 0),  # ends with the file, its directory is none
        struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 9, 9, 1, 1 << 30, 5) + b"12345",
    ],
)
@pytest.mark.parametrize("prefix", [b"", b"#!/bin/sh\nexit\n", bytes(70_000)])
@pytest.mark.parametrize("zip64", [False, True])
def test_comments_and_prefixes(tmp_path, comment, prefix, zip64):
    assert contents(tmp_path / "a.zip", raw(RAW, prefix, comment, zip64)) == MEMBERS


def test_offsets_that_count_the_prefix(tmp_path):
    """What programs that make self-extractors write after fixing offsets: they count from the start of the file."""
    out = io.BytesIO(b"before" * 9)
    out.seek(0, 2)
    with zipfile.ZipFile(out, "a") as archive:
        for name, data in MEMBERS:
            archive.writestr(name, data)
    assert contents(tmp_path / "a.zip", out.getvalue()) == MEMBERS


@pytest.mark.parametrize("count", [65_534, 65_535, 66_000])
def test_many_entries(tmp_path, count):
    path = tmp_path / "a.zip"
    path.write_bytes(raw([Raw(b"%d" % i, b"%d" % (i * i)) for i in range(count)], zip64=count > 65_534))
    start = time.perf_counter()
    with ZipReader(path) as reader:
        assert len(reader) == count
        assert reader.read(str(count - 1)).tobytes() == str((count - 1) ** 2).encode()
        assert reader.read_one(7).tobytes() == b"49"
    assert time.perf_counter() - start < 20  # seconds; a tenth is usual


@pytest.mark.long
def test_many_entries_by_zipfile(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(66_000):
            archive.writestr(f"{i}.txt", str(i))
    with ZipReader(path) as reader:
        assert [each.tobytes().decode() for each in reader] == [str(i) for i in range(66_000)]


def test_more_entries_than_the_end_record_can_say(tmp_path):
    """As old programs wrote them: the number is modulo 65536."""
    data = raw([Raw(b"%d" % i) for i in range(65_539)], here=3, entries=3)
    assert len(contents(tmp_path / "a.zip", data)) == 65_539


@pytest.mark.parametrize(
    "end, wrong",
    [
        ({"disk": 1}, "several disks .*: this is disk 1, its directory is on disk 0"),
        ({"here": 1}, "several disks"),
        ({"here": 3, "entries": 3}, "its directory has 2 entries, the end record says 3"),
        ({"size": 1 << 20}, "its directory of 1048576 bytes at .* does not end before its end record"),
        ({"offset": 1 << 20}, "does not end before its end record"),
        ({"size": 90}, "no directory entry at offset"),
    ],
)
def test_end_records_that_are_wrong(tmp_path, end, wrong):
    with pytest.raises(FormatError, match=rf"a\.zip: .*{wrong}"):
        contents(tmp_path / "a.zip", raw(RAW, **end))


def test_zip64_records_that_are_wrong(tmp_path):
    with pytest.raises(FormatError, match="4611686018427387904 entries do not fit in a directory of"):
        contents(tmp_path / "a.zip", raw(RAW, zip64=True, here=1 << 62, entries=1 << 62))
    with pytest.raises(FormatError, match=r"5 entries do not fit|its directory has 2 entries, the end record says 5"):
        contents(tmp_path / "a.zip", raw(RAW, zip64=True, here=5, entries=5))
    data = raw(RAW, zip64=True)
    for at, replacement in ((data.index(b"PK\6\6") + 4, b"\x2d"), (data.index(b"PK\6\6"), b"X")):
        with pytest.raises(FormatError, match="no ZIP64 end record at"):
            contents(tmp_path / "a.zip", data[:at] + replacement + data[at + 1 :])
    at = data.index(b"PK\6\7")
    with pytest.raises(FormatError, match="not a zip archive"):  # nothing says what the numbers are
        contents(tmp_path / "a.zip", data[:at] + b"X" + data[at + 1 :])


def test_a_file_cut_inside_its_directory(tmp_path):
    data = zipped(MEMBERS)
    for size in (len(data) - 22, data.index(b"PK\1\2") + 10):
        with pytest.raises(FormatError, match=f"no end record in its last {size} bytes; it begins like one, so it may"):
            contents(tmp_path / "a.zip", data[:size])
    long = data[:-22] + b"X" * (1 << 16)
    for begun, said in ((long, "65557 bytes; it begins like one, so"), (b"X" + long, "65557 bytes$")):
        with pytest.raises(FormatError, match=f"no end record in its last {said}"):
            contents(tmp_path / "a.zip", begun)


def test_zip64_records_that_say_no_more(tmp_path):
    """As Info-ZIP ends what it writes into a pipe: the numbers of the end record are ordinary."""
    data = raw(RAW)
    _, _, _, _, entries, size, offset, _ = struct.unpack("<4sHHHHIIH", data[-22:])
    end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(data) - 22, 1)
    assert contents(tmp_path / "a.zip", data[:-22] + end + locator + data[-22:]) == MEMBERS


def test_what_ends_as_a_locator(tmp_path):
    """A comment of the last member, where no ZIP64 record is needed, and none there."""
    members = [*RAW, Raw(b"c", comment=struct.pack("<4sIQI", b"PK\6\7", 0, 0, 1))]
    assert contents(tmp_path / "a.zip", raw(members)) == [*MEMBERS, ("c", b"")]


@pytest.mark.parametrize("behind", [b"\n", b"\r\n\x1a", bytes(512), bytes(60_000)])
def test_padding(tmp_path, behind):
    assert contents(tmp_path / "a.zip", raw(RAW, comment=b"a comment") + behind) == MEMBERS


@pytest.mark.parametrize("behind", [b"x", bytes(9) + b"x" + bytes(9)])
def test_bytes_behind_are_told(tmp_path, behind):
    with pytest.raises(FormatError, match=rf"{len(behind)} bytes follow the end record at \d+, expected none"):
        contents(tmp_path / "a.zip", raw(RAW) + behind)


def test_an_archive_in_one_that_was_cut(tmp_path):
    """Its last member is an archive with nothing but zeros behind it, as where a download stopped."""
    outer = raw([Raw(b"inner.zip", raw(RAW))])
    cut = outer[: outer.index(b"inner.zip") + 9 + len(raw(RAW))]
    with pytest.raises(FormatError, match="bytes follow the end record"):
        contents(tmp_path / "a.zip", cut + bytes(512))

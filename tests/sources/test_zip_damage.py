"""Damaged and hostile zip archives: refused by typed errors, or read right; never anything else."""

import io
import struct
import zipfile
import zlib

import pytest
from mutations import mutants
from zip_builders import METHODS, Raw, lzma_with_mark, lzma_without_mark, raw, zipped

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, TruncatedError
from ffrecord.sources.zip.reader import ZipReader
from ffrecord.system.requirements import import_optional

SMALL = [("a", b"first"), ("d/b", bytes(40)), ("c.txt", b"0123456789" * 9)]


def deflated(data):
    compressing = zlib.compressobj(wbits=-15)
    return compressing.compress(data) + compressing.flush()


def write(path, data):
    path.write_bytes(data)
    return str(path)


@pytest.fixture
def opened(tmp_path):
    def open_bytes(data, **options):
        return ZipReader(write(tmp_path / "a.zip", data), **options)

    return open_bytes


def read_all(path):
    """Members that are as they were made, and those that are refused; at once and as files."""
    with ZipReader(path, max_ratio=50) as reader:
        result = reader._load(reader._normalize_indices(range(len(reader))))
        for i, record in enumerate(result):
            try:
                with reader.open(i) as file:
                    content = file.read()
            except (FFRecordError, OSError) as error:
                assert isinstance(record, Exception), error
            else:
                assert not isinstance(record, Exception) and record.tobytes() == content
        for path in reader.list(recursive=True):
            reader.exists(path)
        return dict(zip(reader.keys(), result, strict=True))


def check(path, contents):
    try:
        found = read_all(path)
    except (FFRecordError, OSError) as error:
        assert not isinstance(error, FileNotFoundError)
        assert path in str(error)
        return
    for name, record in found.items():
        if isinstance(record, Exception):
            assert isinstance(record, FFRecordError) and path in str(record), record
        elif name in contents:
            # Data and CRC-32 of a member that is there under its name were not damaged alike.
            assert record.tobytes() in contents.values() or len(record) == 0


@pytest.mark.parametrize("method", [METHODS[0], *(pytest.param(m, marks=pytest.mark.long) for m in METHODS[1:])])
def test_every_byte_flipped(tmp_path, method):
    data = zipped(SMALL, method, comment=b"said")
    path = tmp_path / "a.zip"
    for at in range(len(data)):
        check(write(path, data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]), dict(SMALL))


def test_every_cut(opened):
    data = zipped(SMALL)
    for size in range(len(data)):
        with pytest.raises(FormatError, match=r"a\.zip"):
            opened(data[:size])


def fuzz(path, count, seed):
    contents = dict(SMALL)
    for base in (zipped(SMALL, None, b"said"), raw([Raw(*pair) for pair in RAW], zip64=True, prefix=b"before")):
        for mutant in mutants(base, count, seed):
            check(write(path, mutant), {**contents, **{n.decode(): d for n, d in RAW}})


RAW = [(b"x", b"one"), (b"y/z", b"two" * 9)]


def test_mutants(tmp_path):
    fuzz(tmp_path / "a.zip", 400, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_mutants(tmp_path, seed):
    fuzz(tmp_path / "a.zip", 6_000, seed)


@pytest.mark.parametrize("method", METHODS)
def test_wrong_crc(opened, method):
    data = bytearray(zipped(SMALL, method))
    at = data.index(b"PK\1\2") + 16
    data[at] ^= 1
    with opened(bytes(data), check_data=False) as reader:
        assert reader.read_one(0).tobytes() == b"first" and reader.open(0).read() == b"first"
    with opened(bytes(data), on_error="skip") as reader:
        with pytest.raises(
            ChecksumError, match=r"Sample 0: .*a\.zip: member 'a': .*CRC-32 0x\w+.* stored 0x"
        ) as caught:
            reader.read_one(0)
        assert (caught.value.index, caught.value.computed) == (0, zlib.crc32(b"first"))
        assert caught.value.stored == zlib.crc32(b"first") ^ 1
        assert len(reader.read([0, 1, 2])) == 2 and reader.skipped == 1
        with pytest.raises(ChecksumError, match="member 'a': checksum mismatch: CRC-32"), reader.open("a") as file:
            file.read()


@pytest.mark.parametrize(
    "member, wrong",
    [
        (Raw(b"m", b"x", flags=1), "is encrypted"),
        (Raw(b"m", b"x", flags=1 << 13), "is encrypted"),
        (Raw(b"m", b"x", method=9), r"method 9 \(deflate64\), expected one of"),
        (Raw(b"m", b"x", method=99), r"method 99 \(AES\)"),
        (Raw(b"m", b"x", method=77), r"method 77 \(unknown\)"),
        (Raw(b"m", b"x", size=2), "it is stored without compression, but has 2 bytes in 1"),
        (Raw(b"m", b"x", local_name=b"n"), "no local header with its name"),
        (Raw(b"m", b"no deflate", method=8, size=3), "compressed data are damaged: .*invalid"),
        (Raw(b"m", b"BZh9 no", method=12, size=3), "damaged: Invalid data stream"),
        (Raw(b"m", b"\x09", method=14, size=3), "its LZMA data have 1 bytes, expected at least 9"),
        (
            Raw(b"m", b"\x09\x14\5\0\xff" + bytes(9), method=14, size=3),
            "begin with 255, expected 5 bytes and a number below 225",
        ),
        (Raw(b"m", b"\x09\x14\5\0\x5d" + bytes(4) + b"\xff" * 9, method=14, size=3), "damaged: Corrupt input data"),
        (Raw(b"m", lzma_without_mark(bytes(300))[:-2], method=14, size=300), "decompress to .* bytes, expected 300"),
        (Raw(b"m", lzma_with_mark(b"abc"), method=14, flags=2, size=2), "more than 2 bytes, expected 2"),
        (Raw(b"m", deflated(b"abc"), method=8, size=2), "more than 2 bytes, expected 2"),
        (Raw(b"m", deflated(b"abc"), method=8, size=4), "decompress to 3 bytes, expected 4"),
        (Raw(b"m", deflated(b"abc"), method=8, size=0), "more than 0 bytes"),
        (Raw(b"m", deflated(b"abc" * 99)[:-3], method=8, size=297), "decompress to .* bytes, expected 297"),
    ],
)
def test_a_member_that_cannot_be_read(opened, member, wrong):
    with opened(raw([Raw(b"good", b"fine"), member])) as reader:
        assert reader.read_one(0).tobytes() == b"fine" and reader.exists("m")
        with pytest.raises(FormatError, match=rf"Sample 1: .*a\.zip: member 'm': .*{wrong}"):
            reader.read([0, 1])
        with pytest.raises(FormatError, match=r"a\.zip: member 'm'"), reader.open("m") as file:
            file.read()


@pytest.mark.parametrize("member", [Raw(b"m", b"", crc=9), Raw(b"m", deflated(b""), 8, crc=9, size=0)])
def test_an_empty_member_with_a_checksum_that_is_none(opened, member):
    with opened(raw([member])) as reader:
        with pytest.raises(ChecksumError, match="CRC-32 0x00000000, stored 0x00000009"):
            reader.read([0])
        with pytest.raises(ChecksumError, match=r"member 'm': .* 0x00000000"), reader.open(0) as file:
            file.read()


def test_zstd_that_is_damaged(opened):
    zstandard = pytest.importorskip("zstandard")
    good = zstandard.compress(b"abc" * 50)
    for packed, size, wrong in [
        (b"no zstd", 3, "damaged: .*"),
        (good, 149, "more than 149 bytes"),
        (good, 151, "150 bytes, expected 151"),
        (good[:-4], 150, "0 bytes, expected 150"),
    ]:
        with opened(raw([Raw(b"m", packed, 93, size=size)])) as reader:
            with pytest.raises(FormatError, match=wrong):
                reader.read([0])
            with pytest.raises(FormatError), reader.open(0) as file:
                file.read()


def test_memory_is_taken_as_content_comes(opened):
    """Not as the directory says; in one piece, 1 TiB would be more than there is."""
    zstandard = pytest.importorskip("zstandard")
    tib = struct.pack("<HHQ", 1, 8, 1 << 40)
    member = Raw(b"m", zstandard.compress(b"x" * 100), method=93, crc=0, size=0xFFFFFFFF, extra=tib)
    wrong = pytest.raises(FormatError, match="decompress to 100 bytes, expected 1099511627776")
    with opened(raw([member]), max_ratio=None) as reader, wrong:
        reader.read([0])


def test_no_zstandard(opened, monkeypatch):
    monkeypatch.setattr(
        "ffrecord.system.requirements.import_module", lambda name: (_ for _ in ()).throw(ImportError(name))
    )
    import_optional.cache_clear()
    try:
        with opened(raw([Raw(b"m", b"x", 93, size=3)])) as reader:
            with pytest.raises(ImportError, match=r"member 'm': .*needs zstandard: pip install zstandard"):
                reader.read([0])
            with pytest.raises(ImportError, match="needs zstandard"):
                reader.open("m")
    finally:
        import_optional.cache_clear()


def test_bombs(opened):
    content = bytes(20 << 20)
    packed = deflated(content)
    made = Raw(b"m", packed, 8, crc=zlib.crc32(content), size=len(content))
    with opened(raw([made])) as reader:
        assert len(reader.read_one(0)) == 20 << 20  # deflate's own limit is below ours
    with opened(raw([made]), max_ratio=100) as reader:
        for read in (reader.read_one, reader.open):
            with pytest.raises(FormatError, match=rf"it has 20971520 bytes in {len(packed)}.*at most 100 times"):
                read(0)
    # Nothing is allocated for what is only said.
    made.extra, made.size = struct.pack("<HHQ", 1, 8, 5 << 40), 0xFFFFFFFF
    with opened(raw([made])) as reader, pytest.raises(FormatError, match="5497558138880 bytes"):
        reader.read_one(0)


def test_max_ratio_option(opened):
    for value, error in [(0.5, ValueError), ("2", TypeError), (True, TypeError), (float("nan"), ValueError)]:
        with pytest.raises(error, match="max_ratio"):
            opened(zipped(SMALL), max_ratio=value)


def test_overlapping_members(opened):
    shared = [Raw(b"a", b"x" * 50), Raw(b"a", b"x" * 50, local=0)]
    with pytest.raises(
        FormatError, match=r"a\.zip: members overlap: 'a' of 81 bytes at offset 0 reaches into 'a' at offset 0"
    ):
        opened(raw(shared))
    data = bytearray(raw([Raw(b"a", b"x")]))
    data[28] = 9  # bytes of local extra fields that are not there
    with pytest.raises(FormatError, match="reaches into the directory at offset"):
        opened(bytes(data))


def test_members_outside(opened):
    for member in (Raw(b"a", b"x", local=1 << 20), Raw(b"a", b"x", compressed=1 << 20)):
        with pytest.raises(
            FormatError, match=r"directory entry 0, at byte 0 of 47, 'a': .* do not lie in the 32 bytes"
        ):
            opened(raw([member]))
    with pytest.raises(FormatError, match="its numbers are in a ZIP64 field, which is missing"):
        opened(raw([Raw(b"a", b"x", local=0xFFFFFFFF)]))
    with pytest.raises(FormatError, match="its numbers are in a ZIP64 field, which is missing"):
        opened(raw([Raw(b"a", b"x", size=0xFFFFFFFF, extra=b"\1\0\4\0abcd")]))


def test_a_damaged_directory(opened):
    data = zipped(SMALL)
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    with pytest.raises(FormatError, match=r"directory entry 1, at byte 47 of 147: it begins with b'XK"):
        opened(data[:second] + b"X" + data[second + 1 :])
    with pytest.raises(FormatError, match="directory entry 1, at byte 47 of 147: it does not end within"):
        opened(data[: second + 28] + b"\xff\xff" + data[second + 30 :])


def test_an_archive_cut_while_it_is_open(opened, tmp_path):
    with opened(zipped(SMALL)) as reader:
        with reader.open(2) as file:
            (tmp_path / "a.zip").write_bytes(b"PK")
            with pytest.raises(TruncatedError, match=r"member 'c\.txt' ends after 0 bytes, expected 90"):
                file.read()
        with pytest.raises(FFRecordError, match=r"member 'c\.txt'"):
            reader.read_one(2)


def test_what_is_no_archive(opened, tmp_path):
    (tmp_path / "empty").mkdir()
    for data in (b"", b"P", b"PK\5\6", bytes(1000), b"PK\3\4" * 100, zipped(SMALL)[:-1]):
        with pytest.raises(FormatError, match=r"a\.zip: it is not a zip archive: "):
            opened(data)
    with pytest.raises(FileNotFoundError):
        ZipReader(tmp_path / "none.zip")
    with pytest.raises(ValueError, match=r"no file in this directory ends in \.zip"):
        ZipReader(tmp_path / "empty")


def test_a_symbolic_link_is_its_text(opened):
    """Nothing is followed: the content of such a member is where it points to."""
    link = Raw(b"l", b"/etc/passwd", made_by=20 | 3 << 8, attributes=0o120777 << 16)
    with opened(raw([link])) as reader:
        assert reader.read("l").tobytes() == b"/etc/passwd" and reader.members.modes[0] == 0o120777


def test_zipfile_agrees_that_the_raw_ones_are_archives():
    with zipfile.ZipFile(io.BytesIO(raw([Raw(*pair) for pair in RAW], zip64=True, prefix=b"before"))) as twin:
        assert [(name.encode(), twin.read(name)) for name in twin.namelist()] == RAW

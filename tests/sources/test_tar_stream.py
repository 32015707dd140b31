"""Archives read once, compressed or not, against what is read in place."""

import bz2
import contextlib
import gzip
import lzma
import tarfile
import time
import tracemalloc
import zlib
from importlib.util import find_spec

import pytest
import tars
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutants
from test_tar import CUT, DAMAGED, FILES, SEED, fixed

from ffrecord.errors import FFRecordError, FormatError, TruncatedError
from ffrecord.sources.tar.reader import TarReader
from ffrecord.sources.tar.stream import iter_members, iter_samples
from ffrecord.sources.tar.webdataset import WebDatasetReader
from ffrecord.system import requirements


def zstd(data):
    """By the package, without which a test skips."""
    return pytest.importorskip("zstandard", reason="zstandard is not installed").ZstdCompressor().compress(data)


PACKERS = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
    # As pzstd writes: a frame before that says sizes, and is to be skipped.
    "skippable": lambda data: b"\x5f\x2a\x4d\x18\x04\0\0\0size" + zstd(data),
}
# Those that can be packed here, for tests of one after the other.
PACKED = [packer for packer in PACKERS if packer not in ("zstd", "skippable") or find_spec("zstandard")]


def listed(path, **options):
    return [(name, data.tobytes()) for name, data, _ in iter_members(path, **options)]


@pytest.mark.parametrize("packer", PACKERS)
def test_members(tmp_path, packer):
    plain = tars.archive(tmp_path / "a.tar", FILES)
    data = (tmp_path / "a.tar").read_bytes()
    path = tars.write(tmp_path / "b", PACKERS[packer](data))
    with TarReader(plain) as reader:
        offsets = reader._files[0].offsets.tolist()
    assert listed(path) == FILES
    assert [offset for _, _, offset in iter_members(path)] == offsets
    # Several streams one after the other are one.
    parts = tars.write(tmp_path / "c", *(PACKERS[packer](data[i : i + 700]) for i in range(0, len(data), 700)))
    assert listed(parts) == FILES


@given(
    st.lists(st.tuples(st.sampled_from(["a.x", "d/b.y", "n" * 200]), st.binary(max_size=1500))),
    st.sampled_from(list(tars.FORMATS)),
)
def test_against_reading_in_place(tmp_path, files, form):
    files = files if form != "ustar" else [(name[:90], data) for name, data in files]
    path = tars.archive(tmp_path / "a.tar", files, form)
    assert listed(path) == files == tars.listed(path)


@pytest.mark.parametrize("case", [case for case in DAMAGED if "link" not in case])
def test_damage_is_refused(tmp_path, case):
    data, message = DAMAGED[case]
    path = tars.write(tmp_path / "bad.tgz", gzip.compress(data, mtime=0))
    with pytest.raises(FormatError, match=message):
        listed(path)


@pytest.mark.parametrize("case", CUT)
def test_cut_archives(tmp_path, case):
    path = tars.write(tmp_path / "cut.tgz", gzip.compress(tars.member(b"first", b"1") + CUT[case][0], mtime=0))
    members = iter_members(path, size_most=1 << 62)
    assert next(members).name == "first"
    with pytest.raises(TruncatedError, match="cut in"):
        list(members)


@pytest.mark.parametrize("packer", [packer for packer in PACKERS if packer != "plain"])
def test_damaged_compression(tmp_path, packer):
    """Cut anywhere, or a byte changed, which a checksum finds after the last member at the latest."""
    tars.archive(tmp_path / "a.tar", [("a", bytes(i * i % 251 for i in range(5000)))])
    data = PACKERS[packer]((tmp_path / "a.tar").read_bytes())
    for size in range(8, len(data) - 12, 199):
        with pytest.raises(FormatError, match=r"cut\.tgz: .*(cut|end|damaged)"):
            listed(tars.write(tmp_path / "cut.tgz", data[:size]))
    if packer not in ("zstd", "skippable"):  # whose checksum is optional, and off here
        for at in range(20, len(data) - 12, 499):
            wrong = bytearray(data)
            wrong[at] ^= 16
            with pytest.raises(FormatError):
                listed(tars.write(tmp_path / "wrong.tgz", wrong))


def test_a_hard_link_is_gone_by(tmp_path):
    path = tars.write(tmp_path / "a.tar", tars.member(b"a", b"1"), tars.header(b"l", 0, b"1", b"a"))
    with pytest.raises(FormatError, match=r"'l' at offset 1024 is a hard link to 'a', which came earlier"):
        listed(path)


def test_a_hard_link_of_no_sample_is_left_out(tmp_path):
    """As from a tar that is not compressed."""
    parts = [tars.member(b"0.txt", b"1"), tars.header(b"README", 0, b"1", b"0.txt"), tars.member(b"1.txt", b"2")]
    path = tars.write(tmp_path / "a.tgz", gzip.compress(b"".join(parts), mtime=0))
    assert [(each["__key__"], each["txt"].tobytes()) for each in iter_samples(path)] == [("0", b"1"), ("1", b"2")]
    parts[1] = tars.header(b"l.txt", 0, b"1", b"0.txt")
    path = tars.write(tmp_path / "b.tgz", gzip.compress(b"".join(parts), mtime=0))
    with pytest.raises(FormatError, match=r"'l\.txt' at offset 1024 is a hard link to '0\.txt', which came earlier"):
        list(iter_samples(path))


def test_empty_extensions(tmp_path):
    extensions = [tars.member(b"x", b"", kind=kind) for kind in (b"x", b"g", b"L", b"K")]
    path = tars.write(
        tmp_path / "a.tar", *extensions[:2], tars.member(b"a", b"1"), *extensions[2:], tars.member(b"b", b"2")
    )
    # A long name of no bytes is a name, as tarfile has it.
    assert listed(path) == [("a", b"1"), ("", b"2")] == tars.listed(path)


def test_large_members_are_refused(tmp_path):
    path = tars.archive(tmp_path / "a.tar", FILES)
    with pytest.raises(FormatError, match=r"'d/b\.bin' at offset .* has 1280 bytes, size_most is 1000"):
        listed(path, size_most=1000)


def test_sizes_are_believed_only_as_far_as_there_are_bytes(tmp_path):
    path = tars.write(tmp_path / "lie.tar", tars.header(b"a", 3 << 30), bytes(10_000))
    tracemalloc.start()
    try:
        with pytest.raises(TruncatedError, match="3221225472 bytes, 10000 are left"):
            listed(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_memory_is_that_of_a_member(tmp_path):
    """Of 60 MB, packed to nothing."""
    with tarfile.open(tmp_path / "a.tgz", "w:gz", compresslevel=1) as tar:
        for i in range(30):
            tars.add(tar, f"{i}", bytes(2 << 20))
    tracemalloc.start()
    try:
        assert sum(len(member.data) for member in iter_members(tmp_path / "a.tgz")) == 60 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.unsanitized("it looks at megabytes of each decompressor")
@pytest.mark.parametrize("packer", [bz2, lzma])
def test_many_empty_streams(tmp_path, packer):
    """As many as there are bytes for their headers take time in proportion."""
    path = tmp_path / "a.tar"
    empty = packer.compress(b"")
    path.write_bytes(empty * ((1 << 20) // len(empty)) + packer.compress(tars.member(b"a", b"data") + tars.END))
    start = time.process_time()
    assert listed(path) == [("a", b"data")]
    assert time.process_time() - start < 3  # seconds; 0.1 are usual


def test_greedy_decompressors_are_refused(tmp_path):
    """A dictionary of 1.5 GiB is in the header; nothing is allocated for it."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(bytes(100), filters=filters))
    at = data.index(b"\x21\x01") + 2
    data[at] = 37  # 1.5 GiB
    start, size = 12, (data[12] + 1) * 4
    data[start + size - 4 : start + size] = zlib.crc32(data[start : start + size - 4]).to_bytes(4, "little")
    with pytest.raises(FormatError, match=r"the xz data are damaged: .*[Mm]emory"):
        listed(tars.write(tmp_path / "a.tar.xz", data))


def test_ignore_zeros(tmp_path):
    one = (tmp_path / "a.tar", tars.archive(tmp_path / "a.tar", FILES))[0].read_bytes()
    path = tars.write(tmp_path / "two.tgz", gzip.compress(one, mtime=0), gzip.compress(one, mtime=0))
    assert listed(path) == FILES
    assert listed(path, ignore_zeros=True) == 2 * FILES


def test_what_is_left_out_behind_the_end_is_told(tmp_path, caplog):
    """Once, with the offsets of the end and of what follows it, for archives read in place and in one pass."""
    one = tars.member(b"a", b"1") + tars.END
    ends = {
        one: None,
        one + bytes(1 << 21): None,
        one + one: 2048,
        one + bytes(10000) + b"x" + bytes(99): 12048,
        one[:-512] + b"x": 1536,  # a single block of zeros is an end, too
        one + bytes(2 << 20) + one: None,  # too far away to be looked for
        tars.END + one: 1024,
    }
    for data, at in ends.items():
        for name, packed, read in (
            ("a.tar", data, TarReader),
            ("a.tar", data, WebDatasetReader),
            ("a.tar", data, iter_members),
            ("a.tar", data, iter_samples),
            *((packer, PACKERS[packer](data), iter_members) for packer in PACKED),
        ):
            caplog.clear()
            path = tars.write(tmp_path / name, packed)
            list(read(path))
            end = 0 if data.startswith(tars.END) else 1024
            said = f"zeros at offset {end} end the archive, so what comes behind them, from offset {at} on, is left out"
            lines = [message.split(": ")[1] for message in caplog.messages if "such as 'a'" not in message]
            assert lines == ([] if at is None else [said])
            assert all(message.startswith(f"{path}: ") for message in caplog.messages)
    caplog.clear()
    path = tars.write(tmp_path / "a.tar", one, one)
    assert len(listed(path, ignore_zeros=True)) == len(TarReader(path, ignore_zeros=True)) == 2
    assert caplog.messages == []


def test_samples(tmp_path):
    files = [
        ("README", b"-"),
        ("d/1.JPG", b"j"),
        ("d/1.cls", b"1"),
        ("__x__/2.cls", b"-"),
        ("d/1.y.Z", b"z"),
        ("d/2.cls", b"2"),
    ]
    path = tars.archive(tmp_path / "a.tgz", files, mode="w:gz")
    found = [
        {name: value if name == "__key__" else value.tobytes() for name, value in each.items()}
        for each in iter_samples(path)
    ]
    assert found == [{"__key__": "d/1", "jpg": b"j", "cls": b"1", "y.z": b"z"}, {"__key__": "d/2", "cls": b"2"}]
    path = tars.archive(tmp_path / "b.tgz", [("1.cls", b"1"), ("1.CLS", b"2")], mode="w:gz")
    with pytest.raises(FormatError, match=r"sample '1': field 'cls' occurs twice, again as member '1\.CLS'"):
        list(iter_samples(path))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(requirements, "import_optional", lambda name: None)
    path = tars.write(tmp_path / "a.tar.zst", b"\x28\xb5\x2f\xfd\x20\0\1\0\0")
    with pytest.raises(ImportError, match="pip install zstandard"):
        listed(path)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        iter_members(tmp_path / "none.tgz")


def fuzz(path, data, count, seed, pack=bytes):
    for number, mutant in enumerate(mutants(data, count, seed)):
        path.write_bytes(pack(fixed(mutant) if pack is bytes and number % 4 else mutant))
        with contextlib.suppress(FFRecordError):
            listed(path, size_most=1 << 20)


def test_mutants(tmp_path):
    fuzz(tmp_path / "m.tar", SEED, 200, 1)
    for packer in sorted({"gzip", "bzip2", "xz", "zstd"} & set(PACKED)):
        fuzz(tmp_path / "m.tgz", PACKERS[packer](SEED), 60, 2)


@pytest.mark.long
@pytest.mark.parametrize("packer", PACKERS)
def test_more_mutants(tmp_path, packer):
    fuzz(tmp_path / "m.tgz", PACKERS[packer](SEED), 40_000, 3)


def test_files_are_closed(tmp_path, nothing_leaks):
    path = tars.archive(tmp_path / "a.tar", FILES)
    members = iter_members(path)
    assert next(members).name == "a.txt"
    members.close()
    with pytest.raises(FormatError):
        listed(tars.write(tmp_path / "b.tar", b"x" * 600))

"""Tar archives read in place, against tarfile."""

import os
import pickle
import tarfile
import threading

import pytest
import tars
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutants

from ffrecord.errors import FFRecordError, FormatError, TruncatedError
from ffrecord.sources.tar import _tar
from ffrecord.sources.tar import index as tar_index
from ffrecord.sources.tar.reader import TarReader
from ffrecord.sources.tar.stream import iter_members
from ffrecord.sources.tar.webdataset import WebDatasetReader

FILES = [("a.txt", b"alpha"), ("d/b.bin", bytes(range(256)) * 5), ("empty", b""), ("d/" * 80 + "long.jpg", b"x" * 512)]


def read(path, **options):
    with TarReader(path, **options) as reader:
        return list(zip(reader.keys(), [record.tobytes() for record in reader], strict=True))


@pytest.fixture
def path(tmp_path):
    return tars.archive(tmp_path / "a.tar", FILES)


# What is read


@pytest.mark.parametrize("form", tars.FORMATS)
@pytest.mark.parametrize("io", ["auto", "pread", "direct", "mmap"])
def test_every_format(tmp_path, form, io):
    path = tars.archive(tmp_path / "a.tar", FILES, form)
    assert read(path, io=io) == FILES


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=60) | st.text(
    st.sampled_from("ab./-é\udcff"), min_size=1, max_size=120
)
times = st.sampled_from((0.0, 1.5, 8.0**11, -1.0))
kinds = st.sampled_from((*b"00007125634", 0)).map(lambda kind: bytes([kind]))


@given(
    st.lists(st.tuples(names, st.binary(max_size=1100), kinds, times), max_size=8), st.sampled_from(list(tars.FORMATS))
)
def test_against_tarfile(tmp_path, given_members, form):
    """All kinds of members; links lead to earlier members or nothing."""
    path = tmp_path / "any.tar"
    earlier = []
    with tarfile.open(path, "w", format=tars.FORMATS[form], encoding="utf-8", errors="surrogateescape") as tar:
        for name, data, kind, mtime in given_members:
            link = earlier[len(data) % len(earlier)] if earlier else "none"
            if kind == tarfile.LNKTYPE and not earlier:
                continue
            try:
                # In the oldest archives a slash makes a directory, of which tarfile does not skip the data.
                holds = kind in b"07" or (kind == b"\0" and not name.endswith("/"))
                tars.add(tar, name, data if holds else b"", kind, link if kind in b"12" else "", mtime)
            except ValueError:
                continue  # ustar has no room for such a name
            if kind in b"\x0007":
                earlier.append(tar.getmembers()[-1].name)
    expected = []
    with tarfile.open(path, encoding="utf-8", errors="surrogateescape") as tar:
        for info in tar:
            # A link's target may be found under a name that a directory has, too; such archives prove nothing.
            # What is old and ends in a slash is a directory, which Python 3.15 says of the oldest archives only.
            old = info.type == tarfile.AREGTYPE and info.name.endswith("/")
            if (info.isreg() and not old) or info.islnk():
                expected.append((info.name, info))
        with TarReader(path) as reader:
            assert list(reader.keys()) == [
                os.fsdecode(os.fsencode(name)) for name, info in expected if is_file(tar, info)
            ]
            for i, (_, info) in enumerate(each for each in expected if is_file(tar, each[1])):
                assert reader.read_one(i).tobytes() == tar.extractfile(info).read()


def is_file(tar, info):
    """Whether it is a file, or a link that leads to one."""
    while info.islnk():
        info = tar._find_link_target(info)
    return info.isreg()


def test_old_headers(tmp_path):
    """Of the seventh edition: no magic, directories by a slash; octal digits in every padding."""
    old = {"magic": b"", "kind": b"\0"}
    path = tars.write(
        tmp_path / "v7.tar",
        tars.header(b"dir/", 0, **old),
        tars.header(b"dir/a", b"          5 ", **old) + tars.padded(b"01234"),
        tars.header(b"dir/b", b"000000000003", **old) + tars.padded(b"012"),
        tars.header(b"dir/c", b"\0" * 12, **old),
        tars.header(b"n" * 100, b"2 \0", **old) + tars.padded(b"01"),
    )
    expected = [("dir/a", b"01234"), ("dir/b", b"012"), ("dir/c", b""), ("n" * 100, b"01")]
    assert read(path) == expected == tars.listed(path)


def test_prefixes(tmp_path):
    """A prefix counts in POSIX's header, a shorter one in star's, and in GNU's it is no prefix."""
    path = tars.write(
        tmp_path / "a.tar",
        tars.member(b"a", b"1", prefix=b"p/q"),
        tars.member(b"b", b"2", magic=b"ustar  \0", prefix=b"12345670123"),
        tars.member(b"c", b"3", prefix=b"p", at_476=b"00000000000\0", at_508=b"tar\0"),
        tars.member(b"d", b"4", prefix=b"p" * 155),
    )
    assert [name for name, _ in read(path)] == ["p/q/a", "b", "p/c", "p" * 155 + "/d"]


def test_sums_of_signed_bytes(tmp_path):
    block = bytearray(tars.header("\xe9t\xe9".encode("latin-1"), 1))
    block[148:156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 256 - 2 * 256)
    path = tars.write(tmp_path / "sun.tar", block, tars.padded(b"x"))
    assert read(path) == [("\udce9t\udce9", b"x")] == tars.listed(path)


def test_base_256(tmp_path):
    path = tars.write(tmp_path / "a.tar", tars.header(b"a", b"\x80" + (3).to_bytes(11, "big")) + tars.padded(b"abc"))
    assert read(path) == [("a", b"abc")]


def test_eight_gibibytes(tmp_path):
    """In a sparse file: only its ends are there."""
    path, size = tmp_path / "big.tar", (8 << 30) + 5
    with open(path, "wb") as file:
        file.write(tars.header(b"big", b"\x80" + size.to_bytes(11, "big")))
        file.seek(512 + tars.padded(b"").__len__() + (size + 511) // 512 * 512)
        file.write(tars.member(b"after", b"here") + tars.END)
    with TarReader(path) as reader:
        assert reader.keys() == ["big", "after"]
        assert reader.read_one(1).tobytes() == b"here"
        assert reader._files[0].sizes.tolist() == [size, 4]


def test_extensions_in_any_order(tmp_path):
    """Where several extensions say the same, the first one counts, as in tarfile."""
    path = tars.write(
        tmp_path / "a.tar",
        tars.pax(b"g", comment=b"by git"),
        tars.long_name(b"long") + tars.pax(path=b"other") + tars.member(b"a", b"1"),
        tars.pax(path=b"pax") + tars.long_name(b"other") + tars.member(b"b", b"2"),
        tars.pax(mtime=b"1.5") + tars.pax(b"g", comment=b"2") + tars.member(b"c", b"3"),
        tars.pax(path=b"last", size=b"4") + tars.header(b"d", 0) + tars.padded(b"4444"),
        tars.long_name(b"x" * 300) + tars.long_name(b"long", b"K") + tars.header(b"e", 0, b"1", b"cut"),
        tars.member(b"f", b"5"),
    )
    expected = [("long", b"1"), ("pax", b"2"), ("c", b"3"), ("last", b"4444"), ("x" * 300, b"1"), ("f", b"5")]
    assert read(path) == expected == tars.listed(path)


def test_last_of_repeated_records(tmp_path):
    data = tars.record(b"path", b"first") + tars.record(b"path", b"second/") + bytes(7)
    path = tars.write(tmp_path / "a.tar", tars.member(b"x", data, kind=b"x"), tars.member(b"a", b"1"))
    assert read(path) == [("second", b"1")]


def test_links_lead_to_data(tmp_path):
    path = tars.write(
        tmp_path / "a.tar",
        tars.member(b"a", b"old"),
        tars.header(b"symbolic", 0, b"2", b"a"),
        tars.header(b"l1", 0, b"1", b"a"),
        tars.member(b"a", b"newer"),
        tars.header(b"l2", 0, b"1", b"l1"),
        tars.header(b"l3", 700, b"1", b"a"),  # a size there says nothing about what follows
        tars.header(b"l4", 0, b"1", b"symbolic"),
        tars.header(b"l5", 0, b"1", b"./l1"),
        tars.member(b"end", b"."),
    )
    expected = [
        ("a", b"old"),
        ("l1", b"old"),
        ("a", b"newer"),
        ("l2", b"old"),
        ("l3", b"newer"),
        ("l5", b"old"),
        ("end", b"."),
    ]
    assert read(path) == expected
    with TarReader(path) as reader:
        assert reader.keys().find("a") == 2


def test_ends_of_archives(tmp_path):
    """The end may be missing, or not a whole block; what comes after it is not looked at, unless asked for."""
    two = tars.member(b"a", b"1") + tars.header(b"b", 3) + b"222"
    whole = tars.padded(two)
    expected = [("a", b"1"), ("b", b"222")]
    for number, end in enumerate(
        (b"", bytes(100), bytes(512), tars.END, tars.END + b"garbage" * 99, bytes(512) + b"x")
    ):
        assert read(tars.write(tmp_path / f"{number}.tar", whole, end)) == expected
    assert read(tars.write(tmp_path / "short.tar", two)) == expected
    twice = tars.write(tmp_path / "cat.tar", whole, tars.END, whole, tars.END)
    assert read(twice) == expected
    assert read(twice, ignore_zeros=True) == 2 * expected == tars.listed(twice, ignore_zeros=True)
    assert read(tars.write(tmp_path / "none.tar", bytes(10240))) == []
    assert read(tars.write(tmp_path / "g.tar", tars.pax(b"g", comment=b"x"), tars.END)) == []


def test_many_members_of_all_sizes(tmp_path):
    """Beyond what is read at once, in both ways of reading."""
    files = [(f"{i:05d}", bytes([i % 251]) * (i * 7919 % (1 << i % 19))) for i in range(1200)]
    path = tars.archive(tmp_path / "a.tar", files, "ustar")
    assert read(path) == files
    fd = os.open(path, os.O_RDONLY)
    try:
        scan = _tar.Scan(fd, os.path.getsize(path))
        assert scan.run() and scan.n == 1200 and scan.problem is None
        assert scan.reads < 1200
    finally:
        os.close(fd)


def test_hops_over_large_members(tmp_path):
    """Of an archive of 300 MB, little more than the headers is read."""
    path = tmp_path / "a.tar"
    with open(path, "wb") as file:
        for i in range(300):
            file.write(tars.header(b"%d" % i, 1 << 20))
            file.seek(1 << 20, os.SEEK_CUR)
        file.truncate()
    fd = os.open(path, os.O_RDONLY)
    try:
        scan = _tar.Scan(fd, os.path.getsize(path))
        assert scan.run() and scan.n == 300
        assert 300 <= scan.reads < 320
    finally:
        os.close(fd)


# The one interface of stores


def test_store(path):
    with TarReader(path) as reader:
        assert reader.format == "tar" and reader.checksum is None and reader.fnames == [path]
        assert len(reader) == 4 and reader.keys() == [name for name, _ in FILES]
        assert [record.tobytes() for record in reader.read([3, 0, -1])] == [FILES[i][1] for i in (3, 0, 3)]
        data, offsets = reader.read_packed([1, 2, 0])
        assert data.tobytes() == FILES[1][1] + FILES[0][1] and offsets.tolist() == [0, 1280, 1280, 1285]
        sample = reader.sample(0)
        assert sample["key"] == "a.txt" and sample["data"].tobytes() == b"alpha"
        with pytest.raises(IndexError, match="4 >= 4"):
            reader.read_one(4)
    with pytest.raises(ValueError, match="TarReader has been closed"):
        reader.read_one(0)


def test_several_archives(tmp_path, path):
    second = tars.archive(tmp_path / "b.tar", [("a.txt", b"again")], "ustar")
    for source in ([path, second], tmp_path, str(tmp_path / "?.tar")):
        with TarReader(source) as reader:
            assert reader.keys() == [name for name, _ in FILES] + ["a.txt"]
            assert reader.read_one(-1).tobytes() == b"again" and reader.locate(-1) == (second, 0)
    os.truncate(second, 513)
    with (
        TarReader([path, second], on_error="skip") as reader,
        pytest.raises(FFRecordError, match=r"b\.tar: member 'a\.txt'"),
    ):
        reader.read_one(4)


def test_as_files(tmp_path):
    """By name, listed, opened and unpacked; as `tar cf x.tar .` names them, too."""
    for dot in ("", "./"):
        path = tmp_path / f"{len(dot)}.tar"
        with tarfile.open(path, "w") as tar:
            for folder in (dot + "d", dot + "none") if dot else ("d", "none"):
                tars.add(tar, folder, kind=tarfile.DIRTYPE)
            for name, data in (("a.txt", b"old"), ("d/b", b"beta"), ("a.txt", b"alpha")):
                tars.add(tar, dot + name, data)
        with TarReader(path) as reader:
            assert reader.list() == ["a.txt", "d", "none"] and reader.list("d") == ["b"] and reader.list("none") == []
            assert reader.read("a.txt").tobytes() == b"alpha" == reader.read_one("./a.txt").tobytes()
            assert [record.tobytes() for record in reader.read(["d/b", f"{dot}a.txt"])] == [b"beta", b"alpha"]
            assert reader.is_dir("d") and not reader.exists("none/x") and reader.size("d/b") == 4
            with reader.open("d/b") as file:
                assert file.seek(1) == 1 and file.read() == b"eta"
            with pytest.raises(FileNotFoundError):
                reader.read("b")
            reader.unpack(tmp_path / f"out{len(dot)}")
        out = tmp_path / f"out{len(dot)}"
        assert (out / "a.txt").read_bytes() == b"alpha" and (out / "d" / "b").read_bytes() == b"beta"
        assert (out / "none").is_dir()


def test_pickles_and_refuses_changed_files(tmp_path, path):
    reader = TarReader(path, io="pread", ignore_zeros=True)
    again = pickle.loads(pickle.dumps(reader))
    assert again.keys() == reader.keys() and again.io == "pread" and again._options()["ignore_zeros"]
    state = pickle.dumps(reader)
    tars.archive(tmp_path / "a.tar", [("a.txt", b"other")])
    with pytest.raises(FFRecordError, match="differ"):
        pickle.loads(state)


def test_index_is_kept(tmp_path, path, monkeypatch):
    cache = tmp_path / "cache"
    assert read(path, index_cache=cache) == FILES

    def look_again(*arguments):
        raise AssertionError("looked through again")

    monkeypatch.setattr(tar_index, "_build", look_again)
    assert read(path, index_cache=cache) == FILES
    with pytest.raises(AssertionError, match="again"):
        read(path, index_cache=cache, ignore_zeros=True)  # another index
    monkeypatch.undo()
    tars.archive(path, FILES[:2])
    assert read(path, index_cache=cache) == FILES[:2]


def test_scans_are_beside_each_other(tmp_path, monkeypatch):
    """Archives are looked through at once; none waits for another."""
    paths = [tars.archive(tmp_path / f"{i}.tar", FILES) for i in range(3)]
    together, build = threading.Barrier(3, timeout=20), tar_index._build

    def meet(*arguments):
        together.wait()
        return build(*arguments)

    monkeypatch.setattr(tar_index, "_build", meet)
    assert read(paths) == 3 * FILES


# What is refused


DAMAGED = {
    "empty": (b"", "the file is empty"),
    "none": (b"no archive at all" * 99, "begins with 6e 6f 20 61"),
    "checksum": (tars.member(b"a") + b"\1" + tars.member(b"b")[1:], "offset 512: checksum 0o.*, stored 0o"),
    "no checksum": (tars.member(b"a") + b"x" * 512, "offset 512: checksum 0o.*, stored none"),
    "size of letters": (tars.header(b"a", b"12x45678901\0"), "its size is not a number"),
    "size and more": (tars.header(b"a", b"12 45678901\0"), "its size is not a number"),
    "negative size": (tars.header(b"a", b"\xff" * 12), "its size is not a number"),
    "size of 2**80": (tars.header(b"a", b"\x80\1" + bytes(10)), "its size is not a number"),
    "size of 2**62": (tars.header(b"a", b"\x80" + (1 << 62).to_bytes(11, "big")), "its size is not a number"),
    "pax size": (tars.pax(size=b"-1") + tars.member(), "pax header"),
    "pax size, long": (tars.pax(size=b"9" * 19) + tars.member(), "pax header"),
    "pax length": (tars.member(b"x", b"99 path=a\n", kind=b"x") + tars.member(), "pax header"),
    "pax length 0": (tars.member(b"x", b"0 path=a\n", kind=b"x") + tars.member(), "pax header"),
    "pax without line end": (tars.member(b"x", b"9 path=ab", kind=b"x") + tars.member(), "pax header"),
    "pax without value": (tars.member(b"x", b"7 path\n", kind=b"x") + tars.member(), "pax header"),
    "pax and more": (tars.member(b"x", b"9 path=a\n\0x", kind=b"x") + tars.member(), "pax header"),
    "NUL in a name": (tars.pax(path=b"a\0b") + tars.member(), "pax header"),
    "global sparse": (tars.pax(b"g", GNU_sparse_major=b"1") + tars.member(b"holes"), "global pax header"),
    "volume": (tars.member(b"rest", b"abc", kind=b"M"), "member 'rest': the file continues from another volume"),
    "global path": (tars.pax(b"g", path=b"all") + tars.member(), "global pax header"),
    "global size": (tars.pax(b"g", size=b"1") + tars.member(), "global pax header"),
    "only an extension": (tars.long_name(b"long"), "no member follows this extension header"),
    "end after an extension": (tars.pax(path=b"x") + tars.END, "no member follows this extension header"),
    "long extension": (tars.header(b"x", 9 << 20, b"x"), "9437184 bytes, expected at most 8388608"),
    "long name": (tars.long_name(b"n" * 70_000) + tars.member(), "a name is too long, expected at most 65536 bytes"),
    "link to nothing": (tars.header(b"l", 0, b"1", b"gone"), "'l' at offset 0 is a hard link to 'gone'"),
    "link to itself": (tars.header(b"l", 0, b"1", b"l"), "'l' at offset 0 is a hard link to 'l'"),
    "link to a later": (tars.header(b"l", 0, b"1", b"a.txt") + tars.member(), "no member before it"),
}
CUT = {
    "data": (tars.header(b"a", 600) + bytes(512), "member 'a': it has 600 bytes from offset 512 on, 512 are left"),
    "header": (tars.member(b"a") + tars.member(b"b")[:300], "in a header at offset 512, of 512 bytes; .* ends at 812"),
    "extension": (tars.header(b"x", 600, b"x") + bytes(99), "extension header at offset 0, with 600 bytes from 512 on"),
    "huge": (tars.header(b"a", b"\x80" + ((1 << 62) - 1).to_bytes(11, "big")), "4611686018427387903 bytes"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_refused(tmp_path, case):
    data, message = DAMAGED[case]
    path = tars.write(tmp_path / "bad.tar", data)
    for options in ({}, {"on_error": "skip"}):
        with pytest.raises(FormatError, match=message) as caught:
            TarReader(path, **options)
        assert path in str(caught.value)


@pytest.mark.parametrize("case", CUT)
def test_cut_archives(tmp_path, case, caplog):
    data, message = CUT[case]
    path = tars.write(tmp_path / "cut.tar", tars.member(b"first", b"1"), data)
    shifted = message.replace("offset 512", "offset 1536").replace("812", "1836").replace("offset 0,", "offset 1024,")
    shifted = shifted.replace("from 512", "from 1536")
    with pytest.raises(TruncatedError, match=shifted):
        TarReader(path)
    # What is there can be had by who says so.
    with TarReader(path, on_error="skip") as reader:
        assert reader.read_one(0).tobytes() == b"1"
        assert reader.read(range(len(reader)))[0].tobytes() == b"1"
        if case in ("data", "huge"):
            with pytest.raises(FFRecordError, match="member 'a'"):
                reader.read_one(-1)
    assert "everything before it can be read" in caplog.text


def test_archives_without_the_zeros_at_their_end(tmp_path, caplog):
    """Which tell a cut between two members from the end."""
    data = tars.member(b"first", b"1") + tars.member(b"a", b"x" * 300)
    for end in (b"\0" * 1024, b"\0" * 512, b"\0" * 10, b""):
        caplog.clear()
        path = tmp_path / "cut.tar"
        path.write_bytes(data + end)
        with TarReader(path) as reader:
            assert len(reader) == 2
        assert [member.name for member in iter_members(path)] == ["first", "a"]
        told = [] if end else ["cut.tar: 2 members in 2048 bytes, but no zeros at its end"] * 2
        assert len(caplog.messages) == len(told)
        assert all(wanted in message for wanted, message in zip(told, caplog.messages, strict=True))
    path.write_bytes(data + b"\0" * 512 + data)
    with TarReader(path, ignore_zeros=True) as reader:
        assert len(reader) == 4
    assert "4 members in 4608 bytes, but no zeros" in caplog.messages[-1]


def test_compressed_archives_are_named(tmp_path):
    for suffix in ("gz", "bz2", "xz"):
        path = tars.archive(tmp_path / f"a.tar.{suffix}", FILES, mode=f"w:{suffix}")
        with pytest.raises(FormatError, match=rf"{suffix}: the archive is compressed by .*iter_members.*convert"):
            TarReader(path)


def test_no_files(tmp_path):
    os.mkfifo(tmp_path / "fifo.tar")
    with pytest.raises(FileNotFoundError):
        TarReader(tmp_path / "none.tar")
    with pytest.raises(ValueError, match="not a file"):
        TarReader(tmp_path / "fifo.tar")
    with pytest.raises(ValueError, match="no file in this directory"):
        TarReader(tmp_path)
    with pytest.raises(ValueError, match="io is"):
        TarReader(tars.archive(tmp_path / "a.tar", FILES), io="fast")


def test_cut_while_open(path):
    with TarReader(path) as reader:
        os.truncate(path, 1000)
        with pytest.raises(FFRecordError, match="member"):
            reader.read(range(4))


def test_nothing_leaks(path, tmp_path, nothing_leaks):
    bad = tars.write(tmp_path / "bad.tar", DAMAGED["checksum"][0])
    for source in (path, bad, [path, bad]):
        try:
            TarReader(source).close()
        except FormatError:
            assert source != path


# Any bytes

SEED = (
    tars.pax(path=b"dir/a.txt", mtime=b"1.5")
    + tars.member(b"a", b"1" * 600)
    + tars.long_name(b"n" * 120)
    + tars.member(b"b", b"2")
    + tars.header(b"l", 0, b"1", b"dir/a.txt")
    + tars.header(b"c", b"\x80" + (3).to_bytes(11, "big"))
    + tars.padded(b"333")
    + tars.END
)


def check(path, data):
    """Opens and can be read, or is refused."""
    path.write_bytes(data)
    try:
        with TarReader(path, io="pread") as reader:
            assert sum(map(len, reader)) <= len(data) * max(1, len(reader))
            assert len(list(reader.keys())) == len(reader)
    except FFRecordError:
        pass


def fixed(data):
    """The same with right checksums, so that more than the checksum is looked at."""
    blocks = [data[i : i + 512] for i in range(0, len(data), 512)]
    return b"".join(
        tars.summed(block) if len(block) == 512 and block[257:262] == b"ustar" else block for block in blocks
    )


def fuzz(path, count, seed):
    for number, data in enumerate(mutants(SEED, count, seed)):
        check(path, fixed(data) if number % 4 else data)


def test_mutants(tmp_path):
    fuzz(tmp_path / "m.tar", 500, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_more_mutants(tmp_path, seed):
    fuzz(tmp_path / "m.tar", 50_000, seed)


def test_every_length(tmp_path):
    for size in range(0, len(SEED), 37):
        check(tmp_path / "c.tar", SEED[:size])


@pytest.mark.long
def test_every_byte(tmp_path):
    for at in range(len(SEED)):
        for bit in (0, 4, 7):
            data = bytearray(SEED)
            data[at] ^= 1 << bit
            check(tmp_path / "f.tar", bytes(data))
            check(tmp_path / "f.tar", fixed(data))


def test_headers_take_whole_blocks():
    headers = _tar.Headers()
    with pytest.raises(ValueError, match="511 bytes, expected 512"):
        headers.block(bytes(511))
    assert headers.block(tars.header(b"x", 5, b"L")) == _tar.EXTENSION and headers.pending
    with pytest.raises(ValueError, match="4 bytes, expected 5"):
        headers.extension(b"abcd")
    assert headers.extension(b"name\0") == _tar.EXTENSION
    assert headers.block(tars.header(b"y", 5)) == _tar.MEMBER and headers.name == b"name" and not headers.pending
    assert headers.block(bytes(512)) == _tar.END


SPARSE_MAP = tars.header(b"holes", 3, kind=b"S", magic=b"ustar  \0", at_482=b"\1")
SPARSE = {
    "gnu": tars.member(b"holes", b"abc", kind=b"S", magic=b"ustar  \0"),
    "gnu, long map": SPARSE_MAP + bytes(504) + b"\1" + bytes(7) + bytes(512) + tars.padded(b"abc"),
    "pax": tars.pax(GNU_sparse_major=b"1", path=b"GNUSparseFile.0/holes", GNU_sparse_name=b"holes")
    + tars.member(b"GNUSparseFile.0/holes", b"abc"),
}


@pytest.mark.parametrize("kind", SPARSE)
def test_only_sparse_members_cannot_be_read(tmp_path, kind):
    linked = tars.header(b"b.link", kind=b"1", link=b"holes")
    data = tars.member(b"a", b"1") + SPARSE[kind] + linked + tars.member(b"c", b"2") + tars.END
    path = tars.write(tmp_path / "a.tar", data)
    with TarReader(path) as reader:
        assert list(reader.keys()) == ["a", "holes", "b.link", "c"]
        assert [each.tobytes() for each in reader.read([0, 3])] == [b"1", b"2"]
        for index in (1, 2):
            for read in (reader.read_one, reader.open, lambda i: reader.read([0, i])):
                with pytest.raises(
                    FormatError, match=r"a\.tar: member '(holes|b\.link)': it is a sparse file, which is not supported"
                ):
                    read(index)
    with TarReader(path, on_error="skip") as reader:
        assert b"".join(each.tobytes() for each in reader) == b"12" and reader.skipped == 2
    cut = tars.write(tmp_path / "cut.tar", SPARSE_MAP + bytes(504) + b"\1" + bytes(7))
    with pytest.raises(FormatError, match="cut"):
        TarReader(cut)


def test_samples_with_sparse_members(tmp_path):
    fields = (
        tars.member(b"a.x", b"1") + tars.member(b"a.y", b"2", kind=b"S", magic=b"ustar  \0") + tars.member(b"b.x", b"3")
    )
    with WebDatasetReader(tars.write(tmp_path / "a.tar", fields + tars.END)) as reader:
        assert reader.sample(1)["x"].tobytes() == b"3"
        with pytest.raises(FormatError, match=r"Sample 0: .*a\.tar: sample 'a': a member: it is a sparse file"):
            reader.samples([1, 0])


def test_pax_headers_of_odd_programs(tmp_path):
    """As Python reads them, too: a key without a value says nothing, and there may be empty lines."""
    lines = tars.record(b"path", b"z") + b"\n"
    parts = [tars.pax(size=b""), tars.member(b"a", b"1"), tars.member(b"x", lines, kind=b"x"), tars.member(b"b", b"2")]
    assert read(tars.write(tmp_path / "a.tar", *parts, tars.END)) == [("a", b"1"), ("z", b"2")]

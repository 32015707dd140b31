"""Archives unpacked to a new directory, and nowhere else."""

import io
import os
import tarfile
from pathlib import Path

import children
import pytest
from trees import FILES, READERS, packed_folder, stored_zip
from zip_builders import Raw, raw, zipped

from ffrecord import PackedFolder
from ffrecord.errors import ArgumentError, ChecksumError, FormatError, MissingFileError, NotAFileError
from ffrecord.folders import safe_unpack
from ffrecord.sources.unpacking import unpack
from ffrecord.sources.zip.reader import ZipReader


def tree(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.fixture
def zip_of(tmp_path):
    def make(members):
        data = raw(members) if members and isinstance(members[0], Raw) else zipped(members)
        (tmp_path / "a.zip").write_bytes(data)
        return tmp_path / "a.zip"

    return make


@pytest.mark.parametrize("make", [*READERS.values(), lambda tmp_path: PackedFolder(packed_folder(tmp_path))])
def test_all_files(tmp_path, make, monkeypatch):
    told = []
    for limits in ({}, {"STREAMED": 100}, {"AT_ONCE": 1}, {"FILES_AT_ONCE": 2}):
        for name, value in limits.items():
            monkeypatch.setattr(safe_unpack, name, value)
        target = tmp_path / f"out {limits}"
        told.clear()
        with make(tmp_path) as store:
            done = store.unpack(target, on_file=lambda *numbers: told.append(numbers))
        assert told == [(done, len(FILES)) for done in range(1, len(FILES) + 1)]
        assert done == (str(target), len(FILES), sum(map(len, FILES.values())))
        assert tree(target) == FILES and (target / "b/empty").is_dir()
        monkeypatch.undo()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".unpacking")]
    assert (target / "a.txt").stat().st_mode & 0o7777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_by_path_and_tar(tmp_path):
    unpack(stored_zip(tmp_path), tmp_path / "one")
    unpack(Path(packed_folder(tmp_path)), tmp_path / "two")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "two", ".")
    told = []
    done = unpack(tmp_path / "a.tar", tmp_path / "three", on_file=lambda *numbers: told.append(numbers))
    assert told == [(done, 5) for done in range(1, 6)]
    assert tree(tmp_path / "one") == tree(tmp_path / "two") == tree(tmp_path / "three") == FILES and done.files == 5
    unpack(tmp_path / "a.tar", tmp_path / "four", paths=["./a.txt"])
    assert tree(tmp_path / "four") == {"a.txt": b"first"}
    with pytest.raises(MissingFileError, match="none does not exist in"):
        unpack(tmp_path / "a.tar", tmp_path / "five", paths=["none"])
    with pytest.raises(TypeError, match=r"paths is str .*, expected a list of paths"):
        unpack(tmp_path / "a.tar", tmp_path / "five", paths="./a.txt")
    with pytest.raises(TypeError, match=r"source is int \d+, expected a path or a reader of an archive"):
        unpack(5, tmp_path / "five")
    assert not (tmp_path / "five").exists()


def test_what_is_not_there_is_named(tmp_path):
    with READERS["stored"](tmp_path) as store:
        with pytest.raises(FileNotFoundError, match="the directory of the target does not exist") as caught:
            store.unpack(tmp_path / "missing/deeper/out")
        assert caught.value.filename == str(tmp_path / "missing/deeper")
        with pytest.raises(NotAFileError, match="b is not a file but a directory"):
            store.unpack(tmp_path / "out", paths=["b"])


@pytest.mark.parametrize("make", [READERS["stored"], lambda tmp_path: PackedFolder(packed_folder(tmp_path))])
def test_chosen_paths(tmp_path, make):
    with make(tmp_path) as store:
        assert unpack(store, tmp_path / "out", paths=["b/y/z", Path("./a.txt")]).files == 2
        assert tree(tmp_path / "out") == {"b/y/z": b"", "a.txt": b"first"} and not (tmp_path / "out/b/empty").exists()
        with pytest.raises(MissingFileError):
            unpack(store, tmp_path / "other", paths=["a.txt", "none"])
        with pytest.raises(TypeError, match=r"paths is str .*, expected a list of paths; write \['a\.txt'\]"):
            unpack(store, tmp_path / "other", paths="a.txt")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "name, wrong",
    [
        (b"/etc/x", "it is absolute"),
        (b"//x", "it is absolute"),
        (b"\\x", "it is absolute"),
        (b"../x", "it has '..'"),
        (b"a/../../x", "it has '..'"),
        (b"a/..", "it has '..'"),
        (b"..\\x", "it has '..'"),
        (b"a\\..\\x", "it has '..'"),
        (b"C:/x", "it begins with a drive letter"),
        (b"c:x", "it begins with a drive letter"),
        (b"a\0b", "it has a NUL"),
        (b".", "it names no file"),
        (b"", "it names no file"),
        (b"d/" * 300 + b"x", "it is 301 directories deep, expected at most 255"),
    ],
)
def test_names_that_lead_elsewhere(tmp_path, zip_of, name, wrong):
    archive = zip_of([Raw(b"good", b"fine"), Raw(name, b"bad")])
    with pytest.raises(FormatError, match=f"a.zip: .* cannot be the name of a file below a directory: {wrong}"):
        unpack(archive, tmp_path / "out")
    assert os.listdir(tmp_path) == ["a.zip"]


def test_folders_that_lead_elsewhere(tmp_path, zip_of):
    with pytest.raises(FormatError, match=r"it has '\.\.'"):
        unpack(zip_of([("good", b""), ("../out2/", b"")]), tmp_path / "out")
    unpack(zip_of([("./", b""), ("a/", b"")]), tmp_path / "fine")
    (tmp_path / "fine/a").rmdir()
    (tmp_path / "fine").rmdir()
    assert os.listdir(tmp_path) == ["a.zip"]


def test_names_that_are_plain_enough(tmp_path, zip_of):
    names = ["./a", "b//c", "d\\e", "...", "ff:g", "\udcff", "ü", " ", "-rf"]
    unpack(zip_of([Raw(os.fsencode(name), b"x", flags=1 << 11) for name in names]), tmp_path / "out")
    assert sorted(tree(tmp_path / "out")) == sorted(["a", "b/c", "d\\e", "...", "ff:g", "\udcff", "ü", " ", "-rf"])


@pytest.mark.parametrize("members", [["a", "a/b"], ["a/b", "a"], ["a/b/c", "a//b"]])
def test_names_that_collide(tmp_path, zip_of, members):
    with pytest.raises(
        FileExistsError, match="two names are the same on this file system, or one is a directory of the other"
    ):
        unpack(zip_of([(name, name.encode()) for name in members]), tmp_path / "out")
    assert os.listdir(tmp_path) == ["a.zip"]


def test_of_the_same_name_the_last(tmp_path, zip_of):
    done = unpack(zip_of([("a", b"old"), ("b", b"x"), ("a", b"new")]), tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": b"new", "b": b"x"} and (done.files, done.size) == (2, 4)


def test_links_are_neither_made_nor_followed(tmp_path, zip_of):
    link = Raw(b"l", str(tmp_path).encode(), made_by=20 | 3 << 8, attributes=0o120777 << 16)
    with pytest.raises(FileExistsError):
        unpack(zip_of([link, Raw(b"l/evil", b"outside")]), tmp_path / "out")
    unpack(zip_of([link]), tmp_path / "out")
    assert tree(tmp_path / "out") == {"l": str(tmp_path).encode()} and not (tmp_path / "out/l").is_symlink()
    assert not (tmp_path / "evil").exists()


def test_targets(tmp_path, zip_of):
    archive = zip_of([("a", b"x")])
    (tmp_path / "empty").mkdir()
    assert tree(Path(unpack(archive, tmp_path / "empty").path)) == {"a": b"x"}
    for name in ("empty", "a.zip"):
        with pytest.raises(FileExistsError, match="the target is not an empty directory; delete it"):
            unpack(archive, tmp_path / name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="is a symbolic link, expected an empty directory"):
        unpack(archive, tmp_path / "link")
    with pytest.raises(FileNotFoundError):
        unpack(archive, tmp_path / "none" / "out")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert sorted(os.listdir(tmp_path)) == ["a.zip", "elsewhere", "empty", "link"]


def test_sizes(tmp_path, zip_of):
    archive = zip_of([("a", bytes(60)), ("b", bytes(41))])
    with pytest.raises(FormatError, match=r"2 files have 101 bytes, expected at most 100; pass a larger max_size"):
        unpack(archive, tmp_path / "out", max_size=100)
    assert unpack(archive, tmp_path / "out", max_size=101).size == 101
    assert unpack(archive, tmp_path / "text", max_size="1k").size == 101
    with pytest.raises(FormatError, match=r"expected at most 100; pass a larger max_size"):
        unpack(archive, tmp_path / "more", max_size="0.1 kB")
    with pytest.raises(ArgumentError, match="max_size is -1, expected 0 to "):
        unpack(archive, tmp_path / "more", max_size=-1)


def test_what_is_found_while_reading_leaves_nothing(tmp_path, zip_of, monkeypatch):
    archive = zip_of([Raw(b"good", b"fine"), Raw(b"bad", b"x", crc=1)])
    for streamed in (safe_unpack.STREAMED, 0):
        monkeypatch.setattr(safe_unpack, "STREAMED", streamed)
        with pytest.raises(ChecksumError, match="member 'bad'"):
            unpack(archive, tmp_path / "out")
        assert os.listdir(tmp_path) == ["a.zip"]


def test_sizes_that_were_a_lie(tmp_path):
    with pytest.raises(FormatError, match="'a' has 3 bytes of content, expected 4"):
        safe_unpack.unpack_files(
            [("a", 4, 0)], [], lambda keys: [b"abc" for _ in keys], None, tmp_path / "out", label="a"
        )
    with pytest.raises(FormatError, match="'a' has 3 bytes of content, expected 9000000"):
        safe_unpack.unpack_files(
            [("a", 9_000_000, 0)], [], list, lambda key: io.BytesIO(b"abc"), tmp_path / "out", label="a"
        )
    assert os.listdir(tmp_path) == []


def test_names_too_long_for_the_file_system(tmp_path, zip_of):
    for name in ("x" * 300, f"{'x' * 300}/y", "x/" * 200 + "y" * 5000):
        with pytest.raises(RuntimeError, match=r"could not be created below .*out: File name too long") as told:
            unpack(zip_of([(name, b"")]), tmp_path / "out")
        assert isinstance(told.value, OSError) and len(str(told.value).partition("below")[0]) < 250
    assert os.listdir(tmp_path) == ["a.zip"]


def test_where_no_directory_can_be_made(zip_of):
    with pytest.raises(RuntimeError, match="/proc/out: a directory beside it could not be created: ") as told:
        unpack(zip_of([("a", b"x")]), "/proc/out")
    assert isinstance(told.value, OSError) and told.value.filename == "/proc/out"


def test_descriptors(tmp_path, zip_of):
    archive = zip_of([(f"{i % 7}/{i % 5}/{i}", b"x") for i in range(60)])
    with ZipReader(archive) as reader:
        before = len(children.open_files(collect=True))
        reader.unpack(tmp_path / "out")
        assert len(children.open_files()) == before
    assert len(tree(tmp_path / "out")) == 60


def test_several_ways_to_write_a_path(tmp_path, zip_of):
    done = unpack(zip_of([Raw(b"./a", b"old"), Raw(b"d//b", b"b"), Raw(b"a", b"new")]), tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": b"new", "d/b": b"b"} and done.files == 2 and done.size == 4
    with ZipReader(zip_of([Raw(b"a", b"x")])) as reader:
        assert unpack(reader, tmp_path / "twice", paths=["a", "./a", "a"], max_size=1).files == 1


def test_a_target_of_a_long_name(tmp_path, zip_of):
    """255 bytes are the most that a name has on most file systems, whatever number of characters."""
    target = tmp_path / ("档" * 85)
    assert unpack(zip_of([Raw(b"a", b"x")]), target).files == 1 and tree(target) == {"a": b"x"}

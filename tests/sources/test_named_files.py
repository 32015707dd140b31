"""Stores of named files: paths, listings, file objects; of zip archives and packed folders alike."""

import io
import pickle
import re
from pathlib import Path

import children
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import EMPTY, FILES, READERS
from zip_builders import zipped

from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    MissingFileError,
    NotAFileError,
    NotAFolderError,
)
from ffrecord.sources.archives import Archives
from ffrecord.sources.name_tree import NameTree, plain_names, plain_path
from ffrecord.sources.names import Names
from ffrecord.sources.zip.reader import ZipReader


@pytest.fixture(params=READERS)
def make(request, tmp_path):
    return lambda **options: READERS[request.param](tmp_path, **options)


@pytest.fixture
def store(make):
    with make() as opened:
        yield opened


def test_contents(store):
    assert dict(zip(store.keys(), (each.tobytes() for each in store), strict=True)) == FILES
    for name, data in FILES.items():
        assert store.read(name).tobytes() == data == store.read(Path(name)).tobytes()
        assert store.size(name) == len(data) and name in store.keys()  # noqa: SIM118
    sample = store.sample("b/x")
    assert sample["key"] == "b/x" == store.sample(Path("b/x"))["key"] and sample["data"].tobytes() == FILES["b/x"]
    with pickle.loads(pickle.dumps(store)) as copy:
        assert copy.read("c/d/e/f").tobytes() == b"deep"


def test_paths(store):
    for path in (*FILES, "./a.txt", "b//x", "c/./d/e/f", "a.txt/"):
        assert store.is_file(path) and store.exists(path) and not store.is_dir(path) and path in store
    for path in ("", ".", "b", "b/", "./c/d", EMPTY, f"{EMPTY}/"):
        assert store.is_dir(path) and store.exists(path) and not store.is_file(path)
    for path in ("/a.txt", "b/../a.txt", "..", "a", "b/emp", "a.txt/x", "\0", "\ud800", "b/y/z/0", "x" * 5000):
        assert not store.exists(path) and path not in store
    assert Path("b/x") in store and 0 not in store and store.read("b/x") not in store


def test_listing(store):
    assert store.list() == ["a.txt", "b", "b.txt", "c"] == store.list(".")
    assert store.list("b") == ["empty", "x", "y"]
    assert store.list("b", list_dir=False) == ["x"] and store.list("b", list_file=False) == ["empty", "y"]
    assert store.list(EMPTY) == []
    assert store.list(recursive=True) == [
        "a.txt", "b", "b/empty", "b/x", "b/y", "b/y/z", "b.txt", "c", "c/d", "c/d/e", "c/d/e/f",
    ]  # fmt: skip
    assert store.list("c", recursive=True, list_dir=False) == ["d/e/f"]
    with pytest.raises(MissingFileError, match="none does not exist in"):
        store.list("none")
    with pytest.raises(NotAFolderError, match=r"a\.txt is not a directory but a file"):
        store.list("a.txt")


def test_errors(store):
    for call in (store.open, store.size, store.read_one, store.read_jpeg, store.read, store.sample):
        with pytest.raises(MissingFileError, match="none does not exist in") as caught:
            call("none")
        assert caught.value.filename == "none"
        with pytest.raises(NotAFileError, match="b is not a file but a directory"):
            call("b")
        with pytest.raises((IndexError, TypeError), match=r"5|not int"):
            call(5)
    with pytest.raises(TypeError):
        store.exists(3)


@pytest.mark.parametrize("wanted", ["a.txt", Path("a.txt"), b"a.txt"])
def test_one_name_where_several_are_expected(store, wanted):
    for call in (store.samples, store.read_packed, store.read_jpegs):
        written = re.escape(repr(wanted))
        expected = rf"wanted is (str|a bytes|a \w+\.)[^;]*, expected a list of names or indices; write \[{written}\]"
        with pytest.raises(ArgumentTypeError, match=expected):
            call(wanted)


def test_file_objects(store):
    for name, data in FILES.items():
        with store.open(name) as file:
            assert isinstance(file, io.BufferedReader) and file.read() == data and file.read() == b""
            twin = io.BytesIO(data)
            for offset, whence in ((0, 0), (3, 0), (-2, 2), (1, 1), (10**6, 0), (0, 2)):
                if whence != 2 or len(data) >= 2:
                    assert file.seek(offset, whence) == twin.seek(offset, whence) == file.tell()
                    assert file.read(5) == twin.read(5)
            with pytest.raises(ValueError, match=r"negative|expected >= 0"):
                file.seek(-1)
            with pytest.raises(ValueError, match="whence"):
                file.seek(0, 7)
            assert file.readable() and file.seekable() and not file.writable()
        with pytest.raises(ValueError, match="closed"):
            file.read()
        with pytest.raises(ValueError, match="closed"):
            file.raw.readinto(bytearray(3))
    with io.TextIOWrapper(store.open("a.txt")) as text:
        assert text.read() == "first"


@given(st.lists(st.tuples(st.integers(0, 310_000), st.integers(0, 70_000)), max_size=6))
def test_reading_here_and_there(moves):
    data = FILES["b/x"]
    for opened in reading:
        for position, count in moves:
            opened.seek(position)
            assert opened.read(count) == data[position : position + count]


reading: list[io.BufferedReader] = []


@pytest.fixture(scope="module", autouse=True)
def _open_files(tmp_path_factory):
    for make in READERS.values():
        with make(tmp_path_factory.mktemp("reading")) as store:
            reading.append(store.open("b/x"))  # outlives its reader
    yield
    for file in reading:
        file.close()
    reading.clear()


def test_descriptors_are_given_back(store):
    before = len(children.open_files(collect=True))
    for name in FILES:
        with store.open(name) as file:
            file.read(1)
            file.seek(0)
            file.read(1)
    assert len(children.open_files()) == before


names = st.lists(st.sampled_from(["a", "b", "a.b", "é", "\udcff", "..", ".", ""]), min_size=1, max_size=4)


@settings(max_examples=30)
@given(st.lists(names, max_size=12), st.lists(names, max_size=3))
def test_tree_against_sets(files, folders):
    files = ["/".join(parts) for parts in files]
    folders = ["/".join(parts) + "/" for parts in folders]
    tree = NameTree(Names.of(files), Names.of(folders))
    paths = [plain_path(name) or name for name in files]
    reachable = [path for path in paths if plain_path(path)]
    parents = {*paths, *(f"{plain_path(name) or name}/" for name in folders)}
    parents = {path[:i] for path in parents for i in range(len(path)) if path[i] == "/"}
    parents = {path for path in parents if path and plain_path(path) == path}
    for name in parents | {""}:
        prefix = f"{name}/" if name else ""
        assert tree.is_dir(name)
        inside = {each[len(prefix) :].split("/")[0] for each in {*reachable, *parents} if each.startswith(prefix)}
        assert list(tree.children(name)) == sorted(inside - {""})
        for child, folder in tree.children(name).items():
            assert folder == (prefix + child in parents)
    for name, path in zip(files, paths, strict=True):
        last = max(i for i, each in enumerate(paths) if each == path)
        assert tree.find(name) == tree.find(path) == tree.find_each([path])[0] == last
    assert {path for path, _ in tree.walk("")} == {*reachable, *parents}


def test_names_that_are_plain_are_not_copied():
    names = Names.of(["a/b", "", "..", "/x", "a.b/.c/d..", "...", "."])
    assert plain_names(names) is names
    odd = Names.of(["a//b", "./", "a/../.", "/x/", "a/./b/.", "c/", "././d", "e/.//./"])
    assert list(plain_names(odd)) == ["a/b", "./", "a/../.", "/x/", "a/b", "c", "d", "e"]
    assert list(plain_names(odd, folders=True)) == ["a/b", "./", "a/../.", "/x/", "a/b/", "c/", "d", "e/"]


def test_odd_names_in_archives(tmp_path):
    """What `keys` names is in the tree, too, and read by every way to write its path; the last one if there are two."""
    path = tmp_path / "a.zip"
    path.write_bytes(zipped([("a//b", b"1"), ("a/./c", b"2"), ("./d", b"3"), ("d", b"4"), ("../e", b"5")]))
    with ZipReader(path) as reader, Archives([path]) as mounted:
        assert list(reader.keys()) == ["a//b", "a/./c", "./d", "d", "../e"]
        assert reader.list(recursive=True) == ["a", "a/b", "a/c", "d"] == mounted.list(recursive=True)
        for name, data in [("a/b", b"1"), ("a//b", b"1"), ("./a/c", b"2"), ("./d", b"4"), ("d", b"4"), ("../e", b"5")]:
            assert reader.read(name).tobytes() == reader.read([name])[0].tobytes() == data
            assert reader.open(name).read() == data


def test_deep_names(tmp_path):
    """One name of 64 KiB may be 32,767 directories."""
    deep = "d/" * 255
    tree = NameTree(Names.of([f"{deep}file"]), Names.of([]))
    assert sum(1 for _ in tree.walk("")) == 256 and tree.find(f"./{deep}/file") == 0
    deeper = "d/" * 32_767 + "x"
    path = tmp_path / "a.zip"
    path.write_bytes(zipped([(deeper, b"here")]))
    with ZipReader(path) as reader, Archives([path]) as mounted:
        for each in (reader, mounted):
            with pytest.raises(FormatError, match=r"256 directories deep in '', expected at most 255"):
                each.list(recursive=True)
            assert each.list() == each.list("d/d/d") == ["d"] and each.read(deeper).tobytes() == b"here"


def jpegs():
    image = pytest.importorskip("PIL.Image")
    made = {}
    for mode, colour in (("RGB", (250, 10, 90)), ("L", 77), ("CMYK", (10, 200, 30, 40))):
        out = io.BytesIO()
        image.new(mode, (24, 16), colour).save(out, "JPEG", quality=95)
        made[mode] = out.getvalue()
    return made


@pytest.fixture
def pictures(tmp_path, monkeypatch, request):
    monkeypatch.setattr("trees.FILES", {**jpegs(), "text": b"no JPEG", "cut": jpegs()["RGB"][:300]})
    monkeypatch.setattr("trees.EMPTY", "empty")
    with READERS[request.param](tmp_path) as store:
        yield store


@pytest.mark.parametrize("pictures", READERS, indirect=True)
def test_jpegs(pictures):
    pillow = pytest.importorskip("PIL.Image")
    twins = {name: pillow.open(io.BytesIO(data)).convert("RGB") for name, data in jpegs().items()}
    for name, twin in twins.items():
        pixels = pictures.read_jpeg(name)
        assert pixels.shape == (16, 24, 3) and pixels.flags.writeable
        assert abs(pixels.astype(int) - [[twin.getpixel((x, y)) for x in range(24)] for y in range(16)]).max() <= 2
    assert pictures.read_jpeg("L", grey=True).shape == (16, 24)
    for threads in (None, 1, 3):
        many = pictures.read_jpegs(["L", "RGB", "CMYK", "L"] * 8, threads=threads, grey=True)
        assert [each.shape for each in many] == [(16, 24)] * 32
        with pytest.raises(FormatError, match=r"'text': 7 bytes that begin with b'no J', expected a JPEG"):
            pictures.read_jpegs(["L", "text"], threads=threads)
    with pytest.raises(FormatError, match=r"'cut': .* a JPEG of 300 bytes"):
        pictures.read_jpeg("cut")
    with pytest.raises(ArgumentError, match="threads is 0"):
        pictures.read_jpegs(["L"], threads=0)
    with pytest.raises(TypeError, match=r"threads is str .*, expected an int"):
        pictures.read_jpegs(["L"], threads="x")
    assert pictures.read_jpegs([]) == []

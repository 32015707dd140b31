"""PackedFolder: names, reading, errors, pickles."""

import copy
import hashlib
import json
import os
import pickle
import re
from collections import OrderedDict
from pathlib import Path, PurePath

import children
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ffrecord
from ffrecord import FileReader, FileWriter, FormatError
from ffrecord.errors import escape_unprintable
from ffrecord.folders.folder import MAGIC_BYTES, PackedFolder, pack_folder
from ffrecord.format.folder_index import encode_index

GOLDEN = Path(__file__).parents[1] / "golden/ffrecord"
FILES = {"a": b"1", "b/x": b"22", "b/y/z": b"", "b.txt": b"333", "c": bytes(1000)}


def write_folder(path: Path, contents: list[bytes], structure: OrderedDict) -> Path:
    """A packed folder, made by hand."""
    with FileWriter(path, len(contents) + 1) as writer:
        for content in contents:
            writer.write_one(content)
        writer.write_one(encode_index(structure, "folder"))
    return path


@pytest.fixture
def path(tmp_path):
    for name, data in FILES.items():
        file = tmp_path / "folder" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (tmp_path / "folder/b/empty").mkdir()
    pack_folder(tmp_path / "folder", tmp_path / "packed.ffr")
    return tmp_path / "packed.ffr"


@pytest.fixture
def packed(path):
    with PackedFolder(path) as packed:
        yield packed


def test_golden():
    with PackedFolder(GOLDEN / "packed_folder.ffr") as packed:
        manifest = json.loads((GOLDEN / "manifest.json").read_text())["packed_folder.ffr"]
        assert packed.num_files() == 5
        assert list(packed) == ["a.txt", "sub/deep/q", "sub/z.bin", "unié.txt", "zero"]
        found = {name: hashlib.sha256(packed.read_one(name)).hexdigest() for name in packed}
        assert found | {"empty": None} == manifest["files"]
        assert packed.is_dir("empty")


def test_attributes(packed, path):
    assert isinstance(packed.reader, FileReader)
    assert packed.reader.n == 6
    assert packed.reader.check_data is True
    assert type(packed.structure) is OrderedDict
    assert type(packed.structure["b"]) is OrderedDict
    assert packed.structure["a"] == 0
    assert packed.num_files() == len(packed) == 5
    assert repr(packed) == f"<PackedFolder of 5 files, {str(path)!r}>"


@pytest.mark.parametrize("check_data", [True, False])
@pytest.mark.parametrize("form", [str, Path, lambda path: [path], lambda path: path.parent])
def test_arguments(path, check_data, form):
    with PackedFolder(form(path), check_data) as packed:
        assert packed.reader.check_data is check_data
        assert bytes(packed.read_one("b.txt")) == b"333"
    with PackedFolder(ffr_file=form(path), check_data=check_data, io="pread") as packed:
        assert packed.reader.io == "pread"


def test_several_files(tmp_path):
    # The index is the last sample of all.
    with FileWriter(tmp_path / "0.ffr", 1) as writer:
        writer.write_one(b"first")
    with FileWriter(tmp_path / "1.ffr", 1) as writer:
        writer.write_one(encode_index(OrderedDict(a=0), "folder"))
    with FileWriter(tmp_path / "2.ffr", 0):
        pass
    with PackedFolder(tmp_path) as packed:
        assert bytes(packed.read_one("a")) == b"first"


# Reading


def test_read_one(packed):
    for name, content in FILES.items():
        data = packed.read_one(name)
        assert (data.dtype, data.ndim, data.flags.writeable) == (np.uint8, 1, True)
        assert bytes(data) == content
    assert bytes(packed.read_one(Path("b") / "x")) == b"22"
    assert bytes(packed.read_one("./b//./x/")) == b"22"


def test_read(packed):
    found = packed.read(["c", "a", Path("b/x"), "a"])
    assert [bytes(data) for data in found] == [FILES[name] for name in ("c", "a", "b/x", "a")]
    found[1][:] = 0
    assert bytes(found[3]) == b"1"
    assert packed.read([]) == packed.read(()) == []
    assert [bytes(data) for data in packed.read(("a",))] == [b"1"]


def test_read_one_path(packed):
    assert bytes(packed.read("b/x")) == bytes(packed.read(Path("b/x"))) == b"22"


@pytest.mark.parametrize("wrong", [5, None, b"a", {"a"}, iter(["a"])])
def test_read_wrong_type(packed, wrong):
    with pytest.raises(TypeError, match=r"fnames is .*, expected a list, a tuple or one path") as caught:
        packed.read(wrong)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("wrong", [5, None, b"a", ["a"]])
def test_path_of_wrong_type(packed, wrong):
    for method in (packed.read_one, packed.exists, packed.is_file, packed.is_dir):
        with pytest.raises(TypeError):
            method(wrong)
    with pytest.raises(TypeError):
        packed.read([wrong])


@pytest.mark.parametrize("name", ["x", "b/q", "a/x", "a/x/y", "/a", "/", "//a", "..", "b/..", "b/../a", "a\0", "~"])
def test_path_that_is_missing(packed, path, name):
    for read in (packed.read_one, packed.read, packed.list, lambda name: packed.read(["a", name])):
        with pytest.raises(
            FileNotFoundError, match=re.escape(escape_unprintable(f"{name} does not exist in {path}"))
        ) as caught:
            read(name)
        assert isinstance(caught.value, AssertionError)
        assert caught.value.filename == name


@pytest.mark.parametrize("name", ["b", "b/", "b/empty", ".", ""])
def test_directory_where_a_file_is_expected(packed, path, name):
    for read in (packed.read_one, packed.read, lambda name: packed.read(["a", name])):
        with pytest.raises(
            IsADirectoryError, match=re.escape(f"{name} is not a file but a directory in {path}")
        ) as caught:
            read(name)
        assert isinstance(caught.value, AssertionError)
        assert caught.value.filename == name


def test_file_where_a_directory_is_expected(packed, path):
    with pytest.raises(NotADirectoryError, match=re.escape(f"b/x is not a directory but a file in {path}")) as caught:
        packed.list("b/x")
    assert isinstance(caught.value, AssertionError)
    assert caught.value.filename == "b/x"


# Names


def test_exists(packed):
    kinds = {
        "file": ["a", "./a", "a/", "b//x", "b/y/z", "b.txt"],
        "dir": ["", ".", "./", "b", "b/", "b/y", "b/empty/."],
    }
    missing = [
        "x",
        "b/q",
        "a/x",
        "a/x/y",
        "/",
        "/a",
        "//a",
        "..",
        "../a",
        "b/..",
        "a\0",
        "A",
        "\udcff",
        "a" * 100_000,
        "a/" * 100_000 + "b",
    ]
    for name in kinds["file"]:
        assert (packed.exists(name), packed.is_file(name), packed.is_dir(name), name in packed) == (
            True,
            True,
            False,
            True,
        )
    for name in kinds["dir"]:
        assert (packed.exists(name), packed.is_file(name), packed.is_dir(name), name in packed) == (
            True,
            False,
            True,
            False,
        )
    for name in missing:
        assert (packed.exists(name), packed.is_file(name), packed.is_dir(name), name in packed) == (False,) * 4
    assert packed.exists(PurePath("b/x"))


def test_in(packed):
    assert Path("b/x") in packed
    for other in (5, None, b"a", ["a"]):
        assert other not in packed


def test_iteration(packed):
    assert list(packed) == ["a", "b/x", "b/y/z", "b.txt", "c"]
    assert all(type(name) is str and name in packed for name in packed)


def test_list(packed):
    assert packed.list() == packed.list("") == packed.list(".") == packed.list(Path("")) == ["a", "b", "b.txt", "c"]
    assert packed.list("b") == packed.list(Path("b")) == packed.list("./b/") == ["empty", "x", "y"]
    assert packed.list("b/empty") == packed.list("b/empty", recursive=True) == []
    assert packed.list(list_dir=False) == ["a", "b.txt", "c"]
    assert packed.list(list_file=False) == ["b"]
    assert packed.list(None, False, False) == []
    assert packed.list(path=None, list_file=True, list_dir=True, recursive=False) == packed.list()


def test_list_recursive(packed):
    below = [Path("b/empty"), Path("b/x"), Path("b/y"), Path("b/y/z")]
    found = packed.list(recursive=True)
    assert found == ["a", "b", *below, "b.txt", "c"]
    assert [type(name) for name in found] == [str, str, *[type(Path())] * 4, str, str]
    assert packed.list("b", recursive=True) == ["empty", "x", "y", Path("y/z")]
    assert packed.list(None, True, False, True) == ["a", below[1], below[3], "b.txt", "c"]
    assert packed.list(None, False, True, True) == ["b", below[0], below[2]]


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=5)
PATHS = st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4).map(tuple)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(PATHS, st.binary(max_size=20), max_size=10))
def test_like_a_dict(tmp_path, wanted):
    structure, contents, paths = OrderedDict(), [], {}
    for parts, content in wanted.items():
        node = structure
        for name in parts[:-1]:
            node = node.setdefault(name, OrderedDict()) if not isinstance(node.get(name), int) else None
            if node is None:
                break
        if node is not None and parts[-1] not in node:
            node[parts[-1]] = len(contents)
            paths["/".join(parts)] = content
            contents.append(content)
    with PackedFolder(write_folder(tmp_path / "x.ffr", contents, structure)) as packed:
        assert packed.structure == structure
        assert {path: bytes(packed.read_one(path)) for path in packed} == paths
        assert all(packed.is_file(path) and not packed.is_dir(path) for path in paths)
        assert all(packed.is_dir(os.path.dirname(path)) for path in paths)
        assert sorted(map(str, packed.list(list_dir=False, recursive=True))) == sorted(paths)


# Closing


def test_close(path):
    packed = PackedFolder(path)
    packed.close()
    packed.close()
    assert packed.num_files() == 5
    assert packed.is_file("a")
    assert packed.list() == ["a", "b", "b.txt", "c"]
    with pytest.raises(RuntimeError, match=r"FileReader has been closed\."):
        packed.read_one("a")


def test_with(path):
    with PackedFolder(path) as packed:
        assert packed.reader.closed is False
    assert packed.reader.closed is True


def test_refused_file_is_closed(tmp_path):
    with FileWriter(tmp_path / "x.ffr", 1) as writer:
        writer.write_one(b"no index")
    before = len(children.open_files(collect=True))
    for _ in range(3):
        with pytest.raises(ValueError, match="is not a packed folder"):
            PackedFolder(tmp_path / "x.ffr")
    assert len(children.open_files()) == before


# Files that are none


@pytest.mark.parametrize("check_data", [True, False])
def test_no_samples(tmp_path, check_data):
    path = tmp_path / "x.ffr"
    FileWriter(path, 0).close()
    with pytest.raises(ffrecord.FormatError, match=re.escape(f"{path} is not a packed folder: it has no samples")):
        PackedFolder(path, check_data)


@pytest.mark.parametrize("last", [b"", b"\0", MAGIC_BYTES[:-1], b"some sample of some other file", MAGIC_BYTES])
def test_other_file(tmp_path, last):
    path = tmp_path / "x.ffr"
    with FileWriter(path, 2) as writer:
        writer.write_one(b"")
        writer.write_one(last)
    with pytest.raises(ffrecord.FormatError, match=re.escape(f"{path} is not a packed folder: ")) as caught:
        PackedFolder(path)
    assert isinstance(caught.value, ValueError)


def test_damaged_index(path):
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ffrecord.ChecksumError, match="Sample 5: checksum mismatch:"):
        PackedFolder(path)
    with pytest.raises(ffrecord.FormatError, match="is not a packed folder: "):
        PackedFolder(path, check_data=False)


def test_damaged_file(path):
    data = bytearray(path.read_bytes())
    data[12 + 12 * 6] ^= 1
    path.write_bytes(data)
    with PackedFolder(path) as packed:
        with pytest.raises(ffrecord.ChecksumError, match="Sample 0: checksum mismatch:"):
            packed.read_one("a")
        assert bytes(packed.read_one("b/x")) == b"22"


# Pickles


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(packed, protocol):
    data = pickle.dumps(packed, protocol)
    assert b"OrderedDict" not in data
    with pickle.loads(data) as other:
        assert other.structure == packed.structure
        assert bytes(other.read_one("b/x")) == b"22"
        packed.close()
        assert bytes(other.read_one("b/x")) == b"22"


def test_closed_one_unpickles_open(packed):
    packed.close()
    with pickle.loads(pickle.dumps(packed)) as other:
        assert bytes(other.read_one("a")) == b"1"


class Images(PackedFolder):
    def __init__(self, path, size):
        super().__init__(path)
        self.size = size


def test_pickle_of_subclass(path):
    with Images(path, 5) as images, pickle.loads(pickle.dumps(images)) as other:
        assert (type(other), other.size, len(other)) == (Images, 5, 5)


def test_copies(packed):
    with copy.deepcopy(packed) as other:
        assert other.structure == packed.structure
        assert other.reader is not packed.reader
    assert copy.copy(packed).reader is packed.reader


def test_fork(packed):
    assert bytes(packed.read(["a", "b/x", "c"])[1]) == b"22"
    child = os.fork()
    if child == 0:
        os._exit(0 if bytes(packed.read(["a", "b/x", "c"])[1]) == b"22" else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_files_as_file_objects(path, packed):
    for name, data in FILES.items():
        with packed.open(name) as file:
            assert (
                file.read() == data and file.seek(1) == 1 and file.read(2) == data[1:3] and file.tell() <= len(data) + 1
            )
        assert packed.size(name) == len(data)
    assert packed.keys() == list(packed) == list(FILES)
    kept = packed.open("c")
    packed.close()
    assert kept.read() == FILES["c"]
    kept.close()
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        packed.open("none")
    with pytest.raises(IsADirectoryError, match="b is not a file"):
        packed.size("b")


def test_file_objects_compare_checksums(path):
    data = bytearray(path.read_bytes())
    data[data.rindex(b"333")] ^= 1
    path.write_bytes(data)
    wrong = pytest.raises(ffrecord.ChecksumError, match=r"packed\.ffr: sample 3: checksum mismatch: CRC-32")
    with PackedFolder(path) as packed, packed.open("b.txt") as file, wrong:
        file.read()
    with PackedFolder(path, check_data=False) as packed, packed.open("b.txt") as file:
        assert file.read() == b"233"


def test_file_objects_of_several_files(tmp_path):
    structure = OrderedDict([("a", 0), ("b", 1), ("c", 2)])
    write_folder(tmp_path / "whole.ffr", [b"1", b"22", b"333"], structure)
    with FileReader(tmp_path / "whole.ffr") as reader, FileWriter(tmp_path / "first.ffr", 2) as first:
        first.write_one(reader.read_one(0))
        first.write_one(reader.read_one(1))
        with FileWriter(tmp_path / "last.ffr", 2) as last:
            last.write_one(reader.read_one(2))
            last.write_one(reader.read_one(3))
    with PackedFolder([tmp_path / "first.ffr", tmp_path / "last.ffr"]) as packed:
        assert [packed.open(name).read() for name in "abc"] == [b"1", b"22", b"333"]
        assert [packed.size(name) for name in "abc"] == [1, 2, 3]
        assert packed.unpack(tmp_path / "out").files == 3


def test_jpegs(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    folder = tmp_path / "pictures"
    folder.mkdir()
    pillow.new("RGB", (8, 6), (9, 200, 100)).save(folder / "a.jpg")
    pillow.new("L", (5, 7), 99).save(folder / "g.jpg")
    (folder / "none").write_bytes(b"no JPEG")
    pack_folder(folder, tmp_path / "p.ffr")
    with PackedFolder(tmp_path / "p.ffr") as packed:
        assert packed.read_jpeg("a.jpg").shape == (6, 8, 3) and packed.read_jpeg("g.jpg", grey=True).shape == (7, 5)
        assert [each.shape for each in packed.read_jpegs(["g.jpg", "a.jpg"], threads=2)] == [(7, 5, 3), (6, 8, 3)]
        with pytest.raises(TypeError, match=r"fnames is str .*, expected a list of paths; write \['a\.jpg'\]"):
            packed.read_jpegs("a.jpg")
        with pytest.raises(FormatError, match=r"p\.ffr: 'none': 7 bytes that begin with b'no J', expected a JPEG"):
            packed.read_jpeg("none")

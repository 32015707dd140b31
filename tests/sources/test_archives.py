"""Directories and archives mounted one over the other."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from trees import FILES, READERS, directory, packed_folder, stored_zip, write_tree
from zip_builders import zipped

from ffrecord import FileWriter, pack_folder
from ffrecord.errors import MissingFileError, NotAFileError, NotAFolderError
from ffrecord.sources.archives import Archives
from ffrecord.sources.zip.reader import ZipReader


def one_of_each(tmp_path):
    """a: in the directory and the zip; b: in the zip and the packed folder; d/…: each has one."""
    top = write_tree(tmp_path / "top", {"a": b"directory", "d/1": b"1", "only": b"here"})
    (tmp_path / "m.zip").write_bytes(zipped([("a", b"zip"), ("b", b"zip"), ("d/2", b"2"), ("f", b"file")]))
    write_tree(tmp_path / "p", {"b": b"folder", "d/3": b"3", "f/x": b"in f", "e/g": b"deep"})
    packed = packed_folder_of(tmp_path / "p", tmp_path / "p.ffr")
    return [str(top), str(tmp_path / "m.zip"), packed]


def packed_folder_of(folder, path):
    pack_folder(folder, path)
    return str(path)


@pytest.fixture
def mounted(tmp_path):
    with Archives(one_of_each(tmp_path)) as archives:
        yield archives


def test_the_first_that_has_it_counts(mounted):
    assert mounted.read("a").tobytes() == b"directory" and mounted.read("./b").tobytes() == b"zip"
    many = mounted.read(["d/3", "a", "d/2", "b", "d/1", "a"])
    assert [each.tobytes() for each in many] == [b"3", b"directory", b"2", b"zip", b"1", b"directory"]
    assert mounted.read([]) == [] and mounted.size("a") == 9 and mounted.size("b") == 3
    for path, content in (("a", b"directory"), ("b", b"zip"), ("d/3", b"3")):
        with mounted.open(path) as file:
            assert file.read() == content and file.seek(0) == 0 and file.tell() == 0
    many[1][:] = 0
    assert mounted.read("a").tobytes() == b"directory"


def test_one_tree(mounted):
    assert mounted.list() == ["a", "b", "d", "e", "f", "only"]
    assert mounted.list("d") == ["1", "2", "3"] and mounted.list("e", recursive=True) == ["g"]
    assert mounted.list(recursive=True) == ["a", "b", "d", "d/1", "d/2", "d/3", "e", "e/g", "f", "f/x", "only"]
    assert mounted.list(list_dir=False) == ["a", "b", "only"]
    assert mounted.is_dir("d") and mounted.is_dir("") and mounted.exists("e/g") and "f/x" in mounted
    assert mounted.is_file("f") and mounted.is_dir("f") and mounted.read("f").tobytes() == b"file"
    for path in ("/a", "../top/a", "d/4", "\0", "none", "a/"):
        assert mounted.exists(path) == (path == "a/")
    assert 3 not in mounted


def test_errors(mounted):
    for call in (mounted.read, mounted.open, mounted.size, mounted.read_jpeg):
        with pytest.raises(MissingFileError, match="none does not exist in <Archives of"):
            call("none")
        with pytest.raises(NotAFileError, match="d is not a file but a directory"):
            call("d")
    with pytest.raises(MissingFileError):
        mounted.list("none")
    with pytest.raises(NotAFolderError, match="a is not a directory but a file"):
        mounted.list("a")


def test_search_paths_are_looked_into_as_they_are(mounted, tmp_path):
    (tmp_path / "top/later").write_bytes(b"new")
    assert mounted.read("later").tobytes() == b"new"
    os.unlink(tmp_path / "top/a")
    assert mounted.read("a").tobytes() == b"zip"


def test_mounting(tmp_path):
    top, archive, packed = one_of_each(tmp_path)
    with Archives() as archives:
        assert archives.list() == [] and not archives.exists("a") and repr(archives) == "<Archives of nothing>"
        archives.mount(packed)
        archives.mount(archive)
        assert archives.read("b").tobytes() == b"folder" and archives.mounted == [packed, archive]
        archives.mount(top, first=True)
        assert archives.read("a").tobytes() == b"directory"
        archives.unmount(packed)
        assert archives.read("b").tobytes() == b"zip" and archives.mounted == [top, archive]
        with pytest.raises(ValueError, match="is not mounted"):
            archives.unmount(packed)
        with pytest.raises(TypeError, match=r"source is int .*, expected a path or a reader of named files"):
            archives.mount(5)
        with ZipReader(archive) as reader:
            archives.mount(reader, first=True)
            archives.unmount(reader)
            assert reader.read("a").tobytes() == b"zip"  # theirs, and open still
    with pytest.raises(ValueError, match="Archives has been closed"):
        archives.read("a")


def test_what_cannot_be_mounted(tmp_path):
    np.savez(tmp_path / "fine.npz", a=np.zeros(3))  # is a zip
    with Archives([tmp_path / "fine.npz"]) as archives:
        assert archives.list() == ["a.npy"]
    (tmp_path / "text").write_bytes(b"neither")
    with pytest.raises(ValueError, match="text"):
        Archives([tmp_path / "fine.npz", tmp_path / "text"])
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"x")
    with pytest.raises(ValueError, match="format ffrecord cannot be mounted, expected zip or packed folder"):
        Archives([tmp_path / "a.ffr"])
    with pytest.raises(FileNotFoundError):
        Archives([tmp_path / "none"])


@pytest.mark.parametrize("spelled", [str, Path])
def test_one_source(tmp_path, spelled):
    """Not its letters, nor its records."""
    (tmp_path / "a.zip").write_bytes(zipped([("z.jpg", b"z")]))
    with Archives(spelled(tmp_path / "a.zip")) as archives, ZipReader(tmp_path / "a.zip") as reader:
        assert archives.list() == ["z.jpg"] == Archives(reader).list()
        with pytest.raises(TypeError, match=r"paths is str .*, expected a list of paths; write \['z\.jpg'\]"):
            archives.read_jpegs("z.jpg")


def test_pickle(mounted):
    with pickle.loads(pickle.dumps(mounted)) as copy:
        assert copy.mounted == mounted.mounted and copy.read("b").tobytes() == b"zip"


@pytest.mark.parametrize("make", [directory, stored_zip, packed_folder])
def test_all_are_alike(tmp_path, make):
    with Archives([make(tmp_path)]) as archives, READERS["stored"](tmp_path) as store:
        assert archives.list(recursive=True) == store.list(recursive=True)
        assert {name: archives.read(name).tobytes() for name in FILES} == FILES


def test_jpegs(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (8, 6), (9, 200, 100)).save(tmp_path / "a.jpg")
    (tmp_path / "a.zip").write_bytes(zipped([("z.jpg", (tmp_path / "a.jpg").read_bytes()), ("no.jpg", b"no")]))
    with Archives([tmp_path, tmp_path / "a.zip"]) as archives:
        assert archives.read_jpeg("a.jpg").shape == (6, 8, 3)
        first, second = archives.read_jpegs(["a.jpg", "z.jpg"])
        assert np.array_equal(first, second)
        with pytest.raises(ValueError, match=r"'no\.jpg': 2 bytes"):
            archives.read_jpegs(["a.jpg", "no.jpg"])

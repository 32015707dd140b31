import os

import pytest

from ffrecord.errors import ArgumentError
from ffrecord.sources.files import expand


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("b.tar", "a.TAR", "c.txt", ".hidden.tar"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "d.tar").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_a_source_stands_for(folder):
    assert expand("c.txt", (".tar",)) == ["c.txt"]
    assert expand(folder, (".tar",)) == [str(folder / "a.TAR"), str(folder / "b.tar")]
    assert expand("*.t*t", (".tar",)) == ["c.txt"]
    assert expand(["c.txt", "b.tar", "b.tar"], (".tar",)) == ["c.txt", "b.tar", "b.tar"]
    assert expand((folder / "c.txt", "?.TAR"), (".tar",)) == [str(folder / "c.txt"), "a.TAR"]


def test_a_name_that_looks_like_a_pattern_is_a_name_if_there_is_such_a_file(folder):
    (folder / "x[1].tar").write_bytes(b"x")
    assert expand("x[1].tar", (".tar",)) == ["x[1].tar"]


def test_what_is_not_there(folder):
    os.mkfifo("pipe")
    for source, error, text in (
        ("nowhere.tar", FileNotFoundError, "nowhere.tar does not exist"),
        ("*.zip", FileNotFoundError, r"no file matches .*\*\.zip"),
        ([], ArgumentError, "nothing to open"),
        (folder / "d.tar", ArgumentError, "no file in this directory ends in .tar or .tgz"),
        ("pipe", ArgumentError, "pipe is not a file"),
        (["*.tar"], IsADirectoryError, "d.tar is not a file"),
    ):
        with pytest.raises(error, match=text):
            expand(source, (".tar", ".tgz"))
    for source in (7, b"c.txt", ["c.txt", None]):
        with pytest.raises(TypeError, match=r"fname is .*, expected"):
            expand(source, (".tar",))

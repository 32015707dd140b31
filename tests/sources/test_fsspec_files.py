"""fsspec file systems of zip archives and packed folders."""

import pickle
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import children
import pytest
from trees import FILES, packed_folder, stored_zip

fsspec = pytest.importorskip("fsspec")
fsspec_files = pytest.importorskip("ffrecord.sources.fsspec_files")
PROTOCOLS = {"ffrecord-zip": stored_zip, "ffrecord-folder": packed_folder}


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    for made in (fsspec_files.ZipFileSystem, fsspec_files.PackedFolderFileSystem):
        fsspec.register_implementation(made.protocol, made, clobber=True)
    return request.param


@pytest.fixture
def files(protocol, tmp_path):
    made = fsspec.filesystem(protocol, fo=PROTOCOLS[protocol](tmp_path), skip_instance_cache=True)
    yield made
    made.close()


def test_reading(files, tmp_path):
    assert files.find("") == sorted(FILES) and files.ls("", detail=False) == ["a.txt", "b", "b.txt", "c"]
    assert files.ls("b/") == [
        {"name": "b/empty", "size": 0, "type": "directory"},
        {"name": "b/x", "size": len(FILES["b/x"]), "type": "file"},
        {"name": "b/y", "size": 0, "type": "directory"},
    ]
    assert files.ls("a.txt", detail=False) == ["a.txt"] and files.glob("**/f") == ["c/d/e/f"]
    assert files.isfile("a.txt") and files.isdir("b") and files.exists("c/d") and not files.exists("none")
    assert files.cat("a.txt") == b"first" and files.cat(["a.txt", "b/y/z"]) == {"a.txt": b"first", "b/y/z": b""}
    assert files.cat("b", recursive=True) == {"b/x": FILES["b/x"], "b/y/z": b""}
    assert files.cat(["a.txt", "none"], on_error="omit") == {"a.txt": b"first"}
    for start, end in ((0, 5), (3, None), (None, -4), (-7, -2), (9, 3), (10**6, None)):
        assert files.cat_file("b/x", start, end) == FILES["b/x"][start:end]
    assert files.cat_ranges(["a.txt", "b/x"], [0, 5], [2, 9]) == [b"fi", FILES["b/x"][5:9]]
    with files.open("b/x") as file:
        assert file.seek(100) == 100 and file.read(9) == FILES["b/x"][100:109]
    with files.open("a.txt", "r") as text:
        assert text.read() == "first"
    assert sorted(files.walk("c")) == [("c", ["d"], []), ("c/d", ["e"], []), ("c/d/e", [], ["f"])]
    files.get("b", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/x").read_bytes() == FILES["b/x"]
    for call in (files.info, files.cat, files.open, files.ls):
        with pytest.raises(FileNotFoundError):
            call("none")
    with pytest.raises(OSError, match="mode is 'wb', expected 'rb'"):
        files.open("new", "wb")


def test_chained_urls_and_pickle(protocol, tmp_path):
    path = PROTOCOLS[protocol](tmp_path)
    with fsspec.open(f"{protocol}://c/d/e/f::file://{path}") as file:
        assert file.read() == b"deep"
    made = fsspec.filesystem(protocol, fo=path)
    assert pickle.loads(pickle.dumps(made)).cat("a.txt") == b"first"
    assert fsspec.filesystem(protocol, fo=path) is made
    with pytest.raises(ValueError, match="only local archives can be read"):
        fsspec.filesystem(protocol, fo=path, target_protocol="s3")
    type(made).clear_instance_cache()


def test_registered_by_entry_points():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    table = project.partition('[project.entry-points."fsspec.specs"]\n')[2].partition("\n\n")[0]
    found = {}
    for line in table.splitlines():
        name, _, value = line.partition(" = ")
        found[name] = EntryPoint(name, value.strip('"'), "fsspec.specs").load()
    assert {name: made.protocol for name, made in found.items()} == {name: name for name in PROTOCOLS}


def test_without_fsspec():
    children.run(
        "import sys\nsys.modules['fsspec'] = None\nimport ffrecord\n"
        "try:\n    import ffrecord.sources.fsspec_files\n"
        'except ImportError as error:\n    assert "pip install fsspec" in str(error), error\n'
        "else:\n    raise AssertionError('no error')"
    )
    assert "fsspec" in sys.modules

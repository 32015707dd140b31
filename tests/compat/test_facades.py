"""Imports and pickles of programs written for ffrecord 1.x."""

import importlib
import inspect
import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

import ffrecord
from ffrecord import fileio, package, reader, utils
from ffrecord.dataset_writer import dump
from ffrecord.folders import folder, folder_pack
from ffrecord.format import folder_index
from ffrecord.system import filesystems
from ffrecord.writing import file_writer

GOLDEN = Path(__file__).parents[1] / "golden/ffrecord"


@pytest.mark.parametrize(
    ("module", "names", "private"),
    [
        (fileio, {"FileReader": reader, "FileWriter": file_writer, "checkFsAlign": filesystems}, ()),
        (
            package,
            {
                "MAGIC_BYTES": folder_index,
                "PackedFolder": folder,
                "dump_files": folder_pack,
                "dump_structure": folder_pack,
                "pack_folder": folder_pack,
            },
            (),
        ),
        (utils, {"dump": dump}, ()),
    ],
)
def test_names(module, names, private):
    assert sorted(module.__all__) == sorted(names)
    for name, owner in names.items():
        assert getattr(module, name) is getattr(owner, name)
    assert {name for name in vars(module) if not name.startswith("__")} == set(names)


@pytest.mark.parametrize("name", ["fileio", "package", "utils"])
def test_imported_with_the_package(name):
    script = f"import ffrecord; ffrecord.{name}"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_signatures():
    def parameters(function):
        return [
            name if parameter.default is parameter.empty else (name, parameter.default)
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is not parameter.KEYWORD_ONLY
        ]

    assert parameters(package.pack_folder) == ["folder", "out_file", ("verbose", False)]
    assert parameters(package.dump_structure) == ["folder", "structure", "counter"]
    assert parameters(package.dump_files) == ["writer", "prefix", "structure", "counter", "verbose", "n"]
    assert parameters(package.PackedFolder) == ["ffr_file", ("check_data", True)]
    assert parameters(package.PackedFolder.list) == [
        "self",
        ("path", None),
        ("list_file", True),
        ("list_dir", True),
        ("recursive", False),
    ]
    assert package.MAGIC_BYTES == b"piouhjgbr"


def text(string: str) -> bytes:
    """A str, as protocols 1 to 3 write it."""
    data = string.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def old_reader(*fnames: Path, check_data: bytes = b"\x88") -> bytes:
    """What 1.x pickled for an open reader, without protocol and end."""
    names = b"](" + b"".join(text(str(fname)) for fname in fnames) + b"e"
    return b"cffrecord.fileio\nFileReader\n" + names + check_data + b"\x86R"


def old_folder(fname: Path, structure: object) -> bytes:
    """What 1.x pickled for a packed folder."""
    inner = pickle.dumps(structure, 2)[2:-1]
    state = b"}(" + text("reader") + old_reader(fname) + text("structure") + inner + b"u"
    return b"\x80\x02cffrecord.package\nPackedFolder\n)\x81" + state + b"b."


def test_old_pickle_of_a_reader():
    with pickle.loads(b"\x80\x02" + old_reader(GOLDEN / "five.ffr", GOLDEN / "n1.ffr") + b".") as loaded:
        assert type(loaded) is ffrecord.FileReader
        assert loaded.fnames == [str(GOLDEN / "five.ffr"), str(GOLDEN / "n1.ffr")]
        assert loaded.check_data is True
        assert loaded.n == 6
        assert bytes(loaded.read_one(5)) == (GOLDEN / "n1.ffr").read_bytes()[24:]


def test_old_pickle_in_protocol_4():
    name = str(GOLDEN / "five.ffr").encode()
    data = (
        b"\x80\x04\x8c\x0fffrecord.fileio\x94\x8c\nFileReader\x94\x93\x94"
        + b"]\x94\x8c"
        + bytes([len(name)])
        + name
        + b"\x94a\x89\x86\x94R\x94."
    )
    with pickle.loads(data) as loaded:
        assert (loaded.n, loaded.check_data) == (5, False)


def test_old_pickle_of_a_folder():
    structure = folder.PackedFolder(GOLDEN / "packed_folder.ffr").structure
    with pickle.loads(old_folder(GOLDEN / "packed_folder.ffr", structure)) as loaded:
        assert type(loaded) is package.PackedFolder
        assert loaded.structure == structure
        assert bytes(loaded.read_one("a.txt")) == b"hello\n"


@pytest.mark.parametrize("structure", [OrderedDict(evil=0), {"..": 99}, None])
def test_old_pickle_of_a_folder_is_not_believed(structure):
    with pickle.loads(old_folder(GOLDEN / "packed_folder.ffr", structure)) as loaded:
        assert next(iter(loaded)) == "a.txt"


def test_old_pickle_of_what_is_no_folder():
    with pytest.raises(ValueError, match=r"five\.ffr is not a packed folder"):
        pickle.loads(old_folder(GOLDEN / "five.ffr", OrderedDict()))


@pytest.mark.parametrize("name", ["FileReader", "FileWriter", "PackedFolder", "checkFsAlign", "pack_folder"])
def test_top_level_names(name):
    assert name in ffrecord.__all__
    owner = importlib.import_module("ffrecord.package" if "older" in name else "ffrecord.fileio")
    assert getattr(ffrecord, name) is getattr(owner, name)

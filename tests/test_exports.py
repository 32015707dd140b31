"""Public names: where they are and what they are called with. Façades have test_facades.py."""

import builtins
import importlib
import inspect
import pkgutil
import re
from importlib.metadata import version
from pathlib import Path

import children
import pytest

import ffrecord
from ffrecord import FileReader, FileWriter

OWNERS = {
    "ChecksumError": "errors",
    "DatasetWriter": "dataset_writer",
    "FFRecordError": "errors",
    "FileReader": "reader",
    "FileWriter": "writing.file_writer",
    "FormatError": "errors",
    "MismatchError": "errors",
    "PackedFolder": "folders.folder",
    "Recovered": "writing.recovery",
    "Summary": "dataset_writer",
    "Task": "reading.partition",
    "WorkerError": "errors",
    "checkFsAlign": "system.filesystems",
    "convert": "conversion.converter",
    "export": "conversion.exporter",
    "open": "sources.opening",
    "pack_folder": "folders.folder_pack",
    "recover": "writing.recovery",
    "tasks": "reading.partition",
}
OF_THE_ORIGINAL = {"FileReader", "FileWriter", "PackedFolder", "checkFsAlign", "pack_folder"}
MODULES = {"fields", "fileio", "order", "package", "utils"}


# Words that programs have for things of their own.
UNSTARRED = {"Recovered", "Summary", "Task", "convert", "export", "open", "recover", "tasks"}


def test_all():
    assert {name for name in dir(ffrecord) if not name.startswith("_")} == OWNERS.keys() | MODULES
    assert set(ffrecord.__all__) == OWNERS.keys() - UNSTARRED
    assert ffrecord.__all__ == sorted(ffrecord.__all__)
    assert set(ffrecord.__all__) >= OF_THE_ORIGINAL


BEFORE_STAR = """
import utils, order  # of the program itself
from torch.utils.data import BatchSampler, IterableDataset, Sampler, default_collate as collate
own = {name: globals()[name] for name in ("utils", "order", "BatchSampler", "IterableDataset", "Sampler", "collate")}
from ffrecord import *
from ffrecord.torch import *
from ffrecord.sources import *
import builtins
assert {name for name in globals() if hasattr(builtins, name) and not name.startswith("_")} == set()
assert {name for name in own if own[name] is not globals()[name]} == set()
with open("notes.txt", "w") as file:
    file.write("as ever")
with open("notes.txt") as file:
    assert file.read() == "as ever"
assert FileReader and FileWriter and PackedFolder and Dataset and DataLoader
"""


def test_a_star_replaces_nothing_of_a_program(tmp_path):
    """Programs written for ffrecord 1.x begin so."""
    for name in ("utils", "order"):
        (tmp_path / f"{name}.py").touch()
    (tmp_path / "program.py").write_text(BEFORE_STAR)
    children.run(f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path.insert(0, '')\nimport program")


@pytest.mark.parametrize("name", ["ffrecord", "ffrecord.fields", "ffrecord.order", "ffrecord.sources"])
def test_no_star_replaces_a_builtin(name):
    assert [each for each in importlib.import_module(name).__all__ if hasattr(builtins, each)] == []


@pytest.mark.parametrize("name", OWNERS)
def test_owners(name):
    owner = importlib.import_module(f"ffrecord.{OWNERS[name]}")
    assert getattr(ffrecord, name) is getattr(owner, name)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules(name):
    assert getattr(ffrecord, name) is importlib.import_module(f"ffrecord.{name}")


def test_version():
    """Of the distribution, and the same in the project's own file."""
    written = re.search(
        r'^version = "([^"]+)"', (Path(__file__).parents[1] / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert isinstance(ffrecord.__version__, str)
    assert ffrecord.__version__ == version("ffrecord") == written[1]


def test_names_are_loaded_when_they_are_asked_for():
    code = """
import sys
import ffrecord
assert {"FileReader", "__version__", "open", *ffrecord.__all__} <= {*dir(ffrecord)}
loaded = {name for name in sys.modules if name.startswith(("numpy", "torch", "ffrecord."))}
assert loaded == {"ffrecord.system", "ffrecord.system.requirements"}, loaded
from ffrecord import *
assert FileReader and "numpy" in sys.modules and "torch" not in sys.modules
"""
    children.run(code)


def test_what_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ffrecord' has no attribute 'Reader'"):
        _ = ffrecord.Reader


def modules() -> list[str]:
    found = pkgutil.walk_packages(ffrecord.__path__, "ffrecord.")
    return sorted(each.name for each in found if not each.name.startswith(("ffrecord.ray", "ffrecord.torch")))


@pytest.mark.parametrize("name", modules())
def test_every_module_imports_and_keeps_its_promises(name):
    found = importlib.import_module(name)
    exported = getattr(found, "__all__", [])
    assert [each for each in exported if not hasattr(found, each)] == []
    assert len(set(exported)) == len(exported)


def parameters(function: object) -> list[tuple[str, str, object]]:
    kinds = {"POSITIONAL_OR_KEYWORD": "both", "KEYWORD_ONLY": "keyword", "POSITIONAL_ONLY": "position"}
    none = inspect.Parameter.empty
    return [
        (each.name, kinds[each.kind.name], "required" if each.default is none else each.default)
        for each in inspect.signature(function).parameters.values()
    ]


def test_signatures_of_the_original():
    """All its names work as keywords; what is new comes as keywords only."""
    assert parameters(FileReader)[:2] == [("fname", "both", "required"), ("check_data", "both", True)]
    assert {kind for _, kind, _ in parameters(FileReader)[2:]} == {"keyword"}
    assert parameters(FileWriter)[:2] == [("fname", "both", "required"), ("n", "both", None)]
    assert {kind for _, kind, _ in parameters(FileWriter)[2:]} == {"keyword"}
    assert parameters(FileWriter.write_one)[1:] == [("data", "position", "required")]
    assert parameters(FileReader.read)[1:] == [("indices", "both", "required")]
    assert parameters(FileReader.read_one)[1:] == [("index", "both", "required")]
    for method in ("get_offsets", "get_checksums"):
        assert parameters(getattr(FileReader, method))[1:] == [("file_index", "both", "required")]
    for kind, names in ((FileReader, ("close", "validate", "__enter__")), (FileWriter, ("close", "__enter__"))):
        assert all(parameters(getattr(kind, name))[1:] == [] for name in names)


@pytest.mark.parametrize("kind", [FileReader, FileWriter])
def test_public_members_are_documented(kind):
    for name, member in vars(kind).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", [FileReader, FileWriter])
def test_can_be_subclassed(kind, tmp_path):
    class Own(kind):
        def __init__(self, path):
            super().__init__(path)
            self.more = 1

    FileWriter(tmp_path / "a.ffr", 0).close()
    with Own(tmp_path / "a.ffr") as own:
        assert (own.more, isinstance(own, kind)) == (1, True)

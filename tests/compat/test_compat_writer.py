"""Behaviours of ffrecord 1.4 that programs may rely on, and defects of it that are mended: those of FileWriter.

The numbers are those of the list made when the original was examined; see test_compat.py.
"""

import ast
import os
import stat
import tempfile
from pathlib import Path

import builders
import children
import ffr_twin
import numpy as np
import pytest
from builders import IO_MODES

from ffrecord import FileReader, FileWriter

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def test_row_12_a_writer_closed_short(tmp_path):
    """A program must live on, and get its own exception."""
    code = """
import gc, logging, os, sys, warnings
from ffrecord import FileWriter
warnings.simplefilter("ignore", ResourceWarning)
logging.disable()
writer = FileWriter(sys.argv[1], 3)
writer.write_one(b"x")
try:
    writer.close()
except RuntimeError as error:
    assert "Number of samples mismatched! Wrote 1 samples but expected 3" in str(error)
else:
    sys.exit("no error")
del writer
gc.collect()
try:
    with FileWriter(sys.argv[1], 3) as writer:
        writer.write_one(b"x")
        raise KeyError("mine")
except KeyError as error:
    assert error.args == ("mine",) and error.__context__ is None
del writer
gc.collect()
assert os.listdir(os.path.dirname(sys.argv[1])) == []
"""
    children.run(code, tmp_path / "a.ffr")


def test_row_13_the_writer_publishes_atomically(tmp_path):
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"x" * (2 << 20))
        assert not (tmp_path / "a.ffr").exists()
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x" * (2 << 20)])


@pytest.mark.parametrize(
    "value",
    [np.arange(10, dtype=np.int32), np.zeros((3, 4), np.uint8), np.arange(9)[::2], np.arange(9)[::-1], np.array(3.5)],
    ids=["int32", "2-D", "strided", "reversed", "0-d"],
)
def test_row_16_all_bytes_in_c_order(tmp_path, value):
    """All other kinds are in test_writer_buffers.py."""
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(value)
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([value.tobytes()])
    with FileWriter(tmp_path / "b.ffr") as writer, pytest.raises(TypeError):
        writer.write_one(np.array([None]))


@pytest.mark.parametrize("banned", ["cmake", "pybind11", "pkg_resources", "libaio"])
def test_row_31_needs_a_compiler_at_most(banned):
    root = Path(__file__).parents[2]
    for source in [root / "pyproject.toml", root / "setup.py", *(root / "ffrecord").rglob("*.py")]:
        assert f"import {banned}" not in source.read_text()
        assert f'"{banned}' not in source.read_text()


@pytest.mark.long
def test_row_32_a_sample_over_4_gib(tmp_path):
    """Written, summed and read in one piece by whoever has the memory."""
    size = (4 << 30) + 5
    sample = np.zeros(size, np.uint8)
    sample[-1] = 9
    with FileWriter(tmp_path / "a.ffr", 3) as writer:
        for each in (b"before", sample, b"after"):
            writer.write_one(each)
    for io in IO_MODES:
        with FileReader(tmp_path / "a.ffr", io=io) as reader:
            before, large, after = reader.read(range(3))
            assert (before.tobytes(), len(large), large[-1], after.tobytes()) == (b"before", size, 9, b"after")
            del large


def test_row_34_dropped_writers(tmp_path):
    writer = FileWriter(tmp_path / "a.ffr", 1)
    writer.write_one(b"x")
    with pytest.warns(ResourceWarning):
        del writer
    assert (tmp_path / "a.ffr").read_bytes() == ffr_twin.build([b"x"])
    writer = FileWriter(tmp_path / "b.ffr", 2)
    writer.write_one(b"x")
    with pytest.warns(ResourceWarning):
        del writer
    assert os.listdir(tmp_path) == ["a.ffr"]


def test_row_35_modes(tmp_path):
    old = os.umask(0o022)
    try:
        FileWriter(tmp_path / "a.ffr", 0).close()
        assert stat.S_IMODE(os.stat(tmp_path / "a.ffr").st_mode) == 0o644
        os.chmod(tmp_path / "a.ffr", 0o600)
        FileWriter(tmp_path / "a.ffr", 0).close()
        assert stat.S_IMODE(os.stat(tmp_path / "a.ffr").st_mode) == 0o600
    finally:
        os.umask(old)


def test_row_36_symlinks_and_the_old_file(tmp_path):
    (tmp_path / "real").mkdir()
    old = builders.write_samples(tmp_path / "real" / "b.ffr", [b"old"])
    (tmp_path / "a.ffr").symlink_to(old)
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"new")
        with FileReader(tmp_path / "a.ffr") as reader:
            assert reader.read_one(0).tobytes() == b"old"
        assert not [name for name in os.listdir(tmp_path / "real") if name.endswith(".ffr") and name != "b.ffr"]
    assert (tmp_path / "a.ffr").is_symlink()
    assert Path(old).read_bytes() == ffr_twin.build([b"new"])


def test_row_36_an_empty_file_made_before(tmp_path):
    """As `mkstemp` does; and somebody else may hold it open."""
    with tempfile.NamedTemporaryFile(suffix=".ffr", dir=tmp_path) as held:
        with FileWriter(held.name, 1) as writer:
            writer.write_one(b"x")
        with FileReader(held.name) as reader:
            assert reader.read_one(0).tobytes() == b"x"
    assert os.listdir(tmp_path) == []


def test_row_40_no_check_is_an_assert():
    """They would vanish under `python -O`."""
    package = Path(__file__).parents[2] / "ffrecord"
    found = [
        f"{path.name}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert not found
    assert not [path.name for path in package.rglob("*.p[xy][xi]") if "\n    assert " in path.read_text()]


def test_row_40_checks_stay_under_optimisation(tmp_path):
    code = """
import sys
from ffrecord import FileReader
try:
    FileReader(sys.argv[1])
except ValueError:
    print("refused", __debug__)
"""
    printed = children.run(code, builders.write(tmp_path / "a.ffr", b"short"), PYTHONOPTIMIZE="1")
    assert printed == "refused False\n"

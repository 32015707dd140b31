"""failed_once.py: tests that fail only beside others are repeated alone; whatever else fails stays a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOMETIMES = """
import os
import pathlib
import subprocess
import sys
import warnings
import pytest

def test_first_time():
    seen = pathlib.Path("seen")
    before = seen.exists()
    seen.touch()
    assert before
"""
CHILD = """
def test_child():
    code = subprocess.run([sys.executable, "-c", "import os; os.abort()"]).returncode
    assert code == 0 or pathlib.Path("aborted").exists(), f"child ended with {code}"
"""
TEARDOWN = """
@pytest.fixture(scope="module")
def nothing_left():
    yield
    assert pathlib.Path("cleaned").exists()

def test_nothing_left(nothing_left):
    pathlib.Path("cleaned").touch()
    if not pathlib.Path("again").exists():
        pathlib.Path("again").touch()
        pathlib.Path("cleaned").unlink()
"""
SKIP = """
def test_skips_alone():
    if pathlib.Path("failed").exists():
        pytest.skip("here")
    pathlib.Path("failed").touch()
    assert False
"""
ORDER = """
STATE = []

def test_leaves_state():
    STATE.append(1)

def test_sees_state():
    assert not STATE
"""
WARNING = """
def test_warns():
    warnings.warn("something")
"""
NAMES = """
@pytest.mark.parametrize("name", ["a[b]", "x::y", " -k z", "line\\nbreak"])
def test_names(name):
    seen = pathlib.Path("named")
    before = seen.exists()
    seen.touch()
    assert before
"""
ALWAYS = "\ndef test_always():\n    assert False\n"
CRASH = """
def test_crash():
    os.abort()
"""
HANG = """
import time

@pytest.mark.timeout(1)
def test_hang():
    time.sleep(60)
"""


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("source", "again", "arguments", "passes", "is_repeated"),
    [
        pytest.param(SOMETIMES + NAMES, 2, ["-n", "1"], True, True, id="once"),
        pytest.param(SOMETIMES + ALWAYS, 2, ["-n", "2"], False, True, id="always"),
        pytest.param(SOMETIMES + CRASH, 3, ["-n", "2"], False, False, id="crash"),
        pytest.param(SOMETIMES + CHILD, 3, ["-n", "0"], False, False, id="child"),
        pytest.param(SOMETIMES + TEARDOWN, 3, ["-n", "0"], False, False, id="teardown"),
        pytest.param(SOMETIMES, 1, ["--junit-xml=report.xml"], True, True, id="alone", marks=LONG),
        pytest.param(SOMETIMES, 0, ["-n", "2"], False, False, id="not_asked_for", marks=LONG),
        pytest.param(SOMETIMES + ALWAYS, 1, ["-n", "2"], False, False, id="too_many", marks=LONG),
        pytest.param(SOMETIMES + ALWAYS, 3, ["-x", "-n", "0"], False, False, id="first", marks=LONG),
        pytest.param(SOMETIMES + HANG, 3, ["-n", "2"], False, False, id="hang", marks=LONG),
        pytest.param(SOMETIMES + SKIP, 3, ["-n", "2"], False, True, id="skip", marks=LONG),
        pytest.param(SOMETIMES + ORDER, 3, ["-n", "1"], False, True, id="order", marks=LONG),
        pytest.param(SOMETIMES + WARNING, 3, ["-n", "1", "-W", "error"], False, True, id="warning", marks=LONG),
        pytest.param("import nothing_of_this_name\n", 3, ["-n", "1"], False, True, id="collection", marks=LONG),
        pytest.param("def test_nothing(): pass\n", 3, ["-n", "1"], True, False, id="nothing", marks=LONG),
    ],
)
def test_repeats_alone(tmp_path, source, again, arguments, passes, is_repeated):
    (tmp_path / "test_it.py").write_text(source)
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['failed_once']\n")
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": "--rootdir=.", "FFRECORD_TESTS_AGAIN": str(again)}
    environment.pop("FFRECORD_TESTS_FAILED", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0, "are repeated alone" in done.stdout) == (passes, is_repeated), done.stdout
    assert ("passed alone, after" in done.stdout) == (passes and is_repeated)

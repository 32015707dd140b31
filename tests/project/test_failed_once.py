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

def test_first_time():
    seen = pathlib.Path("seen")
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
import pytest

@pytest.mark.timeout(1)
def test_hang():
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("source", "again", "passes", "is_repeated"),
    [
        (SOMETIMES, 1, True, True),
        (SOMETIMES, 0, False, False),
        (SOMETIMES + ALWAYS, 2, False, True),
        (SOMETIMES + ALWAYS, 1, False, False),
        (SOMETIMES + CRASH, 3, False, False),
        (SOMETIMES + HANG, 3, False, False),
        ("def test_nothing(): pass\n", 3, True, False),
    ],
    ids=["once", "not_asked_for", "always", "too_many", "crash", "hang", "nothing"],
)
def test_repeats_alone(tmp_path, source, again, passes, is_repeated):
    (tmp_path / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "failed_once", "--again", str(again), "-n", "2", "test_it.py"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": "--rootdir=."}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0, "repeated alone" in done.stdout) == (passes, is_repeated), done.stdout
    assert ("passed alone" in done.stdout) == (passes and is_repeated)

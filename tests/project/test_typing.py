"""Type checkers find the types of samples, and nothing to complain of: mypy, and pyright as basedpyright has it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="numpy has types of its own kind in the last version for Python 3.10"
    ),
    pytest.mark.timeout(280),
]


def check(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_strict() -> None:
    """What pyproject.toml asks for: the package and the types of samples, in one run, which is slow.

    Without Ray its types are not to be had: all but the part that imports it is checked.
    """
    settings = (ROOT / "pyproject.toml").read_text()
    assert 'strict = true\nfiles = ["ffrecord", "tests/typing"]\n' in settings
    if importlib.util.find_spec("ray"):
        check("mypy")
    else:
        check("mypy", "--exclude", "^ffrecord/ray/")
        pytest.skip("ray is not installed: nothing checks the types in ffrecord/ray; the rest is fine")


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_pyright_does_and_has_no_complaint() -> None:
    check("basedpyright", "--warnings", "--pythonpath", sys.executable)

"""The tests of sources have files of every format."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "sources"))


@pytest.fixture(scope="session", autouse=True)
def _forking():
    """Starts what runs the command before a test looks at which files are open."""
    from cli_runs import forked

    forked()

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "sources"))  # modules that make files of every format

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]  # tests/conftest.py says so at the top of the run
else:
    from torch_builders import write_file

COUNT = 23


@pytest.fixture(scope="session")
def values() -> list[int]:
    """What the samples of `path` are."""
    return [7 * i - 30 for i in range(COUNT)]


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory, values: list[int]) -> str:
    directory: Path = tmp_path_factory.mktemp("torch")
    return write_file(directory / "ints.ffr", values)

"""What the tests of the guarantees share: seeds, counts, and figures for docs/guarantees.md."""

import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import figures
import numpy as np
import pytest

PASSED = pytest.StashKey[bool]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """For all that a test does at random; printed where it fails."""
    value = int(request.config.getoption("--seed"))
    print(f"--seed {value}")
    return value


@pytest.fixture
def random(seed: int) -> np.random.Generator:
    """Numbers of that seed."""
    return np.random.default_rng(seed)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory whose files wait for no disk, if there is such a place."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="ffrecord-test-", dir=shared))
    yield directory
    shutil.rmtree(directory)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let `counted` know whether its test passed; write to the file of --figures which one was skipped, and why."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    path = item.config.getoption("--figures")
    if path and report.skipped and isinstance(report.longrepr, tuple):
        figures.append_skipped(path, item.nodeid, report.longrepr[2].removeprefix("Skipped: "))
    return report


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest) -> Iterator[figures.Counted]:
    """Where a test counts what it did: written to the file of --figures if the test passes."""
    found = figures.Counted()
    began = time.monotonic()
    yield found
    path = request.config.getoption("--figures")
    if path and request.node.stash.get(PASSED, False):
        found.append(path, request.node.nodeid, time.monotonic() - began)

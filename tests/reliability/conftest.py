"""What the tests of the guarantees share: seeds, counts, and figures for docs/guarantees.md."""

import time
from collections.abc import Iterator

import figures
import numpy as np
import pytest


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
def counted(request: pytest.FixtureRequest) -> Iterator[figures.Counted]:
    """Where a test counts what it did: written to the file of --figures if the test passes."""
    found = figures.Counted()
    began = time.monotonic()
    failed = request.session.testsfailed
    yield found
    path = request.config.getoption("--figures")
    if path and request.session.testsfailed == failed:
        found.append(path, request.node.nodeid, time.monotonic() - began)

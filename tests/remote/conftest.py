"""What several files of tests need: servers, of which to begin one takes as long as some tests, and what they serve."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import shards
from remote_datasets import write_numbers
from servers import Moto, Nginx, moto, nginx


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """A running S3 API server, with a bucket that others use, too."""
    with moto(tmp_path_factory.mktemp("storage") / "moto") as running:
        yield running


@pytest.fixture(scope="module")
def numbers_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """The dataset of `write_numbers`, as /set."""
    directory = tmp_path_factory.mktemp("numbers")
    write_numbers(directory / "root" / "set")
    with nginx(directory / "root", directory=directory / "nginx") as running:
        yield running


@pytest.fixture
def source(tmp_path: Path) -> shards.Source:
    return shards.source(tmp_path / "source.ffr")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a cache."""
    return tmp_path / "cache"

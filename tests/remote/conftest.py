"""What several files of tests need: servers, of which to begin one takes as long as some tests, and what they serve."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import shards
from remote_datasets import write_numbers
from servers import Nginx, Storage, moto, nginx, seaweedfs


@pytest.fixture(scope="session", params=["moto", pytest.param("seaweedfs", marks=pytest.mark.long)])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """A running S3 API server, with a bucket that others use, too."""
    begin = {"moto": moto, "seaweedfs": seaweedfs}[request.param]
    with begin(tmp_path_factory.mktemp("storage") / request.param) as running:
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
